//! `eyas-lab bench transfer`: objects from one cache to another over loopback, verified at the receiver,
//! beside one plain TCP stream, and beside `iperf3` where it is installed.

use super::table::{Row, Table};
use super::{Common, failed, median, note};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_data::bench::{Cost, Pair, Tls, tcp_stream};
use eyas_data::{ClientTls, Digest, Error};
use eyas_wire::identity::Identity;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LARGE_BYTES: u64 = 1 << 30;
const N_SMALL: usize = 10_000;
const SMALL_BYTES: u64 = 10_000;

/// Each stream and each fetch of the large object is tried this many times in a round, and the fastest try
/// counts: the memory that a fetch fills may have to come from the machine's host first, which can take any
/// time.
const N_TRIES: usize = 3;

#[derive(Args)]
pub struct TransferArgs {
    /// Number of rounds; each has all measurements, one after the other
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &TransferArgs) -> Result<Exit, Fault> {
    args.common.run(|dir| {
        let budget_bytes = LARGE_BYTES + (u64::from(args.rounds) * N_SMALL as u64 * SMALL_BYTES) + (1 << 20);
        let mut signed = Pair::new(&dir.join("signed"), budget_bytes, None).map_err(failed)?;
        let identity = Identity::generate().map_err(failed)?;
        let tls = Tls {
            server: identity.server_config().map_err(failed)?,
            client: ClientTls {
                config: identity.client_config().map_err(failed)?,
                server_name: Identity::server_name(),
            },
        };
        let mut encrypted =
            Pair::new(&dir.join("tls"), LARGE_BYTES + (1 << 20), Some(tls)).map_err(failed)?;
        let large = signed.fill(1, LARGE_BYTES).map_err(failed)?;
        let large_encrypted = encrypted.fill(1, LARGE_BYTES).map_err(failed)?;
        let gb = |cost: &Cost| cost.rate_per_s(LARGE_BYTES) / 1e9;
        let (mut raw, mut raw_cpu, mut fresh) = (vec![], vec![], vec![]);
        let (mut one, mut one_cpu) = (vec![], vec![]);
        let (mut tls, mut iperf, mut small, mut small_cpu) = (vec![], vec![], vec![], vec![]);
        for round in 1..=args.rounds {
            let fetch = |pair: &Pair, object: &[Digest]| {
                let cost = pair.fetch(object)?;
                pair.requester.remove(&object[0])?;
                Ok(cost)
            };
            let stream = fastest(|| tcp_stream(LARGE_BYTES))?;
            let first = fetch(&signed, &large).map_err(failed)?;
            let fetched = fastest(|| fetch(&signed, &large))?;
            iperf.extend((0..N_TRIES).filter_map(|_| iperf3_gb_per_s()).max_by(f64::total_cmp));
            let over_tls = fastest(|| fetch(&encrypted, &large_encrypted))?;
            // The objects are new in each round, and they are kept: deleting them would slow the next
            // round's creation.
            let many = signed.fill(N_SMALL, SMALL_BYTES).map_err(failed)?;
            let many = signed.fetch(&many).map_err(failed)?;
            raw.push(gb(&stream));
            raw_cpu.push(stream.cpu.as_secs_f64());
            fresh.push(gb(&first));
            one.push(gb(&fetched));
            one_cpu.push(fetched.cpu.as_secs_f64());
            tls.push(gb(&over_tls));
            small.push(many.rate_per_s(N_SMALL as u64));
            small_cpu.push(many.cpu.as_secs_f64() * 1e6 / N_SMALL as f64);
            note(&format!("round {round}: TCP {:.2} GB/s, one object {:.2} GB/s", gb(&stream), gb(&fetched)));
        }
        let ratio = |a: &[f64], b: &[f64]| median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>());
        let mut table =
            Table::new("transfer: one cache to another over loopback, page cache warm, digest verified");
        let row = |name: &str| Row::new(name, median(&one), "GB/s");
        if iperf.len() == one.len() {
            let row =
                row("1 GiB, signed").against_by("iperf3, one stream", median(&iperf), ratio(&one, &iperf));
            table.row(row.target("ratio 0.60", "0.85"));
        } else {
            table.note("iperf3 is not installed; the reference is a stream of this program's own.");
        }
        let against_raw = row("1 GiB, signed").against_by("plain TCP", median(&raw), ratio(&one, &raw));
        table.row(against_raw.target("ratio 0.60", "0.85"));
        table.row(
            Row::new("  its CPU, both ends", median(&one_cpu), "s").against("plain TCP", median(&raw_cpu)),
        );
        table.row(Row::new("  the first in a round", median(&fresh), "GB/s").against_by(
            "plain TCP",
            median(&raw),
            ratio(&fresh, &raw),
        ));
        table.row(Row::new("1 GiB, TLS", median(&tls), "GB/s").against_by(
            "plain TCP",
            median(&raw),
            ratio(&tls, &raw),
        ));
        let row = Row::new("10,000 objects of 10 KB, signed", median(&small), "/s");
        table.row(row.target("10,000/s", "30,000/s"));
        table.row(Row::new("  CPU, both ends", median(&small_cpu), "µs/object"));
        Ok(table)
    })
}

/// The fastest of [`N_TRIES`] tries.
fn fastest(mut one: impl FnMut() -> Result<Cost, Error>) -> Result<Cost, Fault> {
    let mut tries = (0..N_TRIES).map(|_| one()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    tries.sort_by_key(|cost| cost.wall);
    Ok(tries[0])
}

/// The rate of `iperf3` with one stream over loopback; `None` where it does not run.
fn iperf3_gb_per_s() -> Option<f64> {
    let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port().to_string();
    let quiet = |args: &[&str]| {
        let mut command = Command::new("iperf3");
        command.args(args).args(["-p", &port]).stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut server = quiet(&["-s", "-1", "-B", "127.0.0.1"]).stdout(Stdio::null()).spawn().ok()?;
    let deadline = Instant::now() + Duration::from_secs(5);
    let amount = LARGE_BYTES.to_string();
    let found = loop {
        let output = quiet(&["-c", "127.0.0.1", "-n", &amount, "-J"]).stdout(Stdio::piped()).output().ok();
        let report = output.and_then(|o| serde_json::from_slice::<serde_json::Value>(&o.stdout).ok());
        let rate = report.and_then(|r| r["end"]["sum_received"]["bits_per_second"].as_f64());
        // The server may not be listening yet.
        if rate.is_some() || Instant::now() > deadline {
            break rate;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let _ = server.kill();
    let _ = server.wait();
    found.map(|bits| bits / 8e9)
}
