//! The genomes that are compared, and the program that a pair runs.
//!
//! A genome is a text of genes, one on each line. Two genomes have a known share of their genes in common, so the matrix of a run
//! can be checked. The program reads both files into memory, compares them if it is asked to, and adds a line with the times of
//! both to a file.

use super::super::failed;
use clap::Args;
use eyas_cli::{Exit, Fault};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a gene with its line break.
pub const GENE_BYTES: u64 = 1000;

/// How many genes in ten a file of the first or of the second set has from the common stock.
fn tenths(is_first: bool, n: u32) -> u64 {
    let n = u64::from(n % 9);
    if is_first { 1 + n } else { 9 - n }
}

/// Writes file `n` of the first or the second set, of so many bytes; a rest of less than a gene is left out.
pub fn write(path: &Path, is_first: bool, n: u32, bytes: u64) -> Result<(), Fault> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let common = tenths(is_first, n);
    let own = (2 * u64::from(n) + u64::from(is_first) + 1) << 40;
    for gene in 0..bytes / GENE_BYTES {
        let from = if gene % 10 < common { gene } else { own | gene };
        file.write_all(&text(from))?;
    }
    // Pages that are on the disk can be dropped from memory before each run.
    file.into_inner().map_err(failed)?.sync_all()?;
    Ok(())
}

/// A gene by its number (xorshift64, Marsaglia 2003).
fn text(number: u64) -> [u8; GENE_BYTES as usize] {
    let mut gene = [b'\n'; GENE_BYTES as usize];
    let mut state = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let n = gene.len() - 1;
    for bases in gene[..n].chunks_mut(32) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (at, base) in bases.iter_mut().enumerate() {
            *base = b"ACGT"[(state >> (2 * at)) as usize & 3];
        }
    }
    gene
}

/// What the program prints for a pair: with `compares`, how many genes of the first file the second one has, too, in per cent;
/// otherwise how many bytes both have.
pub fn expected(first: u32, second: u32, bytes: u64, compares: bool) -> f64 {
    let n_genes = bytes / GENE_BYTES;
    if !compares {
        return (2 * n_genes * GENE_BYTES) as f64;
    }
    let common = tenths(true, first).min(tenths(false, second));
    100.0 * (0..n_genes).filter(|gene| gene % 10 < common).count() as f64 / n_genes as f64
}

fn likeness(first: &[u8], second: &[u8]) -> f64 {
    let genes: HashSet<&[u8]> = second.split_inclusive(|byte| *byte == b'\n').collect();
    let (mut n_genes, mut n_found) = (0u64, 0u64);
    for gene in first.split_inclusive(|byte| *byte == b'\n') {
        n_genes += 1;
        n_found += u64::from(genes.contains(gene));
    }
    100.0 * n_found as f64 / n_genes as f64
}

#[derive(Args)]
pub struct PairArgs {
    /// The file that gets a line with the times
    #[arg(long)]
    times: PathBuf,
    /// Compare the genomes
    #[arg(long)]
    compare: bool,
    a: PathBuf,
    b: PathBuf,
}

/// The times of one pair, in nanoseconds.
#[derive(Serialize, Deserialize)]
pub struct Times {
    pub read_ns: u64,
    pub compute_ns: u64,
}

/// The program of a pair.
pub fn pair(args: &PairArgs) -> Result<Exit, Fault> {
    let ns = |begun: Instant| begun.elapsed().as_nanos() as u64;
    let begun = Instant::now();
    let (a, b) = (std::fs::read(&args.a)?, std::fs::read(&args.b)?);
    let read_ns = ns(begun);
    let begun = Instant::now();
    let (value, compute_ns) = match args.compare {
        true => (likeness(&a, &b), ns(begun)),
        false => ((a.len() + b.len()) as f64, 0),
    };
    let line = serde_json::to_string(&Times { read_ns, compute_ns }).map_err(failed)? + "\n";
    // One write to a file that is open for appending: lines of several programs do not mix.
    OpenOptions::new().append(true).create(true).open(&args.times)?.write_all(line.as_bytes())?;
    show!("{value}");
    Ok(Exit::Good)
}

/// The sums of all times in the file.
pub fn sums(times: &Path) -> Result<Times, Fault> {
    let mut sum = Times { read_ns: 0, compute_ns: 0 };
    for line in std::fs::read_to_string(times)?.lines() {
        let one: Times = serde_json::from_str(line).map_err(failed)?;
        sum.read_ns += one.read_ns;
        sum.compute_ns += one.compute_ns;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn genomes_have_the_share_in_common_that_is_expected() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = 57 * GENE_BYTES + 3;
        let file = |is_first, n| {
            let path = dir.path().join(format!("{is_first}{n}"));
            write(&path, is_first, n, bytes).unwrap();
            std::fs::read(path).unwrap()
        };
        for (first, second) in [(0, 0), (3, 1), (8, 7), (10, 3)] {
            let (a, b) = (file(true, first), file(false, second));
            assert_eq!(a.len() as u64, 57 * GENE_BYTES);
            assert_eq!(likeness(&a, &b), expected(first, second, bytes, true));
        }
    }
}
