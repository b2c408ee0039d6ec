//! A task list that has not run, as a workload: its tasks with the sizes of files at home, and with times
//! and outputs like those of a run.
//!
//! [`Learned`] holds what a recorded run shows about tasks of each kind: the run times of programs and the
//! sizes of outputs. A kind is a label and the first words of a command. So the run of a list over other
//! files, or a few probes of the same list, are enough for the whole list. A task of a kind that never ran
//! is assumed to be like all tasks that did.
//!
//! Run times are used in turn, in the order in which they were measured; they are drawn at random if a
//! range is wanted.

use super::trace::{TaskMeasured, Trace};
use super::{ArrivingTasks, Compute, Error, Sizes, Workload, links};
use eyas_terms::Timestamp;
use eyas_terms::array::{Command, Pattern, TaskArray, Template};
use eyas_terms::rng::Rng;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of words of a command that distinguish kinds, as in `python3 cutout.py`.
const WORDS_MAX: usize = 2;

/// Measurements of one kind of task, or of all kinds together.
#[derive(Clone, PartialEq, Debug, Default)]
struct Sample {
    /// Each run time without reading and writing.
    compute_ns: Vec<u64>,
    /// By position among the outputs.
    output_bytes: Vec<Vec<u64>>,
}

/// Compute times and output sizes, by kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Learned {
    kinds: BTreeMap<String, Sample>,
    all: Sample,
}

/// The label and the first words of the command; words that come from columns are left out.
fn kind(template: &Template) -> String {
    let mut words = vec![template.label.clone()];
    let literal = |pattern: &Pattern| {
        let text = pattern.0.iter().filter_map(|piece| match piece {
            eyas_terms::array::Piece::Literal(text) => Some(text.as_str()),
            _ => None,
        });
        text.collect::<String>()
    };
    match &template.command {
        Command::Exec(argv) => words.extend(argv.iter().take(WORDS_MAX).map(literal)),
        Command::Shell(line) => {
            words.extend(literal(line).split_whitespace().take(WORDS_MAX).map(String::from));
        }
    }
    words.join(" ")
}

impl Learned {
    /// Learns from a run. `compute_ns` gives the computing part of a task's time, by the task's position in
    /// the run.
    pub fn of(trace: &Trace, compute_ns: impl Fn(usize, &TaskMeasured) -> u64) -> Learned {
        let mut learned = Learned { kinds: BTreeMap::new(), all: Sample::default() };
        for (position, array, i) in trace.tasks() {
            let measured = &trace.measured.tasks[position];
            if measured.run_ns() == 0 {
                continue;
            }
            let ns = compute_ns(position, measured);
            for sample in [learned.kinds.entry(kind(&array.template)).or_default(), &mut learned.all] {
                sample.compute_ns.push(ns);
                for (n, (_, pattern)) in array.template.outputs.iter().enumerate() {
                    sample.output_bytes.resize(sample.output_bytes.len().max(n + 1), vec![]);
                    sample.output_bytes[n].extend(trace.size_of(&array.fill(pattern, i)));
                }
            }
        }
        learned
    }

    /// The number of tasks that were learned from.
    pub fn n_tasks(&self) -> usize {
        self.all.compute_ns.len()
    }

    /// The compute time of a random task of that kind, in nanoseconds. There must be at least one task that
    /// was learned from.
    pub fn draw_ns(&self, template: &Template, rng: &mut Rng) -> u64 {
        let times = &self.sample(template).compute_ns;
        times[rng.below(times.len() as u64) as usize]
    }

    fn sample(&self, template: &Template) -> &Sample {
        self.kinds.get(&kind(template)).unwrap_or(&self.all)
    }
}

fn median(values: &[u64]) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// The files that tasks read and no task makes, whose sizes have to be looked up at home.
pub fn inputs_from_home(arrays: &[Arc<TaskArray>]) -> Vec<String> {
    let each = |of: fn(&Template) -> &Vec<(Pattern, Pattern)>| {
        arrays.iter().flat_map(move |array| {
            let list = of(&array.template).iter();
            list.flat_map(move |(_, pattern)| (0..array.n_tasks).map(move |i| array.fill(pattern, i)))
        })
    };
    let made: rustc_hash::FxHashSet<String> = each(|t| &t.outputs).collect();
    let mut read: Vec<String> = each(|t| &t.inputs).filter(|location| !made.contains(location)).collect();
    read.sort_unstable();
    read.dedup();
    read
}

/// The list as a workload, all of it submitted at once. `sizes`: the sizes of the files of
/// [`inputs_from_home`]. `rng`: if given, run times are drawn at random and not used in turn.
pub fn list(
    name: &str,
    arrays: &[Arc<TaskArray>],
    sizes: &FxHashMap<String, u64>,
    learned: &Learned,
    mut rng: Option<&mut Rng>,
) -> Result<Workload, Error> {
    if learned.n_tasks() == 0 {
        return Err(Error::config("nothing is known about how long its tasks take"));
    }
    let (mut sizes, mut submissions) = (sizes.clone(), vec![]);
    for array in arrays {
        let sample = learned.sample(&array.template);
        let times = &sample.compute_ns;
        let mut time = |i: u32| match &mut rng {
            Some(rng) => learned.draw_ns(&array.template, rng),
            None => times[i as usize % times.len()],
        };
        let compute = Compute::Each((0..array.n_tasks).map(&mut time).collect());
        for (n, (_, pattern)) in array.template.outputs.iter().enumerate() {
            let known = sample.output_bytes.get(n).and_then(|all| median(all));
            let bytes = known.or_else(|| median(&learned.all.output_bytes.concat())).unwrap_or(0);
            (0..array.n_tasks).for_each(|i| _ = sizes.insert(array.fill(pattern, i), bytes));
        }
        submissions.push(ArrivingTasks { at: Timestamp(0), array: array.clone(), compute });
    }
    let mut read_bytes = 0u64;
    for array in arrays {
        for (_, pattern) in &array.template.inputs {
            let of = |i| sizes.get(&array.fill(pattern, i)).copied().unwrap_or(0);
            read_bytes = (0..array.n_tasks).map(of).fold(read_bytes, u64::saturating_add);
        }
    }
    let sizes = Sizes::Each(sizes);
    let submissions = links::in_order(submissions, &sizes)?;
    Ok(Workload {
        name: name.into(),
        n_tasks: submissions.iter().map(|s| u64::from(s.array.n_tasks)).sum(),
        ideal_ns: 0,
        read_bytes,
        sizes,
        submissions: Box::new(submissions.into_iter()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{all_tasks, template};
    use eyas_terms::array::Piece;

    fn array(program: &str, n_tasks: u32, inputs: &[&str], outputs: &[&str]) -> Arc<TaskArray> {
        let patterns = |list: &[&str]| {
            let one = |text: &&str| Pattern(vec![Piece::Literal(text.to_string()), Piece::Index]);
            list.iter().map(one).collect()
        };
        let id = Pattern(vec![Piece::Literal(program.into()), Piece::Index]);
        let template = template(id, program, patterns(inputs), patterns(outputs));
        Arc::new(TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None })
    }

    fn learned() -> Learned {
        let sample = |ns: &[u64], bytes: u64| Sample {
            compute_ns: ns.to_vec(),
            output_bytes: vec![vec![bytes; ns.len()]],
        };
        let template = &array("cut", 1, &[], &[]).template;
        let kinds = BTreeMap::from([(kind(template), sample(&[10, 30], 500))]);
        Learned { kinds, all: sample(&[10, 30, 1000], 500) }
    }

    #[test]
    fn tasks_are_like_those_of_their_kind_and_strangers_like_all() {
        let arrays = [array("cut", 3, &["sky"], &["out"]), array("sum", 2, &["out"], &["total"])];
        assert_eq!(inputs_from_home(&arrays), ["sky0", "sky1", "sky2"]);
        let sizes = (0..3).map(|i| (format!("sky{i}"), 1_000_000)).collect();
        let work = list("l", &arrays, &sizes, &learned(), None).unwrap();
        assert_eq!((work.n_tasks, work.read_bytes), (5, 3_000_000 + 2 * 500));
        assert_eq!((work.sizes.of("out1"), work.sizes.of("total0")), (Some(500), Some(500)));
        let tasks = all_tasks(work);
        assert_eq!(tasks.iter().map(|t| t.2).collect::<Vec<_>>(), [10, 30, 10, 10, 30]);
        assert_eq!(tasks[3].1, ["out0"]);

        let drawn = |seed| {
            let mut rng = Rng::new(seed);
            all_tasks(list("l", &arrays, &sizes, &learned(), Some(&mut rng)).unwrap())
        };
        assert_eq!(drawn(1), drawn(1));
        assert!((0..20).any(|seed| drawn(seed) != drawn(1)));
    }

    #[test]
    fn what_nobody_makes_and_nobody_knows_is_refused() {
        let arrays = [array("cut", 1, &["sky"], &["out"])];
        let error = list("l", &arrays, &FxHashMap::default(), &learned(), None).err().unwrap();
        assert!(error.to_string().contains("reads `sky0`, which no task makes"), "{error}");
    }
}
