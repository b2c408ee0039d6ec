//! `eyas provider check`: shows what would be submitted, submits one probe, and says in words what is wrong.
//!
//! The probe is a block like any other, with the same script; only its executor looks around in place of working
//! ([`crate::probe`]). It has a dispatcher of its own, which is gone afterwards, as the block is.

use crate::args::{ClusterArgs, NodeArgs, Nodes, ProvideArgs, ProviderKind, duration};
use crate::fault::bad;
use crate::print::{plural, size};
use crate::probe::{Sight, Wanted, judge, sights};
use crate::provide::{self, share_key};
use crate::runtimes::client_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault, dirs, local};
use clap::Args;
use eyas_client::{Choice, JoinFile, Target};
use eyas_cluster::processes::Processes;
use eyas_cluster::provide::shared_state;
use eyas_core::provisioning::blocks::BlockState;
use eyas_runtime::provider::{Share, Source};
use eyas_text::{line_of, shown_path};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the output of the probe is looked at, which costs the batch system nothing.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two listings.
const LIST_EVERY: Duration = Duration::from_secs(5);
/// A node's last lines may be seen so much later than the end of its job.
const LATE: Duration = Duration::from_secs(3);

#[derive(Args)]
pub struct ProviderCheckArgs {
    /// Take options that are not given here from that section of eyas.toml, here or in ~/.config/eyas
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How long the probe may wait in the queue
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration)]
    pub wait: u64,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub provide: ProvideArgs,
}

/// Whoever can show and submit a block.
pub struct Prober {
    pub source: Box<dyn Source>,
    /// What would be submitted, in parts with a heading each.
    pub parts: Vec<(String, String)>,
    pub name: String,
    pub share: Share,
    pub list_every: Option<Duration>,
}

pub fn check(args: ProviderCheckArgs) -> Result<Exit, Fault> {
    let n_nodes = args.provide.nodes_per_job.unwrap_or(1);
    let cluster = ClusterArgs {
        nodes: Nodes { min: 0, max: n_nodes },
        provide: args.provide.clone(),
        node: args.node.clone(),
        ..ClusterArgs::by_default()
    };
    local::check(&cluster)?;
    provide::check_tools(&cluster)?;
    let dir = dirs::new_run_dir()?;
    let result = with_dispatcher(&args, &cluster, &dir, n_nodes);
    let _ = eyas_runner::sandbox::remove_tree(&dir);
    result
}

fn with_dispatcher(
    args: &ProviderCheckArgs,
    cluster: &ClusterArgs,
    dir: &Path,
    n_nodes: u32,
) -> Result<Exit, Fault> {
    let plan = local::plan(cluster, dir, true)?;
    let mut parts = Processes::default();
    parts.start_dispatchers(&plan, &[0])?;
    let target = JoinFile::new(plan.join_of(0), Choice::Own).read()?;
    let mut prober = prober(args, &target, plan.cluster_dir(), n_nodes)?;
    let result = probe(args, &mut prober, n_nodes);
    prober.share.remove();
    parts.stop();
    result
}

/// Who submits the probe of `eyas provider check`, with what it would submit.
fn prober(args: &ProviderCheckArgs, target: &Target, dir: &Path, n_nodes: u32) -> Result<Prober, Fault> {
    let shape = args.provide.shape_with(&args.node);
    let mut launch = shape.launch()?;
    launch.node_args.push("--probe".into());
    let cluster = target.cluster();
    let share = Share::of(&shared_state()?, cluster);
    share_key(&share, target.path())?;
    let (name, log_dir) = (format!("eyas-{cluster}-1"), dir.to_path_buf());
    let list_every = args.provide.list_every.map(Duration::from_nanos);
    let fail = |e: String| Fault::new(Exit::Cluster, e);
    let (source, mut parts): (Box<dyn Source>, _) = match args.provide.provider {
        ProviderKind::Command => {
            let mut source = shape.commands(cluster, launch, share.clone(), log_dir)?;
            let start = source.describe(&name).map_err(fail)?;
            (Box::new(source), vec![("The command that starts a node:".to_string(), start)])
        }
        kind if kind.is_batch() => {
            let mut source = shape.batch(cluster, launch, share.clone(), log_dir);
            source.open()?;
            let (script, command) = source.describe(&name, n_nodes).map_err(fail)?;
            let mut parts = vec![];
            if !script.is_empty() {
                parts.push((format!("What is submitted, by {command}:"), script));
            }
            (Box::new(source), parts)
        }
        kind => {
            let message = format!("a probe is a job, and --provider {} has none", kind.name());
            return Err(bad(message).hint("`eyas up` says at once what is wrong with hosts"));
        }
    };
    let script = std::fs::read_to_string(share.dir().join(format!("{name}.sh")))?;
    parts.push(("What each node runs:".into(), script));
    Ok(Prober { source, parts, name, share, list_every })
}

fn probe(args: &ProviderCheckArgs, prober: &mut Prober, n_nodes: u32) -> Result<Exit, Fault> {
    for (heading, text) in &prober.parts {
        crate::show!("{heading}");
        for line in text.lines() {
            crate::show!("    {}", line_of(line));
        }
    }
    let left = when_asked_to_end();
    let name = prober.name.clone();
    let submitted = Instant::now();
    let id = prober.source.submit(&name, n_nodes).map_err(|why| refused(args.provide.provider, &why))?;
    crate::show!("submitted   {name}, which the batch system calls {}", line_of(&id));
    let result = follow(args, prober, submitted, n_nodes, &left);
    // Whatever was found, the probe goes.
    if let Err(why) = prober.source.cancel(&id, &name)
        && result.is_err()
    {
        eyas_text::say!("note: {name} may have to be ended by hand: {why}");
    }
    let outputs = result?;
    let program = args.provide.shape().program()?;
    let program = program.display().to_string();
    let wanted = Wanted {
        program: &program,
        cache_bytes: args.node.cache,
        node_dir: args.provide.node_dir.as_deref(),
    };
    let mut wrongs = vec![];
    for output in &outputs {
        show_sights(output);
        for wrong in judge(output, &wanted) {
            if !wrongs.contains(&wrong) {
                wrongs.push(wrong);
            }
        }
    }
    if outputs.len() < n_nodes as usize {
        let message = format!("of {n_nodes} nodes of the job only {} started an executor", outputs.len());
        return Err(Fault::new(Exit::Cluster, message).hint("look at the launcher of the job's script"));
    }
    let Some((last, before)) = wrongs.split_last() else {
        crate::show!("good: nodes can be taken like this");
        return Ok(Exit::Good);
    };
    for wrong in before {
        eyas_text::say!("error: {}", wrong.message);
        wrong.hint.iter().for_each(|hint| eyas_text::say!("hint: {hint}"));
    }
    let fault = Fault::new(Exit::Cluster, &last.message);
    Err(match &last.hint {
        Some(hint) => fault.hint(hint.as_str()),
        None => fault,
    })
}

/// Becomes true when the user does not want to wait any longer.
fn when_asked_to_end() -> Arc<AtomicBool> {
    let left = Arc::new(AtomicBool::new(false));
    let flag = left.clone();
    std::thread::spawn(move || {
        client_runtime().block_on(async {
            if let Ok(mut asked) = AskedToEnd::listen() {
                asked.next().await;
                flag.store(true, Ordering::Relaxed);
            }
        });
    });
    left
}

/// Waits until the probe is over. Gives what each of its nodes printed.
fn follow(
    args: &ProviderCheckArgs,
    prober: &mut Prober,
    submitted: Instant,
    n_nodes: u32,
    left: &AtomicBool,
) -> Result<Vec<String>, Fault> {
    let wait = Duration::from_nanos(args.wait);
    let list_every = prober.list_every.unwrap_or(LIST_EVERY).min(LIST_EVERY);
    let mut next_listing = submitted + list_every.min(Duration::from_secs(1));
    let (mut n_unlisted, mut has_started) = (0, false);
    let mut waits_for = String::new();
    let mut ended: Option<(String, Instant)> = None;
    loop {
        std::thread::sleep(LOOK);
        if left.load(Ordering::Relaxed) {
            return Err(Fault::new(Exit::Interrupted, "the probe was not waited for, and is ended"));
        }
        let outputs = outputs_of(prober);
        let is_done = |text: &String| sights(text).contains(&Sight::Done);
        if outputs.iter().filter(|text| is_done(text)).count() >= n_nodes as usize {
            return Ok(outputs);
        }
        if let Some((why, since)) = &ended {
            if since.elapsed() < LATE {
                continue;
            }
            return match outputs.is_empty() {
                false => Ok(outputs),
                true => {
                    let why = line_of(why).to_string();
                    let words = prober.source.last_words(&prober.name);
                    let said = words.map_or("it printed nothing".into(), |words| format!("it said: {words}"));
                    let message = format!("the job ended before its script began: {why}; {said}");
                    let hint =
                        "nodes have to see ~/.local/state/eyas (or $XDG_STATE_HOME/eyas) under the same path";
                    Err(Fault::new(Exit::Cluster, message).hint(hint))
                }
            };
        }
        if Instant::now() >= next_listing {
            next_listing = Instant::now() + list_every;
            let all = prober.source.list();
            let all =
                all.map_err(|why| Fault::new(Exit::Cluster, format!("jobs cannot be listed: {why}")))?;
            let line = all.into_iter().find(|line| line.name == prober.name);
            if let Some(line) = &line {
                waits_for.clone_from(&line.why);
            }
            match line.map(|line| line.state) {
                Some(BlockState::Stuck(why) | BlockState::Ended(why)) => ended = Some((why, Instant::now())),
                Some(BlockState::Running) => {
                    n_unlisted = 0;
                    if !std::mem::replace(&mut has_started, true) {
                        crate::show!("started     within {:.0} s", submitted.elapsed().as_secs_f64().ceil());
                    }
                }
                Some(BlockState::Queued) => n_unlisted = 0,
                None => n_unlisted += 1,
            }
            if n_unlisted == 2 {
                ended = Some(("it is not listed any more".into(), Instant::now()));
            }
        }
        if submitted.elapsed() > wait {
            let waited = wait.as_secs();
            return Err(match has_started {
                true => Fault::new(
                    Exit::Cluster,
                    format!("the job runs, and its node said nothing in {waited} s"),
                )
                .hint("a line of --setup may wait for something"),
                false => {
                    let said = match waits_for.is_empty() {
                        true => String::new(),
                        false => format!("; the batch system says why: {}", line_of(&waits_for)),
                    };
                    let message = format!("the job still waits in the queue after {waited} s{said}");
                    Fault::new(Exit::Cluster, message).hint("--wait 1h waits longer")
                }
            });
        }
    }
}

/// What the nodes of the probe have printed so far.
fn outputs_of(prober: &Prober) -> Vec<String> {
    let begin = format!("{}.", prober.name);
    let mut found: Vec<_> = std::fs::read_dir(prober.share.dir())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&begin) && name.ends_with(".log")
        })
        .collect();
    found.sort();
    let text = |path: &std::path::PathBuf| {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    };
    found.iter().map(text).collect()
}

fn show_sights(output: &str) {
    for sight in sights(output) {
        match sight {
            Sight::Program { host, processors, memory_bytes } => {
                let memory = size(memory_bytes);
                let processors = plural(u64::from(processors), "processor");
                crate::show!("node        {}: {processors}, {memory} of memory", line_of(&host));
            }
            Sight::Scratch { dir, free_bytes, wrong: None } => {
                let free = size(free_bytes);
                crate::show!("cache       {}: {free} free", shown_path(Path::new(&dir)));
            }
            Sight::Dispatcher { address, ms, wrong: None } => {
                crate::show!("dispatcher  {} answers within {ms} ms", line_of(&address));
            }
            Sight::Clock { ahead_s } => crate::show!("clock       {:.1} s off", ahead_s.abs()),
            _ => {}
        }
    }
}

/// What a submission that was refused means.
fn refused(provider: ProviderKind, why: &str) -> Fault {
    if provider == ProviderKind::Command {
        // The user's command may ask anything, and the options of batch systems are none of its.
        let message = format!("no node was requested: {}", line_of(why));
        return Fault::new(Exit::Cluster, message).hint("try the command above by hand");
    }
    let message = format!("the batch system takes no job: {}", line_of(why));
    let low = why.to_lowercase();
    let hint = if low.contains("time limit") || low.contains("walltime") {
        "a shorter --walltime may be allowed, or a longer one elsewhere"
    } else if low.contains("partition") {
        "`sinfo` shows the partitions there are; --partition names one"
    } else if low.contains("parallel environment") {
        "`qconf -spl` shows the parallel environments there are; --options pe=NAME names one"
    } else if low.contains("unknown resource") {
        "`qconf -sc` shows the resources there are"
    } else if low.contains("queue") && !low.contains("sbatch") {
        "--queue names another one"
    } else if low.contains("account") {
        "--account names what jobs are charged to; `sacctmgr show associations user=$USER` shows yours"
    } else if low.contains("not found") {
        "the commands of the batch system have to be on PATH here"
    } else {
        "try it by hand with the script above"
    };
    Fault::new(Exit::Cluster, message).hint(hint)
}
