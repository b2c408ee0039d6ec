//! `eyas data tend`: copies are made and verified again and again, in the background.

use super::open::{Opened, now_ms, open};
use crate::args::{duration, rate, some_bytes};
use crate::print::{plural, size};
use crate::runtimes::client_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault};
use clap::Args;
use eyas_catalog::{Audit, Caller, Catalog, Repair, SiteState, Spared};
use eyas_keeping::spare::Goals;
use eyas_keeping::verification::Pace;
use eyas_text::say;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

#[derive(Args)]
pub struct TendArgs {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    every: u64,
    /// Each copy is read through again within this time
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    audit_within: u64,
    /// Most bytes that are read through at each site in one look [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    audit_at_most: Option<u64>,
    /// A site that went away is waited for so long before its copies are made elsewhere, where two good copies answer. What was made
    /// while it was away is dropped when it is back
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    grace: u64,
    #[command(flatten)]
    spare: SpareArgs,
}

/// What is read much gets more copies than its data sets ask for.
#[derive(Args)]
struct SpareArgs {
    /// Most bytes of spare copies: what is read much gets more copies than its data sets ask for, and loses them again when
    /// it is read less [default: none are made or dropped]
    #[arg(long = "spare", value_name = "BYTES", value_parser = some_bytes)]
    most_bytes: Option<u64>,
    /// How often each copy is to be read through: a file gets a spare copy when all of them are read more often
    #[arg(long, value_name = "N", default_value_t = 4, requires = "most_bytes", value_parser = clap::value_parser!(u32).range(1..))]
    reads_per_copy: u32,
    /// What was read counts half after this time
    #[arg(long, value_name = "TIME", default_value = "1d", requires = "most_bytes", value_parser = duration)]
    half_life: u64,
    /// Most copies of a file, the spare ones among them
    #[arg(long, value_name = "N", default_value_t = 8, requires = "most_bytes", value_parser = clap::value_parser!(u32).range(1..))]
    spare_copies: u32,
    /// Most bytes of spare copies that are made per second, such as 10MB/s [default: no limit]
    #[arg(long, value_name = "RATE", requires = "most_bytes", value_parser = rate)]
    spare_rate: Option<u64>,
    /// The part of each site's room that spare copies leave free, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10, requires = "most_bytes", value_parser = clap::value_parser!(u8).range(0..=100))]
    keep_free: u8,
}

impl SpareArgs {
    fn spares(&self, look: Duration) -> Option<Spares> {
        Some(Spares {
            goals: Goals {
                free_part: f64::from(self.keep_free) / 100.0,
                reads_per_copy: f64::from(self.reads_per_copy),
                spare_bytes_max: self.most_bytes?,
                copies_max: self.spare_copies,
                made_bytes_max: u64::MAX,
            },
            half_life_ms: (self.half_life / 1_000_000).max(1),
            look_bytes: self.spare_rate.map(|rate| rate as f64 * look.as_secs_f64()),
            allowed_bytes: 0.0,
        })
    }
}

/// How spare copies are looked after.
struct Spares {
    goals: Goals,
    half_life_ms: u64,
    /// Bytes of copies that each look adds to what may be made; `None`: there is no limit.
    look_bytes: Option<f64>,
    /// Bytes that may be made now. Below 0 after a copy that was larger.
    allowed_bytes: f64,
}

impl Spares {
    /// The goals of the next look.
    fn next(&mut self) -> Goals {
        let Some(look_bytes) = self.look_bytes else { return self.goals };
        // What was not used is not saved up.
        self.allowed_bytes = (self.allowed_bytes + look_bytes).min(look_bytes);
        Goals { made_bytes_max: self.allowed_bytes.max(0.0).ceil() as u64, ..self.goals }
    }
}

/// Looks until a signal asks it to end, or the database is no catalog any more.
pub fn tend(db: Option<&str>, args: &TendArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, .. } = open(db)?;
    let every = Duration::from_nanos(args.every).max(Duration::from_millis(100));
    let pace = Pace {
        period_ms: args.audit_within / 1_000_000,
        look_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX),
        most_bytes: args.audit_at_most,
    };
    let spares = args.spare.spares(every);
    let n_sites = catalog.sites()?.len() as u64;
    say!("looking after {} with {}", catalog.name(), plural(n_sites, "site"));
    let tending = Arc::new(Tending {
        catalog,
        caller,
        pace,
        grace: Duration::from_nanos(args.grace),
        spares: Mutex::new(spares),
        said: Mutex::default(),
        away_since: Mutex::default(),
        audited: Mutex::default(),
    });
    client_runtime().block_on(async {
        let mut asked = AskedToEnd::listen()?;
        let (failed, mut failures) = mpsc::unbounded_channel();
        // It is ended with the process. Whatever it was writing is no copy before it is whole.
        thread::Builder::new().name("tend".into()).spawn(move || {
            let going = Arc::new(());
            loop {
                // A look that a slow site holds up does not hold up the next ones.
                if Arc::strong_count(&going) <= LOOKS_MAX {
                    let (tending, failed, going) = (tending.clone(), failed.clone(), going.clone());
                    let look = move || {
                        if let Err(fault) = tending.look() {
                            let _ = failed.send(fault);
                        }
                        drop(going);
                    };
                    // Without a thread for it now, the next look comes.
                    let _ = thread::Builder::new().name("look".into()).spawn(look);
                }
                thread::sleep(every);
            }
        })?;
        tokio::select! {
            fault = failures.recv() => fault.map_or(Ok(Exit::Good), Err),
            () = asked.next() => Ok(Exit::Good),
        }
    })
}

/// Looks that may go on at the same time.
const LOOKS_MAX: usize = 8;

/// Looks after a catalog. Several looks may go on at the same time: repairs leave to each other what each makes.
struct Tending {
    catalog: Catalog,
    /// Who reads what is said here.
    caller: Caller,
    pace: Pace,
    /// For how long copies of a site that went away are not made elsewhere.
    grace: Duration,
    spares: Mutex<Option<Spares>>,
    said: Mutex<SaidSites>,
    /// Since when sites do not answer.
    away_since: Mutex<BTreeMap<String, Instant>>,
    /// Sites whose copies are being read through.
    audited: Mutex<BTreeSet<String>>,
}

/// What was said, so that it is said once.
#[derive(Default)]
struct SaidSites {
    /// Why each site is away.
    away: BTreeMap<String, String>,
    /// Of files that are short of copies.
    short: Vec<String>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tending {
    fn look(&self) -> Result<(), Fault> {
        match self.audit().and_then(|()| self.repair()).and_then(|()| self.spare()) {
            Err(error) if error.is_temporary() => {
                say!("{error}; the next look tries again");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Has all sites read at the same time what is due. One that is at it since an earlier look goes on.
    fn audit(&self) -> eyas_catalog::Result<()> {
        let sites = self.catalog.sites()?;
        let names: Vec<String> = sites
            .into_iter()
            .filter(|site| site.state != SiteState::Gone && locked(&self.audited).insert(site.name.clone()))
            .map(|site| site.name)
            .collect();
        let audit = |name: &String| {
            let audited = self.catalog.audit_due(name, self.pace, now_ms());
            locked(&self.audited).remove(name);
            match audited {
                Ok(audit) => self.say_audited(&audit),
                // The repair says it.
                Err(error) if !error.is_of_database() => {}
                Err(error) => return Err(error),
            }
            Ok(())
        };
        thread::scope(|scope| {
            let audits: Vec<_> = names.iter().map(|name| scope.spawn(|| audit(name))).collect();
            audits.into_iter().try_for_each(|audit| audit.join().expect("an audit does not panic"))
        })
    }

    /// Whether a site went away so short a time ago that it is waited for.
    fn rests(&self, site: &str, answers: bool) -> bool {
        let mut away_since = locked(&self.away_since);
        if answers {
            away_since.remove(site);
            return false;
        }
        away_since.entry(site.to_owned()).or_insert_with(Instant::now).elapsed() < self.grace
    }

    fn say_audited(&self, audit: &Audit) {
        for (what, digests) in [("bad", &audit.bad), ("missing", &audit.missing)] {
            if let Some(first) = digests.first() {
                let n = plural(digests.len() as u64, "copy");
                say!("{n} at the site `{}` turned out to be {what}, such as {first}", audit.site);
            }
        }
    }

    fn repair(&self) -> eyas_catalog::Result<()> {
        let rests = |site: &str, answers: bool| self.rests(site, answers);
        let mut repair = self.catalog.repair_while(&rests, now_ms(), &mut |_| {})?;
        self.catalog.name_short(&self.caller, &mut repair)?;
        if repair.n_copies > 0 {
            say!("{} made ({})", plural(repair.n_copies, "copy"), size(repair.copied_bytes));
        }
        if repair.n_removed > 0 {
            say!("{} removed that nobody needs", plural(repair.n_removed, "object"));
        }
        let said = &mut *locked(&self.said);
        said.say_away(&repair);
        super::keep::say_other(&repair);
        let short = super::keep::short_lines(&repair);
        if short != said.short {
            short.iter().for_each(|line| say!("{line}"));
            if short.is_empty() {
                say!("no file is short of copies any more");
            }
            said.short = short;
        }
        Ok(())
    }

    fn spare(&self) -> eyas_catalog::Result<()> {
        // An earlier look may be at it.
        let Ok(mut spares) = self.spares.try_lock() else { return Ok(()) };
        let Some(spares) = &mut *spares else { return Ok(()) };
        let goals = spares.next();
        let spared = self.catalog.spare(&goals, spares.half_life_ms, now_ms())?;
        spares.allowed_bytes -= spared.made_bytes as f64;
        let Spared { n_made, made_bytes, n_dropped, dropped_bytes, .. } = spared;
        // Sites that are away, the repair names.
        for (what, n, n_bytes) in [("made", n_made, made_bytes), ("dropped", n_dropped, dropped_bytes)] {
            if n > 0 {
                say!("{} {what} ({})", plural(n, "spare copy"), size(n_bytes));
            }
        }
        Ok(())
    }
}

impl SaidSites {
    fn say_away(&mut self, repair: &Repair) {
        let away: BTreeMap<String, String> = repair.away.iter().cloned().collect();
        for (site, reason) in &away {
            if self.away.get(site) != Some(reason) {
                say!("the site `{site}` took no part: {reason}");
            }
        }
        for site in self.away.keys().filter(|site| !away.contains_key(*site)) {
            say!("the site `{site}` is back");
        }
        self.away = away;
    }
}
