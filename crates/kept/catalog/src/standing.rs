//! How a catalog stands: its sites, what is short of copies, and what was done last.

use crate::access::Caller;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::query::sql::Values;
use crate::sets::Entry;
use crate::sites::{Site, SiteState};
use crate::spare::SpareSet;
use crate::values;
use std::collections::{BTreeMap, HashMap};
use std::thread;

/// How the copies of a catalog stand.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Standing {
    /// By name.
    pub sites: Vec<SiteStanding>,
    /// What has fewer good copies at sites that answer than it should, by key.
    pub short: Vec<ShortSet>,
    /// What has more good copies at sites that answer than it asks for, by key.
    pub spare: Vec<SpareSet>,
}

/// A site as it is now.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SiteStanding {
    #[serde(flatten)]
    pub site: Site,
    /// Why it cannot be reached; `None`: it answers, or is gone.
    pub away: Option<String>,
    /// Bytes that it still has room for, by its limit and its disk; `None`: nobody knows, as it does not answer.
    pub room_bytes: Option<u64>,
    pub n_bad: u64,
    /// When the copy that waits longest was verified; `None`: there is no good copy.
    pub oldest_verified_ms: Option<i64>,
    /// Copies that were noted as new, and that were verified, since the time that was asked for.
    pub n_made: u64,
    pub n_verified: u64,
}

/// Files of a data set that are short of copies.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ShortSet {
    /// `None`: data sets that whoever asks may not list.
    pub key: Option<String>,
    pub n_files: u64,
    /// Copies that are missing of all of them together.
    pub n_missing: u64,
    /// Files of which no site that answers has a good copy.
    pub n_without: u64,
}

/// What was done, with which data set if it was one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Act {
    pub label: Option<String>,
    #[serde(flatten)]
    pub entry: Entry,
}

/// What came of asking a site whether it is there.
enum Answer {
    There { free_bytes: u64 },
    Away { reason: String },
}

/// How many sites are asked at a time: one that does not answer is waited for.
const ASKED_AT_ONCE: usize = 16;

impl Catalog {
    /// Which of these sites cannot be reached from here now, and why.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn away<'s>(&self, sites: impl Iterator<Item = &'s str>) -> Result<BTreeMap<String, String>> {
        let answers = self.ask_all(sites)?.into_iter();
        let away = answers.filter_map(|(site, answer)| match answer {
            Answer::There { .. } => None,
            Answer::Away { reason } => Some((site, reason)),
        });
        Ok(away.collect())
    }

    /// Asks sites whether they are there, some at a time.
    fn ask_all<'s>(&self, sites: impl Iterator<Item = &'s str>) -> Result<BTreeMap<String, Answer>> {
        let sites: Vec<&str> = sites.collect();
        let mut answers = BTreeMap::new();
        for some in sites.chunks(ASKED_AT_ONCE) {
            let ask = |site: &&str| match self.holding(site) {
                Ok(holding) => Ok(Answer::There { free_bytes: holding.place().free_bytes }),
                Err(error) if error.is_of_database() => Err(error),
                Err(error) => Ok(Answer::Away { reason: error.reason() }),
            };
            let asked: Vec<Result<Answer>> = thread::scope(|scope| {
                let asking: Vec<_> = some.iter().map(|site| scope.spawn(move || ask(site))).collect();
                let joined = asking.into_iter().map(|one| one.join());
                joined.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
            });
            for (site, answer) in some.iter().zip(asked) {
                answers.insert((*site).to_owned(), answer?);
            }
        }
        Ok(answers)
    }

    /// Asks every site whether it is there, and changes nothing. What was made and verified is counted from `since_ms` on. Data sets are
    /// named that the caller may list.
    pub fn standing(&self, caller: &Caller, since_ms: i64) -> Result<Standing> {
        let mut sites = vec![];
        let mut counts = self.replica_counts(since_ms)?;
        let known = self.sites()?;
        let names = known.iter().filter(|site| site.state != SiteState::Gone).map(|site| &*site.name);
        let mut answers = self.ask_all(names)?;
        for site in known {
            let (mut away, mut room_bytes) = (None, None);
            match answers.remove(&*site.name) {
                Some(Answer::There { free_bytes }) => {
                    let limit = site.keep_bytes.map(|keep| keep.saturating_sub(site.size_bytes));
                    room_bytes = Some(limit.map_or(free_bytes, |limit| limit.min(free_bytes)));
                }
                Some(Answer::Away { reason }) => away = Some(reason),
                None => {}
            }
            let counted = counts.remove(&site.name).unwrap_or_default();
            let Counted { n_bad, oldest_verified_ms, n_made, n_verified } = counted;
            sites.push(SiteStanding {
                site,
                away,
                room_bytes,
                n_bad,
                oldest_verified_ms,
                n_made,
                n_verified,
            });
        }
        let answering = sites.iter().filter(|s| s.site.state == SiteState::Up && s.away.is_none());
        let counting: Vec<&str> = answering.map(|s| &*s.site.name).collect();
        let mut short: BTreeMap<Option<String>, ShortSet> = BTreeMap::new();
        let mut spare: BTreeMap<Option<String>, SpareSet> = BTreeMap::new();
        let objects = self.with_other_copies(&counting)?;
        let mut names = self.names_of(caller, &objects.iter().map(|object| object.id).collect::<Vec<_>>())?;
        for object in objects {
            let key = names.remove(&object.id).map(|(label, _)| label);
            let is_there = |name: &&String| counting.contains(&name.as_str());
            let n_good = object.ready.iter().filter(is_there).count() as u64;
            if n_good > u64::from(object.copies) {
                SpareSet::count(&mut spare, key, &object, n_good);
                continue;
            }
            let set = short.entry(key.clone()).or_insert_with(|| ShortSet {
                key,
                n_files: 0,
                n_missing: 0,
                n_without: 0,
            });
            set.n_files += 1;
            set.n_missing += u64::from(object.copies).saturating_sub(n_good);
            // A draining site's copy is no copy that counts, and it can be read.
            let can_be_read = object
                .ready
                .iter()
                .any(|name| sites.iter().any(|site| site.site.name == *name && site.away.is_none()));
            set.n_without += u64::from(!can_be_read);
        }
        let (short, spare) = (short.into_values().collect(), spare.into_values().collect());
        Ok(Standing { sites, short, spare })
    }

    fn replica_counts(&self, since_ms: i64) -> Result<HashMap<String, Counted>> {
        let sql = "SELECT s.name, count(CASE WHEN r.state = 'bad' THEN 1 END), \
                   min(CASE WHEN r.state = 'ready' THEN r.verified_ms END), \
                   count(CASE WHEN r.state = 'ready' AND r.made_ms >= ?1 THEN 1 END), \
                   count(CASE WHEN r.state = 'ready' AND r.verified_ms >= ?1 THEN 1 END) \
                   FROM site s JOIN replica r ON r.site_id = s.id GROUP BY s.name";
        let rows = self.db().query(sql, values![since_ms])?;
        let counted = rows.iter().map(|row| {
            let counted = Counted {
                n_bad: row.int(1) as u64,
                oldest_verified_ms: row.maybe_int(2),
                n_made: row.int(3) as u64,
                n_verified: row.int(4) as u64,
            };
            (row.text(0), counted)
        });
        Ok(counted.collect())
    }

    /// What was done last, the newest first: with sites, and with data sets that the caller may list.
    pub fn recent(&self, caller: &Caller, limit: u32) -> Result<Vec<Act>> {
        let mut values = Values(vec![]);
        let may_list = caller.may_list(&mut values);
        let most = values.bind(i64::from(limit));
        let sql = format!(
            "SELECT t.at_ms, t.caller, t.verb, t.detail, s.label FROM trail t LEFT JOIN data_set s ON s.id = t.set_id \
             WHERE t.set_id IS NULL OR {may_list} ORDER BY t.id DESC LIMIT {most}"
        );
        let rows = self.db().query(&sql, &values.0)?;
        let done = rows.iter().map(|row| Act {
            label: row.maybe_text(4),
            entry: Entry { at_ms: row.int(0), caller: row.text(1), verb: row.text(2), detail: row.text(3) },
        });
        Ok(done.collect())
    }
}

#[derive(Default)]
struct Counted {
    n_bad: u64,
    oldest_verified_ms: Option<i64>,
    n_made: u64,
    n_verified: u64,
}
