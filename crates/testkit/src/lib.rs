//! eyas-testkit
