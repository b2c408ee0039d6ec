//! Prints the rates of the data plane and the store next to a bare TCP stream, taken in turns.
//!
//! `cargo run --release -p eyas-data --example transfer_rate [DIR [ROUNDS]]`
//! DIR is where the caches are made (default: the temporary directory), ROUNDS how often (default 5).

use std::path::PathBuf;

use eyas_data::bench::{Pair, store_rates, tcp_stream};

const LARGE_BYTES: u64 = 1 << 30;
const N_SMALL: usize = 10_000;
const SMALL_BYTES: u64 = 10_000;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let parent = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let rounds: usize = args.next().map_or(Ok(5), |text| text.parse())?;
    let dir = parent.join(format!("eyas-transfer-rate-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let result = measure(&dir, rounds);
    std::fs::remove_dir_all(&dir)?;
    result
}

fn measure(dir: &std::path::Path, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut pair = Pair::new(dir, 2 * LARGE_BYTES + rounds as u64 * N_SMALL as u64 * SMALL_BYTES, None)?;
    let large = pair.fill(1, LARGE_BYTES)?;
    let (mut raw, mut fetch, mut ratio, mut cpu_ratio, mut objects) =
        (vec![], vec![], vec![], vec![], vec![]);
    for round in 1..=rounds {
        let stream = tcp_stream(LARGE_BYTES)?;
        // A host may take free memory back and give it again slowly: only the second fetch finds memory at hand.
        pair.fetch(&large)?;
        pair.requester.remove(&large[0])?;
        let fetched = pair.fetch(&large)?;
        pair.requester.remove(&large[0])?;
        // New ones each round, and kept: deleting them would slow the next round's creation.
        let small = pair.fill(N_SMALL, SMALL_BYTES)?;
        let small = pair.fetch(&small)?;

        let (raw_rate, fetch_rate) = (stream.rate_per_s(LARGE_BYTES), fetched.rate_per_s(LARGE_BYTES));
        let object_rate = small.rate_per_s(N_SMALL as u64);
        println!(
            "round {round}: TCP stream {:.2} GB/s ({:.2} CPU s), 1 GiB fetched at {:.2} GB/s ({:.2} CPU s), {:.0} %; \
             10 KB objects {object_rate:.0}/s ({:.0} CPU µs each)",
            raw_rate / 1e9,
            stream.cpu.as_secs_f64(),
            fetch_rate / 1e9,
            fetched.cpu.as_secs_f64(),
            100.0 * fetch_rate / raw_rate,
            small.cpu.as_secs_f64() * 1e6 / N_SMALL as f64
        );
        raw.push(raw_rate);
        fetch.push(fetch_rate);
        ratio.push(fetch_rate / raw_rate);
        cpu_ratio.push(fetched.cpu.as_secs_f64() / stream.cpu.as_secs_f64());
        objects.push(object_rate);
    }
    println!(
        "medians: TCP stream {:.2} GB/s, 1 GiB fetched at {:.2} GB/s, {:.0} % of it at {:.1} times its CPU time; \
         10 KB objects {:.0}/s",
        median(raw) / 1e9,
        median(fetch) / 1e9,
        100.0 * median(ratio),
        median(cpu_ratio),
        median(objects)
    );
    drop(pair);
    let rates = store_rates(&dir.join("store"), N_SMALL, SMALL_BYTES)?;
    println!(
        "store, 10 KB objects: put {:.0}/s, export {:.0}/s, remove {:.0}/s",
        rates.put_per_s, rates.export_per_s, rates.remove_per_s
    );
    Ok(())
}
