//! Simulated worlds, drawn from their seeds: every promise is checked in each. `eyas sim chaos` runs more.

use eyas_core::placement::first_input;
use eyas_testkit::options::Options;
use eyas_testkit::world::{Summary, simulate};

fn live(options: &Options) -> Summary {
    simulate(options).unwrap_or_else(|violation| {
        panic!("{options:?}\n{}\n{}", violation.tail.join("\n"), violation.message)
    })
}

#[test]
fn worlds_with_faults_keep_the_promises() {
    let n_done: u64 = (0..300).map(|seed| live(&Options::from_seed(seed)).n_done).sum();
    assert!(n_done > 5_000, "the worlds do something: {n_done}");
}

#[test]
fn worlds_without_faults_fail_only_what_fits_nowhere() {
    for seed in 0..30 {
        let options = Options { task_is_wide: 0, task_has_memory: 0, ..Options::calm(seed) };
        let summary = live(&options);
        assert_eq!((summary.n_failed, summary.n_cancelled), (0, 0), "{options:?}");
    }
}

#[test]
fn workflows_with_faults_keep_the_promises() {
    let worlds = (0..200).map(|seed| live(&Options::workflows_from_seed(seed)));
    let (n_done, n_revivals) = worlds.fold((0, 0), |(d, r), s| (d + s.n_done, r + s.n_revivals));
    assert!(n_done > 3_000 && n_revivals > 20, "the worlds do something: {n_done}, {n_revivals} again");
}

#[test]
fn workflows_without_faults_run_nothing_twice() {
    for seed in 0..30 {
        let options = Options { task_is_wide: 0, ..Options::calm_workflows(seed) };
        let s = live(&options);
        assert_eq!((s.n_failed, s.n_cancelled, s.n_revivals), (0, 0, 0), "{options:?}");
    }
}

#[test]
fn tasks_queued_at_nodes_keep_the_promises() {
    for (seed, name) in (0..160).zip([first_input::NAME, first_input::NAME_STEAL].into_iter().cycle()) {
        live(&Options { placement_at_nodes: Some(name), ..Options::from_seed(seed) });
        live(&Options { placement_at_nodes: Some(name), ..Options::workflows_from_seed(seed) });
    }
}

#[test]
fn equal_options_give_equal_traces() {
    for seed in [1, 7, 42, 386, 2276] {
        assert_eq!(live(&Options::from_seed(seed)), live(&Options::from_seed(seed)));
    }
}

/// Seeds that once broke a promise, by what was wrong then.
mod found {
    use super::*;

    fn holds(seeds: &[u64]) {
        seeds.iter().for_each(|seed| {
            live(&Options { placement_at_nodes: None, ..Options::from_seed(*seed) });
        });
    }

    #[test]
    fn a_task_too_large_for_all_waited_for_ever() {
        holds(&[4, 14, 192]);
    }

    #[test]
    fn urgent_tasks_waited_behind_a_full_window() {
        holds(&[12, 147]);
    }

    #[test]
    fn a_program_kept_an_input_that_another_one_wrote_to() {
        holds(&[3, 185]);
    }

    #[test]
    fn a_stale_copy_was_taken_for_a_hit() {
        holds(&[18, 117]);
    }

    #[test]
    fn two_tasks_of_a_run_read_different_versions() {
        holds(&[97, 197, 389]);
    }

    #[test]
    fn a_task_waited_for_a_holder_that_is_too_small_for_it() {
        holds(&[386, 471]);
    }

    #[test]
    fn what_was_read_while_the_link_was_cut_was_never_told() {
        holds(&[304, 594, 697]);
    }

    #[test]
    fn a_second_attempt_had_the_number_of_one_before_the_restart() {
        holds(&[2276]);
    }

    #[test]
    fn an_executor_answered_for_home_from_before_the_restart() {
        holds(&[6189, 7874]);
    }

    #[test]
    fn an_older_run_read_what_a_newer_one_had_brought() {
        holds(&[2702]);
    }

    fn workflows_hold(seeds: &[u64]) {
        seeds.iter().for_each(|seed| {
            let drawn = Options::workflows_from_seed(*seed);
            live(&Options { n_additions_max: 0, placement_at_nodes: None, ..drawn });
        });
    }

    #[test]
    fn files_of_ended_runs_stayed_where_the_drop_was_not_heard() {
        workflows_hold(&[24, 27, 53, 65, 115, 167]);
    }

    #[test]
    fn files_of_attempts_taken_over_after_a_restart_had_no_number_to_be_dropped_by() {
        workflows_hold(&[42, 135, 476, 567, 806]);
    }

    #[test]
    fn a_reader_began_with_what_its_maker_was_still_bringing_home() {
        workflows_hold(&[350]);
    }

    #[test]
    fn a_task_that_ran_again_changed_what_its_run_had_read_at_home() {
        workflows_hold(&[2733]);
    }

    #[test]
    fn a_task_ran_again_before_its_first_end_was_durable() {
        live(&Options::workflows_from_seed(50645));
    }

    #[test]
    fn readers_failed_before_it_was_known_that_the_holder_was_gone() {
        workflows_hold(&[579]);
    }
}
