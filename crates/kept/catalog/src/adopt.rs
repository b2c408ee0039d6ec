//! Versions that come into a catalog as they are: from the seals of sites when the catalog was lost, or from another catalog.

use crate::access::{Caller, trail};
use crate::catalog::Catalog;
use crate::db::{Db, Value, insert, places, within};
use crate::error::{Error, Result};
use crate::holding::{Condition, Holding};
use crate::joining::Joining;
use crate::key::check_label;
use crate::quotas::count_in_anyway;
use crate::restored::note_change;
use crate::rows::SetRow;
use crate::sealed::{File, Sealed};
use crate::sets::{check_path, objects, point_at_newest, put_tags};
use crate::sites::{Marked, NewSite, OnTheirWay};
use eyas_data::Digest;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Values that one statement asks for.
const AT_ONCE: usize = 500;

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
            let n_adopted = adopt_all(db, versions)?;
            if n_adopted > 0 {
                note_change(db)?;
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
        let objects = site.objects()?;
        // The catalog knows of them before they are read, so that nobody removes what is being found good.
        self.claim(site.name(), &objects, now_ms)?;
        let known: HashMap<Digest, Marked> =
            self.replicas_at(site.name())?.iter().map(|copy| (copy.digest, copy.marked())).collect();
        let mut found = vec![];
        site.verify_all(&objects, &mut |n, condition| {
            match condition {
                Condition::Good => rebuilt.n_good += 1,
                Condition::Bad => rebuilt.n_bad += 1,
                Condition::Missing => {}
            }
            found.extend(known.get(&objects[n]).map(|copy| (*copy, condition)));
        })?;
        self.judge(site.name(), &found, OnTheirWay::AreLooked, now_ms)?;
        self.compare_with(site)?;
        Ok(rebuilt)
    }
}

/// Takes versions over in few statements for all of them; returns how many were new.
fn adopt_all(db: &mut dyn Db, versions: &[Sealed]) -> Result<u64> {
    let mut of_label = sets_of(db, versions)?;
    // The first version of a data set that is new says what the set is.
    let mut fresh: Vec<&Sealed> = vec![];
    let mut labels = HashSet::new();
    for version in versions {
        match of_label.get(version.key.label.as_str()) {
            Some(set) if set.owner != version.owner => return Err(other_owner(&set.owner, version)),
            Some(_) => {}
            None if labels.insert(version.key.label.as_str()) => fresh.push(version),
            None => {}
        }
    }
    let rows: Vec<Vec<Value>> = fresh
        .iter()
        .map(|sealed| {
            let (label, owner) = (sealed.key.label.as_str().into(), sealed.owner.as_str().into());
            let copies = i64::from(sealed.copies).into();
            vec![label, owner, sealed.created_ms.into(), copies, 0_i64.into(), 0_i64.into(), 0_i64.into()]
        })
        .collect();
    let columns = ["label", "owner", "created_ms", "copies", "newest", "n_files", "size_bytes"];
    insert(db, "data_set", &columns, &rows, "")?;
    if !fresh.is_empty() {
        of_label = sets_of(db, versions)?;
        let tags = fresh.iter().map(|sealed| (of_label[sealed.key.label.as_str()].id, &*sealed.tags));
        put_tags(db, &tags.collect::<Vec<_>>())?;
    }
    // What a set has, and what came before in `versions`, does not come again.
    let set_ids: Vec<i64> = of_label.values().map(|set| set.id).collect();
    let mut there: HashSet<(i64, i64)> = ids_of_versions(db, &set_ids)?.into_keys().collect();
    let mut new: Vec<(i64, i64, &Sealed)> = vec![];
    for version in versions {
        let set = &of_label[version.key.label.as_str()];
        if set.owner != version.owner {
            return Err(other_owner(&set.owner, version));
        }
        let number = i64::from(version.key.version.unwrap_or(1));
        // What was removed does not come back by itself.
        if !set.is_removed && there.insert((set.id, number)) {
            new.push((set.id, number, version));
        }
    }
    let rows: Vec<Vec<Value>> = new
        .iter()
        .map(|(set_id, number, sealed)| {
            let size_bytes: u64 = sealed.files.iter().map(|file| file.size_bytes).sum();
            vec![
                (*set_id).into(),
                (*number).into(),
                "committed".into(),
                sealed.created_ms.into(),
                sealed.created_ms.into(),
                (sealed.files.len() as i64).into(),
                (size_bytes as i64).into(),
            ]
        })
        .collect();
    let columns = ["set_id", "number", "state", "created_ms", "committed_ms", "n_files", "size_bytes"];
    insert(db, "version", &columns, &rows, "")?;
    let mut set_ids: Vec<i64> = new.iter().map(|(set_id, ..)| *set_id).collect();
    set_ids.sort_unstable();
    set_ids.dedup();
    let version_ids = ids_of_versions(db, &set_ids)?;
    let files: Vec<(i64, &File)> = new
        .iter()
        .flat_map(|(set_id, number, sealed)| {
            let version_id = version_ids[&(*set_id, *number)];
            sealed.files.iter().map(move |file| (version_id, file))
        })
        .collect();
    for files in files.chunks(AT_ONCE) {
        let ids = objects(db, files.iter().map(|(_, file)| *file))?;
        let rows: Vec<Vec<Value>> = files
            .iter()
            .map(|(version_id, file)| {
                let object = ids[&file.digest].into();
                let is_executable = i64::from(file.is_executable).into();
                vec![(*version_id).into(), file.path.as_str().into(), object, is_executable]
            })
            .collect();
        let columns = ["version_id", "path", "object_id", "is_executable"];
        insert(db, "file", &columns, &rows, "ON CONFLICT DO NOTHING")?;
    }
    for (set_id, number, _) in &new {
        count_in_anyway(db, *set_id, version_ids[&(*set_id, *number)])?;
    }
    point_at_newest(db, &set_ids)?;
    Ok(new.len() as u64)
}

fn other_owner(owner: &str, version: &Sealed) -> Error {
    Error::Conflict(format!(
        "the data set `{}` belongs to {} here, and to {} in what is taken over",
        version.key.label,
        eyas_text::shown(owner),
        eyas_text::shown(&version.owner)
    ))
}

/// The data sets that are there of those that the versions are of, by label.
fn sets_of(db: &mut dyn Db, versions: &[Sealed]) -> Result<HashMap<String, SetRow>> {
    let labels: BTreeSet<&str> = versions.iter().map(|version| version.key.label.as_str()).collect();
    let labels: Vec<Value> = labels.into_iter().map(Value::from).collect();
    let mut sets = HashMap::new();
    for labels in labels.chunks(AT_ONCE) {
        let sql = format!(
            "SELECT label, id, owner, newest, removed_ms FROM data_set WHERE label IN ({})",
            places(labels.len())
        );
        for row in db.query(&sql, labels)? {
            let (label, is_removed) = (row.text(0), row.maybe_int(4).is_some());
            let set = SetRow {
                id: row.int(1),
                label: label.clone(),
                owner: row.text(2),
                newest: row.int(3),
                is_removed,
            };
            sets.insert(label, set);
        }
    }
    Ok(sets)
}

/// The rows of all versions of these data sets, by the set's row and the version's number.
fn ids_of_versions(db: &mut dyn Db, set_ids: &[i64]) -> Result<HashMap<(i64, i64), i64>> {
    let mut ids = HashMap::new();
    for set_ids in set_ids.chunks(AT_ONCE) {
        let sql =
            format!("SELECT set_id, number, id FROM version WHERE set_id IN ({})", places(set_ids.len()));
        let values: Vec<Value> = set_ids.iter().map(|id| Value::from(*id)).collect();
        ids.extend(db.query(&sql, &values)?.iter().map(|row| ((row.int(0), row.int(1)), row.int(2))));
    }
    Ok(ids)
}
