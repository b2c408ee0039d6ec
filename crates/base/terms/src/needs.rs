//! What tasks need beside whole cpus and memory: gpus, named resources, and parts of a cpu; and what nodes have of it.
//!
//! Parts are whole numbers of thousandths, so that sums are exact and the same on every machine. Most tasks need
//! nothing of this kind. Such tasks carry `None`, and nothing here is looked at for them.
//!
//! A task takes either a part of one gpu or a whole number of gpus. Tasks that take parts may share a gpu; a gpu that
//! a task takes whole has no other task.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parts of one cpu, or of one gpu.
pub const PARTS: u32 = 1000;
/// More gpus than any node has.
pub const GPUS_MAX: u32 = 4096;
/// The largest amount of a named resource.
pub const AMOUNT_MAX: u32 = 1 << 30;
/// The largest number of different names that one task needs, or one node has.
pub const NAMES_MAX: usize = 64;

/// What a task needs beside whole cpus and memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default)]
pub struct Needs {
    /// The task's cpus in thousandths, if that is no whole number of cpus; else 0, and the task's `cpus` counts.
    pub cpu_parts: u32,
    /// Gpus in thousandths: less than one gpu, or a whole number of gpus.
    pub gpu_parts: u32,
    /// Named resources, by name; each at least 1.
    pub resources: BTreeMap<String, u32>,
}

impl Needs {
    pub fn is_empty(&self) -> bool {
        self.cpu_parts == 0 && self.gpu_parts == 0 && self.resources.is_empty()
    }

    /// `Err` names what no task can need.
    pub fn check(&self) -> Result<(), String> {
        if self.gpu_parts > PARTS && !self.gpu_parts.is_multiple_of(PARTS) {
            return Err("`gpus` above 1 is no whole number".into());
        }
        if self.gpu_parts / PARTS > GPUS_MAX {
            return Err(format!("`gpus` is above {GPUS_MAX}"));
        }
        check_amounts(&self.resources)
    }

    /// The whole cpus of a task whose cpus are rounded up to `cpus`: a part of a cpu beside them is not counted.
    pub fn whole_cpus(&self, cpus: u32) -> u32 {
        if self.cpu_parts == 0 { cpus } else { self.cpu_parts / PARTS }
    }

    /// Thousandths of a cpu beside the whole cpus.
    pub fn odd_cpu_parts(&self) -> u32 {
        self.cpu_parts % PARTS
    }

    /// The cpus of a task in thousandths, where `cpus` is their number rounded up.
    pub fn cpus_in_parts(&self, cpus: u32) -> u64 {
        match self.cpu_parts {
            0 => u64::from(cpus) * u64::from(PARTS),
            parts => u64::from(parts),
        }
    }
}

/// What a node has beside slots and memory, or what a whole cluster has.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
pub struct Equipment {
    #[serde(default)]
    pub gpus: u32,
    /// Named resources, by name.
    #[serde(default)]
    pub resources: BTreeMap<String, u32>,
}

impl Equipment {
    pub fn is_empty(&self) -> bool {
        self.gpus == 0 && self.resources.is_empty()
    }

    /// `Err` names what no node can have.
    pub fn check(&self) -> Result<(), String> {
        if self.gpus > GPUS_MAX {
            return Err(format!("{} gpus", self.gpus));
        }
        check_amounts(&self.resources)
    }

    /// Whether a node that has this and no other task can hold a task with these needs, as far as gpus and the
    /// node's own resources go.
    pub fn holds(&self, needs: &Needs) -> bool {
        needs.gpu_parts <= self.gpus.saturating_mul(PARTS)
            && needs.resources.iter().all(|(name, n)| *n <= self.amount(name))
    }

    /// The most of each thing that any of these has.
    pub fn most_of<'a>(all: impl Iterator<Item = &'a Equipment>) -> Equipment {
        let mut most = Equipment::default();
        for one in all {
            most.gpus = most.gpus.max(one.gpus);
            for (name, n) in &one.resources {
                let known = most.resources.entry(name.clone()).or_default();
                *known = (*known).max(*n);
            }
        }
        most
    }

    pub fn amount(&self, name: &str) -> u32 {
        self.resources.get(name).copied().unwrap_or(0)
    }
}

fn check_amounts(resources: &BTreeMap<String, u32>) -> Result<(), String> {
    if resources.len() > NAMES_MAX {
        return Err(format!("more than {NAMES_MAX} names of resources"));
    }
    match resources.iter().find(|(name, n)| check_name(name).is_err() || **n > AMOUNT_MAX) {
        Some((name, n)) => Err(format!("{n} of the resource {}", eyas_text::shown(name))),
        None => Ok(()),
    }
}

/// `Err` says what is wrong with the name of a resource.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    match name {
        "" => Err("a resource has a name"),
        "gpu" | "gpus" | "cpu" | "cpus" | "memory" => Err("it has its own field or option"),
        _ if name.len() > 128 => Err("a name has at most 128 characters"),
        _ if !name.chars().all(is_plain) => Err("a name is made of letters, digits and `. _ - / : @`"),
        _ => Ok(()),
    }
}

/// The text of a number of thousandths: `250` is `0.25`, `2000` is `2`.
pub fn in_parts(parts: u64) -> String {
    let (whole, rest) = (parts / u64::from(PARTS), parts % u64::from(PARTS));
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{rest:03}").trim_end_matches('0').to_string(),
    }
}

/// How much of a node a task takes, or how much a node has: what dispatchers and provisioners say of tasks and nodes to each
/// other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug, Default)]
pub struct Size {
    /// Thousandths of a cpu, or of a slot.
    pub cpu_parts: u64,
    pub memory_bytes: u64,
    /// Thousandths of a gpu.
    pub gpu_parts: u32,
    /// Named resources of nodes, by name; none of the whole cluster.
    pub resources: BTreeMap<String, u32>,
}

impl Size {
    pub fn of_node(slots: u32, memory_bytes: u64, equipment: &Equipment) -> Size {
        Size {
            cpu_parts: u64::from(slots) * u64::from(PARTS),
            memory_bytes,
            gpu_parts: equipment.gpus.saturating_mul(PARTS),
            resources: equipment.resources.clone(),
        }
    }

    /// Slots of a node of this size.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.cpu_parts / u64::from(PARTS)).unwrap_or(u32::MAX)
    }

    pub fn is_within(&self, other: &Size) -> bool {
        self.cpu_parts <= other.cpu_parts
            && self.memory_bytes <= other.memory_bytes
            && self.gpu_parts <= other.gpu_parts
            && self.resources.iter().all(|(name, n)| *n <= other.amount(name))
    }

    fn amount(&self, name: &str) -> u32 {
        self.resources.get(name).copied().unwrap_or(0)
    }

    /// How many tasks of size `task` a node of this size holds at once; 0: it is too small for one. A gpu holds tasks that
    /// take parts of it side by side, as far as they fit that one gpu.
    pub fn holds(&self, task: &Size) -> u64 {
        // A task that needs nothing of a kind is not limited by it.
        let of = |has: u64, needs: u64| has.checked_div(needs).unwrap_or(u64::MAX);
        let gpus = match (task.gpu_parts, self.gpu_parts) {
            (needs @ 1..PARTS, has) => u64::from(has / PARTS) * u64::from(PARTS / needs),
            (needs, has) => of(has.into(), needs.into()),
        };
        let cpus = of(self.cpu_parts, task.cpu_parts.max(1));
        let named = task.resources.iter().map(|(name, n)| of(self.amount(name).into(), (*n).into()));
        named.fold(cpus.min(of(self.memory_bytes, task.memory_bytes)).min(gpus), u64::min)
    }

    /// Leaves what is left of it beside `n` tasks of this size; nothing of what is too little for them.
    pub fn take(&mut self, task: &Size, n: u64) {
        self.cpu_parts = self.cpu_parts.saturating_sub(task.cpu_parts.saturating_mul(n));
        self.memory_bytes = self.memory_bytes.saturating_sub(task.memory_bytes.saturating_mul(n));
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        self.gpu_parts = self.gpu_parts.saturating_sub(task.gpu_parts.saturating_mul(n));
        for (name, has) in &mut self.resources {
            *has = has.saturating_sub(task.amount(name).saturating_mul(n));
        }
    }

    /// `Err` names what neither a task nor a node can have.
    pub fn check(&self) -> Result<(), String> {
        if self.gpu_parts / PARTS > GPUS_MAX {
            return Err(format!("{} gpus", self.gpu_parts / PARTS));
        }
        check_amounts(&self.resources)
    }
}

/// What is left of a node's equipment while tasks hold parts of it. A node uses it to admit programs and to choose
/// their gpus; a dispatcher uses it to find out whether one more task would have room.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// By gpu: thousandths that no task holds.
    gpus: Vec<u32>,
    resources: BTreeMap<String, u32>,
}

impl Left {
    /// All of `equipment`.
    pub fn all_of(equipment: &Equipment) -> Left {
        Left { gpus: vec![PARTS; equipment.gpus as usize], resources: equipment.resources.clone() }
    }

    /// Whether a task with these needs has room.
    pub fn has(&self, needs: &Needs) -> bool {
        self.choose(needs.gpu_parts).is_some()
            && needs.resources.iter().all(|(name, n)| self.resources.get(name).is_some_and(|left| n <= left))
    }

    /// Whether whoever holds `needs` may leave less than `other` needs: they need the same kind of thing.
    pub fn compete(needs: &Needs, other: &Needs) -> bool {
        (needs.gpu_parts > 0 && other.gpu_parts > 0)
            || needs.resources.keys().any(|name| other.resources.contains_key(name))
    }

    /// The gpus for a task: of those with room for a part, the fullest one, so that whole gpus stay free; else the
    /// lowest ones that no task holds.
    fn choose(&self, gpu_parts: u32) -> Option<Vec<u32>> {
        if gpu_parts == 0 {
            return Some(vec![]);
        }
        let numbered = || (0..).zip(self.gpus.iter().copied());
        if gpu_parts < PARTS {
            let best =
                numbered().filter(|(_, left)| *left >= gpu_parts).min_by_key(|(gpu, left)| (*left, *gpu));
            return best.map(|(gpu, _)| vec![gpu]);
        }
        let n = (gpu_parts / PARTS) as usize;
        let free: Vec<u32> =
            numbered().filter(|(_, left)| *left == PARTS).map(|(gpu, _)| gpu).take(n).collect();
        (free.len() == n).then_some(free)
    }

    /// Takes what a task needs, if there is room; gives the numbers of its gpus, ascending.
    pub fn take(&mut self, needs: &Needs) -> Option<Vec<u32>> {
        if !self.has(needs) {
            return None;
        }
        let gpus = self.choose(needs.gpu_parts)?;
        for gpu in &gpus {
            self.gpus[*gpu as usize] -= needs.gpu_parts.min(PARTS);
        }
        for (name, n) in &needs.resources {
            *self.resources.get_mut(name).expect("there is room") -= n;
        }
        Some(gpus)
    }

    /// Takes back what a task held, on these gpus.
    pub fn give_back(&mut self, needs: &Needs, gpus: &[u32]) {
        for gpu in gpus {
            self.gpus[*gpu as usize] += needs.gpu_parts.min(PARTS);
        }
        for (name, n) in &needs.resources {
            *self.resources.entry(name.clone()).or_default() += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gpus(parts: u32) -> Needs {
        Needs { gpu_parts: parts, ..Needs::default() }
    }

    #[test]
    fn parts_fill_one_gpu_before_the_next_is_begun() {
        let mut left = Left::all_of(&Equipment { gpus: 2, ..Equipment::default() });
        assert_eq!(left.take(&gpus(500)), Some(vec![0]));
        assert_eq!(left.take(&gpus(1000)), Some(vec![1]));
        assert_eq!(left.take(&gpus(500)), Some(vec![0]));
        assert_eq!(left.take(&gpus(1)), None);
        left.give_back(&gpus(1000), &[1]);
        assert_eq!(left.take(&gpus(2000)), None);
        assert_eq!(left.take(&gpus(250)), Some(vec![1]));
    }

    #[test]
    fn numbers_of_parts_are_read_as_people_write_them() {
        assert_eq!([0, 250, 1000, 1500, 12_001].map(in_parts), ["0", "0.25", "1", "1.5", "12.001"]);
    }

    #[test]
    fn what_no_task_can_need_is_refused() {
        assert!(gpus(1500).check().is_err() && gpus(2000).check().is_ok() && gpus(999).check().is_ok());
        let named = |name: &str| Needs { resources: [(name.to_string(), 1)].into(), ..Needs::default() };
        assert!(named("licence.vcs").check().is_ok());
        assert!(named("two words").check().is_err() && named("gpus").check().is_err());
    }

    #[test]
    fn a_node_holds_as_many_tasks_as_its_scarcest_thing_allows() {
        let named = |n| BTreeMap::from([("board".to_string(), n)]);
        let node = Size { cpu_parts: 4000, memory_bytes: 16, gpu_parts: 2000, resources: named(3) };
        let task = Size { cpu_parts: 1000, ..Size::default() };
        assert_eq!(node.holds(&task), 4);
        assert_eq!(node.holds(&Size { cpu_parts: 250, ..Size::default() }), 16);
        assert_eq!(node.holds(&Size { cpu_parts: 3000, ..Size::default() }), 1);
        assert_eq!(node.holds(&Size { memory_bytes: 6, ..task.clone() }), 2);
        assert_eq!(node.holds(&Size { gpu_parts: 2000, ..task.clone() }), 1);
        assert_eq!(node.holds(&Size { gpu_parts: 600, ..task.clone() }), 2, "one on each gpu");
        assert_eq!(node.holds(&Size { resources: named(1), ..task.clone() }), 3);
        assert_eq!(node.holds(&Size { resources: named(4), ..task.clone() }), 0);
        assert!(node.holds(&task) > 0 && task.is_within(&node) && !node.is_within(&task));
    }

    fn needs() -> impl Strategy<Value = Needs> {
        let gpu_parts = prop_oneof![Just(0u32), 1..1000u32, (1..3u32).prop_map(|n| n * PARTS)];
        (gpu_parts, proptest::collection::btree_map("[ab]", 1..3u32, 0..3))
            .prop_map(|(gpu_parts, resources)| Needs { cpu_parts: 0, gpu_parts, resources })
    }

    proptest! {
        /// The naive reference adds up, for each gpu and each name, what the tasks hold that are there.
        #[test]
        fn nothing_is_ever_overused(
            n_gpus in 0..4u32, a in 0..4u32, b in 0..4u32,
            steps in proptest::collection::vec((needs(), any::<bool>()), 1..60),
        ) {
            let resources = BTreeMap::from([("a".to_string(), a), ("b".to_string(), b)]);
            let equipment = Equipment { gpus: n_gpus, resources };
            let mut left = Left::all_of(&equipment);
            let mut held: Vec<(Needs, Vec<u32>)> = vec![];
            for (needs, ends) in steps {
                if ends && !held.is_empty() {
                    let (needs, gpus) = held.swap_remove(held.len() / 2);
                    left.give_back(&needs, &gpus);
                }
                let on = |gpu: u32, held: &[(Needs, Vec<u32>)]| -> u32 {
                    let here = held.iter().filter(|(_, gpus)| gpus.contains(&gpu));
                    here.map(|(needs, _)| needs.gpu_parts.min(PARTS)).sum()
                };
                let of = |name: &str, held: &[(Needs, Vec<u32>)]| -> u32 {
                    held.iter().filter_map(|(needs, _)| needs.resources.get(name)).sum()
                };
                let n_free = (0..n_gpus).filter(|gpu| on(*gpu, &held) == 0).count() as u32;
                let room = match needs.gpu_parts {
                    parts if parts < PARTS => {
                        parts == 0 || (0..n_gpus).any(|gpu| on(gpu, &held) + parts <= PARTS)
                    }
                    parts => parts / PARTS <= n_free,
                };
                let room = room && needs.resources.iter().all(|(name, n)| {
                    of(name, &held) + n <= equipment.amount(name)
                });
                prop_assert!(!room || equipment.holds(&needs));
                let gpus = left.take(&needs);
                prop_assert_eq!(gpus.is_some(), room);
                if let Some(gpus) = gpus {
                    held.push((needs, gpus));
                }
                prop_assert!((0..n_gpus).all(|gpu| on(gpu, &held) <= PARTS));
                prop_assert!(equipment.resources.iter().all(|(name, n)| of(name, &held) <= *n));
            }
            for (needs, gpus) in &held {
                left.give_back(needs, gpus);
            }
            prop_assert_eq!(left, Left::all_of(&equipment));
        }
    }
}
