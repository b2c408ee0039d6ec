//! What a life must be, and where it must be what the Markov chain says.

use super::markov::Chain;
use super::*;
use eyas_keeping::verification::Pace;

const DAY_S: f64 = 86_400.0;

/// Sites that are lost alone, at once known and replaced; nothing else goes wrong.
fn as_the_chain_assumes(copies: u32, site_life_days: f64, repair_days: f64) -> Options {
    let options =
        Options::as_the_chain_assumes(copies, site_life_days * DAY_S, repair_days * DAY_S, 3650.0 * DAY_S);
    Options { room_bytes: 1 << 40, file_bytes: 1 << 20, ..options }
}

fn lost(options: &Options, n: u64) -> Estimate {
    lives(options, 0..n, 2).loss()
}

/// Where the chain's assumptions hold, the simulation has to give its probability. The seeds are fixed, so a sound simulation either
/// always passes or never; the interval is widened by half, as four cases at 95 % would miss one in five times.
#[test]
fn the_chain_and_the_simulation_agree() {
    for (copies, life_days, repair_days) in
        [(1, 4000.0, 1.0), (2, 84.0, 0.5), (2, 200.0, 5.0), (3, 42.0, 1.0)]
    {
        let chain = Chain {
            copies,
            loss_per_s: 1.0 / (life_days * DAY_S),
            repair_per_s: 1.0 / (repair_days * DAY_S),
        };
        let expected = chain.loss_within(3650.0 * DAY_S);
        let found = lost(&as_the_chain_assumes(copies, life_days, repair_days), 2000);
        let wide = (found.high - found.low) / 4.0;
        assert!(
            (found.low - wide..=found.high + wide).contains(&expected),
            "{copies} copies, {life_days} and {repair_days} days: {expected} is not in {found:?}"
        );
        assert!(found.mean > 0.02 && found.mean < 0.98, "nothing is compared: {found:?}");
    }
}

#[test]
fn a_life_depends_on_its_seed_alone() {
    let options = as_the_chain_assumes(2, 84.0, 0.5);
    assert_eq!(live(&options, 7), live(&options, 7));
    assert_eq!(lives(&options, 3..40, 1), lives(&options, 3..40, 4));
}

#[test]
fn without_faults_nothing_is_lost_and_nothing_is_copied() {
    let calm = Options { site_life_s: None, n_files: 20, ..as_the_chain_assumes(3, 1.0, 1.0) };
    let life = live(&calm, 1);
    assert_eq!((life.n_lost, life.copied_bytes, life.n_sites_lost), (0, 0, 0));
    assert!((life.mean_copies - 3.0).abs() < 1e-9);
}

/// Copies rot. Only an audit finds that in time, and one that comes more often loses less.
#[test]
fn audits_find_what_has_rotted() {
    let audited = |days: f64| Options {
        site_life_s: None,
        copy_life_s: Some(300.0 * DAY_S),
        audit: Some(Pace {
            period_ms: (days * DAY_S * 1e3) as u64,
            look_ms: (days * DAY_S * 1e2) as u64,
            most_bytes: None,
        }),
        n_files: 10,
        ..as_the_chain_assumes(2, 1.0, 0.1)
    };
    let never = Options { audit: None, ..audited(1.0) };
    let [often, seldom, never] = [&audited(5.0), &audited(100.0), &never].map(|o| lost(o, 60));
    assert!(often.high < seldom.low && seldom.high < never.low, "{often:?} {seldom:?} {never:?}");
    assert!(never.mean > 0.99, "both copies have rotted long ago: {never:?}");
}

/// Copies at sites of one domain are lost together; copies apart are not.
#[test]
fn copies_apart_outlive_a_domain() {
    let domains = |n_domains| Options {
        n_domains,
        site_life_s: None,
        domain_life_s: Some(500.0 * DAY_S),
        ..as_the_chain_assumes(2, 1.0, 0.5)
    };
    let (one, four) = (lost(&domains(1), 200), lost(&domains(4), 200));
    assert!(one.mean > 0.95, "all sites are one domain: {one:?}");
    assert!(four.high < 0.2, "{four:?}");
}

/// What takes longer to copy stays short of copies longer.
#[test]
fn a_narrow_link_costs_files() {
    let rate = |bytes_per_s| Options {
        n_files: 20,
        copying: Copying::Bandwidth { bytes_per_s },
        ..as_the_chain_assumes(2, 84.0, 1.0)
    };
    let (wide, narrow) = (lost(&rate(1e6), 60), lost(&rate(10.0), 60));
    assert!(wide.high < narrow.low, "{wide:?} {narrow:?}");
}

/// A site that comes back has its copies. Nothing is lost by it, and there are more copies than were asked for.
#[test]
fn an_absence_is_no_loss() {
    let away = Options {
        site_life_s: None,
        away_every_s: Some(20.0 * DAY_S),
        away_for_s: 2.0 * DAY_S,
        noticed_after_s: DAY_S / 24.0,
        n_files: 10,
        ..as_the_chain_assumes(2, 1.0, 0.1)
    };
    let all = lives(&away, 0..20, 2);
    assert_eq!(all.n_lost, 0);
    assert!(all.copied_bytes > 0 && all.mean_copies() > 2.0, "{all:?}");
}
