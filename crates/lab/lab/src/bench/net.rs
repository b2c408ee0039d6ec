//! Nodes on a private network of this machine for benchmarks: on each machine of [`Spaces`] one process with a cache that serves
//! and fetches over the real data plane.
//!
//! A delay, if asked for, is made by a relay in front of each node's server, which holds each answer's bytes back
//! for that long, because not every kernel has a queue that delays. The relay costs processor time.
//!
//! Not here: the measurements.

use super::failed;
use super::spaces::{self, Spaces};
use eyas_cli::{Exit, Fault};
use eyas_data::{
    Digest, FetchEnd, FetchItem, PeerClient, PeerClientOptions, PeerServer, PeerServerOptions, Store, Ticket,
    TicketKey,
};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const PORT: u16 = 7700;
/// The port where a node sends as many bytes as a client asks for, for [`Command::Plain`].
const PLAIN_PORT: u16 = 7701;
/// More streams than any node of a benchmark serves at the same time, because this limit is not measured.
const STREAMS_MAX: usize = 256;

/// The bytes that a bare stream gives to the kernel, or takes from it, per call.
const PLAIN_BLOCK_BYTES: usize = 256 << 10;

/// A command to a node, one JSON line each.
#[derive(Serialize, Deserialize)]
pub enum Command {
    /// Make objects that differ from those of every other `seed`.
    Put { seed: u64, n_objects: u64, object_bytes: u64 },
    /// Fetch from all sources at once.
    Fetch { from: Vec<Source>, wait_ms: u64, how: How },
    /// Drop these objects.
    Drop { digests: Vec<Digest> },
    /// Receive bytes from a node by one bare stream, and throw them away.
    Plain { from: u32, n_bytes: u64 },
}

#[derive(Serialize, Deserialize, Clone)]
pub struct Source {
    pub node: u32,
    pub objects: Vec<(Digest, u64)>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub enum How {
    /// All sources at once, the objects of each in one batch.
    AllAtOnce,
    /// One source after the other, the objects of each in one batch.
    SourceBySource,
    /// One object after the other.
    ObjectByObject,
}

/// An answer of a node, one JSON line each.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    Ready,
    Made { digests: Vec<Digest> },
    Done { wall_ns: u64 },
    Failed { why: String },
}

#[derive(clap::Args)]
pub struct NodeArgs {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    id: u32,
    #[arg(long)]
    cache_bytes: u64,
    #[arg(long)]
    delay_us: u64,
}

fn key() -> TicketKey {
    TicketKey::from_secret(b"a secret for measuring only")
}

fn address_of(node: u32) -> SocketAddrV4 {
    SocketAddrV4::new(spaces::address_of(node), PORT)
}

/// One node, in its namespace: carries out the commands on standard input until there are no more.
pub fn node(args: &NodeArgs) -> Result<Exit, Fault> {
    let store = Store::open(&args.dir, args.cache_bytes).map_err(failed)?;
    let public = TcpListener::bind(args.listen)?;
    let options = PeerServerOptions { streams_max: STREAMS_MAX, ..Default::default() };
    let listener = if args.delay_us == 0 {
        public
    } else {
        let inner = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (to, delay) = (inner.local_addr()?, Duration::from_micros(args.delay_us));
        thread::spawn(move || relay(&public, to, delay));
        inner
    };
    let plain = TcpListener::bind((args.listen.ip(), PLAIN_PORT))?;
    thread::spawn(move || plain_server(&plain));
    let server = PeerServer::start(listener, store.clone(), key(), args.id, options).map_err(failed)?;
    let client = PeerClient::new(key(), args.id, PeerClientOptions::default());
    let mut out = eyas_text::stdout();
    let mut answer = |answer: &Answer| -> Result<(), Fault> {
        let line = serde_json::to_string(answer).map_err(failed)?;
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    };
    answer(&Answer::Ready)?;
    for line in std::io::stdin().lock().lines() {
        let command: Command = serde_json::from_str(&line?).map_err(failed)?;
        let done = match command {
            Command::Put { seed, n_objects, object_bytes } => (0..n_objects)
                .map(|n| put(&store, (seed << 32) | n, object_bytes))
                .collect::<eyas_data::Result<_>>()
                .map(|digests| Answer::Made { digests }),
            Command::Fetch { from, wait_ms, how } => {
                let started = Instant::now();
                let wait = Duration::from_millis(wait_ms);
                fetch_all(&store, &client, args.id, &from, wait, how).map(|()| Answer::Done {
                    wall_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
                })
            }
            Command::Drop { digests } => digests
                .iter()
                .try_for_each(|digest| store.remove(digest).map(drop))
                .map(|()| Answer::Done { wall_ns: 0 }),
            Command::Plain { from, n_bytes } => {
                plain_client(from, n_bytes)?;
                Ok(Answer::Done { wall_ns: 0 })
            }
        };
        answer(&done.unwrap_or_else(|e| Answer::Failed { why: e.to_string() }))?;
    }
    drop(server);
    Ok(Exit::Good)
}

fn fetch_all(
    store: &Store,
    client: &PeerClient,
    id: u32,
    from: &[Source],
    wait: Duration,
    how: How,
) -> eyas_data::Result<()> {
    let fetch = |source: &Source, objects: &[(Digest, u64)]| {
        let items = objects
            .iter()
            .map(|&(digest, size)| {
                let ticket = Ticket::issue(&key(), digest, size, source.node, id, u64::MAX);
                Ok(FetchItem { ticket, into: store.begin(store.reserve(size)?) })
            })
            .collect::<eyas_data::Result<Vec<_>>>()?;
        let mut failure = None;
        client.fetch_waiting(SocketAddr::V4(address_of(source.node)), items, wait, |_, end| {
            if let FetchEnd::Failed { error, .. } = end {
                failure.get_or_insert(error);
            }
        });
        failure.map_or(Ok(()), Err)
    };
    match how {
        How::AllAtOnce if from.len() > 1 => thread::scope(|scope| {
            let fetches: Vec<_> =
                from.iter().map(|source| scope.spawn(|| fetch(source, &source.objects))).collect();
            fetches.into_iter().try_for_each(|fetch| fetch.join().expect("fetching does not panic"))
        }),
        How::AllAtOnce | How::SourceBySource => {
            from.iter().try_for_each(|source| fetch(source, &source.objects))
        }
        How::ObjectByObject => from
            .iter()
            .try_for_each(|source| source.objects.chunks(1).try_for_each(|object| fetch(source, object))),
    }
}

fn put(store: &Store, content: u64, object_bytes: u64) -> eyas_data::Result<Digest> {
    let mut incoming = store.begin(store.reserve(object_bytes)?);
    let mut block = vec![0u8; usize::try_from(object_bytes.min(1 << 20)).expect("at most 1 MiB")];
    let mut left = object_bytes;
    while left > 0 {
        let n = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mark = [content.to_le_bytes(), left.to_le_bytes()].concat();
        let marked = mark.len().min(n);
        block[..marked].copy_from_slice(&mark[..marked]);
        incoming.append(&block[..n])?;
        left -= n as u64;
    }
    Ok(incoming.finish(None)?.digest)
}

/// Sends each client as many bytes as it asks for.
fn plain_server(listener: &TcpListener) {
    while let Ok((mut socket, _)) = listener.accept() {
        thread::spawn(move || -> std::io::Result<()> {
            let mut n_bytes = [0; 8];
            socket.read_exact(&mut n_bytes)?;
            let (block, mut left) = (vec![0; PLAIN_BLOCK_BYTES], u64::from_le_bytes(n_bytes));
            while left > 0 {
                let n = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                left -= socket.write(&block[..n])? as u64;
            }
            Ok(())
        });
    }
}

fn plain_client(from: u32, n_bytes: u64) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(SocketAddrV4::new(*address_of(from).ip(), PLAIN_PORT))?;
    socket.write_all(&n_bytes.to_le_bytes())?;
    let (mut block, mut left) = (vec![0; PLAIN_BLOCK_BYTES], n_bytes);
    while left > 0 {
        match socket.read(&mut block)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => left -= n as u64,
        }
    }
    Ok(())
}

/// Accepts connections for the server at `to`, and holds the server's answers back for `delay`.
pub(super) fn relay(public: &TcpListener, to: SocketAddr, delay: Duration) {
    while let Ok((client, _)) = public.accept() {
        thread::spawn(move || -> std::io::Result<()> {
            let server = TcpStream::connect(to)?;
            for socket in [&client, &server] {
                socket.set_nodelay(true)?;
            }
            let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
            thread::spawn(move || {
                let ended = std::io::copy(&mut from_client, &mut to_server);
                // The server must see the end, too; it may have closed before.
                let _ = to_server.shutdown(Shutdown::Write);
                ended
            });
            let (held_back, due) = mpsc::sync_channel::<(Instant, Vec<u8>)>(256);
            let mut to_client = client;
            thread::spawn(move || -> std::io::Result<()> {
                for (when, bytes) in due {
                    thread::sleep(when.saturating_duration_since(Instant::now()));
                    to_client.write_all(&bytes)?;
                }
                to_client.shutdown(Shutdown::Write)
            });
            let mut from_server = server;
            loop {
                let mut bytes = vec![0; 64 << 10];
                let n = from_server.read(&mut bytes)?;
                bytes.truncate(n);
                if n == 0 || held_back.send((Instant::now() + delay, bytes)).is_err() {
                    return Ok(());
                }
            }
        });
    }
}

/// What a network is made of.
pub struct Shape {
    pub n_nodes: u32,
    /// The rate of each link, in each direction, in Mbit/s (10⁶ bits).
    pub link_mbit: u64,
    pub delay: Duration,
    pub cache_bytes: u64,
}

/// Nodes in namespaces. Dropping the value removes all of them.
pub struct Net {
    nodes: Vec<BenchNode>,
    spaces: Spaces,
}

struct BenchNode {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Net {
    /// Builds the network and starts the nodes, whose caches are below `dir`.
    pub fn start(dir: &Path, shape: &Shape) -> Result<Net, Fault> {
        let spaces = Spaces::make(dir, shape.n_nodes, shape.link_mbit)?;
        let mut net = Net { nodes: vec![], spaces };
        let program = std::env::current_exe()?;
        for n in 0..shape.n_nodes {
            let mut child = net
                .spaces
                .command(n, &program)
                .args(["bench", "net-node", "--id", &n.to_string()])
                .args(["--listen", &address_of(n).to_string()])
                .args(["--cache-bytes", &shape.cache_bytes.to_string()])
                .args(["--delay-us", &shape.delay.as_micros().to_string()])
                .arg("--dir")
                .arg(dir.join(format!("node-{n}")))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| failed(format!("cannot start a node: {e}")))?;
            net.spaces.watch(child.id());
            let input = child.stdin.take();
            let output = BufReader::new(child.stdout.take().expect("piped above"));
            net.nodes.push(BenchNode { child, input, output });
        }
        for n in 0..shape.n_nodes {
            net.answer(n)?;
        }
        Ok(net)
    }

    /// Sends commands to nodes, all at the same time, and waits for all answers, which come in the order of
    /// `commands`.
    pub fn run(&mut self, commands: &[(u32, Command)]) -> Result<Vec<Answer>, Fault> {
        for (node, command) in commands {
            let mut line = serde_json::to_string(command).map_err(failed)?;
            line.push('\n');
            let input = self.nodes[*node as usize].input.as_mut().expect("open until the end");
            input.write_all(line.as_bytes())?;
        }
        commands.iter().map(|(node, _)| self.answer(*node)).collect()
    }

    fn answer(&mut self, node: u32) -> Result<Answer, Fault> {
        let mut line = String::new();
        self.nodes[node as usize].output.read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Failed { why }) => Err(failed(format!("node {node}: {why}"))),
            Ok(answer) => Ok(answer),
            Err(_) => Err(failed(format!("node {node} ended unexpectedly"))),
        }
    }

    /// Processor time of all nodes so far.
    pub fn cpu(&self) -> Duration {
        let pids: Vec<u32> = self.nodes.iter().map(|node| node.child.id()).collect();
        Duration::from_nanos(super::cluster::tree_cpu_ns(&pids))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.spaces.stop_if_interrupted();
        for node in &mut self.nodes {
            node.input = None;
        }
        for node in &mut self.nodes {
            // The node ends when its input does; a node that cannot be waited for is gone.
            let _ = node.child.wait();
            self.spaces.forget(node.child.id());
        }
    }
}
