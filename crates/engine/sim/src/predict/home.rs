//! The rates of home storage that follow from a run: the rate of one node that reads alone, and of all
//! nodes that read together.
//!
//! In: the nodes that moved bytes from or to home, with bytes and times ([`Use`]). Out: [`HomeFit`], two
//! rates and how well each is known.
//!
//! The model has two rates. If `n` nodes have bytes under way, each of them gets `min(client, home / n)`,
//! divided equally among its own transfers. Each transfer must then have moved as many bytes as the log
//! says. Every pair of rates on a grid is compared with the log by least squares. All pairs that fit about
//! as well as the best pair are taken to be possible.
//!
//! Why a range: while home is saturated, a node gets its share of home and not what its own link or the
//! protocol would allow. A run whose nodes always read together therefore fits equally well with every
//! client rate from that share up to all that home gives, and only a moment with fewer readers tells them
//! apart.
//!
//! Not here: how a prediction uses the range ([`super::Question`]).

use super::{SMALL_BYTES, TaskMeasured};

/// The factor from one rate of the grid to the next.
const STEP: f64 = 1.03;
/// Transfers are assumed to differ from the model by at least this part of their bytes, however well others
/// fit.
const ERROR_MIN: f64 = 0.1;
/// Transfers at the same time hinder each other, so they count as at most this many independent
/// observations.
const N_INDEPENDENT_MAX: f64 = 25.0;
/// A pair of rates is possible if its error is above the least error by at most this many times the error
/// of one observation.
const ACCEPTED: f64 = 4.0;
/// A node counts as reading for this long after its last transfer. The others do not get its share at once:
/// shares of `--home-rate` follow after about a tenth of a second, and storage and connections take their
/// time, too. A shorter pause of some nodes says nothing about the rate that the others could take.
const LAG_NS: u64 = 200_000_000;
/// Up to this number, each number of reading nodes is a level of its own; above it, numbers within a
/// quarter of an octave share one level.
const N_EXACT_MAX: u32 = 16;

/// A transfer of bytes from or to home.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub node: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
}

/// Reads and writes at home of all tasks, as far as they are large enough to say something about a rate.
pub(super) fn uses(tasks: &[TaskMeasured]) -> Vec<Use> {
    let each = |t: &TaskMeasured| {
        let read = Use {
            node: t.node,
            begin_ns: t.received.0,
            end_ns: t.received.0 + t.home_wait_ns,
            bytes: t.home_bytes,
        };
        let written = Use { node: t.node, begin_ns: t.exited.0, end_ns: t.ended.0, bytes: t.landed_bytes };
        [read, written]
    };
    tasks.iter().flat_map(each).filter(|u| u.bytes >= SMALL_BYTES && u.end_ns > u.begin_ns).collect()
}

/// One node's rate and the rate of all nodes together, bytes per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rates {
    pub client: f64,
    pub home: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct HomeFit {
    /// The slowest and the fastest client that the run may have had, each with the home that fits best with
    /// it.
    pub slowest: Rates,
    pub fastest: Rates,
    /// The pair of rates that fits best.
    pub best: Rates,
    /// The largest number of nodes that moved bytes at the same time for a while.
    pub n_nodes: u32,
    /// A home without a limit of its own does not fit the run.
    pub is_shared: bool,
}

impl HomeFit {
    /// Rates half way between the slowest and the fastest, by their ratio.
    pub fn between(&self) -> Rates {
        let middle = |a: f64, b: f64| (a * b).sqrt();
        Rates {
            client: middle(self.slowest.client, self.fastest.client),
            home: middle(self.slowest.home, self.fastest.home),
        }
    }

    /// `None`: no transfer was large enough.
    pub fn of(uses: &[Use]) -> Option<HomeFit> {
        let seen = RateSums::of(uses)?;
        let n_nodes = seen.widest();
        let (least, most) = seen.bounds();
        // The rates are computed by multiplication alone, which gives the same on every machine.
        let rates = std::iter::successors(Some(least), |rate| Some(rate * STEP));
        let grid: Vec<f64> = rates.take_while(|rate| *rate < most * STEP).collect();
        let fits = |client: f64| seen.best_home(client, &grid);
        // A client that is faster than home gets the same as one that is as fast as home.
        let all: Vec<(Rates, f64)> = grid.iter().map(|client| fits(*client)).collect();
        let error_min = all.iter().map(|(_, error)| *error).fold(f64::INFINITY, f64::min);
        let accepted = error_min + seen.slack(error_min);
        let possible = || all.iter().filter(|(_, error)| *error <= accepted);
        let by_client = |a: &&(Rates, f64), b: &&(Rates, f64)| a.0.client.total_cmp(&b.0.client);
        let best = all.iter().min_by(|a, b| a.1.total_cmp(&b.1))?.0;
        Some(HomeFit {
            slowest: possible().min_by(by_client)?.0,
            fastest: possible().max_by(by_client)?.0,
            best,
            n_nodes,
            is_shared: grid.iter().all(|c| seen.error(Rates { client: *c, home: f64::INFINITY }) > accepted),
        })
    }
}

/// The sums that the error of any pair of rates follows from.
struct RateSums {
    n_uses: f64,
    bytes: f64,
    /// The time in which each node had bytes under way, in seconds, summed over the nodes.
    busy_s: f64,
    /// For each level: its duration in seconds, and the mean number of nodes.
    levels: Vec<(f64, f64)>,
    /// Sums of `x`. The `x` of a transfer is, for each level, the seconds that the transfer had on it,
    /// divided by the number of its node's transfers and by the transfer's bytes.
    sum_x: Vec<f64>,
    sum_xx: Vec<f64>,
}

/// The level of `n` nodes, counted from 0.
fn level_of(n: u32) -> usize {
    match n <= N_EXACT_MAX {
        true => n as usize - 1,
        false => {
            let octaves = (f64::from(n) / f64::from(N_EXACT_MAX)).log2();
            N_EXACT_MAX as usize + (octaves * 4.0) as usize
        }
    }
}

/// The changes of a transfer, in the order in which changes of the same moment are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    End,
    /// The transfer no longer counts.
    Idle,
    Begin,
}

/// The time that a node's transfers have had so far.
#[derive(Clone, Default)]
struct Share {
    n_open: u32,
    /// The number of transfers that were open less than [`LAG_NS`] ago.
    n_counted: u32,
    /// Seconds on each level, divided by the number of open transfers.
    had_s: Vec<f64>,
    /// The durations of the levels at the last update of `had_s`.
    seen_s: Vec<f64>,
}

impl Share {
    fn advance(&mut self, durations_s: &[f64]) {
        for (level, now_s) in durations_s.iter().enumerate().filter(|_| self.n_open > 0) {
            self.had_s[level] += (now_s - self.seen_s[level]) / f64::from(self.n_open);
        }
        self.seen_s.copy_from_slice(durations_s);
    }
}

impl RateSums {
    fn of(uses: &[Use]) -> Option<RateSums> {
        let n_nodes = uses.iter().map(|u| u.node + 1).max()?;
        let n_levels = level_of(n_nodes) + 1;
        let zeros = vec![0.0; n_levels];
        let bytes: f64 = uses.iter().map(|u| u.bytes as f64).sum();
        let mut seen = RateSums {
            n_uses: uses.len() as f64,
            bytes,
            busy_s: 0.0,
            levels: vec![(0.0, 0.0); n_levels],
            sum_x: zeros.clone(),
            sum_xx: vec![0.0; n_levels * n_levels],
        };
        let each = uses.iter().enumerate();
        let mut turns: Vec<(u64, Turn, usize)> = each
            .flat_map(|(i, u)| {
                let idle_ns = u.end_ns.saturating_add(LAG_NS);
                [(u.begin_ns, Turn::Begin, i), (u.end_ns, Turn::End, i), (idle_ns, Turn::Idle, i)]
            })
            .collect();
        turns.sort_unstable();
        let share = Share { n_open: 0, n_counted: 0, had_s: zeros.clone(), seen_s: zeros.clone() };
        let mut nodes = vec![share; n_nodes as usize];
        let mut at_begin: Vec<Vec<f64>> = vec![vec![]; uses.len()];
        // The number of nodes with open transfers, and of nodes that count as reading.
        let (mut n_open, mut n_counted) = (0u32, 0u32);
        let (mut durations_s, mut since_ns) = (zeros, 0);
        for (at_ns, turn, i) in turns {
            let dt_s = (at_ns - since_ns) as f64 * 1e-9;
            since_ns = at_ns;
            if n_open > 0 {
                let level = level_of(n_counted);
                durations_s[level] += dt_s;
                seen.levels[level].0 += dt_s;
                seen.levels[level].1 += dt_s * f64::from(n_counted);
                seen.busy_s += dt_s * f64::from(n_open);
            }
            let node = &mut nodes[uses[i].node as usize];
            match turn {
                Turn::Begin => {
                    node.advance(&durations_s);
                    n_open += u32::from(node.n_open == 0);
                    n_counted += u32::from(node.n_counted == 0);
                    (node.n_open, node.n_counted) = (node.n_open + 1, node.n_counted + 1);
                    at_begin[i] = node.had_s.clone();
                }
                Turn::End => {
                    node.advance(&durations_s);
                    node.n_open -= 1;
                    n_open -= u32::from(node.n_open == 0);
                    let mut had_s = std::mem::take(&mut at_begin[i]);
                    had_s.iter_mut().zip(&node.had_s).for_each(|(begin, end)| *begin = end - *begin);
                    seen.add(&had_s, uses[i].bytes as f64, bytes / uses.len() as f64);
                }
                Turn::Idle => {
                    node.n_counted -= 1;
                    n_counted -= u32::from(node.n_counted == 0);
                }
            }
        }
        for level in seen.levels.iter_mut().filter(|level| level.0 > 0.0) {
            level.1 /= level.0;
        }
        Some(seen)
    }

    /// Adds a transfer, with the weight of its bytes against the mean.
    fn add(&mut self, had_s: &[f64], bytes: f64, mean_bytes: f64) {
        let (n, weight) = (had_s.len(), bytes / mean_bytes);
        for (i, a) in had_s.iter().map(|s| s / bytes).enumerate().filter(|(_, a)| *a > 0.0) {
            self.sum_x[i] += weight * a;
            for (j, b) in had_s.iter().enumerate() {
                self.sum_xx[i * n + j] += weight * a * b / bytes;
            }
        }
    }

    /// The largest number of nodes at the same time, among the levels that lasted for at least a fiftieth
    /// of the time.
    fn widest(&self) -> u32 {
        let all_s: f64 = self.levels.iter().map(|(s, _)| s).sum();
        let lasting = self.levels.iter().rfind(|(s, _)| *s > 0.0 && *s >= all_s / 50.0);
        lasting.map_or(1, |(_, n)| n.round() as u32)
    }

    /// Bounds of all rates that are possible.
    fn bounds(&self) -> (f64, f64) {
        let mean = self.bytes / self.busy_s;
        let n_most = self.levels.iter().map(|(_, n)| *n).fold(1.0, f64::max);
        (mean / 4.0, mean * n_most * 4.0)
    }

    /// The sum of squares of each transfer's relative error, weighed by its bytes.
    fn error(&self, rates: Rates) -> f64 {
        let n = self.levels.len();
        let gets: Vec<f64> =
            self.levels.iter().map(|(_, nodes)| rates.client.min(rates.home / nodes.max(1.0))).collect();
        let mut error = self.n_uses;
        for (i, a) in gets.iter().enumerate() {
            let row: f64 = self.sum_xx[i * n..(i + 1) * n].iter().zip(&gets).map(|(xx, b)| xx * b).sum();
            error += a * (row - 2.0 * self.sum_x[i]);
        }
        error.max(0.0)
    }

    /// The home that fits best with this client, and its error; among equals, the slowest home.
    fn best_home(&self, client: f64, grid: &[f64]) -> (Rates, f64) {
        let mut best = (Rates { client, home: client }, f64::INFINITY);
        for home in grid.iter().copied().filter(|home| *home >= client) {
            let rates = Rates { client, home };
            let error = self.error(rates);
            if error < best.1 - 1e-6 * self.n_uses {
                best = (rates, error);
            }
        }
        best
    }

    fn slack(&self, error_min: f64) -> f64 {
        let one = (error_min / self.n_uses).max(ERROR_MIN * ERROR_MIN);
        ACCEPTED * one * (self.n_uses / N_INDEPENDENT_MAX).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A node that reads 1 MB in each second, with pauses in between.
    fn reads(node: u32, begin_ms: u64, pause_ms: u64) -> impl Iterator<Item = Use> {
        (0..8).map(move |i| {
            let begin_ns = (begin_ms + i * (1000 + pause_ms)) * MS;
            Use { node, begin_ns, end_ns: begin_ns + 1000 * MS, bytes: 1_000_000 }
        })
    }

    #[test]
    fn short_pauses_of_some_nodes_say_nothing_about_the_others() {
        let uses: Vec<Use> = (0..4).flat_map(|node| reads(node, 25 * u64::from(node), 100)).collect();
        let fit = HomeFit::of(&uses).unwrap();
        assert_eq!(fit.n_nodes, 4);
        assert!(fit.slowest.client < 1.2e6 && fit.fastest.client > 3.5e6, "{fit:?}");
    }

    #[test]
    fn long_pauses_show_that_a_node_takes_no_more() {
        // Two nodes read at a time, and then four, and each always gets the same rate.
        let uses: Vec<Use> = (0..4).flat_map(|node| reads(node, 1000 * u64::from(node / 2), 2000)).collect();
        let more = (0..4).flat_map(|node| reads(node, 60_000, 0));
        let uses: Vec<Use> = uses.into_iter().chain(more).collect();
        let fit = HomeFit::of(&uses).unwrap();
        assert!(fit.slowest.client > 0.8e6 && fit.fastest.client < 1.2e6, "{fit:?}");
        assert!(!fit.is_shared);
    }

    #[test]
    fn nothing_moved_fits_nothing() {
        assert_eq!(HomeFit::of(&[]), None);
    }

    #[test]
    fn levels_are_exact_for_few_nodes_and_coarse_for_many() {
        let levels: Vec<usize> = [1, 2, 16, 17, 32, 8192].map(level_of).to_vec();
        assert_eq!(levels, [0, 1, 15, 16, 20, 52]);
    }
}
