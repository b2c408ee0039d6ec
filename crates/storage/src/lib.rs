//! eyas-storage
