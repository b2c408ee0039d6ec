//! Versions that come into a catalog as they are: from the seals of sites when the catalog was lost, or from another catalog.

use crate::access::{Caller, trail};
use crate::catalog::Catalog;
use crate::db::{Db, Value, insert, within};
use crate::error::{Error, Result};
use crate::holding::{Condition, Holding};
use crate::joining::Joining;
use crate::key::check_label;
use crate::quotas::count_in_anyway;
use crate::rows::row_of;
use crate::sealed::Sealed;
use crate::sets::{check_path, objects, point_at_newest, put_tags};
use crate::sites::{NewSite, ReplicaState};
use crate::values;

/// What was found in the folders of sites.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Rebuilt {
    pub n_versions: u64,
    pub n_good: u64,
    /// Objects with other bytes than their names say.
    pub n_bad: u64,
    /// Seals that cannot be read, with the reason.
    pub unreadable: Vec<String>,
}

impl Catalog {
    /// Takes versions over that the catalog has not got, all or none; returns how many those were. Tags of a data set that is there
    /// already stay as they are. Whether there are copies is not asked, nor whether it is more than an owner may have.
    ///
    /// # Errors
    /// A path or a label is wrong, or a data set of that label belongs to somebody else.
    pub fn adopt(&self, caller: &Caller, versions: &[Sealed], now_ms: i64) -> Result<u64> {
        for version in versions {
            check_label(&version.key.label)?;
            version.files.iter().try_for_each(|file| check_path(&file.path))?;
        }
        within(&mut **self.db(), |db| {
            let mut n_adopted = 0;
            for version in versions {
                n_adopted += u64::from(adopt_one(db, version)?);
            }
            if n_adopted > 0 {
                trail(db, caller, "adopt", None, &format!("{n_adopted} versions"), now_ms)?;
            }
            Ok(n_adopted)
        })
    }

    /// Makes the catalog anew from a site: its seals become data sets, its objects, each of which is read through,
    /// replicas. What the catalog knows already stays.
    pub fn rebuild(
        &self,
        caller: &Caller,
        site: &dyn Holding,
        new: &NewSite<'_>,
        now_ms: i64,
    ) -> Result<Rebuilt> {
        self.join_site(caller, site, new, Joining::TakesOver, now_ms)?;
        let mut rebuilt = Rebuilt::default();
        let (versions, unreadable) = site.seals()?;
        rebuilt.unreadable = unreadable;
        for versions in versions.chunks(1000) {
            rebuilt.n_versions += self.adopt(caller, versions, now_ms)?;
        }
        let (mut good, mut bad) = (vec![], vec![]);
        let objects = site.objects()?;
        site.verify_all(&objects, &mut |n, condition| match condition {
            Condition::Good => good.push(objects[n]),
            Condition::Bad => bad.push(objects[n]),
            Condition::Missing => {}
        })?;
        good.sort_unstable();
        bad.sort_unstable();
        (rebuilt.n_good, rebuilt.n_bad) = (good.len() as u64, bad.len() as u64);
        self.note_replicas(site.name(), &good, ReplicaState::Ready, now_ms)?;
        self.note_replicas(site.name(), &bad, ReplicaState::Bad, now_ms)?;
        Ok(rebuilt)
    }
}

/// Whether the version was new.
fn adopt_one(db: &mut dyn Db, sealed: &Sealed) -> Result<bool> {
    let label = sealed.key.label.as_str();
    let set_id = match row_of(db, label)? {
        Some(set) if set.owner != sealed.owner => {
            return Err(Error::Conflict(format!(
                "the data set `{label}` belongs to {} here, and to {} in what is taken over",
                eyas_text::shown(&set.owner),
                eyas_text::shown(&sealed.owner)
            )));
        }
        // What was removed does not come back by itself.
        Some(set) if set.is_removed => return Ok(false),
        Some(set) => set.id,
        None => {
            let sql = "INSERT INTO data_set (label, owner, created_ms, copies, newest, n_files, size_bytes) \
                       VALUES (?1, ?2, ?3, ?4, 0, 0, 0) RETURNING id";
            let copies = i64::from(sealed.copies);
            let id =
                db.query(sql, values![label, sealed.owner.as_str(), sealed.created_ms, copies])?[0].int(0);
            put_tags(db, id, &sealed.tags)?;
            id
        }
    };
    let number = i64::from(sealed.key.version.unwrap_or(1));
    let sql = "SELECT id FROM version WHERE set_id = ?1 AND number = ?2";
    if !db.query(sql, values![set_id, number])?.is_empty() {
        return Ok(false);
    }
    let size_bytes: u64 = sealed.files.iter().map(|file| file.size_bytes).sum();
    let n_files = sealed.files.len() as i64;
    let sql = "INSERT INTO version (set_id, number, state, created_ms, committed_ms, n_files, size_bytes) \
               VALUES (?1, ?2, 'committed', ?3, ?3, ?4, ?5) RETURNING id";
    let row = db.query(sql, values![set_id, number, sealed.created_ms, n_files, size_bytes as i64])?;
    let version_id = row[0].int(0);
    for files in sealed.files.chunks(500) {
        let ids = objects(db, files)?;
        let rows: Vec<Vec<Value>> = files
            .iter()
            .map(|file| {
                vec![
                    version_id.into(),
                    file.path.as_str().into(),
                    ids[&file.digest].into(),
                    i64::from(file.is_executable).into(),
                ]
            })
            .collect();
        insert(
            db,
            "file",
            &["version_id", "path", "object_id", "is_executable"],
            &rows,
            "ON CONFLICT DO NOTHING",
        )?;
    }
    count_in_anyway(db, set_id, version_id)?;
    point_at_newest(db, set_id)?;
    Ok(true)
}
