//! What is fuzzed.

mod bytes;
mod files;
mod folders;
pub mod members;
mod plane;
mod texts;
mod workflows;

use crate::Target;

/// All targets, in an order that does not change.
pub fn all() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(bytes::Frames),
        Box::new(bytes::Tickets::new()),
        Box::new(bytes::Slots),
        Box::new(bytes::Records),
        Box::new(plane::DataPlane::new()),
        Box::new(members::Members::default()),
        Box::new(files::JournalFiles::new()),
        Box::new(files::EventLogs::new()),
        Box::new(files::JoinFiles::new()),
        Box::new(folders::Folders::new()),
        Box::new(texts::TaskLists),
        Box::new(texts::Maps),
        Box::new(texts::Commands),
        Box::new(texts::Words),
        Box::new(workflows::Workflows::wfformat()),
        Box::new(workflows::Workflows::pegasus()),
        Box::new(workflows::Workflows::dax()),
        Box::new(workflows::Workflows::makeflow()),
        Box::new(workflows::Workflows::jx()),
        Box::new(workflows::Workflows::swift()),
    ]
}
