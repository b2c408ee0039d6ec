//! The executor's side of the control plane: names of objects, and what is said to which dispatcher.
//!
//! | module | gives |
//! |---|---|
//! | [`session`] | an executor's side, whole |
//! | [`attempts`] | what is known of the attempts here, and what the ends of their programs mean |
//! | [`book`] | an executor's own numbers of objects, and a dispatcher's numbers of them |
//! | [`link`] | hello and welcome, messages that wait to be sent, and which dispatcher the executor belongs to |
//! | [`orders`] | what each message of the dispatcher asks of the node |
//! | [`pace`] | when a status is due, and when to try again to connect |
//! | [`places`] | which relay an executor tries, or the dispatcher itself |
//!
//! Not here: when to connect and to whom (the driver), what happens on the node (`eyas_core::executor`).

pub mod attempts;
pub mod book;
pub mod link;
pub mod orders;
pub mod pace;
pub mod places;
pub mod session;

pub use attempts::{AttemptId, Attempts, Ended, Verdict};
pub use book::{Book, NAMES_MIN};
pub use link::{DispatcherLink, Welcomed};
pub use orders::Order;
pub use session::ExecutorSession;
