//! The page's part on the micro-benchmarks of §4.2 and §4.3, figures 7 to 14.

use super::format::{NONE, Table, figure, per_cent};
use eyas_cli::print::count;
use eyas_papers::experiment::micro::{Cell, Config, LARGE_BYTES, Measured, NODES, SIZES};

const COMMAND: &str = "`eyas-lab repro --only micro`";

struct Cells<'a>(&'a [Measured]);

impl Cells<'_> {
    fn find(&self, config: Config, writes: bool, file_bytes: u64, nodes: u32) -> Option<&Measured> {
        let cell = Cell { config, writes, file_bytes, nodes };
        self.0.iter().find(|m| m.cell == cell)
    }
    fn mbit(&self, config: Config, writes: bool, file_bytes: u64, nodes: u32) -> Option<f64> {
        self.find(config, writes, file_bytes, nodes).map(|m| m.mbit_per_s)
    }
}

fn bytes(n: u64) -> String {
    match n {
        n if n >= 1_000_000_000 => format!("{} GB", n / 1_000_000_000),
        n if n >= 1_000_000 => format!("{} MB", n / 1_000_000),
        n if n >= 1_000 => format!("{} KB", n / 1_000),
        n => format!("{n} B"),
    }
}

/// A rate in Mb/s, as in the paper.
fn rate(mbit_per_s: Option<f64>) -> String {
    match mbit_per_s {
        None => NONE.into(),
        Some(v) if v < 0.0995 => format!("{v:.1e}"),
        Some(v) => figure(v),
    }
}

fn variant(writes: bool) -> &'static str {
    if writes { "read and write" } else { "read" }
}

/// * `drawing`: the drawing of a name and title, if there is one.
pub fn section(measured: &[Measured], drawing: &dyn Fn(&str, &str) -> String) -> String {
    let cells = Cells(measured);
    let mut text = include_str!("notes/micro.md").to_string();
    text += "### What the paper says in words\n\n";
    text += &words(&cells);
    text += "### One node (figure 7), Mb/s\n\n";
    let mut table = Table::new([
        "file",
        "read: local disk",
        "GPFS",
        "times as fast",
        "read and write: local disk",
        "GPFS",
        "times as fast",
    ]);
    for size in SIZES {
        let mut row = vec![bytes(size)];
        for writes in [false, true] {
            let [local, home] =
                [Config::LocalDisk, Config::Persistent].map(|config| cells.mbit(config, writes, size, 1));
            let times = local.zip(home).map_or(NONE.into(), |(local, home)| figure(local / home));
            row.extend([rate(local), rate(home), times]);
        }
        table.row(row);
    }
    text += &table.text();
    text += &drawing("fig-07-micro-one-node", "Figure 7: local disk and GPFS from one node");
    for (config, what, numbers) in
        [(Config::Persistent, "GPFS", ["8", "9"]), (Config::LocalDisk, "local disks", ["10", "11"])]
    {
        for (writes, number) in [false, true].into_iter().zip(numbers) {
            text += &format!("### {what}, {} (figure {number}), Mb/s\n\n", variant(writes));
            let mut heads = vec!["file".to_string()];
            heads.extend(NODES.map(|n| format!("{n} {}", if n == 1 { "node" } else { "nodes" })));
            let mut table = Table::new(heads);
            for size in SIZES {
                let row = NODES.map(|nodes| rate(cells.mbit(config, writes, size, nodes)));
                table.row([vec![bytes(size)], row.to_vec()].concat());
            }
            text += &table.text();
            let place = if config == Config::Persistent { "home" } else { "local" };
            let kind = if writes { "read-write" } else { "read" };
            let title = format!("Figure {number}: {what}, {}", variant(writes));
            text += &drawing(&format!("fig-{number:0>2}-micro-{place}-{kind}"), &title);
        }
    }
    for (writes, number, said) in [
        (false, "12", [None, Some("3.1"), None, None, Some("5.7"), None, Some("61.7")]),
        (true, "13", [None, Some("1"), None, None, Some("6.3"), None, Some("22.7")]),
    ] {
        text += &format!("### Files of 100 MB, {} (figure {number}), Mb/s\n\n", variant(writes));
        let mut heads = vec!["configuration".to_string()];
        heads.extend(NODES.map(|n| n.to_string()));
        heads.push("paper, 64 nodes".into());
        let mut table = Table::new(heads);
        for (config, said) in Config::LARGE.into_iter().zip(said) {
            let row = NODES.map(|nodes| rate(cells.mbit(config, writes, LARGE_BYTES, nodes)));
            let said = said.map_or(NONE.to_string(), |gbit| format!("{gbit} Gb/s"));
            table.row([vec![config.what().to_string()], row.to_vec(), vec![said]].concat());
        }
        text += &table.text();
        let kind = if writes { "read-write" } else { "read" };
        let title = format!("Figure {number}: files of 100 MB, {}", variant(writes));
        text += &drawing(&format!("fig-{number}-micro-{kind}"), &title);
    }
    text += "### With and without a wrapper, 64 nodes (figure 14)\n\n";
    let mut table = Table::new([
        "file",
        "read: model (persistent storage)",
        "FA",
        "FA + wrapper",
        "read and write: model (persistent storage)",
        "FA",
        "FA + wrapper",
        "tasks/s, read: FA",
        "FA + wrapper",
    ]);
    for size in SIZES {
        let mut row = vec![bytes(size)];
        for writes in [false, true] {
            for config in [Config::Persistent, Config::Fa, Config::FaWrapper] {
                row.push(rate(cells.mbit(config, writes, size, 64)));
            }
        }
        for config in [Config::Fa, Config::FaWrapper] {
            row.push(cells.find(config, false, size, 64).map_or(NONE.into(), |m| figure(m.tasks_per_s)));
        }
        table.row(row);
    }
    text += &table.text();
    text += &drawing("fig-14-micro-wrapper", "Figure 14: FA with and without a wrapper, 64 nodes");
    text += include_str!("notes/micro-why.md");
    if !measured.is_empty() {
        let n_tasks = measured.iter().map(|m| m.n_tasks).sum();
        text += &format!(
            "{} experiments with {} tasks that were measured, all by {COMMAND}.\n\n",
            count(measured.len() as u64),
            count(n_tasks)
        );
    }
    text
}

/// The statements of §4.2 and §4.3, sentence by sentence.
fn words(cells: &Cells) -> String {
    let mut table = Table::new(["", "where", "paper", "eyas"]);
    let mut row = |what: &str, place: &str, paper: &str, eyas: Option<String>| {
        table.row(vec![what.into(), place.into(), paper.into(), eyas.unwrap_or(NONE.into())]);
    };
    let gbit = |config, writes, bytes, nodes| {
        cells.mbit(config, writes, bytes, nodes).map(|mbit| format!("{} Gb/s", figure(mbit / 1e3)))
    };
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let (local, home) = (Config::LocalDisk, Config::Persistent);
    let least = [false, true]
        .into_iter()
        .flat_map(|writes| SIZES.map(|size| (writes, size)))
        .filter_map(|(writes, size)| {
            ratio(cells.mbit(local, writes, size, 1), cells.mbit(home, writes, size, 1))
        })
        .reduce(f64::min);
    row(
        "local disk against GPFS, one node, at the least",
        "§4.2, figure 7",
        "more than 2 ×",
        least.map(|least| format!("{} ×", figure(least))),
    );
    let largest = SIZES[SIZES.len() - 1];
    row(
        "GPFS, reading, 64 nodes, 1 GB (fitted)",
        "§4.2, figure 8",
        "3.42 Gb/s",
        gbit(home, false, largest, 64),
    );
    let small = ratio(cells.mbit(home, false, 1_000_000, 64), Some(3420.0));
    row("of that with files of 1 MB (fitted)", "§4.2, figure 8", "75 %", small.map(per_cent));
    let gain = ratio(cells.mbit(home, false, largest, 64), cells.mbit(home, false, largest, 8));
    row("64 nodes against 8, 1 GB", "§4.2, figure 8", "less than 6 % more", gain.map(super::format::change));
    row(
        "GPFS, reading and writing, 64 nodes (fitted)",
        "§4.2, figure 9",
        "1.12 Gb/s",
        gbit(home, true, largest, 64),
    );
    row(
        "local disks, reading, 64 nodes (fitted)",
        "§4.2, figure 10",
        "76 Gb/s",
        gbit(local, false, largest, 64),
    );
    row(
        "local disks, reading and writing, 64 nodes (fitted)",
        "§4.2, figure 11",
        "25 Gb/s",
        gbit(local, true, largest, 64),
    );
    for (writes, place, figures) in
        [(false, "§4.3, figure 12", ["61.7", "5.7", "3.1"]), (true, "§4.3, figure 13", ["22.7", "6.3", "1"])]
    {
        let kind = variant(writes);
        let named = [
            (Config::Mcu100, "MCU, 100 % locality"),
            (Config::Fca100, "placed without a look at data, 100 % locality"),
            (Config::Fa, "shared file system alone (FA)"),
        ];
        for ((config, what), paper) in named.into_iter().zip(figures) {
            row(
                &format!("{what}, {kind}, 64 nodes"),
                place,
                &format!("{paper} Gb/s"),
                gbit(config, writes, LARGE_BYTES, 64),
            );
        }
        let share = ratio(
            cells.mbit(Config::Mcu100, writes, LARGE_BYTES, 64),
            cells.mbit(local, writes, LARGE_BYTES, 64),
        );
        let paper = if writes { "96 %" } else { "94 %" };
        row(&format!("MCU of local disks, {kind}"), place, paper, share.map(per_cent));
    }
    let (mut first, mut slower) = (None, vec![]);
    for nodes in NODES.into_iter().rev() {
        let [blind, home] =
            [Config::Fca100, Config::Fa].map(|config| cells.mbit(config, false, LARGE_BYTES, nodes));
        match ratio(blind, home) {
            Some(r) if r < 1.0 => slower.push(nodes.to_string()),
            Some(_) if slower.is_empty() => first = Some(nodes),
            _ => {}
        }
    }
    slower.reverse();
    row(
        "placed without a look at data, 100 % locality, is always faster than the shared file system from",
        "§4.3, figure 12",
        "more than 16 nodes",
        first.map(|nodes| format!("{nodes} nodes")),
    );
    row(
        "and is slower on",
        "§4.3, figure 12",
        "8 nodes or fewer",
        first.map(|_| if slower.is_empty() { "none".into() } else { format!("{} nodes", slower.join(", ")) }),
    );
    let wrapped = cells.find(Config::FaWrapper, false, 1, 64);
    row(
        "small files with a wrapper, 64 nodes (fitted)",
        "§4.3, figure 14",
        "21 tasks/s",
        wrapped.map(|m| format!("{} tasks/s", figure(m.tasks_per_s))),
    );
    let saved = cells.find(Config::Fa, false, 1, 64).zip(wrapped).map(|(a, b)| a.tasks_per_s / b.tasks_per_s);
    row(
        "the same without one",
        "§4.3, figure 14",
        "an order of magnitude more",
        saved.map(|times| format!("{} ×", figure(times))),
    );
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_without_results_has_the_papers_numbers_and_one_with_them_has_ours() {
        let none = section(&[], &|_, _| String::new());
        assert!(none.contains("61.7 Gb/s") && none.contains("21 tasks/s") && !none.contains("figures/"));
        let cell = Cell { config: Config::Mcu100, writes: false, file_bytes: LARGE_BYTES, nodes: 64 };
        let measured =
            Measured { cell, n_tasks: 1280, seconds: 2.0, tasks_per_s: 640.0, mbit_per_s: 71_234.0 };
        let some = section(&[measured], &|name, _| format!("({name})"));
        assert!(
            some.contains("71.2 Gb/s") && some.contains("71,234") && some.contains("(fig-12-micro-read)")
        );
        assert!(some.contains("(fig-08-micro-home-read)"));
    }

    #[test]
    fn sizes_and_rates_read_as_people_write_them() {
        let sizes = SIZES.map(bytes);
        assert_eq!(sizes.join(" "), "1 B 1 KB 10 KB 100 KB 1 MB 10 MB 100 MB 1 GB");
        assert_eq!([rate(None), rate(Some(0.00123)), rate(Some(12.3))], [NONE, "1.2e-3", "12.3"]);
    }
}
