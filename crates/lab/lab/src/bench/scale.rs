//! `eyas-lab bench scale`: one real dispatcher and thousands of emulated executors.
//!
//! The dispatcher is the program `eyas` with TLS, journal and (unless left out) event log. The executors are real state
//! machines on real connections, many in each of a few processes ([`super::scale_nodes`]); they run no programs. The
//! questions: how much memory an executor costs the dispatcher, what heartbeats cost when nothing runs, how many tasks
//! a second pass, how long all executors take to come back after the dispatcher was killed and started again, and how
//! long it takes to drain them all. With `--relays` there are real relays between the two, and one of them is killed.
//!
//! Emulators, relays and dispatcher share the processors of this machine, so rates and times are those of all together.

use super::cluster::{plain_array, run, tree_cpu_ns};
use super::scale_nodes::ProcessNumbers;
use super::table::{Row, Table};
use super::{Common, failed, note};
use clap::Args;
use eyas_cli::{Exit, Fault, local};
use eyas_client::{Client, JoinFile, Target};
use eyas_cluster::dirs::dispatcher_dir;
use eyas_runtime::descriptors;
use eyas_runtime::part::Part;
use eyas_wire::message::RequestBody;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Descriptors of a process beside those for its connections to executors.
const OTHER_DESCRIPTORS: u64 = 300;
/// Executors get this long to come, or to go, and each of many a little more.
const COME_MAX: Duration = Duration::from_secs(300);
const COME_MAX_EACH: Duration = Duration::from_millis(20);
/// Executors that have joined get this long until the dispatcher counts as idle.
const SETTLE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LEASE: &str = "120s";

#[derive(Args)]
pub struct ScaleArgs {
    /// Number of emulated executors
    #[arg(short, long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    n: u32,
    /// Number of processes that the executors share; each has a source address of its own on the loopback network
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Relays between executors and dispatcher, each a process
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=200))]
    relays: u32,
    /// Slots of each executor
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    slots: u32,
    /// Number of tasks that start nothing; 0 leaves this part out
    #[arg(long, default_value_t = 1_000_000)]
    noop: u32,
    /// Seconds over which the idle dispatcher's processor time is counted; 0 leaves this part out
    #[arg(long, default_value_t = 20)]
    idle: u64,
    /// Write no event log
    #[arg(long)]
    no_event_log: bool,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &ScaleArgs) -> Result<Exit, Fault> {
    check_descriptors(args)?;
    args.common.run(|dir| {
        let log = if args.no_event_log { "no event log" } else { "event log" };
        let mut table = Table::new(format!(
            "scale: one dispatcher ({log}), {} relays, {} emulated executors with {} slots in {} processes, TLS over loopback",
            args.relays, args.n, args.slots, args.processes
        ));
        measure(args, dir, &mut table)?;
        Ok(table)
    })
}

/// Refuses more executors than this machine allows a process to have connections.
fn check_descriptors(args: &ScaleArgs) -> Result<(), Fault> {
    let allowed = descriptors::raise().now;
    let of_one = args.n.div_ceil(args.processes);
    let (who, most, less) = match args.relays {
        0 => ("the dispatcher", args.n, "a smaller -n, or --relays"),
        // They choose by chance.
        relays => ("a relay", (args.n / relays) * 5 / 4, "more --relays, or a smaller -n"),
    };
    for (who, n, option) in [
        (who, most, less.to_string()),
        ("a process of executors", of_one, "more --processes, or a smaller -n".to_string()),
    ] {
        let needed = u64::from(n) + OTHER_DESCRIPTORS;
        if needed > allowed {
            let most = allowed.saturating_sub(OTHER_DESCRIPTORS);
            let message = format!(
                "{who} needs {needed} open files for {n} executors, and this machine allows a process {allowed} \
                 (`ulimit -Hn`)"
            );
            let hint = format!("raise the hard limit, or take {option}: at most {most} executors fit there");
            return Err(Fault::new(Exit::BadInput, message).hint(hint));
        }
    }
    Ok(())
}

fn measure(args: &ScaleArgs, dir: &Path, table: &mut Table) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut dispatcher = Dispatcher::start(args, dir)?;
    std::thread::sleep(Duration::from_secs(1));
    let empty_bytes = dispatcher.rss_bytes()?;

    let mut relays = Relays::start(args, dir, &dispatcher)?;
    note(&format!("{} executors join", args.n));
    let begun = Instant::now();
    let cpu_before = dispatcher.cpu_ns();
    let emulators = Emulators::start(args, &dispatcher.join)?;
    emulators.await_welcome(args.n, 0, &mut dispatcher)?;
    let join_s = begun.elapsed().as_secs_f64();
    let join_cpu_ns = dispatcher.cpu_ns() - cpu_before;
    std::thread::sleep(SETTLE);
    let bytes = dispatcher.rss_bytes()?;
    table.row(Row::new("first join: from the start of the executors until all are accepted", join_s, "s"));
    table.row(Row::new("  dispatcher CPU for each", join_cpu_ns as f64 / 1e3 / f64::from(args.n), "µs"));
    let own_bytes = bytes.saturating_sub(empty_bytes) as f64;
    let memory = Row::new("dispatcher memory, all joined", bytes as f64 / 1e6, "MB");
    table.row(match args.relays {
        0 => memory.target("4 GB of 54,000", "2 GB"),
        _ => memory.target("500 MB of 54,000", "200 MB"),
    });
    table.row(Row::new("  for each executor", own_bytes / 1e3 / f64::from(args.n), "KB"));

    if args.idle > 0 {
        note(&format!("idle for {} s", args.idle));
        let (cpu_before, begun) = (dispatcher.cpu_ns(), Instant::now());
        std::thread::sleep(Duration::from_secs(args.idle));
        let used_ns = dispatcher.cpu_ns() - cpu_before;
        let share = used_ns as f64 / begun.elapsed().as_nanos() as f64;
        let row = Row::new("idle: dispatcher CPU for heartbeats, of one core", share * 100.0, "%");
        table.row(match args.relays {
            0 => row.target("25 % of 54,000", "5 %"),
            _ => row.target("10 % of 54,000", "3 %"),
        });
    }
    relays.measure(table)?;
    if args.noop > 0 {
        note(&format!("{} no-op tasks", args.noop));
        let mut client = runtime.block_on(Client::connect(&dispatcher.target()?))?;
        let array = [Arc::new(plain_array(args.noop, &[]))];
        let cpu_before = dispatcher.cpu_ns();
        let (status, wall_ns) = runtime.block_on(run(&mut client, || dispatcher.find_end(), &array))?;
        if status.n_done != status.n_tasks {
            return Err(failed(format!("{} no-op tasks did not end well", status.n_tasks - status.n_done)));
        }
        let cpu_ns = dispatcher.cpu_ns() - cpu_before;
        let rate = f64::from(args.noop) * 1e9 / wall_ns as f64;
        let row = Row::new(format!("no-op, {} tasks", args.noop), rate, "/s");
        table.row(row.target("40,000/s with 10,000", "100,000/s"));
        table.row(Row::new("  dispatcher CPU", cpu_ns as f64 / 1e3 / f64::from(args.noop), "µs/task"));
        table.row(Row::new("  dispatcher memory after it", dispatcher.rss_bytes()? as f64 / 1e6, "MB"));
    }
    relays.kill_one(args, &mut dispatcher, &emulators, table)?;
    restart(args, &mut dispatcher, &emulators, table)?;
    runtime.block_on(drain(args, &mut dispatcher, &emulators, table))?;
    let n_failed = emulators.all().map(|seen| seen.n_failed).sum::<u64>();
    table.note(format!("connections that did not come about, over all: {n_failed}"));
    Ok(())
}

/// Kills the dispatcher, starts it again, and waits until all executors are back.
fn restart(
    args: &ScaleArgs,
    dispatcher: &mut Dispatcher,
    emulators: &Emulators,
    table: &mut Table,
) -> Result<(), Fault> {
    note("the dispatcher is killed and started again");
    let before = emulators.incarnation();
    dispatcher.part.kill();
    let begun = Instant::now();
    dispatcher.launch()?;
    let answers_s = begun.elapsed().as_secs_f64();
    let cpu_before = dispatcher.cpu_ns();
    emulators.await_welcome(args.n, before, dispatcher)?;
    let row = Row::new(
        "restart: from the start of the process until all are accepted",
        begun.elapsed().as_secs_f64(),
        "s",
    );
    table.row(row.target("30 s with 10,000", "10 s"));
    let cpu_ns = dispatcher.cpu_ns() - cpu_before;
    table.row(Row::new("  until it answers", answers_s, "s"));
    table.row(Row::new("  dispatcher CPU for each", cpu_ns as f64 / 1e3 / f64::from(args.n), "µs"));
    std::thread::sleep(SETTLE);
    table.row(Row::new("  dispatcher memory, all back", dispatcher.rss_bytes()? as f64 / 1e6, "MB"));
    Ok(())
}

/// Asks the dispatcher to drain all executors, by one request for each, and waits until all have ended.
async fn drain(
    args: &ScaleArgs,
    dispatcher: &mut Dispatcher,
    emulators: &Emulators,
    table: &mut Table,
) -> Result<(), Fault> {
    note("all executors are drained");
    let mut client = Client::connect(&dispatcher.target()?).await?;
    let asked = Instant::now();
    let executors = client.status().await?.executors;
    table.row(Row::new("status of the cluster, asked and read", asked.elapsed().as_secs_f64() * 1e3, "ms"));
    let begun = Instant::now();
    for line in &executors {
        client.send(RequestBody::Drain { executor: line.executor })?;
    }
    for _ in &executors {
        client.next().await?;
    }
    let answered_s = begun.elapsed().as_secs_f64();
    emulators.wait(dispatcher, |all| all.map(|seen| seen.n_ended).sum::<u32>() >= args.n)?;
    let ended_s = begun.elapsed().as_secs_f64();
    table.row(Row::new("drain of all, one request each, until all have ended", ended_s, "s"));
    table.row(Row::new("  until all requests are answered", answered_s, "s"));
    Ok(())
}

/// The dispatcher's process, which may be started again in the same folder.
struct Dispatcher {
    part: Part,
    exe: PathBuf,
    logs: PathBuf,
    words: Vec<String>,
    join: PathBuf,
}

impl Dispatcher {
    fn start(args: &ScaleArgs, dir: &Path) -> Result<Dispatcher, Fault> {
        let exe = local::program()?;
        let own = dispatcher_dir(dir);
        let mut words: Vec<String> = ["dispatcher", "--lease", LEASE, "--dir"].map(String::from).to_vec();
        words.push(own.display().to_string());
        words.extend(args.no_event_log.then(|| "--no-event-log".into()));
        let part = Part::start(&exe, dir, "dispatcher", &words, true).map_err(Fault::from)?;
        let join = own.join(eyas_runtime::dispatcher::JOIN_FILE);
        let mut dispatcher = Dispatcher { part, exe, logs: dir.to_path_buf(), words, join };
        dispatcher.await_answer()?;
        Ok(dispatcher)
    }

    /// Starts it again after its process was killed.
    fn launch(&mut self) -> Result<(), Fault> {
        let _ = std::fs::remove_file(&self.join);
        self.part = Part::start(&self.exe, &self.logs, "dispatcher", &self.words, true)?;
        self.await_answer()
    }

    fn await_answer(&mut self) -> Result<(), Fault> {
        let deadline = Instant::now() + COME_MAX;
        while !self.join.exists() {
            if let Some(why) = self.find_end() {
                return Err(Fault::new(Exit::Cluster, why));
            }
            if Instant::now() > deadline {
                return Err(Fault::new(Exit::Cluster, "the dispatcher did not answer"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn find_end(&mut self) -> Option<String> {
        self.part.find_end().map(|why| format!("the dispatcher ended: {why}"))
    }

    fn target(&self) -> Result<Target, Fault> {
        Ok(JoinFile::named(self.join.clone()).read()?)
    }

    /// Processor time of this process.
    fn cpu_ns(&self) -> u64 {
        tree_cpu_ns(&[self.part.pid()])
    }

    fn rss_bytes(&self) -> Result<u64, Fault> {
        rss_bytes(&self.part)
    }
}

fn rss_bytes(part: &Part) -> Result<u64, Fault> {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", part.pid()))?;
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    // SAFETY: a plain query.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
    Ok(pages.ok_or_else(|| failed(format!("the kernel tells no memory of the {}", part.name())))?
        * page_bytes)
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.part.kill();
    }
}

/// The relays, of which there may be none. They end with this value.
struct Relays(Vec<Part>);

impl Relays {
    /// They are there when this returns.
    fn start(args: &ScaleArgs, dir: &Path, dispatcher: &Dispatcher) -> Result<Relays, Fault> {
        let words: Vec<String> =
            ["relay".into(), "--join".into(), dispatcher.join.display().to_string()].to_vec();
        let start = |i| Part::start(&dispatcher.exe, dir, &format!("relay{i}"), &words, true);
        let mut all = Relays((0..args.relays).map(start).collect::<Result<_, _>>()?);
        let deadline = Instant::now() + COME_MAX;
        while dispatcher.target()?.join().relays.len() < all.0.len() {
            if let Some(why) = all.0.iter_mut().find_map(Part::find_end) {
                return Err(Fault::new(Exit::Cluster, format!("a relay ended: {why}")));
            }
            if Instant::now() > deadline {
                return Err(Fault::new(Exit::Cluster, "not all relays have joined"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(all)
    }

    /// The memory of a relay, on average.
    fn measure(&self, table: &mut Table) -> Result<(), Fault> {
        let all = self.0.iter().map(rss_bytes).collect::<Result<Vec<_>, _>>()?;
        if !all.is_empty() {
            let mean_bytes = all.iter().sum::<u64>() as f64 / all.len() as f64;
            table.row(Row::new("memory of a relay, on average", mean_bytes / 1e6, "MB"));
        }
        Ok(())
    }

    /// Kills one of them, and waits until its executors are back at others.
    fn kill_one(
        &mut self,
        args: &ScaleArgs,
        dispatcher: &mut Dispatcher,
        emulators: &Emulators,
        table: &mut Table,
    ) -> Result<(), Fault> {
        if self.0.len() < 2 {
            return Ok(());
        }
        note("a relay is killed");
        let n_broken =
            |all: &mut dyn Iterator<Item = ProcessNumbers>| all.map(|seen| seen.n_broken).sum::<u64>();
        let before = n_broken(&mut emulators.all());
        let begun = Instant::now();
        self.0.remove(0).kill();
        emulators.wait(dispatcher, |_| {
            let welcomed = emulators.all().map(|seen| seen.n_welcomed).sum::<u32>();
            n_broken(&mut emulators.all()) > before && welcomed == args.n
        })?;
        let back_s = begun.elapsed().as_secs_f64();
        let n_lost = n_broken(&mut emulators.all()) - before;
        table.row(Row::new(format!("a relay killed: until its {n_lost} executors are back"), back_s, "s"));
        Ok(())
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Part::kill);
    }
}

/// The processes of emulated executors. They end with this value.
struct Emulators {
    all: Vec<(Child, Arc<Mutex<ProcessNumbers>>)>,
    /// Executors of all.
    n: u32,
}

impl Emulators {
    fn start(args: &ScaleArgs, join: &Path) -> Result<Emulators, Fault> {
        let mut all = Emulators { all: vec![], n: args.n };
        let each = args.n.div_ceil(args.processes);
        for i in 0..args.processes {
            let first = i * each;
            let n = each.min(args.n.saturating_sub(first));
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["bench", "scale-nodes", "--until-stdin-closes", "--join"]).arg(join);
            command.args(["--first", &first.to_string(), "-n", &n.to_string()]);
            command.args(["--slots", &args.slots.to_string()]);
            command.args(["--source", &format!("127.0.0.{}", i + 2)]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
            let mut child = command.spawn()?;
            let lines = BufReader::new(child.stdout.take().expect("it is piped"));
            let seen = Arc::new(Mutex::new(ProcessNumbers::default()));
            let newest = seen.clone();
            std::thread::spawn(move || {
                for line in lines.lines().map_while(Result::ok) {
                    if let Ok(seen) = serde_json::from_str(&line) {
                        *newest.lock().expect("nobody panics with it") = seen;
                    }
                }
            });
            all.all.push((child, seen));
        }
        Ok(all)
    }

    fn all(&self) -> impl Iterator<Item = ProcessNumbers> {
        self.all.iter().map(|(_, seen)| *seen.lock().expect("nobody panics with it"))
    }

    /// The newest process of the dispatcher that an executor has met.
    fn incarnation(&self) -> u64 {
        self.all().map(|seen| seen.incarnation).max().unwrap_or(0)
    }

    /// Waits until `n` executors are welcome at one process of the dispatcher, which came after `before`.
    fn await_welcome(&self, n: u32, before: u64, dispatcher: &mut Dispatcher) -> Result<(), Fault> {
        self.wait(dispatcher, |_| {
            let newest = self.incarnation();
            let met = self.all().filter(|seen| seen.incarnation == newest).map(|seen| seen.n_welcomed);
            newest > before && met.sum::<u32>() == n
        })
    }

    fn wait<F>(&self, dispatcher: &mut Dispatcher, is_so: F) -> Result<(), Fault>
    where
        F: Fn(&mut dyn Iterator<Item = ProcessNumbers>) -> bool,
    {
        let come_max = COME_MAX + COME_MAX_EACH * self.n;
        let deadline = Instant::now() + come_max;
        while !is_so(&mut self.all()) {
            if let Some(why) = dispatcher.find_end() {
                return Err(Fault::new(Exit::Cluster, why));
            }
            if Instant::now() > deadline {
                let (n, ended): (u32, u32) =
                    self.all().fold((0, 0), |(n, ended), seen| (n + seen.n_welcomed, ended + seen.n_ended));
                let waited_s = come_max.as_secs();
                let message =
                    format!("after {waited_s} s {n} emulated executors are connected and {ended} have ended");
                return Err(failed(message));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Emulators {
    fn drop(&mut self) {
        for (child, _) in &mut self.all {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
