//! The executor's side of the control plane: names of objects, and what is said to which dispatcher.
//!
//! | module | gives |
//! |---|---|
//! | [`book`] | an executor's own numbers of objects, and a dispatcher's numbers of them |
//! | [`link`] | hello and welcome, messages that wait to be sent, and which dispatcher the executor belongs to |
//! | [`orders`] | what each message of the dispatcher asks of the node |
//! | [`pace`] | when a status is due, and when to try again to connect |
//!
//! Not here: when to connect and to whom (the driver), what happens on the node (`eyas_core::executor`).

pub mod book;
pub mod link;
pub mod orders;
pub mod pace;

pub use book::{Book, NAMES_MIN, unless_dropped};
pub use link::{DispatcherLink, Welcomed};
pub use orders::Order;
