//! The tuple that describes one experiment (`Miceli10`, equation 4.2 and table 1), and the experiments of each figure.

use serde::Serialize;
use std::fmt;

/// Size of a file of a set, in the paper's MB. Real files are smaller by the scale of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
pub enum Chunk {
    #[serde(rename = "287 MB")]
    Whole,
    #[serde(rename = "144 MB")]
    Half,
}

impl Chunk {
    pub fn megabytes(self) -> u64 {
        match self {
            Chunk::Whole => 287,
            Chunk::Half => 144,
        }
    }
}

/// Which machines compute and which store data (table 1). Machines are numbered from 1 as X_1, X_2, X_3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
pub enum Machines {
    C1,
    C2,
    C3,
    C4,
    C5,
}

impl Machines {
    pub fn that_compute(self) -> &'static [u32] {
        match self {
            Machines::C1 | Machines::C2 | Machines::C3 => &[1],
            Machines::C4 => &[1, 2],
            Machines::C5 => &[1, 2, 3],
        }
    }

    pub fn that_store(self) -> &'static [u32] {
        match self {
            Machines::C1 => &[1],
            Machines::C2 => &[2],
            Machines::C3 | Machines::C4 => &[1, 2],
            Machines::C5 => &[1, 2, 3],
        }
    }

    /// How many workers each machine has that computes and has a worker. They are dealt out one by one.
    pub fn workers(self, n_workers: u32) -> Vec<(u32, u32)> {
        let all = self.that_compute();
        let n = all.len() as u32;
        let of = |at: u32| n_workers / n + u32::from(at < n_workers % n);
        all.iter().zip(0..).map(|(machine, at)| (*machine, of(at))).filter(|(_, n)| *n > 0).collect()
    }
}

/// The file system and the method that reaches it: `fs` and `m` of the tuple.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// (local, local): files of the machine that computes, read where they are.
    Local,
    /// (local, GRIDFTP), experiment I: every task fetches all its files by GridFTP, from its own machine too; the first free worker
    /// gets the next task.
    #[serde(rename = "gridftp")]
    GridFtp,
    /// (local, eyas), in place of experiment II: eyas knows where files lie, sends tasks there, and has its caches fetch what is
    /// missing from the machine that has it.
    Placed,
    /// (HDFS, direct), in place of (CloudStore, direct): every task reads all its files from HDFS, which chooses the copy.
    Hdfs,
    /// (HDFS, eyas): eyas asks HDFS where files lie, sends tasks there, and keeps what it has read in caches.
    HdfsPlaced,
    /// (S3, direct): every task fetches all its files from one server of S3.
    S3,
}

impl Access {
    pub const ALL: [Access; 6] =
        [Access::Local, Access::GridFtp, Access::Placed, Access::Hdfs, Access::HdfsPlaced, Access::S3];

    pub fn placement(self) -> &'static str {
        match self {
            Access::Placed | Access::HdfsPlaced => "affinity",
            _ => "first-available",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Access::Local => "local",
            Access::GridFtp => "gridftp",
            Access::Placed => "placed",
            Access::Hdfs => "hdfs",
            Access::HdfsPlaced => "hdfs-placed",
            Access::S3 => "s3",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
pub struct Tuple {
    /// c_s
    pub chunk: Chunk,
    /// N_c: tasks of the run
    pub assignments: u32,
    /// M_c
    pub machines: Machines,
    pub access: Access,
    /// r
    pub replicas: u32,
    /// N_w, of all machines together
    pub workers: u32,
    /// Whether genomes are compared, or only read (t_compute = 0)
    pub compares: bool,
}

impl Tuple {
    /// The files of each of the two sets. All files together have N_c × c_s bytes, as in the paper.
    pub fn set_len(&self) -> u32 {
        self.assignments / 2
    }

    /// Files of the first and of the second set in one task, so that there are N_c tasks.
    pub fn tile(&self) -> (u32, u32) {
        let pairs = self.set_len().pow(2) / self.assignments;
        let rows = (1..=pairs).rev().find(|rows| pairs.is_multiple_of(*rows) && rows * rows <= pairs);
        let rows = rows.unwrap_or(1);
        (rows, pairs / rows)
    }

    /// Which of the machines that store has file `n` of a set: equal parts, neighbours together.
    pub fn machine_of(&self, n: u32) -> u32 {
        let stores = self.machines.that_store();
        stores[(n as usize * stores.len()) / self.set_len() as usize]
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuple { chunk, assignments, machines, access, replicas, workers, compares } = self;
        let compared = if *compares { ", compared" } else { "" };
        write!(
            f,
            "({} MB, {assignments}, {machines:?}, {access}, r = {replicas}), N_w = {workers}{compared}",
            chunk.megabytes()
        )
    }
}

/// The figures that can be made.
pub const FIGURES: std::ops::RangeInclusive<u8> = 3..=7;

const WORKERS: [u32; 4] = [1, 2, 4, 8];

/// All experiments of a figure.
pub fn experiments(figure: u8, only_two_workers: bool) -> Vec<Tuple> {
    let mut all = vec![];
    let mut add = |access: Access, machines: Machines, replicas: u32, chunk, assignments, compares| {
        let placed = access == Access::Placed;
        let counts: &[u32] = match (machines, placed) {
            _ if only_two_workers && !(placed && machines == Machines::C5) => &[2],
            _ if only_two_workers => &[3],
            (Machines::C4, _) => &WORKERS[1..],
            // An owner of files needs an executor, so eyas has at least one worker on each of them.
            (Machines::C5, true) => &[3, 4, 8],
            (Machines::C5, false) => &WORKERS[1..],
            _ => &WORKERS,
        };
        all.extend(counts.iter().map(|&workers| Tuple {
            chunk,
            assignments,
            machines,
            access,
            replicas,
            workers,
            compares,
        }));
    };
    use Chunk::{Half, Whole};
    use Machines::*;
    match figure {
        3 => {
            add(Access::Local, C1, 1, Whole, 8, false);
            add(Access::Local, C1, 1, Half, 16, false);
            add(Access::Local, C1, 1, Half, 8, false);
            for machines in [C1, C2, C3, C4, C5] {
                add(Access::GridFtp, machines, 1, Whole, 8, false);
            }
            for machines in [C4, C5] {
                add(Access::Placed, machines, 1, Whole, 8, false);
            }
        }
        4 => {
            for (machines, replicas) in STORED {
                add(Access::Hdfs, machines, replicas, Whole, 8, false);
            }
        }
        5 | 6 => {
            for (machines, replicas) in STORED {
                let other = if figure == 5 { (Half, true) } else { (Whole, false) };
                add(Access::Hdfs, machines, replicas, Half, 8, false);
                add(Access::Hdfs, machines, replicas, other.0, 8, other.1);
            }
        }
        _ => {
            for machines in [C1, C4, C5] {
                add(Access::Hdfs, machines, 1, Whole, 8, false);
                add(Access::HdfsPlaced, machines, 1, Whole, 8, false);
                add(Access::Placed, machines, 1, Whole, 8, false);
            }
            // The paper has no S3. Beside it stands what the others take for data on another machine.
            for access in [Access::S3, Access::GridFtp, Access::Hdfs] {
                add(access, C2, 1, Whole, 8, false);
            }
        }
    }
    all
}

/// Configurations of the figures with a distributed file system, and the degrees of replication.
pub const STORED: [(Machines, u32); 8] = [
    (Machines::C1, 1),
    (Machines::C2, 1),
    (Machines::C3, 1),
    (Machines::C4, 1),
    (Machines::C4, 2),
    (Machines::C5, 1),
    (Machines::C5, 2),
    (Machines::C5, 3),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_and_bytes_are_the_papers() {
        for tuple in FIGURES.flat_map(|figure| experiments(figure, false)) {
            let (rows, columns) = tuple.tile();
            let n = tuple.set_len();
            assert_eq!(n.div_ceil(rows) * n.div_ceil(columns), tuple.assignments, "{tuple}");
            assert_eq!(2 * n, tuple.assignments, "{tuple}");
            assert!(tuple.replicas as usize <= tuple.machines.that_store().len(), "{tuple}");
        }
    }

    #[test]
    fn workers_are_dealt_out() {
        assert_eq!(Machines::C5.workers(2), [(1, 1), (2, 1)]);
        assert_eq!(Machines::C5.workers(8), [(1, 3), (2, 3), (3, 2)]);
        assert_eq!(Machines::C2.workers(4), [(1, 4)]);
        let of = |machines, workers| {
            let all = experiments(3, false);
            let found = all.into_iter().find(|t| t.machines == machines && t.workers == workers);
            found.expect("an experiment of figure 3")
        };
        let two = of(Machines::C4, 2);
        assert_eq!([0, 1, 2, 3].map(|n| two.machine_of(n)), [1, 1, 2, 2]);
        let three = of(Machines::C5, 4);
        assert_eq!([0, 1, 2, 3].map(|n| three.machine_of(n)), [1, 1, 2, 3]);
    }
}
