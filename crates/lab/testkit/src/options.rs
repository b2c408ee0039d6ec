//! The properties and faults of a simulated world.
//!
//! [`Options::from_seed`] draws everything from the seed, the kinds of faults included: a world in which
//! everything fails a little finds other mistakes than one in which only one thing fails a lot.

use eyas_core::dispatcher::KeepRuns;
use eyas_core::eviction::stores::EXCHANGES;
use eyas_core::home_share::HomeLimits;
use eyas_core::network::NetworkUse;
use eyas_core::placement::{
    affinity, first_available, first_input, good_cache_compute, max_cache_hit, max_compute_util,
};
use eyas_terms::rng::Rng;

/// Printed before a world begins; with the seed in it, it describes the world completely.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub seed: u64,
    /// With more than one, clients submit runs in parts over connections that break, with the session of live clients.
    pub n_dispatchers: u64,
    pub n_nodes: u64,
    /// Slots and memory of each node; empty: they are drawn, up to `slots_max`.
    pub node_sizes: Vec<(u32, u64)>,
    pub slots_max: u64,
    pub n_runs: u64,
    /// Tasks per run, at most.
    pub n_tasks_max: u64,
    /// Different objects at home that tasks read.
    pub n_objects: u64,
    pub object_bytes_max: u64,
    /// If set, every file has this many bytes, and equal bytes are one version at home, however often they are written there.
    pub file_bytes: Option<u64>,
    pub cache_bytes: u64,
    pub placement: String,
    /// If set, used in place of `placement`: tasks are queued at nodes.
    pub placement_at_nodes: Option<&'static str>,
    pub window: usize,
    pub tasks_per_decision: usize,
    pub eviction: String,
    pub program_ns_max: u64,
    pub transfer_ns_max: u64,
    pub message_ns_max: u64,
    pub durable_ns_max: u64,
    /// Chances in a thousand, each time that the event could happen.
    pub task_fails: u64,
    pub task_writes_input: u64,
    pub task_depends: u64,
    /// Runs of tasks whose outputs follow from what they read, with files at home and on the nodes, tasks that are promised,
    /// and submissions that must be refused. Where nothing else makes a task fail, each is done, and home is as after a plain
    /// run.
    pub linked: bool,
    /// Many runs have no files, as calls of functions have none: they start while the journal is written.
    pub calls: bool,
    /// Of a thousand such tasks, how many ask for slots and memory that only some nodes have.
    pub task_is_large: u64,
    /// For each such run: blocks of tasks that scatter, read one file together and gather. If there are any, collectives are
    /// on.
    pub n_blocks: u64,
    /// Layers of tasks that are linked by files which stay on the nodes, at most; 0: a bag of tasks.
    pub n_layers_max: u64,
    /// Tasks per layer, files that one reads, and files that one makes, at most.
    pub layer_tasks_max: u64,
    pub fan_in_max: u64,
    pub fan_out_max: u64,
    /// Of a thousand outputs of such tasks, how many go home.
    pub output_lands: u64,
    /// Of a thousand runs, how many keep their files on the nodes.
    pub run_is_kept: u64,
    /// The limits of home for all nodes together.
    pub home_limits: HomeLimits,
    /// Submissions into each run while it goes on, at most; into runs of linked tasks about so many, besides those that must be
    /// refused.
    pub n_additions_max: u64,
    /// The maker of a file with many readers runs again at the readers, wherever it can.
    pub reruns: bool,
    /// Each gather and each scatter goes along a tree of nodes.
    pub archive_trees: bool,
    /// Makers of files that stay on the nodes write other bytes each time.
    pub staying_differ: bool,
    pub task_is_wide: u64,
    pub task_has_memory: u64,
    pub task_has_priority: u64,
    pub transfer_fails: u64,
    /// Of a thousand locations, how many are on a disk that every node has.
    pub in_place: u64,
    /// Of a thousand locations, how many are on the own disk of one node, which says so.
    pub owned: u64,
    /// An output depends on the attempt, as for programs that write the time.
    pub outputs_differ: bool,
    /// Programs are taken back from their slots, and watched transfers say on their way how far they are.
    pub midway: bool,
    /// Of a thousand outputs that are not wanted any more, how many are stopped on their way home.
    pub halt_stops: u64,
    /// How often each of these happens before the faults are over.
    pub n_node_kills: u64,
    /// Chance in a thousand that the cache outlives its executor.
    pub cache_survives: u64,
    pub n_link_cuts: u64,
    /// Relays between nodes and dispatchers, 0 without, and how often one dies: its nodes lose their connections together.
    pub n_relays: u64,
    pub n_relay_kills: u64,
    /// Broken connections among dispatchers, and between all clients and a dispatcher.
    pub n_member_cuts: u64,
    pub n_client_cuts: u64,
    /// How long these last, at most, and how long a dispatcher of linked tasks is away.
    pub away_ns_max: u64,
    /// Of a thousand submissions in parts, how many lose their client at some step.
    pub clients_leave: u64,
    /// The longest that a link stays cut; beyond the lease the executor is lost.
    pub cut_ns_max: u64,
    pub n_dispatcher_kills: u64,
    pub n_home_outages: u64,
    pub n_home_changes: u64,
    pub n_corruptions: u64,
    pub n_cancels: u64,
    pub n_drains: u64,
    /// The room of the disk under each node's cache, whatever the budget is; 0: more than any budget.
    pub disk_bytes: u64,
    /// How often something else takes a part of such a disk, for a while.
    pub n_disk_fills: u64,
    /// The same for the disk of the dispatcher's journal.
    pub n_journal_fills: u64,
    /// Which ended runs the dispatcher keeps, and how often a client asks to forget one.
    pub keep_runs: Option<KeepRuns>,
    pub n_forgets: u64,
    /// The most that a program writes to such a disk while it runs; a task writes the same amount each time.
    /// It deletes that when it ends, and fails when it finds no room.
    pub scratch_bytes_max: u64,
    /// The most by which an executor's estimate of the dispatcher's clock is ahead. It changes with each
    /// start and each connection, so it jumps back and forth.
    pub clock_ahead_ns_max: u64,
    /// Nodes differ in slots and memory, and so do tasks; the dispatcher is woken at the times that it asks
    /// for.
    pub uneven: bool,
    /// How often a node's process is stopped and continued later; beyond the lease nobody waits for it.
    pub n_stops: u64,
    pub stop_ns_max: u64,
    /// Caches and disks are smaller than what tasks need, except on the large nodes of an uneven world.
    pub small: bool,
    /// The longest walltime of a node, until the faults are over; 0: nodes have none.
    pub walltime_ns_max: u64,
    /// Many files have the same bytes, which a cache keeps once.
    pub equal: bool,
    /// Nodes begin with what executors of other clusters have left on their disks: files as home has them, as home had them,
    /// and damaged ones.
    pub warm: bool,
    /// Runs belong to several users of different weights, who share the cluster.
    pub users: bool,
    /// Nodes have gpus and named resources, the cluster has others, and tasks need some of them, or a part of a cpu.
    pub resources: bool,
    /// The node that is large enough for many tasks of an uneven world comes only when a provider brings it, and the
    /// provider is killed so often.
    pub provided: bool,
    pub n_provider_kills: u64,
    /// What the dispatcher uses of the network between nodes, which then stand in three sites. Inputs of some tasks leave home once.
    pub network: NetworkUse,
    /// Nodes that cannot fetch from each other, and until when.
    pub islands: Option<Islands>,
    pub islands_until_ns: u64,
    /// So many requests of all nodes home takes in a second, and refuses the others because it is busy; 0: it takes all.
    pub home_takes: u64,
    /// Each run of a bag of tasks also wants files of home on nodes: an active push, which may begin while the tasks run.
    pub pushes: bool,
    /// Wall clocks are wrong, each by another amount, and are set anew between two lives of a process.
    pub clocks: bool,
    /// When the faults are over.
    pub faults_until_ns: u64,
}

/// Which nodes cannot fetch from which others, though all reach the dispatcher and home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Islands {
    /// No node from any other, as behind the routers of a cloud.
    Every,
    /// Those of one half from those of the other half.
    Halves,
    /// All others from the first node, and the first from them.
    Loner,
    /// Those with a lower number from those with a higher one.
    OneWay,
    /// Each pair has its own fate, in both directions.
    Some,
}

impl Islands {
    /// Whether node `reader` cannot fetch from node `holder`, in a world of this seed.
    pub fn part(self, seed: u64, reader: u64, holder: u64) -> bool {
        match self {
            Islands::Every => true,
            Islands::Halves => reader % 2 != holder % 2,
            Islands::Loner => reader.min(holder) == 0,
            Islands::OneWay => reader < holder,
            Islands::Some => {
                let pair = reader.min(holder) << 32 | reader.max(holder);
                Rng::new(seed ^ pair ^ 0x6973_6c61_6e64_7321).below(2) == 0
            }
        }
    }
}

/// The policies that `placement` is drawn from.
const NAMES_FIRST: [&str; 5] = [
    first_available::NAME,
    max_cache_hit::NAME,
    max_compute_util::NAME,
    good_cache_compute::NAME,
    affinity::NAME,
];
/// Objects, caches and disks of worlds with sites are so many times as large.
const SITES_SCALE: u64 = 1_000;
const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn between(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.below(high - low + 1)
}

fn one_of<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize].clone()
}

/// Most faults are absent in most worlds.
fn perhaps(rng: &mut Rng, of_1000: u64, max: u64) -> u64 {
    if rng.below(1000) < of_1000 { between(rng, 1, max) } else { 0 }
}

impl Options {
    /// No faults at all, but some work.
    pub fn calm(seed: u64) -> Options {
        Options {
            seed,
            n_dispatchers: 1,
            n_nodes: 3,
            node_sizes: vec![],
            slots_max: 3,
            n_runs: 2,
            n_tasks_max: 60,
            n_objects: 20,
            object_bytes_max: 1000,
            file_bytes: None,
            cache_bytes: 8_000,
            placement: "good-cache-compute".into(),
            placement_at_nodes: None,
            window: 3200,
            tasks_per_decision: 1,
            eviction: "lru".into(),
            program_ns_max: 2 * S,
            transfer_ns_max: 100 * MS,
            message_ns_max: 2 * MS,
            durable_ns_max: 10 * MS,
            task_fails: 0,
            task_writes_input: 0,
            task_depends: 200,
            linked: false,
            task_is_large: 0,
            n_blocks: 0,
            n_layers_max: 0,
            layer_tasks_max: 0,
            fan_in_max: 0,
            fan_out_max: 1,
            output_lands: 0,
            run_is_kept: 0,
            home_limits: HomeLimits::default(),
            n_additions_max: 0,
            reruns: false,
            archive_trees: false,
            staying_differ: false,
            task_is_wide: 100,
            task_has_memory: 100,
            task_has_priority: 100,
            transfer_fails: 0,
            in_place: 0,
            owned: 0,
            outputs_differ: false,
            midway: true,
            halt_stops: 800,
            calls: false,
            n_node_kills: 0,
            cache_survives: 500,
            n_link_cuts: 0,
            n_member_cuts: 0,
            n_client_cuts: 0,
            away_ns_max: 0,
            clients_leave: 0,
            cut_ns_max: 20 * S,
            n_dispatcher_kills: 0,
            n_home_outages: 0,
            n_home_changes: 0,
            n_corruptions: 0,
            n_cancels: 0,
            n_drains: 0,
            disk_bytes: 0,
            n_disk_fills: 0,
            n_journal_fills: 0,
            keep_runs: None,
            n_forgets: 0,
            scratch_bytes_max: 0,
            clock_ahead_ns_max: 0,
            uneven: false,
            provided: false,
            n_provider_kills: 0,
            network: NetworkUse::Off,
            n_stops: 0,
            stop_ns_max: 40 * S,
            islands: None,
            islands_until_ns: 0,
            n_relays: 0,
            n_relay_kills: 0,
            home_takes: 0,
            clocks: false,
            pushes: false,
            small: false,
            walltime_ns_max: 0,
            equal: false,
            warm: false,
            users: false,
            resources: false,
            faults_until_ns: 60 * S,
        }
    }

    /// A world drawn from its seed.
    pub fn from_seed(seed: u64) -> Options {
        let mut rng = Rng::new(seed ^ 0x6f70_7469_6f6e_7321);
        let mut o = Options::calm(seed);
        let r = &mut rng;
        o.n_nodes = between(r, 1, 5);
        o.slots_max = between(r, 1, 5);
        o.n_runs = between(r, 1, 4);
        o.n_tasks_max = one_of(r, &[4, 15, 40, 90]);
        o.n_objects = one_of(r, &[1, 3, 10, 40]);
        o.object_bytes_max = one_of(r, &[10, 1000, 4000]);
        o.cache_bytes = one_of(r, &[0, 500, 2000, 5000, 50_000]);
        o.placement = one_of(r, &NAMES_FIRST).into();
        // From a generator of its own, so that a finding of an older seed is found again without it.
        o.placement_at_nodes = match Rng::new(seed ^ 0x6174_206e_6f64_6573).below(10) {
            0 => Some(first_input::NAME),
            1 | 2 => Some(first_input::NAME_STEAL),
            _ => None,
        };
        o.window = one_of(r, &[1, 3, 10, 3200]);
        o.tasks_per_decision = one_of(r, &[1, 1, 4]);
        o.eviction = one_of(r, &["lru", "fifo", "lfu", "random"]).into();
        o.program_ns_max = one_of(r, &[2 * MS, 200 * MS, 3 * S]);
        o.transfer_ns_max = one_of(r, &[MS, 100 * MS, 2 * S]);
        o.message_ns_max = one_of(r, &[MS, 20 * MS, 500 * MS]);
        o.durable_ns_max = one_of(r, &[0, 10 * MS, 2 * S]);
        o.task_fails = perhaps(r, 400, 300);
        o.task_writes_input = perhaps(r, 200, 200);
        o.task_depends = perhaps(r, 600, 700);
        o.task_is_wide = perhaps(r, 400, 400);
        o.task_has_memory = perhaps(r, 400, 400);
        o.task_has_priority = perhaps(r, 400, 400);
        o.transfer_fails = perhaps(r, 400, 300);
        o.in_place = perhaps(r, 100, 500);
        o.n_node_kills = perhaps(r, 500, 8);
        o.cache_survives = one_of(r, &[0, 500, 1000]);
        o.n_link_cuts = perhaps(r, 500, 12);
        o.cut_ns_max = one_of(r, &[2 * S, 14 * S, 40 * S]);
        o.n_dispatcher_kills = perhaps(r, 400, 5);
        o.n_home_outages = perhaps(r, 200, 3);
        o.n_home_changes = perhaps(r, 400, 20);
        o.n_corruptions = perhaps(r, 300, 10);
        o.n_cancels = perhaps(r, 300, 12);
        o.n_drains = perhaps(r, 300, 4);
        // From generators of their own, so that a finding of an older seed is found again without them.
        let clocks = &mut Rng::new(seed ^ 0x636c_6f63_6b73_2121);
        o.clock_ahead_ns_max = one_of(clocks, &[0, 0, 100 * MS, 3_600 * S]);
        let disk = &mut Rng::new(seed ^ 0x736d_616c_6c20_6469);
        if disk.below(4) == 0 {
            // Smaller than the budget, which may itself be any size.
            o.disk_bytes = o.object_bytes_max * one_of(disk, &[1, 6, 20, 100]);
            o.n_disk_fills = perhaps(disk, 500, 6);
        }
        o.n_journal_fills = perhaps(&mut Rng::new(seed ^ 0x6675_6c6c_206a_6f75), 250, 4);
        let home = &mut Rng::new(seed ^ 0x686f_6d65_206c_696d);
        if home.below(3) == 0 {
            let bytes_per_s = one_of(home, &[None, Some(1_000_000), Some(10)]);
            let streams = one_of(home, &[None, Some(1), Some(3), Some(20)]);
            o.home_limits = HomeLimits { bytes_per_s, streams };
        }
        o.faults_until_ns = one_of(r, &[5 * S, 30 * S, 100 * S]);
        // Two attempts that write different bytes can be distinguished only if nobody writes unasked: an
        // executor that cannot be reached may still be bringing its outputs home.
        o.outputs_differ = o.n_link_cuts == 0 && o.n_dispatcher_kills == 0 && r.below(3) == 0;
        o
    }

    /// A world of workflows without faults, whose caches hold everything.
    pub fn calm_workflows(seed: u64) -> Options {
        Options {
            n_layers_max: 5,
            layer_tasks_max: 8,
            fan_in_max: 4,
            fan_out_max: 3,
            output_lands: 150,
            run_is_kept: 100,
            n_additions_max: 3,
            cache_bytes: 1_000_000,
            ..Options::calm(seed)
        }
    }

    /// A world of workflows, drawn from its seed.
    pub fn workflows_from_seed(seed: u64) -> Options {
        let mut rng = Rng::new(seed ^ 0x776f_726b_666c_6f77);
        let r = &mut rng;
        let drawn = Options::from_seed(seed);
        Options {
            n_nodes: 1 + r.below(7),
            n_layers_max: one_of(r, &[2, 3, 5, 12]),
            layer_tasks_max: one_of(r, &[1, 3, 8, 20]),
            fan_in_max: one_of(r, &[1, 2, 4, 12]),
            fan_out_max: one_of(r, &[1, 1, 2, 4]),
            output_lands: one_of(r, &[0, 100, 500]),
            run_is_kept: one_of(r, &[0, 0, 0, 300]),
            staying_differ: r.below(2) == 0,
            cache_bytes: one_of(r, &[500, 5_000, 20_000, 100_000, 1_000_000, 1_000_000]),
            // From a generator of its own, like the additions themselves, so that a finding of an older seed
            // is found again without them.
            n_additions_max: one_of(&mut Rng::new(seed ^ 0x6164_6469_7469_6f6e), &[0, 1, 3, 6]),
            // This number is older than the field's name; with another one each seed would make another world.
            reruns: Rng::new(seed ^ 0x7265_706c_6963_6174).below(3) == 0,
            ..drawn
        }
    }

    /// A world of several dispatchers without faults.
    pub fn calm_groups(seed: u64) -> Options {
        Options {
            n_dispatcher_kills: 0,
            n_node_kills: 0,
            n_link_cuts: 0,
            n_member_cuts: 0,
            n_client_cuts: 0,
            clients_leave: 0,
            ..Options::groups_from_seed(seed)
        }
    }

    /// A world of several dispatchers and linked tasks, drawn from its seed.
    pub fn groups_from_seed(seed: u64) -> Options {
        let mut rng = Rng::new(seed ^ 0x6772_6f75_7073_2121);
        let r = &mut rng;
        let of_clients = &mut Rng::new(seed ^ 0x636c_6965_6e74_7321);
        let n_dispatchers = one_of(r, &[2, 2, 2, 3, 4]);
        let n_nodes = n_dispatchers + r.below(4);
        let calm = Options {
            linked: true,
            n_dispatchers,
            n_nodes,
            node_sizes: (0..n_nodes).map(|_| (one_of(r, &[1, 1, 2, 6]), 1000)).collect(),
            n_runs: 1 + r.below(2),
            n_tasks_max: one_of(r, &[10, 40, 100]),
            output_lands: one_of(r, &[200, 600, 1000]),
            program_ns_max: one_of(r, &[20 * MS, 500 * MS, 3 * S]),
            transfer_ns_max: one_of(r, &[MS, 100 * MS, S]),
            message_ns_max: one_of(r, &[MS, 20 * MS, 300 * MS]),
            durable_ns_max: one_of(r, &[0, 10 * MS, 500 * MS]),
            n_objects: 9,
            object_bytes_max: 10,
            file_bytes: Some(10),
            cache_bytes: 1_000_000,
            cache_survives: 0,
            placement: affinity::NAME.into(),
            midway: false,
            halt_stops: 0,
            task_is_wide: 0,
            task_has_memory: 0,
            task_has_priority: 0,
            ..Options::calm(seed)
        };
        let n_dispatcher_kills = perhaps(r, 800, 6);
        let n_node_kills = perhaps(r, 300, 5);
        let n_link_cuts = perhaps(r, 500, 10);
        let n_member_cuts = perhaps(r, 500, 10);
        let away_ns_max = one_of(r, &[S, 4 * S, 25 * S]);
        Options {
            n_dispatcher_kills,
            n_node_kills,
            n_link_cuts,
            n_member_cuts,
            away_ns_max,
            cut_ns_max: away_ns_max,
            faults_until_ns: one_of(r, &[5 * S, 30 * S]),
            n_blocks: one_of(&mut Rng::new(seed ^ 0x626c_6f63_6b73), &[0, 1, 2]),
            n_additions_max: one_of(of_clients, &[0, 3, 8]),
            n_client_cuts: perhaps(of_clients, 500, 10),
            clients_leave: one_of(of_clients, &[0, 100, 400]),
            ..calm
        }
    }

    /// How many times as large as usual objects, caches and disks are.
    pub fn scale(&self) -> u64 {
        if self.network == NetworkUse::Off { 1 } else { SITES_SCALE }
    }

    /// The kinds that can be added to a world. Each is drawn from a generator of its own, so that what a seed
    /// finds without the kind is found again.
    pub const KINDS: [&str; 22] = [
        "uneven",
        "stops",
        "clocks",
        "small",
        "scratch",
        "forget",
        "equal",
        "walltimes",
        "resources",
        "warm",
        "owners",
        "provided",
        "users",
        "sites",
        "islands",
        "dispatchers",
        "busy",
        "pushes",
        "calls",
        "trees",
        "exchange",
        "relays",
    ];

    /// Some of the kinds that a world of one dispatcher can have, drawn from the seed: together they meet what none of them meets
    /// alone.
    pub fn some_kinds(seed: u64) -> Vec<&'static str> {
        let mut rng = Rng::new(seed ^ 0x736f_6d65_206b_696e);
        let of_1000 = [150, 300, 500][rng.below(3) as usize];
        // The last kinds came later, and are drawn where they are asked for, so that a seed goes on meaning the same world.
        let is_later =
            |kind: &&str| ["dispatchers", "pushes", "calls", "trees", "exchange", "relays"].contains(kind);
        let of_one = Options::KINDS.into_iter().filter(|kind| !is_later(kind));
        of_one.filter(|_| rng.below(1000) < of_1000).collect()
    }

    /// The same world with one of [`Options::KINDS`] added. `None`: there is no such kind.
    pub fn with(self, kind: &str) -> Option<Options> {
        let mut o = match (kind, self.linked) {
            ("uneven", true) => self.uneven_linked(),
            ("forget", true) => self.forgetting_linked(),
            _ => self.with_drawn(kind)?,
        };
        if o.linked {
            o.outputs_differ = false;
            o.node_sizes.resize(o.node_sizes.len().max(o.n_nodes as usize), (2, 1000));
        }
        Some(o)
    }

    /// Nodes and tasks differ much in slots and memory, and there may be fewer nodes than dispatchers. So most dispatchers have
    /// tasks that none of their own nodes is large enough for.
    fn uneven_linked(self) -> Options {
        let mut rng = Rng::new(self.seed ^ 0x756e_6576_656e_2067);
        let r = &mut rng;
        let n_nodes = 1 + r.below(self.n_dispatchers + 3);
        let slots: Vec<u32> = (0..n_nodes).map(|_| one_of(r, &[1, 1, 2, 8])).collect();
        let sizes = slots.into_iter().map(|slots| (slots, one_of(r, &[1000, 1000, 2000, 8000])));
        // If a node is away for longer than tasks wait for a larger node, it rightly counts as absent.
        let away_ns_max = self.away_ns_max.min(4 * S);
        Options {
            n_nodes,
            node_sizes: sizes.collect(),
            task_is_large: one_of(r, &[50, 200, 600]),
            away_ns_max,
            cut_ns_max: self.cut_ns_max.min(away_ns_max),
            ..self
        }
    }

    /// Ended runs are forgotten, by rule and because somebody names them; by name alone in some worlds.
    fn forgetting_linked(self) -> Options {
        let mut rng = Rng::new(self.seed ^ 0x666f_7267_6574_2067);
        let r = &mut rng;
        let by_number = [None, Some(0), Some(1), Some(2)][r.below(4) as usize];
        let by_number = by_number.map(|n| KeepRuns { n_runs: Some(n), age_ns: None });
        let by_age = KeepRuns { n_runs: None, age_ns: Some(r.below(20) * S) };
        let keep_runs = if r.below(5) == 0 { None } else { by_number.or(Some(by_age)) };
        Options { keep_runs, n_forgets: r.below(8), n_runs: self.n_runs.max(2 + r.below(3)), ..self }
    }

    fn with_drawn(self, kind: &str) -> Option<Options> {
        let mut rng = Rng::new(self.seed ^ 0x6b69_6e64_206f_6620);
        let r = &mut rng;
        Some(match kind {
            "uneven" => Options {
                uneven: true,
                n_nodes: 5 + r.below(12),
                task_has_memory: 300 + r.below(600),
                task_is_wide: [0, 200, 600][r.below(3) as usize],
                // If the cache of the only large node is full, its tasks fail one after the other, with long
                // rests. On a small disk, files that stay on the nodes fill it as well.
                cache_bytes: if self.small { self.cache_bytes } else { self.cache_bytes.max(100_000) },
                disk_bytes: match (self.disk_bytes, self.n_layers_max) {
                    (0, _) | (_, 0) => self.disk_bytes,
                    _ if self.small => self.disk_bytes,
                    _ => self.disk_bytes.max(120_000),
                },
                ..self
            },
            // Caches that hold a part of what is read, so that what leaves one goes to another. Where tasks are linked, caches have to
            // hold what stays on the nodes.
            "exchange" => {
                let cache_bytes = self.object_bytes_max * one_of(r, &[3, 6, 15]);
                Options {
                    eviction: EXCHANGES.into(),
                    n_nodes: self.n_nodes.max(2 + r.below(4)),
                    cache_bytes: if self.linked { self.cache_bytes } else { cache_bytes },
                    ..self
                }
            }
            "trees" => Options {
                archive_trees: true,
                n_nodes: self.n_nodes.max(5 + r.below(5)),
                n_blocks: self.n_blocks.max(u64::from(self.linked)),
                n_node_kills: self.n_node_kills + r.below(4),
                ..self
            },
            "relays" => Options {
                n_relays: 1 + r.below(3),
                n_relay_kills: 1 + r.below(6),
                n_nodes: self.n_nodes.max(4 + r.below(6)),
                ..self
            },
            "stops" => Options {
                n_stops: 1 + r.below(8),
                stop_ns_max: [5 * S, 40 * S, 40 * S][r.below(3) as usize],
                n_nodes: self.n_nodes.max(2),
                // What a stopped node had begun shows if the bytes differ.
                outputs_differ: r.below(2) == 0,
                ..self
            },
            "clocks" => Options {
                clocks: true,
                n_dispatcher_kills: self.n_dispatcher_kills.max(1 + r.below(3)),
                n_node_kills: self.n_node_kills.max(1 + r.below(3)),
                // A client of a dispatcher that dies submits again, so nothing may have started.
                outputs_differ: false,
                ..self
            },
            "small" => Options {
                small: true,
                cache_bytes: [500, 2_000, 5_000, 20_000][r.below(4) as usize],
                disk_bytes: self.scratch_bytes_max
                    + self.object_bytes_max * [1, 2, 6, 20][r.below(4) as usize],
                n_disk_fills: r.below(7) * u64::from(self.scratch_bytes_max == 0),
                ..self
            },
            "scratch" => {
                let scratch_bytes_max = 1_000 + r.below(20_000);
                // The inputs and outputs of a task, and as much again for what is read ahead; in workflows
                // also the files that stay on the nodes.
                let files_bytes = 12 * self.object_bytes_max;
                let stays = self.n_layers_max > 0 || self.linked;
                let staying_bytes = if stays { 100_000 } else { 0 };
                Options {
                    scratch_bytes_max,
                    // Enough for each task alone, but not for all slots of a node.
                    disk_bytes: scratch_bytes_max + files_bytes + staying_bytes,
                    n_disk_fills: 0,
                    slots_max: self.slots_max.max(2 + r.below(6)),
                    // With this, a failure is never a task's own.
                    task_fails: 0,
                    ..self
                }
            }
            "equal" => Options { equal: true, ..self },
            "users" => Options { users: true, n_runs: self.n_runs.max(3 + r.below(6)), ..self },
            "warm" => Options {
                warm: true,
                n_node_kills: self.n_node_kills.max(1 + r.below(6)),
                n_home_changes: self.n_home_changes.max(r.below(12)),
                ..self
            },
            "resources" => Options { resources: true, ..self },
            // Only large transfers say something of a link, so all sizes are larger.
            "sites" => Options {
                network: [NetworkUse::Measured, NetworkUse::Measured, NetworkUse::Passive, NetworkUse::Ping]
                    [r.below(4) as usize],
                placement: affinity::NAME.into(),
                placement_at_nodes: None,
                n_nodes: self.n_nodes.max(3 + r.below(6)),
                object_bytes_max: self.object_bytes_max * SITES_SCALE,
                file_bytes: self.file_bytes.map(|bytes| bytes * SITES_SCALE),
                cache_bytes: self.cache_bytes * SITES_SCALE,
                disk_bytes: self.disk_bytes * SITES_SCALE,
                scratch_bytes_max: self.scratch_bytes_max * SITES_SCALE,
                ..self
            },
            "provided" => {
                let n_provider_kills = Rng::new(self.seed ^ 0x7072_6f76_6964_6564).below(4);
                let uneven = if self.uneven { self } else { self.with("uneven")? };
                Options {
                    provided: true,
                    n_provider_kills,
                    faults_until_ns: uneven.faults_until_ns.max(60 * S),
                    ..uneven
                }
            }
            "islands" => {
                let shapes =
                    [Islands::Every, Islands::Halves, Islands::Loner, Islands::OneWay, Islands::Some];
                Options {
                    islands: Some(shapes[r.below(5) as usize]),
                    // For good, or for a while.
                    islands_until_ns: [u64::MAX, u64::MAX, r.below(60) * S][r.below(3) as usize],
                    n_nodes: self.n_nodes.max(2 + r.below(5)),
                    ..self
                }
            }
            "calls" => Options {
                calls: true,
                n_runs: self.n_runs.max(6 + r.below(6)),
                n_tasks_max: self.n_tasks_max.min(4),
                n_layers_max: 0,
                // Long enough for programs to begin and to end before their submission is on the disk.
                durable_ns_max: one_of(r, &[self.durable_ns_max, S, 5 * S]),
                n_dispatcher_kills: self.n_dispatcher_kills.max(2 + r.below(6)),
                ..self
            },
            "pushes" => Options { pushes: true, n_nodes: self.n_nodes.max(2), ..self },
            "busy" => Options { home_takes: one_of(r, &[2, 5, 20, 60]), ..self },
            "owners" => Options { owned: 300 + r.below(701), n_nodes: self.n_nodes.max(2), ..self },
            "walltimes" => Options {
                // From about the time of one program to the time of a whole world.
                walltime_ns_max: [4 * S, 15 * S, 60 * S][r.below(3) as usize],
                n_nodes: self.n_nodes.max(2),
                faults_until_ns: self.faults_until_ns.max(30 * S),
                ..self
            },
            "forget" => Options {
                keep_runs: [None, Some(0), Some(1), Some(2)][r.below(4) as usize]
                    .map(|n| KeepRuns { n_runs: Some(n), age_ns: None })
                    .or(Some(KeepRuns { n_runs: None, age_ns: Some(r.below(20) * S) })),
                n_forgets: r.below(6),
                n_runs: self.n_runs.max(3),
                ..self
            },
            "dispatchers" if self.n_dispatchers > 1 => self,
            "dispatchers" => {
                let mut rng = Rng::new(self.seed ^ 0x6469_7370_6174_6368);
                let r = &mut rng;
                let n_dispatchers = one_of(r, &[2, 2, 3, 4]);
                Options {
                    n_dispatchers,
                    n_nodes: self.n_nodes.max(n_dispatchers + r.below(3)),
                    n_member_cuts: perhaps(r, 500, 10),
                    n_client_cuts: perhaps(r, 500, 10),
                    away_ns_max: one_of(r, &[S, 4 * S, 25 * S]),
                    clients_leave: one_of(r, &[0, 100, 400]),
                    ..self
                }
            }
            _ => return None,
        })
    }

    /// Whether nothing in this world makes a task fail, so that each is done with the bytes of a plain run.
    pub fn is_plain(&self) -> bool {
        let of_home = self.n_home_outages + self.n_home_changes + self.transfer_fails;
        let of_disks = self.n_corruptions + self.disk_bytes + self.scratch_bytes_max;
        let of_tasks = self.task_fails + self.task_writes_input + self.n_cancels + self.walltime_ns_max;
        let other = self.small || self.warm || self.resources || self.islands.is_some();
        self.linked && of_home + of_disks + of_tasks == 0 && !other
    }

    /// Whether a file on a node can disappear only because the dispatcher had it dropped.
    pub fn loses_nothing(&self) -> bool {
        let faults = self.n_node_kills + self.n_corruptions + self.n_dispatcher_kills + self.n_link_cuts;
        let faults = faults + self.n_relay_kills;
        let faults = faults + self.n_member_cuts + self.n_stops + self.walltime_ns_max + u64::from(self.warm);
        let faults = faults + u64::from(self.islands.is_some());
        faults + self.n_drains + self.task_writes_input + self.transfer_fails == 0
    }
}
