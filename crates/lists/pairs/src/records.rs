//! Sets that are records of files: the sequences of a FASTA file, or the rows of a CSV file.
//!
//! Nothing is written at home for this. A tile's task reads the whole files that its records are in, which the node has for all its
//! tasks, and the tile's process takes the records out. So both sides must find the same records by the same rule, which is here:
//!
//! | format | a record | its name |
//! |---|---|---|
//! | FASTA | a line that begins with `>`, and all lines up to the next one | the first word after `>` |
//! | CSV (RFC 4180) | a row, with the first row of the file before it | its first field |
//!
//! The file of a CSV record is a CSV file of two rows, so a program that reads columns by name can be used as it is.

use eyas_text::shown;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};

/// The format of the files. The module says what a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Records {
    Fasta,
    Csv,
}

/// A line longer than this is not one of a text.
const LINE_BYTES_MAX: u64 = 1 << 30;
const NAME_CHARS_MAX: usize = 100;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    pub name: String,
    /// What the record's file has.
    pub bytes: Vec<u8>,
}

impl Records {
    /// The names of the formats.
    pub const NAMES: [&'static str; 2] = ["fasta", "csv"];

    /// The format of this name.
    pub fn of_name(name: &str) -> Option<Records> {
        let all = [Records::Fasta, Records::Csv];
        Records::NAMES.iter().position(|known| *known == name).map(|i| all[i])
    }

    /// Calls `each` for the records of a file in their order. `Err`: why they cannot be read, or what `each` says.
    pub fn split<R: Read>(
        self,
        file: R,
        mut each: impl FnMut(Record) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut lines = Lines { reader: BufReader::with_capacity(1 << 18, file) };
        match self {
            Records::Fasta => split_fasta(&mut lines, &mut each),
            Records::Csv => split_csv(&mut lines, &mut each),
        }
    }

    /// The name of a record's file: the record's name as far as it can be the name of a file.
    pub fn file_name(self, name: &str) -> String {
        let plain = |c: char| if c.is_alphanumeric() || "._-+=@,".contains(c) { c } else { '_' };
        let mut text: String = name.chars().take(NAME_CHARS_MAX).map(plain).collect();
        if text.is_empty() || text.starts_with(['.', '-']) {
            text.insert(0, '_');
        }
        text + match self {
            Records::Fasta => ".fa",
            Records::Csv => ".csv",
        }
    }
}

struct Lines<R> {
    reader: BufReader<R>,
}

impl<R: Read> Lines<R> {
    /// Appends the next line with its end; `false`: there is none.
    fn next_into(&mut self, line: &mut Vec<u8>) -> Result<bool, String> {
        let n = (&mut self.reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', line)
            .map_err(|e| format!("it cannot be read: {e}"))?;
        match n as u64 == LINE_BYTES_MAX {
            true => Err("it has a line of more than 1 GiB".into()),
            false => Ok(n > 0),
        }
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

type Each<'a> = dyn FnMut(Record) -> Result<(), String> + 'a;

fn split_fasta<R: Read>(lines: &mut Lines<R>, each: &mut Each<'_>) -> Result<(), String> {
    let mut record: Option<Record> = None;
    let mut line = vec![];
    while lines.next_into(&mut line)? {
        if line.first() == Some(&b'>') {
            if let Some(record) = record.take() {
                each(record)?;
            }
            let head = String::from_utf8_lossy(&line[1..]);
            let name = head.split_whitespace().next().unwrap_or_default().to_owned();
            record = Some(Record { name, bytes: std::mem::take(&mut line) });
        } else if let Some(record) = &mut record {
            record.bytes.append(&mut line);
        } else if !is_blank(&line) {
            let begin = String::from_utf8_lossy(&line[..line.len().min(60)]).trim().to_owned();
            return Err(format!(
                "it does not begin with `>` as a FASTA file does, but with {}",
                shown(&begin)
            ));
        }
        line.clear();
    }
    record.map_or(Ok(()), each)
}

fn split_csv<R: Read>(lines: &mut Lines<R>, each: &mut Each<'_>) -> Result<(), String> {
    let mut head: Option<Vec<u8>> = None;
    let mut row = vec![];
    loop {
        let before = row.len();
        let is_more = lines.next_into(&mut row)?;
        if !is_more && row.is_empty() {
            return Ok(());
        }
        // A quote within a quoted field is doubled, so an odd number of quotes means that a field goes on in the next line.
        if !row.iter().filter(|byte| **byte == b'"').count().is_multiple_of(2) {
            if is_more {
                continue;
            }
            let begin = String::from_utf8_lossy(&row[..row.len().min(60)]).trim().to_owned();
            return Err(format!("a quoted field has no end; its row begins with {}", shown(&begin)));
        }
        if is_blank(&row) {
            if !is_more && before == row.len() {
                return Ok(());
            }
            row.clear();
            continue;
        }
        if row.last() != Some(&b'\n') {
            row.push(b'\n');
        }
        match &head {
            None => head = Some(std::mem::take(&mut row)),
            Some(head) => {
                each(Record { name: first_field(&row), bytes: [head, &row[..]].concat() })?;
                row.clear();
            }
        }
    }
}

fn first_field(row: &[u8]) -> String {
    let text = String::from_utf8_lossy(row);
    let text = text.trim_end_matches(['\n', '\r']);
    let Some(quoted) = text.strip_prefix('"') else {
        return text.split(',').next().unwrap_or_default().trim().to_owned();
    };
    let mut field = String::new();
    let mut rest = quoted;
    while let Some((before, after)) = rest.split_once('"') {
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => break,
        }
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(format: Records, text: &str) -> Result<Vec<(String, String)>, String> {
        let mut found = vec![];
        format.split(text.as_bytes(), |record| {
            found.push((record.name, String::from_utf8(record.bytes).unwrap()));
            Ok(())
        })?;
        Ok(found)
    }

    fn owned(expect: &[(&str, &str)]) -> Vec<(String, String)> {
        expect.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn fasta() {
        for (text, expect) in [
            (">a b\nAC\nGT\n>c\nA", &[("a", ">a b\nAC\nGT\n"), ("c", ">c\nA")][..]),
            ("\n>a\r\nAC\r\n\r\n>\nG\n", &[("a", ">a\r\nAC\r\n\r\n"), ("", ">\nG\n")]),
            ("", &[]),
            (">only", &[("only", ">only")]),
        ] {
            assert_eq!(records(Records::Fasta, text).unwrap(), owned(expect), "{text:?}");
        }
        assert!(records(Records::Fasta, "ACGT\n>a\n").unwrap_err().contains("but with `ACGT`"));
    }

    #[test]
    fn csv() {
        for (text, expect) in [
            ("n,x\na,1\nb,2", &[("a", "n,x\na,1\n"), ("b", "n,x\nb,2\n")][..]),
            ("n,x\r\n\r\n\"a \"\"1\"\"\nb\",2\r\n", &[("a \"1\"\nb", "n,x\r\n\"a \"\"1\"\"\nb\",2\r\n")]),
            ("n,x\n", &[]),
            ("", &[]),
            ("n\n a \n\n \n", &[("a", "n\n a \n")]),
        ] {
            assert_eq!(records(Records::Csv, text).unwrap(), owned(expect), "{text:?}");
        }
        assert!(records(Records::Csv, "n\n\"a\nb\n").unwrap_err().contains("no end"));
    }

    #[test]
    fn names_of_files() {
        for (name, expect) in
            [("chr1", "chr1.fa"), ("a/b c", "a_b_c.fa"), ("", "_.fa"), ("..", "_...fa"), ("é|1", "é_1.fa")]
        {
            assert_eq!(Records::Fasta.file_name(name), expect);
        }
    }
}
