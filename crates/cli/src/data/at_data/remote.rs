//! Mode *remote*: the program runs at a site, by its store, in a folder that vanishes.
//!
//! The store has to allow it (`eyas store --programs N`), and the caller needs the right to execute on each input. The inputs that the
//! site holds are read where they are; others come to it from other sites. The command that waits has the catalog, and commits what
//! the program made.
//!
//! Source: *Remote* (`Wozniak06` §III-C.3, RCRD): remote computation on replicated data, with busy marks.

use super::args::AtDataArgs;
use super::plan::{Plan, PlannedInput, Report};
use super::submitted::{Ran as Ended, planned};
use super::work::Work;
use crate::data::open::Opened;
use crate::data::program::OnSignal;
use crate::fault::bad;
use crate::{Exit, Fault};
use eyas_catalog::{CarriedFile, CarriedSite, Right, Tag};
use eyas_core::replication::nearness::{Host, Ranked, rank};
use eyas_site::{Ran, Remote};
use eyas_text::{say, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

pub fn remote(args: &AtDataArgs, opened: &Opened, site: Option<String>, tags: &[Tag]) -> Result<Exit, Fault> {
    if args.inputs.is_empty() {
        return Err(bad(
            "--mode remote runs the program at a site that holds an input: name one with --input",
        ));
    }
    for input in &args.inputs {
        opened.catalog.require(&opened.caller, &input.key, Right::Execute)?;
    }
    let mut sites = BTreeMap::new();
    let inputs = planned(args, opened, &mut sites)?;
    let (at, store) = choose(&inputs, &sites, args.explain)?;

    let work = Work::new()?;
    let on_signal = OnSignal::listen(work.top.path.clone())?;
    let plan = Plan {
        inputs,
        outputs: args.outputs.iter().map(|output| (output.name.clone(), output.path.clone())).collect(),
        command: args.command.clone(),
        // The store says where.
        here: Path::new("/").into(),
        gathered: Path::new("/").into(),
        hosts_of: sites.keys().map(|site| (site.clone(), BTreeSet::from([site.clone()]))).collect(),
        sites,
        settled_for: None,
    };
    let text = serde_json::to_vec(&plan).expect("a plan is plain");
    let ran = store.run(text, &work.outputs, &mut |to, piece| {
        // Whoever reads no more of it wants the data set all the same.
        let _ = match to {
            Ran::ToStdout => eyas_text::printed_stdout().write_all(piece),
            Ran::ToStderr => eyas_text::printed_stderr().write_all(piece),
        };
    });
    let report = on_signal.unless_ending(ran.map_err(Fault::from))?;
    let report: Report = serde_json::from_slice(&report).map_err(|error| {
        Fault::new(Exit::Other, format!("the report of the site `{at}` cannot be read: {error}"))
    })?;
    let site = site.or_else(|| (!args.outputs.is_empty()).then(|| at.clone()));
    let ended = Ended { who: "the program".into(), command: &plan.command, site, tags };
    on_signal.unless_ending(ended.take(args, opened, &work, report))
}

/// The site at which the program runs, and its store.
fn choose(
    inputs: &[PlannedInput],
    sites: &BTreeMap<String, CarriedSite>,
    explain: bool,
) -> Result<(String, Remote), Fault> {
    let files: Vec<&CarriedFile> = inputs.iter().flat_map(|input| &input.files).collect();
    let mut stores = BTreeMap::new();
    let mut why_not = vec![];
    let mut hosts = vec![];
    for (name, site) in sites {
        let Some(join) = &site.join else {
            why_not.push(format!("{} is a folder", shown(name)));
            continue;
        };
        let asked = Remote::connect(join).and_then(|store| Ok((store.programs()?, store)));
        let (n_busy, n_max, store) = match asked {
            Ok((Some((n_busy, n_max)), store)) => (n_busy, n_max, store),
            Ok((None, _)) => {
                why_not.push(format!("{} runs no programs", shown(name)));
                continue;
            }
            Err(error) => {
                why_not.push(error.to_string());
                continue;
            }
        };
        if n_busy >= n_max {
            why_not.push(format!("{} runs as many as it may, {n_busy}", shown(name)));
        }
        let held = files.iter().filter(|file| file.sites.contains(name));
        let held_bytes = held.map(|file| file.size_bytes).sum();
        hosts.push(Host { name: name.clone(), held_bytes, takes_programs: n_busy < n_max, n_busy });
        stores.insert(name.clone(), store);
    }
    let order: Vec<Ranked> = rank(hosts, files.iter().map(|file| file.size_bytes).sum());
    if explain {
        order.iter().for_each(|ranked| say!("site {}: {ranked}", ranked.host.name));
        why_not.iter().for_each(|why| say!("{why}"));
    }
    let chosen = order.into_iter().find(|ranked| ranked.host.takes_programs);
    let store = chosen.and_then(|ranked| stores.remove_entry(&ranked.host.name));
    store.ok_or_else(|| {
        let what = match why_not.is_empty() {
            true => "no site holds the inputs".to_owned(),
            false => format!("no site that holds inputs runs the program now: {}", why_not.join("; ")),
        };
        bad(what).hint("`eyas store --programs 2` lets a store run programs; --mode local runs this one here")
    })
}
