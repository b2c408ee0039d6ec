//! The abstract model beside the simulated stacking experiments, whose makespans are in `docs/results/results.json`.

use eyas_papers::experiment::paper::{STACKING_CASES, stacking};
use eyas_papers::workload::stacking::{Format, StackingConfig, TABLE_3};
use eyas_sim::model::expect::{Making, ModelWork, Reuse, expect};
use eyas_sim::model::predict::{ErrorSummary, Machine};
use std::collections::BTreeMap;

/// `Raicu09` §6.6: 5 % in the mean and 29 % at worst, over 92 experiments.
#[test]
fn the_model_is_as_good_as_the_papers() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/results/results.json");
    let results: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(results).expect("the results are kept")).expect("JSON");
    let machines: BTreeMap<String, _> = stacking().into_iter().map(|e| (e.name, e.machine)).collect();
    let config = StackingConfig::default();
    let mut pairs = vec![];
    for locality in TABLE_3 {
        for case in STACKING_CASES {
            for n in [2, 4, 8, 16, 32, 64, 128] {
                let name = case.name(locality, n);
                let Some(machine) = machines.get(&name) else { continue };
                let is_gz = case.format == Format::Gz;
                let (packed, whole) = (config.gz_bytes as f64, config.fit_bytes as f64);
                let is_made = is_gz && case.diffusion;
                let object_bytes = if is_gz { packed } else { whole };
                let program_bytes = if is_made { whole } else { object_bytes };
                let each_ns = if is_gz && !case.diffusion { config.uncompress_ns } else { 0 };
                let program_s = (config.stack_ns + each_ns) as f64 / 1e9;
                let cache_bytes = machine.cache_bytes_per_node as f64 * f64::from(machine.nodes);
                let work = ModelWork {
                    n_tasks: u64::from(locality.n_objects),
                    accesses_per_task: 1.0,
                    object_bytes,
                    compute_s: program_s - program_bytes / machine.disk_bytes_per_s,
                    overhead_s: 2.0 * machine.message_ns as f64 / 1e9,
                    reuse: match case.diffusion {
                        true => Reuse::Objects { n_objects: u64::from(locality.n_files), cache_bytes },
                        false => Reuse::NoCaches,
                    },
                    making: is_made.then_some(Making {
                        made_bytes: whole,
                        compute_s: whole / machine.costs.made_bytes_per_s,
                    }),
                };
                let modelled_s = expect(&Machine::of(machine), &work).expect("all is possible").time_s;
                let simulated_s = &results["experiments"][&name]["makespan_s"];
                let simulated_s = simulated_s.as_f64().expect("each experiment was simulated");
                pairs.push((modelled_s, simulated_s));
            }
        }
    }
    let error = ErrorSummary::of(&pairs).expect("there are experiments");
    println!("{error:?}");
    assert_eq!(error.n, 108);
    assert!(error.mean <= 0.06 && error.worst <= 0.29, "{error:?}");
}
