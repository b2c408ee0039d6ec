//! How one task is run on a node.
//!
//! Each slot of an executor is a *slot process*: small, single threaded, without tokio. It is the executor's
//! own binary, started again ([`spawn_slot`]), that calls [`slot_main`] at once. The two communicate over a
//! Unix stream socket in frames ([`protocol`]): the executor sends [`SlotCommand`]s, a few tasks ahead, and
//! receives [`SlotReport`]s.
//!
//! The steps of a task: take an empty sandbox directory, link the inputs into it, start the program, capture
//! the beginning and the end of its output, enforce its limits, kill the processes that it left behind,
//! examine its declared outputs, report.
//!
//! Invariants:
//!   1. when a task is reported as ended, none of its processes lives (or `n_unkillable` says so), also not
//!      those that called `setsid` or forked twice: the slot process is their reaper;
//!   2. every `Start` is answered by exactly one `Ended`, whatever happens, unless the socket closes;
//!   3. when the socket closes, the slot process kills what it runs, removes its sandboxes and ends; when it is killed
//!      itself, the executor ends what it ran ([`reaper`]);
//!   4. memory of the slot process does not grow with what a task prints.
//!
//! Why a process per slot: starting a program from the executor itself would copy its page tables or
//! serialise all starts in one place, and only a process can be the reaper of its descendants.
//!
//! A program runs as the executor's system user, or as the [`Account`] that its spec names, which then has its sandbox
//! for itself.
//!
//! A program may run in a [`Container`], with another root file system.
//!
//! Not here: where inputs come from, hashing and moving outputs, retries (the executor in `eyas-runtime`).

pub mod account;
pub mod bench;
pub mod calls;
mod capture;
pub mod container;
mod error;
mod exec_args;
mod handle;
mod new_files;
mod pipes;
mod program;
pub mod protocol;
pub mod reaper;
pub mod sandbox;
pub mod seccomp;
pub mod shell;
mod slot;
mod spawn;
mod stage;
mod sys;
pub mod tree;
pub mod warm;
pub mod watched;
mod without_proc;

pub use error::{Error, ErrorKind, Status};
pub use handle::{SlotHandle, spawn_slot};
pub use protocol::{
    Account, ByteString, CaptureLimits, Captured, Container, ContainerKind, Decoder, ExitKind, Input,
    InputMode, LinkKind, NewFiles, NotStartedKind, OutputState, Program, RunReport, RunSpec, SetupKind,
    SlotCommand, SlotConfig, SlotReport, Times, Usage,
};
pub use slot::{slot_main, survive_file_size_limit};

/// What to do about the carriage returns of a script, for messages.
pub const TAKE_RETURNS_OUT: &str = "`sed -i 's/\\r$//' FILE` takes these out";
