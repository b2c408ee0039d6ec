//! Inputs, outputs and sandboxes.

mod lab;
use eyas_runner::*;
use lab::*;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const ODD_NAMES: [&str; 8] =
    ["with space", "it's \"quoted\"", "line\nbreak", "ünï-日本", "-rf", "$(touch x)", "deep/er/-x y", "*"];

#[test]
fn names_of_all_kinds_work_for_inputs_and_outputs() {
    let mut lab = Lab::new();
    let object = lab.object("o", b"content");
    let mut spec = lab.spec(Program::Exec(
        ["sh", "-c", r#"for n; do cat < "$n" > "out-$$" && mv -- "out-$$" "./$n.out" || exit 1; done"#, "sh"]
            .into_iter()
            .chain(ODD_NAMES)
            .map(ByteString::from)
            .collect(),
    ));
    spec.inputs = ODD_NAMES.iter().map(|name| link(name, &object)).collect();
    spec.outputs = ODD_NAMES.iter().map(|name| (&format!("{name}.out")).into()).collect();
    let declared = spec.outputs.clone();
    let key = spec.key;
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(0), "{}", report.stderr.head);
    assert_eq!(report.inputs, [LinkKind::HardLink; 8]);
    assert!(report.inputs_modified.is_empty());
    let sandbox = report.sandbox.unwrap();
    for (name, state) in declared.iter().zip(&report.outputs) {
        let OutputState::File { path, size_bytes: 7, n_links: 1, .. } = state else {
            panic!("{name} {state:?}")
        };
        assert_eq!(path, name);
        assert_eq!(fs::read(sandbox.as_path().join(path.as_path())).unwrap(), b"content");
    }
    lab.send(&[SlotCommand::Release { key }]);
    assert_eq!(lab.output_of("ls -A"), "", "the recycled sandbox is empty");
    assert_eq!(fs::read_dir(lab.root()).unwrap().count(), 1);
    lab.close();
}

#[test]
fn names_that_lead_out_of_the_sandbox_are_refused() {
    let mut lab = Lab::new();
    let object = lab.object("o", b"x");
    for name in ["/abs", "../up", "a/../../up", "a//b", "./a", "", "a//", "a/.", ".."] {
        for as_input in [true, false] {
            let mut spec = lab.shell("true");
            if as_input {
                spec.inputs = vec![link(name, &object)];
            } else {
                spec.outputs = vec![name.into()];
            }
            let report = lab.run(spec);
            assert!(
                matches!(report.exit, ExitKind::SetupFailed { kind: SetupKind::BadName, .. }),
                "{name}: {:?}",
                report.exit
            );
            assert_eq!(report.exit.status(), Status::Permanent);
        }
    }
    let mut spec = lab.shell("true");
    spec.inputs = vec![link("same", &object), link("same", &object)];
    assert!(matches!(lab.run(spec).exit, ExitKind::SetupFailed { kind: SetupKind::BadName, .. }));
    let mut spec = lab.shell("true");
    spec.inputs = vec![link("ok", &object), link("gone", Path::new("/no/such/object"))];
    let report = lab.run(spec);
    let ExitKind::SetupFailed { kind: SetupKind::SourceMissing, message } = &report.exit else { panic!() };
    assert!(message.contains("`gone`") && message.contains("/no/such/object"), "{message}");
    lab.close();
}

#[test]
fn an_input_may_be_deleted_but_writing_to_it_is_noticed() {
    let mut lab = Lab::new();
    let objects: Vec<_> = (0..4).map(|i| lab.object(&format!("o{i}"), b"precious")).collect();
    let inputs: Vec<_> = objects.iter().enumerate().map(|(i, o)| link(&format!("in{i}"), o)).collect();

    let mut spec = lab.shell("rm -f in0; mv in1 renamed; cat in2 > /dev/null; echo new > in0");
    spec.inputs = inputs.clone();
    let report = lab.run(spec);
    assert_eq!((report.exit, report.inputs_modified), (ExitKind::Exited(0), vec![]));
    assert!(objects.iter().all(|o| fs::read(o).unwrap() == b"precious"));

    // The mode does not stop the owner of the file or root; the length is the same, so only the time shows
    // the change.
    let mut spec = lab.shell("chmod u+w in1 && printf tampered > in1; printf x >> in3; chmod 444 in1");
    spec.inputs = inputs.clone();
    let report = lab.run(spec);
    let expected = if rustix::process::geteuid().as_raw() == 0 { vec![1, 3] } else { vec![1] };
    assert_eq!(report.inputs_modified, expected);

    let private = |mode, executable| Input { mode, executable, ..link("in0", &objects[0]) };
    let mut spec = lab.shell("echo more >> in0 && cat in0");
    spec.inputs = vec![private(InputMode::Copy, false)];
    let report = lab.run(spec);
    assert_eq!((report.exit, report.inputs_modified), (ExitKind::Exited(0), vec![]));
    assert!(matches!(report.inputs[..], [LinkKind::Copy | LinkKind::Reflink]));
    assert_eq!(report.stdout.head.to_string(), "preciousmore\n");
    assert_eq!(fs::read(&objects[0]).unwrap(), b"precious");

    let script = lab.object("script", b"#!/bin/sh\necho ran $1\n");
    let mut spec = lab.exec(&["./run me", "it"]);
    spec.inputs = vec![Input { executable: true, ..link("run me", &script) }];
    assert_eq!(lab.run(spec).stdout.head.to_string(), "ran it\n");
    assert_eq!(fs::metadata(&script).unwrap().mode() & 0o7777, 0o444);
    lab.close();
}

#[test]
fn declared_outputs_are_looked_at_as_they_are() {
    let mut lab = Lab::new();
    let object = lab.object("o", b"abc");
    let mut spec = lab.shell(
        "echo x > file; chmod 600 file; mkdir dir; mkfifo pipe; echo y > real; ln -s real inside; \
         ln -s /etc/passwd outside; ln -s nothing dangling; ln -s dir todir; ln in hard; : > a/b/empty",
    );
    let names =
        ["file", "missing", "dir", "pipe", "inside", "outside", "dangling", "todir", "hard", "a/b/empty"];
    spec.inputs = vec![link("in", &object)];
    spec.outputs = names.iter().map(|name| (*name).into()).collect();
    let mut report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(0), "{}", report.stderr.head);
    let real = report.sandbox.as_ref().unwrap().as_path().join("real");
    let modified = fs::metadata(real).unwrap();
    let seen = take_times(&mut report.outputs);
    assert_eq!(seen[4], modified.mtime() * 1_000_000_000 + modified.mtime_nsec());
    let file = |path: &str, size_bytes, mode, n_links| OutputState::File {
        path: path.into(),
        size_bytes,
        mode,
        modified_ns: 0,
        n_links,
    };
    // SAFETY: sets the mask to what it is set to at once.
    let umask = unsafe {
        let mask = libc::umask(0);
        libc::umask(mask);
        mask
    };
    let usual = 0o666 & !umask;
    let not = |what: &str| OutputState::NotAFile { what: what.to_owned() };
    assert_eq!(
        report.outputs,
        [
            file("file", 2, 0o600, 1),
            OutputState::Missing,
            not("a directory; a location that ends in `/` takes all of it"),
            not("a named pipe"),
            file("real", 2, usual, 1),
            not("a symbolic link out of the sandbox"),
            not("a symbolic link to nothing"),
            not("a symbolic link to something that is no file"),
            file("hard", 3, 0o444, 3),
            file("a/b/empty", 0, usual, 1),
        ]
    );

    // A parent directory replaced by a link.
    let mut spec = lab.shell("rmdir d3 root/etc root; mkdir d2; echo z > d2/f; ln -s d2 d3; ln -s / root");
    spec.outputs = vec!["d3/f".into(), "root/etc/passwd".into()];
    let mut report = lab.run(spec);
    take_times(&mut report.outputs);
    assert_eq!(report.outputs, [file("d2/f", 2, usual, 1), not("a symbolic link out of the sandbox")]);

    let mut spec = lab.shell("exit 0");
    spec.outputs = vec!["never".into()];
    let report = lab.run(spec);
    assert_eq!((report.outputs, report.sandbox), (vec![OutputState::Missing], None));
    lab.close();
}

/// Takes the times out of the outputs' states; 0 for what is no file.
fn take_times(outputs: &mut [OutputState]) -> Vec<i64> {
    let take = |output: &mut OutputState| match output {
        OutputState::File { modified_ns, .. } => std::mem::take(modified_ns),
        _ => 0,
    };
    outputs.iter_mut().map(take).collect()
}

/// The object that a directory is.
fn packed(lab: &Lab, name: &str, directory: &Path) -> std::path::PathBuf {
    let mut bytes = vec![];
    let tree = eyas_folder::Tree::of(directory).unwrap();
    std::io::Read::read_to_end(&mut eyas_folder::Packed::new(directory, tree), &mut bytes).unwrap();
    lab.object(name, &bytes)
}

#[test]
fn a_directory_is_looked_at_and_comes_back_as_it_was() {
    let mut lab = Lab::new();
    let mut spec = lab.shell(
        "mkdir -p r/sub empty inner; echo one > r/a; printf '#!/bin/sh\necho ran' > r/sub/run; chmod 700 r/sub/run; \
         ln -s sub/run r/link; ln -s r todir; ln -s . all; ln -s /etc out; mkfifo r2; mkdir bad; mkfifo bad/pipe; : > file; \
         ln -s ../file inner/up",
    );
    let names = ["r/", "empty/", "todir/", "all/", "out/", "r2/", "bad/", "file/", "missing/", "inner/", "r"];
    spec.outputs = names.iter().map(|name| (*name).into()).collect();
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(0), "{}", report.stderr.head);
    let directory = |path: &str, size_bytes| OutputState::Directory { path: path.into(), size_bytes };
    let not = |what: &str| OutputState::NotAFile { what: what.to_owned() };
    let size_bytes = 11 + (5 + 1 + 8 + 4) + (5 + 4 + 4 + 7) + (5 + 3) + (5 + 3 + 8 + 18) + 2;
    assert_eq!(
        report.outputs,
        [
            directory("r", size_bytes),
            directory("empty", 12),
            directory("r", size_bytes),
            not("a symbolic link to the whole sandbox"),
            not("a symbolic link out of the sandbox"),
            not("a named pipe, and a location that ends in `/` is for a directory"),
            not("a directory that cannot be taken: `pipe` in it is a named pipe"),
            not("a file, and a location that ends in `/` is for a directory"),
            OutputState::Missing,
            not(
                "a directory that cannot be taken: `up` in it is a symbolic link to `../file`, which leads out of the directory"
            ),
            not("a directory; a location that ends in `/` takes all of it"),
        ]
    );
    let made = report.sandbox.unwrap().as_path().join("r");
    let object = packed(&lab, "r", &made);

    let mut spec =
        lab.shell("cat in/x/a; in/x/sub/run; in/x/link; : > in/x/new; rm in/x/a; ls in/x; touch more/x");
    spec.inputs = vec![link("in/x/", &object), link("more/x/", &made)];
    let report = lab.run(spec);
    assert_eq!(report.stdout.head.to_string(), "one\nran\nran\nlink\nnew\nsub\n", "{}", report.stderr.head);
    assert_eq!(report.inputs, [LinkKind::Copy; 2]);
    assert!(report.inputs_modified.is_empty());
    assert_eq!(fs::read(made.join("a")).unwrap(), b"one\n");
    // It is the task's own, with the usual permissions, and with the times that are known.
    for mode in [InputMode::Link, InputMode::Copy] {
        let mut spec = lab.shell("stat -c '%a %Y' r/a r/sub/run r/sub r");
        spec.inputs =
            vec![Input { mode, times: vec![7, 2_000_000_000, 3_000_000_000], ..link("r/", &object) }];
        let expect = "644 2\n755 1000000000\n755 3\n700 0\n";
        assert_eq!(lab.run(spec).stdout.head.to_string(), expect);
    }
    // One that lies in it comes to it, and what is no directory is refused.
    let file = lab.object("o", b"x");
    let mut spec = lab.shell("cat r/more/o; ls r");
    spec.inputs = vec![link("r/more/o", &file), link("r/", &object)];
    assert_eq!(lab.run(spec).stdout.head.to_string(), "xa\nlink\nmore\nsub\n");
    let mut spec = lab.shell("true");
    spec.inputs = vec![link("r/", &file)];
    let ExitKind::SetupFailed { message, .. } = lab.run(spec).exit else { panic!() };
    assert!(
        message.contains("cannot place input `r/`") && message.contains("not the bytes of a directory"),
        "{message}"
    );
    lab.close();
}

#[test]
fn a_kept_sandbox_belongs_to_whoever_reads_the_report() {
    let mut lab = Lab::new();
    let mut spec = lab.shell("echo evidence > trace; exit 1");
    spec.keep_sandbox = true;
    let report = lab.run(spec);
    let kept = report.sandbox.unwrap();
    assert!(report.kept);
    assert_eq!(lab.output_of("ls -A"), "");
    assert_eq!(fs::read_to_string(kept.as_path().join("trace")).unwrap(), "evidence\n");
    sandbox::remove_tree(kept.as_path()).unwrap();
    lab.close();
}

#[test]
fn whatever_a_task_does_to_its_sandbox_the_next_one_finds_an_empty_one() {
    let mut lab = Lab::new();
    let root = lab.root();
    for line in [
        "mkdir -p a/b/c; echo x > a/b/c/f; chmod 000 a/b a",
        "chmod 000 .",
        "chmod 1777 .; touch f",
        "rmdir \"$PWD\"",
        "mv \"$PWD\" \"$PWD.moved\"; touch x",
        "rm -rf \"$PWD\"; ln -s / \"$PWD\"",
        "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done",
    ] {
        let spec = lab.shell(line);
        let report = lab.run(spec);
        assert!(matches!(report.exit, ExitKind::Exited(_)), "{line}: {:?}", report.exit);
        assert_eq!(lab.output_of("ls -A; stat -c %a ."), "700\n", "after {line}");
    }
    // The one that was renamed is empty, but has a name that is not ours to remove.
    for entry in fs::read_dir(&root).unwrap().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".moved") {
            assert_eq!(fs::read_dir(entry.path()).unwrap().count(), 0);
            fs::remove_dir(entry.path()).unwrap();
        }
    }
    lab.close();
}

/// A small file system of its own, when we may mount one.
struct Mount(std::ffi::CString);

impl Mount {
    fn tmpfs(at: &Path, options: &std::ffi::CStr) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let at = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
        // SAFETY: all strings are NUL-terminated.
        let mounted = unsafe {
            libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast())
        };
        (mounted == 0).then_some(Self(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: the path is NUL-terminated.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_under_the_sandboxes_is_told_and_survived() {
    let base = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(&base.path().join("boxes"), c"size=256k,nr_inodes=20") else {
        eprintln!("skipped: needs the right to mount");
        return;
    };
    let mut lab = Lab::with(base, |_| {});
    let (big, small) = (lab.object("big", &vec![1; 1 << 20]), lab.object("small", b"small"));
    // Another file system than the cache: links are refused, copies are made until the space is gone.
    let mut spec = lab.shell("cat in; stat -c %a in");
    spec.inputs = vec![link("in", &small)];
    let report = lab.run(spec);
    assert_eq!((&report.exit, &report.inputs[..]), (&ExitKind::Exited(0), &[LinkKind::Copy][..]));
    assert_eq!(report.stdout.head.to_string(), "small644\n");
    let mut spec = lab.shell("true");
    spec.inputs = vec![link("in", &big)];
    let report = lab.run(spec);
    let ExitKind::SetupFailed { kind: SetupKind::NoSpace, message } = &report.exit else {
        panic!("{report:?}")
    };
    assert!(message.contains("input `in`"), "{message}");
    assert_eq!(report.exit.status(), Status::Temporary);
    // No inodes left.
    let mut spec = lab.shell("true");
    spec.outputs = (0..40).map(|i| (&format!("d{i}/o")).into()).collect();
    let report = lab.run(spec);
    assert!(
        matches!(report.exit, ExitKind::SetupFailed { kind: SetupKind::NoSpace, .. }),
        "{:?}",
        report.exit
    );
    // The program itself meets the full disk: its failure, and the next task has the space again.
    let spec = lab.shell("head -c 1000000 /dev/zero > f");
    let report = lab.run(spec);
    assert_eq!(report.exit, ExitKind::Exited(1));
    assert!(report.stderr.head.to_string().contains("No space"), "{}", report.stderr.head);
    assert_eq!(lab.output_of("head -c 200000 /dev/zero > f && ls"), "f\n");
    lab.close();
}

#[test]
fn a_failed_set_up_leaves_no_trace() {
    let mut lab = Lab::new();
    let object = lab.object("o", b"x");
    let mut spec = lab.shell("true");
    spec.inputs = vec![link("a/b", &object), link("../c", &object)];
    assert!(matches!(lab.run(spec).exit, ExitKind::SetupFailed { .. }));
    assert_eq!(lab.output_of("ls -A"), "");
    assert_eq!(fs::metadata(&object).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(&object).unwrap().permissions().mode() & 0o777, 0o444);
    lab.close();
}

#[test]
fn what_is_in_a_sandbox_is_for_its_owner_alone() {
    let mut lab = Lab::new();
    let object = lab.object("o", b"secret");
    let tool = lab.object("tool", b"#!/bin/sh\ntrue\n");
    let mut spec = lab.shell("stat -c '%a %n' a/b . a a/b/copy a/b/tool out");
    spec.inputs = vec![
        Input { mode: InputMode::Copy, ..link("a/b/copy", &object) },
        Input { executable: true, ..link("a/b/tool", &tool) },
    ];
    spec.outputs = vec!["out/file".into()];
    let report = lab.run(spec);
    let expected = "700 a/b\n700 .\n700 a\n644 a/b/copy\n755 a/b/tool\n700 out\n";
    assert_eq!(report.stdout.head.to_string(), expected, "{}", report.stderr.head);
    lab.close();
}

#[test]
fn a_cancel_ends_a_long_copy_into_the_sandbox() {
    let mut lab = Lab::new();
    let huge = lab.object("huge", b"");
    fs::set_permissions(&huge, fs::Permissions::from_mode(0o600)).unwrap();
    let file = fs::File::options().write(true).open(&huge).unwrap();
    // Each second block is a hole.
    (0..20_000).for_each(|i| file.write_all_at(b"x", i * 8192).unwrap());
    drop(file);
    let mut spec = lab.shell("true");
    spec.inputs = vec![Input { mode: InputMode::Copy, ..link("in", &huge) }];
    lab.start(&spec);
    let copied = |lab: &Lab| -> u64 {
        let boxes = fs::read_dir(lab.root()).unwrap().flatten();
        boxes.filter_map(|b| b.path().join("in").metadata().ok()).map(|m| m.len()).sum()
    };
    let deadline = Instant::now() + DEADLINE;
    while copied(&lab) == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    lab.send(&[SlotCommand::Cancel { key: spec.key }]);
    let report = lab.ended();
    // A file system that clones has the whole at once, and the program runs.
    assert!(matches!(report.exit, ExitKind::Cancelled | ExitKind::Exited(0)), "{:?}", report.exit);
    let next = lab.shell("true");
    assert_eq!(lab.run(next).exit, ExitKind::Exited(0));
    lab.close();
}

/// The executor that ran a program cannot report any more: the number of links of the shared objects shows
/// that they are in doubt.
#[test]
fn inputs_of_a_program_whose_executor_is_gone_are_marked() {
    let mut lab = Lab::new();
    let (shared, other) = (lab.object("shared", b"x"), lab.object("other", b"y"));
    let mut spec = lab.shell("echo running; exec sleep 1000");
    spec.inputs = vec![link("in", &shared)];
    lab.start(&spec);
    lab.started(spec.key);
    let root = lab.root();
    let Lab { base, mut slot, .. } = lab;
    drop(slot.stream);
    assert!(slot.process.wait().unwrap().success());
    assert_eq!(fs::metadata(&shared).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(&other).unwrap().nlink(), 1);
    eyas_runner::sandbox::clean_leftovers(&root, |_| false).unwrap();
    assert_eq!(fs::metadata(&shared).unwrap().nlink(), 1);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    drop(base);
}

#[test]
fn what_programs_write_is_counted_also_of_those_that_run_on() {
    let mut lab = Lab::new();
    let write = |bytes: u32| format!("head -c {bytes} /dev/zero > o; rm o");
    let spec = lab.shell(&write(1_000_000));
    let first = lab.run(spec);
    assert!(first.free_bytes.is_some_and(|bytes| bytes > 0), "{first:?}");
    let Some(before) = first.written_bytes else {
        assert!(!Path::new("/proc/self/io").exists(), "the kernel counts");
        return;
    };
    assert!(before >= 1_000_000 && first.all_written_bytes.is_none(), "{first:?}");
    // Another slot process of the same parent, whose program has written and runs on.
    let mut other = Lab::new();
    let running =
        other.shell(&format!("{}; echo go > {}/go; sleep 100", write(3_000_000), lab.root().display()));
    let key = running.key;
    other.start(&running);
    other.started(key);
    let line = format!("{}; while [ ! -e ../go ]; do sleep 0.01; done; exit 3", write(2_000_000));
    let spec = lab.shell(&line);
    let failed = lab.run(spec);
    assert_eq!(failed.exit, ExitKind::Exited(3), "{}", failed.stderr.head);
    let all = failed.all_written_bytes.expect("it failed");
    // Tests run beside this one, with slot processes of their own.
    assert!(all >= before + 5_000_000, "{all}, {before} of them before");
    assert!((2_000_000..4_000_000).contains(&(failed.written_bytes.expect("the kernel counts") - before)));
    other.send(&[SlotCommand::Cancel { key }]);
    other.ended();
    other.close();
    std::fs::remove_file(lab.root().join("go")).unwrap();
    lab.close();
}
