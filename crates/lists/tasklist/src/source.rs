//! What users give as sources of a map besides its first files: further files, the values of a parameter, the rows
//! of a table.
//!
//! Not here: which files and texts a source stands for (`rows`).

use crate::error::{Error, Result, shown};
use crate::lines::refuse_utf_16;
use std::collections::HashSet;
use std::io::Read;

/// A further dimension of a map.
#[derive(Clone, Debug)]
pub enum Source {
    /// Paths, URLs and patterns, as in [`crate::MapSpec::paths`].
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
    pub(crate) lines: Vec<u64>,
}

impl Table {
    /// Reads a table whose first row has the names of the columns. Fields may be in double quotes, with
    /// doubled quotes inside, as in RFC 4180.
    pub fn read(mut reader: impl Read, delimiter: u8, origin: &str) -> Result<Table> {
        let mut table = Table { origin: origin.into(), ..Table::default() };
        let mut text = vec![];
        let unreadable = |e| Error::io("cannot read the table", e).origin(origin);
        reader.read_to_end(&mut text).map_err(unreadable)?;
        refuse_utf_16(&text).map_err(|e| e.origin(origin))?;
        let mut lines = LineNumbers { text: &text, counted: 0, line: 1 };
        let mut csv = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(&text[..]);
        let header = csv.headers().map_err(|e| table.explain(e, &mut lines))?;
        // Some spreadsheets write a byte order mark.
        let mut columns: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        if let Some(first) = columns.first_mut() {
            *first = first.trim_start_matches('\u{feff}').to_owned();
        }
        if let ([only], b',') = (&columns[..], delimiter)
            && let Some(other) = only.chars().find(|c| matches!(c, ';' | '\t'))
        {
            let hint = match other {
                '\t' => "--tsv FILE is a table with tabs between columns",
                _ => "columns are separated by commas: `tr ';' ,` makes them so where no field has either",
            };
            let message = format!("the header is one column, {}", shown(only));
            return Err(Error::invalid(message).hint(hint).origin(origin).at(1, None));
        }
        table.columns = columns;
        let mut seen = HashSet::new();
        for name in &table.columns {
            if !name.is_empty() && !seen.insert(name) {
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
            (b"a;b\n1;2\n", "t.csv, line 1: the header is one column, `a;b`"),
            (b"a\tb\n1\t2\n", "t.csv, line 1: the header is one column, `a\\tb`"),
            (b"a,a\n1,2\n", "t.csv, line 1: two columns have the name `a`"),
            (b"a,b\n", "t.csv: the table has no rows"),
            (b"", "t.csv: the table has no rows"),
            (b"a\n\xff\n", "t.csv, line 2: the row is not UTF-8"),
            (b"\xff\xfea\0\n\0", "t.csv: the file is UTF-16, and not UTF-8"),
        ] {
            let error = Table::read(text, b',', "t.csv").unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
        let table = Table::read(&b"a\tb\n1,2\t3\n"[..], b'\t', "t.tsv").unwrap();
        assert_eq!(table.rows, [["1,2", "3"]]);
    }
}
