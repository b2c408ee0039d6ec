//! `eyas store`: a folder of this machine keeps copies of data sets for catalogs on other machines.

use super::dead::refuse_dead;
use crate::args::{address, host_port, rate, some_bytes};
use crate::fault::bad;
use crate::print::{plural, size};
use crate::runtimes::service_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault};
use clap::Args;
use eyas_at_data::StrangerBox;
use eyas_catalog::{Folder, Holding};
use eyas_host::host_name;
use eyas_runtime::address as places;
use eyas_site::{AtHub, Programs, Store, StoreOptions};
use eyas_text::{say, shown_path};
use eyas_wire::identity::{Identity, IdentityError, Join};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args)]
pub struct StoreArgs {
    /// The folder that keeps the copies; it is made
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to write the join file, which is the key to this store: `eyas data site --join FILE` adds it to a catalog
    /// [default: join.json in the folder]
    #[arg(long, value_name = "FILE")]
    join: Option<PathBuf>,
    /// The name of the site [default: the name of this machine]
    #[arg(long)]
    name: Option<String>,
    /// Most bytes of objects that it keeps [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = some_bytes)]
    keep: Option<u64>,
    /// Most bytes per second that it sends and receives, such as 1MB/s [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Run up to so many programs at a time for those who have the join file (`eyas at-data --mode remote`), each in a box of
    /// bubblewrap's that shows its own folder and the system's programs, as a user without rights and without a network [default:
    /// none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    programs: Option<u32>,
    /// A folder that programs see besides /usr, /opt, /bin and /sbin, such as one with the programs of this machine (may be given
    /// more than once)
    #[arg(long = "program-folder", value_name = "DIR", requires = "programs")]
    program_folders: Vec<PathBuf>,
    /// Run programs without a box: as this user, with all that this user may do
    #[arg(long, requires = "programs", conflicts_with = "program_folders")]
    without_box: bool,
    /// Listen nowhere, and keep a connection out to the hub that has written this file (`eyas data hub`): for a machine that nobody
    /// can reach
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "advertise"])]
    hub: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free one, which stays the same when the store is started again
    #[arg(long, default_value = "0.0.0.0:0", value_name = "HOST:PORT", value_parser = host_port)]
    listen: String,
    /// Address that the join file has, if it is not the one listened on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    advertise: Option<String>,
}

/// Serves until a signal asks it to end.
pub fn store(args: StoreArgs) -> Result<Exit, Fault> {
    refuse_dead(&args.dir)?;
    let dir = std::path::absolute(&args.dir)?;
    let folder = match Folder::open(&dir) {
        // The name that a folder has stays, where no other is asked for.
        Ok(folder) if args.name.is_none() => folder,
        _ => {
            let name = args.name.unwrap_or_else(|| label_like(&host_name()));
            eyas_catalog::check_label(&name)?;
            Folder::make(&dir, &name)?
        }
    };
    let _lock = lock(&dir, "store.lock", "eyas store")?;
    let name = folder.name().to_owned();
    let n_objects = folder.objects()?.len() as u64;
    let shown = (!args.without_box).then_some(&args.program_folders[..]);
    let programs = args.programs.map(|n_max| programs(n_max, &dir, &name, shown)).transpose()?;
    let options = StoreOptions { keep_bytes: args.keep, rate_bytes_per_s: args.rate, programs };
    let store = Arc::new(Store::new(folder, options)?);
    let identity = Identity::load_or_generate(&dir.join("identity.json")).map_err(cannot)?;
    let join_path = args.join.unwrap_or_else(|| dir.join("join.json"));
    let holds = format!(
        "it has {} of {}, of at most {}",
        plural(n_objects, "object"),
        size(store.held_bytes()),
        args.keep.map_or("what the disk holds".to_owned(), size)
    );
    let ready = Ready { dir, name, identity, join_path, holds };
    match args.hub {
        Some(hub) => wait_at_hub(store, &ready, &hub),
        None => listen(store, ready, &args.listen, args.advertise),
    }
}

/// Programs that this store runs for others, by `eyas at-data-job` in folders below its own. shown : what a box shows; `None`: there is
/// no box.
fn programs(n_max: u32, dir: &Path, name: &str, shown: Option<&[PathBuf]>) -> Result<Programs, Fault> {
    let program = std::env::current_exe()?;
    let mut command = vec![program.into_os_string(), "at-data-job".into(), "--site".into(), name.into()];
    command.extend(["--objects".into(), dir.as_os_str().to_owned()]);
    let shown = shown.map(|shown| shown.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>());
    let shown = shown.transpose()?;
    match &shown {
        None => command.push("--without-box".into()),
        Some(shown) => {
            for folder in shown {
                command.extend(["--program-folder".into(), folder.as_os_str().to_owned()]);
            }
        }
    }
    let folder = dir.join("programs");
    let programs = Programs::new(n_max, command, folder.clone()).map_err(|error| {
        let reason = crate::print::reason(&error);
        Fault::new(Exit::Other, format!("cannot make the folder {}: {reason}", shown_path(&folder)))
    })?;
    if let Some(shown) = shown {
        // Who can mend it learns of it, and not who comes with a program.
        StrangerBox::find(&shown).and_then(|stranger_box| stranger_box.check(&folder)).map_err(|reason| {
            Fault::new(Exit::Other, reason)
                .hint("--without-box lets programs of others run as this user, who may see everything here")
        })?;
    }
    Ok(programs)
}

/// A store that can be served.
struct Ready {
    dir: PathBuf,
    name: String,
    identity: Identity,
    join_path: PathBuf,
    /// What it has and may keep.
    holds: String,
}

impl Ready {
    /// Its join file with this address, which is not written yet.
    fn join(&self, address: String) -> Join {
        let dir = self.dir.display().to_string();
        let mut join = Join::new(address, self.name.clone(), dir, self.identity.clone());
        join.store = Some(self.name.clone());
        join
    }

    fn say_ready(&self, way: &str) {
        say!("the site `{}` {way}; {}", self.name, self.holds);
        say!("where the catalog is: eyas data site --join {}", shown_path(&self.join_path));
    }
}

fn cannot(error: IdentityError) -> Fault {
    Fault::new(Exit::Other, error)
}

/// Serves those who come to a hub.
fn wait_at_hub(store: Arc<Store>, ready: &Ready, hub: &Path) -> Result<Exit, Fault> {
    let hub = Join::read_of_hub(hub).map_err(|error| bad(error.to_string()))?;
    // The host is where the copies are, for who asks which machine is close to them.
    let mut join = ready.join(format!("{} through {}", host_name(), hub.address));
    join.through = Some(Box::new(hub.clone()));
    join.write(&ready.join_path).map_err(cannot)?;
    service_runtime()?.block_on(async {
        let mut asked = AskedToEnd::listen()?;
        ready.say_ready(&format!("is reached through the hub at {}", hub.address));
        let tell = |now: &AtHub| match now {
            AtHub::Connected => say!("the site `{}` is connected to its hub", ready.name),
            AtHub::Away(reason) => {
                say!("the site `{}` is not connected: {reason}; it tries again by itself", ready.name);
            }
        };
        tokio::select! {
            served = store.serve_through(&hub, &ready.identity, &tell) => {
                served.map_err(|error| Fault::new(Exit::Other, error)).map(|()| Exit::Good)
            }
            () = asked.next() => Ok(Exit::Good),
        }
    })
}

/// Serves those who come here.
fn listen(store: Arc<Store>, ready: Ready, at: &str, advertise: Option<String>) -> Result<Exit, Fault> {
    let Ready { dir, join_path, .. } = &ready;
    let port_before = Join::read_of_store(join_path).ok().and_then(|(join, _)| {
        join.address.rsplit_once(':')?.1.parse::<u16>().ok().filter(|_| join.through.is_none())
    });
    service_runtime()?.block_on(async {
        let (listener, bound) = places::listen(at, dir)
            .await
            .map_err(|error| Fault::new(Exit::Other, format!("cannot listen on {at}: {error}")))?;
        // A catalog knows a store by its port.
        if let (Some(before), true) = (port_before, at.ends_with(":0"))
            && before != bound.port()
        {
            say!(
                "the port {before} that it had is not free: catalogs find it again after `eyas data site --join` with its new file"
            );
        }
        let join = ready.join(advertise.unwrap_or_else(|| places::advertised(bound)));
        join.write(join_path).map_err(cannot)?;
        let mut asked = AskedToEnd::listen()?;
        ready.say_ready(&format!("answers at {}", join.address));
        tokio::select! {
            served = store.serve(listener, &ready.identity) => {
                served.map_err(|error| Fault::new(Exit::Other, error)).map(|()| Exit::Good)
            }
            () = asked.next() => Ok(Exit::Good),
        }
    })
}

/// The name of a machine as the name of a site, which has fewer kinds of characters.
fn label_like(host: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    host.chars().map(allowed).collect()
}

/// One process serves a folder; `command` is the one that does. The lock is the kernel's, and ends with the process.
pub fn lock(dir: &Path, name: &str, command: &str) -> Result<File, Fault> {
    let path = dir.join(name);
    let cannot = |error: std::io::Error| {
        Fault::new(
            Exit::Other,
            format!("cannot lock {}: {}", shown_path(&path), crate::print::reason(&error)),
        )
    };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(bad(format!("another `{command}` serves {} already", shown_path(dir))))
        }
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}
