//! eyas-wire: what peers of one cluster say to each other, and how they know each other.
//!
//! [`frame`] cuts a byte stream into frames, [`message`] says what is in them, [`identity`] makes a
//! cluster's secret, its certificates and the join file that carries both. No sockets here: the
//! runtime moves the bytes.

pub mod frame;
pub mod identity;
pub mod message;
