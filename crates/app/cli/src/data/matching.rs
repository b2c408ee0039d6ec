//! `eyas match`: the label of the data set that has certain tags, for scripts.

use super::open::{Opened, open};
use super::put::tags_of;
use crate::fault::bad;
use crate::print::count;
use crate::{Exit, Fault};
use clap::Args;
use eyas_catalog::Tag;
use eyas_text::say;

#[derive(Args)]
pub struct MatchArgs {
    /// The catalog: sqlite:PATH or postgres://USER@HOST/DATABASE; without it catalog.db in $XDG_DATA_HOME/eyas
    #[arg(long, value_name = "URL", env = "EYAS_DATA", hide_env_values = true)]
    db: Option<String>,
    /// Tags that the data set has, all of them, with the values that were put. The exit status is 0 if one data set has them, 3 if
    /// several have, and 2 if none has
    #[arg(value_name = "NAME=VALUE", required = true)]
    tags: Vec<String>,
}

/// The exit status where several data sets match.
const SEVERAL: u8 = 3;

/// Prints the label of the newest data set with all the tags. Source: the `Match` client of figure 5 in `Wozniak06`.
pub fn matching(args: &MatchArgs) -> Result<Exit, Fault> {
    let Opened { catalog, caller, .. } = open(args.db.as_deref())?;
    let tags = tags_of(&args.tags)?;
    let query = query_of(&tags);
    let n_most = 1000;
    let found = catalog.find(&caller, Some(&query), n_most)?;
    let Some(newest) = found.first() else {
        return Err(bad(format!("no data set that you may list matches {query}")).hint(
            "tags are compared as the text that was put; `eyas data find` lists data sets with their tags",
        ));
    };
    show!("{}", newest.label);
    if found.len() > 1 {
        let n_found = count(found.len() as u64);
        let at_least = if found.len() as u64 == n_most { "at least " } else { "" };
        say!("{at_least}{n_found} data sets match; `{}` is the newest of them", newest.label);
        return Ok(Exit::Own(SEVERAL));
    }
    Ok(Exit::Good)
}

/// The query that asks for all tags.
fn query_of(tags: &[Tag]) -> String {
    let conditions = tags.iter().map(|tag| format!("{} = '{}'", tag.name, tag.value.replace('\'', "''")));
    conditions.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_the_text_of_each_tag() {
        let query = |texts: &[&str]| {
            let tags: Vec<Tag> = texts.iter().map(|text| Tag::parse(text).unwrap()).collect();
            let query = query_of(&tags);
            eyas_catalog::query::parse(&query).unwrap();
            query
        };
        assert_eq!(query(&["reagents=acidbase"]), "reagents = 'acidbase'");
        assert_eq!(query(&["n=90", "day=2026-11-25"]), "n = '90' and day = '2026-11-25'");
        assert_eq!(query(&["n=-1.5e3"]), "n = '-1.5e3'");
        assert_eq!(query(&["who=O'Hara \" or 1=1"]), "who = 'O''Hara \" or 1=1'");
        assert_eq!(query(&["empty="]), "empty = ''");
        assert_eq!(query(&["size-of=1GiB"]), "size-of = '1GiB'");
        assert_eq!(query(&["at=2026-11-25T12:00:00Z"]), "at = '2026-11-25T12:00:00Z'");
    }
}
