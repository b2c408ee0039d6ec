//! What the sources of a map stand for: columns, and a text in each column for each row.
//!
//! In a column of files the text is the file's canonical location. A map has a task for each combination of rows, one
//! from each source; the last source changes from task to task.
//!
//! Not here: how holes use a text (`template`, `map`).

use crate::error::{Error, Result, shown};
use crate::files::{self, ListInput};
use crate::location::{self, path_of};
use crate::source::{Source, Table};
use crate::spec::MapSpec;
use crate::template;
use eyas_text::nearest;
use std::borrow::Cow;
use std::collections::HashSet;

/// A column of a source, which holes stand for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    pub name: Name,
    /// The texts are locations of files, which are inputs.
    pub is_file: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    /// The n-th source of files, counted from 1.
    Number(usize),
    Text(String),
}

/// The columns of all sources of `spec`, in their order.
pub(crate) fn columns(spec: &MapSpec, has_list: bool) -> Result<Vec<Column>> {
    let mut columns = vec![];
    let mut n_files = 0;
    if has_list || !spec.paths.is_empty() || spec.more.is_empty() {
        n_files = 1;
        columns.push(Column { name: Name::Number(1), is_file: true });
    }
    for source in &spec.more {
        match source {
            Source::Files { .. } => {
                n_files += 1;
                columns.push(Column { name: Name::Number(n_files), is_file: true });
            }
            Source::Values { name, .. } => {
                columns.push(Column { name: Name::Text(name.clone()), is_file: false });
            }
            Source::Table { table, files } => {
                for file in files {
                    if !table.columns.contains(file) {
                        let known: Vec<&str> = table.columns.iter().map(String::as_str).collect();
                        let near = nearest(file, &known).map(|n| format!("did you mean {}? ", shown(n)));
                        let message =
                            format!("there is no column {} in {}", shown(file), shown(&table.origin));
                        let has = template::shortened_list(&known, str::to_owned, ", ");
                        return Err(Error::invalid(message)
                            .hint(format!("{}it has {has}", near.unwrap_or_default()))
                            .field("files"));
                    }
                }
                columns.extend(
                    table
                        .columns
                        .iter()
                        .map(|name| Column { name: Name::Text(name.clone()), is_file: files.contains(name) }),
                );
            }
        }
    }
    let mut seen = HashSet::new();
    for column in &columns {
        let Name::Text(name) = &column.name else { continue };
        if is_reserved(name) {
            return Err(Error::invalid(format!(
                "{{{name}}} is a hole of its own, so {} cannot be the name of a parameter or of a column",
                shown(name)
            ))
            .hint("give it another name"));
        }
        if !name.is_empty() && !seen.insert(name) {
            return Err(Error::invalid(format!("two parameters or columns have the name {}", shown(name)))
                .hint("give one of them another name"));
        }
    }
    Ok(columns)
}

/// Whether users may not give a hole this name: `in`, `out3`, `index`, a number.
fn is_reserved(name: &str) -> bool {
    let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let after = name.strip_prefix("in").or_else(|| name.strip_prefix("out"));
    name == "index" || after.is_some_and(is_number) || !name.is_empty() && is_number(name)
}

/// A source whose rows have been looked up.
pub(crate) struct Rows {
    /// In each, a text for each column.
    pub rows: Vec<Vec<String>>,
    /// For each row, its part of the ids of its tasks.
    pub ids: Vec<String>,
}

/// The rows of all sources of `spec`; their columns are those of [`columns`].
pub(crate) fn rows(spec: &MapSpec, list: Option<ListInput<'_>>, base: &str) -> Result<Vec<Rows>> {
    let mut all: Vec<Rows> = vec![];
    let of_files = |files: Vec<String>| -> Rows {
        let ids = files.iter().map(|file| id_of(file, base)).collect();
        Rows { rows: files.into_iter().map(|file| vec![file]).collect(), ids }
    };
    if list.is_some() || !spec.paths.is_empty() || spec.more.is_empty() {
        all.push(of_files(files::find(&spec.paths, list, &spec.base_dir, base, true)?));
    }
    for source in &spec.more {
        match source {
            Source::Files { paths, is_linked: false } => {
                all.push(of_files(files::find(paths, None, &spec.base_dir, base, true)?));
            }
            Source::Files { paths, is_linked: true } => {
                let more = files::find(paths, None, &spec.base_dir, base, false)?;
                let Some(before) = all.last_mut() else {
                    return Err(Error::invalid("`:::+` goes along with files before it, and there are none"));
                };
                if before.rows.len() != more.len() {
                    let message = format!(
                        "{} files go along with {} one by one; the numbers must be the same",
                        more.len(),
                        before.rows.len()
                    );
                    return Err(Error::invalid(message).hint("`:::` takes every combination"));
                }
                for ((row, id), file) in before.rows.iter_mut().zip(&mut before.ids).zip(more) {
                    *id += &format!(",{}", id_of(&file, base));
                    row.push(file);
                }
            }
            Source::Values { name, values } => {
                if values.is_empty() {
                    return Err(Error::invalid(format!("the parameter {} has no values", shown(name))));
                }
                let ids = values.iter().map(|value| escaped(&format!("{name}={value}")).into_owned());
                all.push(Rows {
                    ids: ids.collect(),
                    rows: values.iter().map(|value| vec![value.clone()]).collect(),
                });
            }
            Source::Table { table, files } => all.push(of_table(table, files, spec, base)?),
        }
    }
    Ok(all)
}

fn of_table(table: &Table, files: &[String], spec: &MapSpec, base: &str) -> Result<Rows> {
    let mut rows = table.rows.clone();
    for (row, line) in rows.iter_mut().zip(&table.lines) {
        for (text, name) in row.iter_mut().zip(&table.columns) {
            if !files.contains(name) {
                continue;
            }
            let at = |e: Error| e.origin(&table.origin).at(*line, None);
            if text.is_empty() {
                let message = format!("the column {} names files, and is empty here", shown(name));
                return Err(at(Error::invalid(message)));
            }
            let found = files::literal(text, &spec.base_dir).map_err(at)?;
            let mut location = String::new();
            location::push_location(&mut location, &found, base).map_err(at)?;
            *text = location;
        }
    }
    // The first column is used if it identifies the rows, else the row's number.
    let first: HashSet<&str> = table.rows.iter().filter_map(|row| row.first()).map(String::as_str).collect();
    let names_rows = first.len() == rows.len() && !first.contains("");
    let id = |(n, row): (usize, &Vec<String>)| match row.first() {
        Some(first) if names_rows => escaped(first).into_owned(),
        _ => format!("row{}", n + 1),
    };
    let ids = table.rows.iter().enumerate().map(id).collect();
    Ok(Rows { rows, ids })
}

fn id_of(location: &str, base: &str) -> String {
    escaped(path_of(location, base)).into_owned()
}

/// Ids appear in messages, so characters that would break a line are escaped; and so are backslashes, so that two texts
/// have two ids.
fn escaped(id: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c.is_control() || c == '\\';
    if !id.contains(is_escaped) {
        return Cow::Borrowed(id);
    }
    let mut text = String::new();
    for c in id.chars() {
        match c {
            c if is_escaped(c) => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_texts_have_two_ids() {
        for (text, expect) in [("a\nb", "a\\nb"), ("a\\nb", "a\\\\nb"), ("a\\", "a\\\\"), ("é", "é")] {
            assert_eq!(escaped(text), expect);
        }
    }

    #[test]
    fn names_that_holes_have_already_are_refused() {
        for (name, expect) in [
            ("in", true),
            ("in2", true),
            ("out", true),
            ("index", true),
            ("7", true),
            ("inner", false),
            ("", false),
        ] {
            assert_eq!(is_reserved(name), expect, "{name}");
        }
    }
}
