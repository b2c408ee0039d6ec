//! From an [`Expr`] to SQL that stays quick over millions of data sets.
//!
//! A database that is left to itself may look at all sets with one tag to find the few that have another. So the statement is
//! made in two parts. A *cover* is a query over an index whose sets include all that match: the cheapest condition of an `and`,
//! all branches of an `or`, nothing for a `not`. The *predicate* is the whole condition, asked of one set, by its key. How many
//! sets a cover has is counted, up to a limit. A small cover is gone through; where it is large, enough of all
//! sets match, and going through all of them from the newest finds a page soon.

use super::{Check, Comparison, Expr, Field, Literal};
use crate::db::{Db, Value};
use crate::error::Result;

/// Most sets of a cover that is gone through. Each costs a look by key (some microseconds).
const COVER_MAX: i64 = 10_000;

/// The values of a statement that is being written.
#[derive(Default)]
pub(crate) struct Values(pub(crate) Vec<Value>);

impl Values {
    /// Keeps a value; returns how the statement names it.
    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> String {
        self.0.push(value.into());
        format!("?{}", self.0.len())
    }
}

/// What a set must match, as SQL on `s`, a row of `data_set`.
pub(crate) fn predicate(expr: &Expr, values: &mut Values) -> String {
    let join = |parts: &[Expr], word: &str, values: &mut Values| {
        let parts: Vec<String> = parts.iter().map(|part| predicate(part, values)).collect();
        format!("({})", parts.join(word))
    };
    match expr {
        Expr::And(parts) => join(parts, " AND ", values),
        Expr::Or(parts) => join(parts, " OR ", values),
        Expr::Not(part) => format!("NOT {}", predicate(part, values)),
        Expr::Test { field: Field::Tag(name), check } => {
            let name = values.bind(name.as_str());
            // In a CASE the condition is a value, so that no index of values can be chosen in place of the key.
            let condition = match of_tag("t", check, values).strip_prefix(" AND ") {
                Some(condition) => format!(" AND CASE WHEN {condition} THEN 1 ELSE 0 END = 1"),
                None => String::new(),
            };
            // PostgreSQL takes an EXISTS of an `and` for a join, and begins it with all rows of the tag.
            format!(
                "((SELECT 1 FROM tag t WHERE t.set_id = s.id \
                 AND t.name_id = (SELECT id FROM tag_name WHERE name = {name}){condition}) IS NOT NULL)"
            )
        }
        Expr::Test { field, check } => of_field(field, check, values),
    }
}

/// A condition on a row of `tag`, which begins with ` AND`.
fn of_tag(tag: &str, check: &Check, values: &mut Values) -> String {
    let of_text = |sign: &str, literal: &Literal, values: &mut Values| {
        format!("{tag}.text {sign} {}", values.bind(literal.text.as_str()))
    };
    let in_order = |sign: &str, literal: &Literal, values: &mut Values| match literal.kind.ordinal() {
        Some(ordinal) => {
            let kind = literal.kind.name();
            format!("{tag}.kind = '{kind}' AND {tag}.ordinal {sign} {}", values.bind(ordinal))
        }
        None => of_text(sign, literal, values),
    };
    let condition = match check {
        Check::Has => return String::new(),
        Check::Compare(comparison @ (Comparison::Equal | Comparison::Unequal), literal) => {
            of_text(comparison.sql(), literal, values)
        }
        Check::Compare(comparison, literal) => in_order(comparison.sql(), literal, values),
        Check::Range(start, end) => {
            format!("{} AND {}", in_order(">=", start, values), in_order("<=", end, values))
        }
        Check::In(literals) => {
            let any: Vec<String> =
                literals.iter().map(|literal| format!("({})", of_text("=", literal, values))).collect();
            format!("({})", any.join(" OR "))
        }
        Check::Like(pattern) => like(&format!("{tag}.text"), pattern, values),
    };
    format!(" AND {condition}")
}

/// `%` is any text and `_` any character. The text before the first of them is compared first, for which there is an index.
fn like(column: &str, pattern: &str, values: &mut Values) -> String {
    let start: String = pattern.chars().take_while(|c| !"%_".contains(*c)).collect();
    let whole = if pattern.len() == start.len() {
        format!("{column} = {}", values.bind(pattern))
    } else {
        // Both databases tell large letters from small ones here (`db/sqlite.rs`).
        format!("{column} LIKE {} ESCAPE '\\'", values.bind(pattern.replace('\\', "\\\\")))
    };
    let from = (!start.is_empty()).then(|| format!("{column} >= {} AND ", values.bind(start.as_str())));
    let below = after_all_with(&start).map(|end| format!("{column} < {} AND ", values.bind(end)));
    format!("({}{}{whole})", from.unwrap_or_default(), below.unwrap_or_default())
}

/// The smallest text behind all that begin with `start`; `None` if there is none that is text.
fn after_all_with(start: &str) -> Option<String> {
    let mut text: Vec<char> = start.chars().collect();
    while let Some(last) = text.pop() {
        // Characters between U+D7FF and U+E000 are none.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            text.push(next);
            return Some(text.into_iter().collect());
        }
    }
    None
}

fn of_field(field: &Field, check: &Check, values: &mut Values) -> String {
    let column = match field {
        Field::Label => "s.label",
        Field::Owner => "s.owner",
        Field::Created => "s.created_ms",
        Field::Size => "s.size_bytes",
        Field::Files => "s.n_files",
        Field::Tag(_) => unreachable!("tags have a table of their own"),
    };
    let compare = |sign: &str, literal: &Literal, values: &mut Values| {
        let value = match literal.column {
            Some(number) => values.bind(number),
            None => values.bind(literal.text.as_str()),
        };
        format!("{column} {sign} {value}")
    };
    match check {
        Check::Has => "1 = 1".into(),
        Check::Compare(comparison, literal) => compare(comparison.sql(), literal, values),
        Check::Range(start, end) => {
            format!("({} AND {})", compare(">=", start, values), compare("<=", end, values))
        }
        Check::In(literals) => {
            let any: Vec<String> = literals.iter().map(|literal| compare("=", literal, values)).collect();
            format!("({})", any.join(" OR "))
        }
        Check::Like(pattern) => like(column, pattern, values),
    }
}

/// A query over indexes whose column `set_id` has all sets that match, and how many it has, at most [`COVER_MAX`] + 1.
struct Cover {
    sql: String,
    values: Values,
    n_sets: i64,
}

/// The cheapest cover; `None`: no index helps.
fn cover(db: &mut dyn Db, expr: &Expr) -> Result<Option<Cover>> {
    let mut values = Values::default();
    let sql = match expr {
        Expr::Not(_) => return Ok(None),
        Expr::And(parts) => {
            let mut best: Option<Cover> = None;
            for part in parts {
                let found = cover(db, part)?;
                best = match (best, found) {
                    (Some(best), Some(found)) if found.n_sets < best.n_sets => Some(found),
                    (None, found) => found,
                    (best, _) => best,
                };
            }
            return Ok(best);
        }
        Expr::Or(parts) => {
            let mut all = vec![];
            for part in parts {
                match cover(db, part)? {
                    Some(found) => all.push(renumbered(found, &mut values)),
                    None => return Ok(None),
                }
            }
            all.join(" UNION ")
        }
        Expr::Test { field: Field::Tag(name), check } => {
            let name = values.bind(name.as_str());
            let condition = of_tag("t", check, &mut values);
            format!(
                "SELECT t.set_id AS set_id FROM tag t \
                 WHERE t.name_id = (SELECT id FROM tag_name WHERE name = {name}){condition}"
            )
        }
        Expr::Test { field: field @ (Field::Label | Field::Owner), check } => {
            let condition = of_field(field, check, &mut values);
            format!("SELECT s.id AS set_id FROM data_set s WHERE {condition}")
        }
        Expr::Test { .. } => return Ok(None),
    };
    let count = format!("SELECT count(*) FROM (SELECT 1 FROM ({sql}) c LIMIT {}) n", COVER_MAX + 1);
    let n_sets = db.query(&count, &values.0)?[0].int(0);
    Ok(Some(Cover { sql, values, n_sets }))
}

/// A cover's SQL with its values put behind those that are there.
fn renumbered(cover: Cover, values: &mut Values) -> String {
    let before = values.0.len();
    let mut sql = String::with_capacity(cover.sql.len());
    let mut parts = cover.sql.split('?');
    sql.push_str(parts.next().expect("there is always a first part"));
    for part in parts {
        let n_digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = part[..n_digits].parse().expect("a number stands behind each question mark");
        sql.push_str(&format!("?{}{}", number + before, &part[n_digits..]));
    }
    values.0.extend(cover.values.0);
    sql
}

/// The statement that finds the newest `limit` sets that match `expr` and, if given, `visible` (SQL on `s`, whose values
/// `visible` binds), with `columns` of them.
pub(crate) fn select(
    db: &mut dyn Db,
    expr: Option<&Expr>,
    columns: &str,
    limit: u64,
    visible: &dyn Fn(&mut Values) -> String,
) -> Result<(String, Values)> {
    let cover = match expr {
        Some(expr) => cover(db, expr)?.filter(|cover| cover.n_sets <= COVER_MAX),
        None => None,
    };
    let mut values = Values::default();
    let from = match cover {
        // CROSS JOIN has SQLite take the cover first.
        Some(cover) => {
            format!("({}) c CROSS JOIN data_set s WHERE s.id = c.set_id", renumbered(cover, &mut values))
        }
        None => "data_set s WHERE 1 = 1".into(),
    };
    let matches = expr.map(|expr| format!(" AND {}", predicate(expr, &mut values))).unwrap_or_default();
    let visible = visible(&mut values);
    let limit = values.bind(i64::try_from(limit).unwrap_or(i64::MAX));
    let sql = format!("SELECT {columns} FROM {from}{matches} AND {visible} ORDER BY s.id DESC LIMIT {limit}");
    Ok((sql, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Sqlite;
    use crate::query::parse;
    use crate::schema::migrate;

    /// However a query is written, a set that the cover has given is asked for its tags by its key. Another way is as right, and a
    /// thousand times as slow with a million sets.
    #[test]
    fn tags_of_one_set_are_looked_up_by_key() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = Sqlite::open(&dir.path().join("catalog.db"), true).unwrap();
        migrate(&mut db, 0).unwrap();
        for query in [
            "a = b and n > 5",
            "n = 1..5 and a like 'x%' and has c",
            "a in (b, c) and n != 3",
            "(a = b or a = c) and not n < 5 and m >= 2",
            "created > 2026-01-01 and n < 5",
        ] {
            let expr = parse(query).unwrap();
            let (sql, values) = select(&mut db, Some(&expr), "s.id", 10, &|_| "1 = 1".into()).unwrap();
            let plan = db.query(&format!("EXPLAIN QUERY PLAN {sql}"), &values.0).unwrap();
            let steps: Vec<String> = plan.iter().map(|row| row.text(3)).collect();
            // The cover is the first that is gone through; what is asked of its sets comes behind it.
            let behind =
                steps.iter().skip_while(|step| !step.starts_with("SEARCH s ") && !step.starts_with("SCAN s"));
            let of_tags: Vec<&String> = behind.filter(|step| step.starts_with("SEARCH t ")).collect();
            assert!(!of_tags.is_empty(), "{steps:?}");
            for step in of_tags {
                assert!(step.ends_with("USING PRIMARY KEY (set_id=? AND name_id=?)"), "{query}: {steps:?}");
            }
        }
    }
}
