//! A workflow by stages: how many tasks each has, and what moves between them.
//!
//! A stage has the name that its tasks give (label, transformation, category, program). Stages that would
//! wait for each other are split by level, so that the stages can be drawn from top to bottom.
//!
//! The pattern between two stages follows from the graph alone ([`pattern`]), by the rule of the core. The
//! patterns that a run finds by itself are in its log.

use crate::model::{Workflow, order};
pub use eyas_core::pattern::Shape as Pattern;
use eyas_core::pattern::{Counts, shape};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The files that move from one stage to another, or from home to a stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    pub n_files: u64,
    /// Bytes of the files, each file counted once, as far as sizes are known.
    pub bytes: u64,
    /// Reads of these files: tasks times files.
    pub n_reads: u64,
    pub n_writers: u64,
    pub n_readers: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub name: String,
    pub tasks: Vec<u32>,
    /// Length of the longest chain of stages before this stage.
    pub layer: usize,
    /// The files that the stage reads and no task writes.
    pub home: Flow,
    pub n_outputs: u64,
    pub output_bytes: u64,
    /// The number of its outputs that go home.
    pub n_results: u64,
    /// Sum of the run times of its tasks, as far as they are known.
    pub runtime_ns: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub flow: Flow,
    pub pattern: Pattern,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    pub stages: Vec<Stage>,
    /// A stage that follows itself has an edge to itself.
    pub edges: Vec<Edge>,
    /// By task: the stage of the task.
    pub of_task: Vec<usize>,
}

/// The pattern of a flow, by the core's rule ([`eyas_core::pattern::shape`]). The rule has no thresholds: a
/// run finds patterns of the same kinds, where they are large enough to pay.
pub fn pattern(flow: &Flow, is_own: bool) -> Pattern {
    let &Flow { n_files, n_reads, n_writers, n_readers, .. } = flow;
    shape(&Counts { n_files, n_reads, n_writers, n_readers, is_own })
}

/// The stages of a workflow, in the order of their layers and then of their first tasks.
pub fn stages(workflow: &Workflow) -> Stages {
    let names: Vec<&str> =
        workflow.tasks.iter().map(|t| if t.stage.is_empty() { "task" } else { t.stage.as_str() }).collect();
    let predecessors = workflow.predecessors();
    let mut numbers: FxHashMap<&str, usize> = FxHashMap::default();
    let mut of_task: Vec<usize> = names
        .iter()
        .map(|name| {
            let next = numbers.len();
            *numbers.entry(name).or_insert(next)
        })
        .collect();
    let mut labels: Vec<String> = vec![String::new(); numbers.len()];
    numbers.iter().for_each(|(name, n)| labels[*n] = (*name).to_owned());

    // Stages that wait for each other are split by level.
    let circular = circular(&before(&of_task, &predecessors, labels.len()));
    if circular.iter().any(|c| *c) {
        let levels = workflow.levels();
        let mut parts: FxHashMap<(usize, u32), usize> = FxHashMap::default();
        let mut new_labels: Vec<String> = vec![];
        for (n, stage) in of_task.iter_mut().enumerate() {
            let level = if circular[*stage] { levels[n] + 1 } else { 0 };
            let old = *stage;
            *stage = *parts.entry((old, level)).or_insert_with(|| {
                new_labels.push(match level {
                    0 => labels[old].clone(),
                    level => format!("{} (level {level})", labels[old]),
                });
                new_labels.len() - 1
            });
        }
        labels = new_labels;
    }
    let before = before(&of_task, &predecessors, labels.len());
    let mut layers = vec![0usize; labels.len()];
    for stage in order(&before) {
        let layer = before[stage as usize].iter().map(|p| layers[*p as usize] + 1).max();
        layers[stage as usize] = layer.unwrap_or(0);
    }
    // Renumbered from top to bottom.
    let mut sorted: Vec<usize> = (0..labels.len()).collect();
    sorted.sort_by_key(|n| layers[*n]);
    let mut place = vec![0; labels.len()];
    sorted.iter().enumerate().for_each(|(new, old)| place[*old] = new);
    of_task.iter_mut().for_each(|stage| *stage = place[*stage]);
    let mut stages: Vec<Stage> = sorted
        .iter()
        .map(|old| Stage {
            name: std::mem::take(&mut labels[*old]),
            tasks: vec![],
            layer: layers[*old],
            home: Flow::default(),
            n_outputs: 0,
            output_bytes: 0,
            n_results: 0,
            runtime_ns: 0,
        })
        .collect();
    of_task.iter().enumerate().for_each(|(n, stage)| stages[*stage].tasks.push(n as u32));
    let edges = flows(workflow, &mut stages, &of_task);
    Stages { stages, edges, of_task }
}

/// By stage: the other stages that its tasks wait for.
fn before(of_task: &[usize], predecessors: &[Vec<u32>], n_stages: usize) -> Vec<Vec<u32>> {
    let mut sets: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); n_stages];
    for (n, list) in predecessors.iter().enumerate() {
        let stage = of_task[n];
        sets[stage].extend(list.iter().map(|p| of_task[*p as usize] as u32).filter(|p| *p as usize != stage));
    }
    sets.into_iter().map(|set| set.into_iter().collect()).collect()
}

/// By stage: whether it waits for itself, through other stages. (Tarjan72, with a stack of its own.)
fn circular(before: &[Vec<u32>]) -> Vec<bool> {
    const NEW: u32 = u32::MAX;
    let n = before.len();
    let (mut index, mut low) = (vec![NEW; n], vec![0u32; n]);
    let (mut on_stack, mut circular) = (vec![false; n], vec![false; n]);
    let (mut stack, mut next) = (vec![], 0u32);
    for root in 0..n {
        if index[root] != NEW {
            continue;
        }
        let mut calls = vec![(root, 0usize)];
        while let Some((v, edge)) = calls.pop() {
            if edge == 0 {
                (index[v], low[v]) = (next, next);
                next += 1;
                stack.push(v);
                on_stack[v] = true;
            } else {
                let done = before[v][edge - 1] as usize;
                low[v] = low[v].min(low[done]);
            }
            let mut edge = edge;
            let mut deeper = None;
            while let Some(&w) = before[v].get(edge) {
                let w = w as usize;
                edge += 1;
                if index[w] == NEW {
                    deeper = Some(w);
                    break;
                }
                if on_stack[w] {
                    low[v] = low[v].min(index[w]);
                }
            }
            if let Some(w) = deeper {
                calls.push((v, edge));
                calls.push((w, 0));
                continue;
            }
            if low[v] == index[v] {
                let at = stack.iter().rposition(|w| *w == v).unwrap_or(0);
                let component = stack.split_off(at);
                let is_circle = component.len() > 1;
                for w in component {
                    on_stack[w] = false;
                    circular[w] = is_circle;
                }
            }
        }
    }
    circular
}

fn flows(workflow: &Workflow, stages: &mut [Stage], of_task: &[usize]) -> Vec<Edge> {
    #[derive(Default)]
    struct Moving {
        files: BTreeSet<u32>,
        writers: BTreeSet<u32>,
        readers: BTreeSet<u32>,
        n_reads: u64,
    }
    let writers = workflow.writers();
    let n_readers = workflow.reader_counts();
    let mut home: Vec<Moving> = stages.iter().map(|_| Moving::default()).collect();
    let mut moving: BTreeMap<(usize, usize), Moving> = BTreeMap::new();
    for (n, task) in workflow.tasks.iter().enumerate() {
        let (n, stage) = (n as u32, of_task[n]);
        for u in &task.inputs {
            let m = match writers[u.file as usize] {
                Some(writer) => {
                    let m = moving.entry((of_task[writer as usize], stage)).or_default();
                    m.writers.insert(writer);
                    m
                }
                None => &mut home[stage],
            };
            m.files.insert(u.file);
            m.readers.insert(n);
            m.n_reads += 1;
        }
        for parent in &task.parents {
            moving.entry((of_task[*parent as usize], stage)).or_default();
        }
        for u in &task.outputs {
            let file = &workflow.files[u.file as usize];
            stages[stage].n_outputs += 1;
            let bytes = &mut stages[stage].output_bytes;
            *bytes = bytes.saturating_add(file.size_bytes.unwrap_or(0));
            stages[stage].n_results += u64::from(file.result.unwrap_or(n_readers[u.file as usize] == 0));
        }
        let sum = &mut stages[stage].runtime_ns;
        *sum = sum.saturating_add(task.measured.runtime_ns.unwrap_or(0));
    }
    let flow = |m: Moving| Flow {
        n_files: m.files.len() as u64,
        bytes: m
            .files
            .iter()
            .filter_map(|f| workflow.files[*f as usize].size_bytes)
            .fold(0, u64::saturating_add),
        n_reads: m.n_reads,
        n_writers: m.writers.len() as u64,
        n_readers: m.readers.len() as u64,
    };
    stages.iter_mut().zip(home).for_each(|(stage, m)| stage.home = flow(m));
    moving
        .into_iter()
        .map(|((from, to), m)| {
            let flow = flow(m);
            Edge { from, to, pattern: pattern(&flow, from == to), flow }
        })
        .collect()
}
