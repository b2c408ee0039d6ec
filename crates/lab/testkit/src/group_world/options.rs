//! The properties and faults of a world with several dispatchers.

use super::{MS, S};
use eyas_core::dispatcher::KeepRuns;
use eyas_terms::rng::Rng;

/// Printed before a world begins; with the seed in it, it describes the world completely.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupOptions {
    pub seed: u64,
    pub n_members: u32,
    /// Slots of each node.
    pub slots: Vec<u32>,
    /// Memory of each node.
    pub memory_bytes: Vec<u64>,
    /// Of a thousand tasks, how many ask for slots and memory that only some nodes have.
    pub task_is_large: u64,
    pub n_runs: u64,
    /// Tasks of each run, at most.
    pub n_tasks_max: u64,
    /// Of a thousand outputs, how many go home.
    pub output_lands: u64,
    pub program_ns_max: u64,
    pub transfer_ns_max: u64,
    pub message_ns_max: u64,
    pub durable_ns_max: u64,
    /// How often each of these happens before the faults are over.
    pub n_member_kills: u64,
    pub n_node_kills: u64,
    /// Broken connections between nodes and dispatchers, and among dispatchers.
    pub n_node_cuts: u64,
    pub n_link_cuts: u64,
    /// How long a dispatcher stays away, or a connection broken, at most; beyond the lease nodes are lost.
    pub away_ns_max: u64,
    pub faults_until_ns: u64,
    /// For each run: blocks of tasks that scatter, read one file together and gather. If there are any,
    /// collectives are on.
    pub n_blocks: u64,
    /// The approximate number of submissions into each run while it goes on, besides submissions that must be
    /// refused.
    pub n_additions: u64,
    /// How often all connections between clients and a dispatcher break.
    pub n_client_cuts: u64,
    /// Of a thousand submissions, how many lose their client at some step.
    pub clients_leave: u64,
    /// Which ended runs are kept, and how often somebody wants one to be forgotten. No fault, but it comes when it comes.
    pub keep_runs: Option<KeepRuns>,
    pub n_forgets: u64,
}

impl GroupOptions {
    /// No faults, but some work.
    pub fn calm(seed: u64) -> GroupOptions {
        GroupOptions {
            n_member_kills: 0,
            n_node_kills: 0,
            n_node_cuts: 0,
            n_link_cuts: 0,
            n_client_cuts: 0,
            clients_leave: 0,
            ..GroupOptions::from_seed(seed)
        }
    }

    /// A world drawn from its seed.
    pub fn from_seed(seed: u64) -> GroupOptions {
        let mut rng = Rng::new(seed ^ 0x6772_6f75_7073_2121);
        let r = &mut rng;
        fn one_of<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
            of[rng.below(of.len() as u64) as usize]
        }
        /// Most faults are absent in most worlds.
        fn perhaps(rng: &mut Rng, of_1000: u64, max: u64) -> u64 {
            if rng.below(1000) < of_1000 { 1 + rng.below(max) } else { 0 }
        }
        let of_clients = &mut Rng::new(seed ^ 0x636c_6965_6e74_7321);
        let n_members = one_of(r, &[2, 2, 2, 3, 4]);
        let n_nodes = u64::from(n_members) + r.below(4);
        GroupOptions {
            seed,
            n_members,
            slots: (0..n_nodes).map(|_| one_of(r, &[1, 1, 2, 6])).collect(),
            memory_bytes: vec![1000; n_nodes as usize],
            task_is_large: 0,
            n_runs: 1 + r.below(2),
            n_tasks_max: one_of(r, &[10, 40, 100]),
            output_lands: one_of(r, &[200, 600, 1000]),
            program_ns_max: one_of(r, &[20 * MS, 500 * MS, 3 * S]),
            transfer_ns_max: one_of(r, &[MS, 100 * MS, S]),
            message_ns_max: one_of(r, &[MS, 20 * MS, 300 * MS]),
            durable_ns_max: one_of(r, &[0, 10 * MS, 500 * MS]),
            n_member_kills: perhaps(r, 800, 6),
            n_node_kills: perhaps(r, 300, 5),
            n_node_cuts: perhaps(r, 500, 10),
            n_link_cuts: perhaps(r, 500, 10),
            away_ns_max: one_of(r, &[S, 4 * S, 25 * S]),
            faults_until_ns: one_of(r, &[5 * S, 30 * S]),
            n_blocks: one_of(&mut Rng::new(seed ^ 0x626c_6f63_6b73), &[0, 1, 2]),
            n_additions: one_of(of_clients, &[0, 3, 8]),
            n_client_cuts: perhaps(of_clients, 500, 10),
            clients_leave: one_of(of_clients, &[0, 100, 400]),
            keep_runs: None,
            n_forgets: 0,
        }
    }

    /// How many faults of each kind there are.
    pub(super) fn faults(&self) -> [u64; 5] {
        [self.n_member_kills, self.n_node_kills, self.n_node_cuts, self.n_link_cuts, self.n_client_cuts]
    }

    /// The kinds that can be added to a world.
    pub const KINDS: [&str; 2] = ["uneven", "forget"];

    /// The same world with one of [`GroupOptions::KINDS`] added. `None`: there is no such kind.
    ///
    /// `uneven`: nodes and tasks differ much in slots and memory, and there may be fewer nodes than dispatchers. So most
    /// dispatchers have tasks that none of their own nodes is large enough for.
    ///
    /// `forget`: ended runs are forgotten, by rule and because somebody names them.
    pub fn with(self, kind: &str) -> Option<GroupOptions> {
        match kind {
            "uneven" => Some(self.uneven()),
            "forget" => Some(self.forgetting()),
            _ => None,
        }
    }

    fn forgetting(self) -> GroupOptions {
        let mut rng = Rng::new(self.seed ^ 0x666f_7267_6574_2067);
        let r = &mut rng;
        let by_number = [None, Some(0), Some(1), Some(2)][r.below(4) as usize];
        let by_number = by_number.map(|n| KeepRuns { n_runs: Some(n), age_ns: None });
        let by_age = KeepRuns { n_runs: None, age_ns: Some(r.below(20) * S) };
        // By name alone in some worlds.
        let keep_runs = if r.below(5) == 0 { None } else { by_number.or(Some(by_age)) };
        GroupOptions { keep_runs, n_forgets: r.below(8), n_runs: self.n_runs.max(2 + r.below(3)), ..self }
    }

    fn uneven(self) -> GroupOptions {
        let mut rng = Rng::new(self.seed ^ 0x756e_6576_656e_2067);
        let r = &mut rng;
        let n_nodes = 1 + r.below(u64::from(self.n_members) + 3);
        let mut one_of = |of: &[u64]| of[r.below(of.len() as u64) as usize];
        let slots = (0..n_nodes).map(|_| one_of(&[1, 1, 2, 8]) as u32).collect();
        let memory_bytes = (0..n_nodes).map(|_| one_of(&[1000, 1000, 2000, 8000])).collect();
        // If a node is away for longer than tasks wait for a larger node, it rightly counts as absent.
        let away_ns_max = self.away_ns_max.min(4 * S);
        GroupOptions { slots, memory_bytes, task_is_large: one_of(&[50, 200, 600]), away_ns_max, ..self }
    }
}
