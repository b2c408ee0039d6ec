use super::*;
use proptest::prelude::*;

const RUN: RunId = RunId(1);

/// A workflow whose tasks become known one by one.
#[derive(Default)]
struct Flowing {
    patterns: Patterns,
}

impl Flowing {
    fn task(&mut self, stage: &str, inputs: &[u32], outputs: &[u32]) -> StageId {
        let ids = |list: &[u32]| list.iter().map(|o| ObjectId(*o)).collect::<Vec<_>>();
        let stage = self.patterns.stage(RUN, stage);
        self.patterns.task_writes(stage, &ids(outputs));
        self.patterns.task_reads(stage, &ids(inputs));
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
    let mut w = montage(32);
    let expect = [
        "multicast: up to 32 tasks of stage mProject read the same file from home (threshold 4)",
        "gather: a task of stage mImgtbl reads 32 files of stage mProject (threshold 8)",
        "gather: a task of stage mConcatFit reads 31 files of stage mDiffFit (threshold 8)",
        "pipeline: 1 task of stage mBgModel reads 1 file of stage mImgtbl, each file by one task",
        "pipeline: 1 task of stage mBgModel reads 1 file of stage mConcatFit, each file by one task",
        "pipeline: 32 tasks of stage mBackground read 32 files of stage mProject, each file by one task",
        "multicast: up to 32 tasks of stage mBackground read the same file of stage mBgModel (threshold 4)",
        "gather: a task of stage mAdd reads 32 files of stage mBackground (threshold 8)",
    ];
    assert_eq!(w.sentences(), expect);
    // Each is reported once; what was added to the run since then is reported with what it has changed.
    let told =
        |w: &mut Flowing| w.patterns.new_of_run(RUN).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told(&mut w), expect);
    assert_eq!(told(&mut w), [""; 0]);
    w.task("mShrink", &[4], &[5]);
    assert_eq!(
        told(&mut w),
        ["pipeline: 1 task of stage mShrink reads 1 file of stage mAdd, each file by one task"]
    );
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
        "multicast: 1 task of stage fastasplit reads object 0 (hint)"
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
    let next = w.patterns.stage(RunId(2), "view");
    for _ in 0..3 {
        w.patterns.task_reads(next, &[ObjectId(0), ObjectId(4)]);
    }
    assert_eq!(w.patterns.new_of_run(RunId(2)), []);
    assert_eq!(w.patterns.consumption(next, ObjectId(0)).n_readers, 3);
    w.patterns.task_reads(next, &[ObjectId(4)]);
    let found = w.patterns.new_of_run(RunId(2));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].from, None, "what the other run made is read as if from home");
}

/// Leaves, and a tree over them of tasks that take at most `arity` files.
fn tree(n_leaves: u32, arity: usize, name: impl Fn(usize) -> String) -> Flowing {
    let mut w = Flowing::default();
    let mut parts: Vec<u32> = (0..n_leaves).collect();
    for leaf in &parts {
        w.task("count", &[], &[*leaf]);
    }
    let mut next = n_leaves;
    while parts.len() > 1 {
        let groups: Vec<Vec<u32>> = parts.chunks(arity).map(<[u32]>::to_vec).collect();
        parts = vec![];
        for group in groups {
            w.task(&name(group.len()), &group, &[next]);
            parts.push(next);
            next += 1;
        }
    }
    w
}

#[test]
fn a_program_that_gathers_what_it_wrote_reduces() {
    let labelled = tree(64, 4, |_| "sum".into());
    let expect = "reduce: 5 tasks of stage sum read 20 files that the same program wrote, up to 4 at a time, each file once";
    assert!(labelled.sentences().contains(&expect.to_owned()), "{:?}", labelled.sentences());
    // Without labels the tasks of one tree are of two stages; the program says that they belong together.
    let name = |n| stage_name("", "sum.py", n, 1);
    let mut w = tree(64, 16, name);
    let found = w.patterns.of_run(RUN);
    let reduce = found.iter().find(|e| e.pattern == PatternKind::Reduce).expect("a reduce");
    assert_eq!((reduce.from.as_deref(), &*reduce.to), (Some("sum.py(many→1)"), "sum.py(few→1)"));
    assert!(!reduce.hinted);
    // A task that gathers enough files to be sent them ahead gathers here, too.
    let (few, many) = (w.patterns.stage(RUN, &name(4)), w.patterns.stage(RUN, &name(16)));
    let ids = |range: std::ops::Range<u32>| range.map(ObjectId).collect::<Vec<_>>();
    assert!(w.patterns.of_task(many, &ids(0..16)).is_some());
    assert_eq!(w.patterns.of_task(few, &ids(64..68)), None);
    // Neither a chain nor a stencil is one.
    let mut w = Flowing::default();
    for i in 0..10 {
        w.task("step", &[i], &[i + 1]);
    }
    assert!(w.sentences()[0].starts_with("pipeline: 9 tasks of stage step"), "{:?}", w.sentences());
    let mut w = Flowing::default();
    for level in 0..4 {
        for i in 1..9 {
            w.task(
                "relax",
                &[10 * level + i - 1, 10 * level + i, 10 * level + i + 1],
                &[10 * (level + 1) + i],
            );
        }
    }
    assert!(!w.sentences().iter().any(|s| s.starts_with("reduce")), "{:?}", w.sentences());
}

#[test]
fn a_gather_counts_inputs_whoever_made_them() {
    let mut w = Flowing::default();
    for i in 0..9 {
        w.task(["cut", "fold", "join"][i as usize % 3], &[], &[i]);
    }
    let all = w.task("merge", &[0, 1, 2, 3, 4, 5, 6, 7, 8], &[]);
    let expect = "gather: a task of stage merge reads 9 files of stages cut, fold and join (threshold 8)";
    assert_eq!(w.sentences(), [expect]);
    let ids = |n: u32| (0..n).map(ObjectId).collect::<Vec<_>>();
    assert_eq!(w.patterns.of_task(all, &ids(9)).map(|e| e.count), Some(9));
    assert_eq!(w.patterns.of_task(all, &ids(7)), None);
    let found = w.patterns.of_run(RUN);
    assert!(["cut", "fold", "join", "merge"].iter().all(|stage| found[0].concerns(stage)));
}

#[test]
fn a_scatter_is_one_tasks_parts_whoever_reads_them() {
    let mut w = Flowing::default();
    // One task writes twelve parts and a table of contents; others of its stage write one file each.
    let parts: Vec<u32> = (0..13).collect();
    w.task("split", &[], &parts);
    for i in 0..20 {
        w.task("split", &[], &[100 + i]);
    }
    for i in 0..12 {
        w.task(["even", "odd"][i as usize % 2], &[i, 12], &[]);
    }
    let expect = "scatter: a task of stage split writes 13 files, read by 12 tasks of stages even and odd (threshold 8)";
    let found = w.sentences();
    assert_eq!(found.iter().filter(|s| s.starts_with("scatter")).collect::<Vec<_>>(), [expect], "{found:?}");
    let ids: Vec<ObjectId> = parts.iter().map(|o| ObjectId(*o)).collect();
    assert_eq!(w.patterns.of_made(&ids).map(|e| e.n_files), Some(12));
    assert_eq!(w.patterns.of_made(&[ObjectId(100)]), None);
    assert!(w.patterns.is_part(ObjectId(3)) && !w.patterns.is_part(ObjectId(12)), "the table is multicast");
    // What one task reads whole is no scatter.
    let mut w = Flowing::default();
    w.task("split", &[], &parts);
    w.task("view", &parts, &[]);
    assert_eq!(w.patterns.of_made(&ids), None);
}

#[test]
fn a_million_tasks_cost_little() {
    let mut w = Flowing::default();
    let stage = w.patterns.stage(RUN, "s");
    for i in 0..1_000_000u32 {
        w.patterns.task_reads(stage, &[ObjectId(0), ObjectId(1 + i)]);
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
