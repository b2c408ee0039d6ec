//! How a site comes to a catalog, and is known again.
//!
//! A site belongs to one catalog, because a repair removes what no version of that catalog needs. Another folder is not taken for
//! one of its name.

use crate::access::Caller;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::holding::Holding;
use crate::sites::NewSite;
use eyas_text::shown;
use std::path::Path;

/// How a site comes to a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// It is a new one, or is known already.
    Comes,
    /// It takes the place of another folder that had its name and is gone for good.
    Replaces,
    /// It may have been another catalog's, which is lost.
    TakesOver,
}

impl Catalog {
    /// The objects of a site.
    ///
    /// # Errors
    /// There is no such site, or it cannot be reached from here.
    pub fn holding(&self, site: &str) -> Result<Box<dyn Holding>> {
        let known = self.address(site)?;
        let holding: Box<dyn Holding> = match (known.join, &self.reach) {
            (None, _) if known.is_store => return Err(self.no_key(site)),
            (None, _) => Box::new(here(site, &known.address)?.remembering(self.compared.clone())),
            (Some(join), Some(reach)) => reach.reach(site, &join)?,
            (Some(_), None) => {
                return Err(Error::Conflict(format!(
                    "the site `{site}` is a store at {}, and this program reaches only folders",
                    shown(&known.address)
                )));
            }
        };
        let (place, id) = (holding.place(), self.id()?);
        if known.folder_id.as_ref().is_some_and(|known| *known != place.folder_id) {
            return Err(Error::Conflict(format!(
                "at {} is another folder now than the one that the catalog knows as the site `{site}`: if that one is gone \
                 for good, `eyas data site --replace` puts this one in its place",
                shown(&known.address)
            )));
        }
        self.refuse_of_others(&*holding, &id)?;
        if known.folder_id.is_none() || place.catalog.is_none() {
            self.set_folder_id(site, &holding.claim(&id)?)?;
        }
        Ok(holding)
    }

    /// Adds a site that was reached, and makes it this catalog's. One that is known gets what is new in its row.
    ///
    /// # Errors
    /// It belongs to another catalog, or another folder has its name.
    pub fn join_site(
        &self,
        caller: &Caller,
        holding: &dyn Holding,
        new: &NewSite<'_>,
        how: Joining,
        now_ms: i64,
    ) -> Result<()> {
        let id = self.id()?;
        if how != Joining::TakesOver {
            self.refuse_of_others(holding, &id)?;
        }
        let folder_id = match &*holding.place().folder_id {
            "" => None,
            folder_id => Some(folder_id),
        };
        self.put_site(caller, new, folder_id, how == Joining::Replaces, now_ms)?;
        self.set_folder_id(new.name, &holding.claim(&id)?)?;
        self.give_keys(new.name, holding)?;
        self.compare_with(holding)
    }

    fn refuse_of_others(&self, holding: &dyn Holding, id: &str) -> Result<()> {
        match &holding.place().catalog {
            Some(other) if other != id => Err(Error::Conflict(format!(
                "the site `{}` belongs to another catalog, and a site has one: use another folder, or take it over \
                 with `eyas data rebuild`",
                holding.name()
            ))),
            _ => Ok(()),
        }
    }
}

/// Of sites that are folders of this machine.
fn here(site: &str, address: &str) -> Result<Folder> {
    let folder = Folder::open(Path::new(address))?;
    match folder.name() == site {
        true => Ok(folder),
        false => Err(Error::Conflict(format!(
            "{} is the folder of the site `{}` now, not of `{site}`",
            shown(address),
            folder.name()
        ))),
    }
}
