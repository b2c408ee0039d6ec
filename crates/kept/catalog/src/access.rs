//! Who may do what: callers, rights, and the one place where a right is asked for.

use crate::catalog::Catalog;
use crate::db::{Db, within};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::query::sql::Values;
use crate::rights::{Right, Rights, Subject, subjects};
use crate::rows::{SetRow, row_of, unknown};
use crate::values;
use eyas_text::shown;

/// Who asks. Whoever calls this crate vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub groups: Vec<String>,
    /// Operators of the cluster may do everything.
    pub is_operator: bool,
}

impl Caller {
    /// A user without groups.
    pub fn user(name: impl Into<String>) -> Caller {
        Caller { name: name.into(), groups: vec![], is_operator: false }
    }

    /// The subjects of access lists that mean this caller.
    fn subjects(&self) -> Vec<String> {
        subjects(&self.name, &self.groups)
    }

    /// SQL on `s`, a row of `data_set`: the caller may list it.
    pub(crate) fn may_list(&self, values: &mut Values) -> String {
        let stands = "s.removed_ms IS NULL AND s.newest > 0";
        if self.is_operator {
            return format!("({stands})");
        }
        let subjects: Vec<String> = self.subjects().into_iter().map(|subject| values.bind(subject)).collect();
        let owner = values.bind(self.name.as_str());
        format!(
            "({stands} AND (s.owner = {owner} OR EXISTS (SELECT 1 FROM acl a WHERE a.set_id = s.id \
             AND a.subject IN ({}) AND a.rights LIKE '%l%')))",
            subjects.join(", ")
        )
    }
}

/// Refuses unless the caller has the right. Whoever may not even list the set is not told that there is one.
pub(crate) fn require(db: &mut dyn Db, caller: &Caller, set: &SetRow, right: Right) -> Result<()> {
    if caller.is_operator || set.owner == caller.name {
        return Ok(());
    }
    let mut has = Rights::default();
    for subject in caller.subjects() {
        let rows =
            db.query("SELECT rights FROM acl WHERE set_id = ?1 AND subject = ?2", values![set.id, subject])?;
        for row in rows {
            has.0.extend(row.text(0).parse::<Rights>()?.0);
        }
    }
    if has.has(right) {
        return Ok(());
    }
    if !has.has(Right::List) {
        return Err(unknown(&set.label));
    }
    Err(Error::Denied(format!(
        "{} has not got the right to {} ({}) the data set `{}` of {}, who can give it: eyas data acl {} user:{}={}{}",
        shown(&caller.name),
        right.name(),
        right.letter(),
        set.label,
        shown(&set.owner),
        set.label,
        caller.name,
        has_letters(&has),
        right.letter()
    )))
}

/// The data set of a label, which has a committed version and which the caller may list.
pub(crate) fn known(db: &mut dyn Db, caller: &Caller, label: &str) -> Result<SetRow> {
    let set =
        row_of(db, label)?.filter(|set| set.newest > 0 && !set.is_removed).ok_or_else(|| unknown(label))?;
    require(db, caller, &set, Right::List)?;
    Ok(set)
}

/// Writes down what was done.
pub(crate) fn trail(
    db: &mut dyn Db,
    caller: &Caller,
    verb: &str,
    set_id: Option<i64>,
    detail: &str,
    now_ms: i64,
) -> Result<()> {
    let sql = "INSERT INTO trail (at_ms, caller, verb, set_id, detail) VALUES (?1, ?2, ?3, ?4, ?5)";
    db.execute(sql, values![now_ms, caller.name.as_str(), verb, set_id, detail])?;
    Ok(())
}

fn has_letters(rights: &Rights) -> String {
    let mut rights = rights.0.clone();
    rights.sort();
    rights.dedup();
    Rights(rights).to_string()
}

impl Catalog {
    /// Who may do what with a data set, beside its owner, who may do everything.
    pub fn acl(&self, caller: &Caller, key: &Key) -> Result<Vec<(Subject, Rights)>> {
        let db = &mut **self.db();
        let set = known(db, caller, &key.label)?;
        let sql = "SELECT subject, rights FROM acl WHERE set_id = ?1 ORDER BY subject";
        let rows = db.query(sql, values![set.id])?;
        rows.iter().map(|row| Ok((Subject(row.text(0)), row.text(1).parse()?))).collect()
    }

    /// Gives subjects these rights in place of what they had; without rights they are taken off the list. All or none.
    pub fn set_acl(
        &self,
        caller: &Caller,
        key: &Key,
        entries: &[(Subject, Rights)],
        now_ms: i64,
    ) -> Result<()> {
        within(&mut **self.db(), |db| {
            let set = known(db, caller, &key.label)?;
            require(db, caller, &set, Right::Admin)?;
            for (Subject(subject), rights) in entries {
                db.execute(
                    "DELETE FROM acl WHERE set_id = ?1 AND subject = ?2",
                    values![set.id, subject.as_str()],
                )?;
                if *rights != Rights::default() {
                    let sql = "INSERT INTO acl (set_id, subject, rights) VALUES (?1, ?2, ?3)";
                    db.execute(sql, values![set.id, subject.as_str(), rights.to_string()])?;
                }
                trail(db, caller, "acl", Some(set.id), &format!("{subject}={rights}"), now_ms)?;
            }
            Ok(())
        })
    }
}
