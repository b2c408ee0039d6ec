//! Sites and the replicas that they hold.
//!
//! A replica is *creating* while its bytes come, *ready* once its site has verified them, *bad* when its site found other bytes, and
//! *deleting* once it is no longer needed. Only ready ones count as copies.
//!
//! Several puts, repairs and audits may run at once, and between a look at a site and a word about it any time may pass. So each row
//! has a mark. It begins with a random number, and goes up with each change and with each announcement and arrival of bytes. What
//! somebody has read holds while the mark is the same ([`Catalog::judge`]). Bytes that were announced have come to the same row
//! while the mark is little more ([`Catalog::arrived`]).

use crate::access::{Caller, known, trail};
use crate::catalog::Catalog;
use crate::db::{Db, Row, Value, insert, places, within, within_reserve};
use crate::error::{Error, Result};
use crate::holding::Condition;
use crate::key::{Key, check_label};
use crate::query::sql::Values;
use crate::rows::{digest_of, version_of};
use crate::values;
use eyas_data::Digest;
use std::collections::{HashMap, HashSet};

/// A place that keeps copies.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Site {
    pub name: String,
    /// Where it is: the path of a folder on this machine, or host and port of a store.
    pub address: String,
    /// Whether it is a store, which is reached over the network.
    pub is_store: bool,
    /// What it may be lost together with: a room, an institute. A site that is given none is a domain of its own.
    pub domain: String,
    pub state: SiteState,
    /// Most bytes that it keeps.
    pub keep_bytes: Option<u64>,
    pub n_replicas: u64,
    pub size_bytes: u64,
}

impl Site {
    /// The name or address of the machine of a store; `None` for a folder.
    pub fn host(&self) -> Option<&str> {
        self.is_store.then(|| host_of(&self.address))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SiteState {
    Up,
    Draining,
    Gone,
}

impl SiteState {
    fn name(self) -> &'static str {
        match self {
            SiteState::Up => "up",
            SiteState::Draining => "draining",
            SiteState::Gone => "gone",
        }
    }
    fn of(name: &str) -> SiteState {
        match name {
            "up" => SiteState::Up,
            "draining" => SiteState::Draining,
            _ => SiteState::Gone,
        }
    }
}

/// A condition on a row `replica`: no put brings its object now. A put relies on what is at its site from when it has said what comes.
pub(crate) const NOT_PUT: &str = "NOT EXISTS (SELECT 1 FROM file f JOIN version v ON v.id = f.version_id AND v.state = 'open' \
    WHERE f.object_id = replica.object_id)";

/// A condition on a row `replica`: there are as many good copies of its object as the versions that need it should have, and no put
/// brings it now.
fn enough_elsewhere() -> String {
    format!(
        "((SELECT count(*) FROM replica g JOIN site t ON t.id = g.site_id \
         WHERE g.object_id = replica.object_id AND g.state = 'ready' AND t.state <> 'gone') >= \
         (SELECT coalesce(max(s.copies), {NEVER}) FROM file f \
         JOIN version v ON v.id = f.version_id AND v.state = 'committed' \
         JOIN data_set s ON s.id = v.set_id WHERE f.object_id = replica.object_id) AND {NOT_PUT})"
    )
}

/// More copies than there can be.
const NEVER: i64 = 1 << 40;
/// A mark goes up by less while bytes are on their way, and two random ones are further from each other.
const MARKS_APART: i64 = 1 << 20;
/// Rows of one statement.
const ROWS_AT_ONCE: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaState {
    Creating,
    Ready,
    Bad,
    Deleting,
}

impl ReplicaState {
    fn name(self) -> &'static str {
        match self {
            ReplicaState::Creating => "creating",
            ReplicaState::Ready => "ready",
            ReplicaState::Bad => "bad",
            ReplicaState::Deleting => "deleting",
        }
    }
    fn of(name: &str) -> ReplicaState {
        match name {
            "creating" => ReplicaState::Creating,
            "ready" => ReplicaState::Ready,
            "bad" => ReplicaState::Bad,
            _ => ReplicaState::Deleting,
        }
    }
}

/// A site that is added to a catalog.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewSite<'a> {
    pub name: &'a str,
    /// See [`Site::address`].
    pub address: &'a str,
    /// The text of the join file of a store. Only who keeps the catalog can read it there.
    pub join: Option<&'a str>,
    /// What it may be lost together with [default: its name].
    pub domain: Option<&'a str>,
    /// Most bytes that it keeps.
    pub keep_bytes: Option<u64>,
}

/// Where a site is.
pub(crate) struct Address {
    pub(crate) address: String,
    pub(crate) is_store: bool,
    /// The join file with which this user reaches its store.
    pub(crate) join: Option<String>,
    pub(crate) folder_id: Option<String>,
}

/// A replica of an object at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    pub digest: Digest,
    pub size_bytes: u64,
    pub state: ReplicaState,
    pub verified_ms: Option<i64>,
    pub(crate) mark: i64,
}

/// A copy that somebody speaks of, with the mark that it had when they looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) digest: Digest,
    pub(crate) mark: i64,
}

/// What was found, and held.
#[derive(Debug, Default)]
pub(crate) struct HeldCopies {
    pub(crate) good: Vec<Digest>,
    pub(crate) bad: Vec<Digest>,
    pub(crate) missing: Vec<Digest>,
}

/// What becomes of copies that are on their way when they are found to be bad or missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTheirWay {
    /// They are left alone: whoever brings them says when they are there.
    Come,
    /// They are said to be bad, or are forgotten. Who brings them all the same says so again.
    AreLooked,
}

impl Replica {
    pub(crate) fn marked(&self) -> Marked {
        Marked { digest: self.digest, mark: self.mark }
    }

    /// From the columns digest, size, state, time of verification and mark.
    fn of(row: &Row) -> Result<Replica> {
        Ok(Replica {
            digest: digest_of(row, 0)?,
            size_bytes: row.int(1) as u64,
            state: ReplicaState::of(&row.text(2)),
            verified_ms: row.maybe_int(3),
            mark: row.int(4),
        })
    }
}

/// The rows' ids of objects, by digest. An object that no file was ever of has none.
fn ids_of(db: &mut dyn Db, digests: &[Digest]) -> Result<HashMap<Digest, i64>> {
    let mut ids = HashMap::new();
    for digests in digests.chunks(ROWS_AT_ONCE) {
        let sql = format!("SELECT id, digest FROM object WHERE digest IN ({})", places(digests.len()));
        let asked: Vec<Value> = digests.iter().map(|digest| digest.as_bytes().as_slice().into()).collect();
        for row in db.query(&sql, &asked)? {
            ids.insert(digest_of(&row, 1)?, row.int(0));
        }
    }
    Ok(ids)
}

/// The marks of those of the objects that have a row at a site.
fn marks_at(db: &mut dyn Db, site: i64, digests: &[Digest]) -> Result<Vec<Marked>> {
    Ok(replicas_of(db, site, digests)?.iter().map(Replica::marked).collect())
}

fn replicas_of(db: &mut dyn Db, site: i64, digests: &[Digest]) -> Result<Vec<Replica>> {
    let mut found = vec![];
    for digests in digests.chunks(ROWS_AT_ONCE) {
        let sql = format!(
            "SELECT o.digest, o.size_bytes, r.state, r.verified_ms, r.mark FROM replica r JOIN object o ON o.id = r.object_id \
             WHERE r.site_id = ?{} AND o.digest IN ({})",
            digests.len() + 1,
            places(digests.len())
        );
        let mut asked: Vec<Value> =
            digests.iter().map(|digest| digest.as_bytes().as_slice().into()).collect();
        asked.push(site.into());
        for row in db.query(&sql, &asked)? {
            found.push(Replica::of(&row)?);
        }
    }
    Ok(found)
}

/// Says that copies are good whose marks are as they were, or higher by less than `more`; returns those that were.
fn say_good(db: &mut dyn Db, site: i64, copies: &[Marked], more: i64, now_ms: i64) -> Result<Vec<Digest>> {
    let mut held = vec![];
    for copies in copies.chunks(ROWS_AT_ONCE) {
        let digests: Vec<Digest> = copies.iter().map(|copy| copy.digest).collect();
        let ids = ids_of(db, &digests)?;
        let known: Vec<(&Marked, i64)> =
            copies.iter().filter_map(|copy| Some((copy, *ids.get(&copy.digest)?))).collect();
        if known.is_empty() {
            continue;
        }
        let rows: Vec<String> = (0..known.len())
            .map(|n| format!("(CAST(?{} AS BIGINT), CAST(?{} AS BIGINT))", 4 + 2 * n, 5 + 2 * n))
            .collect();
        // What is read again and still good is as it was.
        let sql = format!(
            "UPDATE replica SET state = 'ready', verified_ms = ?2, \
             mark = mark + CASE WHEN state = 'ready' AND CAST(?3 AS BIGINT) = 1 THEN 0 ELSE 1 END \
             FROM (VALUES {}) AS said WHERE replica.object_id = said.column1 AND replica.site_id = ?1 \
             AND replica.mark >= said.column2 AND replica.mark < said.column2 + CAST(?3 AS BIGINT) RETURNING replica.object_id",
            rows.join(", ")
        );
        let mut asked: Vec<Value> = vec![site.into(), now_ms.into(), more.into()];
        asked.extend(known.iter().flat_map(|(copy, id)| [Value::from(*id), copy.mark.into()]));
        let of_id: HashMap<i64, Digest> = known.iter().map(|(copy, id)| (*id, copy.digest)).collect();
        held.extend(db.query(&sql, &asked)?.iter().map(|row| of_id[&row.int(0)]));
    }
    Ok(held)
}

/// The host of a store's address: `host:port`, or `host through host:port` where a hub is between.
pub fn host_of(address: &str) -> &str {
    if let Some((host, _hub)) = address.split_once(" through ") {
        return host;
    }
    address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']'])
}

/// A replica of a file, as `where` shows it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Whereabouts {
    pub path: String,
    pub site: String,
    pub state: ReplicaState,
    pub verified_ms: Option<i64>,
}

fn site_id(db: &mut dyn Db, name: &str) -> Result<i64> {
    match db.query("SELECT id FROM site WHERE name = ?1", values![name])?.first() {
        Some(row) => Ok(row.int(0)),
        None => Err(Error::NotFound(format!("the catalog knows no site {}", eyas_text::shown(name)))),
    }
}

/// An object that committed versions need more copies of.
pub(crate) struct Needed {
    pub(crate) id: i64,
    pub(crate) digest: Digest,
    pub(crate) size_bytes: u64,
    /// The most copies that any data set with it wants.
    pub(crate) copies: u32,
    /// Sites with a good copy, which are not gone.
    pub(crate) ready: Vec<String>,
}

/// Has the row of a site's key say what who keeps the catalog knows; a folder has none.
fn put_key(db: &mut dyn Db, site: &str, join: Option<&str>) -> Result<()> {
    let id = site_id(db, site)?;
    match join {
        None => db.execute("DELETE FROM site_key WHERE site_id = ?1", values![id]),
        Some(join) => {
            let sql = "INSERT INTO site_key (site_id, who, join_text) VALUES (?1, '', ?2) \
                       ON CONFLICT (site_id, who) DO UPDATE SET join_text = excluded.join_text";
            db.execute(sql, values![id, join])
        }
    }?;
    Ok(())
}

fn has_spares(n_copies: &str) -> String {
    format!("{n_copies} > 1 AND {n_copies} > max(s.copies)")
}

impl Catalog {
    /// The objects that committed versions need and that have fewer good copies than they should, where copies at the sites
    /// `counting` count. The database looks for them, as nearly all objects of a large catalog have what they need.
    pub(crate) fn short_of_copies(&self, counting: &[&str]) -> Result<Vec<Needed>> {
        self.needed_where(counting, |n_copies| format!("{n_copies} < max(s.copies)"))
    }

    /// The objects that committed versions need and that have fewer or more good copies at these sites than they should.
    pub(crate) fn with_other_copies(&self, counting: &[&str]) -> Result<Vec<Needed>> {
        let condition = |n_copies: &str| format!("{n_copies} < max(s.copies) OR {}", has_spares(n_copies));
        self.needed_where(counting, condition)
    }

    /// The objects that committed versions need and that have more good copies at these sites than they should, and those of which
    /// readers took something lately.
    pub(crate) fn with_spares_or_readings(&self, counting: &[String]) -> Result<Vec<Needed>> {
        let counting: Vec<&str> = counting.iter().map(String::as_str).collect();
        let was_read = "EXISTS (SELECT 1 FROM reading g WHERE g.object_id = o.id)";
        self.needed_where(&counting, |n_copies| format!("{} OR {was_read}", has_spares(n_copies)))
    }

    /// The objects that committed versions need and for which a condition holds. It is made of an expression for the number of good
    /// copies at the sites `counting`.
    fn needed_where(&self, counting: &[&str], condition: impl Fn(&str) -> String) -> Result<Vec<Needed>> {
        let db = &mut **self.db();
        let n_copies = match counting.len() {
            0 => "0".to_owned(),
            n => {
                let places: Vec<String> = (1..=n).map(|n| format!("?{n}")).collect();
                format!(
                    "(SELECT count(*) FROM replica r JOIN site t ON t.id = r.site_id \
                      WHERE r.object_id = o.id AND r.state = 'ready' AND t.name IN ({}))",
                    places.join(", ")
                )
            }
        };
        let sql = format!(
            "SELECT o.id, o.digest, o.size_bytes, max(s.copies) FROM file f \
             JOIN version v ON v.id = f.version_id AND v.state = 'committed' \
             JOIN data_set s ON s.id = v.set_id JOIN object o ON o.id = f.object_id \
             GROUP BY o.id, o.digest, o.size_bytes HAVING {} ORDER BY o.id",
            condition(&n_copies)
        );
        let counting: Vec<Value> = counting.iter().map(|name| (*name).into()).collect();
        let mut short = vec![];
        let mut place = HashMap::new();
        for row in db.query(&sql, &counting)? {
            place.insert(row.int(0), short.len());
            short.push(Needed {
                id: row.int(0),
                digest: digest_of(&row, 1)?,
                size_bytes: row.int(2) as u64,
                copies: u32::try_from(row.int(3)).unwrap_or(u32::MAX),
                ready: vec![],
            });
        }
        let mut ids: Vec<i64> = place.keys().copied().collect();
        ids.sort_unstable();
        for ids in ids.chunks(500) {
            let places: Vec<String> = (1..=ids.len()).map(|n| format!("?{n}")).collect();
            let sql = format!(
                "SELECT r.object_id, s.name FROM replica r JOIN site s ON s.id = r.site_id WHERE r.object_id IN ({}) \
                 AND r.state = 'ready' AND s.state <> 'gone' ORDER BY r.object_id, s.name",
                places.join(", ")
            );
            let asked: Vec<Value> = ids.iter().map(|id| (*id).into()).collect();
            for row in db.query(&sql, &asked)? {
                short[place[&row.int(0)]].ready.push(row.text(1));
            }
        }
        Ok(short)
    }

    /// A data set and a path in it by which each of the objects is known, by the object's row. Those of which the caller may list no data
    /// set have none.
    pub(crate) fn names_of(&self, caller: &Caller, ids: &[i64]) -> Result<HashMap<i64, (String, String)>> {
        let db = &mut **self.db();
        let mut names = HashMap::new();
        for ids in ids.chunks(ROWS_AT_ONCE) {
            let mut values = Values(vec![]);
            let asked: Vec<String> = ids.iter().map(|id| values.bind(*id)).collect();
            let may_list = caller.may_list(&mut values);
            // No label has a `/`, so this is the first path of the first label.
            let sql = format!(
                "SELECT f.object_id, min(s.label || '/' || f.path) FROM file f \
                 JOIN version v ON v.id = f.version_id AND v.state = 'committed' JOIN data_set s ON s.id = v.set_id \
                 WHERE f.object_id IN ({}) AND {may_list} GROUP BY f.object_id",
                asked.join(", ")
            );
            for row in db.query(&sql, &values.0)? {
                let name = row.text(1);
                let (label, path) = name.split_once('/').unwrap_or((&name, ""));
                names.insert(row.int(0), (label.to_owned(), path.to_owned()));
            }
        }
        Ok(names)
    }

    /// Adds a site. An operator's verb: the caller is written down. A store that is known already gets another address, where
    /// `new` has one.
    ///
    /// # Errors
    /// [`Error::Conflict`]: there is another site of that name.
    pub fn add_site(&self, caller: &Caller, new: &NewSite<'_>, now_ms: i64) -> Result<()> {
        self.put_site(caller, new, None, false, now_ms)
    }

    /// As [`Catalog::add_site`], of a folder that was looked at; `replaces`: it takes the place of another one that had its name.
    pub(crate) fn put_site(
        &self,
        caller: &Caller,
        new: &NewSite<'_>,
        folder_id: Option<&str>,
        replaces: bool,
        now_ms: i64,
    ) -> Result<()> {
        let NewSite { name, address, join, .. } = *new;
        let is_store = i64::from(join.is_some());
        check_label(name)?;
        self.require_keeper("add a site")?;
        within(&mut **self.db(), |db| {
            let sql = "SELECT s.address, k.join_text, s.folder_id, s.domain, s.keep_bytes FROM site s \
                       LEFT JOIN site_key k ON k.site_id = s.id AND k.who = '' WHERE s.name = ?1";
            if let Some(row) = db.query(sql, values![name])?.first() {
                let (known, known_join, known_folder) = (row.text(0), row.maybe_text(1), row.maybe_text(2));
                let is_same = match (known_folder.as_deref(), folder_id) {
                    (Some(known), Some(new)) => known == new,
                    // One of them was never looked at.
                    _ => (known.as_str(), known_join.as_deref()) == (address, join),
                };
                if !is_same && !replaces {
                    return Err(Error::Conflict(format!(
                        "there is a site `{name}` already, at {}, and this is another folder: choose another name, or \
                         say --replace if that one is gone for good",
                        eyas_text::shown(&known)
                    )));
                }
                let (domain, kept) = (row.text(3), row.maybe_int(4));
                let sql = "UPDATE site SET address = ?2, is_store = ?3, seen_ms = ?4, sealed_trail = 0, \
                           domain = ?5, keep_bytes = ?6 WHERE name = ?1";
                let domain = new.domain.unwrap_or(&domain);
                let keep = new.keep_bytes.map(|keep| i64::try_from(keep).unwrap_or(i64::MAX)).or(kept);
                db.execute(sql, values![name, address, is_store, now_ms, domain, keep])?;
                put_key(db, name, join)?;
                return trail(db, caller, "site", None, &format!("{name} at {address}"), now_ms);
            }
            let sql = "INSERT INTO site (name, address, domain, state, keep_bytes, added_ms, seen_ms, is_store) \
                       VALUES (?1, ?2, ?3, 'up', ?4, ?5, ?5, ?6)";
            let keep = new.keep_bytes.map(|keep| i64::try_from(keep).unwrap_or(i64::MAX));
            let domain = new.domain.unwrap_or(name);
            db.execute(sql, values![name, address, domain, keep, now_ms, is_store])?;
            put_key(db, name, join)?;
            trail(db, caller, "site", None, &format!("{name} at {address}"), now_ms)
        })
    }

    /// # Errors
    /// There is no such site, or it is gone for good.
    pub fn require_site(&self, site: &str) -> Result<()> {
        let sql = "SELECT id FROM site WHERE name = ?1 AND state <> 'gone'";
        match self.db().query(sql, values![site])?.is_empty() {
            false => Ok(()),
            true => Err(Error::NotFound(format!(
                "the catalog knows no site {}: `eyas data site` lists them",
                eyas_text::shown(site)
            ))),
        }
    }

    pub(crate) fn address(&self, site: &str) -> Result<Address> {
        let db = &mut **self.db();
        let id = site_id(db, site)?;
        let sql = "SELECT s.address, k.join_text, s.folder_id, s.is_store FROM site s \
                   LEFT JOIN site_key k ON k.site_id = s.id AND k.who = ?2 WHERE s.id = ?1";
        let rows = db.query(sql, values![id, self.role.as_deref().unwrap_or_default()])?;
        let row = &rows[0];
        let (is_store, join) = (row.int(3) != 0, row.maybe_text(1));
        Ok(Address { address: row.text(0), is_store, join, folder_id: row.maybe_text(2) })
    }

    pub(crate) fn set_folder_id(&self, site: &str, folder_id: &str) -> Result<()> {
        let db = &mut **self.db();
        db.execute("UPDATE site SET folder_id = ?2 WHERE name = ?1", values![site, folder_id]).map(|_| ())
    }

    /// A text that no other catalog has.
    pub fn id(&self) -> Result<String> {
        let known = |db: &mut dyn Db| -> Result<Option<String>> {
            Ok(db.query("SELECT id FROM catalog_id", values![])?.first().map(|row| row.text(0)))
        };
        let db = &mut **self.db();
        // Each look at a site asks for it, and takes no lock for that.
        if let Some(id) = known(db)? {
            return Ok(id);
        }
        within(db, |db| {
            if let Some(id) = known(db)? {
                return Ok(id);
            }
            let id = crate::folder::random_text()?;
            db.execute("INSERT INTO catalog_id (id) VALUES (?1)", values![id.as_str()])?;
            Ok(id)
        })
    }

    /// The newest row of the trail, and for each site the newest one whose change is in its seals.
    pub(crate) fn sealed_trails(&self) -> Result<(i64, HashMap<String, i64>)> {
        let db = &mut **self.db();
        let newest = db.query("SELECT coalesce(max(id), 0) FROM trail", values![])?[0].int(0);
        let rows = db.query("SELECT name, sealed_trail FROM site", values![])?;
        Ok((newest, rows.iter().map(|row| (row.text(0), row.int(1))).collect()))
    }

    pub(crate) fn set_sealed_trail(&self, site: &str, trail: i64) -> Result<()> {
        let sql = "UPDATE site SET sealed_trail = ?2 WHERE name = ?1";
        within_reserve(&mut **self.db(), |db| db.execute(sql, values![site, trail]).map(|_| ()))
    }

    /// All sites, by name, with what they hold.
    pub fn sites(&self) -> Result<Vec<Site>> {
        let db = &mut **self.db();
        let sql = "SELECT s.name, s.address, s.domain, s.state, s.keep_bytes, count(o.id), \
                   CAST(coalesce(sum(o.size_bytes), 0) AS BIGINT), s.is_store FROM site s \
                   LEFT JOIN replica r ON r.site_id = s.id AND r.state = 'ready' \
                   LEFT JOIN object o ON o.id = r.object_id \
                   GROUP BY s.id, s.name, s.address, s.domain, s.state, s.keep_bytes, s.is_store ORDER BY s.name";
        let rows = db.query(sql, values![])?;
        let sites = rows.iter().map(|row| Site {
            name: row.text(0),
            address: row.text(1),
            domain: row.text(2),
            state: SiteState::of(&row.text(3)),
            keep_bytes: row.maybe_int(4).map(|keep| keep as u64),
            n_replicas: row.int(5) as u64,
            size_bytes: row.int(6) as u64,
            is_store: row.int(7) != 0,
        });
        Ok(sites.collect())
    }

    pub fn set_site_state(&self, caller: &Caller, name: &str, state: SiteState, now_ms: i64) -> Result<()> {
        within(&mut **self.db(), |db| {
            let id = site_id(db, name)?;
            db.execute(
                "UPDATE site SET state = ?2, seen_ms = ?3 WHERE id = ?1",
                values![id, state.name(), now_ms],
            )?;
            trail(db, caller, "site", None, &format!("{name} is {}", state.name()), now_ms)
        })
    }

    /// Notes that a site holds objects in this state, whatever was known of them. A ready replica was verified at `now_ms`. Objects of
    /// which no file is known are left out; the answer is how many were noted.
    ///
    /// This is for whoever has put the objects there, and has an open version with them. Others say what they found of a copy that
    /// they have looked at.
    pub fn note_replicas(
        &self,
        site: &str,
        digests: &[Digest],
        state: ReplicaState,
        now_ms: i64,
    ) -> Result<u64> {
        let tail = "ON CONFLICT (object_id, site_id) DO UPDATE SET state = excluded.state, mark = replica.mark + 1, \
                    verified_ms = coalesce(excluded.verified_ms, replica.verified_ms)";
        within(&mut **self.db(), |db| {
            let site = site_id(db, site)?;
            put_replicas(db, site, digests, state, now_ms, tail)
        })
    }

    /// What was found of copies at a site, by those who have read them, in one transaction. It holds where the copy is still the one
    /// that was read: otherwise somebody has changed or rewritten it since, and nothing is said. Returns what held.
    pub(crate) fn judge(
        &self,
        site: &str,
        found: &[(Marked, Condition)],
        coming: OnTheirWay,
        now_ms: i64,
    ) -> Result<HeldCopies> {
        if found.is_empty() {
            return Ok(HeldCopies::default());
        }
        let said = |wanted: Condition| {
            let those = found.iter().filter(move |(_, condition)| *condition == wanted);
            let mut copies: Vec<Marked> = those.map(|(copy, _)| *copy).collect();
            // In the order in which the database has them; a report is in that order, too.
            copies.sort_unstable_by_key(|copy| copy.digest);
            copies
        };
        let (good, bad, missing) = (said(Condition::Good), said(Condition::Bad), said(Condition::Missing));
        let spared = match coming {
            OnTheirWay::Come => " AND state <> 'creating'",
            OnTheirWay::AreLooked => "",
        };
        let of_copy = format!(
            "WHERE site_id = ?1 AND mark = ?2 AND object_id = (SELECT id FROM object WHERE digest = ?3){spared}"
        );
        let one_by_one = |db: &mut dyn Db, site: i64, copies: &[Marked], sql: &str| -> Result<Vec<Digest>> {
            let mut held = vec![];
            for Marked { digest, mark } in copies {
                if db.execute(sql, values![site, *mark, digest.as_bytes().as_slice()])? > 0 {
                    held.push(*digest);
                }
            }
            Ok(held)
        };
        within_reserve(&mut **self.db(), |db| {
            let site = site_id(db, site)?;
            let is_bad = format!("UPDATE replica SET state = 'bad', mark = mark + 1 {of_copy}");
            Ok(HeldCopies {
                good: say_good(db, site, &good, 1, now_ms)?,
                bad: one_by_one(db, site, &bad, &is_bad)?,
                missing: one_by_one(db, site, &missing, &format!("DELETE FROM replica {of_copy}"))?,
            })
        })
    }

    /// Those of the objects of which the catalog knows a copy at a site.
    pub(crate) fn replicas_of(&self, site: &str, digests: &[Digest]) -> Result<Vec<Replica>> {
        let db = &mut **self.db();
        let site = site_id(db, site)?;
        replicas_of(db, site, digests)
    }

    /// Where the copies of each file of a version are, by path and site.
    pub fn whereabouts(&self, caller: &Caller, key: &Key) -> Result<Vec<Whereabouts>> {
        let db = &mut **self.db();
        let set = known(db, caller, &key.label)?;
        let (version_id, _) = version_of(db, &set, key)?;
        let sql = "SELECT f.path, s.name, r.state, r.verified_ms FROM file f \
                   JOIN replica r ON r.object_id = f.object_id JOIN site s ON s.id = r.site_id \
                   WHERE f.version_id = ?1 ORDER BY f.path, s.name";
        let rows = db.query(sql, values![version_id])?;
        let all = rows.iter().map(|row| Whereabouts {
            path: row.text(0),
            site: row.text(1),
            state: ReplicaState::of(&row.text(2)),
            verified_ms: row.maybe_int(3),
        });
        Ok(all.collect())
    }

    /// The sites with a ready replica of each object, by the object's digest.
    pub fn holders(&self, caller: &Caller, key: &Key) -> Result<HashMap<Digest, Vec<String>>> {
        let db = &mut **self.db();
        let set = known(db, caller, &key.label)?;
        let (version_id, _) = version_of(db, &set, key)?;
        let sql = "SELECT DISTINCT o.digest, s.name FROM file f JOIN object o ON o.id = f.object_id \
                   JOIN replica r ON r.object_id = o.id AND r.state = 'ready' JOIN site s ON s.id = r.site_id \
                   WHERE f.version_id = ?1 AND s.state <> 'gone' ORDER BY s.name";
        let mut holders: HashMap<Digest, Vec<String>> = HashMap::new();
        for row in db.query(sql, values![version_id])? {
            holders.entry(digest_of(&row, 0)?).or_default().push(row.text(1));
        }
        Ok(holders)
    }

    /// Notes that copies were made in place of others, whose sites are away: the object's row, the site of the copy, the site that is away.
    pub(crate) fn note_stand_ins(&self, copies: &[(i64, &str, &str)]) -> Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        within(&mut **self.db(), |db| {
            for (object, at, instead_of) in copies {
                let sql = "UPDATE replica SET instead_of = (SELECT id FROM site WHERE name = ?3) \
                           WHERE object_id = ?1 AND site_id = (SELECT id FROM site WHERE name = ?2)";
                db.execute(sql, values![*object, *at, *instead_of])?;
            }
            Ok(())
        })
    }

    /// Copies that were made in place of others, where both are good: the object, the site of the copy, the site that was away.
    pub(crate) fn stand_ins(&self) -> Result<Vec<(Digest, String, String)>> {
        let sql = "SELECT o.digest, s.name, x.name FROM replica r JOIN object o ON o.id = r.object_id \
                   JOIN site s ON s.id = r.site_id JOIN site x ON x.id = r.instead_of \
                   JOIN replica g ON g.object_id = r.object_id AND g.site_id = r.instead_of AND g.state = 'ready' \
                   WHERE r.instead_of IS NOT NULL AND r.state = 'ready' ORDER BY o.id, s.name";
        let rows = self.db().query(sql, values![])?;
        rows.iter().map(|row| Ok((digest_of(row, 0)?, row.text(1), row.text(2)))).collect()
    }

    /// Says that objects are about to come to a site by a put, as [`Catalog::expect`], if the site may keep so much.
    ///
    /// # Errors
    /// It may not, with what it has and with what is on its way.
    pub(crate) fn expect_put(&self, site: &str, digests: &[Digest], now_ms: i64) -> Result<Vec<Marked>> {
        within(&mut **self.db(), |db| {
            let id = site_id(db, site)?;
            let expected = expect(db, id, digests, now_ms)?;
            // What is known to be coming is in the sum.
            match room(db, id)? {
                Some(Room { keep_bytes, held_bytes }) if held_bytes > keep_bytes => {
                    let sizes = replicas_of(db, id, digests)?;
                    let n_bytes: u64 = sizes.iter().map(|replica| replica.size_bytes).sum();
                    Err(too_full(site, keep_bytes, held_bytes.saturating_sub(n_bytes), n_bytes))
                }
                _ => Ok(expected),
            }
        })
    }

    /// Refuses objects of these sizes that are about to be put at a site, where it may not keep so much. What it has already adds nothing.
    pub(crate) fn require_room_at(&self, site: &str, objects: &HashMap<Digest, u64>) -> Result<()> {
        let db = &mut **self.db();
        let id = site_id(db, site)?;
        let Some(Room { keep_bytes, held_bytes }) = room(db, id)? else { return Ok(()) };
        let digests: Vec<Digest> = objects.keys().copied().collect();
        let there: HashSet<Digest> =
            replicas_of(db, id, &digests)?.iter().map(|replica| replica.digest).collect();
        let new = objects.iter().filter(|(digest, _)| !there.contains(digest));
        let n_bytes: u64 = new.map(|(_, size_bytes)| *size_bytes).sum();
        match held_bytes.saturating_add(n_bytes) > keep_bytes && n_bytes > 0 {
            true => Err(too_full(site, keep_bytes, held_bytes, n_bytes)),
            false => Ok(()),
        }
    }

    /// Bytes that a site may still keep by its limit; `None`: it has none.
    pub(crate) fn free_at(&self, site: &str) -> Result<Option<u64>> {
        let db = &mut **self.db();
        let id = site_id(db, site)?;
        Ok(room(db, id)?.map(|room| room.keep_bytes.saturating_sub(room.held_bytes)))
    }

    /// Those of the objects that are in a file of some version.
    pub(crate) fn needed(&self, digests: &[Digest]) -> Result<Vec<Digest>> {
        let db = &mut **self.db();
        let mut needed = vec![];
        for digests in digests.chunks(500) {
            let places: Vec<String> = (1..=digests.len()).map(|n| format!("?{n}")).collect();
            let sql = format!(
                "SELECT digest FROM object o WHERE digest IN ({}) \
                 AND EXISTS (SELECT 1 FROM file f WHERE f.object_id = o.id)",
                places.join(", ")
            );
            let asked: Vec<Value> =
                digests.iter().map(|digest| digest.as_bytes().as_slice().into()).collect();
            for row in db.query(&sql, &asked)? {
                needed.push(digest_of(&row, 0)?);
            }
        }
        Ok(needed)
    }

    /// What a site should hold, by digest.
    pub fn replicas_at(&self, site: &str) -> Result<Vec<Replica>> {
        let db = &mut **self.db();
        let site = site_id(db, site)?;
        let sql = "SELECT o.digest, o.size_bytes, r.state, r.verified_ms, r.mark FROM replica r \
                   JOIN object o ON o.id = r.object_id WHERE r.site_id = ?1 ORDER BY o.digest";
        db.query(sql, values![site])?.iter().map(Replica::of).collect()
    }

    /// The replicas at a site that a version needs and of which nobody knows what they are, so they are bad until they were read: those that
    /// were to be dropped and still are there, as the site went away, and those that were coming when somebody was cut short.
    pub(crate) fn needed_again(&self, site: &str) -> Result<Vec<Replica>> {
        let db = &mut **self.db();
        let site = site_id(db, site)?;
        let sql = "SELECT o.digest, o.size_bytes, CASE r.state WHEN 'deleting' THEN 'bad' ELSE r.state END, \
                   r.verified_ms, r.mark \
                   FROM replica r JOIN object o ON o.id = r.object_id WHERE r.site_id = ?1 AND r.state IN ('deleting', 'creating') \
                   AND EXISTS (SELECT 1 FROM file f WHERE f.object_id = r.object_id) ORDER BY o.digest";
        db.query(sql, values![site])?.iter().map(Replica::of).collect()
    }

    /// Says that objects of which files are known are about to come to a site: from now on nobody removes them there. Who puts bytes says so before
    /// the bytes take their places. Returns what [`Catalog::arrived`] asks for.
    pub(crate) fn expect(&self, site: &str, digests: &[Digest], now_ms: i64) -> Result<Vec<Marked>> {
        within(&mut **self.db(), |db| {
            let site = site_id(db, site)?;
            expect(db, site, digests, now_ms)
        })
    }

    /// Says that bytes which were announced have come, or come back, and are good. Returns those of which that is so, and the others,
    /// announced once more: such a copy was forgotten meanwhile, so its bytes may be gone, and somebody has to look.
    pub(crate) fn arrived(
        &self,
        site: &str,
        copies: &[Marked],
        now_ms: i64,
    ) -> Result<(Vec<Digest>, Vec<Marked>)> {
        within_reserve(&mut **self.db(), |db| {
            let site = site_id(db, site)?;
            let held = say_good(db, site, copies, MARKS_APART, now_ms)?;
            let are_there: HashSet<&Digest> = held.iter().collect();
            let rest = copies.iter().map(|copy| copy.digest).filter(|digest| !are_there.contains(digest));
            let rest = expect(db, site, &rest.collect::<Vec<_>>(), now_ms)?;
            Ok((held, rest))
        })
    }

    /// Begins to know copies of which there was no row: they are coming until somebody has read them. Returns those that are new.
    pub(crate) fn claim(&self, site: &str, digests: &[Digest], now_ms: i64) -> Result<Vec<Marked>> {
        // Most often there is none, and nothing has to be written.
        if digests.is_empty() {
            return Ok(vec![]);
        }
        within(&mut **self.db(), |db| {
            let site = site_id(db, site)?;
            let known: HashSet<Digest> =
                marks_at(db, site, digests)?.into_iter().map(|copy| copy.digest).collect();
            let new: Vec<Digest> = digests.iter().copied().filter(|digest| !known.contains(digest)).collect();
            expect(db, site, &new, now_ms)
        })
    }

    /// Forgets those of these replicas at a site that no version needs, or that were to be dropped though one does, as there are
    /// enough good ones elsewhere. The objects of the others are returned, and announced, as they come back to their places. A copy that
    /// the catalog does not know of counts as one that was to be dropped.
    pub(crate) fn forget_unneeded(&self, site: &str, digests: &[Digest], now_ms: i64) -> Result<Vec<Marked>> {
        let enough = enough_elsewhere();
        let is_needed = "EXISTS (SELECT 1 FROM file f WHERE f.object_id = replica.object_id)";
        let forget = format!(
            "DELETE FROM replica WHERE site_id = ?1 AND object_id = ?2 \
             AND (NOT {is_needed} OR (state = 'deleting' AND {enough}))"
        );
        let ask = format!(
            "SELECT 1 FROM (SELECT CAST(?2 AS BIGINT) AS object_id) replica WHERE \
             EXISTS (SELECT 1 FROM replica r WHERE r.site_id = ?1 AND r.object_id = replica.object_id) \
             OR ({is_needed} AND NOT {enough})"
        );
        within_reserve(&mut **self.db(), |db| {
            let site = site_id(db, site)?;
            let ids = ids_of(db, digests)?;
            let mut needed = vec![];
            for digest in digests {
                let Some(object) = ids.get(digest) else { continue };
                let is_forgotten = db.execute(&forget, values![site, *object])? > 0;
                if !is_forgotten && !db.query(&ask, values![site, *object])?.is_empty() {
                    needed.push(*digest);
                }
            }
            expect(db, site, &needed, now_ms)
        })
    }

    /// Marks a site's replicas that no version needs any more as deleting, and returns them. They may be needed again before their bytes
    /// are removed, so who removes them asks once more.
    pub fn take_unneeded(&self, site: &str) -> Result<Vec<Digest>> {
        within_reserve(&mut **self.db(), |db| {
            let site = site_id(db, site)?;
            let enough = enough_elsewhere();
            let sql = "UPDATE replica SET state = 'deleting', mark = mark + 1 WHERE site_id = ?1 AND state <> 'deleting' \
                       AND NOT EXISTS (SELECT 1 FROM file f WHERE f.object_id = replica.object_id)";
            db.execute(sql, values![site])?;
            // What is needed again since it was marked is read by the next repair.
            let sql = format!(
                "UPDATE replica SET state = 'creating', mark = mark + 1 WHERE site_id = ?1 AND state = 'deleting' \
                 AND EXISTS (SELECT 1 FROM file f WHERE f.object_id = replica.object_id) AND NOT {enough}"
            );
            db.execute(&sql, values![site])?;
            // A bad copy is dropped once there are as many good ones as there should be.
            let sql = format!(
                "UPDATE replica SET state = 'deleting', mark = mark + 1 WHERE site_id = ?1 AND state = 'bad' AND {enough}"
            );
            db.execute(&sql, values![site])?;
            let sql = "SELECT o.digest FROM replica r JOIN object o ON o.id = r.object_id \
                       WHERE r.site_id = ?1 AND r.state = 'deleting'";
            db.query(sql, values![site])?.iter().map(|row| digest_of(row, 0)).collect()
        })
    }
}

/// What a site with a limit may keep, and has, with what is on its way and what was not removed yet.
struct Room {
    keep_bytes: u64,
    held_bytes: u64,
}

/// `None`: the site has no limit.
fn room(db: &mut dyn Db, site: i64) -> Result<Option<Room>> {
    let rows = db.query("SELECT keep_bytes FROM site WHERE id = ?1", values![site])?;
    let Some(keep_bytes) = rows.first().and_then(|row| row.maybe_int(0)) else { return Ok(None) };
    let sql = "SELECT CAST(coalesce(sum(o.size_bytes), 0) AS BIGINT) FROM replica r JOIN object o ON o.id = r.object_id \
               WHERE r.site_id = ?1";
    let held_bytes = db.query(sql, values![site])?[0].int(0) as u64;
    Ok(Some(Room { keep_bytes: keep_bytes as u64, held_bytes }))
}

fn too_full(site: &str, keep_bytes: u64, held_bytes: u64, n_bytes: u64) -> Error {
    Error::Failed(format!(
        "cannot write into the site `{site}`: it keeps at most {keep_bytes} bytes and has {held_bytes}, and {n_bytes} would come; \
         nothing was put: name another site, or let this one keep more (`eyas data site --keep`)"
    ))
}

/// See [`Catalog::expect`].
fn expect(db: &mut dyn Db, site: i64, digests: &[Digest], now_ms: i64) -> Result<Vec<Marked>> {
    let tail = "ON CONFLICT (object_id, site_id) DO UPDATE SET mark = replica.mark + 1, \
                state = CASE WHEN replica.state = 'ready' THEN 'ready' ELSE 'creating' END";
    put_replicas(db, site, digests, ReplicaState::Creating, now_ms, tail)?;
    marks_at(db, site, digests)
}

/// Puts rows of objects of which a file is known; `tail` says what becomes of one that is there.
fn put_replicas(
    db: &mut dyn Db,
    site: i64,
    digests: &[Digest],
    state: ReplicaState,
    now_ms: i64,
    tail: &str,
) -> Result<u64> {
    let verified = (state == ReplicaState::Ready).then_some(now_ms);
    let mut n_noted = 0;
    for digests in digests.chunks(ROWS_AT_ONCE) {
        let mark = new_mark()?;
        let mut ids: Vec<i64> = ids_of(db, digests)?.into_values().collect();
        ids.sort_unstable();
        let row = |id: i64| -> Vec<Value> {
            vec![id.into(), site.into(), state.name().into(), now_ms.into(), verified.into(), mark.into()]
        };
        let rows: Vec<Vec<Value>> = ids.into_iter().map(row).collect();
        let columns = ["object_id", "site_id", "state", "made_ms", "verified_ms", "mark"];
        n_noted += insert(db, "replica", &columns, &rows, tail)?;
    }
    Ok(n_noted)
}

/// The mark of a new row: a random number, so that a row that was forgotten and made again is not taken for the one before.
fn new_mark() -> Result<i64> {
    let bytes =
        eyas_data::random_bytes().map_err(|error| Error::Failed(format!("no random number: {error}")))?;
    Ok((u64::from_ne_bytes(bytes) >> 2) as i64)
}
