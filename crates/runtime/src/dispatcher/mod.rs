//! The dispatcher's process: a session with connections, journal and event log around it.
//!
//! One task (the *loop*, [`service`]) owns the session ([`eyas_session::dispatcher`]) and all decisions.
//! Connections, the journal's thread and the clock only send it [`Arrival`]s, which it takes in batches. What
//! the session does in return, it does through [`live`].
//!
//! Not here: the protocol (`eyas-session`), which task runs where ([`eyas_core::dispatcher`]), the bytes of
//! messages (`eyas-wire`).

mod group;
mod incarnation;
mod live;
mod place;
mod port;
mod printed;
mod service;

use crate::descriptors;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_journal::{Journal, Notice};
use eyas_net as net;
use eyas_session::dispatcher::Input;
use eyas_wire::identity::{Identity, IdentityError, Join};
use incarnation::Incarnation;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

pub use group::GroupOptions;
use service::{Arrival, Service};

/// How a dispatcher is started.
#[derive(Clone, Debug)]
pub struct DispatcherOptions {
    /// `host:port`; port 0 picks a free one.
    pub listen: String,
    /// The address that executors and clients should connect to, if it differs from the address listened on.
    pub advertise: Option<String>,
    /// Journal, event log, join file: everything that has to outlive the process.
    pub dir: PathBuf,
    pub config: DispatcherConfig,
    /// Streams from and to home storage that may be open at once, over all executors.
    pub home_streams: Option<u32>,
    /// Bytes per second from and to home storage, over all executors.
    pub home_rate_bytes_per_s: Option<u64>,
    /// Write events and actions to `events.jsonl`.
    pub event_log: bool,
    pub capture_head_bytes: u32,
    pub capture_tail_bytes: u32,
    /// End when standard input closes, which means that the parent process is gone.
    pub until_stdin_closes: bool,
    /// The dispatcher's place in a group; `None`: it is the only one.
    pub group: Option<GroupOptions>,
}

impl DispatcherOptions {
    /// A single dispatcher for this machine only, on a free port, with defaults in all else.
    pub fn local(dir: &Path) -> DispatcherOptions {
        DispatcherOptions {
            listen: "127.0.0.1:0".into(),
            advertise: None,
            dir: dir.to_path_buf(),
            config: DispatcherConfig::default(),
            home_streams: None,
            home_rate_bytes_per_s: None,
            event_log: true,
            capture_head_bytes: 16 << 10,
            capture_tail_bytes: 16 << 10,
            until_stdin_closes: false,
            group: None,
        }
    }
}

#[derive(thiserror::Error, Debug)]
pub enum DispatcherError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    #[error("cannot use the directory {}: {source}", eyas_text::shown_path(Path::new(path)))]
    Dir { path: String, source: std::io::Error },
    #[error(transparent)]
    Journal(#[from] eyas_journal::Error),
    #[error(
        "the journal in {} holds a record that this version of eyas cannot read: {why}",
        eyas_text::shown_path(Path::new(path))
    )]
    Record { path: String, why: String },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{0}")]
    Config(String),
}

/// Records of ends wait this long for further records on their way to the disk, unless somebody waits for
/// them.
const COMMIT_INTERVAL: Duration = Duration::from_millis(50);

/// The most connections at a time that have not yet proved to be members.
const STRANGERS_MAX: usize = 256;

pub const JOIN_FILE: &str = "join.json";

/// Runs a dispatcher until it is asked to stop. `join.json` exists as soon as the dispatcher answers.
pub async fn run(options: DispatcherOptions) -> Result<(), DispatcherError> {
    let descriptors = descriptors::raise();
    let dir_error = |source| DispatcherError::Dir { path: options.dir.display().to_string(), source };
    std::fs::create_dir_all(&options.dir).map_err(dir_error)?;
    let dir = options.dir.canonicalize().map_err(dir_error)?;
    let join_path = dir.join(JOIN_FILE);

    if options.group.is_none() {
        group::check_alone(&dir)?;
    }
    let (inputs, queue) = mpsc::channel::<Arrival>(1024);
    // The journal's lock also keeps a second dispatcher out of this directory, so it comes first.
    let (notify, notices) = mpsc::unbounded_channel();
    let journal_options = eyas_journal::Options {
        commit_interval: COMMIT_INTERVAL,
        on_notice: Some(Box::new(move |notice: Notice| {
            let _ = notify.send(notice);
        })),
        ..eyas_journal::Options::default()
    };
    let (journal, recovered) = Journal::open(&dir.join("journal"), journal_options)?;
    let is_placed = place::check(&dir)?;
    let incarnation = Incarnation::begin(&dir).map_err(dir_error)?;
    // A dispatcher that was killed left its join file behind; nobody who waits for us may take it for ours.
    remove_own_join(&join_path);
    let identity_path = dir.join("identity.json");
    let given_join = group::read_given_join(&options)?;
    if let Some(given_join) = &given_join
        && !identity_path.exists()
    {
        given_join.identity.keep(&identity_path)?;
    }
    let identity = Identity::load_or_generate(&identity_path)?;
    let cluster = cluster_name(&identity);
    let mut service =
        Service::new(&options, dir.clone(), &identity, cluster.clone(), journal, incarnation.number)?;
    service.recover(recovered, is_placed)?;
    if !is_placed {
        // A full disk is no reason not to start; the file is written at the next start.
        let _ = place::keep(&dir).inspect_err(|e| eprintln!("eyas: {e}"));
    }

    let listen_error = |source| DispatcherError::Listen { address: options.listen.clone(), source };
    let listener = match port::earlier_listener(&options, &dir).await {
        Some(listener) => listener,
        None => TcpListener::bind(&options.listen).await.map_err(listen_error)?,
    };
    let bound = listener.local_addr().map_err(listen_error)?;
    port::keep(&dir, bound.port());
    let address = options.advertise.clone().unwrap_or_else(|| advertised(bound));
    let mut join = Join::new(address, cluster, dir.display().to_string(), identity.clone());
    join.address_here = options.advertise.as_ref().map(|_| here(bound).to_string());
    if let Some(options) = &options.group {
        service.join_group(options, given_join.as_ref(), &mut join, &inputs)?;
    }

    let server_config = identity.server_config()?;
    let strangers_max = descriptors.share(8, 16, STRANGERS_MAX);
    let served = inputs.clone();
    tokio::spawn(net::keep_door(listener, server_config, strangers_max, move |connection, peer, r, w| {
        serve(connection, peer, (r, w), served.clone())
    }));
    let ticker = inputs.clone();
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(250));
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            interval.tick().await;
            if ticker.send(Arrival::Session(Input::Tick)).await.is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(incarnation::RENEWAL);
        loop {
            interval.tick().await;
            let incarnation = incarnation.clone();
            // On a full disk the last file stays, which serves most of its purpose.
            let _ = tokio::task::spawn_blocking(move || incarnation.renew()).await;
        }
    });
    stop_on_signals(inputs.clone());
    if options.until_stdin_closes {
        stop_with_parent(inputs.clone());
    }
    drop(inputs);
    join.write(&join_path)?;
    eyas_text::say!(
        "eyas: the dispatcher listens on {bound}, others reach it at {}; join file {}",
        join.address,
        eyas_text::shown_path(&join_path)
    );
    let result = crate::run_beside_io(service.run(queue, notices)).await;
    remove_own_join(&join_path);
    result
}

/// A dispatcher that stops in order removes its join file, so that nobody waits for it.
fn remove_own_join(path: &Path) {
    let _ = std::fs::remove_file(path);
}

fn cluster_name(identity: &Identity) -> String {
    blake3::hash(identity.secret()).to_hex()[..8].to_string()
}

/// An address that others can connect to: a wildcard address is none.
fn advertised(bound: SocketAddr) -> String {
    if bound.ip().is_unspecified() {
        let name = crate::executor::host_name();
        return format!("{name}:{}", bound.port());
    }
    bound.to_string()
}

/// The address for processes of this machine.
fn here(mut bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() {
        bound.set_ip(match bound {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    bound
}

fn stop_on_signals(inputs: mpsc::Sender<Arrival>) {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        if let Ok(mut signals) = signal(kind) {
            let inputs = inputs.clone();
            tokio::spawn(async move {
                signals.recv().await;
                let stop = Input::Stop { reason: "the dispatcher was told to stop".into() };
                let _ = inputs.send(Arrival::Session(stop)).await;
            });
        }
    }
}

fn stop_with_parent(inputs: mpsc::Sender<Arrival>) {
    std::thread::spawn(move || {
        crate::cluster::wait_for_stdin_to_close();
        let stop = Input::Stop { reason: "the process that started the cluster is gone".into() };
        let _ = inputs.blocking_send(Arrival::Session(stop));
    });
}

/// One member's connection, from its hello to its end.
async fn serve(
    connection: u64,
    peer: SocketAddr,
    (mut reader, writer): (net::Reader, net::Writer),
    inputs: mpsc::Sender<Arrival>,
) {
    use eyas_wire::message::{FromExecutor, FromMember, Hello, Request};
    let Ok(Some(hello)) = reader.first::<Hello>().await else { return };
    let is_executor = matches!(hello, Hello::Executor(_));
    let is_member = matches!(hello, Hello::Member { .. });
    if inputs.send(Arrival::Connected { connection, peer, hello, writer }).await.is_err() {
        return;
    }
    loop {
        let input = if is_executor {
            match reader.next::<Vec<FromExecutor>>().await {
                Ok(Some(batch)) => Input::FromExecutor { connection, batch },
                _ => break,
            }
        } else if is_member {
            match reader.next::<Vec<FromMember>>().await {
                Ok(Some(batch)) => Input::FromMember { connection, batch },
                _ => break,
            }
        } else {
            match reader.next::<Request>().await {
                Ok(Some(request)) => Input::FromClient { connection, request },
                _ => break,
            }
        };
        if inputs.send(Arrival::Session(input)).await.is_err() {
            return;
        }
    }
    let _ = inputs.send(Arrival::Session(Input::Disconnected { connection })).await;
}
