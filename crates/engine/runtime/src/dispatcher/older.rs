//! Records that an older version wrote into the journal, as this one writes them: no location has the query of a URL any more
//! ([`eyas_storage::signed`], decision 0086).

use eyas_session::dispatcher::Record;
use eyas_tasklist::{renew_locations, renewed_location};

/// Makes `record` one of this version. Gives whether it was another one.
pub(super) fn renew(record: &mut Record<'static>) -> bool {
    match record {
        Record::ArrayAdded { array, .. } => renew_locations(array.to_mut()),
        Record::RunLinked { links, .. } => {
            let links = links.to_mut();
            renew_each(links.imports.iter_mut().map(|(location, _)| location).chain(&mut links.exports))
        }
        Record::RunPatterns { patterns, .. } => {
            let patterns = patterns.to_mut();
            renew_each(patterns.multicast.iter_mut().chain(&mut patterns.parts))
        }
        _ => false,
    }
}

fn renew_each<'a>(locations: impl Iterator<Item = &'a mut String>) -> bool {
    let mut any = false;
    for location in locations {
        if let Some(renewed) = renewed_location(location) {
            (*location, any) = (renewed, true);
        }
    }
    any
}
