//! The sources of a map besides its first files: further files, the values of a parameter, the rows of a
//! table.
//!
//! A [`Source`] becomes [`Rows`]: columns, and a text in each column for each row. In a column of files the
//! text is the file's canonical location. A map has a task for each combination of rows, one from each
//! source; the last source changes from task to task.
//!
//! Not here: how holes use a text (`template`, `map`).

use crate::error::{Error, Result, shown};
use crate::map::{ListInput, MapSpec};
use crate::{files, location, template};
use eyas_text::nearest;
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read;

/// A further dimension of a map.
#[derive(Clone, Debug)]
pub enum Source {
    /// Paths, URLs and patterns, as in [`MapSpec::paths`].
    Files {
        paths: Vec<String>,
        /// The files are paired one by one with those of the previous source of files, instead of being
        /// combined with them.
        is_linked: bool,
    },
    /// A parameter and its values.
    Values { name: String, values: Vec<String> },
    /// Rows of a table. `files` are the names of the columns that contain file names.
    Table { table: Table, files: Vec<String> },
}

/// A table with a header.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// For messages.
    pub origin: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// For each row, its line in the file.
    lines: Vec<u64>,
}

impl Table {
    /// Reads a table whose first row has the names of the columns. Fields may be in double quotes, with
    /// doubled quotes inside, as in RFC 4180.
    pub fn read(mut reader: impl Read, delimiter: u8, origin: &str) -> Result<Table> {
        let mut table = Table { origin: origin.into(), ..Table::default() };
        let mut text = vec![];
        let unreadable = |e| Error::io("cannot read the table", e).origin(origin);
        reader.read_to_end(&mut text).map_err(unreadable)?;
        let mut lines = LineNumbers { text: &text, counted: 0, line: 1 };
        let mut csv = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(&text[..]);
        let header = csv.headers().map_err(|e| table.explain(e, &mut lines))?;
        // Some spreadsheets write a byte order mark.
        let mut columns: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        if let Some(first) = columns.first_mut() {
            *first = first.trim_start_matches('\u{feff}').to_owned();
        }
        table.columns = columns;
        for (n, name) in table.columns.iter().enumerate() {
            if !name.is_empty() && table.columns[..n].contains(name) {
                let message = format!("two columns have the name {}", shown(name));
                return Err(Error::invalid(message).origin(origin).at(1, None));
            }
        }
        let mut record = csv::StringRecord::new();
        while csv.read_record(&mut record).map_err(|e| table.explain(e, &mut lines))? {
            table.rows.push(record.iter().map(str::to_owned).collect());
            table.lines.push(record.position().map_or(0, |at| lines.at(at)));
        }
        if table.rows.is_empty() {
            let message = "the table has no rows below its header";
            return Err(Error::invalid(message).origin(origin));
        }
        Ok(table)
    }

    fn explain(&self, e: csv::Error, lines: &mut LineNumbers<'_>) -> Error {
        let line = e.position().map(|at| lines.at(at));
        let error = match e.into_kind() {
            csv::ErrorKind::Utf8 { .. } => Error::invalid("the row is not UTF-8"),
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                Error::invalid(format!("the row has {len} fields, the header has {expected_len}"))
                    .hint("a field that holds the sign between fields stands in double quotes")
            }
            other => Error::invalid(format!("the table cannot be read: {other:?}")),
        };
        let error = error.origin(&self.origin);
        match line {
            Some(line) => error.at(line, None),
            None => error,
        }
    }
}

/// Line numbers of rows, which must be asked for in order. The CSV reader's own number is too small after a
/// line that ends in `\r
/// `.
struct LineNumbers<'t> {
    text: &'t [u8],
    counted: usize,
    line: u64,
}

impl LineNumbers<'_> {
    fn at(&mut self, at: &csv::Position) -> u64 {
        let byte = (at.byte() as usize).clamp(self.counted, self.text.len());
        self.line += self.text[self.counted..byte].iter().filter(|b| **b == b'\n').count() as u64;
        self.counted = byte;
        self.line + u64::from(self.text.get(byte) == Some(&b'\n'))
    }
}

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
    for (n, column) in columns.iter().enumerate() {
        let Name::Text(name) = &column.name else { continue };
        if is_reserved(name) {
            return Err(Error::invalid(format!(
                "{{{name}}} is a hole of its own, so {} cannot be the name of a parameter or of a column",
                shown(name)
            ))
            .hint("give it another name"));
        }
        if !name.is_empty() && columns[..n].contains(column) {
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
            location::push_location(&mut location, found, base).map_err(at)?;
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

/// A file's path as seen from `base`, or its URL.
pub(crate) fn path_of<'i>(location: &'i str, base: &str) -> &'i str {
    let inside = location.strip_prefix(base.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
    inside.unwrap_or(location)
}

fn id_of(location: &str, base: &str) -> String {
    escaped(path_of(location, base)).into_owned()
}

/// Ids appear in messages, so characters that would break a line are escaped.
fn escaped(id: &str) -> Cow<'_, str> {
    if !id.contains(char::is_control) {
        return Cow::Borrowed(id);
    }
    let mut text = String::new();
    for c in id.chars() {
        match c {
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_with_quotes_and_mistakes_have_a_line() {
        let text = "\u{feff}sample, reads\n\"a, b\",\"say \"\"hi\"\"\"\r\nc,\"two\nlines\"\nd,\n";
        let table = Table::read(text.as_bytes(), b',', "t.csv").unwrap();
        assert_eq!(table.columns, ["sample", "reads"]);
        assert_eq!(table.rows, [["a, b", "say \"hi\""], ["c", "two\nlines"], ["d", ""]]);
        assert_eq!(table.lines, [2, 3, 5]);
        for (text, expect) in [
            (&b"a,b\n1,2\n3\n"[..], "t.csv, line 3: the row has 1 fields, the header has 2"),
            (b"a,a\n1,2\n", "t.csv, line 1: two columns have the name `a`"),
            (b"a,b\n", "t.csv: the table has no rows"),
            (b"", "t.csv: the table has no rows"),
            (b"a\n\xff\n", "t.csv, line 2: the row is not UTF-8"),
        ] {
            let error = Table::read(text, b',', "t.csv").unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
        let table = Table::read(&b"a\tb\n1,2\t3\n"[..], b'\t', "t.tsv").unwrap();
        assert_eq!(table.rows, [["1,2", "3"]]);
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
