use super::*;
use proptest::prelude::*;

const RUN: RunId = RunId(1);

/// A workflow told task by task.
#[derive(Default)]
struct Flowing {
    patterns: Patterns,
    found: Vec<Evidence>,
}

impl Flowing {
    fn task(&mut self, stage: &str, inputs: &[u32], outputs: &[u32]) -> StageId {
        let ids = |list: &[u32]| list.iter().map(|o| ObjectId(*o)).collect::<Vec<_>>();
        let stage = self.patterns.stage(RUN, stage);
        self.patterns.task_writes(stage, &ids(outputs));
        self.patterns.task_reads(stage, &ids(inputs), &mut self.found);
        stage
    }
    fn sentences(&self) -> Vec<String> {
        self.patterns.of_run(RUN).iter().map(ToString::to_string).collect()
    }
}

/// Montage's stages (table II) over `n` images: objects 0 is the header.
fn montage(n: u32) -> Flowing {
    let mut w = Flowing::default();
    let (raw, projected, corrected, diff) = (1_000, 2_000, 3_000, 4_000);
    for i in 0..n {
        w.task("mProject", &[0, raw + i], &[projected + i]);
    }
    let all = |from: u32| (0..n).map(|i| from + i).collect::<Vec<_>>();
    w.task("mImgtbl", &all(projected), &[1]);
    for i in 0..n - 1 {
        w.task("mDiffFit", &[projected + i, projected + i + 1], &[diff + i]);
    }
    w.task("mConcatFit", &all(diff)[..n as usize - 1], &[2]);
    w.task("mBgModel", &[1, 2], &[3]);
    for i in 0..n {
        w.task("mBackground", &[projected + i, 3], &[corrected + i]);
    }
    w.task("mAdd", &all(corrected), &[4]);
    w
}

#[test]
fn montage_is_seen_as_the_paper_draws_it() {
    let w = montage(32);
    let expect = [
        "multicast: up to 32 tasks of stage mProject read the same file from home (threshold 4)",
        "gather: a task of stage mImgtbl reads 32 files of stage mProject (threshold 8)",
        "gather: a task of stage mConcatFit reads 31 files of stage mDiffFit (threshold 8)",
        "pipeline: 1 tasks of stage mBgModel read 1 files of stage mImgtbl, each file by one task",
        "pipeline: 1 tasks of stage mBgModel read 1 files of stage mConcatFit, each file by one task",
        "pipeline: 32 tasks of stage mBackground read 32 files of stage mProject, each file by one task",
        "multicast: up to 32 tasks of stage mBackground read the same file of stage mBgModel (threshold 4)",
        "gather: a task of stage mAdd reads 32 files of stage mBackground (threshold 8)",
    ];
    assert_eq!(w.sentences(), expect);
    // Those that act are told when the counts get there, once each.
    let told: Vec<_> = w.found.iter().map(|e| (e.pattern, e.to.as_str(), e.count)).collect();
    use PatternKind::{Gather, Multicast};
    let expect = [
        (Multicast, "mProject", 4),
        (Gather, "mImgtbl", 32),
        (Gather, "mConcatFit", 31),
        (Multicast, "mBackground", 4),
        (Gather, "mAdd", 32),
    ];
    assert_eq!(told, expect);
    let header = &w.patterns.of_object(ObjectId(0))[0];
    assert_eq!(
        header.clone().named("region.hdr").to_string(),
        "multicast: 32 tasks of stage mProject read region.hdr (threshold 4)"
    );
    assert_eq!(w.patterns.of_object(ObjectId(2_000)), []);
}

/// BLAST as in figure 5: scatter of the pieces, multicast of the query, gather of the results.
fn blast(n: u32) -> Flowing {
    let mut w = Flowing::default();
    let (piece, formatted, result) = (1_000, 2_000, 5_000);
    w.task("fastasplit", &[0], &(0..n).map(|i| piece + i).collect::<Vec<_>>());
    for i in 0..n {
        w.task("formatdb", &[piece + i], &[formatted + 2 * i, formatted + 2 * i + 1]);
    }
    for i in 0..n {
        for q in 0..6 {
            let db = formatted + 2 * i;
            w.task("blastp", &[db, db + 1, 10 + q], &[result + 6 * i + q]);
        }
    }
    for q in 0..6 {
        w.task("merge", &(0..n).map(|i| result + 6 * i + q).collect::<Vec<_>>(), &[9_000 + q]);
    }
    w
}

#[test]
fn blast_scatters_multicasts_and_gathers() {
    let mut w = blast(16);
    let expect = [
        "scatter: a task of stage fastasplit writes 16 files, read by 16 tasks of stage formatdb (threshold 8)",
        "multicast: up to 16 tasks of stage blastp read the same file from home (threshold 4)",
        "multicast: up to 6 tasks of stage blastp read the same file of stage formatdb (threshold 4)",
        "gather: a task of stage merge reads 16 files of stage blastp (threshold 8)",
    ];
    assert_eq!(w.sentences(), expect);
    // Both files of a piece are one group, a sixteenth of what the stage reads; a query is a group of its own.
    let blastp = w.patterns.stage(RUN, "blastp");
    let share = w.patterns.consumption(blastp, ObjectId(2_000));
    assert_eq!(share, Consumption { n_readers: 6, n_tasks: 96 });
    let keys = [2_000, 2_001, 2_002, 10].map(|o| w.patterns.readers_key(ObjectId(o)));
    assert!(keys[0].is_some() && keys[0] == keys[1]);
    assert!(keys[0] != keys[2] && keys[0] != keys[3]);
    assert_eq!(w.patterns.readers_key(ObjectId(9_000)), None, "nobody reads a result");
}

#[test]
fn a_hint_forces_and_forbids() {
    let mut w = blast(16);
    let stage = |name: &str| Scope::Stage(name.into());
    w.patterns.set_hint(RUN, stage("merge"), PatternKind::Reduce, Wish::Force);
    w.patterns.set_hint(RUN, stage("formatdb"), PatternKind::Scatter, Wish::Forbid);
    w.patterns.set_hint(RUN, Scope::Object(ObjectId(10)), PatternKind::Multicast, Wish::Forbid);
    w.patterns.set_hint(RUN, Scope::Object(ObjectId(0)), PatternKind::Multicast, Wish::Force);
    let all = w.sentences();
    assert!(!all.iter().any(|s| s.starts_with("scatter")), "{all:?}");
    let reduce = "reduce: a task of stage merge reads 16 files of stage blastp, and may be applied to any part of them (hint)";
    assert!(all.contains(&reduce.to_owned()), "{all:?}");
    assert_eq!(w.patterns.of_object(ObjectId(10)), []);
    assert_eq!(w.patterns.of_object(ObjectId(11)).len(), 1);
    assert_eq!(
        w.patterns.of_object(ObjectId(0))[0].to_string(),
        "multicast: 1 tasks of stage fastasplit read object 0 (hint)"
    );
    let merge = w.patterns.stage(RUN, "merge");
    let inputs: Vec<_> = (0..16).map(|i| ObjectId(5_000 + 6 * i)).collect();
    assert_eq!(w.patterns.of_task(merge, &inputs).map(|e| e.pattern), Some(PatternKind::Reduce));
    assert_eq!(w.patterns.of_task(merge, &inputs[..4]).map(|e| e.pattern), Some(PatternKind::Reduce));
    assert_eq!(w.patterns.of_task(merge, &inputs[..1]), None);
}

#[test]
fn a_run_that_ended_leaves_nothing_that_counts() {
    let mut w = montage(32);
    w.patterns.run_ended(RUN);
    assert_eq!(w.patterns.of_run(RUN), []);
    assert_eq!(w.patterns.of_object(ObjectId(0)), []);
    let (next, mut found) = (w.patterns.stage(RunId(2), "view"), vec![]);
    for _ in 0..3 {
        w.patterns.task_reads(next, &[ObjectId(0), ObjectId(4)], &mut found);
    }
    assert_eq!((found.len(), w.patterns.consumption(next, ObjectId(0)).n_readers), (0, 3));
    w.patterns.task_reads(next, &[ObjectId(4)], &mut found);
    assert_eq!(found[0].from, None, "what the other run made is read as if from home");
}

#[test]
fn a_million_tasks_cost_little() {
    let mut w = Flowing::default();
    let stage = w.patterns.stage(RUN, "s");
    for i in 0..1_000_000u32 {
        w.patterns.task_reads(stage, &[ObjectId(0), ObjectId(1 + i)], &mut w.found);
    }
    assert_eq!(w.patterns.consumption(stage, ObjectId(0)).n_readers, 1_000_000);
    assert!(w.patterns.heap_bytes() < 32 << 20, "{}", w.patterns.heap_bytes());
}

proptest! {
    /// Against tables IV and V kept in full.
    #[test]
    fn counts_are_those_of_the_tables(
        tasks in prop::collection::vec((0u32..4, prop::collection::vec(0u32..30, 0..12)), 1..80),
    ) {
        let mut w = Flowing::default();
        let mut table: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut fan_in: BTreeMap<u32, u32> = BTreeMap::new();
        let writer = w.task("w", &[], &(0..15).collect::<Vec<_>>());
        for (stage, inputs) in &tasks {
            w.task(&format!("s{stage}"), inputs, &[]);
            let distinct: std::collections::BTreeSet<u32> = inputs.iter().copied().collect();
            for object in &distinct {
                *table.entry((*stage, *object)).or_default() += 1;
            }
            let made = distinct.iter().filter(|o| **o < 15).count() as u32;
            let most = fan_in.entry(*stage).or_default();
            *most = made.max(*most);
        }
        for s in 0..4 {
            let stage = w.patterns.stage(RUN, &format!("s{s}"));
            for object in 0..30 {
                let expect = table.get(&(s, object)).copied().unwrap_or(0);
                prop_assert_eq!(w.patterns.consumption(stage, ObjectId(object)).n_readers, expect);
                let multicast = w.patterns.of_object(ObjectId(object)).iter().any(|e| e.to == format!("s{s}"));
                prop_assert_eq!(multicast, expect >= MULTICAST_READERS_MIN);
            }
            let gathers = w.patterns.of_stages(Some(writer), stage).iter().any(|e| e.pattern == PatternKind::Gather);
            prop_assert_eq!(gathers, fan_in.get(&s).is_some_and(|n| *n >= GATHER_INPUTS_MIN));
        }
    }
}
