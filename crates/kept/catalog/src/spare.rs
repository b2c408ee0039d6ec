//! Spare copies: more than data sets ask for, of what is read much. They are made and dropped here.
//!
//! Which ones, `eyas_keeping::spare` decides. Sites count what readers take ([`Holding::take_reads`]), and each look adds
//! that to the table `reading`, where it is forgotten by halves.
//!
//! A copy is dropped in three steps. The copies on which its drop relies are read through now. If they are all good, one transaction
//! looks whether the catalog still knows them, and marks the copy as deleting, so that nobody counts on it. Then its site removes
//! it. A process that is killed after any of these steps leaves a copy that the next repair reads and counts again.

use crate::catalog::Catalog;
use crate::db::{Value, insert, places, within, within_reserve};
use crate::error::Result;
use crate::holding::Holding;
use crate::keeping::CarriedOut;
use crate::reached::{Reached, room_of, takes};
use crate::rows::digest_of;
use crate::sites::{Marked, NOT_PUT, Needed, OnTheirWay, Replica, ReplicaState, Site, SiteState};
use crate::values;
use eyas_data::Digest;
use eyas_folder::files_below;
use eyas_keeping::spare::{self, Drop, Goals, Object, SiteReadings, decayed};
use eyas_keeping::{SiteNo, Takes};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The part of a store's rate that readers may use before it gets no further spare copies.
const BUSY_PART: f64 = 0.7;
/// Half-lives after which what was read is forgotten: then a millionth of it is left.
const FORGOTTEN_AFTER: u64 = 20;
/// Bytes that keepers read through in one look before copies are dropped. One copy is always dropped, however large it is.
const READ_THROUGH_MAX: u64 = 16 << 30;
/// For whoever makes room and knows no half-life: only the order of the readings counts there.
const SOME_HALF_LIFE_MS: u64 = 24 * 3600 * 1000;

/// What one look at the spare copies did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Spared {
    pub n_made: u64,
    pub made_bytes: u64,
    pub n_dropped: u64,
    pub dropped_bytes: u64,
    /// Sites that took no part, with the reason.
    pub away: Vec<(String, String)>,
}

/// Data sets with spare copies.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SpareSet {
    /// `None`: data sets that whoever asks may not list.
    pub key: Option<String>,
    /// Copies beyond what is asked for, of all its files together.
    pub n_copies: u64,
    pub size_bytes: u64,
}

impl SpareSet {
    /// Counts the spare copies of an object that has so many good ones, for a data set with it.
    pub(crate) fn count(
        sets: &mut BTreeMap<Option<String>, SpareSet>,
        key: Option<String>,
        object: &Needed,
        n_good: u64,
    ) {
        let n_spare = n_good.saturating_sub(u64::from(object.copies.max(1)));
        let none = || SpareSet { key: key.clone(), n_copies: 0, size_bytes: 0 };
        let set = sets.entry(key.clone()).or_insert_with(none);
        set.n_copies += n_spare;
        set.size_bytes += n_spare * object.size_bytes;
    }
}

/// The sites and objects that matter for spare copies, as the core sees them.
struct View {
    sites: Vec<Site>,
    needed: Vec<Needed>,
    places: Vec<SiteReadings>,
    objects: Vec<Object>,
}

impl Catalog {
    /// Makes and drops spare copies for one look. What was read counts half after each half-life.
    pub fn spare(&self, goals: &Goals, half_life_ms: u64, now_ms: i64) -> Result<Spared> {
        let mut spared = Spared::default();
        let mut reached = self.reach_all(&mut spared.away)?;
        let mut forgotten = vec![];
        for (name, site) in &reached {
            match site.holding.take_reads() {
                Ok(read) => self.note_reads(name, &read, half_life_ms, now_ms)?,
                Err(error) if !error.is_of_database() => forgotten.push((name.clone(), error.reason())),
                Err(error) => return Err(error),
            }
        }
        for (name, reason) in forgotten {
            reached.remove(&name);
            spared.away.push((name, reason));
        }
        self.forget_readings(half_life_ms, now_ms)?;
        let view = self.view(&reached, half_life_ms, now_ms)?;
        let plan = spare::plan(&view.places, &view.objects, goals);
        let dropped = self.drop_spares(&view, &plan.drops, &reached, now_ms, &mut spared.away)?;
        spared.n_dropped = dropped.len() as u64;
        spared.dropped_bytes = dropped.iter().map(|n| view.objects[plan.drops[*n].object].size_bytes).sum();
        let View { sites, needed, .. } = view;
        let CarriedOut { made, .. } = self.carry_out(
            plan.copies,
            &needed,
            &sites,
            &mut reached,
            &mut spared.away,
            None,
            now_ms,
            &mut |_| {},
        )?;
        spared.n_made = made.len() as u64;
        spared.made_bytes = made.iter().map(|copy| needed[copy.object].size_bytes).sum();
        Ok(spared)
    }

    /// Drops spare copies at a site until there is room for files and folders that are about to be put there, as far as that goes. A put needs it
    /// only where the set point of free space is less than what it brings.
    pub fn make_room_for(&self, holding: &dyn Holding, sources: &[PathBuf], now_ms: i64) -> Result<()> {
        let n_bytes = sources.iter().map(|source| bytes_below(source)).fold(0, u64::saturating_add);
        let site = holding.name();
        let Some(known) = self.sites()?.into_iter().find(|known| known.name == site) else { return Ok(()) };
        let free = room_of(&known, holding).saturating_sub(known.size_bytes);
        if free >= n_bytes {
            return Ok(());
        }
        let mut away = vec![];
        let reached = self.reach_all(&mut away)?;
        let view = self.view(&reached, SOME_HALF_LIFE_MS, now_ms)?;
        if let Some(at) = view.sites.iter().position(|known| known.name == site) {
            let drops = spare::make_way(&view.places, &view.objects, at, n_bytes - free);
            self.drop_spares(&view, &drops, &reached, now_ms, &mut away)?;
        }
        Ok(())
    }

    /// Drops spare copies for objects that lack copies and find no room; how many copies were dropped.
    pub(crate) fn make_way_for(
        &self,
        lacking: &[&Needed],
        reached: &BTreeMap<String, Reached>,
        now_ms: i64,
        away: &mut Vec<(String, String)>,
    ) -> Result<u64> {
        let view = self.view(reached, SOME_HALF_LIFE_MS, now_ms)?;
        let mut wanted_bytes: BTreeMap<SiteNo, u64> = BTreeMap::new();
        for object in lacking {
            for (n, site) in view.sites.iter().enumerate() {
                let place = view.places[n].site;
                if place.takes != Takes::Copies || object.ready.contains(&site.name) {
                    continue;
                }
                let wanted = wanted_bytes.get(&n).copied().unwrap_or(0).saturating_add(object.size_bytes);
                let lacks = wanted.saturating_sub(place.keep_bytes.saturating_sub(place.used_bytes));
                let drops = spare::make_way(&view.places, &view.objects, n, lacks);
                let freed: u64 = drops.iter().map(|drop| view.objects[drop.object].size_bytes).sum();
                if freed >= lacks {
                    wanted_bytes.insert(n, wanted);
                    break;
                }
            }
        }
        let mut n_dropped = 0;
        for (n, wanted) in wanted_bytes {
            let place = view.places[n].site;
            let lacks = wanted.saturating_sub(place.keep_bytes.saturating_sub(place.used_bytes));
            let drops = spare::make_way(&view.places, &view.objects, n, lacks);
            n_dropped += self.drop_spares(&view, &drops, reached, now_ms, away)?.len() as u64;
        }
        Ok(n_dropped)
    }

    /// Drops copies that were made while sites were away that are back; how many were dropped.
    pub(crate) fn undo(
        &self,
        made: &[(Digest, String)],
        reached: &BTreeMap<String, Reached>,
        now_ms: i64,
        away: &mut Vec<(String, String)>,
    ) -> Result<u64> {
        let view = self.view(reached, SOME_HALF_LIFE_MS, now_ms)?;
        let objects: HashMap<Digest, usize> =
            view.needed.iter().enumerate().map(|(n, object)| (object.digest, n)).collect();
        let sites: HashMap<&str, SiteNo> =
            view.sites.iter().enumerate().map(|(n, site)| (&*site.name, n)).collect();
        let made: Vec<(usize, SiteNo)> = made
            .iter()
            .filter_map(|(digest, site)| Some((*objects.get(digest)?, *sites.get(&**site)?)))
            .collect();
        let drops = spare::undo(&view.places, &view.objects, &made);
        Ok(self.drop_spares(&view, &drops, reached, now_ms, away)?.len() as u64)
    }

    /// All sites that are not gone and answer, with their room.
    fn reach_all(&self, away: &mut Vec<(String, String)>) -> Result<BTreeMap<String, Reached>> {
        let mut reached = BTreeMap::new();
        for site in self.sites()?.into_iter().filter(|site| site.state != SiteState::Gone) {
            match self.holding(&site.name) {
                Ok(holding) => {
                    let keep_bytes = room_of(&site, &*holding);
                    reached.insert(site.name, Reached { holding, keep_bytes, is_written: true });
                }
                Err(error) if !error.is_of_database() => away.push((site.name, error.reason())),
                Err(error) => return Err(error),
            }
        }
        Ok(reached)
    }

    fn view(&self, reached: &BTreeMap<String, Reached>, half_life_ms: u64, now_ms: i64) -> Result<View> {
        let sites = self.sites()?;
        let up: Vec<String> =
            sites.iter().filter(|site| site.state == SiteState::Up).map(|site| site.name.clone()).collect();
        let needed = self.with_spares_or_readings(&up)?;
        let mut read_of: HashMap<Digest, f64> = HashMap::new();
        let mut read_at: HashMap<String, f64> = HashMap::new();
        for (digest, site, read_bytes) in self.readings(half_life_ms, now_ms)? {
            *read_of.entry(digest).or_default() += read_bytes;
            *read_at.entry(site).or_default() += read_bytes;
        }
        let mut domains: Vec<&str> = sites.iter().map(|site| &*site.domain).collect();
        domains.sort_unstable();
        let places = sites.iter().map(|site| {
            let here = reached.get(&site.name);
            let rate = here.and_then(|here| here.holding.place().rate_bytes_per_s);
            // What is read evenly tends to so many times what is read in a half-life.
            let seconds = half_life_ms as f64 / 1000.0 * std::f64::consts::LOG2_E;
            SiteReadings {
                site: eyas_keeping::Site {
                    domain: domains.partition_point(|domain| *domain < &*site.domain) as u32,
                    takes: takes(site, here),
                    keep_bytes: here.map_or(0, |here| here.keep_bytes),
                    used_bytes: site.size_bytes,
                    is_busy: false,
                },
                read_bytes: read_at.get(&site.name).copied().unwrap_or(0.0),
                read_bytes_max: rate.map_or(f64::INFINITY, |rate| rate as f64 * BUSY_PART * seconds),
            }
        });
        let places: Vec<SiteReadings> = places.collect();
        let number: HashMap<&str, SiteNo> =
            sites.iter().enumerate().map(|(n, site)| (&*site.name, n)).collect();
        let is_away = |name: &String| !reached.contains_key(name) && up.contains(name);
        let objects = needed.iter().map(|object| Object {
            size_bytes: object.size_bytes,
            wanted: object.copies,
            ready: object
                .ready
                .iter()
                .filter(|name| reached.contains_key(*name))
                .map(|name| number[name.as_str()])
                .collect(),
            n_away: object.ready.iter().filter(|name| is_away(name)).count() as u32,
            barred: vec![],
            read_bytes: read_of.get(&object.digest).copied().unwrap_or(0.0),
        });
        let objects = objects.collect();
        Ok(View { sites, needed, places, objects })
    }

    /// Drops spare copies after the copies on which that relies were read through; returns the numbers of the drops that were carried out.
    fn drop_spares(
        &self,
        view: &View,
        drops: &[Drop],
        reached: &BTreeMap<String, Reached>,
        now_ms: i64,
        away: &mut Vec<(String, String)>,
    ) -> Result<Vec<usize>> {
        let View { sites, needed, .. } = view;
        let mut read_bytes = 0;
        let within_limit = |drop: &&Drop| {
            let is_first = read_bytes == 0;
            read_bytes += needed[drop.object].size_bytes * drop.keepers.len() as u64;
            is_first || read_bytes <= READ_THROUGH_MAX
        };
        let drops: Vec<&Drop> = drops.iter().take_while(within_limit).collect();
        let mut relied: BTreeMap<SiteNo, HashSet<Digest>> = BTreeMap::new();
        for drop in &drops {
            for keeper in &drop.keepers {
                relied.entry(*keeper).or_default().insert(needed[drop.object].digest);
            }
        }
        let mut good: HashSet<(SiteNo, Digest)> = HashSet::new();
        for (site, digests) in relied {
            let mut digests: Vec<Digest> = digests.into_iter().collect();
            digests.sort_unstable();
            match self.read_through(&*reached[&sites[site].name].holding, &digests, now_ms) {
                Ok(found) => good.extend(found.into_iter().map(|digest| (site, digest))),
                Err(error) if !error.is_of_database() => {
                    away.push((sites[site].name.clone(), error.reason()));
                }
                Err(error) => return Err(error),
            }
        }
        let mut at: BTreeMap<SiteNo, Vec<usize>> = BTreeMap::new();
        for (n, drop) in drops.iter().enumerate() {
            let digest = needed[drop.object].digest;
            if drop.keepers.iter().all(|keeper| good.contains(&(*keeper, digest))) {
                at.entry(drop.site).or_default().push(n);
            }
        }
        let mut done = vec![];
        for (site, at) in at {
            let name = &sites[site].name;
            let mut marked = vec![];
            for n in at {
                let keepers: Vec<&str> =
                    drops[n].keepers.iter().map(|keeper| &*sites[*keeper].name).collect();
                if self.mark_spare(name, needed[drops[n].object].digest, &keepers)? {
                    marked.push(n);
                }
            }
            let digests: Vec<Digest> = marked.iter().map(|n| needed[drops[*n].object].digest).collect();
            match self.remove_unneeded(&*reached[name].holding, &digests, now_ms) {
                // Some may be needed again since they were marked.
                Ok(needed_again) => done.extend(
                    marked.into_iter().filter(|n| !needed_again.contains(&needed[drops[*n].object].digest)),
                ),
                // The next repair reads what is left there.
                Err(error) if !error.is_of_database() => away.push((name.clone(), error.reason())),
                Err(error) => return Err(error),
            }
        }
        done.sort_unstable();
        Ok(done)
    }

    /// Has a site read objects through, and notes what it finds; the good ones.
    pub(crate) fn read_through(
        &self,
        holding: &dyn Holding,
        digests: &[Digest],
        now_ms: i64,
    ) -> Result<Vec<Digest>> {
        let copies = self.copies_to_read(holding, digests)?;
        Ok(self.judge_all(holding, &copies, OnTheirWay::Come, now_ms)?.good)
    }

    /// The copies of objects at a site, but for those that come or go.
    pub(crate) fn copies_to_read(&self, holding: &dyn Holding, digests: &[Digest]) -> Result<Vec<Marked>> {
        let known = self.replicas_of(holding.name(), digests)?;
        let is_looked = |replica: &&Replica| matches!(replica.state, ReplicaState::Ready | ReplicaState::Bad);
        Ok(known.iter().filter(is_looked).map(Replica::marked).collect())
    }

    /// Marks a good copy as deleting, where the catalog still knows a good copy at each of the keepers, which are as many as committed data sets
    /// ask for, and no put brings it now. Whether it was marked.
    fn mark_spare(&self, site: &str, digest: Digest, keepers: &[&str]) -> Result<bool> {
        let sql = format!(
            "UPDATE replica SET state = 'deleting', mark = mark + 1 WHERE state = 'ready' AND {NOT_PUT} \
             AND site_id = (SELECT id FROM site WHERE name = ?{site}) \
             AND object_id = (SELECT id FROM object WHERE digest = ?{digest}) \
             AND ?{n_keepers} = (SELECT count(*) FROM replica g JOIN site t ON t.id = g.site_id WHERE g.object_id = replica.object_id \
             AND g.state = 'ready' AND t.state = 'up' AND g.site_id <> replica.site_id AND t.name IN ({names})) \
             AND ?{n_keepers} >= (SELECT coalesce(max(s.copies), 1) FROM file f \
             JOIN version v ON v.id = f.version_id AND v.state = 'committed' \
             JOIN data_set s ON s.id = v.set_id WHERE f.object_id = replica.object_id)",
            names = places(keepers.len()),
            n_keepers = keepers.len() + 1,
            site = keepers.len() + 2,
            digest = keepers.len() + 3,
        );
        let mut asked: Vec<Value> = keepers.iter().map(|name| (*name).into()).collect();
        asked.extend([(keepers.len() as i64).into(), site.into(), digest.as_bytes().as_slice().into()]);
        within_reserve(&mut **self.db(), |db| Ok(db.execute(&sql, &asked)? == 1))
    }

    /// Adds what readers took from a site to what they took before.
    pub fn note_reads(
        &self,
        site: &str,
        read: &HashMap<Digest, u64>,
        half_life_ms: u64,
        now_ms: i64,
    ) -> Result<()> {
        let mut digests: Vec<&Digest> = read.keys().collect();
        digests.sort_unstable();
        for digests in digests.chunks(500) {
            within(&mut **self.db(), |db| {
                let sql = format!(
                    "SELECT o.id, o.digest, s.id, g.read_bytes, g.at_ms FROM object o JOIN site s ON s.name = ?{} \
                     LEFT JOIN reading g ON g.object_id = o.id AND g.site_id = s.id WHERE o.digest IN ({})",
                    digests.len() + 1,
                    places(digests.len())
                );
                let mut asked: Vec<Value> =
                    digests.iter().map(|digest| digest.as_bytes().as_slice().into()).collect();
                asked.push(site.into());
                let mut rows: Vec<Vec<Value>> = vec![];
                for row in db.query(&sql, &asked)? {
                    let before = row.maybe_int(3).unwrap_or(0) as f64;
                    let age_ms = now_ms.saturating_sub(row.maybe_int(4).unwrap_or(now_ms));
                    let sum = decayed(before, age_ms, half_life_ms) + read[&digest_of(&row, 1)?] as f64;
                    let sum = sum.min(i64::MAX as f64) as i64;
                    rows.push(vec![row.int(0).into(), row.int(2).into(), sum.into(), now_ms.into()]);
                }
                let tail = "ON CONFLICT (object_id, site_id) DO UPDATE SET read_bytes = excluded.read_bytes, \
                            at_ms = excluded.at_ms";
                insert(db, "reading", &["object_id", "site_id", "read_bytes", "at_ms"], &rows, tail)
                    .map(|_| ())
            })?;
        }
        Ok(())
    }

    /// Bytes that were read lately of each object at each site.
    fn readings(&self, half_life_ms: u64, now_ms: i64) -> Result<Vec<(Digest, String, f64)>> {
        let sql = "SELECT o.digest, s.name, g.read_bytes, g.at_ms FROM reading g JOIN object o ON o.id = g.object_id \
                   JOIN site s ON s.id = g.site_id ORDER BY o.id, s.name";
        let rows = self.db().query(sql, values![])?;
        let reading = |row: &crate::db::Row| {
            let age_ms = now_ms.saturating_sub(row.int(3));
            Ok((digest_of(row, 0)?, row.text(1), decayed(row.int(2) as f64, age_ms, half_life_ms)))
        };
        rows.iter().map(reading).collect()
    }

    fn forget_readings(&self, half_life_ms: u64, now_ms: i64) -> Result<()> {
        let age_ms = i64::try_from(half_life_ms.saturating_mul(FORGOTTEN_AFTER)).unwrap_or(i64::MAX);
        let db = &mut **self.db();
        let oldest = now_ms.saturating_sub(age_ms);
        db.execute("DELETE FROM reading WHERE at_ms < ?1", values![oldest]).map(|_| ())
    }
}

/// Bytes of a file, or of all files in a folder. What cannot be read counts nothing: whoever puts it says so.
fn bytes_below(path: &Path) -> u64 {
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    if !path.is_dir() {
        return size(path);
    }
    let below = files_below(path, &mut |_, _| false).unwrap_or_default();
    below.files.iter().map(|name| size(&path.join(name))).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Nine directories that link to each other have more ways through them than anybody can go.
    #[test]
    fn bytes_below_directories_that_link_to_each_other_are_counted_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = |i: u32| dir.path().join(format!("d{i}"));
        for i in 0..9 {
            fs::create_dir(path(i)).unwrap();
            fs::write(path(i).join("file"), "1").unwrap();
            (0..30)
                .filter(|j| *j != i)
                .for_each(|j| symlink(path(j), path(i).join(format!("l{j}"))).unwrap());
        }
        let counted = bytes_below(dir.path());
        assert!((9..2 * eyas_folder::AGAIN_MAX as u64).contains(&counted), "{counted}");
    }
}
