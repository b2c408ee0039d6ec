//! The dispatcher's loop: arrivals go to the session, and the session acts through [`Live`].

use super::arrival::Arrival;
use super::group::{self, GroupOptions, Whereabouts};
use super::live::Live;
use super::queries::KeptQueries;
use super::{DispatcherError, DispatcherOptions, links, older, place};
use crate::clock;
use crate::eventlog::EventLog;
use eyas_core::home_share::HomeLimits;
use eyas_core::log::{EVENTS_FILE, Header, LOG_VERSION};
use eyas_data::peer::TicketKey;
use eyas_journal::{Journal, Notice, Recovered};
use eyas_session::dispatcher::{Input, Options, Outside, Record, Session};
use eyas_storage::signed;
use eyas_wire::identity::{Identity, Join};
use eyas_wire::message::Queries;
use eyas_wire::users::KnownKeys;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The number of inputs that are taken before messages are sent.
const BATCH_MAX: usize = 256;
/// The journal is not written anew for fewer forgotten tasks than this.
const CLEAN_AFTER_TASKS: u64 = 10_000;
/// How long the last frames may take to leave before the process ends.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Service {
    session: Session<Live>,
    dir: PathBuf,
}

impl Service {
    pub fn new(
        options: &DispatcherOptions,
        dir: PathBuf,
        identity: &Identity,
        cluster: String,
        journal: Journal,
        incarnation: u64,
    ) -> Result<Service, DispatcherError> {
        let mut config = options.config.clone();
        config.group = options.group.as_ref().map(|g| g.membership);
        config.home_limits =
            HomeLimits { bytes_per_s: options.home_rate_bytes_per_s, streams: options.home_streams };
        let session_options = Options {
            config,
            capture_head_bytes: options.capture_head_bytes,
            capture_tail_bytes: options.capture_tail_bytes,
            keeps_log: options.event_log,
            incarnation,
            cluster: cluster.clone(),
            clean_after_tasks: CLEAN_AFTER_TASKS,
        };
        let now = clock::now();
        let queries = KeptQueries::open(&dir, identity.secret())
            .map_err(|source| DispatcherError::Dir { path: dir.display().to_string(), source })?;
        let journal = Arc::new(journal);
        let live =
            Live::new(dir.clone(), journal.clone(), TicketKey::from_secret(identity.secret()), queries);
        let mut session = Session::new(session_options, live, now).map_err(DispatcherError::Config)?;
        if options.event_log {
            let header = Header {
                eyas_event_log: LOG_VERSION,
                eyas_version: env!("CARGO_PKG_VERSION").into(),
                t: now,
                config: session.config().clone(),
                cluster,
                is_cut: false,
            };
            let log = EventLog::open(&dir, &header).map_err(|source| DispatcherError::Dir {
                path: dir.join(EVENTS_FILE).display().to_string(),
                source,
            })?;
            // A dispatcher that is killed has what a task printed wherever it has the task's end.
            journal.call_before_writes(log.waits_for_printed());
            session.outside_mut().log = Some(log);
        }
        Ok(Service { session, dir })
    }

    /// Restores what earlier processes had promised. `is_placed`: the directory has a record of its place,
    /// and it is that place.
    pub fn recover(&mut self, recovered: Recovered, is_placed: bool) -> Result<(), DispatcherError> {
        let mut is_older = false;
        let read = |_, bytes: &[u8]| {
            let mut record = Record::from_bytes(bytes)?;
            is_older |= older::renew(&mut record);
            self.session.recover(clock::now(), record)
        };
        let path = self.dir.join("journal").display().to_string();
        recovered.try_for_each(read)?.map_err(|why| DispatcherError::Record { path, why })?;
        if self.session.end_recovery(clock::now(), is_placed) {
            place::say_moved(&self.dir);
        }
        if is_older {
            self.renew_journal();
        }
        Ok(())
    }

    /// Writes the journal of an older version anew, once the queries of URLs that it had are kept beside it.
    fn renew_journal(&mut self) {
        let live = self.session.outside_mut();
        match live.keep_queries(Queries(signed::known_from(0))) {
            Ok(()) => live.clean_journal(),
            Err(why) => eyas_text::say!("eyas: the journal keeps the queries of URLs that are in it: {why}"),
        }
    }

    /// Learns where the other members of the group are, and begins to connect to them. `given`: the join file of one of
    /// them; `join`: our own, which gets the addresses of all.
    pub fn join_group(
        &mut self,
        options: &GroupOptions,
        given: Option<&Join>,
        join: &mut Join,
        arrivals: &mpsc::Sender<Arrival>,
    ) -> Result<(), DispatcherError> {
        let membership = options.membership;
        let kept = group::kept_addresses(&self.dir, membership)?;
        let given = group::given_addresses(&self.dir, given, join)?;
        join.members = self.session.begin_with_addresses(kept, given, &join.address).to_vec();
        let whereabouts = Whereabouts::begin(&self.dir, membership, join.clone());
        links::keep_all(membership, &join.identity, &whereabouts.subscribe(), arrivals);
        self.session.outside_mut().whereabouts = Some(whereabouts);
        Ok(())
    }

    /// Users who are let in, as the session has them at each time.
    pub(super) fn known_users(&mut self) -> Arc<KnownKeys> {
        self.session.outside_mut().users.clone()
    }

    /// `notices` arrive on a channel of their own that is never full: the journal must not wait for the loop
    /// while the loop waits for the journal.
    pub async fn run(
        mut self,
        mut queue: mpsc::Receiver<Arrival>,
        mut notices: mpsc::UnboundedReceiver<Notice>,
    ) -> Result<(), DispatcherError> {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.session.stops().is_none() {
            batch.clear();
            let wake_at = self.session.wake_at();
            let sleep = Duration::from_nanos(wake_at.map_or(0, |at| at.since_ns(clock::now())));
            tokio::select! {
                biased;
                Some(notice) = notices.recv() => self.session.handle(clock::now(), input_of(notice)),
                n = queue.recv_many(&mut batch, BATCH_MAX) => if n == 0 { break },
                () = tokio::time::sleep(sleep), if wake_at.is_some() => {
                    self.session.handle(clock::now(), Input::Woken)
                }
            }
            for arrival in batch.drain(..) {
                self.take(arrival);
            }
            self.session.settle(clock::now());
        }
        self.session.say_goodbye();
        let writers = self.session.into_outside().into_writers();
        // One deadline for all peers that do not read their messages.
        let leave = async {
            for writer in writers {
                writer.finish().await;
            }
        };
        let _ = tokio::time::timeout(LEAVE_MAX, leave).await;
        Ok(())
    }

    fn take(&mut self, arrival: Arrival) {
        let live = self.session.outside_mut();
        let input = match arrival {
            Arrival::Connected { connection, peer, hello, visitor, line } => {
                live.lines.insert(connection, line);
                Input::Connected { connection, peer, hello, visitor }
            }
            Arrival::MemberReached { member, writer } => {
                live.links.insert(member, writer);
                Input::MemberReached { member }
            }
            Arrival::MemberLost { member } => {
                live.links.remove(&member);
                Input::MemberLost { member }
            }
            Arrival::RelayCame { connection, line } => return drop(live.relays.insert(connection, line)),
            Arrival::RelayLeft { connection } => return drop(live.relays.remove(&connection)),
            Arrival::Session(input) => input,
        };
        self.session.handle(clock::now(), input);
    }
}

fn input_of(notice: Notice) -> Input {
    match notice {
        Notice::Durable(durable) => Input::Durable(durable.0),
        Notice::Stalled(stall) => Input::JournalStalled(Some(stall.to_string())),
        Notice::Resumed => Input::JournalStalled(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{cluster_name, open_identity, open_journal};
    use super::*;
    use eyas_core::group::RunLinks;
    use eyas_core::log::PRINTED_FILE;
    use eyas_core::pattern::RunPatterns;
    use eyas_terms::array::{Column, Command, Pattern, TaskArray, TaskForm};
    use eyas_terms::{AttemptNo, MemberId, Outcome, RunId, TaskId};
    use eyas_wire::message::{Captured, Printed};
    use std::borrow::Cow;
    use std::path::Path;
    use std::time::Instant;

    const SECRET: &str = "5ec2e7";

    /// A journal as versions wrote it that had queries in locations, or marked digests of them by `signed=`.
    fn write_older_journal(dir: &Path) {
        let digest = &blake3::hash(b"sig=5ec2e7-kept").to_hex()[..32];
        let urls = ["https://h/0?k=5ec2e7-0".to_owned(), format!("https://h/1?signed={digest}")];
        let mut column = Column::default();
        assert!(urls.iter().all(|url| column.push(url)));
        let command = Command::Exec(vec![Pattern::literal("true")]);
        let template = TaskForm {
            inputs: vec![(Pattern::literal("x"), Pattern::column(0))],
            ..TaskForm::new(Pattern::literal("t"), command)
        };
        let array = TaskArray { n_tasks: 2, first_index: 0, template, columns: vec![column], needs: None };
        let run = RunId(1);
        let links =
            RunLinks { imports: vec![(urls[0].clone(), MemberId(1))], exports: vec![urls[1].clone()] };
        let patterns = RunPatterns { multicast: vec![urls[0].clone()], ..RunPatterns::default() };
        let (journal, _, _) = open_journal(dir).unwrap();
        for record in [
            Record::RunOpened { run, name: "old".into(), keep: false, into: None },
            Record::ArrayAdded { run, array: Cow::Owned(array) },
            Record::RunLinked { run, links: Cow::Owned(links) },
            Record::RunPatterns { run, patterns: Cow::Owned(patterns) },
            Record::RunCommitted { run },
        ] {
            journal.append(&record.to_bytes()).unwrap();
        }
        journal.close().unwrap();
    }

    fn has_secret(dir: &Path) -> bool {
        let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
        // A file that is replaced meanwhile is read at the next look.
        let texts = files.filter(|path| path.is_file()).filter_map(|path| std::fs::read(path).ok());
        texts.into_iter().any(|bytes| {
            [SECRET, "signed="]
                .iter()
                .any(|text| bytes.windows(text.len()).any(|some| some == text.as_bytes()))
        })
    }

    #[test]
    fn the_journal_of_an_older_version_loses_its_queries_and_the_tasks_keep_them() {
        let dir = tempfile::tempdir().unwrap();
        write_older_journal(dir.path());
        assert!(has_secret(&dir.path().join("journal")));
        let identity = open_identity(dir.path(), None).unwrap();
        let mut kept = KeptQueries::open(dir.path(), identity.secret()).unwrap();
        kept.add(Queries(vec!["sig=5ec2e7-kept".into()])).unwrap();

        let (journal, recovered, notices) = open_journal(dir.path()).unwrap();
        let options = DispatcherOptions::local(dir.path());
        let mut service =
            Service::new(&options, dir.path().into(), &identity, cluster_name(&identity), journal, 1)
                .unwrap();
        service.recover(recovered, true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while has_secret(&dir.path().join("journal")) {
            assert!(Instant::now() < deadline, "the journal still has a query");
            std::thread::sleep(Duration::from_millis(2));
        }
        // The event log is whole when its writer has ended.
        drop((service, notices));
        assert!(!has_secret(dir.path()));
        let Queries(kept) = KeptQueries::open(dir.path(), identity.secret()).unwrap().all();
        assert!(
            ["k=5ec2e7-0", "sig=5ec2e7-kept"].iter().all(|query| kept.iter().any(|known| known == query))
        );

        // The thread that wrote the journal anew may still hold it for a moment.
        let (_journal, recovered, _notices) = loop {
            match open_journal(dir.path()) {
                Ok(opened) => break opened,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut inputs = vec![];
        let read = |_, bytes: &[u8]| {
            if let Record::ArrayAdded { array, .. } = Record::from_bytes(bytes)? {
                inputs.extend((0..array.n_tasks).flat_map(|i| array.expand(i).inputs));
            }
            Ok::<(), String>(())
        };
        recovered.try_for_each(read).unwrap().unwrap();
        let expect = ["k=5ec2e7-0", "sig=5ec2e7-kept"].map(|query| blake3::hash(query.as_bytes()));
        for (n, (input, digest)) in inputs.iter().zip(expect).enumerate() {
            assert_eq!(input.1, format!("https://h/{n}?hidden={}", &digest.to_hex()[..32]));
        }
        assert_eq!(inputs.len(), 2);
    }

    /// So much that the journal would be on the disk long before the log's thread has made a line of it.
    const MUCH: usize = 8 << 20;

    #[test]
    fn what_a_task_printed_is_in_the_file_when_its_end_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let identity = open_identity(dir.path(), None).unwrap();
        let (journal, recovered, _notices) = open_journal(dir.path()).unwrap();
        let options = DispatcherOptions::local(dir.path());
        let mut service =
            Service::new(&options, dir.path().into(), &identity, cluster_name(&identity), journal, 1)
                .unwrap();
        service.recover(recovered, true).unwrap();
        let live = service.session.outside_mut();
        for number in 0..2 {
            let task = TaskId(number);
            let stdout = Captured { head: vec![b'x'; MUCH], tail: vec![], total_bytes: MUCH as u64 };
            let stderr = Captured::default();
            live.log_printed(Box::new(Printed { task, attempt: AttemptNo(1), stdout, stderr }));
            live.append(&Record::TaskEnded { task, outcome: Outcome::Done, outputs: vec![] }).unwrap();
            live.flush();
            let written = std::fs::read(dir.path().join(PRINTED_FILE)).unwrap();
            assert!(written.len() > MUCH * (number as usize + 1) && written.ends_with(b"\n"));
        }
    }
}
