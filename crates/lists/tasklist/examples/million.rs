//! Writes a task list of N lines into a pipe and reads it: lines per second of CPU, memory, bytes per task.
//!
//! `cargo run --release -p eyas-tasklist --example million [N] [plain|pairs|mixed|ids]`

use std::io::{BufReader, Write};
use std::path::Path;
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let n: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let kind = args.next().unwrap_or("plain".into());
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let written = std::thread::spawn({
        let kind = kind.clone();
        move || {
            let mut n_bytes = 0;
            let mut block = Vec::new();
            for i in 0..n {
                let before = block.len();
                line(&kind, i, &mut block);
                n_bytes += (block.len() - before) as u64;
                if block.len() > 1 << 20 {
                    writer.write_all(&block).expect("the pipe takes it");
                    block.clear();
                }
            }
            writer.write_all(&block).expect("the pipe takes it");
            n_bytes
        }
    });
    let before_bytes = peak_bytes();
    let start = (Instant::now(), cpu_seconds());
    let options = eyas_tasklist::ReadOptions::default();
    let list = match eyas_tasklist::read(
        BufReader::with_capacity(1 << 20, reader),
        Path::new("/home/a"),
        &options,
    ) {
        Ok(list) => list,
        Err(error) => return eprintln!("error: {error}"),
    };
    let (seconds, busy) = (start.0.elapsed().as_secs_f64(), cpu_seconds() - start.1);
    let n_bytes = written.join().expect("the writer ended well");
    let folded: usize = list.arrays.iter().map(|a| a.heap_bytes()).sum();
    println!(
        "{kind}: {n} lines, {:.0} MB of JSON, {:.2} s ({busy:.2} s of CPU: {:.0} lines/s), {} arrays, {:.1} B of columns a task, \
         {:.1} B peak a task, {} dependencies",
        n_bytes as f64 / 1e6,
        seconds,
        n as f64 / busy,
        list.arrays.len(),
        folded as f64 / n as f64,
        (peak_bytes() - before_bytes) as f64 / n as f64,
        list.n_dependencies,
    );
}

fn line(kind: &str, i: u64, out: &mut Vec<u8>) {
    // A cheap scramble, so that names are neither sorted nor counting.
    let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let _ = match kind {
        "pairs" => writeln!(
            out,
            r#"{{"command": ["cmp", "{a:08x}.dat", "{b:08x}.dat", "-o", "r.txt"], "inputs": {{"{a:08x}.dat": "data/{d}/{a:08x}.dat", "{b:08x}.dat": "data/{e}/{b:08x}.dat"}}, "outputs": {{"r.txt": "res/{a:08x}-{b:08x}-{i}.txt"}}, "cpus": 1, "memory": "1GiB"}}"#,
            a = x >> 32,
            b = (x & 0xffff_ffff) | 1,
            d = x % 100,
            e = (x >> 8) % 100,
        ),
        "mixed" => writeln!(
            out,
            r#"{{"command": ["step{k}", "in", "out"], "inputs": {{"in": "s{k}/{i}.dat"}}, "outputs": {{"out": "s{next}/{i}.dat"}}, "label": "step{k}"}}"#,
            i = i / 3,
            k = i % 3,
            next = i % 3 + 1,
        ),
        "ids" => writeln!(out, r#"{{"id": "{x:016x}", "command": ["true"]}}"#),
        _ => writeln!(
            out,
            r#"{{"id": "cut-{i:07}", "command": ["python3", "cut.py", "img-{x:016x}.fits.gz", "img-{x:016x}.npy"], "inputs": {{"img-{x:016x}.fits.gz": "/data/sky/img-{x:016x}.fits.gz", "cut.py": "cut.py"}}, "outputs": {{"img-{x:016x}.npy": "cut/img-{x:016x}.npy"}}, "walltime": "5m"}}"#
        ),
    };
}

/// What this thread has computed; the wall clock of a busy machine says little.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

/// The most memory that this process has had, as the kernel counts it.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0u64) * 1024
}
