//! Users who share a cluster: who they are, what they may do, and whose runs are whose.
//!
//! Whoever has the cluster's own key is its owner and may do everything. A user has a key of their own, which opens the
//! control plane to them and nothing else: no node and no other dispatcher takes it. Users are in the journal, so a restart
//! knows them.
//!
//! A user sees and cancels their own runs. Everything else takes a right, and each refusal names the one that is missing.

use super::{Outside, Record, Session};
use eyas_core::event::Event;
use eyas_terms::RunId;
use eyas_text::shown;
use eyas_wire::message::{Addition, ReplyBody, RequestBody, UserLine};
use eyas_wire::users::{ClusterRights, Principal, UserKey, Visitor, why_no_name};
use std::collections::BTreeMap;

/// A user, as the journal has them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct User {
    pub(super) key: UserKey,
    pub(super) rights: ClusterRights,
    /// Their part of the cluster, compared with others.
    pub(super) weight: u32,
}

#[derive(Default)]
pub(super) struct Users {
    by_name: BTreeMap<String, User>,
}

impl Users {
    fn by_key(&self, key: &UserKey) -> Option<&str> {
        self.by_name.iter().find(|(_, user)| user.key == *key).map(|(name, _)| name.as_str())
    }
}

/// The largest weight.
const WEIGHT_MAX: u32 = 1_000_000;

impl<O: Outside> Session<O> {
    /// Puts a user, as they are now, among those who are let in.
    pub(super) fn keep_user(&mut self, name: String, user: User) {
        self.feed(Event::WeightSet { user: name.clone(), weight: user.weight });
        self.users.by_name.insert(name, user);
    }

    pub(super) fn drop_user(&mut self, name: &str) {
        self.users.by_name.remove(name);
    }

    /// The driver hears which keys it may let in.
    pub(super) fn tell_known_users(&mut self) {
        let keys = self.users.by_name.values().map(|user| user.key).collect();
        self.outside.know_users(keys);
    }

    /// Who is behind a connection, by the key of its certificate. `Err`: a sentence for somebody who was a user.
    pub(super) fn principal_behind(&self, visitor: Visitor) -> Result<Principal, String> {
        let Visitor::Other(key) = visitor else { return Ok(Principal::Owner) };
        let name = self.users.by_key(&key);
        name.map(|name| Principal::User(name.to_owned())).ok_or_else(|| {
            "this user's key was taken back; the cluster's owner can make a new one with `eyas user add`"
                .into()
        })
    }

    /// Who asks on a connection. A connection that has ended, or was never let in, is nobody's, whatever still comes on it.
    pub(super) fn principal_of(&self, connection: u64) -> &Principal {
        self.connections.get(&connection).map_or(&Principal::Nobody, |c| &c.principal)
    }

    /// Whether the user of this name asks on the connection.
    fn is_user(&self, connection: u64, name: &str) -> bool {
        matches!(self.principal_of(connection), Principal::User(user) if user == name)
    }

    fn rights_of(&self, connection: u64) -> ClusterRights {
        match self.principal_of(connection) {
            Principal::Owner => ClusterRights::ALL,
            Principal::User(name) => self.users.by_name.get(name).map(|user| user.rights).unwrap_or_default(),
            Principal::Nobody => ClusterRights::default(),
        }
    }

    /// Whether the run is one of those which the connection's user may see.
    pub(super) fn may_see(&self, connection: u64, run: RunId) -> bool {
        self.owns(connection, run) || self.rights_of(connection).see
    }

    /// Whether the run is the connection's user's, or the connection is the owner's, to whom all are.
    pub(super) fn owns(&self, connection: u64, run: RunId) -> bool {
        match self.principal_of(connection) {
            Principal::Owner => true,
            asker @ Principal::User(_) => Principal::of_run(self.core.owner_of(run)) == *asker,
            Principal::Nobody => false,
        }
    }

    /// A reason without the names of other users, unless the connection's user may see their runs.
    pub(super) fn without_names(&self, connection: u64, reason: Option<String>) -> Option<String> {
        if self.rights_of(connection).see {
            return reason;
        }
        let is_other = |name: &str| !name.is_empty() && !self.is_user(connection, name);
        let others = self.core.user_shares().filter(|share| is_other(&share.name));
        reason.map(|reason| {
            others.fold(reason, |text, other| {
                text.replace(&format!("user {}", shown(&other.name)), "another user")
            })
        })
    }

    /// Why the connection's user may not do what is asked, as a sentence; `None` if they may.
    pub(super) fn why_not_allowed(&self, connection: u64, body: &RequestBody) -> Option<String> {
        let user = match self.principal_of(connection) {
            Principal::Owner => return None,
            Principal::User(name) => name,
            Principal::Nobody => return Some("this connection was ended".into()),
        };
        let rights = self.rights_of(connection);
        let lacks = |what: String, right: &str| {
            Some(format!(
                "user {} may not {what}: the right `{right}` is missing, which the cluster's owner gives with `eyas user set {user} \
                 --rights {}`",
                shown(user),
                with(rights, right)
            ))
        };
        // Of a run that is not there, the request itself says that there is none.
        let others = |run: &RunId| {
            Some(*run).filter(|run| self.core.owner_of(*run).is_some() && !self.owns(connection, *run))
        };
        match body {
            RequestBody::OpenRun { into: Some(Addition { run, .. }), .. }
            | RequestBody::SubmitRun { into: Some(Addition { run, .. }), .. }
                if others(run).is_some() =>
            {
                lacks(format!("add tasks to run {run}, which is another user's"), "operate")
                    .filter(|_| !rights.operate)
            }
            RequestBody::OpenRun { .. } | RequestBody::SubmitRun { .. } | RequestBody::Queries(_) => {
                lacks("submit".into(), "submit").filter(|_| !rights.submit)
            }
            RequestBody::AddArray { .. }
            | RequestBody::WantFiles { .. }
            | RequestBody::CommitRun { .. }
            | RequestBody::AbortRun { .. }
            | RequestBody::Status
            | RequestBody::Users
            | RequestBody::Listen { .. } => None,
            RequestBody::WatchRun { run, .. }
            | RequestBody::Explain { run: Some(run), .. }
            | RequestBody::Logs { run: Some(run), .. }
            | RequestBody::Prints { run: Some(run), .. }
            | RequestBody::FollowEnds { run }
            | RequestBody::ReadPrinted { run: Some(run), .. } => others(run)
                .filter(|_| !rights.see)
                .and_then(|run| lacks(format!("see run {run}, which is another user's"), "see")),
            // A run that is not named is one that the user may see.
            RequestBody::Explain { run: None, .. }
            | RequestBody::Logs { run: None, .. }
            | RequestBody::Prints { run: None, .. }
            | RequestBody::ReadPrinted { run: None, .. }
            | RequestBody::Cancel { run: None, .. } => None,
            RequestBody::Cancel { run: Some(run), .. } => others(run)
                .filter(|_| !rights.cancel)
                .and_then(|run| lacks(format!("cancel run {run}, which is another user's"), "cancel")),
            RequestBody::Forget { runs } => {
                runs.iter().find_map(others).filter(|_| !rights.cancel).and_then(|run| {
                    lacks(format!("have run {run} forgotten, which is another user's"), "cancel")
                })
            }
            RequestBody::Shutdown => lacks("end the cluster".into(), "operate").filter(|_| !rights.operate),
            RequestBody::Demand { .. } | RequestBody::Drain { .. } => {
                lacks("start or end nodes".into(), "operate").filter(|_| !rights.operate)
            }
            RequestBody::SetUser { .. } | RequestBody::RemoveUser { .. } => {
                lacks("change users".into(), "operate").filter(|_| !rights.operate)
            }
            RequestBody::JoinRun { .. }
            | RequestBody::Consult { .. }
            | RequestBody::Upstream { .. }
            | RequestBody::LinkRun { .. }
            | RequestBody::PrepareRun { .. } => Some(NOT_IN_GROUPS.into()),
        }
    }

    /// The runs that a cancellation without a run means: those of the connection's user that go on, and others' too with the right.
    pub(super) fn runs_to_cancel(&self, connection: u64) -> Vec<RunId> {
        let all = self.core.work().runs().filter(|(_, r)| r.ended.is_none()).map(|(id, _)| id);
        all.filter(|run| self.may_cancel(connection, *run)).collect()
    }

    /// Whether the user may cancel tasks of the run that they did not name.
    pub(super) fn may_cancel(&self, connection: u64, run: RunId) -> bool {
        self.owns(connection, run) || self.rights_of(connection).cancel
    }

    pub(super) fn on_set_user(
        &mut self,
        connection: u64,
        number: u64,
        name: String,
        key: Option<UserKey>,
        rights: Option<ClusterRights>,
        weight: Option<u32>,
    ) {
        let known = self.users.by_name.get(&name).cloned();
        let why = if self.group.is_some() {
            Some(NOT_IN_GROUPS.to_string())
        } else if let Some(why) = why_no_name(&name) {
            Some(why)
        } else if weight.is_some_and(|weight| weight == 0 || weight > WEIGHT_MAX) {
            Some(format!("a weight is a whole number from 1 to {WEIGHT_MAX}"))
        } else {
            match (&known, key) {
                (Some(_), Some(_)) => Some(format!(
                    "there is a user {} already; `eyas user set` changes them, `eyas user remove` takes their key back",
                    shown(&name)
                )),
                (None, None) => Some(self.no_user(&name)),
                _ => None,
            }
        };
        if let Some(why) = why {
            return self.refuse(connection, number, why);
        }
        let before = known.unwrap_or(User {
            key: key.unwrap_or(UserKey([0; 32])),
            rights: ClusterRights { submit: true, ..ClusterRights::default() },
            weight: 1,
        });
        let user = User {
            key: before.key,
            rights: rights.unwrap_or(before.rights),
            weight: weight.unwrap_or(before.weight),
        };
        let User { key, rights, weight } = user;
        if let Err(why) = self.record_user(&Record::UserSet { name: name.clone(), key, rights, weight }) {
            return self.refuse(connection, number, why);
        }
        self.keep_user(name, user);
        self.tell_known_users();
        self.on_users(connection, number);
    }

    pub(super) fn on_remove_user(&mut self, connection: u64, number: u64, name: &str) {
        if self.group.is_some() {
            return self.refuse(connection, number, NOT_IN_GROUPS.into());
        }
        if !self.users.by_name.contains_key(name) {
            let reason = self.no_user(name);
            return self.refuse(connection, number, reason);
        }
        if let Err(why) = self.record_user(&Record::UserRemoved { name: name.into() }) {
            return self.refuse(connection, number, why);
        }
        self.drop_user(name);
        self.tell_known_users();
        // Nobody keeps a door open with a key that was taken back.
        let all = self.connections.keys().copied();
        let theirs: Vec<u64> = all.filter(|connection| self.is_user(*connection, name)).collect();
        theirs.into_iter().for_each(|connection| self.on_disconnected(connection));
        self.on_users(connection, number);
    }

    /// Has the journal keep a change of users, before anybody is told of it. `Err`: why it cannot.
    fn record_user(&mut self, record: &Record<'_>) -> Result<(), String> {
        let stalled = self.warning.clone();
        let appended = stalled.map_or_else(|| self.outside.try_append(record), Err);
        let seq = appended.map_err(|why| format!("users cannot be changed now: {why}"))?;
        self.recording.append(seq, None);
        self.outside.flush();
        Ok(())
    }

    fn no_user(&self, name: &str) -> String {
        format!("there is no user {}; `eyas user list` shows all of them", shown(name))
    }

    pub(super) fn on_users(&mut self, connection: u64, number: u64) {
        // What one of them has would be taken for the whole.
        if self.group.is_some() {
            return self.refuse(connection, number, NOT_IN_GROUPS.into());
        }
        let lines = self.user_lines(connection);
        self.reply(connection, number, ReplyBody::Users(lines));
    }

    /// What each user has of the cluster. The first is the cluster's owner, with an empty name.
    fn user_lines(&self, connection: u64) -> Vec<UserLine> {
        let sees = self.rights_of(connection).see;
        let mut lines: BTreeMap<String, UserLine> = BTreeMap::new();
        for (name, user) in &self.users.by_name {
            let line = UserLine { rights: user.rights, weight: user.weight, ..UserLine::default() };
            lines.insert(name.clone(), line);
        }
        lines
            .insert(String::new(), UserLine { rights: ClusterRights::ALL, weight: 1, ..UserLine::default() });
        for share in self.core.user_shares() {
            // Of a user who was removed, what runs is still theirs.
            if !lines.contains_key(&*share.name) && share.n_ready + share.n_slots == 0 {
                continue;
            }
            let line = lines.entry(share.name.to_string()).or_default();
            (line.n_ready, line.n_slots, line.used_slot_ns) =
                (share.n_ready, share.n_slots, share.used_slot_ns);
            line.weight = share.weight;
        }
        for (run, _) in self.core.work().runs().filter(|(_, r)| r.committed && r.ended.is_none()) {
            let line = self.core.owner_of(run).and_then(|name| lines.get_mut(name));
            line.into_iter().for_each(|line| line.n_runs += 1);
        }
        let is_shown = |name: &str| sees || self.is_user(connection, name);
        let named = lines.into_iter().filter(|(name, _)| is_shown(name));
        named.map(|(name, line)| UserLine { name, ..line }).collect()
    }
}

const NOT_IN_GROUPS: &str = "a cluster of several dispatchers has no users beside its owner, as each of them would share out its own part; \
                             start a cluster of one dispatcher to share it";

/// The rights with one more, as they are given.
fn with(mut rights: ClusterRights, right: &str) -> ClusterRights {
    match right {
        "submit" => rights.submit = true,
        "see" => rights.see = true,
        "cancel" => rights.cancel = true,
        _ => rights = ClusterRights::ALL,
    }
    rights
}
