//! Data sets: made in drafts, committed, found, tagged, removed; and the trail of what was done.
//!
//! A version is *open* while files come in, *committed* from then on and for good, or *removed*. Nobody but its maker sees a data set
//! without a committed version. A label never means other data: that of a removed set is not given again.

use crate::access::{Caller, known, require, trail};
use crate::catalog::Catalog;
use crate::db::{Db, Row, Value, insert, places, within, within_reserve};
use crate::error::{Error, Result};
use crate::key::{Key, check_label, check_new_label};
use crate::query;
use crate::quotas::{count_in, count_out};
use crate::restored::note_change;
use crate::rights::Right;
use crate::rows::{SetRow, digest_of, row_of, unknown, version_of};
use crate::sealed::{File, Sealed};
use crate::tags::Tag;
use crate::values;
use eyas_data::Digest;
use eyas_folder::why_not_below;
use eyas_text::shown;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Most files of one version.
const FILES_MAX: i64 = 10_000_000;
const COPIES_MAX: u32 = 100;

/// A version that files are added to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub key: Key,
    version_id: i64,
    set_id: i64,
    /// How many numbers before its own were left out, as sites have versions of theirs that the catalog does not know.
    pub(crate) n_left_out: u32,
}

/// A data set as `find` shows it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct FoundSet {
    pub label: String,
    pub owner: String,
    pub created_ms: i64,
    /// The newest version.
    pub version: u32,
    pub n_files: u64,
    pub size_bytes: u64,
    /// In the order of their names.
    pub tags: BTreeMap<String, String>,
}

/// All about a data set.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct DataSet {
    #[serde(flatten)]
    pub newest: FoundSet,
    /// How many copies of each file there should be.
    pub copies: u32,
    pub versions: Vec<Version>,
}

/// A committed version.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Version {
    pub number: u32,
    pub committed_ms: i64,
    pub n_files: u64,
    pub size_bytes: u64,
}

/// One thing that was done with a data set.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    pub at_ms: i64,
    pub caller: String,
    pub verb: String,
    pub detail: String,
}

/// Whether a path may be that of a file of a data set.
pub fn is_plain_path(path: &str) -> bool {
    why_not_below(path.as_bytes()).is_none()
}

/// # Errors
/// It may not ([`why_not_below`]).
pub(crate) fn check_path(path: &str) -> Result<()> {
    match why_not_below(path.as_bytes()) {
        None => Ok(()),
        Some(why) => {
            Err(Error::bad(format!("{} cannot be a file of a data set: its path {why}", shown(path))))
        }
    }
}

/// The path of a file in a row. A database is made by others, too, and readers join what it says to paths.
pub(crate) fn path_of(row: &Row, column: usize) -> Result<String> {
    let path = row.text(column);
    check_path(&path).map(|()| path)
}

pub(crate) fn not_free(label: &str) -> Error {
    Error::Conflict(format!(
        "the label `{label}` is not free, and there is no data set `{label}` that you may list: choose another label"
    ))
}

/// The data set of a label that the caller may give a version; `None` where the label is free.
///
/// # Errors
/// The label is wrong, was a removed data set's, or belongs to a data set that the caller may not write. Whoever may not list that data
/// set is told the same in each of these cases.
fn writable(db: &mut dyn Db, caller: &Caller, label: &str) -> Result<Option<SetRow>> {
    check_label(label)?;
    let Some(set) = row_of(db, label)? else { return check_new_label(label).map(|()| None) };
    // A data set that is being made has nobody yet who may list it but its maker.
    let may_list = (set.newest > 0 || set.is_removed || set.owner == caller.name || caller.is_operator)
        && require(db, caller, &set, Right::List).is_ok();
    let has_right = require(db, caller, &set, Right::Write);
    match has_right {
        _ if !may_list && (set.is_removed || set.newest == 0 || has_right.is_err()) => Err(not_free(label)),
        _ if set.is_removed => Err(Error::Conflict(format!(
            "`{label}` was the label of a data set that has been removed, and is not given again: choose another one"
        ))),
        has_right => has_right.map(|()| Some(set)),
    }
}

impl Catalog {
    /// Refuses unless the caller may give this label a version.
    pub fn require_writable(&self, caller: &Caller, label: &str) -> Result<()> {
        writable(&mut **self.db(), caller, label).map(|_| ())
    }

    /// Begins a version: the first of a new data set, or the next of one that the caller may write. `copies` is how many copies
    /// each file shall have; `None` leaves it (1 for a new set). Its number is beyond all that the catalog knows, and beyond all that sites
    /// within reach have written down.
    ///
    /// # Errors
    /// [`Error::Unreached`]: the catalog went back in time, and a site that may have written down more is away.
    pub fn begin(&self, caller: &Caller, label: &str, copies: Option<u32>, now_ms: i64) -> Result<Draft> {
        if copies.is_some_and(|copies| copies == 0 || copies > COPIES_MAX) {
            return Err(Error::bad(format!("a data set has from 1 to {COPIES_MAX} copies")));
        }
        check_label(label)?;
        let written = i64::from(self.newest_written(caller, label, now_ms)?);
        within(&mut **self.db(), |db| {
            let set_id = match writable(db, caller, label)? {
                Some(set) => set.id,
                None => {
                    // There may be one that this user of the database does not see.
                    let sql = "INSERT INTO data_set (label, owner, created_ms, copies, newest, n_files, size_bytes) \
                               VALUES (?1, ?2, ?3, 1, 0, 0, 0) ON CONFLICT (label) DO NOTHING RETURNING id";
                    let made = db.query(sql, values![label, caller.name.as_str(), now_ms])?;
                    made.first().ok_or_else(|| not_free(label))?.int(0)
                }
            };
            if let Some(copies) = copies {
                db.execute(
                    "UPDATE data_set SET copies = ?2 WHERE id = ?1",
                    values![set_id, i64::from(copies)],
                )?;
            }
            let sql = "SELECT coalesce(max(number), 0) FROM version WHERE set_id = ?1";
            let known = db.query(sql, values![set_id])?[0].int(0);
            let number = known.max(written) + 1;
            let sql = "INSERT INTO version (set_id, number, state, created_ms, n_files, size_bytes) \
                       VALUES (?1, ?2, 'open', ?3, 0, 0) RETURNING id";
            let version_id = db.query(sql, values![set_id, number, now_ms])?[0].int(0);
            let version = Some(u32::try_from(number).unwrap_or(u32::MAX));
            let n_left_out = u32::try_from(number - known - 1).unwrap_or(u32::MAX);
            Ok(Draft { key: Key { label: label.into(), version }, version_id, set_id, n_left_out })
        })
    }

    /// Adds files to a draft. Their bytes are put at sites before or after, but before the commit.
    ///
    /// # Errors
    /// A path is wrong or was added before, or the draft is not open any more; then none is added.
    pub fn add(&self, draft: &Draft, files: &[File]) -> Result<()> {
        let mut paths = HashSet::new();
        for file in files {
            check_path(&file.path)?;
            if !paths.insert(&file.path) {
                return Err(twice(&draft.key, &file.path));
            }
        }
        within(&mut **self.db(), |db| {
            require_open(db, draft)?;
            for files in files.chunks(500) {
                let ids = objects(db, files)?;
                let rows: Vec<Vec<Value>> = files
                    .iter()
                    .map(|file| {
                        let object = ids[&file.digest];
                        vec![
                            draft.version_id.into(),
                            file.path.as_str().into(),
                            object.into(),
                            i64::from(file.is_executable).into(),
                        ]
                    })
                    .collect();
                let columns = ["version_id", "path", "object_id", "is_executable"];
                let n_added = insert(db, "file", &columns, &rows, "ON CONFLICT DO NOTHING")?;
                if n_added < rows.len() as u64 {
                    return Err(Error::Conflict(format!("a file was added to `{}` twice", draft.key)));
                }
            }
            Ok(())
        })
    }

    /// Commits a draft, with tags for the data set: from now on it is seen, and never changes.
    ///
    /// # Errors
    /// [`Error::Conflict`]: there is no file, a file has no ready replica, or a path is a file and a directory.
    /// [`Error::Denied`]: it is more than the data set's owner may have.
    pub fn commit(&self, caller: &Caller, draft: &Draft, tags: &[Tag], now_ms: i64) -> Result<()> {
        self.commit_if(caller, draft, tags, now_ms, &|_| Ok(()))
    }

    /// The same, if `check` allows it, which is asked in the same transaction.
    pub(crate) fn commit_if(
        &self,
        caller: &Caller,
        draft: &Draft,
        tags: &[Tag],
        now_ms: i64,
        check: &dyn Fn(&mut dyn Db) -> Result<()>,
    ) -> Result<()> {
        within(&mut **self.db(), |db| {
            require_open(db, draft)?;
            check(db)?;
            let sql = "SELECT f.path FROM file f WHERE f.version_id = ?1 AND NOT EXISTS (SELECT 1 FROM replica r \
                       WHERE r.object_id = f.object_id AND r.state = 'ready') ORDER BY f.path LIMIT 1";
            if let Some(row) = db.query(sql, values![draft.version_id])?.first() {
                return Err(Error::Conflict(format!(
                    "`{}` is not committed, as its file {} has no copy at any site yet",
                    draft.key,
                    shown(&row.text(0))
                )));
            }
            let sql = "SELECT count(*), CAST(coalesce(sum(o.size_bytes), 0) AS BIGINT) FROM file f \
                       JOIN object o ON o.id = f.object_id WHERE f.version_id = ?1";
            let sums = db.query(sql, values![draft.version_id])?;
            let (n_files, size_bytes) = (sums[0].int(0), sums[0].int(1));
            match n_files {
                0 => {
                    return Err(Error::Conflict(format!(
                        "`{}` is not committed, as it has no files",
                        draft.key
                    )));
                }
                n if n > FILES_MAX => {
                    return Err(Error::Conflict(format!(
                        "`{}` is not committed, as it has {n} files, and {FILES_MAX} are the most: pack some together",
                        draft.key
                    )));
                }
                _ => {}
            }
            check_tree(db, draft)?;
            let sql = "UPDATE version SET state = 'committed', committed_ms = ?2, n_files = ?3, size_bytes = ?4 WHERE id = ?1";
            db.execute(sql, values![draft.version_id, now_ms, n_files, size_bytes])?;
            count_in(db, draft.set_id, draft.version_id)?;
            point_at_newest(db, &[draft.set_id])?;
            put_tags(db, &[(draft.set_id, tags)])?;
            note_change(db)?;
            let detail =
                format!("version {}: {n_files} files, {size_bytes} bytes", draft.key.version.unwrap_or(0));
            trail(db, caller, "put", Some(draft.set_id), &detail, now_ms)
        })
    }

    /// The objects of a draft that have no good copy at any site.
    pub(crate) fn lacking(&self, draft: &Draft) -> Result<Vec<Digest>> {
        let sql = "SELECT DISTINCT o.digest FROM file f JOIN object o ON o.id = f.object_id WHERE f.version_id = ?1 \
                   AND NOT EXISTS (SELECT 1 FROM replica r WHERE r.object_id = f.object_id AND r.state = 'ready')";
        self.db().query(sql, values![draft.version_id])?.iter().map(|row| digest_of(row, 0)).collect()
    }

    /// Gives a draft up; its files are forgotten. Nobody has seen its number, so the next draft may have it, and the label of a data set
    /// that would have begun with it is free again.
    pub fn abandon(&self, draft: &Draft) -> Result<()> {
        within_reserve(&mut **self.db(), |db| {
            let sql = "SELECT 1 FROM version WHERE id = ?1 AND state = 'open'";
            if db.query(sql, values![draft.version_id])?.is_empty() {
                return Ok(());
            }
            db.execute("DELETE FROM file WHERE version_id = ?1", values![draft.version_id])?;
            db.execute("DELETE FROM version WHERE id = ?1", values![draft.version_id])?;
            let sql = "DELETE FROM data_set WHERE id = ?1 AND newest = 0 AND removed_ms IS NULL \
                       AND NOT EXISTS (SELECT 1 FROM version WHERE set_id = ?1) \
                       AND NOT EXISTS (SELECT 1 FROM tag WHERE set_id = ?1) \
                       AND NOT EXISTS (SELECT 1 FROM acl WHERE set_id = ?1) \
                       AND NOT EXISTS (SELECT 1 FROM trail WHERE set_id = ?1)";
            db.execute(sql, values![draft.set_id])?;
            Ok(())
        })
    }

    /// Takes a version back that was committed and that nobody was told of, as a site has another one under its key.
    pub(crate) fn withdraw(&self, draft: &Draft) -> Result<()> {
        within_reserve(&mut **self.db(), |db| {
            let sql = "SELECT s.owner FROM data_set s JOIN version v ON v.set_id = s.id \
                       WHERE v.id = ?1 AND v.state = 'committed'";
            let Some(row) = db.query(sql, values![draft.version_id])?.first().cloned() else { return Ok(()) };
            count_out(db, &row.text(0), draft.version_id)?;
            db.execute("DELETE FROM file WHERE version_id = ?1", values![draft.version_id])?;
            db.execute("DELETE FROM version WHERE id = ?1", values![draft.version_id])?;
            point_at_newest(db, &[draft.set_id])
        })
    }

    /// The newest data sets that match a query (all, if there is none) and that the caller may list, newest first.
    pub fn find(&self, caller: &Caller, query: Option<&str>, limit: u64) -> Result<Vec<FoundSet>> {
        let expr = query.map(query::parse).transpose()?;
        let db = &mut **self.db();
        let columns = "s.id, s.label, s.owner, s.created_ms, s.newest, s.n_files, s.size_bytes";
        let (sql, values) =
            query::sql::select(db, expr.as_ref(), columns, limit, &|values| caller.may_list(values))?;
        let rows = db.query(&sql, &values.0)?;
        with_tags(db, &rows)
    }

    /// All about a data set.
    pub fn show(&self, caller: &Caller, key: &Key) -> Result<DataSet> {
        let db = &mut **self.db();
        let set = known(db, caller, &key.label)?;
        version_of(db, &set, key)?;
        let sql = "SELECT id, label, owner, created_ms, newest, n_files, size_bytes, copies FROM data_set WHERE id = ?1";
        let rows = db.query(sql, values![set.id])?;
        let copies = u32::try_from(rows[0].int(7)).unwrap_or(u32::MAX);
        let newest = with_tags(db, &rows)?.remove(0);
        let sql = "SELECT number, committed_ms, n_files, size_bytes FROM version \
                   WHERE set_id = ?1 AND state = 'committed' ORDER BY number";
        let versions = db.query(sql, values![set.id])?;
        let versions = versions.iter().map(|row| Version {
            number: u32::try_from(row.int(0)).unwrap_or(u32::MAX),
            committed_ms: row.int(1),
            n_files: row.int(2) as u64,
            size_bytes: row.int(3) as u64,
        });
        Ok(DataSet { newest, copies, versions: versions.collect() })
    }

    /// The files of a version, by path.
    pub fn files(&self, caller: &Caller, key: &Key) -> Result<Vec<File>> {
        let db = &mut **self.db();
        let set = known(db, caller, &key.label)?;
        let (version_id, _) = version_of(db, &set, key)?;
        let sql = "SELECT f.path, o.size_bytes, o.digest, f.is_executable FROM file f \
                   JOIN object o ON o.id = f.object_id WHERE f.version_id = ?1 ORDER BY f.path";
        let rows = db.query(sql, values![version_id])?;
        rows.iter()
            .map(|row| {
                Ok(File {
                    path: path_of(row, 0)?,
                    size_bytes: row.int(1) as u64,
                    digest: digest_of(row, 2)?,
                    is_executable: row.int(3) != 0,
                })
            })
            .collect()
    }

    /// A version as sites write it down.
    pub fn sealed(&self, caller: &Caller, key: &Key) -> Result<Sealed> {
        let set = self.show(caller, key)?;
        let number = key.version.unwrap_or(set.newest.version);
        let key = Key { label: set.newest.label, version: Some(number) };
        let tags = set.newest.tags.into_iter().map(|(name, value)| Tag { name, value }).collect();
        let files = self.files(caller, &key)?;
        let acl = self.acl(caller, &key)?.into_iter().map(|(subject, rights)| (subject.to_string(), rights));
        let (acl, owner) = (acl.collect(), set.newest.owner);
        Ok(Sealed { key, owner, created_ms: set.newest.created_ms, copies: set.copies, tags, acl, files })
    }

    /// The keys of all versions in a state, in the order in which their data sets were made.
    ///
    /// `since`: only those of data sets of which the trail says something after this row.
    pub(crate) fn versions(&self, state: &str, since: i64) -> Result<Vec<Key>> {
        let db = &mut **self.db();
        // What was adopted has no row of its own.
        let sql = "SELECT s.label, v.number FROM version v JOIN data_set s ON s.id = v.set_id \
                   WHERE v.state = ?2 AND (CAST(?1 AS BIGINT) <= 0 \
                   OR s.id IN (SELECT set_id FROM trail WHERE id > ?1 AND set_id IS NOT NULL) \
                   OR EXISTS (SELECT 1 FROM trail WHERE id > ?1 AND verb = 'adopt')) ORDER BY s.id, v.number";
        let rows = db.query(sql, values![since, state])?;
        let key = |row: &Row| Key { label: row.text(0), version: u32::try_from(row.int(1)).ok() };
        Ok(rows.iter().map(key).collect())
    }

    /// Refuses unless the caller has the right to this data set.
    pub fn require(&self, caller: &Caller, key: &Key, right: Right) -> Result<()> {
        let db = &mut **self.db();
        let set = known(db, caller, &key.label)?;
        require(db, caller, &set, right)
    }

    /// Writes into the history of a data set what was done with it besides what this catalog does itself, such as `at-data` and
    /// the program that made a version.
    pub fn note(&self, caller: &Caller, key: &Key, verb: &str, detail: &str, now_ms: i64) -> Result<()> {
        within(&mut **self.db(), |db| {
            let set = known(db, caller, &key.label)?;
            require(db, caller, &set, Right::Write)?;
            trail(db, caller, verb, Some(set.id), detail, now_ms)
        })
    }

    /// Gives a data set tags, in place of others of their names, and takes tags away.
    pub fn tag(&self, caller: &Caller, key: &Key, tags: &[Tag], away: &[String], now_ms: i64) -> Result<()> {
        within(&mut **self.db(), |db| {
            let set = known(db, caller, &key.label)?;
            require(db, caller, &set, Right::Write)?;
            put_tags(db, &[(set.id, tags)])?;
            for name in away {
                let sql = "DELETE FROM tag WHERE set_id = ?1 AND name_id = (SELECT id FROM tag_name WHERE name = ?2)";
                if db.execute(sql, values![set.id, name.as_str()])? == 0 {
                    return Err(Error::NotFound(format!(
                        "the data set `{}` has no tag {}; nothing was changed",
                        set.label,
                        shown(name)
                    )));
                }
            }
            let put = tags.iter().map(|tag| format!("{}={}", tag.name, tag.value));
            let detail: Vec<String> = put.chain(away.iter().map(|name| format!("-{name}"))).collect();
            trail(db, caller, "tag", Some(set.id), &detail.join(" "), now_ms)
        })
    }

    /// Sets how many copies each file shall have.
    pub fn set_copies(&self, caller: &Caller, key: &Key, copies: u32, now_ms: i64) -> Result<()> {
        if copies == 0 || copies > COPIES_MAX {
            return Err(Error::bad(format!("a data set has from 1 to {COPIES_MAX} copies")));
        }
        within(&mut **self.db(), |db| {
            let set = known(db, caller, &key.label)?;
            require(db, caller, &set, Right::Write)?;
            db.execute("UPDATE data_set SET copies = ?2 WHERE id = ?1", values![set.id, i64::from(copies)])?;
            trail(db, caller, "copies", Some(set.id), &copies.to_string(), now_ms)
        })
    }

    /// Removes a version, or the whole data set where the key names none. Its label stays taken, its history can be read.
    pub fn remove(&self, caller: &Caller, key: &Key, now_ms: i64) -> Result<()> {
        within_reserve(&mut **self.db(), |db| {
            let set = known(db, caller, &key.label)?;
            require(db, caller, &set, Right::Admin)?;
            let (which, detail) = match key.version {
                Some(number) => {
                    let (version_id, _) = version_of(db, &set, key)?;
                    (Some(version_id), format!("version {number}"))
                }
                None => (None, "all versions".into()),
            };
            let sql =
                "SELECT id FROM version WHERE set_id = ?1 AND state = 'committed' AND (id = ?2 OR ?2 = 0)";
            for row in db.query(sql, values![set.id, which.unwrap_or(0)])? {
                count_out(db, &set.owner, row.int(0))?;
            }
            let sql = "DELETE FROM file WHERE version_id IN (SELECT id FROM version WHERE set_id = ?1 \
                       AND state = 'committed' AND (id = ?2 OR ?2 = 0))";
            db.execute(sql, values![set.id, which.unwrap_or(0)])?;
            let sql = "UPDATE version SET state = 'removed' WHERE set_id = ?1 AND state = 'committed' AND (id = ?2 OR ?2 = 0)";
            db.execute(sql, values![set.id, which.unwrap_or(0)])?;
            point_at_newest(db, &[set.id])?;
            let sql = "UPDATE data_set SET removed_ms = ?2 WHERE id = ?1 AND newest = 0";
            db.execute(sql, values![set.id, now_ms])?;
            trail(db, caller, "remove", Some(set.id), &detail, now_ms)
        })
    }

    /// What was done with a data set, the oldest first; its owner and operators may ask for one that has been removed.
    pub fn history(&self, caller: &Caller, key: &Key) -> Result<Vec<Entry>> {
        let db = &mut **self.db();
        let set = row_of(db, &key.label)?.ok_or_else(|| unknown(&key.label))?;
        if !(caller.is_operator || caller.name == set.owner) {
            known(db, caller, &key.label)?;
        }
        let sql = "SELECT at_ms, caller, verb, detail FROM trail WHERE set_id = ?1 ORDER BY id";
        let rows = db.query(sql, values![set.id])?;
        let entries = rows.iter().map(|row| Entry {
            at_ms: row.int(0),
            caller: row.text(1),
            verb: row.text(2),
            detail: row.text(3),
        });
        Ok(entries.collect())
    }
}

fn twice(key: &Key, path: &str) -> Error {
    Error::Conflict(format!("the file {} was added to `{key}` twice", shown(path)))
}

fn require_open(db: &mut dyn Db, draft: &Draft) -> Result<()> {
    let rows = db.query("SELECT state FROM version WHERE id = ?1", values![draft.version_id])?;
    match rows.first().map(|row| row.text(0)).as_deref() {
        Some("open") => Ok(()),
        _ => Err(Error::Conflict(format!(
            "`{}` is committed or given up, and does not change any more",
            draft.key
        ))),
    }
}

/// The rows' ids of the files' objects, which are made where they are new.
pub(crate) fn objects<'a>(
    db: &mut dyn Db,
    files: impl IntoIterator<Item = &'a File>,
) -> Result<HashMap<Digest, i64>> {
    let sizes: BTreeMap<Digest, u64> = files.into_iter().map(|file| (file.digest, file.size_bytes)).collect();
    let rows: Vec<Vec<Value>> = sizes
        .iter()
        .map(|(digest, size)| vec![digest.as_bytes().as_slice().into(), (*size as i64).into()])
        .collect();
    insert(db, "object", &["digest", "size_bytes"], &rows, "ON CONFLICT DO NOTHING")?;
    let sql = format!("SELECT id, digest, size_bytes FROM object WHERE digest IN ({})", places(rows.len()));
    let digests: Vec<Value> = rows.into_iter().map(|mut row| row.remove(0)).collect();
    db.claim(&digests)?;
    let mut ids = HashMap::new();
    for row in db.query(&sql, &digests)? {
        let digest = digest_of(&row, 1)?;
        let size = row.int(2) as u64;
        if sizes[&digest] != size {
            return Err(Error::bad(format!(
                "the object {digest} has {size} bytes in the catalog and was now said to have {}",
                sizes[&digest]
            )));
        }
        ids.insert(digest, row.int(0));
    }
    Ok(ids)
}

/// Refuses a draft in which a path is a file and also the directory of another.
fn check_tree(db: &mut dyn Db, draft: &Draft) -> Result<()> {
    let rows = db.query("SELECT path FROM file WHERE version_id = ?1", values![draft.version_id])?;
    let files: HashSet<String> = rows.iter().map(|row| row.text(0)).collect();
    for path in &files {
        let directory =
            path.match_indices('/').map(|(at, _)| &path[..at]).find(|directory| files.contains(*directory));
        if let Some(directory) = directory {
            return Err(Error::Conflict(format!(
                "`{}` is not committed: {} cannot be a file and the directory of {}",
                draft.key,
                shown(directory),
                shown(path)
            )));
        }
    }
    Ok(())
}

/// Has the data sets' rows say what their newest committed versions are.
pub(crate) fn point_at_newest(db: &mut dyn Db, set_ids: &[i64]) -> Result<()> {
    let of_newest = |column: &str| {
        format!(
            "{column} = coalesce((SELECT v.{} FROM version v WHERE v.set_id = data_set.id AND v.state = 'committed' \
             ORDER BY v.number DESC LIMIT 1), 0)",
            if column == "newest" { "number" } else { column }
        )
    };
    let set = ["newest", "n_files", "size_bytes"].map(of_newest).join(", ");
    for set_ids in set_ids.chunks(500) {
        let values: Vec<Value> = set_ids.iter().map(|id| (*id).into()).collect();
        db.execute(&format!("UPDATE data_set SET {set} WHERE id IN ({})", places(set_ids.len())), &values)?;
    }
    Ok(())
}

/// Gives data sets tags, in place of those of the same names.
pub(crate) fn put_tags(db: &mut dyn Db, of_sets: &[(i64, &[Tag])]) -> Result<()> {
    let names: BTreeSet<&str> =
        of_sets.iter().flat_map(|(_, tags)| tags.iter().map(|tag| &*tag.name)).collect();
    let rows: Vec<Vec<Value>> = names.into_iter().map(|name| vec![name.into()]).collect();
    insert(db, "tag_name", &["name"], &rows, "ON CONFLICT DO NOTHING")?;
    let names: Vec<Value> = rows.into_iter().flatten().collect();
    let mut ids = HashMap::new();
    for names in names.chunks(500) {
        let sql = format!("SELECT name, id FROM tag_name WHERE name IN ({})", places(names.len()));
        ids.extend(db.query(&sql, names)?.iter().map(|row| (row.text(0), row.int(1))));
    }
    // A name that is given twice has its last value.
    let mut rows = BTreeMap::new();
    for (set_id, tags) in of_sets {
        for tag in *tags {
            let (name_id, kind) = (ids[&tag.name], tag.kind());
            let (text, ordinal) = (tag.value.as_str().into(), kind.ordinal().into());
            let row: Vec<Value> = vec![(*set_id).into(), name_id.into(), text, kind.name().into(), ordinal];
            rows.insert((*set_id, name_id), row);
        }
    }
    let columns = ["set_id", "name_id", "text", "kind", "ordinal"];
    let tail = "ON CONFLICT (set_id, name_id) DO UPDATE SET text = excluded.text, kind = excluded.kind, \
                ordinal = excluded.ordinal";
    insert(db, "tag", &columns, &rows.into_values().collect::<Vec<_>>(), tail)?;
    Ok(())
}

/// Rows of `data_set` (id, label, owner, created, newest, files, bytes) with their tags.
fn with_tags(db: &mut dyn Db, rows: &[Row]) -> Result<Vec<FoundSet>> {
    let mut tags: HashMap<i64, BTreeMap<String, String>> = HashMap::new();
    for rows in rows.chunks(500) {
        let sql = format!(
            "SELECT t.set_id, n.name, t.text FROM tag t JOIN tag_name n ON n.id = t.name_id WHERE t.set_id IN ({})",
            places(rows.len())
        );
        let ids: Vec<Value> = rows.iter().map(|row| row.int(0).into()).collect();
        for row in db.query(&sql, &ids)? {
            tags.entry(row.int(0)).or_default().insert(row.text(1), row.text(2));
        }
    }
    let found = rows.iter().map(|row| FoundSet {
        label: row.text(1),
        owner: row.text(2),
        created_ms: row.int(3),
        version: u32::try_from(row.int(4)).unwrap_or(u32::MAX),
        n_files: row.int(5) as u64,
        size_bytes: row.int(6) as u64,
        tags: tags.remove(&row.int(0)).unwrap_or_default(),
    });
    Ok(found.collect())
}
