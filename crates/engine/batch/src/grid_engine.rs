//! Grid Engine.

use crate::{
    BatchNode, BatchSystem, Env, HOSTS_OF_GRID_ENGINE, Job, Result, State, Target, Times, names_of_file,
};
use eyas_text::line_of;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long it may take to say when a job ends.
const ANSWER_MAX: Duration = Duration::from_secs(10);

pub struct GridEngine;

impl BatchSystem for GridEngine {
    fn name(&self) -> &'static str {
        "Grid Engine"
    }

    fn nodes(&self) -> Result<Vec<BatchNode>> {
        Ok(nodes_of(&ask(&["qstat", "-f", "-xml"], None)?))
    }

    /// What is soft is a wish: the job starts on these hosts if one is free, and else elsewhere at once.
    fn aim(&self, target: &Target) -> Vec<String> {
        if target.hosts.is_empty() || target.hosts.len() == target.all.len() {
            return vec![];
        }
        let kind = if target.is_soft { "-soft" } else { "-hard" };
        let hosts = format!("hostname={}", target.hosts.join("|"));
        [kind, "-l", &hosts, "-hard"].map(str::to_owned).to_vec()
    }

    fn soft_words(&self) -> String {
        "if there is a free slot".to_owned()
    }

    /// `-l hostname=…`, `-l h=…`, or a queue of one host.
    fn names_hosts(&self, options: &[String]) -> bool {
        let words = || options.iter().flat_map(|option| option.split_whitespace());
        let names = |word: &str| {
            let word = word.trim_start_matches("-l").trim_start_matches("-q");
            word.contains('@')
                || word.split(',').any(|part| part.starts_with("hostname=") || part.starts_with("h="))
        };
        words().any(names)
    }

    fn directive(&self) -> &'static str {
        "#$"
    }

    fn submit(&self, job: &Job) -> Result<String> {
        let folder = job.folder.display().to_string();
        let (stdout, stderr) = (format!("{folder}/stdout"), format!("{folder}/stderr"));
        // It is told before it is killed (-notify), and is not run again where its host fails.
        let mut words = vec!["qsub", "-terse", "-N", "eyas-at-data", "-S", "/bin/sh", "-r", "n", "-notify"];
        words.extend(["-wd", &folder, "-o", &stdout, "-e", &stderr]);
        words.extend(job.aim.iter().map(String::as_str));
        // An option and its value may stand in one text.
        words.extend(job.options.iter().flat_map(|option| option.split_whitespace()));
        let text = ask(&words, Some(job.script))?;
        Ok(text.trim().to_owned())
    }

    fn state(&self, job: &str, user: &str) -> Result<State> {
        let listed = ask(&["qstat", "-u", user], None)?;
        match state_of(&listed, job) {
            State::Failed(state) => {
                let why = ask(&["qstat", "-j", job], None).ok().and_then(|text| error_of(&text));
                Ok(State::Failed(why.map_or(state.clone(), |why| format!("{state}: {why}"))))
            }
            state => Ok(state),
        }
    }

    fn cancel(&self, job: &str) {
        let _ = ask(&["qdel", job], None);
    }

    fn hosts_here(&self, env: Env<'_>) -> Option<std::result::Result<Vec<(String, Option<u32>)>, String>> {
        let path = env(HOSTS_OF_GRID_ENGINE)?;
        Some(names_of_file(Path::new(&path)).map(hosts_of))
    }

    /// Those of the first host of the job's list, or all of a job on one host.
    fn slots_here(&self, env: Env<'_>) -> Option<u32> {
        env("SGE_JOB_SPOOL_DIR")?;
        let number = |name: &str| env(name)?.parse::<u32>().ok().filter(|n| *n > 0);
        match (number("NHOSTS").unwrap_or(1), env(HOSTS_OF_GRID_ENGINE)) {
            (2.., Some(path)) => hosts_of(names_of_file(Path::new(&path)).ok()?).first()?.1,
            _ => number("NSLOTS"),
        }
    }

    /// The environment of a job does not say it, so `qstat -j` is asked, once.
    fn times_here(&self, env: Env<'_>) -> Option<Times> {
        env("SGE_JOB_SPOOL_DIR")?;
        let job = env("JOB_ID")?;
        let mut command = Command::new("qstat");
        command.args(["-j", &job, "-xml"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut asked = command.spawn().ok()?;
        let mut pipe = asked.stdout.take().expect("it is a pipe");
        let (give, answer) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            let _ = give.send(text);
        });
        let text = answer.recv_timeout(ANSWER_MAX).ok();
        let _ = asked.kill();
        let _ = asked.wait();
        let (limit_s, start_s) = limit_and_start(&text?)?;
        Some(Times { start_s: Some(start_s), end_s: start_s + limit_s })
    }

    fn node_here(&self, env: Env<'_>) -> Option<String> {
        env("HOSTNAME")
    }
}

/// A host, its slots, its queue and its processors stand on each line.
fn hosts_of(lines: Vec<String>) -> Vec<(String, Option<u32>)> {
    let of = |line: String| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_string();
        Some((name, words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0)))
    };
    lines.into_iter().filter_map(of).collect()
}

/// The time limit `h_rt` and the start of a job, of what `qstat -j JOB -xml` prints. `None`: it has no limit, or does not run.
fn limit_and_start(xml: &str) -> Option<(u64, u64)> {
    let value = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once('<')?.0.parse::<f64>().ok()
    };
    let (_, request) = xml.split_once("<CE_name>h_rt</CE_name>")?;
    let limit_s = value(request, "CE_doubleval").filter(|s| *s > 0.0)?;
    let start_s = value(xml, "JAT_start_time").filter(|s| *s > 0.0)?;
    // Newer ones count in milliseconds.
    let start_s = if start_s > 1e11 { start_s / 1_000.0 } else { start_s };
    Some((limit_s as u64, start_s as u64))
}

/// The hosts of `qstat -f -xml`, which has an element for each queue on each host.
fn nodes_of(text: &str) -> Vec<BatchNode> {
    let mut nodes: BTreeMap<&str, BatchNode> = BTreeMap::new();
    for queue in text.split("<Queue-List>").skip(1) {
        // Jobs in it have states, too.
        let queue = queue.split("<job_list").next().unwrap_or_default();
        let value = |name: &str| {
            let (_, rest) = queue.split_once(&format!("<{name}>"))?;
            rest.split_once("</").map(|(value, _)| value.trim())
        };
        let Some((_, host)) = value("name").and_then(|name| name.split_once('@')) else { continue };
        if !value("qtype").is_some_and(|kinds| kinds.contains('B')) {
            continue;
        }
        let node = nodes.entry(host).or_insert_with(|| {
            let short = host.split('.').next().unwrap_or(host);
            let names =
                if short == host { vec![host.to_owned()] } else { vec![host.to_owned(), short.to_owned()] };
            BatchNode { name: host.to_owned(), names, takes_jobs: false, n_busy: 0 }
        });
        // Whatever is said of its state (alarm, unknown, disabled, error, suspended), nothing starts there now.
        let is_well = value("state").is_none_or(str::is_empty) && value("arch") != Some("NA");
        node.takes_jobs |= is_well;
        node.n_busy += value("slots_used").and_then(|n| n.parse().ok()).unwrap_or(0);
    }
    nodes.into_values().collect()
}

/// The state of a job in the table of `qstat`.
fn state_of(text: &str, job: &str) -> State {
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let Some(row) = rows.into_iter().find(|row| row.first() == Some(&job)) else { return State::Gone };
    match row.get(4).copied().unwrap_or_default() {
        state if state.contains('E') => State::Failed(state.to_owned()),
        state if state.contains('w') || state.contains('h') => State::Waits,
        _ => State::Runs,
    }
}

/// `error reason    1:          …`, of `qstat -j`.
fn error_of(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("error reason"))?;
    let (_, reason) = line.split_once(':')?;
    Some(line_of(reason.trim()).to_string())
}

fn ask(words: &[&str], input: Option<&str>) -> Result<String> {
    crate::ask("Grid Engine", words, input, reason_of).map_err(|mut error| {
        if error.said.contains("SGE_ROOT") || error.said.contains("act_qmaster") {
            error.hint = Some(
                "this machine belongs to no cluster of Grid Engine, or its settings.sh was not read: `qhost` shows \
                 the cluster where it does",
            );
        }
        error
    })
}

/// `Unable to run job: …`, of which the first line says why.
fn reason_of(said: &str) -> &str {
    let first = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    first.strip_prefix("Unable to run job: ").or(first.strip_prefix("error: ")).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_all_queues() {
        let queue = |name: &str, used: u32, rest: &str| {
            format!(
                "<Queue-List>\n<name>{name}</name>\n<qtype>BIP</qtype>\n<slots_used>{used}</slots_used>\n{rest}\n\
                 <job_list state=\"running\">\n<state>r</state>\n</job_list>\n</Queue-List>\n"
            )
        };
        let text = [
            queue("all.q@n1.lab", 2, "<arch>lx-amd64</arch>"),
            queue("all.q@n2", 0, "<arch>lx-amd64</arch><state>au</state>"),
            queue("long.q@n1.lab", 1, "<arch>lx-amd64</arch><state>d</state>"),
            queue("all.q@n3", 0, "<arch>NA</arch>"),
        ];
        let found = nodes_of(&text.concat());
        let seen: Vec<_> = found.iter().map(|node| (&*node.name, node.takes_jobs, node.n_busy)).collect();
        assert_eq!(seen, [("n1.lab", true, 3), ("n2", false, 0), ("n3", false, 0)]);
        assert_eq!(found[0].names, ["n1.lab", "n1"]);
    }

    #[test]
    fn a_job_waits_runs_or_has_an_error() {
        let table = "job-ID  prior   name  user  state submit/start at  queue  slots\n---\n\
                     4 0.75 f root r 11/27/2026 15:06:17 all.q@g2 1\n5 0.5 f root qw 11/27/2026 15:06:17 1\n\
                     9 0.25 z root Eqw 11/27/2026 15:06:23 1\n12 0.2 z root dr 11/27/2026 15:06:23 all.q@g2 1\n";
        let states = ["4", "5", "9", "12", "1"].map(|job| state_of(table, job));
        let failed = State::Failed("Eqw".to_owned());
        assert_eq!(states, [State::Runs, State::Waits, failed, State::Runs, State::Gone]);
    }

    #[test]
    fn options_name_hosts_or_not() {
        let names = |options: &[&str]| {
            GridEngine.names_hosts(&options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>())
        };
        assert!(names(&["-l hostname=g1"]) && names(&["-l", "h_rt=60,h=g1"]) && names(&["-q all.q@g1"]));
        assert!(!names(&["-l h_rt=60", "-q", "long.q", "-P", "lab"]));
    }

    #[test]
    fn grid_engine_says_a_limit_and_a_start() {
        let xml = "<JB_hard_resource_list><qstat_l_requests><CE_name>h_vmem</CE_name><CE_doubleval>7.0</CE_doubleval>\
                   </qstat_l_requests><qstat_l_requests><CE_name>h_rt</CE_name><CE_valtype>3</CE_valtype>\
                   <CE_stringval>300</CE_stringval><CE_doubleval>300.000000</CE_doubleval></qstat_l_requests>\
                   </JB_hard_resource_list><JAT_start_time>1795589341</JAT_start_time>";
        assert_eq!(limit_and_start(xml), Some((300, 1_795_589_341)));
        assert_eq!(
            limit_and_start(&xml.replace("9341", "9341000")),
            Some((300, 1_795_589_341)),
            "milliseconds"
        );
        assert_eq!(limit_and_start(&xml.replace("h_rt", "s_rt")), None);
        assert_eq!(limit_and_start(&xml.replace("JAT_start", "other")), None);
        assert_eq!(limit_and_start(""), None);
    }

    #[test]
    fn a_host_has_the_slots_of_its_line_or_all_of_a_job_on_one_host() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        std::fs::write(&path, "g1 3 all.q@g1 UNDEFINED\ng2 1 all.q@g2 UNDEFINED\n").unwrap();
        let of = |variables: &[(&str, &str)]| {
            GridEngine.slots_here(&|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
            })
        };
        let spool = ("SGE_JOB_SPOOL_DIR", "/spool");
        assert_eq!(of(&[("NSLOTS", "4")]), None, "it is no job of Grid Engine");
        assert_eq!(of(&[spool, ("NSLOTS", "4"), ("NHOSTS", "1")]), Some(4));
        let file = path.display().to_string();
        assert_eq!(of(&[spool, ("NSLOTS", "4"), ("NHOSTS", "2"), (HOSTS_OF_GRID_ENGINE, &file)]), Some(3));
    }
}
