//! Modes *scheduled* and *late*: the program runs as a job of a batch system, on hosts that hold its inputs or near them.
//!
//! The command that waits has the catalog. It settles what the inputs are, ranks the hosts, and gives the job a plan with the copies of
//! each file; the job cannot open the catalog, which may be a file of another machine. The outputs come back to the command, which
//! commits them. So whatever becomes of the job, a data set is made of all outputs or not at all.
//!
//! Source: `Wozniak06` §III-C.2 (*scheduled*, SCRD) and §III-C.4 (*late*, Multiple Name Resolution).

use crate::error::{Error, ErrorKind, Result};
use crate::inputs::settle;
use crate::outputs::{Origin, keep};
use crate::plan::{self, Plan, PlannedInput, Report};
use crate::program::OnSignal;
use crate::work::WorkFolder;
use crate::{MadeSet, Mode, Opened, Outside, Request, now_ms};
use eyas_batch::{BatchNode, BatchSystem, Job, Kind, State, Target, nodes_on};
use eyas_catalog::{CarriedFile, CarriedSite, File, SiteState, any_turn, host_of};
use eyas_host::host_name;
use eyas_keeping::nearness::{Host, Ranked, rank};
use eyas_keeping::sources::Load;
use eyas_site::Ran as Stream;
use eyas_text::{line_of, plural, reason, shown, shown_path, size};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the batch system is asked about the job.
const LOOK: Duration = Duration::from_secs(1);
/// How long a job of mode *late* waits for the hosts that it prefers, where it would not start elsewhere by itself.
const PREFER: Duration = Duration::from_secs(5);
/// How long a report may take to come through a network's file system once the job has ended.
const ARRIVAL: Duration = Duration::from_secs(10);

pub fn submitted(
    request: &Request,
    opened: &Opened,
    site: Option<String>,
    outside: &dyn Outside,
) -> Result<Option<MadeSet>> {
    let mut sites = BTreeMap::new();
    let inputs = planned(request, opened, &mut sites)?;
    let scheduler = request.system.unwrap_or_else(Kind::found).system();
    let nodes = scheduler.nodes()?;
    let hosts_of: BTreeMap<String, BTreeSet<String>> =
        sites.iter().map(|(name, site)| (name.clone(), hosts_of(site, &nodes))).collect();
    let answering: BTreeMap<&str, Load> = sites
        .keys()
        .filter_map(|site| Some((&**site, opened.catalog.holding(site).ok()?.load().ok()?)))
        .collect();
    let order = ranking(&inputs, &nodes, &hosts_of, &answering);
    if request.explain {
        for ranked in &order {
            outside.say(&format!("host {}: {ranked}", ranked.host.name));
        }
    }
    let mut aim = Aim::choose(request.mode, &order, &nodes, scheduler)?;
    if aim.is_soft && scheduler.names_hosts(&request.submit_options) {
        // The user has chosen the hosts.
        aim.options.clear();
    }

    let hint = "the option --spool names another folder, which this machine and the hosts of the jobs share";
    let spool = std::path::absolute(request.spool.as_deref().unwrap_or(Path::new(".")))?;
    let work = WorkFolder::below(&spool, hint)?;
    let job: Arc<Mutex<Option<String>>> = Arc::default();
    let cancelled = job.clone();
    let on_signal = OnSignal::listen_and(outside, work.top.path.clone(), move || {
        if let Some(job) = &*cancelled.lock().unwrap_or_else(PoisonError::into_inner) {
            scheduler.cancel(job);
        }
    })?;
    let plan = Plan {
        inputs,
        outputs: request.outputs.iter().map(|output| (output.name.clone(), output.path.clone())).collect(),
        command: command(request, &work.top.path)?,
        here: request.here.clone(),
        gathered: work.outputs.clone(),
        sites,
        hosts_of,
        settled_for: aim.settled_for.clone(),
        targets: targets(request, opened, &nodes)?,
    };
    let plan_path = work.top.path.join("plan.json");
    on_signal.unless_ending(plan::write(&plan_path, &plan))?;
    let id = {
        // A signal waits until the job has a number by which it can be cancelled.
        let _held = on_signal.lock();
        let script = script(request, &plan_path, scheduler.directive())?;
        let (folder, options) = (&work.top.path, &request.submit_options);
        let id = scheduler.submit(&Job { folder, aim: &aim.options, options, script: &script })?;
        *job.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.clone());
        id
    };
    if request.explain {
        outside.say(&format!("job {id} is submitted{}", aim.text(scheduler)));
    }
    let report =
        on_signal.unless_ending(wait(&id, &opened.caller.name, &aim, &work.top.path, scheduler, outside));
    // From here on there is no job to be cancelled.
    *job.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let report = report?;
    bring_back(&work.top.path, outside)?;
    let file = |CarriedFile { path, size_bytes, digest, is_executable, .. }| File {
        path,
        size_bytes,
        digest,
        is_executable,
    };
    let in_place =
        report.kept.clone().map(|(at, files)| (at, files.into_iter().map(file).collect::<Vec<File>>()));
    let site = in_place.as_ref().map(|(at, _)| at.clone()).or(site);
    let ran = Ran { who: format!("job {id}"), command: &plan.command, site, in_place, outside };
    on_signal.unless_ending(ran.take(request, opened, &work, report))
}

/// A program that ran elsewhere, whose outputs are here.
pub struct Ran<'a> {
    /// What ran it, for people: `job 7`
    pub who: String,
    pub command: &'a [String],
    pub site: Option<String>,
    /// The site that has taken the outputs by itself, and the files.
    pub in_place: Option<(String, Vec<File>)>,
    pub outside: &'a dyn Outside,
}

impl Ran<'_> {
    /// Takes what its report says, and makes a data set of the outputs unless it failed.
    pub fn take(
        self,
        request: &Request,
        opened: &Opened,
        work: &WorkFolder,
        report: Report,
    ) -> Result<Option<MadeSet>> {
        for (site, digest) in &report.damaged {
            // A site that cannot be reached is audited when it is back.
            if let Ok(holding) = opened.catalog.holding(site) {
                opened.catalog.doubt(&*holding, *digest, now_ms())?;
            }
        }
        if request.explain {
            say_report(&self.who, &report, self.outside);
        }
        if let Some((number, message, hint)) = report.fault {
            let message = match message.ends_with("no data set was made") || request.outputs.is_empty() {
                true => message,
                false => format!("{message}; no data set was made"),
            };
            let message = match request.script {
                Some(_) => message.replace(&self.command[0], &request.command[0]),
                None => message,
            };
            let error = Error::new(
                ErrorKind::of_number(number),
                format!("{} on {}: {message}", self.who, report.host),
            );
            return Err(hint.into_iter().fold(error, Error::hint));
        }
        let Some(site) = self.site else { return Ok(None) };
        let from: Vec<String> = report.fetched.into_iter().map(|fetched| fetched.text).collect();
        let made = Origin { command: &request.command, from: &from, site };
        let in_place = self.in_place.map(|(_, files)| files);
        keep(&opened.catalog, &opened.caller, request, work, made, in_place.as_deref())
    }
}

/// The inputs with the copies of their files.
pub fn planned(
    request: &Request,
    opened: &Opened,
    sites: &mut BTreeMap<String, CarriedSite>,
) -> Result<Vec<PlannedInput>> {
    let mut inputs = vec![];
    for (input, key) in request.inputs.iter().zip(settle(opened, &request.inputs)?) {
        let mut files = opened.catalog.carry(&opened.caller, &key, sites)?;
        if let Some(path) = &input.path {
            files.retain(|file| file.path == *path);
            if files.is_empty() {
                let what = format!("`{key}` has no file {}: `eyas data ls {key}` lists them", shown(path));
                return Err(Error::input(what));
            }
        }
        if let Some(site) = &input.site {
            opened.catalog.only_at(site, &key, &mut files)?;
        }
        let path = input.path.as_ref().map(|path| format!("/{path}")).unwrap_or_default();
        let text = format!("/{key}{path} as {}", input.name.display());
        inputs.push(PlannedInput { name: input.name.clone(), text, is_file: input.path.is_some(), files });
    }
    Ok(inputs)
}

/// Stores that may take the outputs where the job runs, with the nodes on whose host each is; none where there are no outputs. The
/// one that the user names takes them from any host.
fn targets(
    request: &Request,
    opened: &Opened,
    nodes: &[BatchNode],
) -> Result<BTreeMap<String, (CarriedSite, BTreeSet<String>)>> {
    let mut found = BTreeMap::new();
    if request.outputs.is_empty() {
        return Ok(found);
    }
    for site in opened.catalog.sites()? {
        let is_meant = request.site.as_ref().is_none_or(|named| *named == site.name);
        if site.state == SiteState::Up && site.is_store && is_meant {
            let carried = opened.catalog.carried_site(&site.name)?;
            let hosts = match request.site {
                Some(_) => nodes.iter().map(|node| node.name.clone()).collect(),
                None => hosts_of(&carried, nodes),
            };
            if !hosts.is_empty() {
                found.insert(site.name, (carried, hosts));
            }
        }
    }
    Ok(found)
}

/// The nodes on whose host a site is. A folder is on this machine; a store is where its address says.
fn hosts_of(site: &CarriedSite, nodes: &[BatchNode]) -> BTreeSet<String> {
    match &site.join {
        None => nodes_on(&host_name(), nodes),
        Some(_) => nodes_on(host_of(&site.address), nodes),
    }
}

/// The nodes in order of preference.
fn ranking(
    inputs: &[PlannedInput],
    nodes: &[BatchNode],
    hosts_of: &BTreeMap<String, BTreeSet<String>>,
    answering: &BTreeMap<&str, Load>,
) -> Vec<Ranked> {
    let files: Vec<&CarriedFile> = inputs.iter().flat_map(|input| &input.files).collect();
    let hosts = nodes.iter().map(|node| {
        let is_here =
            |site: &String| answering.contains_key(site.as_str()) && hosts_of[site].contains(&node.name);
        let loads = answering.iter().filter(|(site, _)| hosts_of[**site].contains(&node.name));
        let held = files.iter().filter(|file| file.sites.iter().any(is_here));
        Host {
            name: node.name.clone(),
            held_bytes: held.map(|file| file.size_bytes).sum(),
            takes_programs: node.takes_jobs,
            n_busy: node.n_busy,
            n_transfers: loads.map(|(_, load)| load.n_transfers).sum(),
        }
    });
    rank(hosts.collect(), files.iter().map(|file| file.size_bytes).sum(), any_turn())
}

/// The hosts that a job is aimed at.
struct Aim {
    /// What says so to the batch system; none: any host will do.
    options: Vec<String>,
    hosts: Vec<String>,
    /// Whether the job may start elsewhere after a while.
    is_soft: bool,
    settled_for: Option<String>,
}

impl Aim {
    fn choose(mode: Mode, order: &[Ranked], nodes: &[BatchNode], scheduler: &dyn BatchSystem) -> Result<Aim> {
        let system = scheduler.name();
        let best = order.first().ok_or_else(|| Error::input(format!("{system} has no nodes")))?;
        let is_soft = mode == Mode::Late;
        let is_aimed = |ranked: &&Ranked| match is_soft {
            true => ranked.host.takes_programs && ranked.moved_bytes == best.moved_bytes,
            false => ranked.holds_all(),
        };
        let hosts: Vec<String> =
            order.iter().filter(is_aimed).map(|ranked| ranked.host.name.clone()).collect();
        if hosts.is_empty() && !is_soft {
            let what = format!(
                "no host of {system} holds all inputs and takes jobs now; the nearest is {}, which {best}",
                best.host.name
            );
            return Err(Error::input(what)
                .hint("--mode late runs the job near its inputs, and moves what is missing"));
        }
        let settled_for = hosts.first().filter(|_| !is_soft).cloned();
        let options = scheduler.aim(&Target { hosts: &hosts, all: nodes, is_soft });
        Ok(Aim { options, hosts, is_soft, settled_for })
    }

    fn text(&self, scheduler: &dyn BatchSystem) -> String {
        match (self.options.is_empty(), self.is_soft) {
            (true, _) => ", for any host".to_owned(),
            (false, false) => format!(", for {} only", self.hosts.join(", ")),
            (false, true) => format!(", for {} {}", self.hosts.join(", "), scheduler.soft_words()),
        }
    }
}

/// The command as the job runs it. A batch script travels with the job.
fn command(request: &Request, top: &Path) -> Result<Vec<String>> {
    let Some(script) = &request.script else { return Ok(request.command.clone()) };
    let copy = top.join("script");
    fs::copy(script, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700))?;
    Ok(vec![copy.display().to_string()])
}

fn script(request: &Request, plan: &Path, directive: &str) -> Result<String> {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let lines = request.script.as_deref().map(|path| lines_for(directive, path)).transpose()?;
    let lines = lines.unwrap_or_default();
    let program = std::env::current_exe()?;
    Ok(format!("#!/bin/sh\n{lines}exec {} at-data-job {}\n", quoted(&program), quoted(plan)))
}

/// Waits until the job has ended, and gives its report.
fn wait(
    id: &str,
    user: &str,
    aim: &Aim,
    top: &Path,
    scheduler: &dyn BatchSystem,
    outside: &dyn Outside,
) -> Result<Report> {
    let (submitted, system) = (Instant::now(), scheduler.name());
    let (mut is_released, mut is_silent) = (!aim.is_soft || aim.options.is_empty(), false);
    let ended = loop {
        match scheduler.state(id, user) {
            Ok(State::Waits) if !is_released && submitted.elapsed() >= PREFER => {
                scheduler.release(id);
                is_released = true;
            }
            Ok(state @ (State::Ended | State::Failed(_) | State::Gone)) => break state,
            Ok(_) if is_silent => {
                is_silent = false;
                outside.say(&format!("{system} answers again"));
            }
            Ok(_) => {}
            Err(error) if !is_silent => {
                is_silent = true;
                outside
                    .say(&format!("{system} does not answer, and job {id} is waited for: {}", error.message));
            }
            Err(_) => {}
        }
        std::thread::sleep(LOOK);
    };
    let path = top.join("report.json");
    let asked = Instant::now();
    let may_have_reported = !matches!(ended, State::Failed(_));
    while !path.exists() && asked.elapsed() < ARRIVAL && may_have_reported {
        std::thread::sleep(Duration::from_millis(100));
    }
    if path.exists() {
        return plan::read(&path);
    }
    // What the job has said is the best that there is to find out why.
    bring_back(top, outside)?;
    let how = match ended {
        State::Failed(how) => {
            // It may still be in the queue.
            scheduler.cancel(id);
            format!("ended as {how}")
        }
        State::Gone => format!("is not known to {system} any more"),
        _ => "ended".to_owned(),
    };
    Err(Error::new(ErrorKind::Program, format!("job {id} {how} and left no report; no data set was made")))
}

/// Prints what the job has printed.
fn bring_back(top: &Path, outside: &dyn Outside) -> Result<()> {
    let printed = |name: &str| fs::read(top.join(name)).unwrap_or_default();
    // What a program prints is its own, as where it has the streams of this command.
    outside.printed(Stream::ToStdout, &printed("stdout"))?;
    outside.printed(Stream::ToStderr, &printed("stderr"))?;
    Ok(())
}

fn say_report(who: &str, report: &Report, outside: &dyn Outside) {
    outside.say(&format!("{who} ran on {}", report.host));
    for fetched in &report.fetched {
        let sites = fetched.sites.iter().cloned().collect::<Vec<_>>().join(", ");
        let n_sites = plural(fetched.sites.len() as u64, "site");
        let text = line_of(&fetched.text);
        let (near, far) = (size(fetched.near_bytes), size(fetched.far_bytes));
        outside.say(&format!(
            "input {text}: {near} from this host, {far} over the network, from {n_sites}: {sites}"
        ));
    }
}

/// The lines of a script that are for a batch system, which begin with `directive`.
fn lines_for(directive: &str, script: &Path) -> Result<String> {
    let text = read_script(script)?;
    let lines = text.lines().filter(|line| line.starts_with(directive));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// The text of a batch script. Errors: it cannot be read, or is none.
pub fn read_script(script: &Path) -> Result<String> {
    let text = fs::read_to_string(script).map_err(|error| {
        Error::input(format!("cannot read the script {}: {}", shown_path(script), reason(&error)))
    })?;
    match text.starts_with("#!") {
        true => Ok(text),
        false => Err(Error::input(format!(
            "the script {} does not begin with #!, as in #!/bin/sh",
            shown_path(script)
        ))),
    }
}
