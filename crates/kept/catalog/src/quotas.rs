//! How much data each owner has, and may have.
//!
//! Counted are the bytes of all committed versions of the data sets that somebody owns, each object once, however many of their files
//! it is and however many copies there are. A counter for each owner is kept in the transaction that commits or
//! removes a version, so that two commits at once are never both within the last free bytes.

use crate::access::{Caller, trail};
use crate::catalog::Catalog;
use crate::db::{Db, Value, within};
use crate::error::{Error, Result};
use crate::rights::Subject;
use crate::rows::row_of;
use crate::sealed::File;
use crate::values;
use eyas_data::Digest;
use eyas_text::{shown, size, size_beside};
use std::collections::BTreeMap;

/// Objects that one statement asks for.
const OBJECTS_AT_ONCE: usize = 500;
const EVERYONE: &str = "everyone";

/// How much each owner has, and may have.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Quotas {
    /// Most bytes of a user who has no quota of their own; `None`: there is no limit.
    pub everyone_bytes: Option<u64>,
    /// Users who have data or a quota of their own, by name.
    pub users: Vec<Usage>,
}

/// How much one user has, and may have.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    pub user: String,
    pub used_bytes: u64,
    /// `None`: there is no limit.
    pub allowed_bytes: Option<u64>,
    /// Whether that is a quota of their own, and not everyone's.
    pub is_own: bool,
}

/// What an owner has and may have before something is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    owner: String,
    used_bytes: u64,
    allowed_bytes: u64,
}

impl Room {
    /// Bytes that may still come.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.allowed_bytes.saturating_sub(self.used_bytes)
    }

    /// # Errors
    /// So many bytes more are too many. What adds none is never refused.
    pub(crate) fn require(&self, added_bytes: u64, label: &str) -> Result<()> {
        if added_bytes == 0 || added_bytes <= self.free_bytes() {
            return Ok(());
        }
        let Room { owner, used_bytes, allowed_bytes } = self;
        Err(Error::Denied(format!(
            "{} may have {} of data in this catalog and has {}, and `{label}` would add at least {}: nothing was put; \
             `eyas data rm` makes room, and whoever keeps the catalog can give more: eyas data quota user:{owner} BYTES",
            shown(owner),
            size(*allowed_bytes),
            size_beside(*used_bytes, *allowed_bytes),
            size(added_bytes)
        )))
    }
}

impl Catalog {
    /// How much each user has, and may have.
    pub fn quotas(&self) -> Result<Quotas> {
        let db = &mut **self.db();
        let mut quotas = Quotas::default();
        let mut users = BTreeMap::new();
        for row in db.query("SELECT owner, used_bytes FROM used WHERE used_bytes > 0", values![])? {
            users.insert(row.text(0), (row.int(1) as u64, None));
        }
        for row in db.query("SELECT subject, allowed_bytes FROM quota", values![])? {
            let (subject, allowed) = (row.text(0), row.int(1) as u64);
            match subject.strip_prefix("user:") {
                Some(user) => users.entry(user.to_owned()).or_insert((0, None)).1 = Some(allowed),
                None => quotas.everyone_bytes = Some(allowed),
            }
        }
        quotas.users = users
            .into_iter()
            .map(|(user, (used_bytes, own))| Usage {
                user,
                used_bytes,
                allowed_bytes: own.or(quotas.everyone_bytes),
                is_own: own.is_some(),
            })
            .collect();
        Ok(quotas)
    }

    /// Sets how much a user, or everyone who has no quota of their own, may have; `None` takes the quota away. What is there stays, also
    /// where it is more. An operator's verb: the caller is written down.
    ///
    /// # Errors
    /// The subject is a group.
    pub fn set_quota(
        &self,
        caller: &Caller,
        subject: &Subject,
        allowed_bytes: Option<u64>,
        now_ms: i64,
    ) -> Result<()> {
        self.require_keeper("set a quota")?;
        let subject = subject.to_string();
        if !(subject == EVERYONE || subject.starts_with("user:")) {
            return Err(Error::bad(format!(
                "{} is a group, and data sets belong to users: write user:NAME or {EVERYONE}",
                shown(&subject)
            )));
        }
        within(&mut **self.db(), |db| {
            db.execute("DELETE FROM quota WHERE subject = ?1", values![subject.as_str()])?;
            let detail = match allowed_bytes {
                Some(bytes) => {
                    let most = i64::try_from(bytes).unwrap_or(i64::MAX);
                    let sql = "INSERT INTO quota (subject, allowed_bytes) VALUES (?1, ?2)";
                    db.execute(sql, values![subject.as_str(), most])?;
                    format!("{subject}={bytes}")
                }
                None => format!("{subject}=none"),
            };
            trail(db, caller, "quota", None, &detail, now_ms)
        })
    }

    /// What the owner of a data set has and may have; of a new one, the caller. `None`: there is no limit.
    pub(crate) fn room(&self, caller: &Caller, label: &str) -> Result<Option<Room>> {
        let db = &mut **self.db();
        let owner = row_of(db, label)?.map_or_else(|| caller.name.clone(), |set| set.owner);
        let sql = "SELECT used_bytes FROM used WHERE owner = ?1";
        let used = db.query(sql, values![owner.as_str()])?.first().map_or(0, |row| row.int(0));
        room_of(db, &owner, used)
    }

    /// The bytes of those of the objects that the owner of this room has not got; each counts once.
    pub(crate) fn new_bytes(&self, room: &Room, objects: &BTreeMap<Digest, u64>) -> Result<u64> {
        let db = &mut **self.db();
        let mut added = objects.values().sum::<u64>();
        let digests: Vec<&Digest> = objects.keys().collect();
        for digests in digests.chunks(OBJECTS_AT_ONCE) {
            let places: Vec<String> = (2..=digests.len() + 1).map(|n| format!("?{n}")).collect();
            let sql = format!(
                "SELECT CAST(coalesce(sum(o.size_bytes), 0) AS BIGINT) FROM object o \
                 JOIN owned w ON w.object_id = o.id AND w.owner = ?1 WHERE o.digest IN ({})",
                places.join(", ")
            );
            let mut asked: Vec<Value> = vec![room.owner.as_str().into()];
            asked.extend(digests.iter().map(|digest| Value::from(digest.as_bytes().as_slice())));
            added = added.saturating_sub(db.query(&sql, &asked)?[0].int(0) as u64);
        }
        Ok(added)
    }

    /// Refuses files that would be too much for the owner of a data set, before their bytes are kept. The commit asks again.
    pub(crate) fn require_room(&self, caller: &Caller, label: &str, files: &[File]) -> Result<()> {
        let Some(room) = self.room(caller, label)? else { return Ok(()) };
        let objects = files.iter().map(|file| (file.digest, file.size_bytes)).collect();
        room.require(self.new_bytes(&room, &objects)?, label)
    }
}

/// The room of an owner who has so many bytes; `None`: there is no limit.
fn room_of(db: &mut dyn Db, owner: &str, used_bytes: i64) -> Result<Option<Room>> {
    let allowed_of = |db: &mut dyn Db, subject: &str| -> Result<Option<i64>> {
        let sql = "SELECT allowed_bytes FROM quota WHERE subject = ?1";
        Ok(db.query(sql, values![subject])?.first().map(|row| row.int(0)))
    };
    let own = allowed_of(db, &format!("user:{owner}"))?;
    let allowed = match own {
        Some(own) => Some(own),
        None => allowed_of(db, EVERYONE)?,
    };
    Ok(allowed.map(|allowed| Room {
        owner: owner.into(),
        used_bytes: used_bytes as u64,
        allowed_bytes: allowed as u64,
    }))
}

/// Counts a version that was just committed.
///
/// # Errors
/// [`Error::Denied`]: it is too much for its owner. The caller takes the transaction back then.
pub(crate) fn count_in(db: &mut dyn Db, set_id: i64, version_id: i64) -> Result<()> {
    let (owner, label, before, added) = add_version(db, set_id, version_id)?;
    match room_of(db, &owner, before)? {
        Some(room) => room.require(added as u64, &label),
        None => Ok(()),
    }
}

/// Counts a version that is there already, whatever the quota says.
pub(crate) fn count_in_anyway(db: &mut dyn Db, set_id: i64, version_id: i64) -> Result<()> {
    add_version(db, set_id, version_id).map(|_| ())
}

/// The owner, the label, what the owner had before, and what came to it.
fn add_version(db: &mut dyn Db, set_id: i64, version_id: i64) -> Result<(String, String, i64, i64)> {
    let rows = db.query("SELECT owner, label FROM data_set WHERE id = ?1", values![set_id])?;
    let (owner, label) = (rows[0].text(0), rows[0].text(1));
    let sql = "INSERT INTO owned (owner, object_id, n_versions) \
               SELECT DISTINCT ?1, f.object_id, 1 FROM file f WHERE f.version_id = ?2 \
               ON CONFLICT (owner, object_id) DO UPDATE SET n_versions = owned.n_versions + 1";
    db.execute(sql, values![owner.as_str(), version_id])?;
    let sql = "SELECT CAST(coalesce(sum(o.size_bytes), 0) AS BIGINT) FROM (SELECT DISTINCT object_id FROM file \
               WHERE version_id = ?2) f JOIN owned w ON w.owner = ?1 AND w.object_id = f.object_id AND w.n_versions = 1 \
               JOIN object o ON o.id = f.object_id";
    let added = db.query(sql, values![owner.as_str(), version_id])?[0].int(0);
    // One statement finds and changes the row: another commit of this owner waits here, or comes again.
    let sql = "INSERT INTO used (owner, used_bytes) VALUES (?1, ?2) \
               ON CONFLICT (owner) DO UPDATE SET used_bytes = used.used_bytes + excluded.used_bytes RETURNING used_bytes";
    let used = db.query(sql, values![owner.as_str(), added])?[0].int(0);
    Ok((owner, label, used - added, added))
}

/// Takes a version out that is about to be removed, while its files are still there.
pub(crate) fn count_out(db: &mut dyn Db, owner: &str, version_id: i64) -> Result<()> {
    let sql = "UPDATE owned SET n_versions = n_versions - 1 WHERE owner = ?1 \
               AND object_id IN (SELECT object_id FROM file WHERE version_id = ?2)";
    db.execute(sql, values![owner, version_id])?;
    let sql = "SELECT CAST(coalesce(sum(o.size_bytes), 0) AS BIGINT) FROM (SELECT DISTINCT object_id FROM file \
               WHERE version_id = ?2) f JOIN owned w ON w.owner = ?1 AND w.object_id = f.object_id AND w.n_versions = 0 \
               JOIN object o ON o.id = f.object_id";
    let freed = db.query(sql, values![owner, version_id])?[0].int(0);
    let sql = "DELETE FROM owned WHERE owner = ?1 AND n_versions = 0 \
               AND object_id IN (SELECT object_id FROM file WHERE version_id = ?2)";
    db.execute(sql, values![owner, version_id])?;
    db.execute("UPDATE used SET used_bytes = used_bytes - ?2 WHERE owner = ?1", values![owner, freed])?;
    Ok(())
}
