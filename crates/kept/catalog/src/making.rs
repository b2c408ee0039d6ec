//! Which copies repairs make now, so that none makes one that another one makes.
//!
//! Repairs of several processes may run at once. Before one makes copies, it claims them: in one transaction, which looks how many copies an
//! object has and how many others bring. A claim that nobody renews ends after 20 seconds; one of a process of this machine that is gone
//! counts for nothing at once. Whoever waits for others says for whom. A clock that is wrong makes a claim void, and then a copy may be made twice, which harms nobody.

use crate::catalog::Catalog;
use crate::db::{Db, Value, insert, places, within, within_reserve};
use crate::error::Result;
use crate::folder::{has_ended, writer_mark};
use crate::sites::Needed;
use crate::values;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// For how long a claim holds that is not renewed, in milliseconds.
const HOLDS_MS: i64 = 20_000;
const RENEWED_EVERY: Duration = Duration::from_secs(4);
/// How often others' claims are looked at by who waits for them.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(100);
/// Others are named when they have been waited for so long.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// What stands before the name of the machine in who makes a copy.
const ON: &str = "-on ";

/// The name of this machine.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// For whom a repair waits. `by`: who makes the copies.
fn awaited_in_words(by: &str, n_copies: u64) -> String {
    let process = by.split('-').next().unwrap_or_default();
    let machine =
        by.split_once(ON).map_or("another machine".into(), |(_, name)| eyas_text::shown(name).to_string());
    let copies = if n_copies == 1 { "1 copy".into() } else { format!("{n_copies} copies") };
    let s = HOLDS_MS / 1000;
    format!(
        "process {process} on {machine} makes {copies} that are needed here, too, and is waited for; if it was killed, that is \
         known in {s} s at most"
    )
}

/// A copy that somebody makes.
pub(crate) struct Making {
    pub(crate) object: i64,
    site: i64,
    pub(crate) to: String,
    pub(crate) from: String,
    pub(crate) size_bytes: u64,
    by: String,
}

/// A copy that is to be made: the object's row, and the names of the sites.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ToMake {
    pub(crate) object: i64,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The claims of a repair, which end with it.
pub(crate) struct Claims<'a> {
    catalog: &'a Catalog,
    by: String,
    pub(crate) got: HashSet<ToMake>,
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        if !self.got.is_empty() {
            let end =
                |db: &mut dyn Db| db.execute("DELETE FROM making WHERE by_whom = ?1", values![&*self.by]);
            // Where the database is away, they end by themselves.
            let _ = within_reserve(&mut **self.catalog.db(), end);
        }
    }
}

impl Claims<'_> {
    /// All that goes from one site to another is made, or cannot be.
    pub(crate) fn end(&self, from: &str, to: &str) -> Result<()> {
        let sql = "DELETE FROM making WHERE by_whom = ?1 AND from_id = (SELECT id FROM site WHERE name = ?2) \
                   AND site_id = (SELECT id FROM site WHERE name = ?3)";
        within_reserve(&mut **self.catalog.db(), |db| {
            db.execute(sql, values![&*self.by, from, to]).map(|_| ())
        })
    }

    /// Does something that takes long, and renews the claims meanwhile.
    pub(crate) fn during<T>(&self, now_ms: i64, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        thread::scope(|scope| {
            let (done, is_done) = mpsc::channel::<()>();
            scope.spawn(move || {
                while is_done.recv_timeout(RENEWED_EVERY) == Err(RecvTimeoutError::Timeout) {
                    let until_ms = now_ms + begun.elapsed().as_millis() as i64 + HOLDS_MS;
                    let sql = "UPDATE making SET until_ms = ?2 WHERE by_whom = ?1";
                    let renew = |db: &mut dyn Db| db.execute(sql, values![&*self.by, until_ms]);
                    // It is tried again.
                    let _ = within_reserve(&mut **self.catalog.db(), renew);
                }
            });
            let worked = work();
            drop(done);
            worked
        })
    }
}

/// Claims that hold.
fn holding(db: &mut dyn Db, now_ms: i64) -> Result<Vec<Making>> {
    let sql = "SELECT m.object_id, t.name, f.name, o.size_bytes, m.by_whom, m.site_id FROM making m JOIN site t ON t.id = m.site_id \
               JOIN site f ON f.id = m.from_id JOIN object o ON o.id = m.object_id WHERE m.until_ms >= ?1 AND m.until_ms <= ?2";
    let rows = db.query(sql, values![now_ms, now_ms + 2 * HOLDS_MS])?;
    let all = rows.iter().map(|row| Making {
        object: row.int(0),
        site: row.int(5),
        to: row.text(1),
        from: row.text(2),
        size_bytes: row.int(3) as u64,
        by: row.text(4),
    });
    let mut ended: HashMap<String, bool> = HashMap::new();
    Ok(all
        .filter(|making| !*ended.entry(making.by.clone()).or_insert_with(|| has_ended(&making.by)))
        .collect())
}

impl Catalog {
    /// The copies that others make now.
    pub(crate) fn making(&self, now_ms: i64) -> Result<Vec<Making>> {
        holding(&mut **self.db(), now_ms)
    }

    /// Waits until the copies that others make now are made, or given up. `say` gets a sentence for each of them that takes long.
    pub fn await_others(&self, now_ms: i64, say: &mut dyn FnMut(&str)) -> Result<()> {
        let begun = Instant::now();
        let all = |now_ms| -> Result<HashSet<(i64, i64, String)>> {
            Ok(self
                .making(now_ms)?
                .into_iter()
                .map(|making| (making.object, making.site, making.by))
                .collect())
        };
        let awaited = all(now_ms)?;
        let mut said: HashSet<String> = HashSet::new();
        loop {
            let now = all(now_ms + begun.elapsed().as_millis() as i64)?;
            let mut n_of: BTreeMap<&str, u64> = BTreeMap::new();
            now.intersection(&awaited).for_each(|(_, _, by)| *n_of.entry(by).or_default() += 1);
            if n_of.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > SAID_AFTER {
                for (by, n) in n_of.into_iter().filter(|(by, _)| said.insert((*by).to_owned())) {
                    say(&awaited_in_words(by, n));
                }
            }
            thread::sleep(LOOKED_AT_EVERY);
        }
    }

    /// Claims copies that are to be made. Not claimed is what others make, what goes between two sites between which others copy now, and, where
    /// `counting` names the sites whose copies count, what is no longer needed.
    pub(crate) fn claim_copies(
        &self,
        wanted: &[ToMake],
        objects: &[Needed],
        counting: Option<&[&str]>,
        now_ms: i64,
    ) -> Result<Claims<'_>> {
        let by = format!("{}{ON}{}", writer_mark(), host());
        let mut claims = Claims { catalog: self, by: by.clone(), got: HashSet::new() };
        if wanted.is_empty() {
            return Ok(claims);
        }
        claims.got = within(&mut **self.db(), |db| {
            let others = holding(db, now_ms)?;
            let pairs: HashSet<(&str, &str)> =
                others.iter().map(|making| (&*making.from, &*making.to)).collect();
            let taken: HashSet<(i64, &str)> =
                others.iter().map(|making| (making.object, &*making.to)).collect();
            let mut having: HashMap<i64, u64> = HashMap::new();
            if let Some(counting) = counting {
                others.iter().for_each(|making| *having.entry(making.object).or_default() += 1);
                count_ready(db, wanted, counting, &mut having)?;
            }
            let most: HashMap<i64, u64> =
                objects.iter().map(|object| (object.id, u64::from(object.copies))).collect();
            let mut got = HashSet::new();
            for copy in wanted {
                let having = having.entry(copy.object).or_default();
                let is_enough =
                    counting.is_some() && most.get(&copy.object).is_some_and(|most| *having >= *most);
                let is_free = !taken.contains(&(copy.object, &*copy.to));
                if is_free && !is_enough && !pairs.contains(&(&*copy.from, &*copy.to)) {
                    *having += 1;
                    got.insert(copy.clone());
                }
            }
            let sites: BTreeMap<String, i64> = db
                .query("SELECT name, id FROM site", values![])?
                .iter()
                .map(|row| (row.text(0), row.int(1)))
                .collect();
            let row = |copy: &ToMake| -> Vec<Value> {
                let (to, from) = (sites[&copy.to].into(), sites[&copy.from].into());
                vec![copy.object.into(), to, from, by.as_str().into(), (now_ms + HOLDS_MS).into()]
            };
            let mut rows: Vec<&ToMake> = got.iter().collect();
            rows.sort_by_key(|copy| (copy.object, &copy.to));
            let columns = ["object_id", "site_id", "from_id", "by_whom", "until_ms"];
            // What is there under the same key holds no more.
            let tail = "ON CONFLICT (object_id, site_id) DO UPDATE SET from_id = excluded.from_id, \
                        by_whom = excluded.by_whom, until_ms = excluded.until_ms";
            insert(db, "making", &columns, &rows.into_iter().map(row).collect::<Vec<_>>(), tail)?;
            Ok(got)
        })?;
        Ok(claims)
    }
}

/// Adds how many good copies the objects have at the sites whose copies count.
fn count_ready(
    db: &mut dyn Db,
    wanted: &[ToMake],
    counting: &[&str],
    having: &mut HashMap<i64, u64>,
) -> Result<()> {
    let mut ids: Vec<i64> = wanted.iter().map(|copy| copy.object).collect();
    ids.sort_unstable();
    ids.dedup();
    for ids in ids.chunks(500) {
        let sql = format!(
            "SELECT r.object_id, s.name FROM replica r JOIN site s ON s.id = r.site_id \
             WHERE r.state = 'ready' AND s.state = 'up' AND r.object_id IN ({})",
            places(ids.len())
        );
        let asked: Vec<Value> = ids.iter().map(|id| (*id).into()).collect();
        for row in db.query(&sql, &asked)? {
            if counting.contains(&&*row.text(1)) {
                *having.entry(row.int(0)).or_default() += 1;
            }
        }
    }
    Ok(())
}
