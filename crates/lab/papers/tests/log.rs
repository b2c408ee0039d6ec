//! The event log of a simulated run: the same bytes twice in a row and on every machine, and all that reads live
//! logs reads it.

use eyas_core::dispatcher::DispatcherConfig;
use eyas_core::log::EVENTS_FILE;
use eyas_core::placement::good_cache_compute;
use eyas_core::provisioning::ProvisionConfig;
use eyas_papers::workload::mi::{MiConfig, mi};
use eyas_sim::machine::{Faults, Machine, preset};
use eyas_sim::predict::{HomeSeen, calibrate};
use eyas_sim::workload::ProgramIo;
use eyas_sim::workload::all_pairs::{AllPairsConfig, all_pairs};
use eyas_sim::workload::trace::{Trace, TraceConfig};
use eyas_sim::world::{Scheduling, simulate};
use eyas_terms::rng::fnv1a64;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

const S: u64 = 1_000_000_000;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Nodes that come, go, are lost and are slow, and a stream of tasks: everything that has chance in it.
fn busy_log(seed: u64) -> Vec<u8> {
    let machine = Machine { nodes: 6, cache_bytes_per_node: 300_000_000, ..preset("tg-anl-64").unwrap() };
    let faults = Faults { losses_per_node_hour: 30.0, slow_share: 0.3, slow_speed: 0.5 };
    let provision = ProvisionConfig { nodes_max: 6, ..ProvisionConfig::default() };
    // A policy of the paper, which does not change.
    let dispatcher = DispatcherConfig { placement: good_cache_compute::NAME.into(), ..Default::default() };
    let scheduling = Scheduling {
        dispatcher,
        eviction: "random".into(),
        provision: Some(provision),
        ..Scheduling::default()
    };
    let workload = mi(seed, MiConfig { n_tasks: 600, n_files: 60, ..MiConfig::default() }).unwrap();
    let log = Shared::default();
    let summary =
        simulate(&machine, &scheduling, &faults, workload, seed, Some(Box::new(log.clone()))).unwrap();
    assert_eq!(summary.n_done, 600);
    assert!(summary.n_losses > 0, "{summary:?}");
    log.take()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let first = busy_log(3);
    assert!(first == busy_log(3));
    assert!(first != busy_log(4));
}

/// Holds on every machine. When a decision or the model was changed on purpose, the new value belongs here. The first
/// line (version and settings) is not in it.
#[test]
fn the_log_of_one_seed_is_known() {
    let log = busy_log(3);
    let body = log.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert_eq!(format!("{:016x}", fnv1a64(&log[body..])), "0428e64392364252");
}

#[test]
fn a_replay_takes_the_same_actions_and_a_trace_measures_the_machine() {
    let machine = Machine {
        nodes: 3,
        slots_per_node: 2,
        home_bytes_per_s: 40e6,
        home_client_bytes_per_s: 20e6,
        ..preset("this-machine").unwrap()
    };
    let pairs = AllPairsConfig { n: 12, item_bytes: 8_000_000, compute_ns: S / 5 };
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join(EVENTS_FILE)).unwrap();
    let scheduling = Scheduling::default();
    let log: Box<dyn Write> = Box::new(io::BufWriter::new(file));
    let work = all_pairs(pairs).unwrap();
    let summary = simulate(&machine, &scheduling, &Faults::default(), work, 0, Some(log)).unwrap();

    let replayed = eyas_report::replay(dir.path()).unwrap();
    assert_eq!(replayed.difference, None);
    assert!(replayed.n_actions >= 2 * 144);
    let report = eyas_report::metrics(&eyas_report::read(dir.path()).unwrap());
    assert_eq!((report.totals.n_done, report.totals.n_tasks), (144, 144));

    let trace = Trace::read(dir.path(), &TraceConfig::default()).unwrap();
    let seen = calibrate(&trace.measured).unwrap();
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.15;
    let found = &seen.machine;
    assert_eq!((found.nodes, found.slots_per_node), (3, 2));
    assert!(near(found.home_bytes_per_s, machine.home_bytes_per_s), "{seen:?}");
    // Three nodes share what two of them could take, so one node's rate follows from the few moments with fewer readers. Where there
    // are too few of them for one number, it is a range.
    match seen.ends.as_deref() {
        None => {
            assert!(matches!(seen.home, HomeSeen::Shared { n_nodes: 3 }), "{seen:?}");
            assert!(near(found.home_client_bytes_per_s, machine.home_client_bytes_per_s), "{seen:?}");
        }
        Some([slowest, fastest]) => {
            let truth = machine.home_client_bytes_per_s;
            assert!(
                slowest.home_client_bytes_per_s < truth && truth < fastest.home_client_bytes_per_s,
                "{seen:?}"
            );
        }
    }

    // Simulated on the machine that it shows, it takes as long again.
    let rate = Some(found.disk_bytes_per_s);
    let again = trace.workload(&ProgramIo { read_bytes_per_s: rate, write_bytes_per_s: rate }).unwrap();
    let again = simulate(found, &scheduling, &Faults::default(), again, 0, None).unwrap();
    assert!((again.makespan_s / summary.makespan_s - 1.0).abs() < 0.1, "{again:?}\n{summary:?}");
}
