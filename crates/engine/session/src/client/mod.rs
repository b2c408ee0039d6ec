//! The client's side of a group of dispatchers: what it takes until a submission is accepted by all of them, or by none.
//!
//! | module | owes |
//! |---|---|
//! | [`submission`] | the steps of a submission in parts, in their order, whichever member is lost on the way |
//! | `circle` | that no task is added which waits for itself |
//!
//! Not here: how long nobody may answer, and whether somebody tries again (the programs that submit).

mod circle;
pub mod submission;
#[cfg(test)]
mod tests;

pub use submission::{Input, No, Output, Splitting, Submission};
