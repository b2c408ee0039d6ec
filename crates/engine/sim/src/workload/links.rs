//! Tasks linked by files, all known at once: whether they can all run, and in which order to submit them.
//!
//! A dispatcher that gets submissions one by one knows a task's maker only if the maker was submitted
//! before. Recorded and imported workloads need not have that order. [`in_order`] gives them that order,
//! and leaves workloads alone that have it already.

use super::{ArrivingTasks, Compute, Error, Sizes};
use eyas_terms::Timestamp;
use eyas_terms::array::{Pattern, TaskArray};
use eyas_text::shown;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The most names in one sentence about a circle.
const NAMED_MAX: usize = 4;

/// `submissions` with every maker before its readers. Submissions that are already in that order come back
/// as they are; others are split into single tasks, each at its own time or, if that is later, at the time
/// of its last maker.
///
/// `Err`: two tasks write one file, a file that is read has neither maker nor size, a file that is written
/// has no size, or tasks wait for each other in a circle.
pub fn in_order(submissions: Vec<ArrivingTasks>, sizes: &Sizes) -> Result<Vec<ArrivingTasks>, Error> {
    let tasks: Vec<(usize, u32)> = (submissions.iter().enumerate())
        .flat_map(|(s, submission)| (0..submission.array.n_tasks).map(move |i| (s, i)))
        .collect();
    let makers = makers(&submissions, &tasks, sizes)?;
    let mut waits_for: Vec<Vec<u32>> = vec![vec![]; tasks.len()];
    let mut settled = true;
    let mut location = String::new();
    for (t, &(s, i)) in tasks.iter().enumerate() {
        let array = &submissions[s].array;
        for (_, pattern) in &array.template.inputs {
            location.clear();
            array.fill_into(pattern, i, &mut location);
            match makers.get(&location) {
                // A file that is changed in place is read from home.
                Some(maker) if *maker as usize == t => {}
                Some(maker) => {
                    settled &= tasks[*maker as usize].0 <= s;
                    if !waits_for[t].contains(maker) {
                        waits_for[t].push(*maker);
                    }
                }
                None if sizes.of(&location).is_none() => {
                    return Err(Error::never_ends(format!(
                        "task {} reads {location}, which no task makes and whose size is not known",
                        shown(&user_id(&submissions, (s, i))),
                        location = shown(&location)
                    )));
                }
                None => {}
            }
        }
    }
    let order = topological(&submissions, &tasks, &waits_for)?;
    if settled {
        return Ok(submissions);
    }
    Ok(order.into_iter().map(|(at_ns, t)| single(&submissions, tasks[t as usize], at_ns)).collect())
}

/// The longest chain of compute times over links, in nanoseconds. `submissions` must be in the order of
/// [`in_order`], with makers before their readers also within an array.
pub fn longest_chain_ns(submissions: &[ArrivingTasks]) -> u64 {
    let mut done_ns: FxHashMap<String, u64> = FxHashMap::default();
    let mut longest = 0;
    for s in submissions {
        for i in 0..s.array.n_tasks {
            let locations = |list: &[(Pattern, Pattern)]| -> Vec<String> {
                list.iter().map(|(_, location)| s.array.fill(location, i)).collect()
            };
            let inputs = locations(&s.array.template.inputs);
            let start = inputs.iter().filter_map(|l| done_ns.get(l)).copied().max().unwrap_or(0).max(s.at.0);
            let end = start.saturating_add(s.compute.of(i));
            longest = longest.max(end);
            done_ns.extend(locations(&s.array.template.outputs).into_iter().map(|l| (l, end)));
        }
    }
    longest
}

fn user_id(submissions: &[ArrivingTasks], (s, i): (usize, u32)) -> String {
    let array = &submissions[s].array;
    array.fill(&array.template.id, i)
}

/// The task that makes each location, by index into `tasks`.
fn makers(
    submissions: &[ArrivingTasks],
    tasks: &[(usize, u32)],
    sizes: &Sizes,
) -> Result<FxHashMap<String, u32>, Error> {
    let mut makers = FxHashMap::default();
    for (t, &(s, i)) in tasks.iter().enumerate() {
        let array = &submissions[s].array;
        for (_, pattern) in &array.template.outputs {
            let location = array.fill(pattern, i);
            let name = |t: u32| user_id(submissions, tasks[t as usize]);
            if sizes.of(&location).is_none() {
                let id = name(t as u32);
                return Err(Error::config(format!(
                    "the size of {location}, which task {id} writes, is not known",
                    location = shown(&location),
                    id = shown(&id)
                )));
            }
            if let Some(other) = makers.insert(location.clone(), t as u32) {
                let (a, b) = (name(other), name(t as u32));
                return Err(Error::config(format!(
                    "tasks {a} and {b} both write {location}",
                    a = shown(&a),
                    b = shown(&b),
                    location = shown(&location)
                )));
            }
        }
    }
    Ok(makers)
}

/// Tasks in an order in which every maker comes before its readers, and otherwise in order of time and of
/// submission.
fn topological(
    submissions: &[ArrivingTasks],
    tasks: &[(usize, u32)],
    waits_for: &[Vec<u32>],
) -> Result<Vec<(u64, u32)>, Error> {
    let mut readers: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (t, makers) in waits_for.iter().enumerate() {
        makers.iter().for_each(|maker| readers.entry(*maker).or_default().push(t as u32));
    }
    let mut n_missing: Vec<u32> = waits_for.iter().map(|makers| makers.len() as u32).collect();
    let mut at_ns: Vec<u64> = tasks.iter().map(|(s, _)| submissions[*s].at.0).collect();
    let free = (0..tasks.len() as u32).filter(|t| n_missing[*t as usize] == 0);
    let mut heap: BinaryHeap<Reverse<(u64, u32)>> = free.map(|t| Reverse((at_ns[t as usize], t))).collect();
    let mut order = Vec::with_capacity(tasks.len());
    while let Some(Reverse((at, t))) = heap.pop() {
        order.push((at, t));
        for &reader in readers.get(&t).into_iter().flatten() {
            let r = reader as usize;
            at_ns[r] = at_ns[r].max(at);
            n_missing[r] -= 1;
            if n_missing[r] == 0 {
                heap.push(Reverse((at_ns[r], reader)));
            }
        }
    }
    if order.len() == tasks.len() {
        return Ok(order);
    }
    Err(circle(submissions, tasks, waits_for, &n_missing))
}

/// The error that names a circle: beginning with any stuck task, it goes to the first stuck maker of each
/// task until a task comes up again.
fn circle(
    submissions: &[ArrivingTasks],
    tasks: &[(usize, u32)],
    waits_for: &[Vec<u32>],
    n_missing: &[u32],
) -> Error {
    let stuck = |t: &u32| n_missing[*t as usize] > 0;
    let mut path: Vec<u32> = (0..tasks.len() as u32).find(stuck).into_iter().collect();
    let begin = loop {
        let here = *path.last().expect("some task is stuck");
        let next =
            *waits_for[here as usize].iter().find(|t| stuck(t)).expect("a stuck task has a stuck maker");
        if let Some(begin) = path.iter().position(|t| *t == next) {
            break begin;
        }
        path.push(next);
    };
    let circle = &path[begin..];
    let mut names: Vec<String> = circle
        .iter()
        .take(NAMED_MAX)
        .map(|t| format!("{}", shown(&user_id(submissions, tasks[*t as usize]))))
        .collect();
    if circle.len() > NAMED_MAX {
        names.push(format!("{} more", circle.len() - NAMED_MAX));
    }
    names.push(names[0].clone());
    Error::never_ends(format!("tasks wait for each other in a circle: {}", names.join(" waits for ")))
}

/// One task as a submission of its own.
fn single(submissions: &[ArrivingTasks], (s, i): (usize, u32), at_ns: u64) -> ArrivingTasks {
    let ArrivingTasks { array, compute, .. } = &submissions[s];
    let array = TaskArray {
        n_tasks: 1,
        first_index: array.first_index + u64::from(i),
        template: array.expand(i).map(&mut |text| Pattern::literal(text.as_str())),
        columns: vec![],
        needs: None,
    };
    ArrivingTasks { at: Timestamp(at_ns), array: Arc::new(array), compute: Compute::Same(compute.of(i)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::template;

    fn task(id: &str, at_ns: u64, inputs: &[&str], outputs: &[&str]) -> ArrivingTasks {
        let patterns = |list: &[&str]| list.iter().map(|text| Pattern::literal(*text)).collect();
        let template = template(Pattern::literal(id), "p", patterns(inputs), patterns(outputs));
        let array = TaskArray { n_tasks: 1, first_index: 0, template, columns: vec![], needs: None };
        ArrivingTasks { at: Timestamp(at_ns), array: Arc::new(array), compute: Compute::Same(10) }
    }

    fn order(submissions: Vec<ArrivingTasks>) -> Result<Vec<(u64, String)>, String> {
        let ordered = in_order(submissions, &Sizes::Same(1)).map_err(|e| e.to_string())?;
        Ok(ordered.iter().map(|s| (s.at.0, s.array.expand(0).id)).collect())
    }

    #[test]
    fn makers_come_before_their_readers_and_what_is_in_order_stays() {
        let chain =
            || vec![task("a", 0, &["x"], &["y"]), task("b", 5, &["y"], &["z"]), task("c", 5, &["z"], &[])];
        assert_eq!(order(chain()).unwrap(), [(0, "a".into()), (5, "b".into()), (5, "c".into())]);
        assert_eq!(longest_chain_ns(&in_order(chain(), &Sizes::Same(1)).unwrap()), 30);

        let mut backwards = chain();
        backwards.reverse();
        backwards[0].at = Timestamp(1);
        assert_eq!(order(backwards).unwrap(), [(0, "a".into()), (5, "b".into()), (5, "c".into())]);
    }

    #[test]
    fn circles_two_writers_and_unknown_files_are_named() {
        let check = |submissions, expect: &str| {
            let error = order(submissions).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        let circle =
            vec![task("s", 0, &["y"], &[]), task("a", 0, &["y"], &["x"]), task("b", 0, &["x"], &["y"])];
        check(circle, "in a circle: `b` waits for `a` waits for `b`");
        check(vec![task("a", 0, &[], &["x"]), task("b", 0, &[], &["x"])], "tasks `a` and `b` both write `x`");
        let unknown = in_order(vec![task("a", 0, &["x"], &[])], &Sizes::Each(FxHashMap::default()));
        assert!(unknown.err().unwrap().to_string().contains("reads `x`, which no task makes"));
        assert!(order(vec![task("a", 0, &["x"], &["x"])]).is_ok(), "changed in place");
    }
}
