//! The matrix of the results, in a `.npy` file that is mapped into memory: its pages are the system's to keep or to write, so
//! a matrix of 10⁸ cells takes no more of this process's own memory than one of ten.
//!
//! The format `.npy`, version 1.0: a magic word, the length of a header, the header (a Python dictionary, padded to a multiple of
//! 64 bytes), and the values, row by row (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).
//!
//! A cell without a value is not-a-number with bits of its own, so that a CSV file can leave it empty, where a value that a
//! program printed as `nan` stands as `NaN`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
const MISSING: u64 = 0x7ff8_0000_0000_0e1a;

pub struct Matrix {
    map: *mut u8,
    map_bytes: usize,
    header_bytes: usize,
    n_rows: usize,
    n_columns: usize,
}

fn header(n_rows: usize, n_columns: usize) -> Vec<u8> {
    let mut text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({n_rows}, {n_columns}), }}");
    let before = MAGIC.len() + 2;
    while !(before + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let length = u16::try_from(text.len()).expect("a header of two numbers is short");
    [MAGIC, &length.to_le_bytes(), text.as_bytes()].concat()
}

impl Matrix {
    /// A matrix without any value, in a new file.
    pub fn create(path: &Path, n_rows: usize, n_columns: usize) -> io::Result<Matrix> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let header = header(n_rows, n_columns);
        let too_large =
            || io::Error::new(io::ErrorKind::InvalidInput, "the matrix is too large for this machine");
        let cells = n_rows.checked_mul(n_columns).and_then(|n| n.checked_mul(8)).ok_or_else(too_large)?;
        let map_bytes = cells.checked_add(header.len()).ok_or_else(too_large)?;
        let mut to = BufWriter::with_capacity(1 << 20, &file);
        to.write_all(&header)?;
        let row: Vec<u8> = std::iter::repeat_n(MISSING.to_le_bytes(), n_columns).flatten().collect();
        for _ in 0..n_rows {
            to.write_all(&row)?;
        }
        to.flush()?;
        drop(to);
        let map = map(&file, map_bytes)?;
        Ok(Matrix { map, map_bytes, header_bytes: header.len(), n_rows, n_columns })
    }

    fn cell(&self, row: usize, column: usize) -> *mut [u8; 8] {
        assert!(row < self.n_rows && column < self.n_columns, "cell {row}, {column} is outside");
        // SAFETY: the cell is within the mapping, by the assertion and the size that the file was given.
        unsafe { self.map.add(self.header_bytes + (row * self.n_columns + column) * 8).cast() }
    }

    pub fn set(&mut self, row: usize, column: usize, value: f64) {
        // SAFETY: the place is within the mapping, which nobody else has, and bytes need no alignment.
        unsafe { self.cell(row, column).write(value.to_bits().to_le_bytes()) }
    }

    /// The value of a cell, if it has one.
    pub fn get(&self, row: usize, column: usize) -> Option<f64> {
        // SAFETY: as for `set`.
        let bits = u64::from_le_bytes(unsafe { self.cell(row, column).read() });
        (bits != MISSING).then(|| f64::from_bits(bits))
    }

    /// Writes the matrix as CSV, with names above the columns and before the rows; a cell without a value is empty.
    pub fn write_csv(&self, to: &mut dyn Write, rows: &[String], columns: &[String]) -> io::Result<()> {
        for name in columns {
            write!(to, ",{}", field(name))?;
        }
        writeln!(to)?;
        for (row, name) in rows.iter().enumerate() {
            write!(to, "{}", field(name))?;
            for column in 0..self.n_columns {
                match self.get(row, column) {
                    Some(value) => write!(to, ",{}", shown_value(value))?,
                    None => write!(to, ",")?,
                }
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

/// The shortest text that is read back as the same number; whole numbers without a point.
fn shown_value(value: f64) -> String {
    let text = format!("{value:?}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// A field of a CSV file, as in RFC 4180.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn map(file: &File, bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: a fresh shared mapping of a file of at least that length; no existing memory is touched.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(map.cast()) }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.map.cast(), self.map_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_where_numpy_looks_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.npy");
        let mut matrix = Matrix::create(&path, 2, 3).unwrap();
        matrix.set(1, 2, 0.1);
        matrix.set(0, 0, f64::NAN);
        assert_eq!(matrix.get(1, 2), Some(0.1));
        assert!(matrix.get(0, 0).unwrap().is_nan());
        assert_eq!(matrix.get(0, 1), None);
        let mut csv = vec![];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        matrix.write_csv(&mut csv, &names(&["x", "y,z"]), &names(&["1", "2", "3"])).unwrap();
        assert_eq!(String::from_utf8(csv).unwrap(), ",1,2,3\nx,NaN,,\n\"y,z\",,,0.1\n");
        drop(matrix);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len() % 8, 0);
        let start = bytes.len() - 6 * 8;
        assert_eq!(start % 64, 0);
        assert!(bytes.starts_with(b"\x93NUMPY\x01\x00") && bytes[start - 1] == b'\n');
        assert_eq!(bytes[start + 5 * 8..], 0.1f64.to_le_bytes());
    }
}
