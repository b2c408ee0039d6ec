//! `first-input` against the same decisions by scanning everything, and by example.

use super::super::tests::{lasts, slots};
use super::*;
use eyas_terms::TaskId;
use eyas_terms::location::CatalogLocation;
use proptest::prelude::*;

/// The same policy, written as loops.
#[derive(Default)]
struct Naive {
    steals: bool,
    n_tasks_max: usize,
    tasks: BTreeMap<QueueKey, (ReadyTask, Option<Seat>, bool)>,
    members: BTreeMap<Seat, (ExecutorId, Room)>,
    n_seats: u32,
    turn: u32,
    deals_again: bool,
}

impl Naive {
    fn is_able(&self, seat: Seat, task: &ReadyTask) -> bool {
        let room = self.members[&seat].1;
        task.cpus <= room.slots_total
            && task.memory_bytes <= room.memory_total_bytes
            && room.left.is_enough_for(task.lasts)
    }

    fn queued_at(&self, seat: Seat) -> Vec<&ReadyTask> {
        self.tasks.values().filter(|(_, at, _)| *at == Some(seat)).map(|(task, _, _)| task).collect()
    }

    fn bind(&mut self, catalog: &Catalog, key: QueueKey) {
        let task = self.tasks[&key].0.clone();
        let able: Vec<Seat> = self.members.keys().copied().filter(|s| self.is_able(*s, &task)).collect();
        let holds = |s: &&Seat| task.first_input.is_some_and(|o| catalog.holds(self.members[*s].0, o));
        let held = able.iter().filter(holds).min_by_key(|s| (self.queued_at(**s).len(), **s)).copied();
        let in_turn = || (self.turn..self.n_seats).chain(0..self.turn).map(Seat).find(|s| able.contains(s));
        let at = held.or_else(in_turn);
        if let (None, Some(seat)) = (held, at) {
            self.turn = (seat.0 + 1) % self.n_seats;
        }
        self.tasks.insert(key, (task, at, at.is_some() && held.is_none()));
    }

    fn bind_all(
        &mut self,
        catalog: &Catalog,
        which: impl Fn(&Naive, &(ReadyTask, Option<Seat>, bool)) -> bool,
    ) {
        let keys: Vec<QueueKey> =
            self.tasks.iter().filter(|(_, t)| which(self, t)).map(|(k, _)| *k).collect();
        for key in &keys {
            self.tasks.get_mut(key).unwrap().1 = None;
        }
        keys.iter().for_each(|key| self.bind(catalog, *key));
    }

    fn place(&mut self, catalog: &Catalog) -> Result<(ExecutorId, Vec<QueueKey>), ()> {
        if std::mem::take(&mut self.deals_again) {
            self.turn = 0;
            self.bind_all(catalog, |naive, (task, at, dealt)| {
                *dealt || at.is_none_or(|seat| !naive.is_able(seat, task))
            });
        }
        let own = |stage: Stage| {
            self.members.iter().find_map(|(seat, (id, room))| {
                let (mut left, mut keys) = (*room, vec![]);
                for task in self.queued_at(*seat) {
                    if keys.len() < self.n_tasks_max && left.fits(stage, task.size(), task.lasts) {
                        left = left.after(stage, task.size());
                        keys.push(task.key);
                    }
                }
                (!keys.is_empty()).then_some((*id, keys))
            })
        };
        let seats: Vec<Seat> = self.members.keys().copied().collect();
        let torus = Torus::of(seats.len() as u32);
        let steal = || {
            (0..seats.len()).find_map(|rank| {
                let (id, room) = self.members[&seats[rank]];
                torus.neighbours_of(rank as u32).find_map(|victim| {
                    let queued = self.queued_at(seats[victim as usize]).into_iter().rev();
                    let fits = |t: &&ReadyTask| room.fits(Stage::Idle, t.size(), t.lasts);
                    { queued }.find(fits).map(|task| (id, vec![task.key]))
                })
            })
        };
        own(Stage::Idle)
            .or_else(|| if self.steals { steal() } else { None })
            .or_else(|| own(Stage::Ahead))
            .ok_or(())
    }
}

/// Policy, catalog and scan in step.
struct World {
    catalog: Catalog,
    queue: FirstInput,
    naive: Naive,
    n_tasks: u64,
}

const NOW: Timestamp = Timestamp(0);

impl World {
    fn new(steals: bool, n_tasks_max: usize) -> World {
        let mut catalog = Catalog::new();
        (0..8).for_each(|o| {
            catalog.intern(CatalogLocation::Home(&format!("o{o}")));
        });
        let naive = Naive { steals, n_tasks_max, ..Naive::default() };
        World { catalog, queue: FirstInput::new(steals, 1000, n_tasks_max), naive, n_tasks: 0 }
    }

    fn joins(&mut self, id: u32, room: Room) {
        let id = ExecutorId(id);
        let seat = self.catalog.executor_joined(id);
        self.queue.executor_joined(&self.catalog, id);
        self.queue.set_room(id, room);
        let old = self.naive.members.insert(seat, (id, room)).map(|(_, room)| room).unwrap_or_default();
        self.naive.n_seats = self.naive.n_seats.max(seat.0 + 1);
        let size = |r: &Room| (r.slots_total, r.memory_total_bytes, r.left);
        self.naive.deals_again |= size(&old) != size(&room);
    }

    /// `drains`: its replicas stay known.
    fn leaves(&mut self, id: u32, drains: bool) {
        let id = ExecutorId(id);
        let Some(seat) = self.catalog.seat(id) else { return };
        let objects = match drains {
            true => self.catalog.objects_on(id),
            false => self.catalog.executor_left(id),
        };
        self.queue.executor_left(&self.catalog, id, &objects);
        self.naive.members.remove(&seat);
        let World { naive, catalog, .. } = self;
        naive.bind_all(catalog, |_, (_, at, _)| *at == Some(seat));
    }

    fn holds(&mut self, executor: u32, object: u32) {
        if self.catalog.add_replica(ExecutorId(executor), ObjectId(object)) {
            self.queue.replica_added(&self.catalog, ExecutorId(executor), ObjectId(object));
        }
    }

    fn sized(&mut self, priority: i32, inputs: &[u32], cpus: u32, memory_bytes: u64) -> u64 {
        self.timed(priority, inputs, cpus, memory_bytes, Lasts::ANY)
    }

    fn timed(&mut self, priority: i32, inputs: &[u32], cpus: u32, memory_bytes: u64, lasts: Lasts) -> u64 {
        let key = QueueKey { priority, task: TaskId(self.n_tasks) };
        let inputs: Vec<ObjectId> = inputs.iter().map(|o| ObjectId(*o)).collect();
        let first_input = inputs.first().copied();
        let needs = Default::default();
        let task = ReadyTask { key, inputs, first_input, cpus, memory_bytes, needs, lasts };
        self.n_tasks += 1;
        self.queue.enter(&self.catalog, NOW, &task);
        self.naive.tasks.insert(key, (task, None, false));
        self.naive.bind(&self.catalog, key);
        key.task.0
    }

    fn task(&mut self, inputs: &[u32]) -> u64 {
        self.sized(0, inputs, 1, 0)
    }

    fn gone(&mut self, key: QueueKey) {
        assert!(self.queue.leave(&self.catalog, key) && !self.queue.leave(&self.catalog, key));
        self.naive.tasks.remove(&key);
    }

    /// The next decision, carried out: the executor, its tasks, and whether they were stolen.
    fn place(&mut self) -> Result<(u32, Vec<u64>, bool), Unplaced> {
        let mut picks = vec![];
        let placed = self.queue.place(&self.catalog, NOW, &mut picks);
        let keys: Vec<QueueKey> = picks.iter().map(|p| p.key).collect();
        assert_eq!(placed.map(|e| (e, keys)).map_err(drop), self.naive.place(&self.catalog));
        let executor = placed?;
        for pick in &picks {
            let (task, _, _) = self.naive.tasks[&pick.key].clone();
            self.gone(pick.key);
            let room = self.queue.room(executor).unwrap().after(pick.stage, task.size());
            let hits = task.inputs.iter().filter(|o| self.catalog.holds(executor, **o)).count();
            assert_eq!((pick.n_hits, pick.n_inputs), (hits as u32, task.inputs.len() as u32));
            self.joins(executor.0, room);
        }
        let stolen = matches!(picks[0].rule.reason(), Some(Reason::Stolen { .. }));
        Ok((executor.0, picks.iter().map(|p| p.key.task.0).collect(), stolen))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Enter { priority: i32, inputs: Vec<u32>, cpus: u32, memory_bytes: u64, hours: u64 },
    Leave(prop::sample::Index),
    Holds(u32, u32),
    Joins(u32, Room),
    Leaves(u32, bool),
    Place,
}

fn op() -> impl Strategy<Value = Op> {
    let room = (0..4u32, 0..3u32, 0..3u32, 0..3u64, 0..2u64, 0..4u64).prop_map(
        |(idle, busy, ahead, free, used, left)| Room {
            slots_total: idle + busy,
            slots_idle: idle,
            ahead,
            memory_total_bytes: free + used,
            memory_free_bytes: free,
            moves: 0,
            rests: false,
            left: super::super::tests::left(left),
            ..Room::default()
        },
    );
    let size = prop_oneof![5 => Just((1, 0, 0)), 1 => (1..4u32, 0..3u64, 0..4u64)];
    let inputs = Just((0..8u32).collect::<Vec<_>>())
        .prop_shuffle()
        .prop_flat_map(|all| (0..4usize).prop_map(move |n| all[..n].to_vec()));
    prop_oneof![
        8 => (-1..2i32, inputs, size)
            .prop_map(|(priority, inputs, (cpus, memory_bytes, hours))| {
                Op::Enter { priority, inputs, cpus, memory_bytes, hours }
            }),
        1 => any::<prop::sample::Index>().prop_map(Op::Leave),
        4 => (0..7u32, 0..8u32).prop_map(|(e, o)| Op::Holds(e, o)),
        5 => (0..7u32, room).prop_map(|(e, room)| Op::Joins(e, room)),
        1 => (0..7u32, any::<bool>()).prop_map(|(e, drains)| Op::Leaves(e, drains)),
        8 => Just(Op::Place),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn decisions_equal_the_naive_scan(
        steals in any::<bool>(),
        n_tasks_max in 1..4usize,
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(steals, n_tasks_max);
        for op in ops {
            match op {
                Op::Enter { priority, inputs, cpus, memory_bytes, hours } => {
                    world.timed(priority, &inputs, cpus, memory_bytes, lasts(hours));
                }
                Op::Leave(index) => {
                    if !world.naive.tasks.is_empty() {
                        let key = *world.naive.tasks.keys().nth(index.index(world.naive.tasks.len())).unwrap();
                        world.gone(key);
                    }
                }
                Op::Holds(e, o) => world.holds(e, o),
                Op::Joins(e, room) => world.joins(e, room),
                Op::Leaves(e, drains) => world.leaves(e, drains),
                Op::Place => {
                    world.place().ok();
                }
            }
            world.queue.sanity_check(&world.catalog);
        }
        while world.place().is_ok() {
            world.queue.sanity_check(&world.catalog);
        }
        prop_assert_eq!(world.queue.last(), world.naive.tasks.keys().last().copied());
        let of_sizes: usize = world.queue.sizes().into_iter().map(|s| world.queue.tasks_of_size(s).len()).sum();
        prop_assert_eq!(of_sizes, world.naive.tasks.len());
    }
}

#[test]
fn a_task_goes_where_its_first_input_is_and_waits_there() {
    let mut world = World::new(false, 1);
    (0..3).for_each(|e| world.joins(e, slots(1, 1, 0)));
    world.holds(2, 0);
    [1, 2, 3].into_iter().for_each(|o| world.holds(0, o));
    let (first, second) = (world.task(&[0, 1, 2, 3]), world.task(&[0]));
    assert_eq!(world.place(), Ok((2, vec![first], false)), "three of its four inputs are elsewhere");
    let waits = Unplaced::QueuedAt { task: TaskId(second), executor: ExecutorId(2) };
    assert_eq!(world.place(), Err(waits), "the others starve");
    assert_eq!(waits.to_string(), "task 1 is queued at executor 2, which is busy");
    world.leaves(2, false);
    assert_eq!(world.place(), Ok((0, vec![second], false)), "what a lost node had queued is bound anew");
}

#[test]
fn what_nobody_holds_goes_to_the_nodes_in_turn_and_anew_when_one_joins() {
    let mut world = World::new(false, 2);
    world.task(&[]);
    assert_eq!(world.place(), Err(Unplaced::NoExecutor));
    (0..2).for_each(|e| world.joins(e, slots(2, 2, 0)));
    (0..2).for_each(|_| {
        world.task(&[4]);
    });
    world.joins(2, slots(2, 2, 0));
    let order: Vec<_> = (0..3).map(|_| world.place().unwrap()).collect();
    assert_eq!(order, [(0, vec![0], false), (1, vec![1], false), (2, vec![2], false)]);
    let wide = world.sized(0, &[], 3, 0);
    let fits_nowhere = Unplaced::NothingFits { task: TaskId(wide), cpus: 3, memory_bytes: 0 };
    assert_eq!(world.place(), Err(fits_nowhere));
    world.joins(3, slots(4, 4, 0));
    assert_eq!(world.place(), Ok((3, vec![wide], false)));
}

#[test]
fn an_idle_node_steals_the_last_task_of_a_neighbour_and_of_no_other() {
    let mut world = World::new(true, 1);
    // A ring of 5: the neighbours of 2 are 1 and 3.
    (0..5).for_each(|e| world.joins(e, slots(1, 1, 0)));
    world.holds(2, 0);
    let tasks: Vec<u64> = (0..5).map(|_| world.task(&[0])).collect();
    assert_eq!(world.place(), Ok((2, vec![tasks[0]], false)), "the owner comes first");
    assert_eq!(world.place(), Ok((1, vec![tasks[4]], true)));
    assert_eq!(world.place(), Ok((3, vec![tasks[3]], true)));
    let waits = Unplaced::QueuedAt { task: TaskId(tasks[1]), executor: ExecutorId(2) };
    assert_eq!(world.place(), Err(waits), "0 and 4 are idle and too far away");
}
