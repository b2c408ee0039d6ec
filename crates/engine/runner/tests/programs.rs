//! How programs start, end, print and are stopped.

mod lab;
use eyas_runner::*;
use lab::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_program_gets_its_arguments_environment_and_directory_and_nothing_else() {
    let mut lab = Lab::new();
    let mut spec =
        lab.exec(&["sh", "-c", "printf '<%s>' \"$@\"; echo; pwd; echo $EYAS_SANDBOX $TMPDIR $A", "sh"]);
    let Program::Exec(argv) = &mut spec.program else { unreachable!() };
    argv.extend(["a b", "", "-n", "it's \"q\"", "line\nbreak", "ünï"].map(ByteString::from));
    argv.push(ByteString(vec![b'x', 0xff]));
    spec.env = vec![("A".into(), "one two".into())];
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(0));
    let bytes = &report.stdout.head.0;
    let arguments = b"<a b><><-n><it's \"q\"><line\nbreak><\xc3\xbcn\xc3\xaf><x\xff>\n";
    assert!(bytes.starts_with(arguments), "{:?}", report.stdout.head);
    let sandbox = lab.root().join(format!("s{}-1", lab.slot.pid));
    let sandbox = sandbox.display();
    let rest = String::from_utf8_lossy(&bytes[arguments.len()..]);
    assert_eq!(rest, format!("{sandbox}\n{sandbox} {sandbox} one two\n"));

    // Streams 0 to 2, and the directory that ls itself has open.
    assert_eq!(lab.output_of("ls /proc/self/fd"), "0\n1\n2\n3\n");
    assert_eq!(lab.output_of("cat; readlink /proc/self/fd/0"), "/dev/null\n");
    let signals = lab.output_of("grep -E 'Sig(Blk|Ign)' /proc/self/status");
    let masks =
        signals.lines().map(|line| u64::from_str_radix(line.split('\t').nth(1).unwrap(), 16).unwrap());
    // 32 and 33 belong to the C library, which lets nobody touch them; they are as our ancestors had them.
    let c_library: u64 = 0b11 << 31;
    assert!(masks.map(|mask| mask & !c_library).eq([0, 0]), "{signals}");
    lab.close();
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let mut lab = Lab::new();
    for (line, exit) in [
        ("exit 0", ExitKind::Exited(0)),
        ("exit 3", ExitKind::Exited(3)),
        ("exit 137", ExitKind::Exited(137)),
        ("kill -KILL $$", ExitKind::Signaled { signal: 9, core: false }),
        ("ulimit -c 0; kill -SEGV $$", ExitKind::Signaled { signal: 11, core: false }),
    ] {
        let spec = lab.shell(line);
        assert_eq!(lab.run(spec).exit, exit, "{line}");
    }
    lab.close();
}

#[test]
fn a_command_that_cannot_be_executed_is_explained() {
    let mut lab = Lab::new();
    let here = lab.base.path().to_owned();
    let file = |name: &str, content: &str, mode| {
        let path = here.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain", "echo no shebang\n", 0o755);
    let orphan = file("orphan", "#!/no/such/interpreter -x\n", 0o755);
    let shut = file("shut", "#!/bin/sh\n", 0o644);
    let here = here.to_str().unwrap();
    use NotStartedKind::*;
    for (argv, kind, part) in [
        (vec!["no-such-command-here"], CommandNotFound, "command not found: `no-such-command-here` (PATH="),
        (vec!["/no/such/file"], CommandNotFound, "there is no file `/no/such/file`"),
        (vec!["./relative"], CommandNotFound, "there is no file `./relative`"),
        (vec![], CommandNotFound, "the command is empty"),
        (vec![""], CommandNotFound, "the command is empty"),
        (vec![&plain], BadFormat, "script that starts with `#!`"),
        (vec![&orphan], BadFormat, "needs the interpreter `/no/such/interpreter`"),
        (vec![&shut], NotExecutable, "is not executable"),
        (vec![here], NotExecutable, "is a directory"),
        (vec!["true", "a\0b"], BadArguments, "argument 1 holds a NUL byte"),
    ] {
        let spec = lab.exec(&argv);
        let report = lab.run(spec);
        let ExitKind::NotStarted { kind: got, message } = &report.exit else { panic!("{report:?}") };
        assert_eq!(*got, kind, "{argv:?}: {message}");
        assert!(message.contains(part), "{message}");
        assert_eq!((report.exit.status(), report.sandbox), (Status::Permanent, None));
    }
    // Found in PATH, but not executable.
    let mut spec = lab.exec(&["shut"]);
    spec.env = vec![("PATH".into(), here.into())];
    let report = lab.run(spec);
    assert!(matches!(report.exit, ExitKind::NotStarted { kind: NotExecutable, .. }), "{:?}", report.exit);
    let long = "x".repeat(200_000);
    let spec = lab.exec(&["true", &long]);
    let report = lab.run(spec);
    assert!(matches!(report.exit, ExitKind::NotStarted { kind: BadArguments, .. }), "{:?}", report.exit);
    assert_eq!(lab.output_of("echo still fine"), "still fine\n");
    lab.close();
}

#[test]
fn a_program_that_moves_along_the_path_is_found_again() {
    let mut lab = Lab::new();
    let (one, two) = (lab.base.path().join("one"), lab.base.path().join("two"));
    for dir in [&one, &two] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(one.join("tool"), "#!/bin/sh\necho tool\n").unwrap();
    fs::set_permissions(one.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}:/usr/bin:/bin", one.display(), two.display());
    let mut run = |exit: &dyn Fn(&ExitKind) -> bool| {
        let mut spec = lab.exec(&["tool"]);
        spec.env = vec![("PATH".into(), (&path).into())];
        let report = lab.run(spec);
        assert!(exit(&report.exit), "{:?}", report.exit);
    };
    run(&|exit| exit.is_success());
    run(&|exit| exit.is_success());
    fs::rename(one.join("tool"), two.join("tool")).unwrap();
    run(&|exit| exit.is_success());
    fs::remove_file(two.join("tool")).unwrap();
    run(&|exit| matches!(exit, ExitKind::NotStarted { kind: NotStartedKind::CommandNotFound, .. }));
    lab.close();
}

#[test]
fn over_walltime_a_program_that_ignores_sigterm_is_killed() {
    let mut lab = Lab::new();
    let sleep = unique_sleep();
    let mut spec =
        lab.shell(&format!("trap '' TERM; echo begun; sleep {sleep} & wait; while :; do wait; done"));
    spec.walltime_ns = Some(100 * MS);
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::OverWalltime);
    assert_eq!(report.stdout.head.to_string(), "begun\n");
    assert!(report.times.exited_ns - report.times.spawned_ns >= 200 * MS, "walltime and grace");
    assert_eq!(n_living_with(&sleep), 0);

    let mut spec = lab.shell("trap 'echo tidied; exit 0' TERM; while :; do sleep 0.01; done");
    spec.walltime_ns = Some(100 * MS);
    let report = lab.run(spec);
    assert_eq!((report.exit, &report.stdout.head.0[..]), (ExitKind::OverWalltime, &b"tidied\n"[..]));

    let mut spec = lab.shell("kill -STOP $$");
    spec.walltime_ns = Some(50 * MS);
    assert_eq!(lab.run(spec).exit, ExitKind::OverWalltime);

    let mut spec = lab.shell("exit 4");
    spec.walltime_ns = Some(u64::MAX);
    assert_eq!(lab.run(spec).exit, ExitKind::Exited(4));
    lab.close();
}

#[test]
fn over_memory_the_whole_tree_counts() {
    let mut lab = Lab::new();
    let sleep = unique_sleep();
    // `tail` holds 200 MB of one line until its input ends, which is never.
    let mut spec = lab.shell(&format!("{{ head -c 200000000 /dev/zero; sleep {sleep}; }} | tail"));
    spec.memory_bytes = Some(100_000_000);
    let report = lab.run(spec);
    let ExitKind::OverMemory { peak_bytes } = report.exit else { panic!("{:?}", report.exit) };
    assert!((100_000_000..400_000_000).contains(&peak_bytes), "{peak_bytes}");
    assert_eq!(n_living_with(&sleep), 0);

    // Over the limit and ended between two checks: the kernel's own record shows it.
    drop(lab);
    let mut lab = Lab::with(tempfile::tempdir().unwrap(), |config| config.memory_poll_ns = 1 << 60);
    let mut spec = lab.shell("head -c 200000000 /dev/zero | tail | wc -c");
    spec.memory_bytes = Some(100_000_000);
    assert!(matches!(lab.run(spec).exit, ExitKind::OverMemory { .. }));

    // Pages that processes share count once: ten copies of a shell that holds 20 MB.
    let mut spec = lab.shell(
        "x=$(head -c 20000000 /dev/zero | tr '\\0' x); \
         for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.3; exit $i) & done; wait; echo ${#x}",
    );
    spec.memory_bytes = Some(150_000_000);
    let mut sharing = Lab::new();
    let report = sharing.run(spec);
    assert_eq!((report.exit, &report.stdout.head.0[..]), (ExitKind::Exited(0), &b"20000000\n"[..]));
    sharing.close();

    let mut spec = lab.shell("head -c 20000000 /dev/zero | tail | wc -c");
    spec.memory_bytes = Some(100_000_000);
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(0));
    assert!(report.usage.process_rss_max_bytes > 20_000_000, "{:?}", report.usage);
    lab.close();
}

#[test]
fn a_gigabyte_of_output_neither_blocks_nor_is_kept() {
    let mut lab = Lab::new();
    let mut spec = lab.shell("echo first; head -c 1000000000 /dev/zero; echo last; echo err >&2");
    spec.capture = CaptureLimits { head_bytes: 6, tail_bytes: 100 };
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(0));
    assert_eq!(report.stdout.total_bytes, 6 + 1_000_000_000 + 5);
    assert_eq!(&report.stdout.head.0, b"first\n");
    assert_eq!(report.stdout.tail.len(), 100);
    assert!(report.stdout.tail.ends_with(b"\0last\n"));
    assert_eq!(&report.stderr.head.0, b"err\n");
    let status = fs::read_to_string(format!("/proc/{}/status", lab.slot.pid)).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    assert!(peak_kib < 16 << 10, "the slot process used {peak_kib} KiB");
    lab.close();
}

#[test]
fn changes_of_a_task_to_its_streams_stay_with_it() {
    let mut lab = Lab::new();
    // Leaves O_NONBLOCK on the pipe; the next task would see EAGAIN.
    lab.output_of("dd if=/dev/null oflag=nonblock status=none");
    let mut spec = lab.shell("head -c 20000000 /dev/zero");
    spec.capture = CaptureLimits { head_bytes: 0, tail_bytes: 0 };
    let report = lab.run(spec);
    assert_eq!((report.exit, report.stdout.total_bytes), (ExitKind::Exited(0), 20_000_000));
    assert_eq!(lab.output_of("echo mine"), "mine\n");
    lab.close();
}

#[test]
fn children_left_behind_are_killed_also_daemons() {
    let mut lab = Lab::new();
    let sleep = unique_sleep();
    let spec = lab.shell(&format!(
        "sleep {sleep} & setsid sleep {sleep} & (setsid sh -c 'trap \"\" TERM HUP; sleep {sleep} & wait' &) ; \
         setsid sh -c 'setsid sh -c \"(sleep {sleep} &) ; sleep {sleep}\" & exit' ; echo done"
    ));
    let report = lab.run(spec);
    assert_eq!((report.exit, report.n_unkillable), (ExitKind::Exited(0), 0));
    assert!(report.n_leftovers_killed >= 3, "{}", report.n_leftovers_killed);
    assert_eq!(report.stdout.head.to_string(), "done\n");
    assert_eq!(n_living_with(&sleep), 0);

    // A crowd that keeps making daemons of its own.
    let line = format!(
        "i=0; while [ $i -lt 40 ]; do setsid sh -c 'while :; do setsid sleep {sleep} & sleep 0.01; done' & i=$((i+1)); done"
    );
    let spec = lab.shell(&line);
    let report = lab.run(spec);
    assert_eq!((report.exit, report.n_unkillable), (ExitKind::Exited(0), 0));
    assert_eq!(n_living_with(&sleep), 0);

    let spec = lab.shell("true");
    assert_eq!(lab.run(spec).n_leftovers_killed, 0);
    lab.close();
}

#[test]
fn a_running_and_a_queued_task_can_be_cancelled() {
    let mut lab = Lab::new();
    let sleep = unique_sleep();
    let line = format!("sleep {sleep} & setsid sleep {sleep} & wait");
    let (running, queued, last) = (lab.shell(&line), lab.shell("echo never"), lab.shell("echo last"));
    lab.send(&[&running, &queued, &last].map(|spec| SlotCommand::Start(Box::new(spec.clone()))));
    lab.started(running.key);
    lab.send(&[SlotCommand::Cancel { key: queued.key }]);
    let report = lab.ended();
    assert_eq!((report.key, &report.exit, report.times.spawned_ns), (queued.key, &ExitKind::Cancelled, 0));
    lab.send(&[SlotCommand::Cancel { key: running.key }, SlotCommand::Cancel { key: 12345 }]);
    let report = lab.ended();
    assert_eq!((report.key, &report.exit), (running.key, &ExitKind::Cancelled));
    assert_eq!(n_living_with(&sleep), 0);
    let report = lab.ended();
    assert_eq!((report.key, report.stdout.head.to_string().as_str()), (last.key, "last\n"));
    lab.close();
}

#[test]
fn output_that_was_printed_so_far_can_be_read() {
    let mut lab = Lab::new();
    let (running, queued) = (lab.shell("echo one; echo two >&2; sleep 600"), lab.shell("echo never"));
    lab.send(&[&running, &queued].map(|spec| SlotCommand::Start(Box::new(spec.clone()))));
    lab.started(running.key);
    let looked = |lab: &mut Lab, key: u64| {
        lab.send(&[SlotCommand::Look { key }]);
        match lab.report() {
            SlotReport::Printed { key: of, printed } if of == key => printed,
            other => panic!("{other:?}"),
        }
    };
    let texts = |lab: &mut Lab| {
        let (out, err) = *looked(lab, running.key).expect("it runs");
        (out.head.to_string(), err.head.to_string())
    };
    wait_until("both lines", || texts(&mut lab) == ("one\n".into(), "two\n".into()));
    assert_eq!(looked(&mut lab, queued.key), None);
    assert_eq!(looked(&mut lab, 12345), None);
    lab.send(&[SlotCommand::Cancel { key: queued.key }, SlotCommand::Cancel { key: running.key }]);
    lab.ended();
    let report = lab.ended();
    assert_eq!((report.key, report.stdout.total_bytes), (running.key, 4), "looking takes nothing away");
    lab.close();
}

#[test]
fn printed_output_can_go_into_files_as_well() {
    let mut lab = Lab::new();
    let mut spec = lab.shell("seq 100000; echo bad >&2");
    spec.outputs = vec!["out".into(), "err".into()];
    spec.tee = [Some("out".into()), Some("err".into())];
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(0));
    let sandbox = report.sandbox.as_ref().unwrap().as_path().to_path_buf();
    let expected: String = (1..=100_000).map(|i| format!("{i}\n")).collect();
    assert_eq!(std::fs::read_to_string(sandbox.join("out")).unwrap(), expected);
    assert_eq!(std::fs::read_to_string(sandbox.join("err")).unwrap(), "bad\n");
    assert_eq!(report.stdout.total_bytes, expected.len() as u64);
    let kept = report.stdout.head.len() + report.stdout.tail.len();
    assert!(kept < expected.len(), "the ends are kept as ever");
    lab.send(&[SlotCommand::Release { key: report.key }]);
    let mut taken = lab.shell("true");
    taken.outputs = vec!["no/out".into()];
    taken.tee = [Some("gone/out".into()), None];
    let report = lab.run(taken);
    assert!(matches!(report.exit, ExitKind::SetupFailed { .. }), "{:?}", report.exit);
    lab.close();
}

#[test]
fn when_the_executor_dies_nothing_stays() {
    let mut lab = Lab::new();
    let sleep = unique_sleep();
    let line = format!(
        "touch out; trap '' TERM; setsid sleep {sleep} & (setsid sleep {sleep} &); sleep {sleep}; wait"
    );
    let mut with_output = lab.shell("echo x > o");
    with_output.outputs = vec!["o".into()];
    let report = lab.run(with_output);
    assert!(report.sandbox.is_some());
    let (running, queued) = (lab.shell(&line), lab.shell("sleep 0"));
    lab.send(&[&running, &queued].map(|spec| SlotCommand::Start(Box::new(spec.clone()))));
    lab.started(running.key);
    wait_until("three sleepers", || n_living_with(&sleep) >= 4);
    lab.close();
    assert_eq!(n_living_with(&sleep), 0);
}

#[test]
fn when_the_slot_process_is_killed_its_program_dies_and_its_sandboxes_can_be_cleaned() {
    let mut lab = Lab::new();
    let sleep = unique_sleep();
    let spec = lab.exec(&["sleep", &sleep]);
    lab.start(&spec);
    lab.started(spec.key);
    lab.slot.process.kill().unwrap();
    lab.slot.process.wait().unwrap();
    wait_until("the end of the program", || n_living_with(&sleep) == 0);
    assert_eq!(sandbox::clean_leftovers(&lab.root(), |_| false).unwrap(), 1);
    assert_eq!(fs::read_dir(lab.root()).unwrap().count(), 0);
}

#[test]
fn many_short_tasks_are_reported_once_each_and_in_order() {
    let mut lab = Lab::new();
    let specs: Vec<_> = (0..300).map(|i| lab.exec(&["echo", &i.to_string()])).collect();
    let commands: Vec<_> = specs.iter().map(|spec| SlotCommand::Start(Box::new(spec.clone()))).collect();
    lab.send(&commands);
    let mut last_ns = 0;
    for (i, spec) in specs.iter().enumerate() {
        let report = lab.ended();
        assert_eq!((report.key, &report.exit), (spec.key, &ExitKind::Exited(0)));
        assert_eq!(report.stdout.head.to_string(), format!("{i}\n"));
        let t = report.times;
        let order = [last_ns, t.begun_ns, t.setup_done_ns, t.spawned_ns, t.exited_ns, t.finished_ns];
        assert!(order.is_sorted() && t.received_ns <= t.begun_ns, "{t:?}");
        last_ns = t.finished_ns;
    }
    assert_eq!(fs::read_dir(lab.root()).unwrap().count(), 1, "one directory serves all");
    lab.close();
}

#[test]
fn an_executor_that_does_not_read_is_waited_for() {
    let mut lab = Lab::new();
    let limits = CaptureLimits { head_bytes: 1 << 20, tail_bytes: 0 };
    let specs: Vec<_> =
        (0..60).map(|_| RunSpec { capture: limits, ..lab.shell("head -c 1000000 /dev/zero") }).collect();
    let commands: Vec<_> = specs.iter().map(|spec| SlotCommand::Start(Box::new(spec.clone()))).collect();
    lab.send(&commands);
    for spec in &specs {
        let report = lab.ended();
        assert_eq!((report.key, report.stdout.head.len()), (spec.key, 1_000_000));
    }
    lab.close();
}

#[test]
fn a_slot_without_its_directory_says_so() {
    let mut slot = spawn(config(std::path::Path::new("/no/such/directory")));
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut slot.stream, &mut bytes).unwrap();
    let mut decoder = Decoder::new();
    decoder.extend(&bytes);
    let Some(SlotReport::Refused { message }) = decoder.next_message().unwrap() else { panic!() };
    assert!(message.contains("/no/such/directory"), "{message}");
    slot.process.wait().unwrap();
}
