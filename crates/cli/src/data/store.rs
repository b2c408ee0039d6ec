//! `eyas store`: a folder of this machine keeps copies of data sets for catalogs on other machines.

use crate::args::{address, host_port, rate, some_bytes};
use crate::fault::bad;
use crate::print::{plural, size};
use crate::runtimes::service_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault};
use clap::Args;
use eyas_catalog::{Folder, Holding};
use eyas_runtime::address as places;
use eyas_runtime::machine::host_name;
use eyas_site::{Store, StoreOptions};
use eyas_text::{say, shown_path};
use eyas_wire::identity::{Identity, Join};
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
    /// Address to listen on; port 0 picks a free one, which stays the same when the store is started again
    #[arg(long, default_value = "0.0.0.0:0", value_name = "HOST:PORT", value_parser = host_port)]
    listen: String,
    /// Address that the join file has, if it is not the one listened on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    advertise: Option<String>,
}

/// Serves until a signal asks it to end.
pub fn store(args: StoreArgs) -> Result<Exit, Fault> {
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
    let _lock = lock(&dir)?;
    let name = folder.name().to_owned();
    let n_objects = folder.objects()?.len() as u64;
    let options = StoreOptions { keep_bytes: args.keep, rate_bytes_per_s: args.rate };
    let store = Arc::new(Store::new(folder, options)?);
    let cannot = |error: eyas_wire::identity::IdentityError| Fault::new(Exit::Other, error);
    let identity = Identity::load_or_generate(&dir.join("identity.json")).map_err(cannot)?;
    let join_path = args.join.unwrap_or_else(|| dir.join("join.json"));
    let port_before = Join::read_of_store(&join_path)
        .ok()
        .and_then(|(join, _)| join.address.rsplit_once(':')?.1.parse::<u16>().ok());
    service_runtime().block_on(async {
        let (listener, bound) = places::listen(&args.listen, &dir)
            .await
            .map_err(|error| Fault::new(Exit::Other, format!("cannot listen on {}: {error}", args.listen)))?;
        // A catalog knows a store by its port.
        if let (Some(before), true) = (port_before, args.listen.ends_with(":0"))
            && before != bound.port()
        {
            say!(
                "the port {before} that it had is not free: catalogs find it again after `eyas data site --join` with its new file"
            );
        }
        let address = args.advertise.unwrap_or_else(|| places::advertised(bound));
        let mut join = Join::new(address, name.clone(), dir.display().to_string(), identity.clone());
        join.store = Some(name.clone());
        join.write(&join_path).map_err(cannot)?;
        let mut asked = AskedToEnd::listen()?;
        say!(
            "the site `{name}` answers at {}; it has {} of {}, of at most {}",
            join.address,
            plural(n_objects, "object"),
            size(store.held_bytes()),
            args.keep.map_or("what the disk holds".to_owned(), size)
        );
        say!("where the catalog is: eyas data site --join {}", shown_path(&join_path));
        tokio::select! {
            served = store.serve(listener, &identity) => {
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

/// One process serves a folder. The lock is the kernel's, and ends with the process.
fn lock(dir: &Path) -> Result<File, Fault> {
    let path = dir.join("store.lock");
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
            Err(bad(format!("another `eyas store` serves {} already", shown_path(dir))))
        }
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}
