//! Splitting a submission among the dispatchers of a group.
//!
//! In: folded arrays, and the number of members. Out: for each member its part, in the order of the arrays,
//! still folded, and what the part has to know of the others ([`RunLinks`]).
//!
//! The *key* of a task determines where it is queued. The key is the first file that the task makes and that
//! stays on the nodes, so that both sides of such a file find its owner by its name. If there is none, it is
//! the first input that is not the same for all tasks of the array, so that tasks which read the same file
//! meet. If there is none either, the array is dealt out in stretches, which costs nothing per task. (A
//! script that every task reads is no key: all tasks would be at one dispatcher.)
//!
//! Problems that only a look at all tasks can find are found here: two tasks of different parts that write
//! one file. So are files that cross and are not at the owner of their name (further outputs of a task,
//! results at home that other tasks read).
//!
//! The patterns of the whole run are found here, too, as each part shows only a share of them
//! ([`RunPatterns`]).
//!
//! Tasks that are added to a run are split in the same way, with what each member reported of the run's files
//! ([`split_addition`]). So an added task that reads a file which nobody writes is also found here.
//!
//! Not here: files that no task of a whole run makes (each dispatcher finds those that its tasks read).

use super::{KnownFiles, RunLinks, owner_of};
use crate::dispatcher::{nobody_writes, was_dropped};
use crate::pattern::{RunPatterns, patterns_by_part};
use eyas_terms::array::{Column, Pattern, Piece, TaskArray};
use eyas_terms::*;
use eyas_text::shown;
use rustc_hash::{FxHashMap, FxHasher};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::Hasher;

/// One member's part of a submission.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part {
    pub arrays: Vec<TaskArray>,
    pub links: RunLinks,
    pub patterns: RunPatterns,
}

/// How the tasks of one array are dealt out.
enum Deal {
    /// In stretches: member `(i + shift) % n` has the `i`-th.
    Stretches { shift: u32 },
    /// One by one, each task to the member named here.
    ByKey(Vec<MemberId>),
}

/// Splits `arrays` among `n_members` (at least 1). `Err`: a sentence, if two tasks write one file.
pub fn split(arrays: &[TaskArray], n_members: u32) -> Result<Vec<Part>, String> {
    split_all(arrays, n_members, None)
}

/// Like [`split`], for tasks that are added to a run. `known`: what each member reported of all these tasks.
/// `Err` also if one of them writes a file that a task of the run writes, or reads a file that nobody writes.
pub fn split_addition(arrays: &[TaskArray], known: &[KnownFiles]) -> Result<Vec<Part>, String> {
    match known.iter().find_map(|k| k.clash.clone()) {
        Some(clash) => Err(clash),
        None => split_all(arrays, known.len() as u32, Some(known)),
    }
}

fn split_all(
    arrays: &[TaskArray],
    n_members: u32,
    known: Option<&[KnownFiles]>,
) -> Result<Vec<Part>, String> {
    let deals: Vec<Deal> = (0..).zip(arrays).map(|(n, array)| deal(array, n, n_members)).collect();
    let mut parts = vec![Part::default(); n_members as usize];
    link(arrays, &deals, n_members, known, &mut parts)?;
    if n_members > 1 {
        let owner = |a: u32, i: u32| deals[a as usize].owner(i, arrays[a as usize].n_tasks, n_members).0;
        let has_made =
            |location: &str| known.is_some_and(|all| all.iter().any(|k| k.makes.contains(location)));
        let patterns = patterns_by_part(arrays, n_members, owner, has_made);
        parts.iter_mut().zip(patterns).for_each(|(part, patterns)| part.patterns = patterns);
    }
    for (array, deal) in arrays.iter().zip(&deals) {
        for (part, member) in parts.iter_mut().zip(0..) {
            let mine: Cow<'_, [u32]> = match deal {
                Deal::Stretches { shift } => {
                    let (start, end) =
                        stretch(array.n_tasks, (member + n_members - shift) % n_members, n_members);
                    if start < end {
                        part.arrays.push(if end - start == array.n_tasks {
                            array.clone()
                        } else {
                            slice(array, start, end)
                        });
                    }
                    continue;
                }
                Deal::ByKey(owners) => {
                    (0..array.n_tasks).filter(|i| owners[*i as usize].0 == member).collect()
                }
            };
            if mine.len() == array.n_tasks as usize {
                part.arrays.push(array.clone());
            } else if !mine.is_empty() {
                part.arrays.push(select(array, &mine));
            }
        }
    }
    Ok(parts)
}

/// The `i`-th of `n` stretches of an array: `start..end`.
fn stretch(n_tasks: u32, i: u32, n: u32) -> (u32, u32) {
    let cut = |i: u32| (u64::from(n_tasks) * u64::from(i) / u64::from(n)) as u32;
    (cut(i), cut(i + 1))
}

fn deal(array: &TaskArray, number: u32, n_members: u32) -> Deal {
    let outputs = array.template.outputs.iter().map(|(_, l)| l);
    let stays: Vec<&Pattern> = outputs.filter(|l| array.may_stay(l)).collect();
    let varies = array.template.inputs.iter().map(|(_, l)| l).find(|l| !l.is_constant());
    // A single task is an array of one, in which everything is constant.
    let input = varies.or(array.template.inputs.first().map(|(_, l)| l).filter(|_| array.n_tasks == 1));
    if stays.is_empty() && input.is_none() {
        // The position of the last, shortest stretches differs from array to array.
        let shift = if array.n_tasks < n_members {
            owner_of(&array.fill(&array.template.id, 0), n_members).0
        } else {
            number % n_members
        };
        return Deal::Stretches { shift };
    }
    let mut text = String::new();
    let mut owner = |i: u32| {
        for pattern in &stays {
            if array.locate(pattern, i, &mut text).stays() {
                return owner_of(&text, n_members);
            }
        }
        text.clear();
        array.fill_into(input.unwrap_or(&array.template.id), i, &mut text);
        owner_of(&text, n_members)
    };
    Deal::ByKey((0..array.n_tasks).map(&mut owner).collect())
}

impl Deal {
    fn owner(&self, i: u32, n_tasks: u32, n_members: u32) -> MemberId {
        match self {
            Deal::ByKey(owners) => owners[i as usize],
            Deal::Stretches { shift } => {
                // The stretch k with cut(k) <= i < cut(k + 1).
                let mut k = (u64::from(i) * u64::from(n_members) / u64::from(n_tasks)) as u32;
                while stretch(n_tasks, k, n_members).1 <= i {
                    k += 1;
                }
                MemberId((k + shift) % n_members)
            }
        }
    }
}

fn hash_of(location: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(location.as_bytes());
    hasher.finish()
}

/// A task of a submission: the index of its array, and its position there.
type TaskAt = (u32, u32);

/// Which task of a submission makes which file. A task that promises a file stands for the task that will
/// make it.
struct Makers<'a> {
    arrays: &'a [TaskArray],
    /// By the hash of the location; equal hashes are distinguished by unfolding.
    by_hash: FxHashMap<u64, Vec<TaskAt>>,
}

impl<'a> Makers<'a> {
    /// Looks at each output of each task. `Err`: a sentence, if two tasks write one file.
    fn of(arrays: &'a [TaskArray]) -> Result<Makers<'a>, String> {
        let mut makers = Makers { arrays, by_hash: FxHashMap::default() };
        let mut location = String::new();
        for (a, array) in (0..).zip(arrays) {
            for i in 0..array.n_tasks {
                for promise in &array.template.promises {
                    makers.by_hash.entry(hash_of(promise)).or_default().push((a, i));
                }
                for (_, pattern) in &array.template.outputs {
                    location.clear();
                    array.fill_into(pattern, i, &mut location);
                    if let Some(other) = makers.find(&location) {
                        return Err(makers.both_write(other, (a, i), &location));
                    }
                    makers.by_hash.entry(hash_of(&location)).or_default().push((a, i));
                }
            }
        }
        Ok(makers)
    }

    fn find(&self, location: &str) -> Option<TaskAt> {
        let same = self.by_hash.get(&hash_of(location))?;
        same.iter().copied().find(|task| self.writes(*task, location))
    }

    fn writes(&self, (a, i): TaskAt, location: &str) -> bool {
        let (array, template) = (&self.arrays[a as usize], &self.arrays[a as usize].template);
        template.promises.iter().any(|promise| promise == location)
            || template.outputs.iter().any(|(_, pattern)| array.fill(pattern, i) == location)
    }

    fn both_write(&self, first: TaskAt, second: TaskAt, location: &str) -> String {
        let id = |(a, i): TaskAt| self.arrays[a as usize].fill(&self.arrays[a as usize].template.id, i);
        format!(
            "tasks {first} and {second} both write {location}; give each its own output, \
             or wait until the first one has ended",
            first = shown(&id(first)),
            second = shown(&id(second)),
            location = shown(location)
        )
    }
}

/// Finds files that cross and are not at the owner of their name, and tasks of two parts that write one file.
/// `known`: as in [`split_addition`].
fn link(
    arrays: &[TaskArray],
    deals: &[Deal],
    n_members: u32,
    known: Option<&[KnownFiles]>,
    parts: &mut [Part],
) -> Result<(), String> {
    let makers = Makers::of(arrays)?;
    if known.is_none() && (makers.by_hash.is_empty() || n_members == 1) {
        return Ok(());
    }
    let promised = arrays.iter().flat_map(|a| &a.template.promises).map(String::as_str);
    let earlier = known.into_iter().flatten().flat_map(|k| &k.promised).map(String::as_str);
    let promised: BTreeSet<&str> = promised.chain(earlier).collect();
    let owner = |(a, i): TaskAt| deals[a as usize].owner(i, arrays[a as usize].n_tasks, n_members);
    let mut crossing = vec![Crossing::default(); n_members as usize];
    let mut location = String::new();
    for (a, array) in (0..).zip(arrays) {
        for (_, pattern) in &array.template.inputs {
            // A location that is the same for all tasks is looked up once for each member, not for each task.
            let constant = pattern.is_constant();
            let mut seen = vec![false; n_members as usize];
            for i in 0..array.n_tasks {
                let reader = owner((a, i));
                if constant && std::mem::replace(&mut seen[reader.0 as usize], true) {
                    continue;
                }
                let stays = array.locate(pattern, i, &mut location).stays();
                let maker = makers.find(&location).map(owner).or_else(|| has_made(known, &location));
                let Some(maker) = maker else {
                    if let Some(known) = known.filter(|_| stays) {
                        return Err(never_made(known, &array.fill(&array.template.id, i), &location));
                    }
                    continue;
                };
                // Another member may have announced a promise, so the owner of a promised file is always
                // stated.
                let is_found = maker == reader || (stays && owner_of(&location, n_members) == maker);
                if is_found && !promised.contains(location.as_str()) {
                    continue;
                }
                if !stays {
                    crossing[maker.0 as usize].exports.insert(location.clone());
                }
                crossing[reader.0 as usize].imports.insert((location.clone(), maker));
            }
        }
    }
    // Members whose tasks wait for a promised file are told which member makes it, or promises it now.
    for location in promised {
        let Some(maker) = makers.find(location).map(owner) else { continue };
        for member in &mut crossing {
            member.imports.insert((location.to_owned(), maker));
        }
    }
    for (part, Crossing { imports, exports }) in parts.iter_mut().zip(crossing) {
        part.links =
            RunLinks { imports: imports.into_iter().collect(), exports: exports.into_iter().collect() };
    }
    Ok(())
}

/// The files of other members that a member's tasks read, with their owners, and the files that its tasks
/// make for others.
#[derive(Clone, Default)]
struct Crossing {
    imports: BTreeSet<(String, MemberId)>,
    exports: BTreeSet<String>,
}

/// The member that made a file earlier, in the run to which tasks are added.
fn has_made(known: Option<&[KnownFiles]>, location: &str) -> Option<MemberId> {
    (0..).zip(known?).find(|(_, k)| k.makes.contains(location)).map(|(m, _)| MemberId(m))
}

/// The reason why an added task's input will never be made.
fn never_made(known: &[KnownFiles], task: &str, location: &str) -> String {
    match known.iter().any(|k| k.dropped.contains(location)) {
        true => was_dropped(task, location),
        false => nobody_writes(task, location),
    }
}

/// The tasks `start..end` of an array.
fn slice(array: &TaskArray, start: u32, end: u32) -> TaskArray {
    let columns = array.columns.iter().map(|column| pick(column, start..end)).collect();
    let first_index = array.first_index + u64::from(start);
    TaskArray {
        n_tasks: end - start,
        first_index,
        template: array.template.clone(),
        columns,
        needs: array.needs.clone(),
    }
}

/// Some tasks of an array, in order. Where the template uses the task's number, the number becomes a column.
fn select(array: &TaskArray, tasks: &[u32]) -> TaskArray {
    let mut columns: Vec<Column> = array.columns.iter().map(|c| pick(c, tasks.iter().copied())).collect();
    let mut uses_index = false;
    array.template.for_each(&mut |p| uses_index |= p.0.contains(&Piece::Index));
    let mut template = array.template.clone();
    if uses_index {
        let mut numbers = Column::default();
        for i in tasks {
            // These are some of the digits of fewer numbers than a column of 4 GiB can hold.
            let fits = numbers.push(&(array.first_index + u64::from(*i)).to_string());
            assert!(fits, "numbers of 2^32 tasks fit a column");
        }
        numbers.shrink_to_fit();
        let column = columns.len() as u32;
        columns.push(numbers);
        template = template.map(&mut |p| {
            let named = |piece: &Piece| match piece {
                Piece::Index => Piece::Column { column, part: eyas_terms::array::Part::Whole },
                piece => piece.clone(),
            };
            Pattern(p.0.iter().map(named).collect())
        });
    }
    TaskArray { n_tasks: tasks.len() as u32, first_index: 0, template, columns, needs: array.needs.clone() }
}

fn pick(column: &Column, tasks: impl Iterator<Item = u32>) -> Column {
    let mut picked = Column::default();
    for i in tasks {
        let fits = picked.push(column.get(i as usize));
        assert!(fits, "a part of a column is no larger than the column");
    }
    picked.shrink_to_fit();
    picked
}

#[cfg(test)]
mod tests;
