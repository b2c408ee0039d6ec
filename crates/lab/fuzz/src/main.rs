//! `eyas-fuzz`: inputs without end, or for some time; findings are written as files.
//!
//! The process that a user starts only watches: it starts another one that does the work, and goes on after each death
//! of it with the next input.

use eyas_fuzz::memory::Counting;
use eyas_fuzz::place::{self, FuzzPlace};
use eyas_fuzz::{Target, input, round, targets, watch};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Inputs of one target before the next one's turn.
const TURN: Duration = Duration::from_millis(500);

const USAGE: &str = "usage: eyas-fuzz [--seconds N] [--seed N] [--target NAME]... [--out DIR]
       eyas-fuzz --again TARGET:SEED:NUMBER   makes that input again, reads it, and writes it to --out
       eyas-fuzz --read TARGET FILE           reads a file";

struct Args {
    seconds: u64,
    seed: u64,
    targets: Vec<String>,
    out: PathBuf,
    /// Set by the watching process: the file with the place, and the inputs to begin with.
    work: Option<(PathBuf, Vec<u64>)>,
    again: Option<String>,
    read: Option<(String, PathBuf)>,
}

fn parse() -> Option<Args> {
    let mut args = Args {
        seconds: 60,
        seed: 1,
        targets: vec![],
        out: "target/fuzz".into(),
        work: None,
        again: None,
        read: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => args.seconds = words.next()?.parse().ok()?,
            "--seed" => args.seed = words.next()?.parse().ok()?,
            "--target" => args.targets.push(words.next()?),
            "--out" => args.out = words.next()?.into(),
            "--again" => args.again = Some(words.next()?),
            "--read" => args.read = Some((words.next()?, words.next()?.into())),
            "--work" => {
                let path = words.next()?.into();
                let starts =
                    words.next()?.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
                args.work = Some((path, starts));
            }
            _ => return None,
        }
    }
    Some(args)
}

fn main() -> ExitCode {
    let Some(args) = parse() else {
        eyas_text::say!("{USAGE}");
        return ExitCode::from(2);
    };
    let known = targets::all();
    if let Some(name) = args.targets.iter().find(|name| known.iter().all(|t| t.name() != **name)) {
        let names: Vec<&str> = known.iter().map(|t| t.name()).collect();
        eyas_text::say!("there is no target {name}; known are {}", names.join(", "));
        return ExitCode::from(2);
    }
    if let Err(e) = fs::create_dir_all(&args.out) {
        eyas_text::say!("cannot use {}: {e}", args.out.display());
        return ExitCode::from(2);
    }
    if let Some(again) = &args.again {
        return once(known, again, &args.out);
    }
    if let Some((name, path)) = &args.read {
        let Some(mut target) = known.into_iter().find(|t| t.name() == name) else { return ExitCode::from(2) };
        let Ok(bytes) = fs::read(path) else { return ExitCode::from(2) };
        target.run(&bytes);
        return ExitCode::SUCCESS;
    }
    match args.work.clone() {
        Some((path, starts)) => work(known, &args, &path, &starts),
        None => watch_over(&known, &args),
    }
}

fn once(known: Vec<Box<dyn Target>>, again: &str, out: &Path) -> ExitCode {
    let mut parts = again.split(':');
    let mut part = || parts.next().unwrap_or("");
    let (name, seed, number) = (part(), part().parse::<u64>(), part().parse::<u64>());
    let (Some(mut target), Ok(seed), Ok(number)) =
        (known.into_iter().find(|t| t.name() == name), seed, number)
    else {
        eyas_text::say!("{USAGE}");
        return ExitCode::from(2);
    };
    let path = out.join(format!("{name}-{seed}-{number}"));
    let bytes = input(&*target, seed, number);
    let _ = fs::write(&path, &bytes);
    eyas_text::say!("{} bytes in {}", bytes.len(), path.display());
    watch::start();
    watch::begin(0, number);
    target.run(&bytes);
    watch::end();
    let (most_bytes, most_ns) = place::place().most(0);
    eyas_text::say!("held {} KiB, took {} us", most_bytes >> 10, most_ns / 1000);
    ExitCode::SUCCESS
}

/// Whether the targets asked for include this one.
fn is_wanted(args: &Args, target: &dyn Target) -> bool {
    args.targets.is_empty() || args.targets.iter().any(|name| name == target.name())
}

/// Reads inputs until the time is over.
fn work(mut known: Vec<Box<dyn Target>>, args: &Args, path: &Path, starts: &[u64]) -> ExitCode {
    let place =
        OpenOptions::new().read(true).write(true).open(path).and_then(|file| FuzzPlace::shared(&file));
    let Ok(place) = place else { return ExitCode::from(2) };
    place::share(place);
    watch::start();
    round::keep_panics();
    // What a target starts may catch the signals with which people end this process; it goes with the one that watches.
    // SAFETY: sets a property of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut seen: BTreeSet<(usize, String)> = BTreeSet::new();
    let mut next = starts.to_vec();
    let until = Instant::now() + Duration::from_secs(args.seconds);
    while Instant::now() < until {
        for (index, target) in known.iter_mut().enumerate() {
            if !is_wanted(args, &**target) {
                continue;
            }
            let turn = Instant::now() + TURN;
            while Instant::now() < turn {
                let number = next[index];
                next[index] += 1;
                let Err((bytes, panic)) = round::one(&mut **target, index, args.seed, number) else {
                    continue;
                };
                // One of a kind is enough.
                if !seen.insert((index, panic.place.clone())) {
                    continue;
                }
                let name = format!("{}-{}-{number}", target.name(), args.seed);
                let _ = fs::write(args.out.join(&name), &bytes);
                found(format_args!("{name}: {} at {}", eyas_text::line_of(&panic.message), panic.place));
                watch::begin(index, number);
                let short = round::shrink(&mut **target, bytes, &panic);
                watch::end();
                let _ = fs::write(args.out.join(format!("{name}.short")), &short);
                found(format_args!("{name}, {} bytes: {}", short.len(), eyas_text::shown_bytes(&short)));
            }
        }
    }
    match seen.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    }
}

/// Says what was found. Not beside what targets say themselves, as a dispatcher does: that goes to [`SAID_FILE`].
fn found(what: fmt::Arguments) {
    let _ = writeln!(eyas_text::stdout(), "FINDING {what}");
}

/// What the working process writes to its standard error.
const SAID_FILE: &str = "said.txt";

/// Starts the working process, again after each death, and counts.
fn watch_over(known: &[Box<dyn Target>], args: &Args) -> ExitCode {
    let path = args.out.join(format!(".place-{}", std::process::id()));
    let begun = Instant::now();
    let until = begun + Duration::from_secs(args.seconds);
    let place = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let Ok(place) = place.and_then(|file: File| FuzzPlace::shared(&file)) else {
        eyas_text::say!("cannot make {}", path.display());
        return ExitCode::from(2);
    };
    let Ok(exe) = std::env::current_exe() else { return ExitCode::from(2) };
    let said = args.out.join(SAID_FILE);
    let Ok(said_to) = File::create(&said) else {
        eyas_text::say!("cannot make {}", said.display());
        return ExitCode::from(2);
    };
    let mut next = vec![0; known.len()];
    let mut n_findings = 0;
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now()).as_secs().max(1);
        let starts: Vec<String> = next.iter().map(u64::to_string).collect();
        let mut command = Command::new(&exe);
        command.args(["--seed", &args.seed.to_string(), "--seconds", &left.to_string()]);
        command.arg("--out").arg(&args.out).arg("--work").arg(&path).arg(starts.join(","));
        command.args(args.targets.iter().flat_map(|name| ["--target", name]));
        let Ok(stderr) = said_to.try_clone() else { return ExitCode::from(2) };
        let Ok(status) = command.stderr(stderr).status() else { return ExitCode::from(2) };
        for (index, next) in next.iter_mut().enumerate() {
            *next = place.begun(index).max(*next);
        }
        match (status.code(), place.current()) {
            (Some(0), _) => break,
            (Some(1), _) => {
                n_findings += 1;
                break;
            }
            (_, Some((index, number))) => {
                n_findings += 1;
                let name = format!("{}-{}-{number}", known[index].name(), args.seed);
                let _ = fs::write(args.out.join(&name), input(&*known[index], args.seed, number));
                found(format_args!("{name}: the process ended with {status}; see {}", said.display()));
            }
            (_, None) => {
                eyas_text::say!("the working process ended with {status}, at no input");
                return ExitCode::from(2);
            }
        }
    }
    let _ = fs::remove_file(&path);
    let seconds = begun.elapsed().as_secs_f64();
    let mut n_all = 0;
    for (index, target) in known.iter().enumerate().filter(|(i, _)| next[*i] > 0) {
        let (most_bytes, most_ns) = place.most(index);
        n_all += next[index];
        eyas_text::say!(
            "{:<12} {:>10} inputs; one held at most {:>5} MiB and took at most {:>6.1} ms",
            target.name(),
            next[index],
            most_bytes >> 20,
            most_ns as f64 / 1e6
        );
    }
    eyas_text::say!("{n_all} inputs in {seconds:.0} s, {:.0}/s, seed {}", n_all as f64 / seconds, args.seed);
    match n_findings {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    }
}
