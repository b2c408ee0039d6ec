//! The catalog: a database that is opened, and whose tables are brought up to date.

use crate::compared::Compared;
use crate::db::{Db, Postgres, Sqlite};
use crate::error::{Error, Result};
use crate::holding::Reach;
use crate::schema;
use eyas_keeping::detours::Detours;
use eyas_text::shown;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// A catalog. It may be asked from many threads; requests come one after another.
pub struct Catalog {
    db: Mutex<Box<dyn Db>>,
    /// The user of the database, where that is not one who keeps the catalog.
    pub(crate) role: Option<String>,
    /// How sites elsewhere are reached.
    pub(crate) reach: Option<Box<dyn Reach>>,
    /// Stores that do not reach each other, by their names: who should send, and who should fetch.
    pub(crate) detours: Mutex<Detours<(String, String)>>,
    /// Where the folders of this machine note what was made or verified in them.
    pub(crate) compared: Option<Arc<Compared>>,
    /// What was found of seals at the sites.
    pub(crate) written: Mutex<Option<Written>>,
}

/// What the sites within reach have written down of versions.
pub(crate) struct Written {
    pub(crate) looked_ms: i64,
    /// By label: the newest version, and a site with a seal of that label.
    pub(crate) newest: HashMap<String, (u32, String)>,
}

/// Whether a catalog that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Make {
    Yes,
    No,
}

impl Catalog {
    /// Makes a catalog in a database, or brings the tables of an older one up to date. `url` is `sqlite:PATH`, a path, or
    /// `postgres://USER@HOST/DATABASE`; `now_ms` is the time in milliseconds since 1970.
    ///
    /// # Errors
    /// The database cannot be reached, is no catalog, was made by a newer program, or would lie on a network's file system.
    pub fn init(url: &str, now_ms: i64) -> Result<Catalog> {
        let mut db = connect(url, Make::Yes)?;
        schema::migrate(&mut *db, now_ms)?;
        Catalog::over(db)
    }

    /// Opens a catalog that [`Catalog::init`] made; an older one is brought up to date.
    pub fn open(url: &str, now_ms: i64) -> Result<Catalog> {
        let mut db = connect(url, Make::No)?;
        if schema::version(&mut *db)? == 0 {
            return Err(Error::NotFound(format!(
                "there is no catalog in {}: `eyas data init` makes one",
                db.name()
            )));
        }
        schema::migrate(&mut *db, now_ms)?;
        Catalog::over(db)
    }

    fn over(mut db: Box<dyn Db>) -> Result<Catalog> {
        Ok(Catalog {
            role: db.role()?,
            db: Mutex::new(db),
            reach: None,
            detours: Mutex::default(),
            compared: None,
            written: Mutex::default(),
        })
    }

    /// The same catalog, which reaches sites that are stores elsewhere in this way.
    pub fn reaching(self, reach: Box<dyn Reach>) -> Catalog {
        Catalog { reach: Some(reach), ..self }
    }

    /// The same catalog, whose sites that are folders of this machine note which objects were made or verified in them.
    pub fn remembering(self, compared: Option<Arc<Compared>>) -> Catalog {
        Catalog { compared, ..self }
    }

    /// The file of an embedded database.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.db().file().map(Path::to_path_buf)
    }

    /// The database in words, without a password.
    pub fn name(&self) -> String {
        self.db().name().to_owned()
    }

    pub(crate) fn db(&self) -> MutexGuard<'_, Box<dyn Db>> {
        // A request that panicked has left a transaction at most, which the next one rolls back.
        self.db.lock().unwrap_or_else(|poisoned| {
            let mut db = poisoned.into_inner();
            db.rollback();
            db
        })
    }
}

fn connect(url: &str, make: Make) -> Result<Box<dyn Db>> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Box::new(Postgres::open(url)?));
    }
    let path = match url.split_once(':') {
        Some(("sqlite", path)) => path.strip_prefix("//").unwrap_or(path),
        Some((scheme, _)) if scheme.bytes().all(|c| c.is_ascii_alphanumeric()) && url.contains("://") => {
            return Err(Error::bad(format!(
                "{} names no database that eyas knows: write sqlite:PATH or postgres://USER@HOST/DATABASE",
                shown(url)
            )));
        }
        _ => url,
    };
    if path.is_empty() {
        return Err(Error::bad("the path of the catalog is missing: write sqlite:PATH".to_owned()));
    }
    Ok(Box::new(Sqlite::open(Path::new(path), make == Make::Yes)?))
}
