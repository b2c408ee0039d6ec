//! eyas-client: what a client of a cluster does: submit, follow, cancel, ask. Requests go out, replies come in.
//!
//! The command line, the part that starts nodes, and whatever else talks to dispatchers stand on it. Nothing of a dispatcher, an
//! executor or their files is behind it.
//!
//! Where the join file names a group of dispatchers this is a connection to each of them, which looks like one: a
//! submission is split ([`eyas_core::group::split`]) and its parts go to their dispatchers, questions go to all, and the answers are
//! put together (the module `group`). One dispatcher that is away does not end it.

mod group;

use eyas_core::array::TaskArray;
use eyas_core::{ExecutorId, RunId};
use eyas_net::{self as net, NetError, Reader, Writer};
use eyas_wire::identity::Join;
use eyas_wire::message::*;
use group::Group;
use std::path::Path;
use std::sync::Arc;

/// A connection to a dispatcher, or to a group of them. Replies to one request come in order; those to several may mix, so
/// one user of a client asks one thing at a time.
pub struct Client {
    way: Way,
    next: u64,
}

enum Way {
    One { reader: Reader, writer: Writer },
    Several(Group),
}

impl Client {
    /// Connects with a join file.
    pub async fn connect(join: &Path) -> Result<Client, NetError> {
        let told = Join::read(join)?;
        if told.members.is_empty() {
            return Client::connect_to(&told).await;
        }
        let group = Group::connect(told, Some(join.to_path_buf())).await?;
        Ok(Client { way: Way::Several(group), next: 1 })
    }

    pub async fn connect_to(join: &Join) -> Result<Client, NetError> {
        if !join.members.is_empty() {
            let group = Group::connect(join.clone(), None).await?;
            return Ok(Client { way: Way::Several(group), next: 1 });
        }
        let (reader, writer, members) = open(&join.address, join).await?;
        if !members.is_empty() {
            // It is one of several; the file names no other.
            let mut join = join.clone();
            join.members = members;
            let group = Group::connect(join, None).await?;
            return Ok(Client { way: Way::Several(group), next: 1 });
        }
        Ok(Client { way: Way::One { reader, writer }, next: 1 })
    }

    /// Sends a request; its number tells its replies.
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

    /// The next reply to `number`; replies to others are dropped.
    pub async fn reply(&mut self, number: u64) -> Result<ReplyBody, NetError> {
        loop {
            let reply = self.next().await?;
            if reply.number == number {
                return Ok(reply.body);
            }
        }
    }

    /// The next reply to anything.
    pub async fn next(&mut self) -> Result<Reply, NetError> {
        match &mut self.way {
            Way::One { reader, .. } => reader.next::<Reply>().await?.ok_or(NetError::Closed),
            Way::Several(group) => group.next().await,
        }
    }

    // ------------------------------------------------------------ what it is for

    /// Submits a run; returns when that is durable. `keep`: its files that stay on the nodes are kept when nobody will read them
    /// any more.
    pub async fn submit(
        &mut self,
        name: &str,
        keep: bool,
        arrays: impl IntoIterator<Item = Arc<TaskArray>>,
    ) -> Result<RunId, NetError> {
        let open = RequestBody::OpenRun { name: name.into(), keep, into: None };
        Ok(self.stream(open, arrays).await?.run)
    }

    /// Adds tasks to a run that goes on; returns when that is durable. With the token of an earlier try, what that one added is not
    /// added again.
    pub async fn add(
        &mut self,
        name: &str,
        addition: Addition,
        arrays: impl IntoIterator<Item = Arc<TaskArray>>,
    ) -> Result<Accepted, NetError> {
        self.stream(RequestBody::OpenRun { name: name.into(), keep: false, into: Some(addition) }, arrays)
            .await
    }

    async fn stream(
        &mut self,
        open: RequestBody,
        arrays: impl IntoIterator<Item = Arc<TaskArray>>,
    ) -> Result<Accepted, NetError> {
        let run = match self.ask(open).await? {
            ReplyBody::RunOpened { run, .. } => run,
            ReplyBody::RunAccepted { run, again, .. } => return Ok(Accepted { run, again }),
            _ => return Err(makes_no_sense("a submission")),
        };
        for array in arrays {
            self.send(RequestBody::AddArray { run, array })?;
        }
        let number = self.send(RequestBody::CommitRun { run })?;
        loop {
            let reply = self.next().await?;
            match reply.body {
                ReplyBody::RunAccepted { run, again, .. } => return Ok(Accepted { run, again }),
                // The first refusal tells the reason; the one to the commit repeats it.
                ReplyBody::Refused { reason } => return Err(NetError::Refused(reason)),
                _ if reply.number == number => return Err(makes_no_sense("a submission")),
                _ => {}
            }
        }
    }

    /// Asks to hear of a run whenever something changed, at most every `interval_ns`, and of its end: as [`ReplyBody::Run`]
    /// with the number that is given.
    pub fn watch(&mut self, run: RunId, interval_ns: u64) -> Result<u64, NetError> {
        self.send(RequestBody::WatchRun { run, interval_ns })
    }

    /// Cancels a task, all tasks of a run, or those of all runs that go on. Gives how many had not ended.
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

    pub async fn status(&mut self) -> Result<ClusterStatus, NetError> {
        match self.ask(RequestBody::Status).await? {
            ReplyBody::Status(status) => Ok(*status),
            _ => Err(makes_no_sense("a question for its status")),
        }
    }

    pub async fn explain(&mut self, run: Option<RunId>, task: TaskName) -> Result<Explained, NetError> {
        match self.ask(RequestBody::Explain { run, task }).await? {
            ReplyBody::Explained(explained) => Ok(*explained),
            _ => Err(makes_no_sense("a question about a task")),
        }
    }

    /// What a task's attempts printed, the running one among them.
    pub async fn printed(&mut self, run: Option<RunId>, task: TaskName) -> Result<TaskPrinted, NetError> {
        match self.ask(RequestBody::Logs { run, task }).await? {
            ReplyBody::Printed(printed) => Ok(*printed),
            _ => Err(makes_no_sense("a question about what a task printed")),
        }
    }

    /// What tasks of a run printed, from a position among its tasks on. `run`: the newest if none is named.
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

    /// Ends the dispatcher and its executors.
    pub async fn shut_down(&mut self) -> Result<(), NetError> {
        self.ask(RequestBody::Shutdown).await.map(|_| ())
    }

    /// For whoever starts and ends nodes: what there is to do.
    pub async fn demand(&mut self, provisioner: Provisioner) -> Result<DemandStatus, NetError> {
        match self.ask(RequestBody::Demand { provisioner }).await? {
            ReplyBody::Demand(demand) => Ok(*demand),
            _ => Err(makes_no_sense("a question about what there is to do")),
        }
    }

    /// Has an executor end when it has nothing left.
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

/// What the dispatcher said to a submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The run that the tasks are in.
    pub run: RunId,
    /// These tasks had been accepted before.
    pub again: bool,
}

/// What some tasks of a run printed. As [`ReplyBody::Prints`].
#[derive(Clone, PartialEq, Debug)]
pub struct Prints {
    pub run: RunId,
    pub tasks: Vec<TaskPrinted>,
    /// Where to go on; `None`: these were the last.
    pub next: Option<u64>,
    /// The task at `next` has not ended: it is too early to go on.
    pub is_early: bool,
}

fn makes_no_sense(what: &str) -> NetError {
    NetError::Refused(format!("its answer to {what} makes no sense"))
}

/// Connects to one dispatcher as a client. Gives where the dispatchers of its group are, if it is one of several.
async fn open(address: &str, join: &Join) -> Result<(Reader, Writer, Vec<String>), NetError> {
    let hello = Hello::Client { name: format!("pid {}", std::process::id()) };
    let (reader, writer, welcome) = net::enter(address, &join.identity, &hello).await?;
    match welcome {
        Welcome::Client { members, .. } => Ok((reader, writer, members)),
        Welcome::Refused { reason } => Err(NetError::Refused(reason)),
        _ => Err(NetError::Refused("it took this client for something else".into())),
    }
}
