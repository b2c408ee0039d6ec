//! A prediction of a run whose nodes stood in three sites: the sites are found in the run's log, and simulated.

use eyas_core::log::EVENTS_FILE;
use eyas_core::network::NetworkUse;
use eyas_papers::experiment::sites::{Load, run_logged};
use eyas_sim::machine::{Faults, Machine};
use eyas_sim::predict::calibrate;
use eyas_sim::workload::ProgramIo;
use eyas_sim::workload::trace::{Trace, TraceConfig};
use eyas_sim::world::{Scheduling, simulate};

/// Relative errors of the predicted makespan, with what the log says of sites and without.
fn errors(load: Load, network: NetworkUse) -> (f64, f64) {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join(EVENTS_FILE)).unwrap();
    let log = Box::new(std::io::BufWriter::new(file));
    let measured_s = run_logged(load, 3, network, 1, Some(log)).unwrap().makespan_s;
    let trace = Trace::read(dir.path(), &TraceConfig::default()).unwrap();
    let mut found = calibrate(&trace.measured).unwrap();
    let one_place = found.machine.clone();
    found.heed_network(&eyas_report::topology(&[dir.path().to_path_buf()]).unwrap());
    let sites = found.sites.clone().expect("the log shows sites");
    assert_eq!(sites.n_nodes, [8, 8, 8]);
    let between = sites.between_bytes_per_s.expect("files crossed");
    // One of the best transfers had the link of 6.25 MB/s for itself.
    assert!((4e6..7e6).contains(&between), "{between}");
    let lasts_s = |machine: &Machine| {
        let rate = Some(machine.disk_bytes_per_s);
        let io = ProgramIo { read_bytes_per_s: rate, write_bytes_per_s: rate };
        let scheduling = Scheduling { dispatcher: trace.measured.config.clone(), ..Scheduling::default() };
        let work = trace.workload(&io).unwrap();
        simulate(machine, &scheduling, &Faults::default(), work, 1, None).unwrap().makespan_s
    };
    let (with, without) = (lasts_s(&found.machine), lasts_s(&one_place));
    println!(
        "{}, {}: {measured_s:.1} s, predicted {with:.1} s, without sites {without:.1} s",
        load.name(),
        network.name()
    );
    (with / measured_s - 1.0, without / measured_s - 1.0)
}

#[test]
fn sites_that_a_log_shows_are_predicted() {
    for (load, network) in [
        (Load::Databases, NetworkUse::Measured),
        (Load::Tiles, NetworkUse::Measured),
        (Load::Tiles, NetworkUse::Off),
    ] {
        let (with, without) = errors(load, network);
        assert!(with.abs() < 0.1, "{load:?}, {network:?}: {with}, without sites {without}");
        assert!(with.abs() < without.abs(), "{load:?}, {network:?}: {with}, without sites {without}");
    }
}
