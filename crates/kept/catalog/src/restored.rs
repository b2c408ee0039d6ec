//! Whether the database is an older one than that which was written last, as after a restore from a backup.
//!
//! The database has the mark of its last change of versions, and what does not go back with it knows that mark, too
//! ([`Db::marks_outside`]): a small file beside an embedded database, and for a server how it knows the tables, which a restore makes
//! anew. A database that was moved without what is beside it looks like a restored one.
//!
//! What was forgotten is then written down by sites. Until a site was seen to have nothing that the catalog does not know, it *may know
//! more*, and no number is given while such a site is away ([`Catalog::begin`]).
//!
//! Who restores the whole disk of an embedded database, or all of a server as it was, is not seen here. Then a site within reach with versions
//! that the catalog does not know is the sign.
//!
//! [`Catalog::begin`]: crate::catalog::Catalog::begin

use crate::catalog::Catalog;
use crate::db::{Db, within_reserve};
use crate::error::Result;
use crate::values;

/// The mark of the last change; `None`: versions were never changed since marks are kept.
fn mark_of(db: &mut dyn Db) -> Result<Option<String>> {
    Ok(db.query("SELECT mark FROM last_change", values![])?.first().map(|row| row.text(0)))
}

fn went_back(db: &mut dyn Db) -> Result<bool> {
    let (mark, outside) = (mark_of(db)?, db.marks_outside()?);
    Ok(match mark {
        Some(mark) => !outside.contains(&mark),
        // An embedded database of an earlier program, and something newer was there before.
        None => !outside.is_empty() && db.file().is_some(),
    })
}

/// To be called in each transaction that makes versions committed.
pub(crate) fn note_change(db: &mut dyn Db) -> Result<()> {
    let known = mark_of(db)?;
    let next = match went_back(db)? {
        true => {
            db.execute("UPDATE site SET may_know_more = 1 WHERE state <> 'gone'", values![])?;
            // Should this transaction come to nothing, the database still is one that went back.
            db.next_mark(None)?
        }
        false => db.next_mark(known.as_deref())?,
    };
    if known.as_ref() != Some(&next) {
        db.execute("DELETE FROM last_change", values![])?;
        db.execute("INSERT INTO last_change (mark) VALUES (?1)", values![next])?;
    }
    Ok(())
}

impl Catalog {
    /// Notes that all sites may know more than the catalog, if it went back in time.
    pub(crate) fn notice_restore(&self) -> Result<()> {
        let db = &mut **self.db();
        // Another process may commit between the two looks, so it is looked at once more where nobody can.
        if !went_back(db)? {
            return Ok(());
        }
        within_reserve(db, |db| match went_back(db)? {
            true => note_change(db),
            false => Ok(()),
        })?;
        self.forget_written();
        Ok(())
    }

    /// The sites that may know more than this catalog.
    pub(crate) fn may_know_more(&self) -> Result<Vec<String>> {
        let sql = "SELECT name FROM site WHERE may_know_more = 1 AND state <> 'gone' ORDER BY name";
        Ok(self.db().query(sql, values![])?.iter().map(|row| row.text(0)).collect())
    }

    /// Says of sites whether they may know more.
    pub(crate) fn set_may_know_more(&self, sites: &[(&str, bool)]) -> Result<()> {
        let known = self.may_know_more()?;
        let is_new =
            |(site, may_know_more): &&(&str, bool)| known.iter().any(|known| known == site) != *may_know_more;
        let changed: Vec<&(&str, bool)> = sites.iter().filter(is_new).collect();
        // Most often there is none, and nothing has to be written.
        if changed.is_empty() {
            return Ok(());
        }
        within_reserve(&mut **self.db(), |db| {
            for (site, may_know_more) in &changed {
                let sql = "UPDATE site SET may_know_more = ?2 WHERE name = ?1";
                db.execute(sql, values![*site, i64::from(*may_know_more)])?;
            }
            Ok(())
        })
    }
}
