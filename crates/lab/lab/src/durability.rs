//! `eyas-lab durability`: how likely it is that a catalog loses a file within ten years.
//!
//! Out: two tables. In the first one things go wrong far more often than they do, so that a simulation sees enough losses to be
//! compared with the Markov chain; each row but the first ones breaks one assumption of the chain. The second one has rates that a
//! laboratory may have. Both run the core's own decisions of copies and audits (`eyas_papers::durability`).

use clap::Args;
use eyas_cli::print::{plural, size};
use eyas_cli::sim::bad;
use eyas_cli::{Exit, Fault};
use eyas_keeping::verification::Pace;
use eyas_papers::durability::markov::Chain;
use eyas_papers::durability::{Copying, Estimate, Lives, Options, lives};

const HOUR_S: f64 = 3600.0;
const DAY_S: f64 = 24.0 * HOUR_S;
const YEAR_S: f64 = 365.0 * DAY_S;
const LASTS_S: f64 = 10.0 * YEAR_S;
const FILE_BYTES: u64 = 1 << 30;

#[derive(Args)]
pub struct DurabilityArgs {
    /// Number of catalogs that are simulated for each row
    #[arg(long, value_name = "N", default_value_t = 2000)]
    lives: u64,
    /// The seed of the first catalog
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Number of catalogs that are simulated at once [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
}

/// A row of a table.
struct Row {
    what: String,
    options: Options,
    /// The mean time from the loss of a copy until another one is made, as the chain is told.
    repair_s: f64,
}

pub fn durability(args: &DurabilityArgs) -> Result<Exit, Fault> {
    let Some(end) = args.from.checked_add(args.lives).filter(|_| args.lives > 0) else {
        return Err(bad("--lives has to be at least 1, and the last seed below 2^64"));
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let n_threads = args.jobs.map_or(processors, |jobs| jobs as usize);
    show!(
        "eyas {}, {}, seeds {}..{end}",
        env!("CARGO_PKG_VERSION"),
        plural(args.lives, "catalog"),
        args.from
    );
    for (title, rows) in [
        ("High on purpose: 8 sites, each lost once in 42 days, files of 1 GiB, ten years", often()),
        ("As in a laboratory: 8 sites in 4 buildings, files of 1 GiB, ten years", laboratory()),
    ] {
        show!("");
        show!("{title}");
        show!("");
        show!("| what | Markov chain | simulated (95 %) | files lost | copies of a file | copied per file |");
        show!("|---|---|---|---|---|---|");
        for row in rows {
            let lived = lives(&row.options, args.from..end, n_threads);
            show!("{}", line(&row, &lived));
        }
    }
    Ok(Exit::Good)
}

fn line(row: &Row, lived: &Lives) -> String {
    let life_s = row.options.site_life_s.expect("sites are lost in all rows");
    let chain =
        Chain { copies: row.options.copies, loss_per_s: 1.0 / life_s, repair_per_s: 1.0 / row.repair_s };
    let Estimate { mean, low, high } = lived.loss();
    format!(
        "| {} | {} | {} ({} to {}) | {} of {} | {:.2} | {} |",
        row.what,
        probability(chain.loss_within(row.options.lasts_s)),
        probability(mean),
        probability(low),
        probability(high),
        lived.n_lost,
        lived.n_files,
        lived.mean_copies(),
        size(lived.copied_bytes / lived.n_files.max(1)),
    )
}

/// Three digits that say something, also of what is rare.
fn probability(p: f64) -> String {
    match p {
        0.0 => "0".into(),
        p if p < 1e-3 => format!("{p:.1e}"),
        p => format!("{p:.3}"),
    }
}

fn audits(days: f64) -> Pace {
    // Thirty looks in each period.
    let period_ms = (days * DAY_S * 1e3) as u64;
    Pace { period_ms, look_ms: period_ms / 30, most_bytes: None }
}

/// Losses that are seen often enough to be compared with the chain.
fn often() -> Vec<Row> {
    let repair_s = 12.0 * HOUR_S;
    let base = |copies| Options::as_the_chain_assumes(copies, 42.0 * DAY_S, repair_s, LASTS_S);
    let row = |what: &str, options| Row { what: what.into(), options, repair_s };
    let damaged = |audit| Options { copy_life_s: Some(YEAR_S), audit, ..base(3) };
    let bandwidth = |n_files| Options {
        n_files,
        copying: Copying::Bandwidth { bytes_per_s: FILE_BYTES as f64 / repair_s },
        ..base(3)
    };
    vec![
        row("as the chain assumes, 2 copies", base(2)),
        row("as the chain assumes, 3 copies", base(3)),
        // An empty site in the place of a lost one would show the loss at once.
        row(
            "3 copies; a loss is noticed after 2 days",
            Options { noticed_after_s: 2.0 * DAY_S, replaced_after_s: 2.0 * DAY_S, ..base(3) },
        ),
        row("3 copies; 1 file, a copy takes 12 hours", bandwidth(1)),
        row("3 copies; 20 files, one at a time", bandwidth(20)),
        row(
            "3 copies; 2 domains, each lost once in 2 years",
            Options { n_domains: 2, domain_life_s: Some(2.0 * YEAR_S), ..base(3) },
        ),
        row("3 copies; each damaged once a year, audit within 10 days", damaged(Some(audits(10.0)))),
        row("3 copies; the same, audit within 180 days", damaged(Some(audits(180.0)))),
        row("3 copies; the same, no audit", damaged(None)),
        row(
            "3 copies; sites away for a day once in 20 days",
            Options {
                away_every_s: Some(20.0 * DAY_S),
                away_for_s: DAY_S,
                noticed_after_s: HOUR_S,
                ..base(3)
            },
        ),
    ]
}

/// Rates that a laboratory may have.
fn laboratory() -> Vec<Row> {
    const N_FILES: usize = 40;
    // What a site has of the files is copied in half a day by one other site.
    let copy_s = |copies: u32| 0.5 * DAY_S / (N_FILES as f64 * f64::from(copies) / 8.0);
    let options = |copies, audit| Options {
        n_sites: 8,
        n_domains: 4,
        room_bytes: 60 * FILE_BYTES,
        n_files: N_FILES,
        file_bytes: FILE_BYTES,
        copies,
        site_life_s: Some(4.0 * YEAR_S),
        domain_life_s: Some(50.0 * YEAR_S),
        replaced_after_s: 14.0 * DAY_S,
        away_every_s: Some(30.0 * DAY_S),
        away_for_s: 8.0 * HOUR_S,
        noticed_after_s: HOUR_S,
        copy_life_s: Some(20.0 * YEAR_S),
        copying: Copying::Bandwidth { bytes_per_s: FILE_BYTES as f64 / copy_s(copies) },
        audit,
        lasts_s: LASTS_S,
    };
    let audited = [
        ("audit within 30 days", Some(audits(30.0))),
        ("audit within a year", Some(audits(365.0))),
        ("no audit", None),
    ];
    let of = |copies: u32| {
        audited.into_iter().map(move |(what, audit)| Row {
            what: format!("{}, {what}", plural(u64::from(copies), "copy")),
            options: options(copies, audit),
            // On average a copy waits for half of what its site had.
            repair_s: HOUR_S + 0.25 * DAY_S,
        })
    };
    (1..=3).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_both_models() {
        let row = often().remove(0);
        let text = line(&row, &lives(&row.options, 0..50, 2));
        assert!(text.starts_with("| as the chain assumes, 2 copies | 0.864 | 0."), "{text}");
        assert_eq!(text.matches('|').count(), 7);
        assert_eq!([0.0, 2.345e-5, 0.5].map(probability), ["0", "2.3e-5", "0.500"]);
    }
}
