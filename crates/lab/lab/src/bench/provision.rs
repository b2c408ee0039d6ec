//! `eyas-lab bench provision`: MI or SW (`Raicu09` §5.1, §5.2), scaled, with a static pool and with each provisioning policy, on
//! real nodes.
//!
//! For each policy a cluster is started by `eyas up` with the nodes that the arguments behind `--` name: local ones unless they
//! say otherwise, for example `-- --provider slurm --list-every 2s`. Tasks of MI arrive in steps of a rate that grows by 1.3, tasks of
//! SW by equation 13 with its time and its rate scaled. Each is a submission of its own with one label, as users of a cluster
//! that stays would submit them. Each reads one file of several at home and then sleeps, so that many slots fit a small machine. The figures come from the event log, by the code of `eyas report`.
//!
//! Node hours are the times for which nodes were joined, from the first submission to the last end. What a job takes to
//! start before its node has joined is not in them; it is shown beside them. The static pool is complete before the first submission.

use super::cluster::template;
use super::table::{Row, Table};
use super::{Common, Random, failed, note};
use clap::{Args, ValueEnum};
use eyas_cli::machine::Machine;
use eyas_cli::{Exit, Fault, figures, local};
use eyas_client::{Client, JoinFile};
use eyas_cluster::dirs::dispatcher_dir;
use eyas_core::provisioning::decision::Decided;
use eyas_core::provisioning::{NAMES, growth};
use eyas_papers::workload::sw;
use eyas_report::{NodesStory, Report};
use eyas_terms::NodeState;
use eyas_terms::array::{Column, Command, Pattern, Piece, TaskArray};
use eyas_wire::message::{Keep, ReplyBody, RequestBody};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nodes may take to come or go.
const NODES_MAX: Duration = Duration::from_secs(120);
/// How long the last tasks may take after the last submission.
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// Seconds that SW lasts in the paper, and its largest rate in tasks per second.
const SW_S: f64 = 6505.0;
const SW_RATE_MAX: f64 = 1000.0;
/// The page beside the figures.
const PAGE: &str = "provisioning.md";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Arrival rates that grow
    Mi,
    /// Waves that grow
    Sw,
}

impl Workload {
    /// The label of its tasks, and what people call it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Workload::Mi => ("mi", "MI"),
            Workload::Sw => ("sw", "SW"),
        }
    }
}

#[derive(Args)]
pub struct ProvisionArgs {
    #[arg(long, value_enum, default_value_t = Workload::Mi)]
    workload: Workload,
    /// Nodes at most
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// Slots of each node
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Policies, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "POLICIES")]
    policies: Vec<String>,
    /// Seconds that a task takes
    #[arg(long, default_value_t = 2.0)]
    task: f64,
    /// MI: seconds for which an arrival rate lasts
    #[arg(long, default_value_t = 10.0)]
    interval: f64,
    /// SW: seconds for which tasks arrive
    #[arg(long, default_value_t = 240.0)]
    duration: f64,
    /// MI: arrival rates, each 1.3 times the one before
    #[arg(long, default_value_t = 13, value_parser = clap::value_parser!(u32).range(1..=24))]
    rates: u32,
    /// The largest rate, as a part of what all slots together can do
    #[arg(long, default_value_t = 0.75)]
    load: f64,
    /// A node goes after so many seconds without work
    #[arg(long, default_value_t = 5)]
    idle: u64,
    /// Files at home, of which each task reads one
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// Size of each file, in kB
    #[arg(long, default_value_t = 500)]
    file_kb: u64,
    /// Where the page `provisioning.md` and its figures go, besides the table [default: nowhere]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Arguments of `eyas up` that say where nodes come from
    #[arg(last = true, value_name = "ARGUMENTS")]
    up: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// One policy.
struct Measured {
    policy: String,
    report: Report,
    story: NodesStory,
    /// The mean time from a request until its node had joined; `None`: nobody was requested during the run.
    start_up_s: Option<f64>,
}

impl Measured {
    fn node_hours(&self, slots: u32) -> f64 {
        self.report.totals.cpu_hours_allocated / f64::from(slots)
    }

    fn response_s(&self) -> f64 {
        self.report.totals.response_mean_ns as f64 / 1e9
    }

    fn n_requests(&self) -> usize {
        let decisions = self.story.decisions.iter();
        decisions.filter(|entry| matches!(entry.decision.what, Decided::Requested { .. })).count()
    }
}

pub fn bench(args: &ProvisionArgs) -> Result<Exit, Fault> {
    if let Some(unknown) = args.policies.iter().find(|policy| !NAMES.contains(&policy.as_str())) {
        let known = NAMES.join(", ");
        return Err(Fault::new(Exit::BadInput, format!("there is no policy `{unknown}`; known are {known}")));
    }
    let is_positive = |x: f64| x.is_finite() && x > 0.0;
    if ![args.task, args.interval, args.duration, args.load].into_iter().all(is_positive) {
        return Err(Fault::new(
            Exit::BadInput,
            "--task, --interval, --duration and --load must be more than 0",
        ));
    }
    // The static pool comes first: the others are compared with it.
    let mut policies = vec![growth::STATIC.to_string()];
    let others =
        if args.policies.is_empty() { NAMES.map(String::from).to_vec() } else { args.policies.clone() };
    policies.extend(others.into_iter().filter(|policy| policy != growth::STATIC));
    let machine = Machine::here();
    args.common.run(|dir| {
        let files = make_files(args, &dir.join("home"))?;
        let mut all = vec![];
        for policy in &policies {
            all.push(measure(args, policy, &dir.join(policy), &files)?);
        }
        if let Some(out) = &args.out {
            write_page(args, out, dir, &machine.ended(), &all)?;
        }
        Ok(table(args, &all))
    })
}

/// The seconds at which tasks arrive.
fn arrivals(args: &ProvisionArgs) -> Vec<f64> {
    let n_slots = f64::from(args.nodes * args.slots);
    let most = args.load * n_slots / args.task;
    // Rates and when each of them ends.
    let rates: Vec<(f64, f64)> = match args.workload {
        Workload::Mi => (0..args.rates)
            .map(|step| {
                let rate = most / 1.3f64.powi((args.rates - 1 - step) as i32);
                (rate, f64::from(step + 1) * args.interval)
            })
            .collect(),
        Workload::Sw => (0..SW_S as u64)
            .map(|second| {
                let rate = most * sw::arrival_rate(second) as f64 / SW_RATE_MAX;
                (rate, (second + 1) as f64 * args.duration / SW_S)
            })
            .collect(),
    };
    let mut times = vec![];
    // A task comes when a whole one has come together; the first one at once.
    let (mut begun, mut whole) = (0.0, 1.0);
    for (rate, end) in rates {
        while whole + rate * (end - begun) >= 1.0 {
            if whole < 1.0 {
                begun += (1.0 - whole) / rate;
            }
            whole = 0.0;
            times.push(begun);
        }
        whole += rate * (end - begun);
        begun = end;
    }
    times
}

fn make_files(args: &ProvisionArgs, dir: &Path) -> Result<Vec<PathBuf>, Fault> {
    std::fs::create_dir_all(dir)?;
    let mut random = Random(7);
    let mut files = vec![];
    for i in 0..args.files {
        let path = dir.join(format!("file-{i:03}"));
        let bytes: Vec<u8> = (0..args.file_kb * 125).flat_map(|_| random.next().to_le_bytes()).collect();
        std::fs::write(&path, bytes)?;
        files.push(path);
    }
    Ok(files)
}

/// Runs `eyas` to its end; what it prints is shown where it fails.
fn eyas(words: &[String]) -> Result<(), Fault> {
    let ended = std::process::Command::new(local::program()?)
        .args(words)
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| failed(format!("cannot start eyas: {e}")))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(failed(format!("`eyas {}` ended with {}: {}", words.join(" "), ended.status, said.trim())))
}

fn measure(args: &ProvisionArgs, policy: &str, dir: &Path, files: &[PathBuf]) -> Result<Measured, Fault> {
    note(&format!("{policy}: the cluster starts"));
    let n_nodes = args.nodes;
    // With `static` all are requested at once, and are there before the first task.
    let least = if policy == growth::STATIC { n_nodes } else { 0 };
    let text = |word: &str| word.to_string();
    let mut words = vec![text("up"), text("--dir"), dir.display().to_string()];
    words.extend([text("--nodes"), format!("0..{n_nodes}"), text("--slots"), args.slots.to_string()]);
    words.extend([text("--provisioning"), text(policy), text("--idle-release"), format!("{}s", args.idle)]);
    // Forgotten runs would leave the log.
    words.extend([text("--keep-runs"), text("all")]);
    words.extend(args.up.iter().cloned());
    eyas(&words)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let submitted = runtime.block_on(run(args, policy, least, dir, files));
    let ended = eyas(&[text("down"), text("--join"), join_file(dir).path().display().to_string()]);
    submitted?;
    ended?;
    let log_dir = dispatcher_dir(dir);
    let log = eyas_report::read_group(std::slice::from_ref(&log_dir))?;
    let report = eyas_report::metrics(&log);
    let story = eyas_report::nodes_story(&log_dir)?;
    let t = &report.totals;
    if t.n_done != t.n_tasks {
        return Err(failed(format!(
            "{policy}: {} of {} tasks did not end well",
            t.n_tasks - t.n_done,
            t.n_tasks
        )));
    }
    let start_up_s = start_up_s(&story, &log);
    Ok(Measured { policy: policy.into(), report, story, start_up_s })
}

/// The requests and the joins of nodes in pairs, the first with the first.
fn start_up_s(story: &NodesStory, log: &eyas_report::RunLog) -> Option<f64> {
    let mut requested = vec![];
    for entry in &story.decisions {
        if let Decided::Requested { n_nodes } = entry.decision.what {
            requested.extend(std::iter::repeat_n(entry.decision.at, n_nodes as usize));
        }
    }
    let mut joined: Vec<_> =
        log.executors.iter().flat_map(|e| e.present.iter().map(|(from, _)| *from)).collect();
    joined.sort_unstable();
    let took: Vec<f64> =
        requested.iter().zip(&joined).map(|(at, join)| join.since_ns(*at) as f64 / 1e9).collect();
    (!took.is_empty()).then(|| took.iter().sum::<f64>() / took.len() as f64)
}

fn join_file(dir: &Path) -> JoinFile {
    JoinFile::named(dispatcher_dir(dir).join(eyas_runtime::dispatcher::JOIN_FILE))
}

async fn run(
    args: &ProvisionArgs,
    policy: &str,
    least: u32,
    dir: &Path,
    files: &[PathBuf],
) -> Result<(), Fault> {
    let mut client = Client::connect(&join_file(dir).read()?).await?;
    let deadline = Instant::now() + NODES_MAX;
    loop {
        let status = client.status().await?;
        let n = status.executors.iter().filter(|e| e.state == NodeState::Connected).count();
        if n >= least as usize {
            break;
        }
        if Instant::now() > deadline {
            return Err(failed(format!(
                "{policy}: {n} of {least} nodes came within {} s",
                NODES_MAX.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let times = arrivals(args);
    note(&format!("{policy}: {} tasks arrive in {:.0} s", times.len(), times.last().unwrap_or(&0.0)));
    let (begun, mut random, mut n_sent) = (Instant::now(), Random(11), 0);
    while n_sent < times.len() {
        let now = begun.elapsed().as_secs_f64();
        let n_due = times.partition_point(|at| *at <= now);
        if n_due == n_sent {
            tokio::time::sleep(Duration::from_secs_f64(times[n_sent] - now)).await;
            continue;
        }
        let array = tasks(args, files, n_sent, n_due - n_sent, &mut random)?;
        submit(&mut client, args.workload.names().0, array).await?;
        n_sent = n_due;
    }
    let deadline = Instant::now() + DRAIN_MAX;
    while client.status().await?.runs.iter().any(|run| run.ended.is_none()) {
        if Instant::now() > deadline {
            let s = DRAIN_MAX.as_secs();
            return Err(failed(format!("{policy}: not all tasks ended within {s} s of the last submission")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn submit(client: &mut Client, label: &str, array: TaskArray) -> Result<(), Fault> {
    let open = RequestBody::OpenRun { name: label.into(), keep: Keep::default(), into: None };
    let ReplyBody::RunOpened { run, .. } = client.ask(open).await? else {
        return Err(failed("the dispatcher's answer makes no sense"));
    };
    client.send(RequestBody::AddArray { run, array: Arc::new(array) })?;
    client.ask(RequestBody::CommitRun { run }).await?;
    Ok(())
}

fn tasks(
    args: &ProvisionArgs,
    files: &[PathBuf],
    first: usize,
    n: usize,
    random: &mut Random,
) -> Result<TaskArray, Fault> {
    let mut column = Column::default();
    for _ in 0..n {
        if !column.push(&files[random.below(files.len())].display().to_string()) {
            return Err(failed("the names of the files have more than 4 GiB"));
        }
    }
    let inputs = vec![(Pattern(vec![Piece::Literal("in".into())]), Pattern::column(0))];
    let line = format!("cat in > /dev/null; sleep {}", args.task);
    let mut template = template(Command::Shell(Pattern::literal(line)), inputs);
    template.label = args.workload.names().0.into();
    Ok(TaskArray {
        n_tasks: n as u32,
        first_index: first as u64,
        template,
        columns: vec![column],
        needs: None,
    })
}

// ---------------------------------------------------------------- what came out

/// How tasks arrive, for people, after a number of tasks.
fn shape(args: &ProvisionArgs) -> String {
    match args.workload {
        Workload::Mi => {
            format!(" at {} rates, each 1.3 times the one before and for {} s", args.rates, args.interval)
        }
        Workload::Sw => format!(" in waves that grow, {} s in all", args.duration),
    }
}

fn source(args: &ProvisionArgs) -> String {
    if args.up.is_empty() { "local".into() } else { args.up.join(" ") }
}

fn table(args: &ProvisionArgs, all: &[Measured]) -> Table {
    let n_tasks = all.first().map_or(0, |m| m.report.totals.n_tasks);
    let mut table = Table::new(format!(
        "provision: {} scaled to {} nodes with {} slots ({}): {n_tasks} tasks of {} s{}",
        args.workload.names().1,
        args.nodes,
        args.slots,
        source(args),
        args.task,
        shape(args)
    ));
    let base = &all[0];
    for m in all {
        let hours = Row::new(format!("{}: node hours", m.policy), m.node_hours(args.slots), "h");
        let response = Row::new("  response time", m.response_s(), "s");
        if m.policy == growth::STATIC {
            table.row(hours);
            table.row(response);
            continue;
        }
        table.row(hours.against("static", base.node_hours(args.slots)).target("ratio 0.60", "0.50"));
        table.row(response.against("static", base.response_s()).target("ratio 1.50", "1.20"));
        if let Some(start_up_s) = m.start_up_s {
            table.row(Row::new("  from the request for a node until it has joined", start_up_s, "s"));
        }
    }
    table.note("Node hours: nodes that have joined, from the first submission to the last end.");
    table
}

/// The page with the table and the figures, and the runs' reports as JSON for whoever draws them again.
fn write_page(
    args: &ProvisionArgs,
    out: &Path,
    dir: &Path,
    machine: &Machine,
    all: &[Measured],
) -> Result<(), Fault> {
    let drawings = out.join("figures");
    std::fs::create_dir_all(&drawings)?;
    let mut reports = vec![];
    for m in all {
        let path = dir.join(format!("{}.json", m.policy));
        std::fs::write(&path, serde_json::to_vec(&m.report).map_err(failed)?)?;
        reports.push((m.policy.clone(), path));
    }
    let mut has_figures = true;
    if let Err(why) = figures::draw_reports(&drawings, &reports) {
        note(&format!("the figures are not drawn: {why}"));
        has_figures = false;
    }
    std::fs::write(out.join(PAGE), page(args, machine, all, has_figures))?;
    note(&format!("{}", out.join(PAGE).display()));
    Ok(())
}

fn page(args: &ProvisionArgs, machine: &Machine, all: &[Measured], has_figures: bool) -> String {
    let mut text = include_str!("provision.md").to_string();
    let n_tasks = all.first().map_or(0, |m| m.report.totals.n_tasks);
    let _ = writeln!(
        text,
        "{}: {n_tasks} tasks of {} s arrive{}, the largest rate {:.0} % of what {} nodes with {} slots can do. Nodes: `{}`. {}\n",
        args.workload.names().1,
        args.task,
        shape(args),
        args.load * 100.0,
        args.nodes,
        args.slots,
        source(args),
        machine.line()
    );
    text += "| policy | node hours | of the static pool's | response | against the static pool | makespan | requests | a node takes to come |\n";
    text += "|---|---|---|---|---|---|---|---|\n";
    let base = &all[0];
    for m in all {
        let (hours, response) = (m.node_hours(args.slots), m.response_s());
        let start_up = m.start_up_s.map_or("–".to_string(), |s| format!("{s:.1} s"));
        let _ = writeln!(
            text,
            "| `{}` | {hours:.4} | {:.0} % | {response:.2} s | {:.2} × | {:.0} s | {} | {start_up} |",
            m.policy,
            100.0 * hours / base.node_hours(args.slots),
            response / base.response_s(),
            m.report.totals.makespan_ns as f64 / 1e9,
            m.n_requests(),
        );
    }
    if !has_figures {
        return text;
    }
    text += include_str!("provision-figures.md");
    for (at, m) in all.iter().enumerate() {
        let policy = &m.policy;
        let _ =
            writeln!(text, "![The course of the run with `{policy}`](figures/live-course-{}.svg)\n", at + 1);
    }
    for (name, title) in [
        ("live-hits", "Figure 24: where inputs were found"),
        ("live-throughput", "Figure 25: average and 99th percentile throughput"),
        ("live-index", "Figure 26: performance index and speed-up"),
        ("live-slowdown", "Figure 27: slowdown by arrival rate"),
        ("live-response", "Figure 28: average response time"),
    ] {
        let _ = writeln!(text, "![{title}, live](figures/{name}.svg)\n");
    }
    let paper = "![Figure 21: MI, GCC, 4 GB, simulated](figures/fig-21-mi-gcc-4gb.svg)";
    let _ = writeln!(text, "{}{paper}\n", include_str!("provision-paper.md"));
    text.trim_end().to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: ProvisionArgs,
    }

    #[test]
    fn tasks_arrive_at_rates_that_grow_up_to_the_load() {
        let args = Words::parse_from(["x", "--", "--provider", "slurm"]).args;
        assert_eq!(source(&args), "--provider slurm");
        let times = arrivals(&args);
        assert!(times.is_sorted() && times[0] == 0.0 && times.iter().all(|at| *at < 130.0));
        // 4 nodes with 2 slots and tasks of 2 s: 3 tasks a second at last, each interval 1.3 times as many as the one before.
        let n_in = |from: f64, to: f64| times.iter().filter(|at| (from..to).contains(*at)).count();
        assert!((29..=31).contains(&n_in(120.0, 130.0)) && (22..=24).contains(&n_in(110.0, 120.0)));
        assert!((1..=2).contains(&n_in(0.0, 10.0)), "{times:?}");
        let args = Words::parse_from(["x", "--workload", "sw", "--duration", "100"]).args;
        let times = arrivals(&args);
        assert!(times.is_sorted() && times[0] == 0.0 && times.iter().all(|at| *at < 100.0));
        // Equation 13 has a trough at 67.9 of 108.4 minutes and the peak of its last wave at 87.
        let n_in = |from: f64, to: f64| times.iter().filter(|at| (from..to).contains(*at)).count();
        assert!(n_in(60.0, 65.0) <= 2 && n_in(75.0, 85.0) >= 28, "{times:?}");
    }
}
