//! `eyas data hub`: where stores that nobody can reach, and those who want to reach them, meet.

use super::store::lock;
use crate::args::{address, host_port};
use crate::runtimes::service_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault};
use clap::Args;
use eyas_runtime::address as places;
use eyas_site::{Hub, HubReport};
use eyas_text::{say, shown_path};
use eyas_wire::identity::{Identity, IdentityError, Join};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
pub struct HubArgs {
    /// The folder of its identity and its port; it is made
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Where to write the join file, which `eyas store --hub FILE` needs [default: hub.json in the folder]
    #[arg(long, value_name = "FILE")]
    join: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free one, which stays the same when the hub is started again
    #[arg(long, default_value = "0.0.0.0:0", value_name = "HOST:PORT", value_parser = host_port)]
    listen: String,
    /// Address that the join file has, if it is not the one listened on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    advertise: Option<String>,
}

/// Serves until a signal asks it to end.
pub fn hub(args: HubArgs) -> Result<Exit, Fault> {
    let dir = std::path::absolute(&args.dir)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|error| {
        let reason = crate::print::reason(&error);
        Fault::new(Exit::Other, format!("cannot make the folder {}: {reason}", shown_path(&dir)))
    })?;
    let _lock = lock(&dir, "hub.lock", "eyas data hub")?;
    let cannot = |error: IdentityError| Fault::new(Exit::Other, error);
    let identity = Identity::load_or_generate(&dir.join("identity.json")).map_err(cannot)?;
    let join_path = args.join.unwrap_or_else(|| dir.join("hub.json"));
    service_runtime()?.block_on(async {
        let (listener, bound) = places::listen(&args.listen, &dir)
            .await
            .map_err(|error| Fault::new(Exit::Other, format!("cannot listen on {}: {error}", args.listen)))?;
        let address = args.advertise.unwrap_or_else(|| places::advertised(bound));
        let mut join = Join::new(address, "hub".into(), dir.display().to_string(), identity.clone());
        join.is_hub = true;
        join.write(&join_path).map_err(cannot)?;
        let mut asked = AskedToEnd::listen()?;
        say!("the hub answers at {}", join.address);
        say!("where there is room: eyas store --dir FOLDER --hub {}", shown_path(&join_path));
        let hub = Arc::new(Hub::new(Box::new(|seen| match seen {
            HubReport::Came { store, from } => say!("the store `{store}` is connected, from {from}"),
            HubReport::Left { store } => say!("the store `{store}` is gone"),
        })));
        tokio::select! {
            served = hub.serve(listener, &identity) => {
                served.map_err(|error| Fault::new(Exit::Other, error)).map(|()| Exit::Good)
            }
            () = asked.next() => Ok(Exit::Good),
        }
    })
}
