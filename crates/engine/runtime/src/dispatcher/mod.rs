//! The dispatcher's process: a session with connections, journal and event log around it.
//!
//! One async task (the *loop*, [`service`]) owns the session ([`eyas_session::dispatcher`]) and all decisions.
//! Connections, the clock and signals only send it [`arrivals`], which it takes in batches; the journal's thread sends
//! it notices. What the session does in return, it does through [`live`].
//!
//! Not here: the protocol (`eyas-session`), which task runs where ([`eyas_core::dispatcher`]), the bytes of
//! messages (`eyas-wire`).

mod arrival;
mod arrivals;
mod group;
mod incarnation;
mod links;
mod live;
mod older;
mod place;
mod queries;
mod relays;
mod service;

use crate::address;
use crate::descriptors;
use eyas_core::dispatcher::DispatcherConfig;
use eyas_journal::{Journal, Notice, Recovered};
use eyas_net as net;
use eyas_session::dispatcher::Record;
use eyas_terms::{Outcome, TaskId};
use eyas_wire::identity::{Identity, IdentityError, Join};
use incarnation::Incarnation;
use relays::Relays;
use service::Service;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

pub use group::GroupOptions;

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
    #[error("{}", journal_words(.0))]
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

/// The error, and what can be saved of a journal that is damaged.
fn journal_words(error: &eyas_journal::Error) -> String {
    let dir = error.path.parent().and_then(Path::parent);
    match (&error.kind, dir) {
        (eyas_journal::ErrorKind::Corrupt { .. }, Some(dir)) => format!(
            "{error}; what is home is whole, and the event log beside the journal still says which tasks are done: start a cluster \
             with another --dir, and `eyas submit TASKS --resume {}` (or `eyas run`) runs only the others",
            eyas_text::line_of(&dir.to_string_lossy())
        ),
        _ => error.to_string(),
    }
}

/// Records of ends wait this long for further records on their way to the disk, unless somebody waits for
/// them.
const COMMIT_INTERVAL: Duration = Duration::from_millis(50);

/// The most connections at a time that have not yet proved to be members.
const STRANGERS_MAX: usize = 256;

/// The most arrivals that wait for the loop; whoever sends more waits.
const ARRIVALS_MAX: usize = 1024;

pub const JOIN_FILE: &str = "join.json";

/// Runs a dispatcher until it is asked to stop. `join.json` exists as soon as the dispatcher answers.
pub async fn run(options: DispatcherOptions) -> Result<(), DispatcherError> {
    let descriptors = descriptors::raise();
    let dir = open_dir(&options.dir)?;
    if options.group.is_none() {
        group::check_alone(&dir)?;
    }
    // The journal's lock also keeps a second dispatcher out of this directory, so it comes first.
    let (journal, recovered, notices) = open_journal(&dir)?;
    let is_placed = place::check(&dir)?;
    let incarnation = Incarnation::begin(&dir).map_err(|source| dir_error(&options.dir, source))?;
    let join_path = dir.join(JOIN_FILE);
    // A dispatcher that was killed left its join file behind; nobody who waits for us may take it for ours.
    let relays_before = Relays::named_in(&join_path);
    remove_own_join(&join_path);
    let given_join = group::read_given_join(&options)?;
    let identity = open_identity(&dir, given_join.as_ref())?;
    let cluster = cluster_name(&identity);
    let mut service =
        Service::new(&options, dir.clone(), &identity, cluster.clone(), journal, incarnation.number)?;
    service.recover(recovered, is_placed)?;
    if !is_placed {
        // A full disk is no reason not to start; the file is written at the next start.
        let _ = place::keep(&dir).inspect_err(|e| eprintln!("eyas: {e}"));
    }

    let (listener, bound) = address::listen(&options.listen, &dir)
        .await
        .map_err(|source| DispatcherError::Listen { address: options.listen.clone(), source })?;
    let address = options.advertise.clone().unwrap_or_else(|| address::advertised(bound));
    let mut join = Join::new(address, cluster, dir.display().to_string(), identity.clone());
    join.address_here = options.advertise.as_ref().map(|_| address::here(bound).to_string());
    let (arrivals, queue) = mpsc::channel(ARRIVALS_MAX);
    if let Some(options) = &options.group {
        service.join_group(options, given_join.as_ref(), &mut join, &arrivals)?;
    }

    let server_config = identity.server_config_with(service.known_users())?;
    // In a group an executor is sent from one dispatcher to another, past all relays.
    let is_alone = options.group.is_none();
    let relays =
        is_alone.then(|| Relays::new(options.config.lease_ns, &join_path, join.clone(), relays_before));
    let door = arrivals::Door { own: identity.key()?, relays: relays.clone() };
    let strangers_max = descriptors.share(8, 16, STRANGERS_MAX);
    let served = arrivals.clone();
    tokio::spawn(net::keep_door(listener, server_config, strangers_max, move |connection, peer, r, w| {
        arrivals::serve(door.clone(), connection, peer, (r, w), served.clone())
    }));
    arrivals::tick(arrivals.clone());
    incarnation.keep_renewed();
    arrivals::stop_on_signals(&arrivals);
    arrivals::stop_with_folder(arrivals.clone(), &dir);
    if options.until_stdin_closes {
        arrivals::stop_with_parent(arrivals.clone());
    }
    drop(arrivals);
    match &relays {
        Some(relays) => relays.write()?,
        None => join.write(&join_path)?,
    }
    eyas_text::say!(
        "eyas: the dispatcher listens on {bound}, others reach it at {}; join file {}",
        join.address,
        eyas_text::shown_path(&join_path)
    );
    let result = crate::run_beside_io(service.run(queue, notices)).await;
    if let Some(relays) = relays {
        relays.end();
    }
    remove_own_join(&join_path);
    result
}

fn dir_error(path: &Path, source: std::io::Error) -> DispatcherError {
    DispatcherError::Dir { path: path.display().to_string(), source }
}

/// The directory, made if it is not there, under the name that it has from everywhere.
fn open_dir(dir: &Path) -> Result<PathBuf, DispatcherError> {
    std::fs::create_dir_all(dir).and_then(|()| dir.canonicalize()).map_err(|source| dir_error(dir, source))
}

/// The journal, what earlier processes wrote into it, and the channel on which its notices arrive.
fn open_journal(
    dir: &Path,
) -> Result<(Journal, Recovered, mpsc::UnboundedReceiver<Notice>), DispatcherError> {
    let (notify, notices) = mpsc::unbounded_channel();
    let options = eyas_journal::Options {
        commit_interval: COMMIT_INTERVAL,
        on_notice: Some(Box::new(move |notice: Notice| {
            let _ = notify.send(notice);
        })),
        ..eyas_journal::Options::default()
    };
    let (journal, recovered) = Journal::open(&dir.join("journal"), options)?;
    Ok((journal, recovered, notices))
}

/// The identity in the directory. Where there is none yet, it becomes that of the cluster which the dispatcher joins, or of
/// a new cluster.
fn open_identity(dir: &Path, given: Option<&Join>) -> Result<Identity, DispatcherError> {
    let path = dir.join("identity.json");
    if let Some(given) = given.filter(|_| !path.exists()) {
        given.identity.keep(&path)?;
    }
    Ok(Identity::load_or_generate(&path)?)
}

/// A dispatcher that stops in order removes its join file, so that nobody waits for it.
fn remove_own_join(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// How tasks ended, as the journal of a dispatcher that is gone says. `dir`: the dispatcher's folder, in which nothing is changed. A journal
/// that cannot be read says nothing.
pub fn ends_in_journal(dir: &Path) -> BTreeMap<TaskId, Outcome> {
    let mut ends = BTreeMap::new();
    let _ = eyas_journal::look(&dir.join("journal"), |_, bytes| match Record::from_bytes(bytes) {
        Ok(Record::TaskEnded { task, outcome, .. }) => drop(ends.insert(task, outcome)),
        Ok(Record::TaskRevived { task }) => drop(ends.remove(&task)),
        _ => {}
    });
    ends
}

fn cluster_name(identity: &Identity) -> String {
    blake3::hash(identity.secret()).to_hex()[..8].to_string()
}
