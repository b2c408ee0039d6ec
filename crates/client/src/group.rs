//! A client of a group of dispatchers: one connection to each, requests split or sent to all, answers put together.
//!
//! Each request is served by a task of its own, as some take long. A connection that breaks is made again; a request
//! that was under way there fails, but for watching a run, which goes on when the dispatcher is back.
//!
//! A join file may be a copy that was made before all members were up. Where a member is that the file does not name, or
//! that does not answer at its address, the members that answer are asked.
//!
//! A submission is collected here, split when it is committed, and handed out in two steps: all parts but the first
//! are prepared, then the first is committed, which decides (see `dispatcher/group.rs`). Before what is added to a run is split,
//! all members are asked what they know of its files.

use super::open;
use eyas_core::RunId;
use eyas_core::array::TaskArray;
use eyas_core::dispatcher::{Upstream, find_circle, has_ended};
use eyas_core::group::split::{Part, split, split_addition};
use eyas_core::group::{Known, giver_of};
use eyas_net::{NetError, Reader, Writer};
use eyas_wire::identity::Join;
use eyas_wire::message::*;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// How long until a member that is away is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How long nobody at all may answer.
const LONELY_MAX: Duration = Duration::from_secs(10);
/// How long a submission waits for members that nobody has met yet.
const COMING_MAX: Duration = Duration::from_secs(20);

/// Positions of tasks in a member's part of a run are below this bit.
const MEMBER_SHIFT: u32 = 48;

/// A connection to one member, while there is one.
#[derive(Default)]
struct Line {
    writer: Option<Writer>,
    /// Who waits for replies to which request. Gone with the connection.
    waiting: HashMap<u64, UnboundedSender<ReplyBody>>,
}

/// Why there is no good answer.
enum No {
    /// A dispatcher that is needed is not there: a sentence.
    Away(String),
    /// It was said, or would be.
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

/// What was submitted so far, by run.
struct Submission {
    name: String,
    keep: bool,
    /// It is added to a run, whose part at the first member had ended.
    into: Option<(Addition, bool)>,
    arrays: Vec<Arc<TaskArray>>,
}

struct Shared {
    lines: Vec<Mutex<Line>>,
    /// Where each member is, or was; empty where nobody has met it yet.
    addresses: Mutex<Vec<String>>,
    /// Numbers of requests to members, which are not those of the client.
    next: AtomicU64,
    submissions: Mutex<HashMap<RunId, Submission>>,
    replies: UnboundedSender<Result<Reply, NetError>>,
}

pub(super) struct Group {
    shared: Arc<Shared>,
    replies: UnboundedReceiver<Result<Reply, NetError>>,
}

impl Group {
    /// Connects to all members that answer; at least one has to.
    pub async fn connect(join: Join, path: Option<PathBuf>) -> Result<Group, NetError> {
        let (tell, replies) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            lines: join.members.iter().map(|_| Mutex::new(Line::default())).collect(),
            addresses: Mutex::new(join.members.clone()),
            next: AtomicU64::new(1),
            submissions: Mutex::new(HashMap::new()),
            replies: tell,
        });
        let mut first_error = None;
        let mut opened: Vec<Option<_>> = join.members.iter().map(|_| None).collect();
        let mut tried = vec![false; opened.len()];
        // Those that answer tell where others are.
        while let Some(member) = (0..opened.len()).find(|m| !tried[*m] && !shared.address(*m).is_empty()) {
            tried[member] = true;
            match open(&shared.address(member), &join).await {
                Ok((reader, writer, told)) => {
                    shared.learn(member, &told, None);
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
            // What is asked first finds those that answered.
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
            // In the order in which they come, so not on a task.
            if let Some(submission) = self.shared.submissions().get_mut(&run) {
                submission.arrays.push(array);
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
    mut reader: Option<Reader>,
    mut join: Join,
    path: Option<PathBuf>,
) {
    loop {
        if let Some(mut reader) = reader.take() {
            while let Ok(Some(reply)) = reader.next::<Reply>().await {
                let Some(shared) = shared.upgrade() else { return };
                let line = shared.line(member);
                if let Some(waiting) = line.waiting.get(&reply.number) {
                    let _ = waiting.send(reply.body);
                }
            }
            let Some(shared) = shared.upgrade() else { return };
            *shared.line(member) = Line::default();
        }
        tokio::time::sleep(RETRY).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Some(Ok(told)) = path.as_ref().map(|path| Join::read(path)) {
            // Only what the file did not say before is news; a copy says for ever what was true once.
            if let (Some(now), before) = (told.members.get(member), join.members.get(member))
                && Some(now) != before
                && !now.is_empty()
            {
                shared.addresses()[member].clone_from(now);
            }
            join = told;
        }
        let address = shared.address(member);
        let line = match address.is_empty() {
            true => None,
            false => open(&address, &join).await.ok(),
        };
        match line {
            Some((new, writer, told)) => {
                shared.learn(member, &told, None);
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

    fn submissions(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Submission>> {
        self.submissions.lock().expect("nobody panics with it")
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.addresses.lock().expect("nobody panics with it")
    }

    fn address(&self, member: usize) -> String {
        self.addresses()[member].clone()
    }

    /// The member `from` told where all are. Of itself it knows best, of others no better than anybody; what is known of `lost`
    /// is of no use.
    fn learn(&self, from: usize, told: &[String], lost: Option<usize>) {
        let mut addresses = self.addresses();
        if told.len() != addresses.len() {
            return;
        }
        for (member, (known, told)) in addresses.iter_mut().zip(told).enumerate() {
            let is_better = known.is_empty() || member == from || Some(member) == lost;
            if is_better && !told.is_empty() {
                known.clone_from(told);
            }
        }
    }

    /// Asks the members that answer where this one is.
    async fn ask_where(&self, lost: usize, join: &Join) {
        for member in (0..self.n_members()).filter(|m| *m != lost) {
            if self.line(member).writer.is_some()
                && let Ok((_, _, told)) = open(&self.address(member), join).await
            {
                return self.learn(member, &told, Some(lost));
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

    /// Waits for members that nobody has met: the cluster is being started. Those that were there and are away are not
    /// waited for.
    async fn wait_for_coming(&self) {
        let until = tokio::time::Instant::now() + COMING_MAX;
        let is_coming = |member: usize| self.is_away(member) && self.address(member).is_empty();
        let mut coming: Vec<usize> = (0..self.n_members()).filter(|m| is_coming(*m)).collect();
        while !coming.is_empty() && tokio::time::Instant::now() < until {
            tokio::time::sleep(RETRY / 5).await;
            // Whoever's address is known by now is connected to next.
            coming.retain(|member| self.is_away(*member));
        }
    }

    fn tell(&self, number: u64, body: ReplyBody) {
        let _ = self.replies.send(Ok(Reply { number, body }));
    }

    /// Sends a request to one member; its replies come on the channel, which ends with the connection.
    fn send(&self, member: usize, body: RequestBody) -> Option<(u64, UnboundedReceiver<ReplyBody>)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut line = self.line(member);
        let writer = line.writer.as_ref()?;
        if !writer.send(&Request { number, body }) {
            return None;
        }
        let (tell, replies) = mpsc::unbounded_channel();
        line.waiting.insert(number, tell);
        Some((number, replies))
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

    /// The same to all members, at once.
    async fn ask_all(self: &Arc<Self>, body: &RequestBody) -> Vec<Result<ReplyBody, No>> {
        self.ask_each(0, |_| body.clone()).await
    }

    /// What `body` gives for each member from `first` on, at once.
    async fn ask_each(
        self: &Arc<Self>,
        first: usize,
        body: impl Fn(usize) -> RequestBody,
    ) -> Vec<Result<ReplyBody, No>> {
        let asked: Vec<_> = (first..self.n_members())
            .map(|member| {
                let (shared, body) = (self.clone(), body(member));
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
        // Who submits may want to try again; to others it is an answer like any.
        let submits = matches!(body, RequestBody::OpenRun { .. } | RequestBody::CommitRun { .. });
        let reply = match body {
            RequestBody::OpenRun { name, keep, into } => self.open_run(name, keep, into).await,
            RequestBody::CommitRun { run } => {
                let submission = self.submissions().remove(&run);
                match submission {
                    Some(submission) => self.submit(run, submission).await,
                    None => Err(No::Refused(format!("run {run} is not being submitted by this client"))),
                }
            }
            RequestBody::AbortRun { run } => {
                self.submissions().remove(&run);
                self.send(0, RequestBody::AbortRun { run });
                return;
            }
            RequestBody::WatchRun { run, interval_ns } => return self.watch(number, run, interval_ns).await,
            RequestBody::Status => self.status().await,
            body @ RequestBody::Cancel { .. } => self.cancel(&body).await,
            RequestBody::Explain { task: TaskName::Number(_), .. }
            | RequestBody::Logs { task: TaskName::Number(_), .. } => {
                let reason = "each dispatcher of a group numbers its own tasks; name the task by its id";
                Err(No::Refused(reason.into()))
            }
            body @ (RequestBody::Explain { .. } | RequestBody::Logs { .. }) => {
                first_of(self.ask_all(&body).await)
            }
            RequestBody::Prints { run, which, from } => self.prints(run, which, from).await,
            RequestBody::Shutdown => first_of(self.ask_all(&RequestBody::Shutdown).await),
            body @ RequestBody::Demand { .. } => demand(self.ask_all(&body).await),
            RequestBody::Drain { executor } => {
                let member = giver_of(executor.0, self.n_members() as u32);
                self.ask(member.0 as usize, RequestBody::Drain { executor }).await
            }
            RequestBody::AddArray { .. }
            | RequestBody::JoinRun { .. }
            | RequestBody::Consult { .. }
            | RequestBody::Upstream { .. }
            | RequestBody::LinkRun { .. }
            | RequestBody::PrepareRun { .. } => {
                Err(No::Refused("this is for one dispatcher of a group".into()))
            }
        };
        match reply {
            Ok(body) => self.tell(number, body),
            Err(No::Refused(reason)) => self.tell(number, ReplyBody::Refused { reason }),
            Err(No::Away(sentence)) if submits => {
                let _ = self.replies.send(Err(NetError::Away(sentence)));
            }
            Err(No::Away(reason)) => self.tell(number, ReplyBody::Refused { reason }),
        }
    }

    // ------------------------------------------------------------ submissions

    async fn open_run(&self, name: String, keep: bool, into: Option<Addition>) -> Result<ReplyBody, No> {
        self.wait_for_coming().await;
        if let Some(member) = (0..self.n_members()).find(|m| self.is_away(*m)) {
            return Err(No::Away(format!("{}; a run needs all of them", self.away(member))));
        }
        let open = RequestBody::OpenRun { name: name.clone(), keep, into: into.clone() };
        let reply = self.ask(0, open).await?;
        if let ReplyBody::RunOpened { run, was_over } = &reply {
            let into = into.map(|addition| (addition, *was_over));
            self.submissions().insert(*run, Submission { name, keep, into, arrays: vec![] });
        }
        Ok(reply)
    }

    /// Hands out the parts: all but the first are prepared, then the first decides.
    async fn submit(self: &Arc<Self>, run: RunId, submission: Submission) -> Result<ReplyBody, No> {
        match self.prepare(run, submission).await {
            Ok(n_tasks) => match self.ask(0, RequestBody::CommitRun { run }).await? {
                ReplyBody::RunAccepted { run, n_tasks: n, .. } => {
                    Ok(ReplyBody::RunAccepted { run, n_tasks: n_tasks + n, again: false })
                }
                _ => Err(makes_no_sense()),
            },
            Err(no) => {
                // Those who have prepared hear it from the first.
                for member in 0..self.n_members() {
                    self.send(member, RequestBody::AbortRun { run });
                }
                Err(no)
            }
        }
    }

    /// All but the commit at the first member. Gives how many tasks the others have.
    async fn prepare(self: &Arc<Self>, run: RunId, submission: Submission) -> Result<u64, No> {
        let Submission { name, keep, into, arrays } = submission;
        let addition = into.as_ref().map(|(addition, _)| addition.clone());
        // From here on no part of the run that is added to ends, or drops a file.
        let join = |_| RequestBody::JoinRun { run, name: name.clone(), keep, into: addition.clone() };
        let mut all_over = true;
        for reply in self.ask_each(1, join).await {
            match reply? {
                ReplyBody::RunOpened { was_over, .. } => all_over &= was_over,
                _ => return Err(makes_no_sense()),
            }
        }
        let known = match into {
            Some((addition, was_over)) if was_over && all_over => {
                return Err(No::Refused(has_ended(addition.run)));
            }
            Some(_) => {
                let known = self.consult(run, &arrays).await?;
                self.refuse_circle(run, &arrays, &known).await?;
                Some(known)
            }
            None => None,
        };
        let n_members = self.n_members() as u32;
        let parts = tokio::task::spawn_blocking(move || {
            let arrays: Vec<TaskArray> = arrays.into_iter().map(Arc::unwrap_or_clone).collect();
            match known {
                Some(known) => split_addition(&arrays, &known),
                None => split(&arrays, n_members),
            }
        });
        let parts = parts.await?.map_err(No::Refused)?;
        let handed: Vec<_> = (0..)
            .zip(parts)
            .map(|(member, part)| {
                let shared = self.clone();
                tokio::spawn(async move { shared.hand_out(member, run, part).await })
            })
            .collect();
        let mut n_tasks = 0;
        let mut no = None;
        for part in handed {
            match part.await? {
                Ok(n) => n_tasks += n,
                Err(e) => no = no.or(Some(e)),
            }
        }
        no.map_or(Ok(n_tasks), Err)
    }

    /// Asks all members what they know of the files that `arrays` name.
    async fn consult(self: &Arc<Self>, run: RunId, arrays: &[Arc<TaskArray>]) -> Result<Vec<Known>, No> {
        let mut all = vec![Known::default(); self.n_members()];
        for array in arrays {
            let ask = |_| RequestBody::Consult { run, array: array.clone() };
            for (known, reply) in all.iter_mut().zip(self.ask_each(0, ask).await) {
                let ReplyBody::Consulted(more) = reply? else { return Err(makes_no_sense()) };
                known.makes.extend(more.makes);
                known.dropped.extend(more.dropped);
                known.promised.extend(more.promised);
                known.clash = known.clash.take().or(more.clash);
            }
        }
        Ok(all)
    }

    /// Refuses tasks that would write, or promise, what was promised to others that they wait for.
    async fn refuse_circle(
        self: &Arc<Self>,
        run: RunId,
        arrays: &[Arc<TaskArray>],
        known: &[Known],
    ) -> Result<(), No> {
        let promised: BTreeSet<&String> = known.iter().flat_map(|k| &k.promised).collect();
        if promised.is_empty() {
            return Ok(());
        }
        let mut makers: HashMap<String, Upstream> = HashMap::new();
        for task in arrays.iter().flat_map(|array| (0..array.n_tasks).map(|i| array.expand(i))) {
            let inputs: Vec<String> = task.inputs.iter().map(|(_, location)| location.clone()).collect();
            for location in task.outputs.iter().map(|(_, location)| location).chain(&task.promises) {
                let (id, inputs) = (task.id.clone(), inputs.clone());
                makers.insert(location.clone(), Upstream { id, inputs });
            }
        }
        // Step by step against the stream, all members at once.
        let mut seen: BTreeSet<String> = promised.iter().map(|l| l.to_string()).collect();
        let mut next: Vec<String> = seen.iter().cloned().collect();
        while !next.is_empty() {
            let (ours, theirs): (Vec<String>, Vec<String>) =
                next.drain(..).partition(|l| makers.contains_key(l));
            let mut found = ours;
            if !theirs.is_empty() {
                let locations = Arc::new(theirs);
                let ask = |_| RequestBody::Upstream { run, locations: locations.clone() };
                for reply in self.ask_each(0, ask).await {
                    let ReplyBody::Upstream(more) = reply? else { return Err(makes_no_sense()) };
                    found.extend(more.iter().map(|(location, _)| location.clone()));
                    makers.extend(more);
                }
            }
            let inputs = found.iter().flat_map(|location| makers[location].inputs.iter());
            next = inputs.filter(|location| seen.insert(location.to_string())).cloned().collect();
        }
        match find_circle(promised.into_iter().cloned(), |location| makers.get(location).cloned()) {
            Some(circle) => Err(No::Refused(circle)),
            None => Ok(()),
        }
    }

    /// Gives a member its part. Gives the number of its tasks, but of the first member's: its own word comes last,
    /// and is asked for when all others have given theirs.
    async fn hand_out(&self, member: usize, run: RunId, part: Part) -> Result<u64, No> {
        let mut refusals = vec![];
        refusals.extend(
            self.send(member, RequestBody::LinkRun { run, links: part.links, patterns: part.patterns }),
        );
        for array in part.arrays {
            refusals.extend(self.send(member, RequestBody::AddArray { run, array: Arc::new(array) }));
        }
        let prepared = match member {
            0 => Ok(0),
            _ => match self.ask(member, RequestBody::PrepareRun { run }).await {
                Ok(ReplyBody::RunPrepared { n_tasks, .. }) => Ok(n_tasks),
                Ok(_) => Err(makes_no_sense()),
                Err(no) => Err(no),
            },
        };
        // The first refusal tells the reason; the last one repeats it, or says that there is no such run.
        let mut why = None;
        for (number, mut replies) in refusals {
            if let Ok(ReplyBody::Refused { reason }) = replies.try_recv() {
                why.get_or_insert(reason);
            }
            self.line(member).waiting.remove(&number);
        }
        prepared.map_err(|no| why.map_or(no, No::Refused))
    }

    // ------------------------------------------------------------ runs

    /// Tells of a run as long as it lasts. It has ended when all parts have, as seen after the last of them ended: a part
    /// that had ended begins again where a file that it made was lost and another part still reads it.
    async fn watch(self: Arc<Self>, number: u64, run: RunId, interval_ns: u64) {
        let (tell, mut told) = mpsc::unbounded_channel();
        for member in 0..self.n_members() {
            let (shared, tell) = (self.clone(), tell.clone());
            tokio::spawn(async move { shared.watch_part(member, run, interval_ns, tell).await });
        }
        drop(tell);
        let mut parts: Vec<Option<RunStatus>> = vec![None; self.n_members()];
        let mut lonely = tokio::time::Instant::now();
        loop {
            let told = tokio::time::timeout(RETRY, told.recv()).await;
            if (0..self.n_members()).any(|m| !self.is_away(m)) {
                lonely = tokio::time::Instant::now();
            } else if lonely.elapsed() > LONELY_MAX {
                let _ = self.replies.send(Err(NetError::Closed));
                return;
            }
            match told {
                // Each member has a part of each run; which runs there are, the first one decides.
                Ok(Some((0, Err(reason)))) => return self.tell(number, ReplyBody::Refused { reason }),
                Ok(Some((member, Err(reason)))) => {
                    let who = format!("dispatcher {} of {}", member + 1, self.n_members());
                    let _ = self.replies.send(Err(NetError::Away(format!("{who} lacks its part: {reason}"))));
                    return;
                }
                Ok(Some((member, Ok(status)))) => parts[member] = Some(status),
                // Whoever follows a part tells its end, and goes on until then.
                Ok(None) => return,
                Err(_) => continue,
            }
            let known: Vec<&RunStatus> = parts.iter().flatten().collect();
            let whole = self.sum(run, &known);
            if whole.ended.is_none() {
                self.tell(number, ReplyBody::Run(Box::new(whole)));
                continue;
            }
            // All have ended at some time; have they now?
            let mut again = vec![];
            for (member, before) in parts.iter().flatten().enumerate() {
                match self.ask(member, RequestBody::WatchRun { run, interval_ns: u64::MAX }).await {
                    Ok(ReplyBody::Run(now)) => again.push(*now),
                    _ => again.push(RunStatus { ended: None, ..before.clone() }),
                }
            }
            let whole = self.sum(run, &again.iter().collect::<Vec<_>>());
            let over = whole.ended.is_some();
            self.tell(number, ReplyBody::Run(Box::new(whole)));
            if over {
                return;
            }
            // One has begun again: from the beginning.
            tokio::time::sleep(RETRY).await;
            let (shared, interval_ns) = (self.clone(), interval_ns);
            return Box::pin(shared.watch(number, run, interval_ns)).await;
        }
    }

    /// Tells of one part until it has ended; across connections.
    async fn watch_part(
        &self,
        member: usize,
        run: RunId,
        interval_ns: u64,
        tell: UnboundedSender<(usize, Result<RunStatus, String>)>,
    ) {
        loop {
            if let Some((number, mut replies)) = self.send(member, RequestBody::WatchRun { run, interval_ns })
            {
                while let Some(reply) = replies.recv().await {
                    let over = match reply {
                        ReplyBody::Run(status) => {
                            let over = status.ended.is_some();
                            if tell.send((member, Ok(*status))).is_err() {
                                return;
                            }
                            over
                        }
                        ReplyBody::Refused { reason } => {
                            let _ = tell.send((member, Err(reason)));
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
            if tell.is_closed() {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// A run of which these parts are known. It has not ended while one is not.
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

    /// The members' tasks one member after the other: which one it is, is in the upper bits of a position.
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
            for run in &status.runs {
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

fn makes_no_sense() -> No {
    No::Refused("the dispatcher's answer to a submission makes no sense".into())
}

/// The first good answer, else who could not be asked, else the first refusal.
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
                whole.task_ns_mean = whole.task_ns_mean.max(part.task_ns_mean);
                whole.nodes.extend(part.nodes);
            }
            (Ok(_), _) => {}
            (Err(no), _) => refused = refused.or(Some(no)),
        }
    }
    let nobody = || refused.unwrap_or_else(makes_no_sense);
    whole.map(|whole| ReplyBody::Demand(Box::new(whole))).ok_or_else(nobody)
}

/// A run of which these are the parts; it has ended when all have.
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
    whole.opened = parts.iter().map(|p| p.opened).min().unwrap_or_default();
    whole.ended = match parts.iter().all(|p| p.ended.is_some()) {
        true => parts.iter().filter_map(|p| p.ended).max(),
        false => None,
    };
    whole.failures = parts.iter().flat_map(|p| p.failures.iter().cloned()).collect();
    let nodes = || parts.iter().filter_map(|p| p.n_nodes);
    whole.n_nodes = (nodes().count() > 0).then(|| nodes().sum());
    whole
}
