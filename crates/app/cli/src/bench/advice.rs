//! What the figures mean for a cluster of such machines, in sentences.

use super::folder::{Folder, N_READERS};
use super::measured::{Figures, bytes_per_s, short_time};
use crate::print::size;

/// If home gives several readers together less than this many times what it gives one, it is shared, not
/// parallel.
const PARALLEL_MIN: f64 = 1.5;
/// Figures of one run that differ by less than this factor count as the same.
const NOISE: f64 = 1.25;
/// Starting a program may take one part in this many of its task's time.
const START_PART: f64 = 10.0;

pub fn advice(figures: &Figures) -> Vec<String> {
    let mut all = vec![];
    let task_s = START_PART * figures.machine.n_cores() as f64 / figures.programs.per_s.max(1e-9);
    all.push(format!(
        "put so much into one task that it takes more than about {}; below that, starting it counts",
        short_time(task_s)
    ));
    if figures.disk.is_in_memory {
        all.push("the folder for caches is in memory: what is cached there is taken from the programs; --dir names one on a disk".into());
    }
    if let Some(home) = &figures.home {
        of_home(figures, home, &mut all);
    }
    all
}

fn of_home(figures: &Figures, home: &Folder, all: &mut Vec<String>) {
    let (one, together) = (home.read_bytes_per_s, home.readers_bytes_per_s);
    all.push(match together < PARALLEL_MIN * one {
        true => format!(
            "home gives {N_READERS} readers of this machine together hardly more than one, {}: what several tasks read is worth caching; \
             if other machines get no more together either, `--home-rate {}` keeps eyas from flooding it",
            bytes_per_s(together),
            size(together as u64).replace(' ', "")
        ),
        false => format!("home gives {N_READERS} readers together {:.1} times what it gives one: it takes several nodes to fill it", together / one),
    });
    all.push(format!(
        "a file of less than about {} takes longer to open at home than to read: many such files are better read as one, or from caches",
        size((home.open_s * one) as u64)
    ));
    let disk = figures.disk.read_bytes_per_s;
    if disk * NOISE < one {
        all.push(format!(
            "the disk for caches reads {}, less than home gives one reader, {}: caches take load off home there, but no task gets its \
             files sooner; --dir names a faster one",
            bytes_per_s(disk),
            bytes_per_s(one)
        ));
    }
    if let Some(network) = &figures.network {
        all.push(match network.bytes_per_s > one * NOISE {
            true => "a copy from another node is quicker than home: with the default placement files spread from node to node".into(),
            false => "a copy from another node is no quicker than home: caches pay where a task reads what its own node has".into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured::Programs;
    use super::super::network::Network;
    use super::*;
    use crate::machine::Machine;

    const MB: f64 = 1e6;

    fn folder(one: f64, together: f64) -> Folder {
        Folder {
            path: "/data".into(),
            is_in_memory: false,
            write_bytes_per_s: one,
            read_bytes_per_s: one,
            readers_bytes_per_s: together,
            files_per_s: 1e3,
            open_s: 1e-3,
        }
    }

    fn figures(disk: Folder, home: Option<Folder>, network_mb_per_s: Option<f64>) -> Figures {
        let network = network_mb_per_s.map(|mb| Network {
            to: "b:1".into(),
            round_trip_s: 1e-4,
            bytes_per_s: mb * MB,
            streams_bytes_per_s: mb * MB,
        });
        let programs = Programs { per_s: 1e3, bare_per_s: 2e3 };
        Figures { machine: Machine::here(), programs, disk, home, network, advice: vec![] }
    }

    fn has(all: &[String], words: &str) -> bool {
        all.iter().any(|one| one.contains(words))
    }

    #[test]
    fn a_shared_home_is_worth_caching() {
        let all = advice(&figures(
            folder(500.0 * MB, 800.0 * MB),
            Some(folder(100.0 * MB, 104.0 * MB)),
            Some(1000.0),
        ));
        assert!(has(&all, "hardly more than one") && has(&all, "`--home-rate 99.2MiB`"), "{all:?}");
        assert!(has(&all, "less than about 97.7 KiB takes longer to open"), "{all:?}");
        assert!(has(&all, "files spread from node to node"), "{all:?}");
        assert!(!has(&all, "no task gets its files sooner"), "{all:?}");
    }

    #[test]
    fn a_disk_that_is_slower_than_home_is_said() {
        let all =
            advice(&figures(folder(30.0 * MB, 30.0 * MB), Some(folder(100.0 * MB, 400.0 * MB)), Some(50.0)));
        assert!(has(&all, "4.0 times what it gives one"), "{all:?}");
        assert!(has(&all, "no task gets its files sooner") && has(&all, "28.6 MiB/s"), "{all:?}");
        assert!(has(&all, "is no quicker than home"), "{all:?}");
    }

    #[test]
    fn memory_is_said_and_nothing_of_what_was_not_measured() {
        let disk = Folder { is_in_memory: true, ..folder(4e9, 4e9) };
        let all = advice(&figures(disk, None, None));
        assert!(has(&all, "is in memory"), "{all:?}");
        assert_eq!(all.len(), 2, "{all:?}");
    }
}
