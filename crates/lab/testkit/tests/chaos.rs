//! Simulated worlds, drawn from their seeds: every promise is checked in each. `eyas-lab chaos` runs more.

use eyas_core::placement::first_input;
use eyas_testkit::options::Options;
use eyas_testkit::world::{Summary, simulate};

fn live(options: &Options) -> Summary {
    simulate(options).unwrap_or_else(|violation| {
        panic!("{options:?}\n{}\n{}", violation.tail.join("\n"), violation.message)
    })
}

/// Runs end although nodes leave, dispatchers restart and users cancel while files are pushed.
#[test]
fn runs_that_push_files_end_whatever_fails() {
    for seed in 0..150 {
        live(&Options::from_seed(910_000 + seed).with("pushes").expect("it is a kind"));
    }
    for seed in 0..60 {
        let kinds = ["owners", "small", "stops"];
        let o = Options::from_seed(920_000 + seed).with("pushes").expect("it is a kind");
        live(&o.with(kinds[seed as usize % 3]).expect("it is a kind"));
    }
}

/// Caches that exchange files, whatever fails: budgets hold, nothing in use and no last copy leaves, and all runs end.
#[test]
fn caches_that_exchange_files_keep_the_promises() {
    for seed in 0..150 {
        live(&Options::from_seed(950_000 + seed).with("exchange").expect("it is a kind"));
        live(&Options::workflows_from_seed(950_000 + seed).with("exchange").expect("it is a kind"));
    }
    for seed in 0..60 {
        let kinds = ["small", "stops", "owners", "islands", "pushes", "forget"];
        let o = Options::from_seed(960_000 + seed).with(kinds[seed as usize % 6]).expect("it is a kind");
        live(&o.with("exchange").expect("it is a kind"));
    }
}

/// Relays die, and all nodes behind one lose their connections together: no task is lost, and nothing runs where it may not.
#[test]
fn relays_that_die_lose_no_task() {
    for seed in 0..100 {
        live(&Options::from_seed(970_000 + seed).with("relays").expect("it is a kind"));
        live(&Options::workflows_from_seed(970_000 + seed).with("relays").expect("it is a kind"));
    }
    for seed in 0..60 {
        let kinds = ["dispatchers", "stops", "walltimes", "calls", "resources", "small"];
        let o = Options::from_seed(980_000 + seed).with(kinds[seed as usize % 6]).expect("it is a kind");
        live(&o.with("relays").expect("it is a kind"));
    }
}

/// Tasks without files start before the journal has their submission, and the dispatcher is killed meanwhile: an attempt that the next
/// process does not know never ends another task.
#[test]
fn what_starts_before_its_submission_is_durable_ends_nothing_else() {
    for seed in 0..200 {
        live(&Options::from_seed(930_000 + seed).with("calls").expect("it is a kind"));
    }
    for seed in 0..90 {
        let kinds = ["forget", "stops", "clocks"];
        let o = Options::from_seed(940_000 + seed).with("calls").expect("it is a kind");
        live(&o.with(kinds[seed as usize % 3]).expect("it is a kind"));
    }
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

/// Nodes reach the dispatcher and home, and not each other: no task fails for that.
#[test]
fn workflows_on_islands_end_well() {
    let mut n_revivals = 0;
    for seed in 0..60 {
        let calm = Options { task_is_wide: 0, task_has_memory: 0, ..Options::calm_workflows(seed) };
        let options = calm.with("islands").expect("it is one of them");
        let s = live(&options);
        assert_eq!((s.n_failed, s.n_cancelled), (0, 0), "{options:?}");
        n_revivals += s.n_revivals;
    }
    assert!(n_revivals > 0, "some makers run again");
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

/// Several of the kinds at once.
#[test]
fn worlds_with_some_kinds_together_keep_the_promises() {
    for seed in 0..30 {
        let add = |o: Options| {
            Options::some_kinds(seed).into_iter().fold(o, |o, kind| o.with(kind).expect("a kind"))
        };
        live(&add(Options::from_seed(seed)));
        live(&add(Options::workflows_from_seed(seed)));
    }
}

/// Every policy, on nodes and tasks that differ much, without faults: every task that fits an idle node
/// starts.
#[test]
fn a_task_that_fits_an_idle_node_starts_under_every_policy() {
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
    fn a_task_that_is_too_large_for_all_nodes_fails() {
        holds(&[4, 14, 192]);
    }

    #[test]
    fn urgent_tasks_pass_a_full_window() {
        holds(&[12, 147]);
    }

    #[test]
    fn a_program_does_not_keep_an_input_that_another_one_wrote_to() {
        holds(&[3, 185]);
    }

    #[test]
    fn a_stale_copy_is_no_hit() {
        holds(&[18, 117]);
    }

    #[test]
    fn all_tasks_of_a_run_read_the_same_version() {
        holds(&[97, 197, 389]);
    }

    #[test]
    fn a_task_does_not_wait_for_a_holder_that_is_too_small_for_it() {
        holds(&[386, 471]);
    }

    #[test]
    fn reads_during_a_cut_of_the_link_are_reported_after_it() {
        holds(&[304, 594, 697]);
    }

    #[test]
    fn after_a_restart_attempts_get_numbers_that_were_never_given() {
        holds(&[2276]);
    }

    #[test]
    fn an_answer_about_home_from_before_a_restart_does_not_count() {
        holds(&[6189, 7874]);
    }

    #[test]
    fn an_older_run_does_not_read_what_a_newer_run_brought() {
        holds(&[2702]);
    }

    fn workflows_hold(seeds: &[u64]) {
        seeds.iter().for_each(|seed| {
            let drawn = Options::workflows_from_seed(*seed);
            live(&Options { n_additions_max: 0, placement_at_nodes: None, ..drawn });
        });
    }

    #[test]
    fn files_of_ended_runs_are_dropped_where_the_first_drop_was_lost() {
        workflows_hold(&[24, 27, 53, 65, 115, 167]);
    }

    #[test]
    fn files_of_attempts_that_were_adopted_after_a_restart_can_be_dropped() {
        workflows_hold(&[42, 135, 476, 567, 806]);
    }

    #[test]
    fn a_reader_waits_until_its_makers_result_is_home() {
        workflows_hold(&[350]);
    }

    #[test]
    fn a_task_that_runs_again_does_not_change_a_file_at_home_that_its_run_has_read() {
        workflows_hold(&[2733]);
    }

    #[test]
    fn a_task_does_not_run_again_before_its_first_end_is_durable() {
        live(&Options::workflows_from_seed(50645));
    }

    #[test]
    fn a_collective_whose_wants_form_a_circle_ends() {
        live(&Options::workflows_from_seed(802906));
    }

    fn with(kind: &str, o: Options) -> Options {
        o.with(kind).expect("it is one of them")
    }

    #[test]
    fn an_old_version_that_is_reported_again_is_not_what_home_has_now() {
        live(&Options::from_seed(715143));
        live(&Options::workflows_from_seed(802445));
    }

    #[test]
    fn an_answer_about_home_over_an_older_connection_does_not_count_for_a_newer_run() {
        live(&with("stops", Options::from_seed(900884)));
    }

    #[test]
    fn a_recovered_submission_is_not_refused_for_a_given_up_one() {
        live(&Options::workflows_from_seed(805053));
    }

    #[test]
    fn a_damaged_stored_output_is_not_the_tasks_failure() {
        live(&Options::from_seed(703116));
        live(&Options::from_seed(713087));
    }

    /// Its output was too large for the cache, five times; the sixth attempt ran with bytes that were damaged meanwhile.
    #[test]
    fn a_task_may_fail_after_the_last_allowed_failure_is_damage() {
        live(&Options::workflows_from_seed(805617));
    }

    #[test]
    fn files_of_a_given_up_attempt_are_dropped() {
        live(&with("stops", Options::workflows_from_seed(900780)));
    }

    #[test]
    fn a_reader_waits_until_a_restarted_executor_has_brought_the_result_home() {
        live(&with("stops", Options::workflows_from_seed(900293)));
    }

    #[test]
    fn reads_of_an_attempt_are_reported_before_its_end() {
        live(&with("stops", Options::from_seed(7001729)));
    }

    #[test]
    fn enough_is_reserved_for_the_larger_of_two_inputs_that_are_one_object() {
        let uneven = with("uneven", Options::from_seed(7001144));
        live(&with("clocks", with("stops", uneven)));
    }

    /// They hold something of the whole cluster, so the end of the first one has all rooms computed.
    #[test]
    fn tasks_whose_inputs_moved_are_given_up_when_their_executor_comes_back_without_them() {
        live(&with("resources", Options::workflows_from_seed(49003267)));
    }

    /// An attempt ends after its run was forgotten: what it made for later tasks leaves the node.
    #[test]
    fn files_of_an_attempt_that_ends_after_its_run_was_forgotten_are_dropped() {
        let mut o = Options::workflows_from_seed(49001892);
        for kind in ["uneven", "stops", "clocks", "small", "forget"] {
            o = with(kind, o);
        }
        live(&o);
    }

    #[test]
    fn a_restarted_dispatcher_does_not_adopt_results_that_were_made_again() {
        live(&with("stops", Options::from_seed(7000937)));
    }

    #[test]
    fn a_given_up_attempt_that_comes_back_reads_no_other_version_than_its_run() {
        live(&with("stops", Options::from_seed(7003143)));
    }

    #[test]
    fn readers_do_not_fail_before_the_loss_of_the_holder_is_known() {
        workflows_hold(&[579]);
    }

    #[test]
    fn a_private_copy_that_comes_after_its_attempts_end_is_removed() {
        live(&Options::from_seed(7001397));
        live(&with("clocks", Options::from_seed(7001397)));
        live(&with("uneven", Options::from_seed(7003283)));
        live(&with("uneven", Options::from_seed(7003450)));
        let all = |o: Options| with("clocks", with("stops", with("uneven", o)));
        live(&all(Options::from_seed(7003283)));
        live(&Options { disk_bytes: 10, ..all(Options::workflows_from_seed(7001032)) });
    }

    /// The world would have ended after ten times the time that worlds have.
    #[test]
    fn the_only_large_node_does_not_rest_because_kept_files_fill_its_disk() {
        live(&with("clocks", with("stops", with("uneven", Options::workflows_from_seed(7003480)))));
    }

    #[test]
    fn a_restarted_dispatcher_does_not_believe_an_attempt_that_was_given_up_for_a_changed_input() {
        live(&with("stops", Options::from_seed(11001018)));
    }

    #[test]
    fn tasks_do_not_wait_for_a_holder_that_fails_one_after_the_other() {
        live(&Options::workflows_from_seed(13000695));
    }

    #[test]
    fn a_version_read_for_an_earlier_run_is_not_what_home_has_in_a_later_run() {
        live(&with("uneven", Options::workflows_from_seed(14001203)));
    }

    /// What a program's neighbours read was counted as it was expected, and home's files had grown.
    #[test]
    fn a_program_that_fails_on_a_disk_that_may_have_been_full_runs_again() {
        live(&with("scratch", Options::from_seed(19000848)));
    }

    #[test]
    fn the_only_node_does_not_rest_for_minutes_because_kept_files_fill_its_disk() {
        live(&with("small", Options::workflows_from_seed(18001173)));
    }

    #[test]
    fn a_file_that_fits_no_cache_fails_its_task_soon() {
        live(&Options::workflows_from_seed(20001111));
    }

    /// The world was wrong: what four runs keep on its only node is as much as the cache.
    #[test]
    fn files_that_four_runs_keep_may_fill_the_only_cache() {
        live(&Options::workflows_from_seed(16001252));
    }

    #[test]
    fn a_task_behind_the_head_does_not_wait_for_a_holder_that_is_too_small_for_it() {
        live(&with("stops", Options::workflows_from_seed(9000016)));
    }

    /// It was tried again and again, where its disk could have held it once.
    #[test]
    fn a_file_under_two_names_that_fits_no_cache_has_to_fit_the_disk_twice() {
        live(&with("clocks", Options::from_seed(7001015)));
    }

    /// Inputs that fit no cache found no room beside programs that filled the disk, six times, on the only node.
    #[test]
    fn inputs_get_room_beside_programs_that_fill_the_disk() {
        live(&with("scratch", Options::from_seed(23112359)));
    }

    /// The check was wrong: transfers of an executor that was given up and came back went on, and others had their room.
    #[test]
    fn transfers_of_an_executor_that_comes_back_may_exceed_the_room_that_others_have() {
        live(&with("stops", Options::from_seed(24014121)));
        live(&with("clocks", with("stops", Options::from_seed(24038558))));
    }

    /// A file went with the run that had named it last in time, and another run that had named it before went on.
    #[test]
    fn a_run_reads_the_same_bytes_of_a_file_that_a_forgotten_run_had_named() {
        let options = Options::workflows_from_seed(108);
        live(&["uneven", "stops", "clocks", "small", "forget"].iter().fold(options, |o, kind| with(kind, o)));
    }

    /// A collective waited for ever for files of a run that was over, so that these were never forgotten.
    #[test]
    fn files_of_forgotten_runs_go_though_a_collective_waits_for_them() {
        live(&with("forget", Options::workflows_from_seed(2192)));
        live(&with("forget", Options::workflows_from_seed(3071)));
    }

    /// Without the rule for it, bytes counted as stored that had gone with another object of the same bytes.
    #[test]
    fn bytes_may_go_with_another_object_before_their_report_comes() {
        live(&with("equal", Options::from_seed(28000000)));
        live(&with("equal", Options::workflows_from_seed(28000133)));
    }

    /// What no disk had room for was tried more often than other weather, on the only node, which rested each time.
    #[test]
    fn attempts_on_a_shared_disk_count_together_with_other_failures_of_the_cluster() {
        live(&with("small", Options::workflows_from_seed(24026726)));
    }
    fn with_all(kinds: &str, seed: u64) {
        live(&kinds.split(',').fold(Options::from_seed(seed), |o, kind| with(kind, o)));
    }

    /// What an owner had read in place, or for an earlier run, counted as what a later run knew of copies elsewhere.
    #[test]
    fn a_copy_of_a_file_of_another_disk_is_as_old_as_its_check() {
        for seed in [217, 881400090, 883000191] {
            with_all("owners", seed);
        }
        with_all("owners,stops", 883100063);
        with_all("owners,forget", 883200120);
        with_all("owners,warm", 883300035);
        with_all("owners,sites", 884000098);
    }

    /// It ran with a copy that had been checked for an earlier run.
    #[test]
    fn a_task_runs_again_for_its_readers_only_where_its_inputs_are_checked() {
        let kinds = ["clocks", "warm", "owners"];
        live(&kinds.iter().fold(Options::workflows_from_seed(773005200), |o, kind| with(kind, o)));
    }

    /// The time of tasks that fit nowhere was kept over the queue of the user whose turn it was.
    #[test]
    fn what_fits_nowhere_fails_whoever_has_the_turn() {
        with_all("resources,users", 886200117);
    }

    /// The check was wrong: programs of a node that was gone counted, until the node came again.
    #[test]
    fn what_programs_held_of_the_cluster_is_free_when_their_node_is_gone() {
        with_all("provided,resources,users,walltimes", 882300013);
        with_all("provided,resources,users,walltimes", 885000191);
        with_all("resources,provided,walltimes", 886300082);
    }
}
