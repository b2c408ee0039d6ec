//! `eyas-lab bench index`: the catalog of objects and their holders, beside figure 3 of Raicu09.
//!
//! A million entries are made, looked up at random, and taken out again; each operation is timed in bulk.
//! An entry is an object and one executor that holds it. A lookup gives the holders of an object by its
//! number; *by name* first finds the object by its location, as the paper's hash table does.

use super::table::{Row, Table};
use super::{Common, Random, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::catalog::Catalog;
use eyas_terms::{CatalogLocation, ExecutorId, ObjectId};
use serde::{Deserialize, Serialize};
use std::time::Instant;

const N_EXECUTORS: u32 = 64;
const N_LOOKUPS: u32 = 2_000_000;
/// From §2.2 and the text of figure 3.
pub const PAPER_LOOKUPS_PER_S: f64 = 4.18e6;

#[derive(Args)]
pub struct IndexArgs {
    /// Number of entries in the catalog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    entries: u32,
    #[command(flatten)]
    common: Common,
}

/// The speed of a catalog of a million entries.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Rates {
    pub n_entries: u32,
    pub insert_us: f64,
    pub lookup_us: f64,
    pub lookup_by_name_us: f64,
    pub lookups_per_s: f64,
    pub lookups_by_name_per_s: f64,
    pub bytes_per_entry: f64,
}

pub fn measure(n_entries: u32) -> Rates {
    let mut random = Random(3);
    let mut catalog = Catalog::new();
    for e in 0..N_EXECUTORS {
        catalog.executor_joined(ExecutorId(e));
    }
    let names: Vec<String> = (0..n_entries).map(|i| format!("/home/data/file-{i:08}")).collect();
    let begun = Instant::now();
    for (i, name) in names.iter().enumerate() {
        let object = catalog.intern(CatalogLocation::Home(name));
        catalog.add_replica(ExecutorId(i as u32 % N_EXECUTORS), object);
    }
    let us = |begun: Instant, n: u32| begun.elapsed().as_secs_f64() * 1e6 / f64::from(n);
    let insert_us = us(begun, n_entries);
    let wanted: Vec<u32> = (0..N_LOOKUPS).map(|_| random.below(n_entries as usize) as u32).collect();
    let begun = Instant::now();
    let mut sum = 0u64;
    for i in &wanted {
        sum += catalog.holders_of(ObjectId(*i)).map(|e| u64::from(e.0)).sum::<u64>();
    }
    let lookup_us = us(begun, N_LOOKUPS);
    let begun = Instant::now();
    for i in &wanted {
        let found = catalog.find(CatalogLocation::Home(&names[*i as usize]));
        sum += found.map_or(0, |object| catalog.holders_of(object).map(|e| u64::from(e.0)).sum::<u64>());
    }
    let lookup_by_name_us = us(begun, N_LOOKUPS);
    std::hint::black_box(sum);
    Rates {
        n_entries,
        insert_us,
        lookup_us,
        lookup_by_name_us,
        lookups_per_s: 1e6 / lookup_us,
        lookups_by_name_per_s: 1e6 / lookup_by_name_us,
        bytes_per_entry: catalog.heap_bytes() as f64 / f64::from(n_entries),
    }
}

pub fn bench(args: &IndexArgs) -> Result<Exit, Fault> {
    args.common.run(|_| {
        note("filling the catalog and looking things up");
        let rates = measure(args.entries);
        let mut table = Table::new(format!("index: {} objects, one holder each", rates.n_entries));
        table.row(Row::new("insert: name and holder", rates.insert_us, "µs").target("3", "1"));
        table.row(Row::new("lookup by number", rates.lookup_us, "µs").target("1", "0.25"));
        table.row(Row::new("lookup by name", rates.lookup_by_name_us, "µs").target("1", "0.25"));
        table.row(
            Row::new("lookups by name", rates.lookups_by_name_per_s, "/s")
                .against("Raicu09, figure 3:", PAPER_LOOKUPS_PER_S),
        );
        table.row(Row::new("memory of an entry", rates.bytes_per_entry, "B").against("Java 1.5:", 200.0));
        Ok(table)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_and_times_are_above_nothing() {
        let rates = measure(2_000);
        assert!(rates.insert_us > 0.0 && rates.lookup_us > 0.0 && rates.bytes_per_entry > 0.0, "{rates:?}");
        assert!((rates.lookups_per_s * rates.lookup_us / 1e6 - 1.0).abs() < 1e-9);
    }
}
