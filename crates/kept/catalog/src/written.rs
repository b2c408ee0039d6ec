//! What sites have written down of versions that this catalog does not know.
//!
//! A catalog that was restored from an older backup has forgotten versions that were committed since. Their numbers may not be given
//! again: a key means the same bytes for ever. So before a number is given, the seals at the sites are looked at, and the number is
//! beyond all of them. That no two drafts get one number is the database's to see to; what sites say is looked at again after a
//! minute, and a site refuses a seal in the place of another version's ([`Holding::seal`]). Where the catalog went back in time
//! (`restored`) and a site that may know more is away, no number is given. A site that is away otherwise is in nobody's way.
//!
//! What sites say is not taken over by itself: whoever can write into a site could make versions of anybody's data sets in this way.
//! An operator says so, by `eyas data rebuild`.
//!
//! [`Holding::seal`]: crate::holding::Holding::seal

use crate::access::Caller;
use crate::catalog::{Catalog, Written};
use crate::error::{Error, Result};
use crate::holding::Holding;
use crate::key::Key;
use crate::rows::row_of;
use crate::sets::not_free;
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
    /// [`Error::Unreached`]: a site is away that may know newer versions than this catalog.
    pub(crate) fn newest_written(&self, caller: &Caller, label: &str, now_ms: i64) -> Result<u32> {
        self.notice_restore()?;
        let Some((newest, site)) = self.written_of(label, now_ms)? else { return Ok(0) };
        if row_of(&mut **self.db(), label)?.is_some() {
            return Ok(newest);
        }
        let (versions, _) = self.holding(&site)?.seals()?;
        let mut of_label = versions.iter().filter(|version| version.key.label == label);
        match of_label.all(|version| version.owner == caller.name) {
            true => Ok(newest),
            false => Err(not_free(label)),
        }
    }

    fn written_of(&self, label: &str, now_ms: i64) -> Result<Option<(u32, String)>> {
        let known = || self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            |written: &Written| (0..KNOWN_FOR_MS).contains(&now_ms.saturating_sub(written.looked_ms));
        let is_missing_any = !self.may_know_more()?.is_empty();
        if let Some(written) = known().as_ref().filter(|written| is_new(written) && !is_missing_any) {
            return Ok(written.newest.get(label).cloned());
        }
        let seals = self.seals_within_reach()?;
        // Where all sites answer, the number is beyond all that there is.
        if !seals.away.is_empty() || is_missing_any {
            self.unknown_among(&seals)?;
        }
        let may_know_more = self.may_know_more()?;
        if let Some((site, reason)) = seals.away.iter().find(|(site, _)| may_know_more.contains(site)) {
            let reason = format!(
                "{reason}; this catalog is older than what its sites know, as after it was restored from a backup, and no number of a \
                 version is given twice: put again when the site is back, or say `eyas data site --replace` if it is gone for good"
            );
            return Err(Error::Unreached { site: site.clone(), reason });
        }
        let mut newest: HashMap<String, (u32, String)> = HashMap::new();
        for (site, keys) in seals.keys {
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

    /// The keys of the seals at each site. Sites are asked all at once, as one that is away answers late.
    fn seals_within_reach(&self) -> Result<Seals> {
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
        let mut seals = Seals::default();
        for (name, answer) in names.into_iter().zip(answers) {
            match answer {
                Ok(texts) => {
                    seals.keys.insert(name, keys_of(&texts));
                }
                Err(error) if !error.is_of_database() => seals.away.push((name, error.reason())),
                Err(error) => return Err(error),
            }
        }
        Ok(seals)
    }

    /// The versions that sites within reach have written down and that this catalog does not know, by site.
    pub fn unknown_versions(&self) -> Result<Vec<Unknown>> {
        self.notice_restore()?;
        self.unknown_among(&self.seals_within_reach()?)
    }

    /// Notes of a site that was just reached whether it may know more than this catalog.
    pub(crate) fn compare_with(&self, holding: &dyn Holding) -> Result<()> {
        let keys = BTreeMap::from([(holding.name().to_owned(), keys_of(&holding.seal_keys()?))]);
        self.unknown_among(&Seals { keys, away: vec![] }).map(|_| ())
    }

    /// What this catalog does not know, by site, and notes which sites may know more: those with such versions, and those that are away
    /// while there is such a version anywhere, as the catalog went back in time then.
    fn unknown_among(&self, seals: &Seals) -> Result<Vec<Unknown>> {
        // A user sees some of the versions, here and there: what that says of a site is not the whole.
        if self.role.is_some() {
            return Ok(vec![]);
        }
        let sql = "SELECT s.label, v.number FROM version v JOIN data_set s ON s.id = v.set_id";
        let known: HashSet<(String, i64)> =
            self.db().query(sql, values![])?.iter().map(|row| (row.text(0), row.int(1))).collect();
        // Nothing of a data set that was removed comes back.
        let sql = "SELECT label FROM data_set WHERE removed_ms IS NOT NULL";
        let removed: HashSet<String> =
            self.db().query(sql, values![])?.iter().map(|row| row.text(0)).collect();
        let (mut all, mut may_know_more) = (vec![], vec![]);
        for (site, keys) in &seals.keys {
            let is_unknown = |key: &&Key| {
                let number = i64::from(key.version.unwrap_or(1));
                !removed.contains(&key.label) && !known.contains(&(key.label.clone(), number))
            };
            let unknown: Vec<&Key> = keys.iter().filter(is_unknown).collect();
            may_know_more.push((site.as_str(), !unknown.is_empty()));
            if let Some(first) = unknown.first() {
                let n_versions = unknown.len() as u64;
                all.push(Unknown { site: site.clone(), n_versions, example: first.to_string() });
            }
        }
        if !all.is_empty() {
            may_know_more.extend(seals.away.iter().map(|(site, _)| (site.as_str(), true)));
        }
        self.set_may_know_more(&may_know_more)?;
        Ok(all)
    }
}

/// What sites have written down, as far as they answer.
#[derive(Default)]
struct Seals {
    /// By site.
    keys: BTreeMap<String, Vec<Key>>,
    /// Sites that do not answer, and why.
    away: Vec<(String, String)>,
}

fn keys_of(texts: &[String]) -> Vec<Key> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}
