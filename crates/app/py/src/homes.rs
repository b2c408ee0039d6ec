//! Home storage, as the commands `eyas ls`, `cat`, `cp`, `rm`, `mkdir` and `mv` have it: what `eyas.fsspec` is made of.
//!
//! Errors are those that Python has for files, with the home's own sentence. Other threads of Python go on meanwhile.

use eyas_cli::dirs::working;
use eyas_cli::words;
use eyas_storage::{Error, ErrorKind, HomesConfig, Listing, Location, Stat, Status, Strength, Version};
use pyo3::exceptions::{
    PyFileNotFoundError, PyIsADirectoryError, PyNotImplementedError, PyOSError, PyPermissionError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Objects that are looked at at the same time.
const N_STREAMS: usize = 8;

/// Size in bytes, version, whether that is another one where the bytes are others, time of the last change in nanoseconds since 1970,
/// permission bits: of one object.
type Looked = (u64, String, bool, Option<i64>, Option<u32>);

#[pyclass(frozen)]
pub struct Homes {
    homes: eyas_storage::Homes,
}

fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
        ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
        ErrorKind::NotAFile => PyIsADirectoryError::new_err(text),
        ErrorKind::Unsupported => PyNotImplementedError::new_err(text),
        ErrorKind::InvalidName | ErrorKind::InvalidRange => PyValueError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

fn looked(stat: &Stat) -> Looked {
    let version = &stat.version;
    let is_strong = version.strength() == Strength::Strong;
    (stat.size_bytes, version.text().to_owned(), is_strong, version.modified_ns(), version.mode())
}

/// Errors: the object is another one than it was when it was opened.
fn check_version(location: &Location, then: &Version, now: &Version) -> Result<(), Error> {
    // A file that was renamed to its place may have brought size and time along.
    let is_other_file = location.path().is_some() && then.strength() == Strength::Strong && then != now;
    match then.contradicts(now) || is_other_file {
        false => Ok(()),
        true => {
            let change = Version::describe_change(then, now);
            let why = format!("it has changed since it was opened ({change}); open it again");
            Err(Error::new(ErrorKind::Changed, Status::Permanent, "read", location, why))
        }
    }
}

/// The location that a word names; relative names are taken from the working folder.
fn location(word: &str) -> PyResult<Location> {
    let base = working().map_err(crate::error::of_fault)?;
    Location::parse(word, &base).map_err(raised)
}

/// The canonical text of the location that a word names.
#[pyfunction]
pub fn location_of(word: &str) -> PyResult<String> {
    Ok(location(word)?.as_str().to_owned())
}

#[pymethods]
impl Homes {
    #[new]
    fn new() -> PyResult<Homes> {
        Ok(Homes { homes: eyas_storage::Homes::new(HomesConfig::default()).map_err(raised)? })
    }

    /// What the home of a location can do: make directories, read ranges.
    fn can(&self, word: &str) -> PyResult<(bool, bool)> {
        let can = self.homes.get(&location(word)?).capabilities();
        Ok((can.make_directory, can.read_range))
    }

    fn stat(&self, py: Python<'_>, word: &str) -> PyResult<Looked> {
        let location = location(word)?;
        py.detach(|| self.homes.stat(&location)).map(|stat| looked(&stat)).map_err(raised)
    }

    /// The same of many objects, several at once; `None`: there is none.
    fn stats(&self, py: Python<'_>, words: Vec<String>) -> PyResult<Vec<Option<Looked>>> {
        let locations = words.iter().map(|word| location(word)).collect::<PyResult<Vec<Location>>>()?;
        let next = AtomicUsize::new(0);
        let work = || {
            let mut found = vec![];
            while let Some(n) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < locations.len()) {
                found.push((n, self.homes.stat(&locations[n])));
            }
            found
        };
        let found: Vec<_> = py.detach(|| {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..N_STREAMS.min(locations.len())).map(|_| scope.spawn(work)).collect();
                threads.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
            })
        });
        let mut stats = vec![None; locations.len()];
        for (n, result) in found {
            stats[n] = match result {
                Ok(stat) => Some(looked(&stat)),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotAFile) => None,
                Err(error) => return Err(raised(error)),
            };
        }
        Ok(stats)
    }

    /// All files below a directory, and a sentence for each thing there that cannot be had.
    fn below(&self, py: Python<'_>, word: &str) -> PyResult<(Vec<String>, Vec<String>)> {
        let listing = Listing::Under(location(word)?);
        let listed = py.detach(|| self.homes.list(&listing)).map_err(raised)?;
        let found = listed.found.iter().map(|location| location.as_str().to_owned()).collect();
        let left_out = listed.left_out.iter().map(|left| format!("{}: {}", left.name, left.why)).collect();
        Ok((found, left_out))
    }

    /// The bytes of an object from `start` on, before `end`, which lie inside of it. `version`: what it has to be.
    #[pyo3(signature = (word, start, end, version))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        word: &str,
        start: Option<u64>,
        end: Option<u64>,
        version: Option<String>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let location = location(word)?;
        let range = start.zip(end).map(|(start, end)| start..end);
        let bytes = py
            .detach(|| {
                let mut opened = self.homes.open(&location, range)?;
                if let Some(version) = version {
                    check_version(&location, &Version::from_text(version), &opened.stat.version)?;
                }
                let mut bytes = vec![];
                let read = opened.reader.read_to_end(&mut bytes);
                read.map(|_| bytes).map_err(|error| Error::from_read("read", &location, error))
            })
            .map_err(raised)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Makes an object of these bytes.
    fn write(&self, py: Python<'_>, word: &str, bytes: &[u8]) -> PyResult<()> {
        let location = location(word)?;
        py.detach(|| self.homes.write(&location, &mut &*bytes, Some(bytes.len() as u64))).map_err(raised)?;
        Ok(())
    }

    /// Makes an object of another one. Gives its size in bytes.
    fn copy(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<u64> {
        let (from, to) = (location(from)?, location(to)?);
        py.detach(|| {
            let mut opened = self.homes.open(&from, None)?;
            let written = self.homes.write(&to, &mut opened.reader, Some(opened.stat.size_bytes))?;
            Ok(written.size_bytes)
        })
        .map_err(raised)
    }

    /// Gives an object another place.
    #[pyo3(name = "move")]
    fn move_object(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        let (from, to) = (location(from)?, location(to)?);
        py.detach(|| words::move_object(&self.homes, &from, &to)).map_err(raised)
    }

    fn remove(&self, py: Python<'_>, word: &str) -> PyResult<()> {
        let location = location(word)?;
        py.detach(|| self.homes.remove(&location)).map_err(raised)
    }

    fn make_directory(&self, py: Python<'_>, word: &str) -> PyResult<()> {
        let location = location(word)?;
        py.detach(|| self.homes.make_directory(&location)).map_err(raised)
    }

    /// Removes a directory with all that is below it.
    fn remove_directory(&self, py: Python<'_>, word: &str) -> PyResult<u64> {
        let location = location(word)?;
        py.detach(|| self.homes.remove_directory(&location)).map_err(raised)
    }
}
