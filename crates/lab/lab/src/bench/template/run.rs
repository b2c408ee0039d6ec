//! One run: a cluster on the machines of a tuple, `eyas pairs` on it, and the split of its time.
//!
//! `t_c = t_setup + t_x + t_I/O + t_compute + t_rest`, in seconds of the clock, and exactly so:
//!
//! | | |
//! |---|---|
//! | t_c | from the start of the dispatcher until `eyas pairs` has ended with the matrix complete |
//! | t_setup | until the first task is given to an executor: processes start, machines join, sizes and places of files are asked for |
//! | t_x | from there on, a worker runs nothing while inputs are on their way: those of a task that its machine was given, or a file that an owner reads for another machine. The sum over all workers, divided by their number |
//! | t_I/O, t_compute | the program reads its files into memory, and compares them; measured by the program, the sum over all pairs, divided by the number of workers |
//! | t_rest | the remainder: programs start and end, workers have nothing to do because the others have the last tasks, the matrix is written |
//!
//! A transfer that goes on while the worker computes costs no t_x. The bytes are those that the links of all machines have
//! received, with headers and all traffic of eyas.

use super::super::failed;
use super::super::spaces::{Part, Spaces, address_of};
use super::genome;
use super::places::Places;
use super::tuple::Tuple;
use eyas_cli::Fault;
use eyas_core::event::{Action, Event};
use eyas_core::log::{EVENTS_FILE, Line, What};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The times of a run in seconds, and what its links carried.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct Times {
    pub t_c: f64,
    pub t_setup: f64,
    pub t_x: f64,
    pub t_io: f64,
    pub t_compute: f64,
    pub t_rest: f64,
    pub network_bytes: u64,
}

/// Runs a tuple once, with cold caches and nothing of the genomes in memory. `dir`: a folder that does not exist yet.
pub fn run(tuple: &Tuple, spaces: &Spaces, places: &Places<'_>, dir: &Path) -> Result<Times, Fault> {
    std::fs::create_dir_all(dir)?;
    let found = places.locate(tuple);
    let write = |name: &str, names: &[String]| std::fs::write(dir.join(name), names.join("\n"));
    write("first.txt", &found.first)?;
    write("second.txt", &found.second)?;
    found.drop_pages()?;
    let eyas = eyas_cli::local::program()?;
    let at = |machine: u32| -> Command {
        let mut command = spaces.command(machine, &eyas);
        command.env_remove("EYAS_JOIN").env("EYAS_STATE", dir.join("state"));
        command.envs(found.env.iter().map(|(name, value)| (*name, value.as_str())));
        command
    };
    let (received, started_ns, begun) = (spaces.received_bytes()?, unix_ns(), Instant::now());
    let (state, times) = (dir.join("dispatcher"), dir.join("times.jsonl"));
    let join = state.join("join.json");
    let mut dispatcher = at(0);
    dispatcher.args(["dispatcher", "--listen", &format!("{}:0", address_of(0))]).arg("--dir").arg(&state);
    dispatcher.args(["--placement", tuple.access.placement()]);
    let mut dispatcher = Part::start(spaces, "the dispatcher", &mut dispatcher, dir.join("dispatcher.log"))?;
    dispatcher.wait(&|| Ok(join.is_file()))?;
    let mut executors = vec![];
    let workers = tuple.machines.workers(tuple.workers);
    for (machine, slots) in &workers {
        let (name, address) = (format!("x{machine}"), address_of(*machine));
        let mut command = at(*machine);
        command.arg("executor").arg("--join").arg(&join).arg("--dir").arg(dir.join(&name));
        command.args(["--name", &name, "--host", &name, "--host", &address.to_string()]);
        // The namespaces are a network that nobody else is on.
        command.args(["--data-listen", &format!("{address}:0"), "--data-plane", "signed"]);
        // A server that does not answer is a fault of the benchmark, which is better known soon.
        command.args(["--slots", &slots.to_string(), "--home-wait", "10s"]);
        if let Some(layout) = &found.in_place {
            command.arg("--home-local").arg(layout.join(&name));
        }
        let log = dir.join(format!("{name}.log"));
        executors.push(Part::start(spaces, &format!("the executor of {name}"), &mut command, log)?);
    }
    let events = state.join(EVENTS_FILE);
    dispatcher.wait(&|| {
        let said = std::fs::read_to_string(&events).unwrap_or_default();
        Ok(said.matches("\"executor_joined\"").count() >= workers.len())
    })?;
    let (rows, columns) = tuple.tile();
    let mut pairs = at(0);
    pairs.args(["pairs", "--strict", "--chunk", &format!("{rows}x{columns}")]);
    pairs.arg("--join").arg(&join).arg("--out").arg(dir.join("matrix.csv"));
    pairs.arg(format!("@{}", dir.join("first.txt").display()));
    pairs.arg(format!("@{}", dir.join("second.txt").display())).arg("--");
    pairs.arg(std::env::current_exe()?).args(["bench", "template-pair", "--times"]).arg(&times);
    if tuple.compares {
        pairs.arg("--compare");
    }
    pairs.args(["{a}", "{b}"]);
    let log = dir.join("pairs.log");
    let out = std::fs::File::create(&log)?;
    let status = pairs.stdin(std::process::Stdio::null()).stderr(out.try_clone()?).stdout(out).status()?;
    let t_c = begun.elapsed().as_secs_f64();
    let network_bytes = spaces.received_bytes()? - received;
    if !status.success() {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        return Err(failed(format!("`eyas pairs` ended with {status} for {tuple}: {}", said.trim())));
    }
    executors.iter_mut().chain([&mut dispatcher]).try_for_each(Part::check)?;
    drop(executors);
    drop(dispatcher);
    check(tuple, places, &dir.join("matrix.csv"))?;
    let log = Log::read(&events)?;
    let (n, sums) = (f64::from(tuple.workers), genome::sums(&times)?);
    let seconds = |ns: u64| ns as f64 * 1e-9;
    let t_setup = seconds(log.first_ns.saturating_sub(started_ns));
    let t_x = seconds(log.waiting_ns()) / n;
    let (t_io, t_compute) = (seconds(sums.read_ns) / n, seconds(sums.compute_ns) / n);
    let t_rest = t_c - t_setup - t_x - t_io - t_compute;
    eyas_runner::sandbox::remove_tree(dir).map_err(failed)?;
    Ok(Times { t_c, t_setup, t_x, t_io, t_compute, t_rest, network_bytes })
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Every cell of the matrix is what the genomes were made for.
fn check(tuple: &Tuple, places: &Places<'_>, csv: &Path) -> Result<(), Fault> {
    let text = std::fs::read_to_string(csv)?;
    let bytes = places.bytes(tuple.chunk);
    let mut n_cells = 0;
    for (row, line) in text.lines().skip(1).enumerate() {
        for (column, cell) in line.split(',').skip(1).enumerate() {
            let expected = genome::expected(row as u32, column as u32, bytes, tuple.compares);
            let value: f64 = cell.parse().map_err(failed)?;
            if (value - expected).abs() > expected * 1e-9 {
                return Err(failed(format!("{tuple}: cell {row}, {column} is {value}, not {expected}")));
            }
            n_cells += 1;
        }
    }
    match n_cells == tuple.set_len().pow(2) {
        true => Ok(()),
        false => Err(failed(format!("{tuple}: the matrix has {n_cells} cells"))),
    }
}

/// From when to when something went on, in nanoseconds since 1970.
type Span = (u64, u64);

/// What the event log says of the machines' time.
#[derive(Default)]
struct Log {
    first_ns: u64,
    /// The last end of a program.
    last_ns: u64,
    machines: HashMap<u32, Machine>,
    /// An owner reads a file for others.
    read_for_others: Vec<Span>,
}

#[derive(Default)]
struct Machine {
    n_slots: u64,
    running: Vec<Span>,
    /// Inputs of a task that this machine was given are on their way.
    fetching: Vec<Span>,
}

impl Log {
    fn read(path: &Path) -> Result<Log, Fault> {
        let mut log = Log { first_ns: u64::MAX, ..Log::default() };
        let (mut assigned, mut reading) = (HashMap::new(), HashMap::new());
        // The first line is the header.
        for line in BufReader::new(std::fs::File::open(path)?).lines().skip(1) {
            let Ok(line) = serde_json::from_str::<Line>(&line?) else { continue };
            let t = line.t.0;
            match line.what {
                What::In(Event::ExecutorJoined { executor, offer }) => {
                    log.machines.entry(executor.0).or_default().n_slots = u64::from(offer.slots);
                }
                What::Out(Action::Assign { executor: _, assignment }) => {
                    log.first_ns = log.first_ns.min(t);
                    assigned.insert((assignment.task, assignment.attempt), t);
                }
                What::In(Event::AttemptEnded { executor, report }) => {
                    let times = report.times;
                    let Some(from) = assigned.remove(&(report.task, report.attempt)) else { continue };
                    let machine = log.machines.entry(executor.0).or_default();
                    if times.inputs_ready.0 > from {
                        machine.fetching.push((from, times.inputs_ready.0));
                    }
                    if times.exited.0 > times.started.0 {
                        machine.running.push((times.started.0, times.exited.0));
                        log.last_ns = log.last_ns.max(times.exited.0);
                    }
                }
                What::Out(Action::ReadHome { object, .. }) => {
                    reading.insert(object, t);
                }
                What::In(Event::ReplicasChanged { added, .. }) => {
                    let done = added.iter().filter_map(|one| reading.remove(&one.object));
                    log.read_for_others.extend(done.map(|from| (from, t)));
                }
                _ => {}
            }
        }
        match log.last_ns {
            0 => Err(failed("the event log has no task that ran")),
            _ => Ok(log),
        }
    }

    /// Nanoseconds, summed over all workers, in which a worker ran nothing while inputs were on their way.
    fn waiting_ns(&self) -> u64 {
        let spans = |machine: &Machine| [machine.running.clone(), machine.fetching.clone()].concat();
        let all = self.machines.values().flat_map(spans).chain(self.read_for_others.iter().copied());
        let mut moments: Vec<u64> = all.flat_map(|(from, to)| [from, to]).collect();
        moments.retain(|t| (self.first_ns..=self.last_ns).contains(t));
        moments.push(self.first_ns);
        moments.sort_unstable();
        moments.dedup();
        let at = |spans: &[Span], t: u64| spans.iter().filter(|(from, to)| (*from..*to).contains(&t)).count();
        let waiting = |t: u64| -> u64 {
            let mut n_idle = 0;
            let mut n_waiting = 0;
            for machine in self.machines.values() {
                let idle = machine.n_slots.saturating_sub(at(&machine.running, t) as u64);
                n_waiting += idle.min(at(&machine.fetching, t) as u64);
                n_idle += idle;
            }
            if at(&self.read_for_others, t) > 0 { n_idle } else { n_waiting }
        };
        moments.windows(2).map(|part| (part[1] - part[0]) * waiting(part[0])).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_waits_while_it_runs_nothing_and_inputs_come() {
        let machine = |n_slots, running: &[Span], fetching: &[Span]| Machine {
            n_slots,
            running: running.to_vec(),
            fetching: fetching.to_vec(),
        };
        let log = |machines: Vec<Machine>, read_for_others: &[Span]| Log {
            first_ns: 0,
            last_ns: 100,
            machines: (1..).zip(machines).collect(),
            read_for_others: read_for_others.to_vec(),
        };
        // Fetched while the other task runs: only what comes before and after counts.
        let one = machine(1, &[(10, 40), (60, 100)], &[(0, 10), (20, 60)]);
        assert_eq!(log(vec![one], &[]).waiting_ns(), 10 + 20);
        // One task fetches for two idle workers: one of them waits, and the other has nothing to do.
        let two = || machine(2, &[(50, 100)], &[(0, 50)]);
        assert_eq!(log(vec![two()], &[]).waiting_ns(), 50);
        // An owner reads for others: every idle worker waits for that.
        assert_eq!(log(vec![two(), machine(1, &[], &[])], &[(0, 20)]).waiting_ns(), 20 * 3 + 30);
    }
}
