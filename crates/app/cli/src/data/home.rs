//! Data sets as home storage: how each process of this program finds its catalog.

use super::open::{caller, now_ms, own_host, reaching, url};
use eyas_catalog::{Access, Catalog, DataHome, Error};
use std::sync::{Arc, LazyLock};

/// Names the catalog, as the option `--db` does.
const VARIABLE: &str = "EYAS_DATA";

/// One for the whole process, which opens nothing before it is asked.
static HOME: LazyLock<Arc<DataHome>> =
    LazyLock::new(|| Arc::new(DataHome::new(Box::new(access), now_ms, Box::new(own_host))));

/// Makes `data:` locations known to this process.
pub fn provide() {
    eyas_storage::provide_data(Box::new(|| HOME.clone()));
}

pub fn access() -> eyas_catalog::Result<Access> {
    let db = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
    let url = url(db.as_deref()).map_err(|fault| Error::Conflict(fault.message))?;
    let catalog = Catalog::open(&url, now_ms()).map_err(|error| match error {
        // A node on another machine has no catalog of its own.
        Error::NotFound(reason) => Error::Conflict(format!(
            "{reason}; nodes on other machines need one that they reach: {VARIABLE}=postgres://USER@HOST/DATABASE"
        )),
        other => other,
    })?;
    let caller = catalog.caller(caller())?;
    Ok(Access { catalog: reaching(catalog), caller })
}
