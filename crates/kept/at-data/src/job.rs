//! `eyas at-data-job`: what a batch job of `eyas at-data` does when it has arrived on its host.
//!
//! Source: *Late Resolution* (`Wozniak06` §III-C.4): "determine the host this task is occupying; locate all required files, and prefer
//! locations that are on this host".

use crate::error::{Error, ErrorKind, Result};
use crate::outputs::gather;
use crate::plan::{self, Fetched, Plan, PlannedInput, Report};
use crate::program::{OnSignal, run, run_in_box};
use crate::stranger::StrangerBox;
use crate::work::WorkFolder;
use crate::{Output, Outside};
use eyas_batch::{Kind, env};
use eyas_catalog::{CarriedFile, CarriedSite, Fetcher, File, Reach, take_in};
use eyas_data::Digest;
use eyas_host::host_name;
use eyas_text::{reason, shown, shown_path};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a job is given.
pub struct Job<'a> {
    /// The plan that `eyas at-data` wrote.
    pub plan: &'a Path,
    /// The site of the store that runs this.
    pub site: Option<&'a str>,
    /// The folder of that store, whose objects are read where they are.
    pub objects: Option<&'a Path>,
    /// The folder in which the program works; what it makes goes into `outputs` there.
    pub folder: Option<&'a Path>,
    /// The folders that a program in a box sees besides the system's; `None`: the program runs without a box, as this user.
    pub shown_in_box: Option<&'a [PathBuf]>,
}

/// Does what the plan says, and writes a report beside it. Gives whether the program ended well and made what it should.
pub fn carry_out(job: &Job<'_>, outside: &dyn Outside) -> Result<bool> {
    let mut plan: Plan = plan::read(job.plan)?;
    let host = match job.site {
        Some(site) => site.to_owned(),
        // The name that the batch system has for this host.
        None => Kind::of_job(&env).system().node_here(&env).unwrap_or_else(host_name),
    };
    if let Some(folder) = job.folder {
        (plan.gathered, plan.here) = (folder.join("outputs"), folder.to_owned());
    }
    if let (Some(site), Some(objects)) = (job.site, job.objects) {
        // What somebody else calls a folder of this machine is none of theirs.
        plan.sites.retain(|_, site| site.join.is_some());
        let own = CarriedSite { address: objects.display().to_string(), join: None };
        plan.sites.insert(site.to_owned(), own);
    }
    let mut report = Report { host, fetched: vec![], kept: None, damaged: vec![], fault: None };
    let done = plan.check_names().and_then(|()| follow(&plan, job, &mut report, outside));
    report.fault = done.err().map(|error| (error.kind.number(), error.message, error.hint));
    plan::write(&job.plan.with_file_name("report.json"), &report)?;
    Ok(report.fault.is_none())
}

fn follow(plan: &Plan, job: &Job<'_>, report: &mut Report, outside: &dyn Outside) -> Result<()> {
    let stranger_box = job.shown_in_box.map(StrangerBox::find).transpose();
    let stranger_box = stranger_box.map_err(|reason| Error::new(ErrorKind::Other, reason))?;
    let folder = match job.folder.map_or_else(std::env::temp_dir, Path::to_owned) {
        folder if folder.is_dir() => folder,
        // The variable came from another machine.
        _ => PathBuf::from("/tmp"),
    };
    let work = WorkFolder::below(&folder, "the variable TMPDIR of the job names a folder on its host")?;
    let on_signal = OnSignal::listen(outside, work.top.path.clone())?;
    on_signal.unless_ending(stage(plan, &work.inside, report))?;
    let ended = match &stranger_box {
        Some(stranger_box) => {
            let hidden = job.objects.unwrap_or(&work.top.path);
            run_in_box(&plan.command, stranger_box, &work.inside, hidden, &on_signal)
        }
        None => run(&plan.command, &plan.here, &work.inside, &on_signal),
    };
    let status = on_signal.unless_ending(ended)?;
    let program = &plan.command[0];
    if !status.success() {
        return Err(Error::new(
            ErrorKind::Program,
            format!("{} ended with {}", shown(program), status.text()),
        ));
    }
    let outputs: Vec<Output> =
        plan.outputs.iter().map(|(name, path)| Output { name: name.clone(), path: path.clone() }).collect();
    on_signal.unless_ending(gather(&outputs, &work, program))?;
    report.kept = on_signal.unless_ending(taken_in_place(plan, &report.host, &work.outputs, outside))?;
    if report.kept.is_some() {
        return Ok(());
    }
    let copied = copy_tree(&work.outputs, &plan.gathered).map_err(|error| {
        Error::new(
            ErrorKind::Other,
            format!("cannot copy the outputs to {}: {}", shown_path(&plan.gathered), reason(&error)),
        )
    });
    on_signal.unless_ending(copied)
}

/// Puts the outputs into a store of this host, so that they need not travel. `None`: there is none that takes them.
///
/// Source: "new files, which are created in-place on replica servers, are not explicitly copied to a permanent location, but are committed
/// to the replica system, enabling asynchronous replication" (`Wozniak06` §II-A).
fn taken_in_place(
    plan: &Plan,
    host: &str,
    outputs: &Path,
    outside: &dyn Outside,
) -> Result<Option<(String, Vec<CarriedFile>)>> {
    let here = plan.targets.iter().filter(|(_, (_, hosts))| hosts.contains(host));
    for (name, (site, _)) in here {
        let Some(join) = &site.join else { continue };
        match eyas_site::Stores.reach(name, join).and_then(|store| take_in(&*store, outputs)) {
            Ok(files) => {
                let carried = |File { path, size_bytes, digest, is_executable }| CarriedFile {
                    path,
                    size_bytes,
                    digest,
                    is_executable,
                    sites: vec![name.clone()],
                };
                return Ok(Some((name.clone(), files.into_iter().map(carried).collect())));
            }
            // It may be full, and what is there travels as it would without it.
            Err(error @ (eyas_catalog::Error::Unreached { .. } | eyas_catalog::Error::Failed(_))) => {
                outside.say(&format!(
                    "the outputs are brought back, as the site `{name}` did not take them: {error}"
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Copies the inputs to where the program finds them.
fn stage(plan: &Plan, folder: &Path, report: &mut Report) -> Result<()> {
    let fetcher = Fetcher::new(&eyas_site::Stores, &plan.sites);
    for input in &plan.inputs {
        let mut fetched =
            Fetched { text: input.text.clone(), sites: BTreeSet::new(), near_bytes: 0, far_bytes: 0 };
        let top = folder.join(&input.name);
        make_folder(if input.is_file { parent_of(&top) } else { &top })?;
        for file in &input.files {
            let target = target_of(input, file, &top);
            make_folder(parent_of(&target))?;
            // Where everything was settled for a host, that one is meant.
            let preferred = plan.settled_for.as_deref().unwrap_or(&report.host);
            let mut damaged: Vec<(String, Digest)> = vec![];
            let site = fetcher.get(file, &|site| is_on(plan, site, preferred), &target, &mut |site| {
                damaged.push((site.to_owned(), file.digest));
            });
            report.damaged.extend(damaged);
            let site = site?;
            match is_on(plan, site, &report.host) {
                true => fetched.near_bytes += file.size_bytes,
                false => fetched.far_bytes += file.size_bytes,
            }
            fetched.sites.insert(site.to_owned());
        }
        report.fetched.push(fetched);
    }
    Ok(())
}

fn target_of(input: &PlannedInput, file: &CarriedFile, top: &Path) -> PathBuf {
    match input.is_file {
        true => top.to_owned(),
        false => top.join(&file.path),
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().expect("it lies in the folder of the program")
}

fn is_on(plan: &Plan, site: &str, host: &str) -> bool {
    plan.hosts_of.get(site).is_some_and(|hosts| hosts.contains(host))
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| {
        Error::new(
            ErrorKind::Other,
            format!("cannot make the folder {}: {}", shown_path(path), reason(&error)),
        )
    })
}

/// Copies a file, which has to be one when it is opened.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(from)?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(format!("{} is no file any more", shown_path(from))));
    }
    let mut target = fs::OpenOptions::new().write(true).create_new(true).open(to)?;
    io::copy(&mut source, &mut target)?;
    target.set_permissions(metadata.permissions())
}

/// Copies files and directories into a directory that is there. There are no other kinds, or the copy fails.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_tree(&source, &target)?;
        } else if kind.is_file() {
            copy_file(&source, &target)?;
        } else {
            let what = format!("{} is neither a file nor a directory", shown_path(&source));
            return Err(io::Error::other(what));
        }
    }
    Ok(())
}
