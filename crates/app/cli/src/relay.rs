//! `eyas relay`: one connection to the dispatcher for many executors.

use crate::args::{JoinArgs, address, host_port};
use crate::executor::{is_loopback, listens_for};
use crate::runtimes::service_runtime;
use crate::signals::AskedToEnd;
use crate::{Exit, Fault, clusters};
use clap::Args;
use eyas_runtime::parent;
use eyas_runtime::relay::{RelayOptions, run};
use tokio::sync::oneshot;

#[derive(Args)]
pub struct RelayArgs {
    #[command(flatten)]
    pub join: JoinArgs,
    /// Address to listen on; port 0 picks a free one [default: any, or loopback when the dispatcher is on loopback]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
    pub listen: Option<String>,
    /// Address that executors are told, if it is not the one listened on
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub advertise: Option<String>,
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

pub fn relay(args: RelayArgs) -> Result<Exit, Fault> {
    let target = clusters::work_join(&args.join)?.read()?;
    let at = &target.join().address;
    let listen = args.listen.unwrap_or_else(|| listens_for(at, is_loopback(at)).into());
    let options = RelayOptions { target, listen, advertise: args.advertise };
    let runtime = service_runtime()?;
    let result = runtime.block_on(async {
        let mut asked = AskedToEnd::listen()?;
        let (gone, parent_gone) = oneshot::channel();
        let _kept = match args.until_stdin_closes {
            true => {
                parent::when_gone(move || {
                    let _ = gone.send(());
                });
                None
            }
            false => Some(gone),
        };
        let stop = async move {
            tokio::select! {
                () = asked.next() => {}
                Ok(()) = parent_gone => {}
            }
        };
        run(options, stop).await.map_err(|e| Fault::new(Exit::Cluster, e))
    });
    // Executors find another relay at once: nothing is waited for.
    runtime.shutdown_background();
    result.map(|()| Exit::Good)
}
