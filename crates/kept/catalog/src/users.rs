//! Users of a catalog beside who keeps it.
//!
//! Each is a role of the database's server, which sees and changes of the tables what is the role's to see and change
//! (`db/guards.sql`). For each store a user has a key of their own, in a row that no other user sees. The store knows the key's
//! digest, and asks its own list who somebody is, and its own seals what they may do; so it needs no catalog for that.
//!
//! Who keeps the catalog has the rights of the tables' owner, and the stores' own keys.

use crate::access::{Caller, trail};
use crate::catalog::Catalog;
use crate::db::{Db, within};
use crate::error::{Error, Result};
use crate::holding::{Holding, StoreUser};
use crate::key::Key;
use crate::sites::SiteState;
use crate::values;
use eyas_text::shown;
use std::collections::HashSet;
use std::thread;

/// The longest name of a role of PostgreSQL.
const NAME_MAX: usize = 63;

/// A user of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
    /// How many stores they have a key to.
    pub n_stores: u64,
    pub added_ms: i64,
}

/// Stores that did not hear of a change of users, and why. The next repair tells them.
pub type Unheard = Vec<(String, String)>;

fn check_name(name: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-@+".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match begins && name.len() <= NAME_MAX && name.chars().all(is_good) {
        true => Ok(()),
        false => Err(Error::bad(format!(
            "{} is no name of a user or a group: it begins with a letter or a digit, has letters, digits and . _ - @ +, and at most \
             {NAME_MAX} of them",
            shown(name)
        ))),
    }
}

fn groups_of(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Catalog {
    /// Who asks: the system's user, where the database is theirs to keep; otherwise the user of the database, with the groups that the
    /// catalog has of them.
    ///
    /// # Errors
    /// The database cannot be read, or that user was never let in.
    pub fn caller(&self, system: Caller) -> Result<Caller> {
        let Some(role) = &self.role else { return Ok(system) };
        let rows =
            self.db().query("SELECT group_names FROM member WHERE name = ?1", values![role.as_str()])?;
        match rows.first() {
            Some(row) => Ok(Caller { groups: groups_of(&row.text(0)), ..Caller::user(role.as_str()) }),
            None => Err(Error::Denied(format!(
                "{} does not know its user {} as a user of the catalog: whoever keeps the catalog lets them in: eyas data user add {role}",
                self.name(),
                shown(role)
            ))),
        }
    }

    /// Refuses what only who keeps the catalog can do: others do not see all of it.
    pub(crate) fn require_keeper(&self, what: &str) -> Result<()> {
        match &self.role {
            None => Ok(()),
            Some(role) => Err(Error::Denied(format!(
                "only who keeps {} can {what}, as its user {} sees a part of it",
                self.name(),
                shown(role)
            ))),
        }
    }

    /// What is said of a store to which this user has no key.
    pub(crate) fn no_key(&self, site: &str) -> Error {
        let who = self.role.as_deref().unwrap_or_default();
        Error::Denied(format!(
            "{} has no key to the store of the site `{site}`: whoever keeps the catalog gives one: eyas data user add {who}",
            shown(who)
        ))
    }

    /// Lets a user of the database use the catalog and its stores, or gives one who is there already new keys and these groups.
    ///
    /// # Errors
    /// The database has no such user, or the caller does not keep the catalog.
    pub fn add_user(&self, caller: &Caller, name: &str, groups: &[String], now_ms: i64) -> Result<Unheard> {
        self.require_keeper("add a user")?;
        check_name(name)?;
        groups.iter().try_for_each(|group| check_name(group))?;
        within(&mut **self.db(), |db| {
            db.admit(name)?;
            let sql = "INSERT INTO member (name, group_names, added_ms) VALUES (?1, ?2, ?3) \
                       ON CONFLICT (name) DO UPDATE SET group_names = excluded.group_names";
            db.execute(sql, values![name, groups.join(" "), now_ms])?;
            trail(db, caller, "user", None, name, now_ms)
        })?;
        let no_reach = || Error::Conflict("this program reaches only folders".into());
        let mut unheard = vec![];
        for (site, site_id, join) in self.own_keys()? {
            let reach = self.reach.as_deref().ok_or_else(no_reach)?;
            match reach.key_for(&join, name) {
                Ok((text, key)) => put_user_key(&mut **self.db(), site_id, name, &text, &key)?,
                Err(error) => unheard.push((site, error.reason())),
            }
        }
        unheard.extend(self.tell_all()?);
        Ok(unheard)
    }

    /// Lets a user in no more: neither to the database's tables nor to stores. What is theirs stays.
    ///
    /// # Errors
    /// There is no such user, or the caller does not keep the catalog.
    pub fn remove_user(&self, caller: &Caller, name: &str, now_ms: i64) -> Result<Unheard> {
        self.require_keeper("remove a user")?;
        within(&mut **self.db(), |db| {
            if db.execute("DELETE FROM member WHERE name = ?1", values![name])? == 0 {
                return Err(Error::NotFound(format!(
                    "the catalog has no user {}: `eyas data user list` lists them",
                    shown(name)
                )));
            }
            db.execute("DELETE FROM site_key WHERE who = ?1", values![name])?;
            db.expel(name)?;
            trail(db, caller, "user", None, &format!("-{name}"), now_ms)
        })?;
        self.tell_all()
    }

    /// The users beside who keeps the catalog, by name; of others than that one, only the caller's own entry.
    pub fn users(&self) -> Result<Vec<User>> {
        let sql = "SELECT m.name, m.group_names, m.added_ms, count(k.site_id) FROM member m \
                   LEFT JOIN site_key k ON k.who = m.name GROUP BY m.name, m.group_names, m.added_ms ORDER BY m.name";
        let rows = self.db().query(sql, values![])?;
        let user = |row: &crate::db::Row| User {
            name: row.text(0),
            groups: groups_of(&row.text(1)),
            added_ms: row.int(2),
            n_stores: row.int(3) as u64,
        };
        Ok(rows.iter().map(user).collect())
    }

    /// The stores with their rows and own keys.
    fn own_keys(&self) -> Result<Vec<(String, i64, String)>> {
        let sql = "SELECT s.name, s.id, k.join_text FROM site s JOIN site_key k ON k.site_id = s.id AND k.who = '' \
                   WHERE s.state <> 'gone' ORDER BY s.name";
        Ok(self
            .db()
            .query(sql, values![])?
            .iter()
            .map(|row| (row.text(0), row.int(1), row.text(2)))
            .collect())
    }

    /// Gives all users new keys to a store that has come or has moved, and tells it of them.
    pub(crate) fn give_keys(&self, site: &str, holding: &dyn Holding) -> Result<()> {
        let users = self.users()?;
        let Some((_, site_id, join)) = self.own_keys()?.into_iter().find(|(name, ..)| name == site) else {
            return Ok(());
        };
        if let (Some(reach), false) = (&self.reach, users.is_empty()) {
            for user in &users {
                let (text, key) = reach.key_for(&join, &user.name)?;
                put_user_key(&mut **self.db(), site_id, &user.name, &text, &key)?;
            }
            self.tell_users(holding)?;
        }
        Ok(())
    }

    /// Has a site know the users, and no others. Where there were never any, it is told nothing.
    pub(crate) fn tell_users(&self, holding: &dyn Holding) -> Result<()> {
        let sql = "SELECT m.name, m.group_names, k.digest FROM member m JOIN site_key k ON k.who = m.name \
                   JOIN site s ON s.id = k.site_id WHERE s.name = ?1 AND k.digest IS NOT NULL ORDER BY m.name";
        let rows = self.db().query(sql, values![holding.name()])?;
        if rows.is_empty() && !self.had_users()? {
            return Ok(());
        }
        let users = rows.iter().filter_map(|row| {
            let key = row.bytes(2).try_into().ok()?;
            Some(StoreUser { name: row.text(0), groups: groups_of(&row.text(1)), key })
        });
        holding.set_users(&users.collect::<Vec<_>>())
    }

    /// Writes the rights of a data set, which the caller has just changed, down at the stores that hold it; by these seals they know them.
    ///
    /// # Errors
    /// There is no such data set that the caller may list.
    pub fn spread_rights(&self, caller: &Caller, key: &Key) -> Result<Unheard> {
        let versions = self.show(caller, key)?.versions;
        let sealed = versions.iter().map(|version| {
            self.sealed(caller, &Key { label: key.label.clone(), version: Some(version.number) })
        });
        let sealed = sealed.collect::<Result<Vec<_>>>()?;
        self.at_all_stores(&|holding| {
            // Where no seal of it is, nothing of it is either, or the next repair writes one.
            let there: HashSet<String> = holding.seal_keys()?.into_iter().collect();
            for sealed in sealed.iter().filter(|sealed| there.contains(&sealed.key.to_string())) {
                holding.seal(&sealed.key, &sealed.text())?;
            }
            Ok(())
        })
    }

    fn had_users(&self) -> Result<bool> {
        Ok(!self.db().query("SELECT 1 FROM trail WHERE verb = 'user' LIMIT 1", values![])?.is_empty())
    }

    fn tell_all(&self) -> Result<Unheard> {
        self.at_all_stores(&|holding| self.tell_users(holding))
    }

    /// Does something at all stores at one time, as one that is away answers late. Returns those where it could not be done.
    fn at_all_stores(&self, work: &(dyn Fn(&dyn Holding) -> Result<()> + Sync)) -> Result<Unheard> {
        let stores = self.sites()?.into_iter().filter(|site| site.is_store && site.state != SiteState::Gone);
        let names: Vec<String> = stores.map(|site| site.name).collect();
        let tell = |name: &String| self.holding(name).and_then(|holding| work(&*holding));
        let told: Vec<Result<()>> = thread::scope(|scope| {
            let telling: Vec<_> = names.iter().map(|name| scope.spawn(move || tell(name))).collect();
            telling.into_iter().map(|told| told.join().expect("it does not panic")).collect()
        });
        let mut unheard = vec![];
        for (name, told) in names.into_iter().zip(told) {
            match told {
                Ok(()) => {}
                Err(error) if error.is_of_database() => return Err(error),
                Err(error) => unheard.push((name, error.reason())),
            }
        }
        Ok(unheard)
    }
}

fn put_user_key(db: &mut dyn Db, site: i64, user: &str, join: &str, key: &[u8; 32]) -> Result<()> {
    let sql = "INSERT INTO site_key (site_id, who, join_text, digest) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (site_id, who) DO UPDATE SET join_text = excluded.join_text, digest = excluded.digest";
    db.execute(sql, values![site, user, join, key.as_slice()]).map(|_| ())
}
