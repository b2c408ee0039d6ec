//! `eyas-lab bench collective`: the chosen collective beside the best of all in hindsight, over random
//! simulated cases; and the cost of always taking the same way.

use super::table::{Row, Table};
use super::{Common, median, note, quantile};
use clap::Args;
use eyas_cli::{Exit, Fault};
use eyas_core::collective::{CollectiveKind, Way};
use eyas_papers::experiment::collectives::{Compared, N_PROBES, case, compare};

#[derive(Args)]
pub struct CollectiveArgs {
    /// Number of random cases: of ten, six gather, three multicast and one scatters
    #[arg(short, long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also print for each case the predicted time and the time of each way
    #[arg(long)]
    cases: bool,
    /// Compare predictions with real multicasts and gathers of a cluster on this machine, in place of simulated cases
    #[arg(long)]
    real: bool,
    /// With --real: number of nodes, with one slot each
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..=100))]
    nodes: u32,
    /// With --real: number of times that each size is moved
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

pub fn bench(args: &CollectiveArgs) -> Result<Exit, Fault> {
    if args.real {
        return args.common.run(|dir| super::promise::measure(dir, args.nodes, args.rounds, args.cases));
    }
    args.common.run(|_| {
        note(&format!("{} cases of seed {}, each way of each", args.n, args.seed));
        let mut all: Vec<Compared> = (0..args.n).map(|i| compare(&case(args.seed, i))).collect();
        if args.cases {
            print_cases(&mut all);
        }
        let mut table =
            Table::new(format!("collective: {} simulated cases of seed {}", args.n, args.seed));
        let ratios = |keep: &dyn Fn(&Compared) -> bool| -> Vec<f64> {
            all.iter().filter(|c| keep(c)).map(Compared::ratio).collect()
        };
        let every = ratios(&|_| true);
        table.row(Row::new("chosen by best, median", median(&every), "").target("1.10", "1.05"));
        table.row(Row::new("chosen by best, 90th percentile", quantile(&every, 0.9), ""));
        table.row(Row::new("chosen by best, worst", worst(&every), "").target("1.30", "1.15"));
        let kinds = [
            ("gather", CollectiveKind::Gather),
            ("multicast", CollectiveKind::Multicast),
            ("scatter", CollectiveKind::Scatter),
        ];
        for (name, kind) in kinds {
            let of_kind = ratios(&|c| c.kind == kind);
            if of_kind.is_empty() {
                continue;
            }
            table.row(Row::new(format!("  {name} ({} cases), median", of_kind.len()), median(&of_kind), ""));
            table.row(Row::new(format!("  {name}, worst"), worst(&of_kind), ""));
        }
        let predicted: Vec<f64> = all.iter().map(Compared::prediction).collect();
        table.row(Row::new("predicted by measured, median", median(&predicted), ""));
        table.row(Row::new("  5th percentile", quantile(&predicted, 0.05), ""));
        table.row(Row::new("  95th percentile", quantile(&predicted, 0.95), ""));
        for (kind, way) in [
            (CollectiveKind::Gather, Way::CollectiveGather),
            (CollectiveKind::Gather, Way::AsyncGather),
            (CollectiveKind::Gather, Way::AsyncArchives),
            (CollectiveKind::Gather, Way::PlainFetches),
            (CollectiveKind::Multicast, Way::Binomial),
            (CollectiveKind::Multicast, Way::Pipelined { arity: 1 }),
            (CollectiveKind::Multicast, Way::PlainFetches),
        ] {
            let of_kind: Vec<&Compared> = all.iter().filter(|c| c.kind == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            let fixed: Vec<f64> = of_kind.iter().map(|c| c.ratio_of(way)).collect();
            let n_chosen = of_kind.iter().filter(|c| c.chosen == way).count();
            let kind = if kind == CollectiveKind::Gather { "gather" } else { "multicast" };
            let what = format!("always {way} ({kind}, chosen {n_chosen} times), median");
            table.row(Row::new(what, median(&fixed), ""));
            table.row(Row::new("  worst", worst(&fixed), ""));
        }
        table.note(format!(
            "Ratios of times from the decision until the last byte is there. Links are not known but estimated from {N_PROBES} \
             noisy transfers, and the makers' ends with an error of up to 20 %."
        ));
        Ok(table)
    })
}

fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Prints the cases, the worst first.
fn print_cases(all: &mut [Compared]) {
    all.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    for c in all {
        show!("{:.3}  {}", c.ratio(), c.case);
        for t in &c.tried {
            let mark = if t.way == c.chosen { '*' } else { ' ' };
            show!(
                "      {mark} {:<34} predicted {:.6} s, took {:.6} s",
                t.way.to_string(),
                t.predicted_s,
                t.measured_s
            );
        }
    }
}
