//! Mode *remote*: the program runs at a site, by its store, in a folder that vanishes.
//!
//! The store has to allow it (`eyas store --programs N`), and the caller needs the right to execute on each input. The inputs that the
//! site holds are read where they are; others come to it from other sites. The command that waits has the catalog, and commits what
//! the program made.
//!
//! Source: *Remote* (`Wozniak06` §III-C.3, RCRD): remote computation on replicated data, with busy marks.

use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Plan, PlannedInput, Report};
use crate::program::OnSignal;
use crate::submitted::{Ran as Ended, planned};
use crate::work::WorkFolder;
use crate::{MadeSet, Opened, Outside, Request};
use eyas_catalog::{CarriedFile, CarriedSite, Right, any_turn};
use eyas_keeping::nearness::{Host, Ranked, rank};
use eyas_keeping::sources::Load;
use eyas_site::{Remote, RunAtSite};
use eyas_text::shown;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub fn remote(
    request: &Request,
    opened: &Opened,
    site: Option<String>,
    outside: &dyn Outside,
) -> Result<Option<MadeSet>> {
    if request.inputs.is_empty() {
        return Err(Error::input(
            "--mode remote runs the program at a site that holds an input: name one with --input",
        ));
    }
    for input in &request.inputs {
        opened.catalog.require(&opened.caller, &input.key, Right::Execute)?;
    }
    let mut sites = BTreeMap::new();
    let inputs = planned(request, opened, &mut sites)?;
    // A folder of this machine is not there for a program elsewhere.
    sites.retain(|_, site| site.join.is_some());
    refuse_unreachable(&inputs, &sites)?;
    let candidates = choose(&inputs, &sites, request.explain.then_some(outside))?;

    let work = WorkFolder::new()?;
    let on_signal = OnSignal::listen(outside, work.top.path.clone())?;
    let plan = Plan {
        inputs,
        outputs: request.outputs.iter().map(|output| (output.name.clone(), output.path.clone())).collect(),
        command: request.command.clone(),
        // The store says where.
        here: Path::new("/").into(),
        gathered: Path::new("/").into(),
        hosts_of: sites.keys().map(|site| (site.clone(), BTreeSet::from([site.clone()]))).collect(),
        sites,
        settled_for: None,
        targets: BTreeMap::new(),
    };
    let text = serde_json::to_vec(&plan).expect("a plan is plain");
    let mut ran = None;
    for (at, store) in candidates {
        let printed = &mut |to, piece: &[u8]| {
            // Whoever reads no more of it wants the data set all the same.
            let _ = outside.printed(to, piece);
        };
        // What stays at the site does not travel.
        let is_elsewhere = site.as_ref().is_some_and(|site| *site != at);
        let outputs = (is_elsewhere || request.outputs.is_empty()).then_some(&*work.outputs);
        let ended = store.run(text.clone(), outputs, printed).map_err(Error::from);
        // Others may have taken the last place since it was asked for.
        if let Some(ended) = on_signal.unless_ending(ended)? {
            ran = Some((at, ended));
            break;
        }
    }
    let Some((at, RunAtSite { report, kept })) = ran else {
        return Err(Error::input(
            "all sites that hold inputs run as many programs as they may: try again later",
        ));
    };
    let report: Report = serde_json::from_slice(&report).map_err(|error| {
        Error::new(ErrorKind::Other, format!("the report of the site `{at}` cannot be read: {error}"))
    })?;
    let site = site.or_else(|| (!request.outputs.is_empty()).then(|| at.clone()));
    let in_place = (!kept.is_empty()).then_some((at, kept));
    let ended = Ended { who: "the program".into(), command: &plan.command, site, in_place, outside };
    on_signal.unless_ending(ended.take(request, opened, &work, report))
}

/// Refuses where a file has no copy at a store.
fn refuse_unreachable(inputs: &[PlannedInput], sites: &BTreeMap<String, CarriedSite>) -> Result<()> {
    for input in inputs {
        for file in &input.files {
            if !file.sites.is_empty() && !file.sites.iter().any(|site| sites.contains_key(site)) {
                let folders = file.sites.iter().map(|site| shown(site).to_string()).collect::<Vec<_>>();
                let what = format!(
                    "{} of {} has no copy at a store, only in folders of this machine ({}), which a program elsewhere cannot read",
                    shown(&file.path),
                    shown(&input.text),
                    folders.join(", ")
                );
                let hint = "`eyas data copies LABEL 2` and `eyas data repair` make a copy at a store; --mode local runs the program here";
                return Err(Error::input(what).hint(hint));
            }
        }
    }
    Ok(())
}

/// The sites at which the program may run, with their stores, the best first.
fn choose(
    inputs: &[PlannedInput],
    sites: &BTreeMap<String, CarriedSite>,
    explain: Option<&dyn Outside>,
) -> Result<Vec<(String, Remote)>> {
    let files: Vec<&CarriedFile> = inputs.iter().flat_map(|input| &input.files).collect();
    // All at once: one that does not answer takes its time.
    let asked: Vec<(&String, eyas_catalog::Result<_>)> = std::thread::scope(|scope| {
        let ask = |site: &CarriedSite| {
            let join = site.join.clone().unwrap_or_default();
            scope.spawn(move || {
                Remote::connect(&join).and_then(|store| Ok((store.load_and_programs()?, store)))
            })
        };
        let asking: Vec<_> = sites.iter().map(|(name, site)| (name, ask(site))).collect();
        asking.into_iter().map(|(name, asked)| (name, asked.join().expect("it does not panic"))).collect()
    });
    let mut stores = BTreeMap::new();
    let mut why_not = vec![];
    let mut hosts = vec![];
    for (name, asked) in asked {
        let (load, n_max, store) = match asked {
            Ok(((load, Some(n_max)), store)) => (load, n_max, store),
            Ok(((_, None), _)) => {
                why_not.push(format!("{} runs no programs", shown(name)));
                continue;
            }
            Err(error) => {
                why_not.push(error.to_string());
                continue;
            }
        };
        let Load { n_programs: n_busy, n_transfers } = load;
        if n_busy >= n_max {
            why_not.push(format!("{} runs as many as it may, {n_busy}", shown(name)));
        }
        let held = files.iter().filter(|file| file.sites.contains(name));
        let held_bytes = held.map(|file| file.size_bytes).sum();
        hosts.push(Host {
            name: name.clone(),
            held_bytes,
            takes_programs: n_busy < n_max,
            n_busy,
            n_transfers,
        });
        stores.insert(name.clone(), store);
    }
    let order: Vec<Ranked> = rank(hosts, files.iter().map(|file| file.size_bytes).sum(), any_turn());
    if let Some(outside) = explain {
        order.iter().for_each(|ranked| outside.say(&format!("site {}: {ranked}", ranked.host.name)));
        why_not.iter().for_each(|why| outside.say(why));
    }
    let able = order.into_iter().filter(|ranked| ranked.host.takes_programs);
    let able: Vec<_> = able.filter_map(|ranked| stores.remove_entry(&ranked.host.name)).collect();
    if able.is_empty() {
        let what = match why_not.is_empty() {
            true => "no site holds the inputs".to_owned(),
            false => format!("no site that holds inputs runs the program now: {}", why_not.join("; ")),
        };
        let hint = "`eyas store --programs 2` lets a store run programs; --mode local runs this one here";
        return Err(Error::input(what).hint(hint));
    }
    Ok(able)
}
