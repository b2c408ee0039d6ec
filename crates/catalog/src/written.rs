//! What sites have written down of versions that this catalog does not know.
//!
//! A catalog that was restored from an older backup has forgotten versions that were committed since. Their numbers may not be given
//! again: a key means the same bytes for ever. So before a number is given, the seals at the sites are looked at, and the number is
//! beyond all of them. That no two drafts get one number is the database's to see to; what sites say is looked at again after a
//! minute, and a site refuses a seal in the place of another version's ([`Holding::seal`]).
//!
//! What sites say is not taken over by itself: whoever can write into a site could make versions of anybody's data sets in this way.
//! An operator says so, by `eyas data rebuild`.
//!
//! [`Holding::seal`]: crate::holding::Holding::seal

use crate::access::Caller;
use crate::catalog::{Catalog, Written};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::rows::row_of;
use crate::values;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::PoisonError;
use std::thread;

/// For how long what sites have written down is known, in milliseconds.
const KNOWN_FOR_MS: i64 = 60_000;

/// Versions that a site has written down and the catalog does not know.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unknown {
    pub site: String,
    pub n_versions: u64,
    /// One of them.
    pub example: String,
}

impl Catalog {
    /// The newest version of a label that a site within reach has written down; 0: none.
    ///
    /// # Errors
    /// The catalog has no data set of that label, and the versions at the sites are not all the caller's.
    pub(crate) fn newest_written(&self, caller: &Caller, label: &str, now_ms: i64) -> Result<u32> {
        let Some((newest, site)) = self.written_of(label, now_ms)? else { return Ok(0) };
        if row_of(&mut **self.db(), label)?.is_some() {
            return Ok(newest);
        }
        let (versions, _) = self.holding(&site)?.seals()?;
        let mut of_label = versions.iter().filter(|version| version.key.label == label);
        match of_label.all(|version| version.owner == caller.name) {
            true => Ok(newest),
            false => Err(Error::Conflict(format!(
                "the label `{label}` is not free, and there is no data set `{label}` that you may list: choose another label"
            ))),
        }
    }

    fn written_of(&self, label: &str, now_ms: i64) -> Result<Option<(u32, String)>> {
        let known = || self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            |written: &Written| (0..KNOWN_FOR_MS).contains(&now_ms.saturating_sub(written.looked_ms));
        if let Some(written) = known().as_ref().filter(|written| is_new(written)) {
            return Ok(written.newest.get(label).cloned());
        }
        let mut newest: HashMap<String, (u32, String)> = HashMap::new();
        for (site, keys) in self.keys_written()? {
            for Key { label, version } in keys {
                let version = version.unwrap_or(0);
                let of_label = newest.entry(label).or_insert_with(|| (version, site.clone()));
                of_label.0 = of_label.0.max(version);
            }
        }
        let found = newest.get(label).cloned();
        *known() = Some(Written { looked_ms: now_ms, newest });
        Ok(found)
    }

    /// What was known of the seals at the sites is out of date.
    pub(crate) fn forget_written(&self) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The keys of the seals at each site within reach. Sites are asked all at once, as one that is away answers late.
    fn keys_written(&self) -> Result<BTreeMap<String, Vec<Key>>> {
        let rows = self.db().query("SELECT name FROM site WHERE state <> 'gone'", values![])?;
        let names: Vec<String> = rows.iter().map(|row| row.text(0)).collect();
        let ask = |name: &str| self.holding(name).and_then(|holding| holding.seal_keys());
        let answers: Vec<Result<Vec<String>>> = match &names[..] {
            [name] => vec![ask(name)],
            names => thread::scope(|scope| {
                let asked: Vec<_> = names.iter().map(|name| scope.spawn(|| ask(name))).collect();
                asked.into_iter().map(|answer| answer.join().expect("a question does not panic")).collect()
            }),
        };
        let mut keys = BTreeMap::new();
        for (name, answer) in names.into_iter().zip(answers) {
            match answer {
                Ok(texts) => {
                    keys.insert(name, texts.iter().filter_map(|text| text.parse().ok()).collect());
                }
                Err(error) if !error.is_of_database() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(keys)
    }

    /// The versions that sites within reach have written down and that this catalog does not know, by site.
    pub fn unknown_versions(&self) -> Result<Vec<Unknown>> {
        let written = self.keys_written()?;
        let sql = "SELECT s.label, v.number FROM version v JOIN data_set s ON s.id = v.set_id";
        let known: HashSet<(String, i64)> =
            self.db().query(sql, values![])?.iter().map(|row| (row.text(0), row.int(1))).collect();
        // Nothing of a data set that was removed comes back.
        let sql = "SELECT label FROM data_set WHERE removed_ms IS NOT NULL";
        let removed: HashSet<String> =
            self.db().query(sql, values![])?.iter().map(|row| row.text(0)).collect();
        let mut all = vec![];
        for (site, keys) in written {
            let is_unknown = |key: &&Key| {
                let number = i64::from(key.version.unwrap_or(1));
                !removed.contains(&key.label) && !known.contains(&(key.label.clone(), number))
            };
            let unknown: Vec<&Key> = keys.iter().filter(is_unknown).collect();
            if let Some(first) = unknown.first() {
                let n_versions = unknown.len() as u64;
                all.push(Unknown { site, n_versions, example: first.to_string() });
            }
        }
        Ok(all)
    }
}
