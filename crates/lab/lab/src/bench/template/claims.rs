//! What the paper's text says of its figures, beside what came out here.
//!
//! The paper states few numbers in its text; most sentences say what is larger, and its figures are pictures. So a row compares
//! two times of ours, and has the paper's word at its end. A row takes the medians over all numbers of workers that both sides
//! have, where it does not say another thing.

use super::super::median;
use super::super::table::{Row, Table};
use super::tuple::{Access, Chunk, Machines, STORED, Tuple};
use super::{Outcomes, Times};
use Access::{GridFtp, Hdfs, HdfsPlaced, Local, Placed, S3};
use Chunk::{Half, Whole};
use Machines::{C1, C2, C3, C4, C5};

/// A curve of a figure: a tuple for all numbers of workers.
#[derive(Clone, Copy)]
struct Curve {
    access: Access,
    machines: Machines,
    replicas: u32,
    chunk: Chunk,
    assignments: u32,
    compares: bool,
}

fn curve(access: Access, machines: Machines) -> Curve {
    Curve { access, machines, replicas: 1, chunk: Whole, assignments: 8, compares: false }
}

const COUNTS: [u32; 5] = [1, 2, 3, 4, 8];

impl Curve {
    fn half(self) -> Curve {
        Curve { chunk: Half, ..self }
    }

    fn copies(self, replicas: u32) -> Curve {
        Curve { replicas, ..self }
    }

    fn at(self, workers: u32) -> Tuple {
        let Curve { access, machines, replicas, chunk, assignments, compares } = self;
        Tuple { chunk, assignments, machines, access, replicas, workers, compares }
    }

    fn find(self, outcomes: &Outcomes, workers: u32) -> Option<Times> {
        outcomes.find(&self.at(workers)).copied()
    }

    fn least(self, outcomes: &Outcomes) -> Option<f64> {
        let all = COUNTS.iter().filter_map(|n| Some(self.find(outcomes, *n)?.t_c));
        all.min_by(f64::total_cmp)
    }
}

/// Adds rows to the table, as far as their experiments were run.
struct Claims<'a> {
    outcomes: &'a Outcomes,
    table: &'a mut Table,
}

impl Claims<'_> {
    /// t_c of one curve beside that of another one.
    fn beside(&mut self, what: &str, ours: Curve, beside: &'static str, other: Curve, paper: &'static str) {
        let both = COUNTS
            .iter()
            .filter_map(|n| Some((ours.find(self.outcomes, *n)?.t_c, other.find(self.outcomes, *n)?.t_c)));
        let (ours, others): (Vec<f64>, Vec<f64>) = both.unzip();
        if ours.is_empty() {
            return;
        }
        let ratios: Vec<f64> = ours.iter().zip(&others).map(|(a, b)| a / b).collect();
        let row = Row::new(what, median(&ours), "s");
        self.table.row(row.against_by(beside, median(&others), median(&ratios)).paper(paper));
    }

    /// t_c with the most workers beside that with the fewest.
    fn workers(&mut self, what: &str, of: Curve, paper: &'static str) {
        let all: Vec<(u32, f64)> =
            COUNTS.iter().filter_map(|n| Some((*n, of.find(self.outcomes, *n)?.t_c))).collect();
        let [(_, few), .., (n, many)] = all[..] else { return };
        let row = Row::new(format!("{what}: {n} workers"), many, "s");
        self.table.row(row.against("the fewest", few).paper(paper));
    }

    fn least(&mut self, what: &str, ours: Curve, beside: &'static str, other: Curve, paper: &'static str) {
        if let (Some(ours), Some(other)) = (ours.least(self.outcomes), other.least(self.outcomes)) {
            self.table.row(Row::new(what, ours, "s").against(beside, other).paper(paper));
        }
    }
}

pub fn rows(figure: u8, outcomes: &Outcomes, table: &mut Table) {
    let mut claims = Claims { outcomes, table };
    match figure {
        3 => figure_3(&mut claims),
        4 => figure_4(&mut claims),
        5 => figure_5(&mut claims),
        6 => figure_6(&mut claims),
        _ => figure_7(&mut claims),
    }
}

fn figure_3(claims: &mut Claims<'_>) {
    let local = curve(Local, C1);
    let remote = |machines| curve(GridFtp, machines);
    claims.beside("3a: local, 287 MB", local, "144 MB, 8 tasks", local.half(), "about 2");
    let more = Curve { assignments: 16, ..local.half() };
    claims.beside("3a: local, 144 MB, 16 tasks", more, "287 MB, 8 tasks", local, "above 1");
    claims.workers("3a: local, 287 MB", local, "below 1, to an I/O bound");
    claims.beside("3: C1, GridFTP", remote(C1), "local", local, "above 1");
    claims.beside("3b: C2, GridFTP", remote(C2), "C1", remote(C1), "above 1");
    claims.beside("3b: C2, GridFTP", remote(C2), "C3", remote(C3), "above 1");
    claims.beside("3b: C4, GridFTP", remote(C4), "C3", remote(C3), "below 1");
    claims.beside("3b: C4, GridFTP", remote(C4), "C1", remote(C1), "above 1");
    claims.workers("3b: C1, GridFTP", remote(C1), "about 1: an I/O bound");
    claims.workers("3b: C2, GridFTP", remote(C2), "below 1");
    claims.workers("3b: C4, GridFTP", remote(C4), "below 1");
    claims.beside("3b: C4, placed by where data are", curve(Placed, C4), "GridFTP", remote(C4), "below 1");
    claims.beside("3b: C5, placed by where data are", curve(Placed, C5), "GridFTP", remote(C5), "about 1");
}

fn figure_4(claims: &mut Claims<'_>) {
    let of = |machines| curve(Hdfs, machines);
    claims.beside("4a: C2, HDFS", of(C2), "C1", of(C1), "above 1");
    claims.beside("4a: C2, HDFS", of(C2), "C3", of(C3), "above 1");
    claims.beside("4a: C4, HDFS", of(C4), "C3", of(C3), "below 1");
    claims.beside("4a: C4, r = 2", of(C4).copies(2), "r = 1", of(C4), "below 1, not by much");
    claims.beside("4b: C5, r = 2", of(C5).copies(2), "r = 1", of(C5), "about 1");
    claims.beside("4b: C5, r = 3", of(C5).copies(3), "r = 1", of(C5), "about 1");
    for n in [2, 8] {
        let [three, one] = [3, 1].map(|r| of(C5).copies(r).find(claims.outcomes, n));
        if let (Some(three), Some(one)) = (three, one) {
            let row = Row::new(format!("4b: C5, r = 3, {n} workers"), three.t_c, "s");
            let paper = if n == 2 { "differs" } else { "about 1" };
            claims.table.row(row.against("r = 1", one.t_c).paper(paper));
        }
    }
}

fn figure_5(claims: &mut Claims<'_>) {
    for (machines, replicas) in STORED {
        let null = curve(Hdfs, machines).half().copies(replicas);
        let compared = Curve { compares: true, ..null };
        let name = format!("5: {machines:?}, r = {replicas}, genomes compared");
        claims.beside(&name, compared, "only read", null, "above 1, by overhead");
    }
    let all: Vec<Times> = claims.outcomes.0.values().filter(|o| o.tuple.compares).map(|o| o.times).collect();
    if !all.is_empty() {
        let of = |part: fn(&Times) -> f64| median(&all.iter().map(part).collect::<Vec<f64>>());
        let row = Row::new("5: t_compute, all configurations", of(|t| t.t_compute), "s");
        claims.table.row(row.against("t_x + t_I/O", of(|t| t.t_x + t.t_io)).paper("about 0.01"));
    }
}

fn figure_6(claims: &mut Claims<'_>) {
    for (machines, replicas) in STORED {
        let whole = curve(Hdfs, machines).copies(replicas);
        let name = format!("6: {machines:?}, r = {replicas}, 287 MB");
        claims.beside(&name, whole, "144 MB", whole.half(), "mostly below 2: an overhead");
    }
    for (machines, replicas) in STORED {
        let whole = curve(Hdfs, machines).copies(replicas);
        let overheads = COUNTS.iter().filter_map(|n| {
            let half = whole.half().find(claims.outcomes, *n)?.t_c;
            Some(2.0 * half - whole.find(claims.outcomes, *n)?.t_c)
        });
        let overheads: Vec<f64> = overheads.collect();
        if !overheads.is_empty() {
            let row = Row::new(format!("6b: t_OH, {machines:?}, r = {replicas}"), median(&overheads), "s");
            claims.table.row(row.paper(if machines == C2 { "above 0, the most of all" } else { "above 0" }));
        }
    }
}

fn figure_7(claims: &mut Claims<'_>) {
    let heuristic = |machines| curve(Placed, machines);
    let of = |machines| curve(Hdfs, machines);
    for (name, machines, paper) in [
        ("7a: one machine, HDFS, least", C1, "below 1"),
        ("7a: two machines, HDFS, least", C4, "below 1"),
        ("7a: three machines, HDFS, least", C5, "above 1"),
    ] {
        claims.least(name, of(machines), "placed", heuristic(machines), paper);
    }
    claims.least("7a: placed, three machines, least", heuristic(C5), "one machine", heuristic(C1), "about 1");
    claims.least("7a: HDFS, three machines, least", of(C5), "one machine", of(C1), "above 1");
    claims.workers("7b: three machines, HDFS", of(C5), "about 1");
    claims.workers("7b: three machines, placed", heuristic(C5), "below 1");
    for (name, machines) in
        [("7: two machines, HDFS, placed and cached", C4), ("7: three machines, HDFS, placed and cached", C5)]
    {
        claims.beside(name, curve(HdfsPlaced, machines), "direct", of(machines), "not there");
    }
    claims.beside("7: data elsewhere (C2), S3", curve(S3, C2), "GridFTP", curve(GridFtp, C2), "not there");
    claims.beside("7: data elsewhere (C2), HDFS", of(C2), "GridFTP", curve(GridFtp, C2), "not there");
}
