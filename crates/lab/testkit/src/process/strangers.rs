//! Those who may do nothing: whoever has a key that is nobody's or was taken back, and connections that were never let in. In
//! worlds with users they ask for everything, and promise 6 is that nothing comes of it.

use super::{Process, USERS};
use eyas_core::event::NodeMessage;
use eyas_session::dispatcher::{Answer, Input};
use eyas_terms::{ObjectId, RunId, Timestamp};
use eyas_wire::message::{FromExecutor, FromMember, Keep, ReplyBody, Request, RequestBody};
use eyas_wire::users::{ClusterRights, UserKey, Visitor};

impl Process {
    /// Strangers come, and a user whose run is accepted is removed while connected. Panics if one of them is heard.
    pub fn meet_strangers(&mut self, now: Timestamp) {
        let unknown = self.connect_as(now, Visitor::Other(UserKey([u8::MAX; 32])));
        self.check_not_heard(now, unknown, "who has a key that is nobody's");
        let silent = self.next_client();
        self.check_not_heard(now, silent, "who has said no hello");
        // Of a user who waits for an answer, the world would not hear what became of the submission.
        let waits = |name: &str| self.users.values().any(|(user, _)| *user == name);
        let Some((connection, name, key)) = self.settled_users.pop().filter(|(_, name, _)| !waits(name))
        else {
            return;
        };
        let owner = self.connect_client(now);
        // A journal without room refuses that, and the user stays.
        if self.ask(now, owner, RequestBody::RemoveUser { name: name.into() }).is_ok() {
            assert!(
                self.session.outside().closed.contains(&connection),
                "promise 6: user {name} was removed and stays connected"
            );
            self.check_not_heard(now, connection, "whose key was taken back");
            let again = self.connect_as(now, Visitor::Other(key));
            self.check_not_heard(now, again, "who comes with a key that was taken back");
        }
    }

    /// Whatever comes on the connection has no effect and no answer but a refusal.
    fn check_not_heard(&mut self, now: Timestamp, connection: u64, who: &str) {
        let look = |process: &Process| {
            let shell = process.session.outside();
            (shell.log.len(), shell.journal.records.len(), process.session.stops().map(str::to_owned))
        };
        let before = look(self);
        let runs: Vec<RunId> = self.core().work().runs().map(|(run, _)| run).collect();
        let mut wishes = vec![
            RequestBody::Shutdown,
            RequestBody::SetUser {
                name: "friend".into(),
                key: Some(UserKey([1; 32])),
                rights: Some(ClusterRights::ALL),
                weight: None,
            },
            RequestBody::OpenRun { name: "theirs".into(), keep: Keep::default(), into: None },
            RequestBody::Cancel { run: None, task: None },
            RequestBody::Forget { runs: runs.clone() },
            RequestBody::Status,
            RequestBody::Users,
        ];
        wishes.extend(USERS.map(|name| RequestBody::RemoveUser { name: name.into() }));
        wishes.extend(self.executors.keys().map(|executor| RequestBody::Drain { executor: *executor }));
        for run in runs {
            wishes.push(RequestBody::Cancel { run: Some(run), task: None });
            wishes.push(RequestBody::CommitRun { run });
            wishes.push(RequestBody::AbortRun { run });
            wishes.push(RequestBody::WatchRun { run, interval_ns: 0 });
        }
        for body in wishes {
            let asked = format!("{body:?}");
            self.n_requests += 1;
            let number = self.n_requests;
            self.handle(now, Input::FromClient { connection, request: Request { number, body } });
            let is_answer = |(c, n, _): &&(u64, u64, Answer)| (*c, *n) == (connection, number);
            let answer = self.session.outside().answers.iter().find(is_answer).map(|(_, _, answer)| answer);
            assert!(
                matches!(answer, None | Some(Answer::Now(ReplyBody::Refused { .. }))),
                "promise 6: somebody {who} asks for {asked} and gets {answer:?}"
            );
        }
        let batch = vec![FromExecutor::Node(NodeMessage::ReplicaDropped(ObjectId(0)))];
        self.handle(now, Input::FromExecutor { connection, batch });
        let batch = vec![FromMember::Load(Default::default())];
        self.handle(now, Input::FromMember { connection, batch });
        assert_eq!(look(self), before, "promise 6: somebody {who} is heard");
    }
}
