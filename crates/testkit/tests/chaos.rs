//! Simulated worlds, drawn from their seeds: every promise is checked in each. `eyas-lab chaos` runs more.

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

/// The kinds that can be added to a world, over bags of tasks and over workflows.
#[test]
fn worlds_with_more_added_keep_the_promises() {
    for kind in Options::KINDS {
        let add = |o: Options| o.with(kind).expect("it is one of them");
        let n_done: u64 = (0..60).map(|seed| live(&add(Options::from_seed(seed))).n_done).sum();
        let n_of_workflows: u64 =
            (0..60).map(|seed| live(&add(Options::workflows_from_seed(seed))).n_done).sum();
        assert!(n_done > 1_000 && n_of_workflows > 500, "{kind}: {n_done}, {n_of_workflows}");
    }
}

/// Every policy, on nodes and tasks that differ much, without faults: every task that fits an idle node
/// starts.
#[test]
fn what_fits_an_idle_node_starts_under_every_policy() {
    for (seed, name) in (0..140).zip(eyas_core::placement::NAMES.into_iter().cycle()) {
        let calm = if seed % 2 == 0 { Options::calm(seed) } else { Options::calm_workflows(seed) };
        let uneven = calm.with("uneven").expect("it is one of them");
        live(&Options { placement: name.into(), placement_at_nodes: None, ..uneven });
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
    fn a_walk_from_want_to_want_followed_a_circle() {
        live(&Options::workflows_from_seed(802906));
    }

    fn with(kind: &str, o: Options) -> Options {
        o.with(kind).expect("it is one of them")
    }

    #[test]
    fn an_old_version_told_again_counted_as_what_home_says_now() {
        live(&Options::from_seed(715143));
        live(&Options::workflows_from_seed(802445));
    }

    #[test]
    fn what_an_older_connection_had_heard_of_home_counted_for_a_newer_run() {
        live(&with("stops", Options::from_seed(900884)));
    }

    #[test]
    fn a_submission_was_refused_at_recovery_for_one_given_up_before() {
        live(&Options::workflows_from_seed(805053));
    }

    #[test]
    fn a_damaged_stored_output_was_its_tasks_own_fault() {
        live(&Options::from_seed(703116));
        live(&Options::from_seed(713087));
    }

    /// Its output was too large for the cache, five times; the sixth attempt ran with bytes that were damaged meanwhile.
    #[test]
    fn damage_was_the_last_straw_and_the_world_saw_no_cause() {
        live(&Options::workflows_from_seed(805617));
    }

    #[test]
    fn what_an_attempt_made_that_was_given_up_stayed_for_ever() {
        live(&with("stops", Options::workflows_from_seed(900780)));
    }

    #[test]
    fn a_reader_began_with_a_result_that_a_second_life_was_still_bringing_home() {
        live(&with("stops", Options::workflows_from_seed(900293)));
    }

    #[test]
    fn an_end_was_told_before_what_its_attempt_had_read() {
        live(&with("stops", Options::from_seed(7001729)));
    }

    #[test]
    fn less_was_reserved_for_an_object_than_one_of_its_two_inputs_had() {
        let uneven = with("uneven", Options::from_seed(7001144));
        live(&with("clocks", with("stops", uneven)));
    }

    #[test]
    fn a_dispatcher_took_over_results_that_its_forerunner_had_made_again() {
        live(&with("stops", Options::from_seed(7000937)));
    }

    #[test]
    fn an_attempt_that_was_given_up_came_back_and_read_what_its_run_did_not() {
        live(&with("stops", Options::from_seed(7003143)));
    }

    #[test]
    fn readers_failed_before_it_was_known_that_the_holder_was_gone() {
        workflows_hold(&[579]);
    }

    #[test]
    fn a_private_copy_that_came_after_its_attempts_end_stayed_on_the_disk() {
        live(&Options::from_seed(7001397));
        live(&with("clocks", Options::from_seed(7001397)));
        live(&with("uneven", Options::from_seed(7003283)));
        live(&with("uneven", Options::from_seed(7003450)));
        let all = |o: Options| with("clocks", with("stops", with("uneven", o)));
        live(&all(Options::from_seed(7003283)));
        live(&Options { disk_bytes: 10, ..all(Options::workflows_from_seed(7001032)) });
    }

    /// It would have ended: after ten times the time that worlds have.
    #[test]
    fn the_only_large_node_rested_as_its_disk_was_full_of_what_stays() {
        live(&with("clocks", with("stops", with("uneven", Options::workflows_from_seed(7003480)))));
    }

    #[test]
    fn a_dispatcher_believed_an_attempt_that_its_forerunner_had_given_up_as_its_input_had_changed() {
        live(&with("stops", Options::from_seed(11001018)));
    }

    #[test]
    fn tasks_waited_an_hour_for_a_holder_that_failed_one_after_the_other() {
        live(&Options::workflows_from_seed(13000695));
    }

    #[test]
    fn what_was_read_for_an_earlier_run_was_taken_for_what_home_has_in_a_later_one() {
        live(&with("uneven", Options::workflows_from_seed(14001203)));
    }

    /// What a program's neighbours read was counted as it was expected, and home's files had grown.
    #[test]
    fn a_program_failed_on_a_full_disk_that_was_thought_to_have_had_a_byte_left() {
        live(&with("scratch", Options::from_seed(19000848)));
    }

    #[test]
    fn the_only_node_rested_for_minutes_as_its_disk_was_full_of_what_stays() {
        live(&with("small", Options::workflows_from_seed(18001173)));
    }

    #[test]
    fn what_fits_no_cache_was_tried_for_an_hour() {
        live(&Options::workflows_from_seed(20001111));
    }

    /// The world was wrong: what four runs keep on its only node is as much as the cache.
    #[test]
    fn what_stays_fills_the_only_cache() {
        live(&Options::workflows_from_seed(16001252));
    }

    #[test]
    fn behind_the_head_a_task_waited_for_a_holder_that_is_too_small_for_it() {
        live(&with("stops", Options::workflows_from_seed(9000016)));
    }

    /// It was tried again and again, where its disk could have held it once.
    #[test]
    fn a_file_under_two_names_that_fits_no_cache_has_to_fit_the_disk_twice() {
        live(&with("clocks", Options::from_seed(7001015)));
    }

    /// Inputs that fit no cache found no room beside programs that filled the disk, six times, on the only node.
    #[test]
    fn inputs_found_no_room_beside_programs_that_filled_the_disk() {
        live(&with("scratch", Options::from_seed(23112359)));
    }

    /// The check was wrong: transfers of an executor that was given up and came back went on, and others had their room.
    #[test]
    fn an_executor_came_back_with_transfers_whose_room_others_had() {
        live(&with("stops", Options::from_seed(24014121)));
        live(&with("clocks", with("stops", Options::from_seed(24038558))));
    }

    /// A file went with the run that had named it last in time, and another run that had named it before went on.
    #[test]
    fn a_run_read_other_bytes_of_a_file_whose_name_was_forgotten_meanwhile() {
        let options = Options::workflows_from_seed(108);
        live(&["uneven", "stops", "clocks", "small", "forget"].iter().fold(options, |o, kind| with(kind, o)));
    }

    /// A collective waited for ever for files of a run that was over, so that these were never forgotten.
    #[test]
    fn files_of_forgotten_runs_stayed_as_a_collective_waited_for_them() {
        live(&with("forget", Options::workflows_from_seed(2192)));
        live(&with("forget", Options::workflows_from_seed(3071)));
    }

    /// Without the rule for it, bytes counted as stored that had gone with another object of the same bytes.
    #[test]
    fn bytes_may_go_with_another_object_before_the_word_of_them_comes() {
        live(&with("equal", Options::from_seed(28000000)));
        live(&with("equal", Options::workflows_from_seed(28000133)));
    }

    /// What no disk had room for was tried more often than other weather, on the only node, which rested each time.
    #[test]
    fn a_disk_that_may_be_shared_was_tried_on_top_of_all_other_weather() {
        live(&with("small", Options::workflows_from_seed(24026726)));
    }
}
