use super::super::ProvisionConfig;
use super::BlockAction::{Cancel, List, Release, Submit};
use super::*;
use eyas_terms::needs::{Equipment, PARTS};

/// Blocks of a batch system in small: every action is answered as the test says.
struct World {
    blocks: Blocks,
    now: Timestamp,
    n_ready: u64,
    /// Executors with the names of their nodes; those in `idle` have no task.
    nodes: Vec<(u32, String)>,
    idle: BTreeSet<u32>,
    /// Slots of each node, and when all of them end.
    slots: u32,
    ends: Option<Timestamp>,
    /// What a listing shows.
    queue: Vec<Listed>,
    /// Submissions are refused with these words.
    refuses: Option<&'static str>,
    /// Submissions are refused while the queue has so many.
    n_max: usize,
    /// Listings fail.
    is_deaf: bool,
    /// Everything that was done, with the second it was done at.
    done: Vec<(u64, BlockAction)>,
    gave_up: Option<GaveUp>,
}

fn batch() -> BlockConfig {
    BlockConfig {
        prefix: "eyas-c1-".into(),
        nodes_per_block: 1,
        submit_every_ns: S,
        list_every_ns: 15 * S,
        unlisted_max: 2,
        join_within_ns: 60 * S,
        end_within_ns: 30 * S,
        reuses_numbers: false,
        number_max: u32::MAX,
        ended_max: 0,
    }
}

impl World {
    fn new(config: BlockConfig, nodes_min: u32, nodes_max: u32) -> World {
        let policy = ProvisionConfig {
            policy: "all-at-once".into(),
            nodes_min,
            nodes_max,
            ..ProvisionConfig::default()
        };
        World {
            blocks: Blocks::new(config, Provisioner::new(policy).unwrap()),
            now: Timestamp(1000 * S),
            n_ready: 0,
            nodes: vec![],
            idle: BTreeSet::new(),
            slots: 1,
            ends: None,
            queue: vec![],
            refuses: None,
            n_max: usize::MAX,
            is_deaf: false,
            done: vec![],
            gave_up: None,
        }
    }

    /// Seconds since the world's beginning.
    fn at(&self) -> u64 {
        self.now.0 / S - 1000
    }

    fn look(&mut self) -> Vec<BlockAction> {
        let view = |(executor, name): &(u32, String)| {
            let is_idle = self.idle.contains(executor);
            let view = NodeView {
                executor: ExecutorId(*executor),
                slots: self.slots,
                ends: self.ends,
                n_assigned: u32::from(!is_idle),
                idle_since: is_idle.then_some(Timestamp(0)),
                cached_bytes: 0,
                ..NodeView::default()
            };
            (view, name.clone())
        };
        let nodes: Vec<_> = self.nodes.iter().map(view).collect();
        let sizes = vec![Size { cpu_parts: u64::from(self.slots) * 1000, ..Size::default() }; nodes.len()];
        let mut predicted = Predicted::default();
        predicted.add_queued(self.n_ready, None, self.blocks.provisioner().config().slots_per_node.into());
        let seen = SeenDemand {
            n_ready: self.n_ready,
            n_running: 0,
            predicted: &predicted,
            nodes: &nodes,
            sizes: &sizes,
        };
        let mut out = vec![];
        if let Err(gave_up) = self.blocks.look(self.now, &seen, &mut out) {
            self.gave_up.get_or_insert(gave_up);
        }
        let at = self.at();
        self.done.extend(out.iter().map(|action| (at, action.clone())));
        out
    }

    /// A look every quarter of a second, with answers at once.
    fn go(&mut self, seconds: u64) {
        for _ in 0..4 * seconds {
            if self.gave_up.is_some() {
                return;
            }
            for action in self.look() {
                match action {
                    Submit { number, name, .. } => self.answer(number, &name),
                    List if self.is_deaf => self.blocks.list_failed(self.now, "no route".into()),
                    List => self.blocks.listed(self.now, &self.queue.clone()),
                    Cancel { id, .. } => self.queue.retain(|line| line.id != id),
                    _ => {}
                }
            }
            self.now = self.now.plus_ns(S / 4);
        }
    }

    fn answer(&mut self, number: u32, name: &str) {
        let id = format!("j{number}");
        let is_full = self.queue.len() >= self.n_max;
        let result = match self.refuses.or(is_full.then_some("AssocMaxSubmitJobLimit")) {
            Some(why) => Err(why.to_string()),
            None => {
                self.queue.push(Listed {
                    id: id.clone(),
                    name: name.into(),
                    state: BlockState::Queued,
                    n_nodes: None,
                    why: String::new(),
                });
                Ok(id)
            }
        };
        self.blocks.submitted(self.now, number, result);
    }

    /// All that is in the queue runs, and each block's node joins under the block's number.
    fn grant(&mut self) {
        for line in &mut self.queue {
            line.state = BlockState::Running;
            let number: u32 = line.id[1..].parse().unwrap();
            if !self.nodes.iter().any(|(known, _)| *known == number) {
                self.nodes.push((number, line.name.clone()));
            }
        }
    }

    fn times(&self, is_wanted: impl Fn(&BlockAction) -> bool) -> Vec<u64> {
        self.done.iter().filter(|(_, action)| is_wanted(action)).map(|(at, _)| *at).collect()
    }

    fn submissions(&self) -> Vec<u64> {
        self.times(|action| matches!(action, Submit { .. }))
    }

    fn listings(&self) -> Vec<u64> {
        self.times(|action| matches!(action, List))
    }

    fn cancelled(&self) -> Vec<String> {
        let id = |(_, action): &(u64, BlockAction)| match action {
            Cancel { id, .. } => Some(id.clone()),
            _ => None,
        };
        self.done.iter().filter_map(id).collect()
    }
}

#[test]
fn one_submission_a_second_and_one_listing_in_fifteen() {
    let mut w = World::new(batch(), 0, 5);
    w.n_ready = 100;
    w.go(46);
    assert_eq!(w.submissions(), [0, 1, 2, 3, 4]);
    assert_eq!(w.listings(), [0, 15, 30, 45], "one listing shows all blocks");
    w.grant();
    w.go(200);
    // All run and all nodes have joined: four times as long.
    assert_eq!(w.listings()[4..], [105, 165, 225]);
    assert_eq!(w.submissions().len(), 5);
}

#[test]
fn blocks_that_are_no_nodes_yet_or_no_more_are_shown() {
    let mut w = World::new(batch(), 0, 3);
    let shown = |w: &World| -> Vec<String> {
        let text = |view: BlockView| format!("{} {} {}", view.name, view.id.unwrap_or_default(), view.state);
        w.blocks.unseen(10).into_iter().map(text).collect()
    };
    w.n_ready = 100;
    w.go(1);
    assert_eq!(shown(&w), ["eyas-c1-1 j1 queued", "eyas-c1-2  wanted", "eyas-c1-3  wanted"]);
    w.go(3);
    w.queue[0].state = BlockState::Running;
    w.go(15);
    assert_eq!(shown(&w), ["eyas-c1-1 j1 starting", "eyas-c1-2 j2 queued", "eyas-c1-3 j3 queued"]);
    assert_eq!(w.blocks.unseen(2).len(), 2);
    w.grant();
    w.go(1);
    assert_eq!(shown(&w), [] as [&str; 0]);
    w.nodes.retain(|(i, _)| *i != 2);
    w.go(1);
    assert_eq!(shown(&w), ["eyas-c1-2 j2 ending"]);
}

#[test]
fn nobody_is_asked_while_there_is_nothing_to_ask_about() {
    let mut w = World::new(batch(), 0, 5);
    w.go(600);
    assert_eq!(w.listings(), [0], "the first one may find blocks of before");
    assert_eq!(w.submissions(), [] as [u64; 0]);
}

#[test]
fn a_batch_system_that_refuses_is_asked_less_and_less_often_and_never_given_up_once_it_has_worked() {
    let mut w = World::new(batch(), 0, 3);
    w.n_ready = 100;
    w.go(1);
    w.refuses = Some("AssocMaxSubmitJobLimit");
    w.go(1000);
    assert_eq!(w.submissions(), [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 812]);
    let tries = w
        .done
        .iter()
        .filter(|(_, a)| matches!(a, BlockAction::TryAgain { why, .. } if why == "AssocMaxSubmitJobLimit"));
    assert_eq!(tries.count(), 11);
    w.refuses = None;
    w.go(320);
    assert_eq!(w.submissions()[12..], [1112, 1113], "one a second again");
    assert_eq!(w.gave_up, None);
}

/// What `AssocMaxSubmitJobLimit` of two does: the third block is refused whenever it is tried.
#[test]
fn a_limit_of_the_batch_system_is_learnt_and_a_block_that_ends_makes_room_at_once() {
    let mut w = World::new(batch(), 0, 3);
    (w.n_ready, w.n_max) = (100, 2);
    w.go(200);
    assert_eq!(w.submissions(), [0, 1, 2, 3, 5, 9, 17, 33, 65, 129], "the third one less and less often");
    w.grant();
    w.go(20);
    // The first block ends: another one takes its place as soon as a listing has shown that, and the third waits on.
    w.nodes.retain(|(i, _)| *i != 1);
    w.queue.retain(|line| line.id != "j1");
    let before = w.at();
    w.go(100);
    let [next, beyond] = w.submissions()[10..] else { panic!("{:?}", w.submissions()) };
    assert!(next < before + 60, "{next}, and the wait for the third one ends at 257");
    assert_eq!(beyond, 257, "the wait did not begin anew");
    assert_eq!(w.queue.len(), 2);
    // There is no limit any more.
    w.n_max = usize::MAX;
    w.go(400);
    assert_eq!(w.queue.len(), 3);
    let tries = w.times(|a| matches!(a, BlockAction::TryAgain { n_blocks, .. } if *n_blocks != 2));
    assert_eq!(tries, [] as [u64; 0]);
}

#[test]
fn a_batch_system_that_is_down_is_used_again_once_a_listing_works() {
    let mut w = World::new(batch(), 0, 2);
    w.n_ready = 100;
    w.go(1);
    (w.refuses, w.is_deaf) = (Some("Unable to contact slurm controller"), true);
    w.go(70);
    let n = w.submissions().len();
    (w.refuses, w.is_deaf) = (None, false);
    w.go(60);
    let works_again = w.listings().into_iter().find(|at| *at > 70).expect("it is listed");
    assert_eq!(w.submissions()[n], works_again, "{:?}", w.submissions());
    assert_eq!(w.gave_up, None);
}

#[test]
fn a_provider_that_is_started_again_does_not_give_up_what_is_there() {
    // The limit is reached by the block that is taken over.
    let mut w = World::new(batch(), 0, 3);
    (w.n_ready, w.refuses) = (100, Some("AssocMaxSubmitJobLimit"));
    let line = |state| Listed {
        id: "j1".into(),
        name: "eyas-c1-1".into(),
        state,
        n_nodes: None,
        why: String::new(),
    };
    w.queue.push(line(BlockState::Running));
    w.go(100);
    assert_eq!(w.gave_up, None);
    // The controller is down, and a node is there.
    let mut w = World::new(batch(), 0, 3);
    (w.n_ready, w.is_deaf) = (100, true);
    w.nodes.push((1, "eyas-c1-1".into()));
    w.go(100);
    assert_eq!(w.gave_up, None);
    (w.is_deaf, w.queue) = (false, vec![line(BlockState::Running)]);
    w.go(100);
    assert_eq!(w.blocks.all()[0].0.as_deref(), Some("j1"));
    assert_eq!(w.queue.len(), 3);
}

#[test]
fn commands_that_never_worked_are_tried_three_times() {
    let mut w = World::new(batch(), 0, 3);
    (w.n_ready, w.refuses) = (100, Some("no such partition"));
    w.go(10);
    assert_eq!(w.submissions(), [0, 1, 3]);
    let why = "no such partition".to_string();
    assert_eq!(w.gave_up, Some(GaveUp::Command { what: "submit a block", why }));
    // Whoever ends it all looks once more whether the last one exists all the same.
    assert!(w.blocks.is_in_doubt());
    w.blocks.begin_listing(w.now);
    w.blocks.listed(w.now, &[]);
    assert!(!w.blocks.is_in_doubt() && w.blocks.all().is_empty());
    let mut w = World::new(batch(), 0, 3);
    (w.n_ready, w.is_deaf) = (100, true);
    w.go(10);
    assert_eq!((w.listings(), w.submissions()), (vec![0, 1, 3], vec![]), "nothing is submitted blindly");
    assert!(matches!(w.gave_up, Some(GaveUp::Command { what: "list the blocks", .. })));
}

#[test]
fn a_block_may_be_missing_once_and_is_over_when_it_is_missing_twice_without_a_node() {
    let mut w = World::new(batch(), 0, 1);
    w.n_ready = 100;
    w.go(5);
    let queue = std::mem::take(&mut w.queue);
    w.go(15); // Missing at 15.
    w.queue = queue;
    w.go(15); // There at 30.
    assert_eq!(w.submissions(), [0], "it is the same block");
    w.grant();
    w.go(10);
    w.queue.clear();
    w.go(300);
    assert_eq!(w.submissions(), [0], "its node is there, whatever a listing lacks");
    w.nodes.clear();
    w.go(120);
    // It had joined, so that is no failure: a block comes in its place.
    assert_eq!(w.submissions().len(), 2);
    assert!(w.times(|a| matches!(a, BlockAction::Failed { .. })).is_empty());
    assert_eq!(w.gave_up, None);
}

#[test]
fn a_listing_that_fails_changes_nothing() {
    let mut w = World::new(batch(), 0, 2);
    w.n_ready = 100;
    w.go(5);
    w.is_deaf = true;
    w.go(1000);
    assert_eq!(w.listings(), [0, 15, 30, 60, 120, 240, 480, 780]);
    assert_eq!((w.submissions(), w.cancelled()), (vec![0, 1], vec![]));
    assert_eq!(w.gave_up, None);
}

#[test]
fn blocks_of_an_earlier_provider_are_taken_over_and_those_of_others_are_left_alone() {
    let mut w = World::new(batch(), 0, 3);
    w.n_ready = 100;
    let line = |id: &str, name: &str, state| Listed {
        id: id.into(),
        name: name.into(),
        state,
        n_nodes: None,
        why: String::new(),
    };
    let others = [
        line("j90", "eyas-c2-1", BlockState::Running),
        line("j91", "eyas-c1-x", BlockState::Running),
        line("j92", "eyas-c1-07", BlockState::Running),
        line("j93", "eyas-c1-9", BlockState::Ended("walltime".into())),
    ];
    w.queue = others.to_vec();
    w.queue.push(line("j5", "eyas-c1-5", BlockState::Running));
    w.queue.push(line("j7", "eyas-c1-7", BlockState::Queued));
    w.nodes.push((5, "eyas-c1-5".into()));
    w.go(5);
    let adopted = w.done.iter().filter_map(|(_, a)| match a {
        BlockAction::Adopted { id, .. } => Some(id.as_str()),
        _ => None,
    });
    assert_eq!(adopted.collect::<Vec<_>>(), ["j5", "j7"]);
    let new = w.done.iter().filter_map(|(_, a)| match a {
        Submit { name, .. } => Some(name.as_str()),
        _ => None,
    });
    assert_eq!(new.collect::<Vec<_>>(), ["eyas-c1-10"], "three in all, and no name is taken twice");
    assert_eq!(w.blocks.all().len(), 3);
    // No task waits any more: what waits in the queue goes, and nothing of others.
    w.n_ready = 0;
    w.go(40);
    assert_eq!(w.cancelled(), ["j10", "j7"], "the newest first");
    assert_eq!(w.queue[..4], others);
}

#[test]
fn blocks_that_an_earlier_provider_has_ended_bring_no_node_and_are_cancelled_until_they_are_over() {
    let mut w = World::new(BlockConfig { ended_max: 6, ..batch() }, 0, 2);
    w.n_ready = 100;
    for (id, name) in [("j5", "eyas-c1-5"), ("j6", "eyas-c1-6"), ("j7", "eyas-c1-7")] {
        let (id, name, why) = (id.into(), name.into(), String::new());
        w.queue.push(Listed { id, name, state: BlockState::Running, n_nodes: None, why });
    }
    w.go(4);
    let named = |w: &World, is_of: fn(&BlockAction) -> Option<String>| -> Vec<String> {
        w.done.iter().filter_map(|(_, action)| is_of(action)).collect()
    };
    let adopted = named(&w, |action| match action {
        BlockAction::Adopted { name, .. } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(adopted, ["eyas-c1-7"], "the others were told to end");
    let submitted = named(&w, |action| match action {
        Submit { name, .. } => Some(name.clone()),
        _ => None,
    });
    assert_eq!((submitted, w.submissions()), (vec!["eyas-c1-8".to_string()], vec![0]), "at once");
    assert_eq!(w.blocks.unseen(9).iter().filter(|block| block.state == "ending").count(), 2);
    // What is still listed after that was not ended after all.
    w.go(40);
    assert_eq!(w.cancelled(), ["j5", "j6"]);
    assert!(!w.done.iter().any(|(_, action)| matches!(action, BlockAction::Failed { .. })), "{:?}", w.done);
    assert_eq!((w.blocks.highest_number(), w.gave_up), (8, None));
}

#[test]
fn a_provider_whose_predecessor_has_ended_all_uses_no_number_again() {
    let mut w = World::new(BlockConfig { ended_max: 6, ..batch() }, 1, 1);
    assert_eq!(w.blocks.highest_number(), 6);
    w.go(2);
    assert!(w.done.iter().any(|(_, action)| matches!(action, Submit { number: 7, .. })), "{:?}", w.done);
}

#[test]
fn a_submission_that_failed_in_appearance_is_found_by_its_name() {
    let mut w = World::new(batch(), 0, 1);
    w.n_ready = 1;
    w.go(1);
    w.refuses = Some("timed out");
    w.grant();
    // The first one is lost, so that another is wanted, which the batch system takes without saying so.
    (w.nodes, w.queue) = (vec![], vec![]);
    w.go(60);
    let n = w.submissions().len();
    assert!(n >= 2);
    let Some(Submit { name, .. }) =
        w.done.iter().rev().map(|(_, a)| a).find(|a| matches!(a, Submit { .. })).cloned()
    else {
        panic!("it was submitted")
    };
    w.queue.push(Listed {
        id: "j77".into(),
        name,
        state: BlockState::Queued,
        n_nodes: None,
        why: String::new(),
    });
    w.blocks.listed(w.now, &w.queue.clone());
    w.go(600);
    assert_eq!(w.submissions().len(), n, "it is not submitted again");
    assert_eq!(w.blocks.all()[0].0.as_deref(), Some("j77"));
}

#[test]
fn three_blocks_that_die_before_they_join_end_it_with_the_reason_of_the_last() {
    let mut w = World::new(batch(), 1, 1);
    w.n_ready = 1;
    for _ in 0..200 {
        w.go(1);
        for line in &mut w.queue {
            line.state = BlockState::Ended(format!("{} failed", line.id));
        }
        if w.gave_up.is_some() {
            break;
        }
    }
    assert_eq!(
        w.gave_up,
        Some(GaveUp::NoNode { name: "eyas-c1-3".into(), why: "j3 failed".into() }),
        "{:?}",
        w.done
    );
    assert_eq!(w.submissions().len(), 3);
}

#[test]
fn a_stuck_block_is_cancelled_and_three_of_them_end_it_with_the_reason() {
    let mut w = World::new(batch(), 1, 1);
    w.n_ready = 1;
    let why = "launch failed requeued held".to_string();
    for n in 1..=3 {
        w.go(60);
        assert_eq!((w.submissions().len(), w.cancelled().len()), (n, n - 1), "another one took its place");
        w.queue[0].state = BlockState::Stuck(why.clone());
    }
    w.go(60);
    assert_eq!(w.gave_up, Some(GaveUp::NoNode { name: "eyas-c1-3".into(), why }));
    assert_eq!(w.submissions().len(), 3);
    let cancelled = w.cancelled();
    assert_eq!(cancelled[..2], ["j1", "j2"]);
    let all: Vec<String> = w.blocks.all().into_iter().filter_map(|(id, _)| id).collect();
    assert!(cancelled.len() == 3 || all == ["j3"], "the last one is ended with all others: {:?}", w.done);
}

#[test]
fn a_stuck_block_of_before_is_taken_over_and_cancelled() {
    let mut w = World::new(batch(), 0, 1);
    w.n_ready = 1;
    let state = BlockState::Stuck("Eqw".into());
    let (id, name, why) = ("j7".into(), "eyas-c1-7".into(), String::new());
    w.queue.push(Listed { id, name, state, n_nodes: None, why });
    w.go(40);
    assert_eq!(w.cancelled(), ["j7"]);
    assert_eq!(w.submissions().len(), 1);
}

#[test]
fn a_running_block_that_does_not_join_is_cancelled_and_one_in_the_queue_may_wait() {
    let mut w = World::new(batch(), 1, 1);
    w.go(3600);
    assert_eq!((w.submissions().len(), w.cancelled().len()), (1, 0), "how long a queue is, nobody knows");
    w.queue[0].state = BlockState::Running;
    w.go(80);
    assert_eq!(w.cancelled(), ["j1"]);
    let failed = w.done.iter().find_map(|(_, a)| match a {
        BlockAction::Failed { why, .. } => Some(why.as_str()),
        _ => None,
    });
    assert_eq!(failed, Some("it did not join within 60 s"));
    assert_eq!(w.submissions().len(), 2, "another one in its place");
}

#[test]
fn a_block_whose_nodes_have_left_is_cancelled_when_it_does_not_end_by_itself() {
    let mut w = World::new(batch(), 0, 1);
    w.n_ready = 1;
    w.go(2);
    w.grant();
    w.n_ready = 0;
    w.idle.insert(1);
    w.go(10);
    assert_eq!(w.times(|a| matches!(a, Release { executor: ExecutorId(1) })).len(), 1);
    w.nodes.clear();
    w.go(29);
    assert_eq!(w.cancelled(), [] as [&str; 0]);
    w.go(5);
    assert_eq!(w.cancelled(), ["j1"]);
    // The cancellation had no effect.
    w.queue = vec![Listed {
        id: "j1".into(),
        name: "eyas-c1-1".into(),
        state: BlockState::Running,
        n_nodes: None,
        why: String::new(),
    }];
    w.go(30);
    assert_eq!(w.cancelled()[1..], ["j1"], "{:?}", w.done);
}

/// As the nodes of this machine are lent: no pace, numbers that come back, blocks of several nodes here.
fn local(nodes_per_block: u32) -> BlockConfig {
    BlockConfig {
        prefix: "N".into(),
        nodes_per_block,
        submit_every_ns: 0,
        list_every_ns: 0,
        unlisted_max: 1,
        end_within_ns: 0,
        reuses_numbers: true,
        ..batch()
    }
}

#[test]
fn a_block_has_several_nodes_and_ends_when_the_last_of_them_is_gone() {
    let mut w = World::new(local(3), 5, 5);
    w.go(1);
    let sizes = w.done.iter().filter_map(|(_, a)| match a {
        Submit { name, n_nodes, .. } => Some((name.as_str(), *n_nodes)),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [("N1", 3), ("N2", 2)]);
    assert_eq!(w.blocks.n_pending(), 5);
    // A queue may be long: nobody is given up for that.
    w.go(600);
    assert_eq!((w.blocks.n_pending(), w.submissions().len()), (5, 2));
    w.queue.iter_mut().for_each(|line| line.state = BlockState::Running);
    w.nodes = [(1, "N1.0"), (2, "N1.1"), (3, "N1.2"), (4, "N2.0"), (5, "N2.1")]
        .map(|(i, n)| (i, n.into()))
        .to_vec();
    w.go(1);
    assert_eq!(w.blocks.n_pending(), 0);
    // Two of three have left: the third one still needs the block.
    w.nodes.drain(..2);
    w.go(1);
    assert_eq!(w.cancelled(), [] as [&str; 0]);
    w.nodes.drain(..1);
    w.go(1);
    assert_eq!(w.cancelled(), ["j1"]);
}

#[test]
fn nodes_of_one_block_are_released_together() {
    let mut w = World::new(BlockConfig { nodes_per_block: 2, ..batch() }, 0, 2);
    w.n_ready = 2;
    w.go(1);
    w.queue.iter_mut().for_each(|line| line.state = BlockState::Running);
    w.nodes = vec![(1, "eyas-c1-1.a".into()), (2, "eyas-c1-1.b".into())];
    w.n_ready = 0;
    w.idle = BTreeSet::from([1]);
    w.go(60);
    let released = |w: &World| w.times(|action| matches!(action, Release { .. })).len();
    assert_eq!(released(&w), 0, "the job goes on while its other node works");
    w.idle = BTreeSet::from([1, 2]);
    w.go(60);
    assert_eq!(released(&w), 2);
}

#[test]
fn a_block_that_is_taken_over_has_as_many_nodes_as_the_listing_says() {
    let mut w = World::new(BlockConfig { nodes_per_block: 4, ..batch() }, 0, 8);
    let line = |id: &str, name: &str, n_nodes| Listed {
        id: id.into(),
        name: name.into(),
        state: BlockState::Queued,
        n_nodes,
        why: String::new(),
    };
    w.queue = vec![line("j1", "eyas-c1-1", Some(3)), line("j2", "eyas-c1-2", None)];
    w.go(1);
    assert_eq!(w.blocks.n_pending(), 7);
}

#[test]
fn numbers_of_blocks_that_ended_are_free_again_once_the_dispatcher_has_forgotten_them() {
    let mut w = World::new(local(1), 2, 2);
    w.go(1);
    w.grant();
    w.go(1);
    w.queue[0].state = BlockState::Ended("killed".into());
    w.go(2);
    let names = |w: &World| -> Vec<String> {
        let name = |(_, a): &(u64, BlockAction)| match a {
            Submit { name, .. } => Some(name.clone()),
            _ => None,
        };
        w.done.iter().filter_map(name).collect()
    };
    assert_eq!(names(&w), ["N1", "N2", "N3"], "the dispatcher still knows the first one's name");
    w.queue.retain(|line| line.id == "j2");
    w.nodes.retain(|(i, _)| *i == 2);
    w.go(3);
    assert_eq!(names(&w), ["N1", "N2", "N3", "N1"]);
}

#[test]
fn a_block_of_a_submission_that_failed_is_looked_for_before_the_next_submission() {
    let mut w = World::new(batch(), 0, 2);
    w.n_ready = 100;
    w.go(1);
    // The second submission reaches the batch system, and its command fails.
    w.refuses = Some("Socket timed out");
    w.queue.push(Listed {
        id: "j77".into(),
        name: "eyas-c1-2".into(),
        state: BlockState::Queued,
        n_nodes: None,
        why: String::new(),
    });
    w.go(1);
    w.refuses = None;
    w.go(10);
    assert_eq!(w.submissions(), [0, 1], "what was submitted is not submitted again");
    assert_eq!(w.listings(), [0, 1], "the listing does not wait for its turn");
    assert_eq!(w.blocks.all().iter().filter(|(id, _)| id.as_deref() == Some("j77")).count(), 1);
}

#[test]
fn a_listing_that_was_under_way_says_nothing_of_a_submission_that_failed_meanwhile() {
    let mut w = World::new(batch(), 0, 1);
    w.n_ready = 100;
    assert_eq!(w.look(), [List]);
    w.blocks.listed(w.now, &[]);
    assert!(matches!(w.look()[..], [Submit { number: 1, .. }]));
    w.blocks.listings.begin(w.now);
    w.now = w.now.plus_ns(S);
    w.blocks.submitted(w.now, 1, Err("Socket timed out".into()));
    w.blocks.listed(w.now, &[]);
    w.now = w.now.plus_ns(S);
    let asked = w.look();
    assert!(!asked.iter().any(|action| matches!(action, Submit { .. })), "{asked:?}");
}

#[test]
fn a_host_whose_node_was_lost_is_used_again_and_no_host_is_asked_for_that_is_not_there() {
    let mut w = World::new(BlockConfig { number_max: 2, ..local(1) }, 2, 2);
    w.n_ready = 100;
    w.go(1);
    w.grant();
    w.go(1);
    // The node's process is gone, and its executor is known until its lease is over.
    w.queue.retain(|line| line.id != "j1");
    w.go(10);
    let names = |w: &World| -> Vec<String> {
        let name = |(_, action): &(u64, BlockAction)| match action {
            Submit { name, .. } => Some(name.clone()),
            _ => None,
        };
        w.done.iter().filter_map(name).collect()
    };
    assert_eq!(names(&w), ["N1", "N2"], "there is no third host");
    w.nodes.retain(|(executor, _)| *executor != 1);
    w.go(1);
    assert_eq!(names(&w), ["N1", "N2", "N1"]);
}

#[test]
fn failures_beside_a_node_that_works_do_not_count_when_that_node_is_lost() {
    let mut w = World::new(local(1), 2, 2);
    w.n_ready = 100;
    w.go(1);
    w.queue[0].state = BlockState::Running;
    w.nodes.push((1, "N1".into()));
    w.go(1);
    for _ in 0..600 {
        // The second host refuses again and again.
        if let Some(line) = w.queue.get_mut(1) {
            line.state = BlockState::Ended("refused".into());
            w.go(1);
            w.queue.truncate(1);
        }
        w.go(1);
    }
    let n_failed = w.times(|action| matches!(action, BlockAction::Failed { .. })).len();
    assert!(n_failed > FAILURES_MAX as usize, "{n_failed}");
    assert_eq!(w.gave_up, None);
    w.nodes.clear();
    w.queue.clear();
    w.go(300);
    assert_eq!(w.gave_up, None);
    assert!(w.queue.iter().any(|line| line.name == "N1"), "the first host is tried again");
}

#[test]
fn a_part_of_a_block_is_never_released() {
    // Four nodes are idle, three have to stay: one of a block alone would give nothing back.
    let mut w = World::new(BlockConfig { nodes_per_block: 2, ..batch() }, 3, 6);
    w.n_ready = 6;
    w.go(3);
    w.queue.iter_mut().for_each(|line| line.state = BlockState::Running);
    let name = |i: u32| (i, format!("eyas-c1-{}.{}", i.div_ceil(2), if i % 2 == 1 { "a" } else { "b" }));
    w.nodes = (1..=6).map(name).collect();
    w.n_ready = 0;
    w.idle = BTreeSet::from([1, 2, 3, 4]);
    w.go(60);
    let released = |w: &World| -> Vec<u32> {
        let executor = |(_, action): &(u64, BlockAction)| match action {
            Release { executor } => Some(executor.0),
            _ => None,
        };
        w.done.iter().filter_map(executor).collect()
    };
    assert_eq!(released(&w).len(), 2, "six less two are four: {:?}", released(&w));
    assert_eq!(released(&w)[0].div_ceil(2), released(&w)[1].div_ceil(2), "{:?}", released(&w));
    w.idle = (1..=6).collect();
    w.go(60);
    assert_eq!(released(&w).len(), 2, "four less two would be too few");
}

#[test]
fn nodes_are_expected_to_have_the_slots_that_the_last_one_had() {
    let mut w = World::new(batch(), 0, 20);
    w.slots = 16;
    w.n_ready = 1;
    w.go(1);
    w.queue[0].state = BlockState::Running;
    w.nodes = vec![(1, "eyas-c1-1".into())];
    w.n_ready = 40;
    w.go(60);
    // 40 tasks that wait and one that runs: three nodes of 16 slots.
    assert_eq!(w.times(|action| matches!(action, Submit { .. })).len(), 3);
}

#[test]
fn a_successor_is_requested_as_long_before_the_end_as_blocks_wait_in_the_queue() {
    // How long the first block waited, and how many were submitted 380 s and 270 s before the end of its node.
    for (waited_s, at_380, at_270) in [(2, 1, 1), (300, 1, 2), (5_000, 2, 2)] {
        let mut w = World::new(batch(), 0, 2);
        w.n_ready = 1;
        w.go(waited_s);
        w.queue[0].state = BlockState::Running;
        w.nodes = vec![(1, "eyas-c1-1".into())];
        w.ends = Some(w.now.plus_ns(3_600 * S));
        // The policy wants one node for the task that waits, and has it.
        w.go(1_700);
        assert_eq!(w.submissions().len(), 1, "after {waited_s} s: more than half of its life is left");
        w.n_ready = 0;
        w.go(1_500);
        assert_eq!(w.submissions().len(), 1, "nothing waits");
        w.n_ready = 1;
        w.go(20);
        assert_eq!(w.submissions().len(), at_380, "after {waited_s} s in the queue");
        w.go(110);
        assert_eq!(w.submissions().len(), at_270, "after {waited_s} s in the queue");
    }
}

/// As hosts are lent: each number is a host.
fn hosts(n: u32) -> BlockConfig {
    BlockConfig { number_max: n, ..local(1) }
}

/// Blocks of bad hosts are over after a look, those of good ones join after `starts_s`. Gives the hosts that were tried.
fn try_hosts(w: &mut World, is_bad: impl Fn(u32) -> bool, starts_s: u64, until_s: u64) -> Vec<u32> {
    let number = |name: &str| name[1..].parse::<u32>().unwrap();
    let began = w.now;
    for _ in 0..until_s {
        w.go(1);
        w.queue.retain(|line| !matches!(line.state, BlockState::Ended(_)));
        for line in &mut w.queue {
            let n = number(&line.name);
            line.state = match is_bad(n) {
                true => BlockState::Ended(format!("host {n} refuses")),
                false => BlockState::Running,
            };
            let is_up = w.now.since_ns(began) >= starts_s * S;
            if !is_bad(n) && is_up && !w.nodes.iter().any(|(_, name)| *name == line.name) {
                w.nodes.push((100 + n, line.name.clone()));
            }
        }
        if w.gave_up.is_some() {
            break;
        }
    }
    let submitted = w.done.iter().filter_map(|(_, action)| match action {
        Submit { name, .. } => Some(number(name)),
        _ => None,
    });
    submitted.collect()
}

#[test]
fn bad_hosts_end_nothing_while_others_start_or_are_untried() {
    // Four hosts at once, three of them bad; the good one takes ten seconds.
    let mut w = World::new(hosts(4), 4, 4);
    try_hosts(&mut w, |n| n != 1, 10, 30);
    assert_eq!(w.gave_up, None);
    // One node is wanted, and only the fifth host is good: the others are tried once each.
    let mut w = World::new(hosts(5), 0, 5);
    w.n_ready = 1;
    let tried = try_hosts(&mut w, |n| n != 5, 0, 30);
    assert_eq!((w.gave_up.clone(), &tried[..]), (None, &[1, 2, 3, 4, 5][..]));
    // All are bad.
    let mut w = World::new(hosts(5), 0, 5);
    w.n_ready = 1;
    let tried = try_hosts(&mut w, |_| true, 0, 60);
    assert!(w.gave_up.is_some() && tried == [1, 2, 3, 4, 5], "{tried:?}");
    // There is one, which is tried as often as any source.
    let mut w = World::new(hosts(1), 0, 1);
    w.n_ready = 1;
    let tried = try_hosts(&mut w, |_| true, 0, 60);
    assert!(w.gave_up.is_some() && tried == [1, 1, 1], "{tried:?}");
    // Nobody waits until thousands are tried.
    let mut w = World::new(hosts(5000), 0, 5000);
    w.n_ready = 1;
    let tried = try_hosts(&mut w, |_| true, 0, 60);
    assert!(w.gave_up.is_some() && tried.len() == HOSTS_TRIED_MAX as usize, "{tried:?}");
}

#[test]
fn blocks_that_started_before_the_first_failure_are_waited_for() {
    let mut w = World::new(BlockConfig { submit_every_ns: 0, list_every_ns: S, ..batch() }, 4, 4);
    w.go(2);
    assert_eq!(w.queue.len(), 4);
    // The first one starts well, and slowly; what takes the others' place fails as they did.
    for _ in 0..40 {
        w.go(1);
        for line in &mut w.queue {
            line.state = match line.id.as_str() {
                "j1" => BlockState::Running,
                _ => BlockState::Ended("no such disk".into()),
            };
        }
    }
    assert_eq!(w.gave_up, None, "{:?}", w.done);
    // It is late, so nothing is left to hope for.
    w.go(60);
    assert!(matches!(w.gave_up, Some(GaveUp::NoNode { .. })), "{:?}", w.done);
}

#[test]
fn a_node_of_an_earlier_provider_says_nothing_of_the_equipment_of_further_ones() {
    let mut w = World::new(batch(), 0, 2);
    let config = ProvisionConfig {
        policy: "all-at-once".into(),
        nodes_max: 2,
        equipment: Equipment { gpus: 2, ..Equipment::default() },
        ..ProvisionConfig::default()
    };
    w.blocks = Blocks::new(batch(), Provisioner::new(config).unwrap());
    w.slots = 3;
    w.queue = vec![Listed {
        id: "j9".into(),
        name: "eyas-c1-9".into(),
        state: BlockState::Running,
        n_nodes: None,
        why: String::new(),
    }];
    w.go(1);
    w.nodes = vec![(1, "eyas-c1-9".into())];
    w.go(1);
    let node = w.blocks.provisioner().node();
    assert_eq!((node.slots(), node.gpu_parts), (3, 2 * PARTS));
}

#[test]
fn a_command_that_hangs_is_said_to_be_slow() {
    let mut w = World::new(batch(), 1, 1);
    let predicted = Predicted::default();
    let seen = SeenDemand { n_ready: 1, n_running: 0, predicted: &predicted, nodes: &[], sizes: &[] };
    let mut out = vec![];
    w.blocks.look(w.now, &seen, &mut out).unwrap();
    assert_eq!(out, [List]);
    assert_eq!(w.blocks.slow_command(w.now.plus_ns(5 * S)), None);
    assert_eq!(w.blocks.slow_command(w.now.plus_ns(11 * S)), Some("list the blocks"));
    w.blocks.listed(w.now.plus_ns(12 * S), &[]);
    assert_eq!(w.blocks.slow_command(w.now.plus_ns(30 * S)), None);
}

#[test]
fn a_node_of_this_machine_that_fails_is_tried_under_its_own_number() {
    let mut w = World::new(local(1), 1, 2);
    let tried = try_hosts(&mut w, |n| n == 1, 0, 60);
    assert!(w.gave_up.is_some() && tried == [1, 1, 1], "{tried:?}");
}
