//! Worlds of several dispatchers, drawn from their seeds. `eyas-lab chaos --groups` runs more.

use eyas_testkit::options::Options;
use eyas_testkit::world::{Summary, simulate};

fn live(options: &Options) -> Summary {
    simulate(options).unwrap_or_else(|violation| {
        panic!("{options:?}\n{}\n{}", violation.tail.join("\n"), violation.message)
    })
}

#[test]
fn groups_with_faults_keep_the_promises() {
    let worlds: Vec<Summary> = (0..300).map(|seed| live(&Options::groups_from_seed(seed))).collect();
    let sum = |of: fn(&Summary) -> u64| worlds.iter().map(of).sum::<u64>();
    let (n_done, n_revivals) = (sum(|s| s.n_done), sum(|s| s.n_revivals));
    assert!(n_done > 5_000 && n_revivals > 20, "the worlds do something: {n_done}, {n_revivals} again");
    let n_collectives = sum(|s| s.n_collectives);
    assert!(n_collectives > 100, "{n_collectives} collectives brought something");
    let (n_added, n_refused) = (sum(|s| s.n_added), sum(|s| s.n_refused));
    assert!(
        n_added > 1_000 && n_refused > 200,
        "{n_added} tasks were added, {n_refused} submissions refused"
    );
}

#[test]
fn groups_without_faults_run_nothing_twice() {
    for seed in 0..40 {
        let options = Options::calm_groups(seed);
        assert_eq!(live(&options).n_revivals, 0, "{options:?}");
    }
}

/// Nodes reach the dispatchers and home, and not each other: no task fails for that, as the courier brings what a task reads.
#[test]
fn groups_on_islands_end_well() {
    let mut n_revivals = 0;
    for seed in 1..61 {
        let options = with("islands", Options::calm_groups(seed));
        let s = live(&options);
        assert_eq!((s.n_failed, s.n_cancelled), (0, 0), "{options:?}");
        n_revivals += s.n_revivals;
    }
    assert!(n_revivals > 0, "some makers run again");
}

/// With four dispatchers each knows the patterns that one finds; the worlds compare that themselves.
#[test]
fn four_dispatchers_plan_for_the_whole_run() {
    let n_collectives: u64 = (0..60)
        .map(|seed| Options { n_dispatchers: 4, n_blocks: 2, ..Options::calm_groups(seed) })
        .map(|o| Options { n_nodes: 8, node_sizes: vec![(2, 1000); 8], ..o })
        .map(|options| live(&options).n_collectives)
        .sum();
    assert!(n_collectives > 500, "{n_collectives} collectives brought something");
}

/// Gathers and scatters go along trees of nodes, which may die.
#[test]
fn trees_of_nodes_that_die_keep_the_promises() {
    let trees = |o: Options| with("trees", o);
    let calm: u64 = (0..40).map(|seed| live(&trees(Options::calm_groups(seed))).n_collectives).sum();
    assert!(calm > 100, "{calm} collectives brought something");
    for seed in 0..80 {
        live(&trees(Options::groups_from_seed(seed)));
    }
}

/// Lives through 150 worlds of `kind` without faults and 150 with faults.
fn live_with(kind: &str) {
    let of_kind = |o: Options| with(kind, o);
    let n_done: u64 = (0..150)
        .map(|seed| {
            let calm = live(&of_kind(Options::calm_groups(seed)));
            calm.n_done + live(&of_kind(Options::groups_from_seed(seed))).n_done
        })
        .sum();
    assert!(n_done > 5_000, "the worlds do something: {n_done}");
}

/// Most dispatchers have tasks that none of their own nodes is large enough for.
#[test]
fn groups_of_uneven_nodes_keep_the_promises() {
    live_with("uneven");
}

/// Ended runs are forgotten, by rule and by name; the worlds compare what the members know of them themselves.
#[test]
fn groups_that_forget_runs_keep_the_promises() {
    live_with("forget");
}

/// What only worlds of one dispatcher met before: each kind, over linked tasks.
#[test]
fn groups_with_more_added_keep_the_promises() {
    for kind in Options::KINDS {
        let n_done: u64 = (0..20).map(|seed| live(&with(kind, Options::groups_from_seed(seed))).n_done).sum();
        assert!(n_done > 400, "the worlds do something with {kind}: {n_done}");
    }
}

/// Several kinds at once, in worlds of every shape.
#[test]
fn several_dispatchers_keep_the_promises_among_all_faults() {
    for seed in 0..30 {
        let several = |o: Options| {
            Options::some_kinds(seed).into_iter().chain(["dispatchers"]).fold(o, |o, kind| with(kind, o))
        };
        live(&several(Options::from_seed(seed)));
        live(&several(Options::workflows_from_seed(seed)));
        live(&several(Options::groups_from_seed(seed)));
    }
}

#[test]
fn workflows_of_several_dispatchers_run_nothing_twice_without_faults() {
    for seed in 0..30 {
        let calm = Options { task_is_wide: 0, ..with("dispatchers", Options::calm_workflows(seed)) };
        let options = Options { n_member_cuts: 0, n_client_cuts: 0, clients_leave: 0, ..calm };
        let s = live(&options);
        assert_eq!((s.n_failed, s.n_cancelled, s.n_revivals), (0, 0, 0), "{options:?}");
    }
}

fn with(kind: &str, o: Options) -> Options {
    o.with(kind).expect("it is one of them")
}

#[test]
fn equal_options_give_equal_traces() {
    for seed in [1, 7, 42] {
        assert_eq!(live(&Options::groups_from_seed(seed)), live(&Options::groups_from_seed(seed)));
    }
}

/// Seeds that once broke a promise, by what was wrong then.
mod found {
    use super::*;

    /// As worlds were drawn when these were found.
    fn then(seed: u64) -> Options {
        Options { n_blocks: 0, ..Options::groups_from_seed(seed) }
    }

    #[test]
    fn a_run_has_no_tasks_of_a_given_up_run_with_its_number() {
        live(&then(13475));
    }

    #[test]
    fn an_attempt_that_a_killed_dispatcher_gave_up_does_not_fail_its_task() {
        live(&then(9000898));
    }

    #[test]
    fn an_executor_that_missed_its_move_to_another_dispatcher_gets_tasks() {
        live(&then(9002671));
    }

    #[test]
    fn a_dispatcher_whose_tasks_are_done_keeps_files_that_others_read() {
        live(&Options::calm_groups(15002354).with("uneven").expect("there is such a kind"));
    }

    /// A member had given up a submission when it was killed. It wrote that down after another run had got the number.
    #[test]
    fn giving_up_a_submission_does_not_end_a_later_run_with_its_number() {
        live(&Options::groups_from_seed(25014078).with("uneven").expect("there is such a kind"));
    }

    fn uneven(seed: u64) -> Options {
        Options::groups_from_seed(seed).with("uneven").expect("there is such a kind")
    }

    /// The first dispatcher was killed. Its next process gave the number again before the first client had noticed.
    #[test]
    fn a_run_is_accepted_though_another_client_had_its_number_before() {
        live(&uneven(40000232));
    }

    /// The client of the first submission had gone. The first dispatcher knew that, and another dispatcher did not.
    #[test]
    fn a_second_submission_into_a_run_waits_at_each_dispatcher_for_the_first() {
        live(&Options::calm_groups(41000003));
    }

    /// A task of one dispatcher had promised the file, and an added task of another dispatcher made it. The first
    /// dispatcher dropped the file as its own, and the task ran again until it failed.
    #[test]
    fn a_promised_file_that_another_dispatcher_makes_is_not_dropped() {
        live(&uneven(40000674));
    }

    /// The welcome of a killed dispatcher came late, with a number that its next process had given to another executor.
    /// Since then each executor knows the others only by what its own dispatcher says of them.
    #[test]
    fn an_executor_is_found_at_its_own_node_after_its_number_was_given_again() {
        live(&Options::groups_from_seed(29037516));
    }

    /// The addition had the number of an older submission, which was not durable yet when the first dispatcher was killed.
    /// The client of the older submission came late, and its end was read back as the end of the addition.
    #[test]
    fn added_tasks_stay_though_an_older_submission_had_their_number() {
        live(&uneven(30037518));
    }

    /// The other submission was given up while a member wrote that it is prepared. When that was durable, the member
    /// took the later submission for prepared, and refused the rest of it.
    #[test]
    fn a_submission_is_accepted_though_an_earlier_one_with_its_number_was_prepared() {
        live(&uneven(41001998).with("forget").expect("there is such a kind"));
    }

    fn forgetting(options: Options) -> Options {
        options.with("forget").expect("there is such a kind")
    }

    /// The first dispatcher was killed, and its next process gave the number of a submission to another client. The
    /// first client had not noticed that when it took the other one's place at the second dispatcher. The second
    /// client was refused, or waited for ever.
    #[test]
    fn a_late_client_does_not_take_the_place_of_the_client_that_got_its_number() {
        [40003536, 43003872].iter().for_each(|seed| {
            live(&forgetting(Options::groups_from_seed(*seed)));
        });
        [609, 2979].iter().for_each(|seed| {
            live(&forgetting(uneven(*seed)));
        });
    }

    #[test]
    fn executors_that_change_dispatchers_do_not_take_the_only_copies_along() {
        [10929, 12498, 20630].iter().for_each(|seed| {
            live(&then(*seed));
        });
    }

    /// The part of its run had ended when another run read what home had by then. Then a file was lost that another dispatcher
    /// read, and its maker read these other bytes.
    #[test]
    fn a_task_that_runs_again_for_another_dispatcher_reads_no_newer_version() {
        let kinds = ["uneven", "stops", "small", "forget", "equal", "walltimes", "warm", "dispatchers"];
        live(&kinds.iter().fold(Options::workflows_from_seed(8337), |o, kind| with(kind, o)));
    }

    /// As above, but the dispatcher had forgotten the file's name: it is not the first one, and no run of its own was
    /// unfinished.
    #[test]
    fn a_dispatcher_remembers_a_files_name_until_all_parts_of_an_older_run_have_ended() {
        let kinds = ["uneven", "stops", "forget", "walltimes", "resources", "users", "dispatchers"];
        live(&kinds.iter().fold(Options::workflows_from_seed(40110), |o, kind| with(kind, o)));
    }

    /// Runs were forgotten because users said so, and nobody asked for the ends of older runs.
    #[test]
    fn names_go_though_only_users_forget_runs() {
        let kinds = ["uneven", "forget", "stops"];
        live(&kinds.iter().fold(Options::groups_from_seed(7100014), |o, kind| with(kind, o)));
    }

    /// It waited for ever: a larger node could come of another dispatcher.
    #[test]
    fn a_task_that_needs_more_licences_than_there_are_fails_at_one_of_several_dispatchers() {
        live(&with("dispatchers", with("resources", Options::workflows_from_seed(8305))));
    }

    /// It counted as one that ends where it was.
    #[test]
    fn an_executor_with_a_walltime_goes_to_another_dispatcher() {
        live(&with("dispatchers", with("walltimes", Options::from_seed(8019))));
    }

    /// Nodes that do not reach each other, at several dispatchers: tasks of a workflow.
    fn workflow_apart(seed: u64) -> Options {
        with("dispatchers", with("islands", Options::workflows_from_seed(seed)))
    }

    /// A courier was chosen after tasks had been given out, so those that were freed waited for the next event.
    #[test]
    fn tasks_that_a_new_courier_frees_are_given_out_at_once() {
        live(&workflow_apart(97000017));
    }

    /// The maker's input was another dispatcher's, which no longer said where it is.
    #[test]
    fn a_maker_is_not_rerun_where_its_input_from_another_dispatcher_is_not_known() {
        live(&with("islands", Options::groups_from_seed(97000154)));
    }

    /// Its run had ended, and with it the numbers of its reruns were forgotten: the next one had the number of one under way.
    #[test]
    fn a_maker_whose_run_has_ended_is_rerun_under_a_number_of_its_own() {
        live(&with("islands", Options::groups_from_seed(97000164)));
    }

    /// Files that the courier had brought did not stay in its cache until the tasks that read them had begun.
    #[test]
    fn a_courier_whose_cache_is_too_small_does_not_come_for_ever() {
        live(&workflow_apart(97000777));
        live(&workflow_apart(97001217));
        live(&workflow_apart(97201461));
    }
}
