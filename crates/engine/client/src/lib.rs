//! eyas-client: what a client of a cluster does: submit, follow, cancel, ask, and find out what an earlier run has done already
//! (`resume`). Requests go out, replies come in.
//!
//! The command line, the provider that starts nodes, and every other program that talks to dispatchers use
//! it. It needs no journal, no programs and no cache.
//!
//! If the join file names a group of dispatchers, this is a connection to each of them, which looks like one.
//! A submission is split ([`eyas_core::group::split`]) and its parts go to their dispatchers; questions go to
//! all, and the answers are combined (the module `group`). A dispatcher that is away does not end the
//! connection.

#![forbid(unsafe_code)]

mod group;
pub mod resume;
mod target;

use eyas_net::{self as net, FrameReader, NetError, Writer};
use eyas_storage::signed;
use eyas_terms::array::TaskArray;
use eyas_terms::{AttemptNo, ExecutorId, RunId};
use eyas_wire::identity::Join;
use eyas_wire::message::*;
use eyas_wire::users::{ClusterRights, UserKey};
use group::Group;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
pub use target::{Choice, JoinFile, Target};

/// A connection to a dispatcher, or to a group of them. Replies to one request come in order, but replies to
/// several requests may mix, so one user of a client makes one request at a time.
pub struct Client {
    target: Target,
    way: Way,
    next: u64,
    /// So many queries of signed URLs were sent.
    n_queries_sent: usize,
}

/// How often a client that waits for a submission to be accepted asks what the cluster warns of.
const WAIT_LOOK: Duration = Duration::from_secs(2);

/// So many of them are sent at once.
const QUERIES_AT_ONCE: usize = 1000;

/// So many files that are wanted on nodes are sent at once.
const FILES_AT_ONCE: usize = 1000;

/// What a submission consists of.
enum Content {
    Tasks(Arc<TaskArray>),
    /// Files that are wanted on nodes of these names.
    Files(Vec<String>, Vec<String>),
}

enum Way {
    One { reader: FrameReader, writer: Writer },
    Several(Group),
}

impl Client {
    /// Connects to the cluster of a join file.
    pub async fn connect(target: &Target) -> Result<Client, NetError> {
        let join = target.join();
        let way = match join.members.is_empty() {
            true => Client::way_to(join).await?,
            false => Way::Several(Group::connect(join.clone(), Some(target.path().to_path_buf())).await?),
        };
        Ok(Client { target: target.clone(), way, next: 1, n_queries_sent: 0 })
    }

    /// The way to the dispatcher of a join file that names no others.
    async fn way_to(join: &Join) -> Result<Way, NetError> {
        // Elsewhere nobody listens there, or somebody who cannot prove that it is this cluster's dispatcher.
        let here = match &join.address_here {
            Some(address) => open(address, join).await.ok(),
            None => None,
        };
        let (reader, writer, members) = match here {
            Some(opened) => opened,
            None => open(&join.address, join).await?,
        };
        if members.is_empty() {
            return Ok(Way::One { reader, writer });
        }
        // The dispatcher is one of several, but the file names no other.
        let mut join = join.clone();
        join.members = members;
        Ok(Way::Several(Group::connect(join, None).await?))
    }

    /// The cluster that this is a connection to, as its join file said when the connection was made.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether this is a connection to several dispatchers, which have the tasks of each run in parts.
    pub fn is_to_several(&self) -> bool {
        matches!(self.way, Way::Several(_))
    }

    /// Sends a request; the number that is returned identifies its replies.
    pub fn send(&mut self, body: RequestBody) -> Result<u64, NetError> {
        let number = self.next;
        self.next += 1;
        match &mut self.way {
            Way::One { writer, .. } => {
                if !writer.send(&Request { number, body }) {
                    return Err(NetError::Closed);
                }
            }
            Way::Several(group) => group.send(number, body),
        }
        Ok(number)
    }

    /// The next reply to `number`; replies to other requests are dropped.
    pub async fn reply(&mut self, number: u64) -> Result<ReplyBody, NetError> {
        loop {
            let reply = self.next().await?;
            if reply.number == number {
                return Ok(reply.body);
            }
        }
    }

    /// The next reply to any request.
    pub async fn next(&mut self) -> Result<Reply, NetError> {
        match &mut self.way {
            Way::One { reader, .. } => reader.next::<Reply>().await?.ok_or(NetError::Closed),
            Way::Several(group) => group.next().await,
        }
    }

    // ------------------------------------------------------------ what it is for

    /// Submits a run; returns when that is durable. `warn` is given what the cluster warns of meanwhile, each sentence once.
    pub async fn submit(
        &mut self,
        name: &str,
        keep: Keep,
        arrays: impl IntoIterator<Item = Arc<TaskArray>>,
        warn: impl FnMut(&str),
    ) -> Result<RunId, NetError> {
        let open = RequestBody::OpenRun { name: name.into(), keep, into: None };
        Ok(self.stream(open, arrays.into_iter().map(Content::Tasks), None, warn).await?.0.run)
    }

    /// Submits a run for a client that listens ([`Self::listen`]). Also says whether the listener hears of its tasks: otherwise it is
    /// for the client to follow the run. `warn`: as of [`Self::submit`].
    pub async fn submit_for(
        &mut self,
        listener: u64,
        name: &str,
        keep: Keep,
        arrays: impl IntoIterator<Item = Arc<TaskArray>>,
        warn: impl FnMut(&str),
    ) -> Result<(RunId, bool), NetError> {
        let open = RequestBody::OpenRun { name: name.into(), keep, into: None };
        let tasks = arrays.into_iter().map(Content::Tasks);
        let (accepted, is_heard) = self.stream(open, tasks, Some(listener), warn).await?;
        Ok((accepted.run, is_heard))
    }

    /// Has files of home brought to nodes before any task reads them: a run that ends when they are there. Returns when it is
    /// durable that they are wanted.
    ///
    /// * `files`: locations.
    /// * `nodes`: names of nodes; none: all that are there.
    /// * `warn`: as of [`Self::submit`].
    pub async fn push(
        &mut self,
        name: &str,
        files: &[String],
        nodes: &[String],
        warn: impl FnMut(&str),
    ) -> Result<RunId, NetError> {
        // The name may have a place in it, and what is behind a `?` there may be a key.
        let name = eyas_text::line_of(name).to_string();
        let open = RequestBody::OpenRun { name, keep: Keep::default(), into: None };
        let some = files.chunks(FILES_AT_ONCE).map(|some| Content::Files(some.to_vec(), nodes.to_vec()));
        let some: Vec<Content> = some.collect();
        Ok(self.stream(open, some, None, warn).await?.0.run)
    }

    /// Adds tasks to a run that goes on; returns when that is durable. Tasks that were already added with the
    /// same token are not added again. `warn`: as of [`Self::submit`].
    pub async fn add(
        &mut self,
        name: &str,
        addition: Addition,
        arrays: impl IntoIterator<Item = Arc<TaskArray>>,
        warn: impl FnMut(&str),
    ) -> Result<Accepted, NetError> {
        let open = RequestBody::OpenRun { name: name.into(), keep: Keep::default(), into: Some(addition) };
        Ok(self.stream(open, arrays.into_iter().map(Content::Tasks), None, warn).await?.0)
    }

    /// Also says whether it was sent for the listener.
    async fn stream(
        &mut self,
        open: RequestBody,
        content: impl IntoIterator<Item = Content>,
        listener: Option<u64>,
        warn: impl FnMut(&str),
    ) -> Result<(Accepted, bool), NetError> {
        let mut content = content.into_iter();
        let (first, second) = (content.next(), content.next());
        let (is_alone, number) = (!self.is_to_several(), self.next);
        let is_heard = match (open, first, second) {
            // What is small costs no more than one round trip.
            (RequestBody::OpenRun { name, keep, into }, Some(Content::Tasks(array)), None) if is_alone => {
                self.send_queries().await?;
                self.send(RequestBody::SubmitRun { name, keep, into, array, listener })?;
                listener.is_some()
            }
            (open, first, second) => {
                let run = match self.ask(open).await? {
                    ReplyBody::RunOpened { run, .. } => run,
                    ReplyBody::RunAccepted { run, again, .. } => return Ok((Accepted { run, again }, false)),
                    _ => return Err(makes_no_sense("a submission")),
                };
                self.fill(run, first.into_iter().chain(second).chain(content)).await?;
                false
            }
        };
        Ok((self.accepted(number, warn).await?, is_heard))
    }

    /// Sends what a submission consists of, and that this is all.
    async fn fill(&mut self, run: RunId, content: impl Iterator<Item = Content>) -> Result<(), NetError> {
        for some in content {
            self.send_queries().await?;
            self.send(match some {
                Content::Tasks(array) => RequestBody::AddArray { run, array },
                Content::Files(files, nodes) => RequestBody::WantFiles { run, files: Arc::new(files), nodes },
            })?;
        }
        self.send(RequestBody::CommitRun { run })?;
        Ok(())
    }

    /// Waits until a submission is durable, whose requests have this number and later ones. `warn`: as of [`Self::submit`].
    async fn accepted(&mut self, first: u64, mut warn: impl FnMut(&str)) -> Result<Accepted, NetError> {
        let (mut look, mut said) = (tokio::time::interval(WAIT_LOOK), BTreeSet::new());
        look.reset();
        loop {
            let reply = tokio::select! {
                reply = self.next() => reply?,
                _ = look.tick() => {
                    self.send(RequestBody::Status)?;
                    continue;
                }
            };
            match reply.body {
                // Of a submission before this one, which was given up.
                _ if reply.number < first => {}
                ReplyBody::Status(status) => {
                    for why in status.warnings.into_iter().filter(|why| said.insert(why.clone())) {
                        warn(&why);
                    }
                }
                ReplyBody::RunAccepted { run, again, .. } => return Ok(Accepted { run, again }),
                // The first refusal has the reason; the refusal of the commit repeats it.
                ReplyBody::Refused { reason } => return Err(NetError::Refused(reason)),
                _ => return Err(makes_no_sense("a submission")),
            }
        }
    }

    /// Sends the queries of signed URLs that this process knows, unless they were sent before: locations do not have them.
    async fn send_queries(&mut self) -> Result<(), NetError> {
        let fresh = signed::known_from(self.n_queries_sent);
        for some in fresh.chunks(QUERIES_AT_ONCE) {
            match self.ask(RequestBody::Queries(Queries(some.to_vec()))).await? {
                ReplyBody::Kept => self.n_queries_sent += some.len(),
                _ => return Err(makes_no_sense("what signed URLs need")),
            }
        }
        Ok(())
    }

    /// Asks for reports of a run whenever something changed (at most every `interval_ns`) and at its end.
    /// They come as [`ReplyBody::Run`] with the number that is returned.
    pub fn watch(&mut self, run: RunId, interval_ns: u64) -> Result<u64, NetError> {
        self.send(RequestBody::WatchRun { run, interval_ns })
    }

    /// Cancels a task, all tasks of a run, or those of all unfinished runs. Gives how many had not ended.
    pub async fn cancel(&mut self, run: Option<RunId>, task: Option<TaskName>) -> Result<u64, NetError> {
        match self.ask(RequestBody::Cancel { run, task }).await? {
            ReplyBody::Cancelled { n_tasks } => Ok(n_tasks),
            _ => Err(makes_no_sense("a cancellation")),
        }
    }

    /// Forgets runs, all of them or none; returns when that is durable.
    pub async fn forget(&mut self, runs: Vec<RunId>) -> Result<(), NetError> {
        match self.ask(RequestBody::Forget { runs }).await? {
            ReplyBody::Forgotten { .. } => Ok(()),
            _ => Err(makes_no_sense("a wish to forget runs")),
        }
    }

    /// The users of the cluster, as far as the one who asks may see them, and its owner with an empty name.
    pub async fn users(&mut self) -> Result<Vec<UserLine>, NetError> {
        self.ask_users(RequestBody::Users).await
    }

    /// Lets a new user in (`key` given), or changes what a known one may do; returns when that is durable.
    pub async fn set_user(
        &mut self,
        name: &str,
        key: Option<UserKey>,
        rights: Option<ClusterRights>,
        weight: Option<u32>,
    ) -> Result<Vec<UserLine>, NetError> {
        self.ask_users(RequestBody::SetUser { name: name.into(), key, rights, weight }).await
    }

    /// Takes a user's key back, and closes their connections; returns when that is durable.
    pub async fn remove_user(&mut self, name: &str) -> Result<Vec<UserLine>, NetError> {
        self.ask_users(RequestBody::RemoveUser { name: name.into() }).await
    }

    async fn ask_users(&mut self, body: RequestBody) -> Result<Vec<UserLine>, NetError> {
        match self.ask(body).await? {
            ReplyBody::Users(lines) => Ok(lines),
            _ => Err(makes_no_sense("a question about users")),
        }
    }

    /// What the cluster is doing, with its nodes in the order of their names.
    pub async fn status(&mut self) -> Result<ClusterStatus, NetError> {
        match self.ask(RequestBody::Status).await? {
            ReplyBody::Status(mut status) => {
                status.executors.sort_by_cached_key(|node| eyas_text::natural(&node.name));
                Ok(*status)
            }
            _ => Err(makes_no_sense("a question for its status")),
        }
    }

    pub async fn explain(&mut self, run: Option<RunId>, task: TaskName) -> Result<Explained, NetError> {
        match self.ask(RequestBody::Explain { run, task }).await? {
            ReplyBody::Explained(explained) => Ok(*explained),
            _ => Err(makes_no_sense("a question about a task")),
        }
    }

    /// The output of a task's attempts, including a running one.
    pub async fn printed(&mut self, run: Option<RunId>, task: TaskName) -> Result<TaskPrinted, NetError> {
        match self.ask(RequestBody::Logs { run, task }).await? {
            ReplyBody::Printed(printed) => Ok(*printed),
            _ => Err(makes_no_sense("a question about what a task printed")),
        }
    }

    /// The output of tasks of a run, from a position among its tasks on. `run`: `None` means the newest.
    pub async fn prints(
        &mut self,
        run: Option<RunId>,
        which: WhichTasks,
        from: u64,
    ) -> Result<Prints, NetError> {
        match self.ask(RequestBody::Prints { run, which, from }).await? {
            ReplyBody::Prints { run, tasks, next, is_early } => Ok(Prints { run, tasks, next, is_early }),
            _ => Err(makes_no_sense("a question about what tasks printed")),
        }
    }

    /// Asks for each task of a run when it has ended, with what it printed; those that have ended come first. They come as
    /// [`ReplyBody::Prints`] with the number that is returned, the last of them without a `next`.
    pub fn follow_ends(&mut self, run: RunId) -> Result<u64, NetError> {
        self.send(RequestBody::FollowEnds { run })
    }

    /// Asks the same for each run that is submitted for this listener from now on ([`Self::submit_for`]). For one dispatcher only.
    pub async fn listen(&mut self, listener: u64) -> Result<(), NetError> {
        match self.ask(RequestBody::Listen { listener }).await? {
            ReplyBody::Kept => Ok(()),
            _ => Err(makes_no_sense("a listener")),
        }
    }

    /// What an attempt printed to standard output from byte `at` on, a part of it; empty where nothing is kept. `drop`: all before
    /// `at` was read, and no part of it is needed any more.
    pub async fn printed_part(
        &mut self,
        of: &TaskPrinted,
        attempt: AttemptNo,
        at: u64,
        drop: bool,
    ) -> Result<Vec<u8>, NetError> {
        let task = match &self.way {
            Way::One { .. } => TaskName::Number(of.task),
            // Each dispatcher of a group numbers its own tasks.
            Way::Several(_) => TaskName::User(of.user_id.clone()),
        };
        match self.ask(RequestBody::ReadPrinted { run: Some(of.run), task, attempt, at, drop }).await? {
            ReplyBody::PrintedPart { bytes } => Ok(bytes),
            _ => Err(makes_no_sense("a question about what a task printed")),
        }
    }

    /// Ends the dispatcher and its executors.
    pub async fn shut_down(&mut self) -> Result<(), NetError> {
        self.ask(RequestBody::Shutdown).await.map(|_| ())
    }

    /// For the process that starts and ends nodes: the demand for nodes.
    pub async fn demand(&mut self, provisioner: Provisioner) -> Result<DemandStatus, NetError> {
        match self.ask(RequestBody::Demand { provisioner }).await? {
            ReplyBody::Demand(demand) => Ok(*demand),
            _ => Err(makes_no_sense("a question about what there is to do")),
        }
    }

    /// Has an executor end when its attempts have ended.
    pub async fn drain(&mut self, executor: ExecutorId) -> Result<(), NetError> {
        self.ask(RequestBody::Drain { executor }).await.map(|_| ())
    }

    /// One request, one reply; a refusal is an error.
    pub async fn ask(&mut self, body: RequestBody) -> Result<ReplyBody, NetError> {
        let number = self.send(body)?;
        match self.reply(number).await? {
            ReplyBody::Refused { reason } => Err(NetError::Refused(reason)),
            body => Ok(body),
        }
    }
}

/// The dispatcher's answer to a submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The run that the tasks are in.
    pub run: RunId,
    /// These tasks had been accepted before.
    pub again: bool,
}

/// The output of some tasks of a run; see [`ReplyBody::Prints`].
#[derive(Clone, PartialEq, Debug)]
pub struct Prints {
    pub run: RunId,
    pub tasks: Vec<TaskPrinted>,
    /// The position to continue from; `None`: these were the last.
    pub next: Option<u64>,
    /// The task at `next` has not ended, so it is too early to continue.
    pub is_early: bool,
}

fn makes_no_sense(what: &str) -> NetError {
    NetError::Refused(format!("its answer to {what} makes no sense"))
}

/// Connects to one dispatcher as a client. Also gives the addresses of the dispatchers of its group, if it is
/// one of several.
async fn open(address: &str, join: &Join) -> Result<(FrameReader, Writer, Vec<String>), NetError> {
    let hello = Hello::Client { name: format!("pid {}", std::process::id()) };
    let (reader, writer, welcome) = net::enter(address, &join.identity, &hello).await?;
    match welcome {
        Welcome::Client { members, .. } => Ok((reader, writer, members)),
        Welcome::Refused { reason } => Err(NetError::Refused(reason)),
        _ => Err(NetError::Refused("it took this client for something else".into())),
    }
}
