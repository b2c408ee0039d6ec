//! A whole dispatcher that members of its cluster speak to, two executors, a client and another dispatcher of its group:
//! some of what they say is true, most is not.
//!
//! Members are let in because they have the secret, so none of this is an attack from outside; it is what another
//! version, a mistake of ours or a damaged memory would send. What has to hold: the dispatcher goes on and answers, starts
//! again from the journal that it wrote meanwhile, and the log of both lives gives the same actions when it is replayed.

use crate::targets::texts;
use crate::{Rng, Target, arbitrary};
use eyas_core::dispatcher::Dispatcher;
use eyas_core::event::*;
use eyas_core::group::{Membership, RunLinks};
use eyas_core::log::{EVENTS_FILE, Header, Line, What};
use eyas_core::pattern::RunPatterns;
use eyas_net::{self as net, FrameReader, Writer};
use eyas_runtime::dispatcher::{DispatcherError, DispatcherOptions, GroupOptions, JOIN_FILE, run};
use eyas_tasklist::ReadOptions;
use eyas_terms::*;
use eyas_wire::identity::Join;
use eyas_wire::message::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Generous, for a machine that has much else to do: nothing is expected to take so long.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long an executor waits for a beat before it takes itself to be forgotten.
const BEAT_MAX: Duration = Duration::from_millis(50);
/// The dispatcher's core hears of time once a second.
const TICK: Duration = Duration::from_millis(1100);
/// The message with which time passes, so that it seldom does by chance.
const TIME_PASSES: u8 = 0x5e;
const STEPS_MAX: usize = 60;
/// Numbers of the checking client's requests, apart from those of inputs.
const OWN_NUMBERS: u64 = 0x00c0_ffee_0000_0000;

/// An input is a byte that says which dispatcher of how many this is, and steps: who speaks, a length of four bytes, a message.
#[derive(Default)]
pub struct Members {
    /// The cluster that all inputs share, as making keys takes long.
    cluster: Option<Cluster>,
}

struct Cluster {
    dir: TempDir,
    join: Join,
    tokio: tokio::runtime::Runtime,
}

#[derive(Clone, Copy, PartialEq)]
enum Who {
    Client,
    Executor(usize),
    Member,
    /// The executor connects (again).
    Joins(usize),
    /// The executors end what they were given, as the message says.
    Ends,
    TimePasses,
}

impl Who {
    const ALL: [Who; 8] = [
        Who::Client,
        Who::Executor(0),
        Who::Executor(1),
        Who::Member,
        Who::Joins(0),
        Who::Joins(1),
        Who::Ends,
        Who::TimePasses,
    ];
}

fn put(steps: &mut Vec<u8>, who: Who, message: &impl Serialize) {
    let body = postcard::to_stdvec(message).expect("plain values");
    steps.push(Who::ALL.iter().position(|w| *w == who).expect("all are listed") as u8);
    steps.extend_from_slice(&(body.len() as u32).to_le_bytes());
    steps.extend_from_slice(&body);
}

fn steps(mut bytes: &[u8]) -> Vec<(Who, &[u8])> {
    let mut steps = vec![];
    while let Some((head, rest)) = bytes.split_first_chunk::<5>()
        && steps.len() < STEPS_MAX
    {
        let n_bytes = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (body, after) = rest.split_at(n_bytes.min(rest.len()));
        steps.push((Who::ALL[usize::from(head[0]) % Who::ALL.len()], body));
        bytes = after;
    }
    steps
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    eyas_wire::frame::decode(body).ok()
}

fn membership(byte: u8) -> Option<Membership> {
    let me = MemberId(u32::from(byte % 3).checked_sub(1)?);
    Some(Membership { me, n_members: 2 })
}

/// An executor that could be.
pub fn hello(number: usize, slots: u32, member: Option<MemberId>) -> ExecutorHello {
    let name = format!("n{number}");
    let offer = Offer { name, slots, memory_bytes: 1 << 30, cache_bytes: 1 << 30, ..Offer::default() };
    ExecutorHello {
        offer,
        data_address: "127.0.0.1:1".into(),
        data_id: number as u32,
        known_as: None,
        member,
    }
}

/// A list of tasks that is good: some read what others make, at home or on the nodes.
fn tasks(rng: &mut Rng) -> Vec<u8> {
    let mut lines = String::new();
    let mut made: Vec<String> = vec![];
    for i in 0..1 + rng.below(12) {
        let mut inputs: Vec<String> = (0..rng.below(3))
            .map(|_| {
                if made.is_empty() || rng.one_in(3) {
                    format!("in/{}", rng.below(4))
                } else {
                    rng.pick(&made).clone()
                }
            })
            .collect();
        inputs.sort();
        inputs.dedup();
        let outputs: Vec<String> = (0..rng.below(3))
            .map(|k| if rng.one_in(3) { format!("out/{i}.{k}") } else { format!("run:{i}.{k}") })
            .collect();
        let n_retries = rng.below(3);
        let task = serde_json::json!({"id": format!("t{i}"), "command": ["p"], "inputs": inputs, "outputs": outputs, "retries": n_retries});
        lines.push_str(&format!("{task}\n"));
        made.extend(outputs);
    }
    lines.into_bytes()
}

impl Target for Members {
    fn name(&self) -> &'static str {
        "members"
    }

    /// Half of them: what is said wrong is in them already.
    fn left_alone_one_in(&self) -> usize {
        2
    }

    fn make(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = vec![rng.below(3) as u8];
        let group = membership(bytes[0]);
        let me = group.map(|g| g.me);
        let is_second = me == Some(MemberId(1));
        let ask = |steps: &mut Vec<u8>, body| put(steps, Who::Client, &Request { number: 7, body });
        for number in 0..2 {
            put(&mut bytes, Who::Joins(number), &hello(number, 1 + rng.below(4) as u32, me));
        }
        let run = RunId(1);
        let keep = Keep { files: rng.one_in(4), printed: rng.one_in(4) };
        let name = "w".to_owned();
        let lines = if rng.one_in(8) { texts::TaskLists.make(rng) } else { tasks(rng) };
        let options = ReadOptions { is_addition: true, ..ReadOptions::default() };
        let list = eyas_tasklist::read(&lines[..], Path::new("/base"), &options);
        let arrays = list.into_iter().flat_map(|list| list.arrays).map(Arc::new);
        if group.is_none() && rng.one_in(2) {
            let listener = rng.one_in(2).then_some(3);
            if let Some(listener) = listener {
                ask(&mut bytes, RequestBody::Listen { listener });
            }
            // The first array opens the run, the others are added to it. Each two of them have one token, so the second is known already.
            for (i, array) in arrays.enumerate() {
                let (token, digest) = (format!("t{}", i / 2 * 2), Digest([i as u8 / 2; 32]));
                let into = (i > 0).then_some(Addition { run, token, digest });
                ask(&mut bytes, RequestBody::SubmitRun { name: name.clone(), keep, into, array, listener });
            }
        } else {
            let into = None;
            ask(
                &mut bytes,
                match is_second {
                    true => RequestBody::JoinRun { run, opened_by: 1, name, keep, into },
                    false => RequestBody::OpenRun { name, keep, into },
                },
            );
            if group.is_some() && rng.one_in(2) {
                let links = arbitrary::value::<RunLinks>(rng, false).unwrap_or_default();
                let patterns = arbitrary::value::<RunPatterns>(rng, false).unwrap_or_default();
                ask(&mut bytes, RequestBody::LinkRun { run, links, patterns });
            }
            for array in arrays {
                ask(&mut bytes, RequestBody::AddArray { run, array });
            }
            match is_second {
                true => {
                    ask(&mut bytes, RequestBody::PrepareRun { run });
                    put(&mut bytes, Who::Member, &[FromMember::Decided { run, committed: true }]);
                }
                false => ask(&mut bytes, RequestBody::CommitRun { run }),
            }
        }
        for _ in 0..rng.below(20) {
            match rng.below(20) {
                0..6 => put(&mut bytes, Who::Ends, &rng.next_u64()),
                6..11 => {
                    let said = arbitrary::value::<Vec<FromExecutor>>(rng, false);
                    put(&mut bytes, Who::Executor(rng.below(2)), &said.unwrap_or_default());
                }
                11..14 => {
                    let said = arbitrary::value::<Vec<FromMember>>(rng, false);
                    put(&mut bytes, Who::Member, &said.unwrap_or_default());
                }
                14..18 => {
                    if let Some(request) = arbitrary::value::<Request>(rng, false) {
                        put(&mut bytes, Who::Client, &request);
                    }
                }
                18 => {
                    let number = rng.below(2);
                    let mut hello = hello(number, 1 + rng.below(4) as u32, me);
                    let odd = arbitrary::value::<ExecutorHello>(rng, false);
                    if let Some(odd) = odd {
                        hello.offer.held = odd.offer.held;
                        hello.offer.attempts = odd.offer.attempts;
                        (hello.offer.owner, hello.known_as) = (odd.offer.owner, odd.known_as);
                    }
                    put(&mut bytes, Who::Joins(number), &hello);
                }
                _ if rng.one_in(25) => put(&mut bytes, Who::TimePasses, &TIME_PASSES),
                _ => put(&mut bytes, Who::Ends, &0u64),
            }
        }
        bytes
    }

    fn run(&mut self, bytes: &[u8]) {
        let cluster = self.cluster.get_or_insert_with(Cluster::make);
        let Some((&kind, bytes)) = bytes.split_first() else { return };
        let dir = super::files::folder();
        let group = membership(kind);
        fs::copy(cluster.dir.path().join(IDENTITY_FILE), dir.path().join(IDENTITY_FILE)).expect("room");

        let before = cluster.live(dir.path(), group, &steps(bytes));
        let after = cluster.live(dir.path(), group, &[]);
        // What was accepted stays. More may be: what the journal had, and nobody had been told yet.
        for (run, n_tasks) in before {
            let now = after.iter().find(|(known, _)| *known == run).map(|(_, n)| *n);
            assert!(now >= Some(n_tasks), "run {run} had {n_tasks} tasks, after a restart {now:?}");
        }
        check_log(dir.path());
    }
}

const IDENTITY_FILE: &str = "identity.json";

fn options(dir: &Path, group: Option<GroupOptions>) -> DispatcherOptions {
    DispatcherOptions {
        capture_head_bytes: 100,
        capture_tail_bytes: 100,
        group,
        ..DispatcherOptions::local(dir)
    }
}

/// A dispatcher on threads of its own. Its panics are the process's, see [`crate::round`].
struct Life {
    thread: JoinHandle<Result<(), DispatcherError>>,
    join: Join,
}

impl Life {
    fn begin(options: DispatcherOptions) -> Life {
        let path = options.dir.join(JOIN_FILE);
        let thread = thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            tokio.expect("threads").block_on(run(options))
        });
        let deadline = Instant::now() + ANSWER_MAX;
        loop {
            if let Ok(join) = Join::read(&path) {
                return Life { thread, join };
            }
            if thread.is_finished() {
                ended(thread);
                panic!("the dispatcher ended before it was up");
            }
            assert!(Instant::now() < deadline, "the dispatcher does not come up");
            thread::sleep(Duration::from_micros(300));
        }
    }
}

fn ended(thread: JoinHandle<Result<(), DispatcherError>>) {
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("the dispatcher ended: {error}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Cluster {
    fn make() -> Cluster {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let dir = super::files::folder();
        let life = Life::begin(options(dir.path(), None));
        let join = life.join.clone();
        let cluster = Cluster { dir, join, tokio };
        cluster.tokio.block_on(async {
            let mut client = Client::connect(&life.join).await.expect("it is just up");
            client.ask(RequestBody::Shutdown).await;
        });
        ended(life.thread);
        cluster
    }

    /// Starts the dispatcher in `dir`, lets members speak, and ends it. Gives the runs that it had at the end, and how many
    /// tasks each.
    fn live(&self, dir: &Path, group: Option<Membership>, steps: &[(Who, &[u8])]) -> Vec<(RunId, u64)> {
        let result = self.tokio.block_on(async {
            let door = Door::open(&self.join).await;
            let join = self.join_file(dir, &door);
            let life = Life::begin(options(dir, group.map(|membership| GroupOptions { membership, join })));
            let runs = tokio::time::timeout(ANSWER_MAX * 2, speak(&life.join, group, &door, steps)).await;
            (life, runs)
        });
        let (life, runs) = result;
        match runs {
            Ok(Some(runs)) => {
                ended(life.thread);
                runs
            }
            Ok(None) => {
                ended(life.thread);
                panic!("the dispatcher ended, and nobody had asked it to")
            }
            Err(_) => panic!("the dispatcher does not answer"),
        }
    }

    /// A join file that names the door of the other member.
    fn join_file(&self, dir: &Path, door: &Door) -> Option<PathBuf> {
        let path = dir.join("other.json");
        let mut join = self.join.clone();
        join.address.clone_from(&door.address);
        join.write(&path).expect("room");
        Some(path)
    }
}

/// The other dispatcher of the group, as far as this one reaches it: it listens and answers nothing.
struct Door {
    address: String,
}

impl Door {
    async fn open(join: &Join) -> Door {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let config = join.identity.server_config().expect("it was good for the dispatcher");
        tokio::spawn(net::keep_door(
            listener,
            config,
            8,
            |_, _, mut reader: FrameReader, writer: Writer| async move {
                let Ok(Some(Hello::Member { .. })) = reader.first::<Hello>().await else { return };
                writer
                    .send(&Welcome::Member { addresses: vec![], now: Timestamp(1_800_000_000_000_000_000) });
                while let Ok(Some(_)) = reader.next::<Vec<FromMember>>().await {}
            },
        ));
        Door { address }
    }
}

struct Client {
    reader: FrameReader,
    writer: Writer,
    next: u64,
}

impl Client {
    async fn connect(join: &Join) -> Option<Client> {
        let (mut reader, writer) = net::connect(&join.address, &join.identity).await.ok()?;
        writer.send(&Hello::Client { name: "fuzz".into() });
        reader.next::<Welcome>().await.ok()??;
        Some(Client { reader, writer, next: OWN_NUMBERS })
    }

    /// `None` when the dispatcher is gone.
    async fn ask(&mut self, body: RequestBody) -> Option<ReplyBody> {
        self.next += 1;
        let number = self.next;
        self.writer.send(&Request { number, body });
        loop {
            let reply = self.reader.next::<Reply>().await.ok()??;
            if let ReplyBody::Refused { reason } = &reply.body {
                texts::check_message(reason);
            }
            if reply.number == number {
                return Some(reply.body);
            }
        }
    }
}

struct JoinedNode {
    reader: FrameReader,
    writer: Writer,
    assigned: Vec<AssignTask>,
}

impl JoinedNode {
    async fn join(join: &Join, hello: ExecutorHello) -> Option<JoinedNode> {
        let (mut reader, writer) = net::connect(&join.address, &join.identity).await.ok()?;
        writer.send(&Hello::Executor(hello));
        match reader.next::<Welcome>().await.ok()?? {
            Welcome::Executor { .. } => Some(JoinedNode { reader, writer, assigned: vec![] }),
            Welcome::Refused { reason } => {
                texts::check_message(&reason);
                None
            }
            _ => None,
        }
    }

    /// Says something and waits until it is heard. `false`: the dispatcher has nothing to do with this executor any more.
    async fn say(&mut self, mut batch: Vec<FromExecutor>) -> bool {
        let leaves = batch.iter().any(|said| matches!(said, FromExecutor::Bye { .. }));
        batch.push(FromExecutor::Status(Box::default()));
        self.writer.send(&batch);
        let heard = async {
            while let Ok(Some(batch)) = self.reader.next::<Vec<ToExecutor>>().await {
                let mut is_heard = false;
                for message in batch {
                    match message {
                        ToExecutor::Assign(task) => self.assigned.push(*task),
                        ToExecutor::Beat { .. } => is_heard = true,
                        ToExecutor::Shutdown { reason } => {
                            texts::check_message(&reason);
                            return false;
                        }
                        _ => {}
                    }
                }
                if is_heard {
                    return true;
                }
            }
            false
        };
        !leaves && tokio::time::timeout(BEAT_MAX, heard).await.unwrap_or(false)
    }

    /// Ends all that it was given, well where the next two bits of `how` are not both set.
    async fn end_all(&mut self, mut how: u64) -> bool {
        if !self.say(vec![]).await {
            return false;
        }
        for task in std::mem::take(&mut self.assigned) {
            let is_bad = how & 3 == 3;
            how >>= 2;
            let Assignment { task, attempt, run, inputs, outputs, staying, .. } = *task.assignment;
            let of = |object: ObjectId| Digest([object.0 as u8; 32]);
            let size_bytes = 10;
            let added = |object, version: Option<HomeVersion>| {
                let run = version.as_ref().map(|_| run);
                let replica =
                    ReplicaAdded { object, digest: of(object), size_bytes, version, run, private: false };
                FromExecutor::Node(NodeMessage::ReplicaAdded(replica))
            };
            let at_home = || Some(HomeVersion { size_bytes, stamp: "s".into() });
            let mut said: Vec<FromExecutor> = vec![];
            said.extend(inputs.iter().map(|input| added(input.object, at_home())));
            let outcome = match is_bad {
                true => {
                    let message = "it failed".into();
                    Outcome::Failed(Failure { kind: FailureKind::ExitCode(1), message })
                }
                false => Outcome::Done,
            };
            if !is_bad {
                said.extend(outputs.iter().map(|output| added(*output, None)));
            }
            let read = inputs.iter().map(|input| InputReport {
                object: input.object,
                outcome: CacheOutcome::Miss,
                size_bytes,
                wait_ns: 5,
            });
            let made = outputs.iter().enumerate().map(|(output, object)| OutputReport {
                output: output as u32,
                digest: of(*object),
                size_bytes,
                marks: None,
            });
            let report = AttemptReport {
                task,
                attempt,
                outcome,
                times: Times::default(),
                inputs: read.collect(),
                in_memory: vec![],
                outputs: made.filter(|_| !is_bad).collect(),
                cpu_ns: 0,
                rss_bytes_max: 0,
                left: None,
            };
            said.push(FromExecutor::Node(NodeMessage::AttemptEnded { report: Arc::new(report) }));
            if !is_bad && staying.len() < outputs.len() {
                let result = Ok(());
                said.push(FromExecutor::Node(NodeMessage::OutputsHome { task, attempt, result }));
            }
            if !self.say(said).await {
                return false;
            }
        }
        true
    }
}

/// All that is said to a dispatcher, step by step. `None`: it ended by itself.
async fn speak(
    join: &Join,
    group: Option<Membership>,
    door: &Door,
    steps: &[(Who, &[u8])],
) -> Option<Vec<(RunId, u64)>> {
    let mut client = Client::connect(join).await?;
    let mut nodes: [Option<JoinedNode>; 2] = [None, None];
    let mut member = None;
    if let Some(group) = group.filter(|_| !steps.is_empty()) {
        let other = group.others().next().expect("there are two");
        let mut addresses = vec![join.address.clone(); 2];
        addresses[other.0 as usize].clone_from(&door.address);
        let (mut reader, writer) = net::connect(&join.address, &join.identity).await.ok()?;
        writer.send(&Hello::Member { member: other, n_members: 2, addresses });
        match reader.next::<Welcome>().await.ok()?? {
            Welcome::Member { .. } => member = Some((reader, writer)),
            welcome => panic!("another member gets {welcome:?}"),
        }
    }
    for &(who, body) in steps {
        match who {
            Who::Client => {
                let Some(request) = read::<Request>(body) else { continue };
                if request.body != RequestBody::Shutdown && request.number < OWN_NUMBERS {
                    client.writer.send(&request);
                }
            }
            Who::Executor(number) => {
                let Some(batch) = read::<Vec<FromExecutor>>(body) else { continue };
                if let Some(node) = &mut nodes[number]
                    && !node.say(batch).await
                {
                    nodes[number] = None;
                }
            }
            Who::Member => {
                let Some(batch) = read::<Vec<FromMember>>(body) else { continue };
                if let Some((_, writer)) = &member {
                    writer.send(&batch);
                }
            }
            Who::Joins(number) => {
                let Some(hello) = read::<ExecutorHello>(body) else { continue };
                nodes[number] = JoinedNode::join(join, hello).await;
            }
            Who::Ends => {
                let how = read::<u64>(body).unwrap_or_default();
                for node in &mut nodes {
                    if let Some(known) = node
                        && !known.end_all(how).await
                    {
                        *node = None;
                    }
                }
            }
            Who::TimePasses if body == [TIME_PASSES] => tokio::time::sleep(TICK).await,
            Who::TimePasses => {}
        }
        // What was said last is heard by now, or nearly.
        client.ask(RequestBody::Status).await?;
    }
    let mut other = Client::connect(join).await?;
    let ReplyBody::Status(status) = other.ask(RequestBody::Status).await? else {
        panic!("status is asked for, and something else answered")
    };
    other.ask(RequestBody::Shutdown).await?;
    Some(status.runs.iter().map(|run| (run.run, run.n_tasks)).collect())
}

/// The events that were logged keep the core's books right after each one, and give the same actions.
fn check_log(dir: &Path) {
    match eyas_report::replay(dir) {
        Ok(outcome) => {
            if let Some(difference) = outcome.difference {
                panic!("a replay takes another action: {difference}");
            }
        }
        Err(error) => panic!("the log cannot be replayed: {error}"),
    }
    let log = fs::read_to_string(dir.join(EVENTS_FILE)).expect("the dispatcher wrote it");
    let mut core = None;
    let mut actions = vec![];
    for line in log.lines() {
        if let Ok(header) = serde_json::from_str::<Header>(line) {
            core = Some(Dispatcher::new(header.config).expect("it was good for the dispatcher"));
        } else if let (Ok(Line { t, what: What::In(event) }), Some(core)) =
            (serde_json::from_str::<Line>(line), &mut core)
        {
            core.handle(t, event, &mut actions);
            actions.clear();
            core.sanity_check();
        }
    }
}
