//! eyas-session: what two sides of the control plane owe each other, without socket, clock or disk.
//!
//! | module | gives |
//! |---|---|
//! | [`dispatcher`] | the dispatcher's side: submissions, ends, executors, other dispatchers of the group, status |
//! | [`client`] | the client's side: a submission to several dispatchers, from its first word to the decision |
//! | [`executor`] | the executor's side, with the node's state machine: names of objects, attempts, hello and welcome, messages that wait to be sent |
//! | [`clock`] | another machine's clock, as it is estimated from what that machine said |
//!
//! Each side takes inputs and times. The dispatcher's session acts through a trait that its driver implements; the other two
//! return what is to be done. The live processes and the worlds of the fault simulation drive the same code, so that what is
//! tested is what runs.
//!
//! Not here: who runs what (`eyas-core`), how messages look (`eyas-wire`), sockets, files and threads (`eyas-runtime`).

#![forbid(unsafe_code)]

pub mod client;
pub mod clock;
pub mod dispatcher;
pub mod executor;
