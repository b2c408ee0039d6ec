//! Calls of functions, which are tasks of a program that talks with eyas' own package (`python/src/eyas/_worker.py`): what such a
//! task is given and what it prints first is for that program, and says nothing to people.

use eyas_terms::array::Command;

/// What the answer of a function begins with. It stands where other tasks have what they print.
const ANSWER: &[u8] = b"\x1eeyas-answer ";
/// The module that a worker runs, before its pool and the call.
const WORKER: &str = "eyas._worker";
/// What a call begins with that stands in the command itself.
const CALL: char = '+';

/// Whether what a task wrote to its standard output is the answer of a function.
pub fn is_answer(head: &[u8]) -> bool {
    head.starts_with(ANSWER)
}

/// The command without the call that is packed in it.
pub fn without_call(command: &Command<String>) -> Option<(&[String], usize)> {
    let Command::Exec(words) = command else { return None };
    let (call, before) = words.split_last()?;
    let is_worker = before.len() >= 2 && before[before.len() - 2] == WORKER;
    (is_worker && call.starts_with(CALL)).then_some((before, call.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_call_is_known_by_the_worker_that_it_is_for() {
        let words = |words: &[&str]| Command::Exec(words.iter().map(|w| w.to_string()).collect());
        let call = words(&["python3", "-m", "eyas._worker", "pool", "+gASV"]);
        assert_eq!(without_call(&call).map(|(before, n)| (before.len(), n)), Some((4, 5)));
        for other in [&["python3", "-m", "eyas._worker", "pool", "@call"][..], &["sort", "+1"], &[]] {
            assert_eq!(without_call(&words(other)), None);
        }
    }
}
