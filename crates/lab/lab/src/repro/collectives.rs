//! The page on Zhang12: figures 1, 9 and 12 and table I, simulated.

use super::format::{NONE, Table, change, figure, per_cent};
use eyas_cli::print::count;
use eyas_papers::experiment::scripting::{self, CoreTime, NODES, Pattern9, Point, Resources, Scaled};
use serde::{Deserialize, Serialize};

pub const COMMAND: &str = "`eyas-lab repro --only collectives`";

/// The results of the simulations.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Scripting {
    pub curves: Vec<Point>,
    pub montage: Vec<CoreTime>,
    pub blast: Vec<Scaled>,
    pub resources: Vec<Resources>,
}

/// Simulates all of it, the patterns beside the applications; `note` is called with the progress.
pub fn simulate(note: &(dyn Fn(&str) + Sync)) -> Result<Scripting, String> {
    let curves = || -> Result<Vec<Point>, String> {
        let mut curves = vec![];
        for (pattern, bytes, nodes) in scripting::points() {
            curves.push(scripting::point(pattern, bytes, nodes)?);
            if nodes == NODES[NODES.len() - 1] {
                note(&format!("{}, {} on {} nodes", pattern.name(), size(bytes), count(nodes.into())));
            }
        }
        Ok(curves)
    };
    std::thread::scope(|scope| {
        let curves = scope.spawn(curves);
        let montage = scripting::montage()?;
        note("Montage");
        let mut blast = vec![];
        for cores in scripting::BLAST_CORES {
            blast.push(scripting::blast(cores)?);
            note(&format!("BLAST on {} cores", count(cores.into())));
        }
        let curves = curves.join().expect("no thread panics")?;
        Ok(Scripting { curves, montage, blast, resources: scripting::resources()? })
    })
}

fn size(bytes: u64) -> String {
    match bytes {
        n if n >= 1_000_000 => format!("{} MB", n / 1_000_000),
        n => format!("{} KB", n / 1_000),
    }
}

fn seconds(s: f64) -> String {
    format!("{} s", figure(s))
}

/// * `drawing`: the drawing of a name and title, if there is one.
pub fn page(all: Option<&Scripting>, drawing: &dyn Fn(&str, &str) -> String) -> String {
    let mut text = include_str!("notes/collectives.md").to_string();
    let Some(all) = all else {
        return text + &format!("**Nothing is here yet:** the experiments were not run; {COMMAND} does.\n");
    };
    text += &core_time(&all.montage);
    text += &drawing("zhang-fig-01-montage", "Figure 1: where the time of 512 cores goes in Montage");
    text += include_str!("notes/collectives-montage.md");
    text += &resources(&all.resources);
    text += "## Patterns on up to 8,192 nodes (figure 9)\n\n";
    text += include_str!("notes/collectives-curves.md");
    for pattern in Pattern9::ALL {
        for &bytes in pattern.sizes() {
            text += &curve(&all.curves, pattern, bytes);
        }
        let name = format!("zhang-fig-09-{}", pattern.name());
        text += &drawing(&name, &format!("Figure 9: {}", pattern.name()));
    }
    text += include_str!("notes/collectives-curves-why.md");
    text += &scaled(&all.blast);
    text += &drawing("zhang-fig-12-blast", "Figure 12: BLAST with more cores and more queries");
    text += include_str!("notes/collectives-blast.md");
    text += &format!("Everything on this page is given by {COMMAND}, and is the same on every machine.\n");
    text
}

fn core_time(all: &[CoreTime]) -> String {
    let mut text = include_str!("notes/collectives-fig1.md").to_string();
    let mut table =
        Table::new(["512 cores", "computing", "moving files", "idle", "makespan", "bytes from and to home"]);
    let paper = ["paper, files on GPFS", "13.4 %", "73.6 %", "13.0 %", NONE, NONE];
    table.row(paper.map(String::from).to_vec());
    for of in all {
        table.row(vec![
            format!("eyas, {}", of.what),
            per_cent(of.computing),
            per_cent(of.moving),
            per_cent(of.idle),
            seconds(of.makespan_s),
            format!("{} GB", figure(of.home_bytes / 1e9)),
        ]);
    }
    text += &table.text();
    text
}

/// Words for the least, the middle and the greatest of three.
fn ranks(values: [f64; 3]) -> [&'static str; 3] {
    values.map(|v| ["low", "mid", "high"][values.iter().filter(|other| **other < v).count()])
}

fn resources(all: &[Resources]) -> String {
    let mut text = include_str!("notes/collectives-table1.md").to_string();
    let mut table = Table::new([
        "application",
        "CPU: paper",
        "eyas",
        "computing, per task",
        "disk I/O: paper",
        "eyas",
        "different files, per second of computing",
        "read and written, per second of computing",
        "memory: paper",
        "eyas",
    ]);
    let [a, b, c] = all else { return text };
    let three = [a, b, c];
    let cpu = ranks(three.map(Resources::compute_s_per_task));
    let disk = ranks(three.map(Resources::mb_per_compute_s));
    let said = [("low", "high", "low"), ("mid", "low", "high"), ("high", "mid", "mid")];
    for (i, of) in three.into_iter().enumerate() {
        let mb = |bytes: f64| format!("{} MB", figure(bytes / 1e6 / of.compute_s));
        let (said_cpu, said_disk, said_memory) = said[i];
        table.row(vec![
            of.shape.clone(),
            said_cpu.into(),
            cpu[i].into(),
            seconds(of.compute_s_per_task()),
            said_disk.into(),
            disk[i].into(),
            mb(of.file_bytes),
            mb(of.touched_bytes),
            said_memory.into(),
            NONE.into(),
        ]);
    }
    text += &table.text();
    text
}

fn curve(all: &[Point], pattern: Pattern9, bytes: u64) -> String {
    let what = match pattern {
        Pattern9::Multicast => format!("a file of {} to all other nodes", size(bytes)),
        Pattern9::Scatter => format!("{} in all, from one node to the others", size(bytes)),
        Pattern9::Gather => format!("{} in all, from the others to one node", size(bytes)),
        Pattern9::Reduce => format!("{} at each node", size(bytes)),
    };
    let mut name = pattern.name().to_string();
    name[..1].make_ascii_uppercase();
    let mut text = format!("### {name}: {what}\n\n");
    let mut heads = vec!["nodes", "eyas", "way that was chosen"];
    let is_reduce = pattern == Pattern9::Reduce;
    match pattern {
        Pattern9::Multicast => heads.extend(["expected by eyas", "nearest to the paper's tree"]),
        Pattern9::Scatter | Pattern9::Gather => heads.extend(["expected by eyas", "each node by itself"]),
        Pattern9::Reduce => {}
    }
    heads.extend(["the paper's model", "eyas against it"]);
    let mut table = Table::new(heads);
    for nodes in NODES {
        let Some(p) = all.iter().find(|p| (p.pattern, p.bytes, p.nodes) == (pattern, bytes, nodes)) else {
            continue;
        };
        let mut row = vec![count(nodes.into()), seconds(p.seconds), p.way.clone()];
        if !is_reduce {
            row.extend([p.expected_s, p.beside_s].map(|s| s.map_or(NONE.into(), seconds)));
        }
        row.extend([seconds(p.papers_model_s), change(p.seconds / p.papers_model_s)]);
        table.row(row);
    }
    text += &table.text();
    text
}

fn scaled(all: &[Scaled]) -> String {
    let mut text = include_str!("notes/collectives-fig12.md").to_string();
    let mut table = Table::new([
        "cores",
        "tasks",
        "makespan",
        "against 256 cores",
        "cores computing",
        "from and to home",
        "between nodes",
    ]);
    for of in all {
        table.row(vec![
            count(of.cores.into()),
            count(of.n_tasks),
            seconds(of.makespan_s),
            change(of.makespan_s / all[0].makespan_s),
            per_cent(of.computing),
            format!("{} GB", figure(of.home_bytes / 1e9)),
            format!("{} GB", figure(of.peer_bytes / 1e9)),
        ]);
    }
    text += &table.text();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_results_says_so_and_one_with_them_has_the_paper_beside_ours() {
        assert!(page(None, &|_, _| String::new()).contains("were not run"));
        let point = |pattern: Pattern9| Point {
            pattern,
            bytes: pattern.sizes()[0],
            nodes: 64,
            way: "a tree".into(),
            seconds: 1.5,
            expected_s: None,
            beside_s: Some(2.0),
            papers_model_s: 1.0,
        };
        let time = CoreTime {
            what: "as it is".into(),
            makespan_s: 100.0,
            computing: 0.5,
            moving: 0.3,
            idle: 0.2,
            home_bytes: 1e9,
        };
        let resources = scripting::resources().expect("they can be drawn");
        let all = Scripting {
            curves: Pattern9::ALL.map(point).into(),
            montage: vec![time],
            blast: vec![],
            resources,
        };
        let text = page(Some(&all), &|_, _| String::new());
        for said in [
            "73.6 %",
            "### Scatter: 64 MB in all",
            "+50 %",
            "| montage | low | low |",
            "| blast | high | high |",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn three_values_are_low_mid_and_high() {
        assert_eq!(ranks([2.0, 3.0, 1.0]), ["mid", "high", "low"]);
    }
}
