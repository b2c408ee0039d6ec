//! A client of a group of dispatchers: one connection to each, requests split or sent to all, answers
//! combined.
//!
//! Each request is served by an async task of its own, as some take long. A connection that breaks is made again. A
//! request that was under way on it fails; only watching a run continues when the dispatcher is back.
//!
//! A join file may be a copy that was made before all members were up. If the file does not name a member's
//! address, or the member does not answer there, the members that answer are asked.
//!
//! The steps of a submission are the session's ([`eyas_session::client`]), which the worlds of faults use,
//! too; this module has the connections and the work of splitting it.

use super::open;
use eyas_core::group::giver_of;
use eyas_net::{FrameReader, NetError, Writer};
use eyas_session::client::{self as session, Input, Output, Submission};
use eyas_terms::RunId;
use eyas_wire::identity::Join;
use eyas_wire::message::*;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// How long until a member that is away is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How long a client goes on while no member at all answers.
const LONELY_MAX: Duration = Duration::from_secs(10);
/// How long it is listened for answers that come late.
const LATE_MAX: Duration = Duration::from_secs(5);
/// How long a submission waits for members that have not been reached yet.
const COMING_MAX: Duration = Duration::from_secs(20);

/// Positions of tasks in a member's part of a run are below this bit.
const MEMBER_SHIFT: u32 = 48;

/// A connection to one member, while there is one.
#[derive(Default)]
struct Line {
    writer: Option<Writer>,
    /// The receivers of replies, by the number of the request. They are dropped with the connection.
    waiting: HashMap<u64, Waiting>,
}

/// The receiver of the replies to a request.
enum Waiting {
    Asks(UnboundedSender<ReplyBody>),
    Submits(Waits),
}

/// A submission that waits for a member's reply. If the connection breaks and this is dropped, the submission
/// is informed.
struct Waits {
    member: usize,
    ticket: u64,
    sender: UnboundedSender<Input>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let _ = self.sender.send(Input::Lost { member: self.member });
    }
}

/// Why there is no good answer.
enum No {
    /// A dispatcher that is needed is away: a sentence.
    Away(String),
    /// The request was refused, or would be.
    Refused(String),
}

impl No {
    fn sentence(self) -> String {
        match self {
            No::Away(sentence) | No::Refused(sentence) => sentence,
        }
    }
}

impl From<tokio::task::JoinError> for No {
    fn from(e: tokio::task::JoinError) -> No {
        No::Refused(e.to_string())
    }
}

/// A submission of this client.
struct Submitting {
    submission: Submission,
    sender: UnboundedSender<Input>,
    inputs: UnboundedReceiver<Input>,
    /// Requests whose replies the submission receives, by member.
    asked: Vec<(usize, u64)>,
}

struct Shared {
    lines: Vec<Mutex<Line>>,
    /// The last known address of each member; empty for a member that has not been reached yet.
    addresses: Mutex<Vec<String>>,
    /// Numbers of requests to members, which are not those of the client.
    next: AtomicU64,
    /// Submissions that are open and still receive tasks.
    submissions: Mutex<HashMap<RunId, Submitting>>,
    replies: UnboundedSender<Result<Reply, NetError>>,
}

pub(super) struct Group {
    shared: Arc<Shared>,
    replies: UnboundedReceiver<Result<Reply, NetError>>,
}

impl Group {
    /// Connects to all members that answer; at least one has to.
    pub async fn connect(join: Join, path: Option<PathBuf>) -> Result<Group, NetError> {
        let (sender, replies) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            lines: join.members.iter().map(|_| Mutex::new(Line::default())).collect(),
            addresses: Mutex::new(join.members.clone()),
            next: AtomicU64::new(1),
            submissions: Mutex::new(HashMap::new()),
            replies: sender,
        });
        let mut first_error = None;
        let mut opened: Vec<Option<_>> = join.members.iter().map(|_| None).collect();
        let mut tried = vec![false; opened.len()];
        // Members that answer report where others are.
        while let Some(member) = (0..opened.len()).find(|m| !tried[*m] && !shared.address(*m).is_empty()) {
            tried[member] = true;
            match open(&shared.address(member), &join).await {
                Ok((reader, writer, addresses)) => {
                    shared.learn(member, &addresses, None);
                    opened[member] = Some((reader, writer));
                }
                Err(e) => _ = first_error.get_or_insert(e),
            }
        }
        if opened.iter().all(Option::is_none) {
            let nobody = || NetError::Refused("the join file names no dispatcher of its group".into());
            return Err(first_error.unwrap_or_else(nobody));
        }
        for (member, line) in opened.into_iter().enumerate() {
            // Requests that come first find the members that answered.
            let reader = line.map(|(reader, writer)| {
                shared.line(member).writer = Some(writer);
                reader
            });
            let weak = Arc::downgrade(&shared);
            tokio::spawn(keep(weak, member, reader, join.clone(), path.clone()));
        }
        Ok(Group { shared, replies })
    }

    pub fn send(&mut self, number: u64, body: RequestBody) {
        if let RequestBody::AddArray { run, array } = body {
            // Arrays must keep their order, so they are not handled on a task of their own.
            if let Some(submitting) = self.shared.submissions().get_mut(&run) {
                submitting.submission.handle(Input::Array(array), &mut vec![]);
            }
            return;
        }
        let shared = self.shared.clone();
        tokio::spawn(async move { shared.serve(number, body).await });
    }

    pub async fn next(&mut self) -> Result<Reply, NetError> {
        self.replies.recv().await.unwrap_or(Err(NetError::Closed))
    }
}

/// Reads one member's replies, and connects again when the connection breaks.
async fn keep(
    shared: std::sync::Weak<Shared>,
    member: usize,
    mut reader: Option<FrameReader>,
    mut join: Join,
    path: Option<PathBuf>,
) {
    loop {
        if let Some(mut reader) = reader.take() {
            while let Ok(Some(reply)) = reader.next::<Reply>().await {
                let Some(shared) = shared.upgrade() else { return };
                let line = shared.line(member);
                match line.waiting.get(&reply.number) {
                    Some(Waiting::Asks(sender)) => _ = sender.send(reply.body),
                    Some(Waiting::Submits(Waits { member, ticket, sender })) => {
                        let (member, ticket, body) = (*member, *ticket, reply.body);
                        let _ = sender.send(Input::Answered { member, ticket, body });
                    }
                    None => {}
                }
            }
            let Some(shared) = shared.upgrade() else { return };
            *shared.line(member) = Line::default();
        }
        tokio::time::sleep(RETRY).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Some(Ok(file)) = path.as_ref().map(|path| Join::read(path)) {
            // Only an address that differs from what the file said before is news; a copy of the file never
            // changes.
            if let (Some(now), before) = (file.members.get(member), join.members.get(member))
                && Some(now) != before
                && !now.is_empty()
            {
                shared.addresses()[member].clone_from(now);
            }
            join = file;
        }
        let address = shared.address(member);
        let line = match address.is_empty() {
            true => None,
            false => open(&address, &join).await.ok(),
        };
        match line {
            Some((new, writer, addresses)) => {
                shared.learn(member, &addresses, None);
                shared.line(member).writer = Some(writer);
                reader = Some(new);
            }
            None => shared.ask_where(member, &join).await,
        }
    }
}

impl Shared {
    fn line(&self, member: usize) -> std::sync::MutexGuard<'_, Line> {
        self.lines[member].lock().expect("nobody panics with it")
    }

    fn submissions(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Submitting>> {
        self.submissions.lock().expect("nobody panics with it")
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.addresses.lock().expect("nobody panics with it")
    }

    fn address(&self, member: usize) -> String {
        self.addresses()[member].clone()
    }

    /// The member `from` reported all addresses. It knows its own address best, and the other addresses no
    /// better than anybody; what it says of `lost` is of no use.
    fn learn(&self, from: usize, reported: &[String], lost: Option<usize>) {
        let mut addresses = self.addresses();
        if reported.len() != addresses.len() {
            return;
        }
        for (member, (known, reported)) in addresses.iter_mut().zip(reported).enumerate() {
            let is_better = known.is_empty() || member == from || Some(member) == lost;
            if is_better && !reported.is_empty() {
                known.clone_from(reported);
            }
        }
    }

    /// Asks the members that answer where member `lost` is.
    async fn ask_where(&self, lost: usize, join: &Join) {
        for member in (0..self.n_members()).filter(|m| *m != lost) {
            if self.line(member).writer.is_some()
                && let Ok((_, _, addresses)) = open(&self.address(member), join).await
            {
                return self.learn(member, &addresses, Some(lost));
            }
        }
    }

    fn n_members(&self) -> usize {
        self.lines.len()
    }

    fn is_away(&self, member: usize) -> bool {
        self.line(member).writer.is_none()
    }

    fn away(&self, member: usize) -> String {
        let who = format!("dispatcher {} of {}", member + 1, self.n_members());
        match self.address(member).is_empty() {
            true => format!("{who} has not come yet: neither the join file nor the others know where it is"),
            false => format!("{who} does not answer"),
        }
    }

    /// Waits for members that have not been reached yet, because the cluster is being started. Members that
    /// were reached before and are away are not waited for.
    async fn wait_for_coming(&self) {
        let until = tokio::time::Instant::now() + COMING_MAX;
        let is_coming = |member: usize| self.is_away(member) && self.address(member).is_empty();
        let mut coming: Vec<usize> = (0..self.n_members()).filter(|m| is_coming(*m)).collect();
        while !coming.is_empty() && tokio::time::Instant::now() < until {
            tokio::time::sleep(RETRY / 5).await;
            // Members whose address is known by now are connected to next.
            coming.retain(|member| self.is_away(*member));
        }
    }

    /// The reason why a submission failed, in words.
    fn no(&self, no: session::No) -> No {
        match no {
            session::No::Absent(member) => {
                No::Away(format!("{}; a run needs all of them", self.away(member)))
            }
            session::No::Away(member) => No::Away(self.away(member)),
            session::No::Refused(reason) => No::Refused(reason),
        }
    }

    fn answer(&self, number: u64, body: ReplyBody) {
        let _ = self.replies.send(Ok(Reply { number, body }));
    }

    /// Sends a request to one member; its replies come on the channel, which ends with the connection.
    fn send(&self, member: usize, body: RequestBody) -> Option<(u64, UnboundedReceiver<ReplyBody>)> {
        let (sender, replies) = mpsc::unbounded_channel();
        let number = self.send_for(member, body, Some(Waiting::Asks(sender)))?;
        Some((number, replies))
    }

    /// Sends a request and registers the receiver of its replies, if there is one. Gives the request's
    /// number; `None` if the member is away.
    fn send_for(&self, member: usize, body: RequestBody, waiting: Option<Waiting>) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut line = self.line(member);
        let writer = line.writer.as_ref()?;
        if !writer.send(&Request { number, body }) {
            return None;
        }
        line.waiting.extend(waiting.map(|waiting| (number, waiting)));
        Some(number)
    }

    /// One request to one member, one reply; `Err` is a sentence.
    async fn ask(&self, member: usize, body: RequestBody) -> Result<ReplyBody, No> {
        let away = || No::Away(self.away(member));
        let (number, mut replies) = self.send(member, body).ok_or_else(away)?;
        let reply = replies.recv().await;
        self.line(member).waiting.remove(&number);
        match reply {
            Some(ReplyBody::Refused { reason }) => Err(No::Refused(reason)),
            Some(body) => Ok(body),
            None => Err(away()),
        }
    }

    /// Sends the same request to all members at once.
    async fn ask_all(self: &Arc<Self>, body: &RequestBody) -> Vec<Result<ReplyBody, No>> {
        let asked: Vec<_> = (0..self.n_members())
            .map(|member| {
                let (shared, body) = (self.clone(), body.clone());
                tokio::spawn(async move { shared.ask(member, body).await })
            })
            .collect();
        let mut replies = vec![];
        for reply in asked {
            replies.push(reply.await.unwrap_or_else(|e| Err(e.into())));
        }
        replies
    }

    async fn serve(self: Arc<Self>, number: u64, body: RequestBody) {
        // A submitting client may want to try again; for other clients a refusal is an answer like any other.
        let submits = matches!(body, RequestBody::OpenRun { .. } | RequestBody::CommitRun { .. });
        let reply = match body {
            RequestBody::OpenRun { name, keep, into } => self.open_run(name, keep, into).await,
            RequestBody::CommitRun { run } => {
                let submitting = self.submissions().remove(&run);
                match submitting {
                    Some(mut submitting) => submitting.go_on(&self, Input::Commit).await,
                    None => Err(No::Refused(format!("run {run} is not being submitted by this client"))),
                }
            }
            RequestBody::AbortRun { run } => {
                let submitting = self.submissions().remove(&run);
                if let Some(mut submitting) = submitting {
                    submitting.take(&self, Input::Abort);
                    submitting.end(&self);
                }
                return;
            }
            RequestBody::WatchRun { run, interval_ns } => return self.watch(number, run, interval_ns).await,
            RequestBody::Status => self.status().await,
            body @ RequestBody::Cancel { .. } => self.cancel(&body).await,
            RequestBody::Explain { task: TaskName::Number(_), .. }
            | RequestBody::Logs { task: TaskName::Number(_), .. }
            | RequestBody::ReadPrinted { task: TaskName::Number(_), .. } => {
                let reason = "each dispatcher of a group numbers its own tasks; name the task by its id";
                Err(No::Refused(reason.into()))
            }
            // Whoever reads for a task belongs to one of them, and later to another one.
            body @ RequestBody::Queries(_) => {
                match self.ask_all(&body).await.into_iter().find(Result::is_err) {
                    Some(error) => error,
                    None => Ok(ReplyBody::Kept),
                }
            }
            body @ (RequestBody::Explain { .. }
            | RequestBody::Logs { .. }
            | RequestBody::ReadPrinted { .. }) => first_of(self.ask_all(&body).await),
            RequestBody::Prints { run, which, from } => self.prints(run, which, from).await,
            // The first dispatcher asks the others, and they follow it.
            body @ (RequestBody::Forget { .. }
            | RequestBody::Users
            | RequestBody::SetUser { .. }
            | RequestBody::RemoveUser { .. }) => self.ask(0, body).await,
            RequestBody::Shutdown => first_of(self.ask_all(&RequestBody::Shutdown).await),
            body @ RequestBody::Demand { .. } => demand(self.ask_all(&body).await),
            RequestBody::Drain { executor } => {
                let member = giver_of(executor.0, self.n_members() as u32);
                self.ask(member.0 as usize, RequestBody::Drain { executor }).await
            }
            RequestBody::FollowEnds { run } => return self.follow(number, run),
            RequestBody::SubmitRun { .. }
            | RequestBody::Listen { .. }
            | RequestBody::AddArray { .. }
            | RequestBody::WantFiles { .. }
            | RequestBody::JoinRun { .. }
            | RequestBody::Consult { .. }
            | RequestBody::Upstream { .. }
            | RequestBody::LinkRun { .. }
            | RequestBody::PrepareRun { .. } => {
                Err(No::Refused("this is for one dispatcher of a group".into()))
            }
        };
        match reply {
            Ok(body) => self.answer(number, body),
            Err(No::Refused(reason)) => self.answer(number, ReplyBody::Refused { reason }),
            Err(No::Away(sentence)) if submits => {
                let _ = self.replies.send(Err(NetError::Away(sentence)));
            }
            Err(No::Away(reason)) => self.answer(number, ReplyBody::Refused { reason }),
        }
    }

    // ------------------------------------------------------------ submissions

    async fn open_run(
        self: &Arc<Self>,
        name: String,
        keep: Keep,
        into: Option<Addition>,
    ) -> Result<ReplyBody, No> {
        self.wait_for_coming().await;
        let (sender, inputs) = mpsc::unbounded_channel();
        let submission = Submission::new(self.n_members(), name, keep, into);
        let mut submitting = Submitting { submission, sender, inputs, asked: vec![] };
        let is_here = (0..self.n_members()).map(|m| !self.is_away(m)).collect();
        let reply = submitting.go_on(self, Input::Begin { is_here }).await?;
        if let ReplyBody::RunOpened { run, .. } = &reply {
            self.submissions().insert(*run, submitting);
        } else {
            submitting.end(self);
        }
        Ok(reply)
    }

    // ------------------------------------------------------------ runs

    /// Reports the state of a run as long as it lasts. The run has ended when all parts have, checked after
    /// the last of them ended: a part that had ended begins again if a file that it made was lost and another
    /// part still reads it.
    async fn watch(self: Arc<Self>, number: u64, run: RunId, interval_ns: u64) {
        let (sender, mut reports) = mpsc::unbounded_channel();
        for member in 0..self.n_members() {
            let (shared, sender) = (self.clone(), sender.clone());
            tokio::spawn(async move { shared.watch_part(member, run, interval_ns, sender).await });
        }
        drop(sender);
        let mut parts: Vec<Option<RunStatus>> = vec![None; self.n_members()];
        let mut lonely = tokio::time::Instant::now();
        loop {
            let report = tokio::time::timeout(RETRY, reports.recv()).await;
            if (0..self.n_members()).any(|m| !self.is_away(m)) {
                lonely = tokio::time::Instant::now();
            } else if lonely.elapsed() > LONELY_MAX {
                let _ = self.replies.send(Err(NetError::Closed));
                return;
            }
            match report {
                // Each member has a part of each run; the first member decides which runs exist.
                Ok(Some((0, Err(reason)))) => return self.answer(number, ReplyBody::Refused { reason }),
                Ok(Some((member, Err(reason)))) => {
                    let who = format!("dispatcher {} of {}", member + 1, self.n_members());
                    let _ = self.replies.send(Err(NetError::Away(format!("{who} lacks its part: {reason}"))));
                    return;
                }
                Ok(Some((member, Ok(status)))) => parts[member] = Some(status),
                // The task that follows a part reports its end, and runs until then.
                Ok(None) => return,
                Err(_) => continue,
            }
            let known: Vec<&RunStatus> = parts.iter().flatten().collect();
            let whole = self.sum(run, &known);
            if whole.ended.is_none() {
                self.answer(number, ReplyBody::Run(Box::new(whole)));
                continue;
            }
            // Each part has ended at some time; check that all have ended now.
            let mut again = vec![];
            for (member, before) in parts.iter().flatten().enumerate() {
                match self.ask(member, RequestBody::WatchRun { run, interval_ns: u64::MAX }).await {
                    Ok(ReplyBody::Run(now)) => again.push(*now),
                    // It is forgotten already, which it is only when all parts have ended.
                    Err(No::Refused(_)) => again.push(before.clone()),
                    _ => again.push(RunStatus { ended: None, ..before.clone() }),
                }
            }
            let whole = self.sum(run, &again.iter().collect::<Vec<_>>());
            let over = whole.ended.is_some();
            self.answer(number, ReplyBody::Run(Box::new(whole)));
            if over {
                return;
            }
            // One part has begun again: start from the beginning.
            tokio::time::sleep(RETRY).await;
            let (shared, interval_ns) = (self.clone(), interval_ns);
            return Box::pin(shared.watch(number, run, interval_ns)).await;
        }
    }

    /// Reports the state of one part until it has ended; continues across connections.
    async fn watch_part(
        &self,
        member: usize,
        run: RunId,
        interval_ns: u64,
        sender: UnboundedSender<(usize, Result<RunStatus, String>)>,
    ) {
        loop {
            if let Some((number, mut replies)) = self.send(member, RequestBody::WatchRun { run, interval_ns })
            {
                while let Some(reply) = replies.recv().await {
                    let over = match reply {
                        ReplyBody::Run(status) => {
                            let over = status.ended.is_some();
                            if sender.send((member, Ok(*status))).is_err() {
                                return;
                            }
                            over
                        }
                        ReplyBody::Refused { reason } => {
                            let _ = sender.send((member, Err(reason)));
                            true
                        }
                        _ => false,
                    };
                    if over {
                        self.line(member).waiting.remove(&number);
                        return;
                    }
                }
            }
            if sender.is_closed() {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Tells of the tasks of all parts of a run, each when it has ended. Nothing may be added to the run: a part that has ended would not
    /// be looked at again.
    fn follow(self: Arc<Self>, number: u64, run: RunId) {
        let n_open = Arc::new(AtomicUsize::new(self.n_members()));
        for member in 0..self.n_members() {
            let (shared, n_open) = (self.clone(), n_open.clone());
            tokio::spawn(async move { shared.follow_part(member, number, run, &n_open).await });
        }
    }

    /// Tells of the tasks of one part; continues across connections, and then tells of those that have ended once more.
    async fn follow_part(&self, member: usize, number: u64, run: RunId, n_open: &AtomicUsize) {
        let mut heard = tokio::time::Instant::now();
        while !self.replies.is_closed() {
            let Some((asked, mut replies)) = self.send(member, RequestBody::FollowEnds { run }) else {
                if (0..self.n_members()).any(|m| !self.is_away(m)) {
                    heard = tokio::time::Instant::now();
                } else if heard.elapsed() > LONELY_MAX {
                    let _ = self.replies.send(Err(NetError::Closed));
                    return;
                }
                tokio::time::sleep(RETRY).await;
                continue;
            };
            while let Some(reply) = replies.recv().await {
                let ReplyBody::Prints { run, tasks, next, .. } = reply else {
                    return self.answer(number, reply);
                };
                let is_over = next.is_none();
                let is_last = is_over && n_open.fetch_sub(1, Ordering::AcqRel) == 1;
                let next = (!is_last).then_some(0);
                self.answer(number, ReplyBody::Prints { run, tasks, next, is_early: !is_last });
                if is_over {
                    // What a dispatcher reads from its disk may come behind the last answer.
                    while let Ok(Some(ReplyBody::Prints { run, tasks, .. })) =
                        tokio::time::timeout(LATE_MAX, replies.recv()).await
                    {
                        self.answer(number, ReplyBody::Prints { run, tasks, next: Some(0), is_early: true });
                    }
                    self.line(member).waiting.remove(&asked);
                    return;
                }
            }
        }
    }

    /// The state of a run of which these parts are known. It has not ended while a part is unknown.
    fn sum(&self, run: RunId, parts: &[&RunStatus]) -> RunStatus {
        let whole = sum_of_parts(run, parts);
        let ended = whole.ended.filter(|_| parts.len() == self.n_members());
        RunStatus { ended, ..whole }
    }

    async fn cancel(self: &Arc<Self>, body: &RequestBody) -> Result<ReplyBody, No> {
        let replies = self.ask_all(body).await;
        let of_one_task = matches!(body, RequestBody::Cancel { task: Some(_), .. });
        let mut n_tasks = 0;
        let mut refused = None;
        let mut n_answers = 0;
        for reply in replies {
            match reply {
                Ok(ReplyBody::Cancelled { n_tasks: n }) => {
                    n_answers += 1;
                    n_tasks += n;
                }
                Ok(_) => {}
                Err(reason) => refused = refused.or(Some(reason)),
            }
        }
        let away = (0..self.n_members()).find(|m| self.is_away(*m));
        match (away, refused) {
            (Some(member), _) if !of_one_task || n_answers == 0 => {
                let away = self.away(member);
                Err(No::Refused(format!("{away}; {n_tasks} tasks at the others were cancelled")))
            }
            (None, Some(no)) if n_answers == 0 => Err(no),
            _ => Ok(ReplyBody::Cancelled { n_tasks }),
        }
    }

    /// Gives the members' tasks one member after the other; the upper bits of a position say which member.
    async fn prints(&self, run: Option<RunId>, which: WhichTasks, from: u64) -> Result<ReplyBody, No> {
        let member = (from >> MEMBER_SHIFT) as usize;
        let from = from & ((1 << MEMBER_SHIFT) - 1);
        match self.ask(member, RequestBody::Prints { run, which, from }).await? {
            ReplyBody::Prints { run, tasks, next, is_early } => {
                let after = (member + 1 < self.n_members()).then_some((member as u64 + 1) << MEMBER_SHIFT);
                let next = next.map(|at| at | (member as u64) << MEMBER_SHIFT).or(after);
                Ok(ReplyBody::Prints { run, tasks, next, is_early })
            }
            body => Ok(body),
        }
    }

    async fn status(self: &Arc<Self>) -> Result<ReplyBody, No> {
        let replies = self.ask_all(&RequestBody::Status).await;
        let mut whole: Option<ClusterStatus> = None;
        let mut warnings = vec![];
        let mut runs: Vec<(RunId, Vec<RunStatus>)> = vec![];
        // A run that the first member does not know is forgotten, and some other has yet to hear that.
        let known: Option<BTreeSet<RunId>> = match replies.first() {
            Some(Ok(ReplyBody::Status(first))) => Some(first.runs.iter().map(|run| run.run).collect()),
            _ => None,
        };
        let is_known = |run: &&RunStatus| known.as_ref().is_none_or(|known| known.contains(&run.run));
        for (member, reply) in replies.into_iter().enumerate() {
            let status = match reply {
                Ok(ReplyBody::Status(status)) => *status,
                Ok(_) => continue,
                Err(no) => {
                    warnings.push(no.sentence());
                    continue;
                }
            };
            warnings.extend(status.warnings.iter().map(|w| format!("dispatcher {}: {w}", member + 1)));
            for run in status.runs.iter().filter(is_known) {
                match runs.iter_mut().find(|(id, _)| *id == run.run) {
                    Some((_, parts)) => parts.push(run.clone()),
                    None => runs.push((run.run, vec![run.clone()])),
                }
            }
            match &mut whole {
                None => whole = Some(status),
                Some(whole) => {
                    whole.executors.extend(status.executors);
                    whole.own_cpu_ns += status.own_cpu_ns;
                    whole.own_rss_bytes += status.own_rss_bytes;
                    whole.started = whole.started.min(status.started);
                    whole.provisioner = whole.provisioner.take().or(status.provisioner);
                }
            }
        }
        let nobody = || No::Refused(warnings.first().cloned().unwrap_or_default());
        let mut whole = whole.ok_or_else(nobody)?;
        runs.sort_by_key(|(run, _)| *run);
        whole.runs =
            runs.iter().map(|(run, parts)| self.sum(*run, &parts.iter().collect::<Vec<_>>())).collect();
        whole.executors.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        whole.warnings = warnings;
        Ok(ReplyBody::Status(Box::new(whole)))
    }
}

impl Submitting {
    /// Continues until there is a reply for the submitting client.
    async fn go_on(&mut self, shared: &Arc<Shared>, input: Input) -> Result<ReplyBody, No> {
        let mut next = Some(input);
        loop {
            let input = match next.take() {
                Some(input) => input,
                None => self.inputs.recv().await.expect("we have a sender ourselves"),
            };
            match self.take(shared, input) {
                Some(Output::Answer(answer)) => {
                    if !matches!(answer, Ok(ReplyBody::RunOpened { .. })) {
                        self.end(shared);
                    }
                    return answer.map_err(|no| shared.no(no));
                }
                Some(Output::Split(splitting)) => {
                    let parts = tokio::task::spawn_blocking(|| splitting.compute()).await;
                    next = Some(Input::Split(parts.unwrap_or_else(|e| Err(e.to_string()))));
                }
                _ => {}
            }
        }
    }

    /// Takes one input and sends the messages that result. Gives what is left to do.
    fn take(&mut self, shared: &Shared, input: Input) -> Option<Output> {
        let mut out = vec![];
        self.submission.handle(input, &mut out);
        let mut left = None;
        for output in out {
            match output {
                Output::Ask { member, ticket, body } => {
                    // If nothing can be sent, the submission is also informed that the member is lost.
                    let waits = Waits { member, ticket, sender: self.sender.clone() };
                    let number = shared.send_for(member, body, Some(Waiting::Submits(waits)));
                    self.asked.extend(number.map(|number| (member, number)));
                }
                Output::Say { member, body } => _ = shared.send_for(member, body, None),
                output => left = Some(output),
            }
        }
        left
    }

    /// The submission is over; replies are no longer received.
    fn end(&mut self, shared: &Shared) {
        for (member, number) in self.asked.drain(..) {
            shared.line(member).waiting.remove(&number);
        }
    }
}

/// The first good answer; else the member that could not be asked; else the first refusal.
fn first_of(replies: Vec<Result<ReplyBody, No>>) -> Result<ReplyBody, No> {
    let mut refused: Option<No> = None;
    for reply in replies {
        match (reply, &refused) {
            (Ok(body), _) => return Ok(body),
            (Err(no), None) => refused = Some(no),
            (Err(No::Away(away)), Some(No::Refused(reason))) => {
                refused = Some(No::Away(format!("{reason}; {away}")));
            }
            (Err(_), Some(_)) => {}
        }
    }
    Err(refused.expect("a group has a member"))
}

fn demand(replies: Vec<Result<ReplyBody, No>>) -> Result<ReplyBody, No> {
    let mut whole: Option<DemandStatus> = None;
    let mut refused = None;
    for reply in replies {
        match (reply, &mut whole) {
            (Ok(ReplyBody::Demand(part)), None) => whole = Some(*part),
            (Ok(ReplyBody::Demand(part)), Some(whole)) => {
                whole.n_ready += part.n_ready;
                whole.n_running += part.n_running;
                whole.predicted.merge(&part.predicted);
                whole.nodes.extend(part.nodes);
                whole.sizes.extend(part.sizes);
            }
            (Ok(_), _) => {}
            (Err(no), _) => refused = refused.or(Some(no)),
        }
    }
    let nobody = || refused.unwrap_or_else(|| No::Refused("the dispatchers' answers make no sense".into()));
    whole.map(|whole| ReplyBody::Demand(Box::new(whole))).ok_or_else(nobody)
}

/// The state of a run that consists of these parts; it has ended when all have.
fn sum_of_parts(run: RunId, parts: &[&RunStatus]) -> RunStatus {
    let mut whole = RunStatus { run, ..RunStatus::default() };
    let sum = |of: fn(&RunStatus) -> u64| parts.iter().map(|p| of(p)).sum::<u64>();
    whole.name = parts.first().map(|p| p.name.clone()).unwrap_or_default();
    whole.n_tasks = sum(|p| p.n_tasks);
    whole.n_waiting = sum(|p| p.n_waiting);
    whole.n_ready = sum(|p| p.n_ready);
    whole.n_reserved = sum(|p| p.n_reserved);
    whole.n_running = sum(|p| p.n_running);
    whole.n_landing = sum(|p| p.n_landing);
    whole.n_done = sum(|p| p.n_done);
    whole.n_failed = sum(|p| p.n_failed);
    whole.n_cancelled = sum(|p| p.n_cancelled);
    whole.local_bytes = sum(|p| p.local_bytes);
    whole.peer_bytes = sum(|p| p.peer_bytes);
    whole.home_bytes = sum(|p| p.home_bytes);
    parts.iter().for_each(|part| whole.left.add(&part.left));
    whole.opened = parts.iter().map(|p| p.opened).min().unwrap_or_default();
    whole.ended = match parts.iter().all(|p| p.ended.is_some()) {
        true => parts.iter().filter_map(|p| p.ended).max(),
        false => None,
    };
    whole.failures = parts.iter().flat_map(|p| p.failures.iter().cloned()).collect();
    let nodes = || parts.iter().filter_map(|p| p.n_nodes);
    whole.n_nodes = (nodes().count() > 0).then(|| nodes().sum());
    // The provider tells every dispatcher.
    whole.troubles = parts.first().map(|p| p.troubles.clone()).unwrap_or_default();
    whole
}
