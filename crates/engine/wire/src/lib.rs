//! eyas-wire: the messages between members of one cluster, and how members recognise each other.
//!
//! [`frame`] cuts a byte stream into frames, [`message`] defines their content, [`relay`] has what carries frames of many
//! executors on one connection, and [`identity`] makes a cluster's secret, its certificates and the join file that carries
//! both. No sockets here: the runtime moves the bytes.

#![forbid(unsafe_code)]

pub mod frame;
#[cfg(test)]
mod golden;
pub mod identity;
pub mod message;
pub mod relay;
pub mod users;
