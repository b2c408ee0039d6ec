"""Lines for the shell: pipes fail with any of their parts. And what programs leave that nobody declared."""

from __future__ import annotations

import json
from pathlib import Path

from harness import Run
from lists import write_list

PYTHON = "python3 -c 'for i in range(10**6): print(i)' 2> /dev/null | head -1"


def test_a_pipe_fails_with_any_part_and_head_may_have_enough(run: Run, tmp_path: Path) -> None:
    good = ["seq 1000000 | head -1", "set -e; seq 1000000 | head -1; echo on", PYTHON, "false | cat || true"]
    good += ["#!/bin/sh\nfalse | cat", "[[ -n $BASH_VERSION ]]"]
    bad = ["false | cat", "sh -c 'echo woe >&2; exit 3' | sort | cat", "seq 1000000 | sh -c 'exit 4' | cat"]
    tasks: list[dict[str, object]] = [{"id": f"good-{n}", "command": line} for n, line in enumerate(good)]
    tasks += [{"id": f"bad-{n}", "command": line} for n, line in enumerate(bad)]
    tasks += [
        {"id": "sh", "command": "false | cat", "shell": "sh"},
        {"id": "bash", "command": "false | cat", "shell": "bash"},
    ]
    write_list(tmp_path / "t.jsonl", *tasks)
    done = run("run", "t.jsonl", "--slots", "2", cwd=tmp_path, status=1)
    assert f"{len(tasks)} tasks in" in done.stderr and f"{len(good) + 1} done, 4 failed" in done.stderr
    assert (
        "failed: task `bad-0`: the program ended with status 1: part 1 of the 2 of a pipe, false, ended with status 1"
        in done.stderr
    )
    part = "part 1 of the 3 of a pipe, sh -c 'echo woe >&2; exit 3', ended with status 3; its last words: woe"
    assert f"failed: task `bad-1`: the program ended with status 3: {part}" in done.stderr
    assert "part 2 of the 3 of a pipe, sh -c 'exit 4', ended with status 4" in done.stderr
    assert "failed: task `bash`" in done.stderr

    # The other ways in: maps, lists of commands, Makeflow, pairs, and the default of a cluster.
    run("map", "--range", "0..1", "--shell", "--", "false | cat", cwd=tmp_path, status=1)
    run("map", "--range", "0..1", "--shell=sh", "--", "false | cat", cwd=tmp_path)
    run("map", "--range", "0..1", "--shell", "--line-shell", "sh", "--", "false | cat", cwd=tmp_path)
    (tmp_path / "eyas.toml").write_text('[profile.old]\nline-shell = "sh"\n')
    run("map", "--range", "0..1", "--shell", "--profile", "old", "--", "false | cat", cwd=tmp_path)
    (tmp_path / "c.txt").write_text("false | cat\nseq 1000000 | head -1 > /dev/null\n")
    assert "1 done, 1 failed" in run("run", "c.txt", cwd=tmp_path, status=1).stderr
    (tmp_path / "w.makeflow").write_text("a:\n\tfalse | cat > a\n")
    assert "part 1 of the 2" in run("run", "w.makeflow", cwd=tmp_path, status=1).stderr
    # A string in WfFormat is `/bin/sh -c STRING`. Task `b` waits for `a` without a file of it, so the line of `a` gets a marker.
    line = {"program": "/bin/sh", "arguments": ["-c", "false | cat"]}
    parents_of: dict[str, list[str]] = {"a": [], "b": ["a"], "c": []}
    tasks_of_format = [{"name": name, "id": name, "parents": parents} for name, parents in parents_of.items()]
    execution = {"tasks": [{"id": name, "command": line} for name in parents_of]}
    workflow = {"specification": {"tasks": tasks_of_format}, "execution": execution}
    (tmp_path / "w.json").write_text(json.dumps({"name": "w", "workflow": workflow}))
    done = run("run", "w.json", cwd=tmp_path, status=1)
    assert "failed: task `a`: the program ended with status 1" in done.stderr
    assert (
        "failed: task `c`: the program ended with status 1: part 1 of the 2 of a pipe, false" in done.stderr
    )
    for words, wrong in (
        (["map", "--range", "0..1", "--shell=zsh", "--", "true"], "the shells are sh and bash"),
        (["run", "wrong.jsonl"], "`shell` is for a command that is one string"),
    ):
        write_list(tmp_path / "wrong.jsonl", {"command": ["true"], "shell": "sh"})
        assert wrong in run(*words, cwd=tmp_path, status=2).stderr


def test_files_that_nobody_declared_are_counted_and_may_be_kept(run: Run, tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"{n}.in").write_text(f"b {n}\na {n}\n")
    words = ["map", "*.in", "--slots", "2"]
    done = run(*words, "--shell", "--", "sort {in} > {stem}.sorted; touch .hidden", cwd=tmp_path)
    note = [line for line in done.stderr.splitlines() if line.startswith("note: 5 files that 5 tasks made")]
    assert len(note) == 1 and ".sorted`" in note[0] and "and 2 more" in note[0] and "--keep-new" in note[0]
    line = "mkdir d; sort {in} > d/{stem}.sorted; cp {in} {out}"
    done = run(*words, "--keep-new=kept/{stem}", "--out", "o/{stem}", "--shell", "--", line, cwd=tmp_path)
    assert "note:" not in done.stderr
    assert (tmp_path / "kept/3/d/3.sorted").read_text() == "a 3\nb 3\n"
    assert sorted(path.name for path in tmp_path.glob("kept/*/*/*")) == [f"{n}.sorted" for n in range(5)]
    assert (tmp_path / "o/3").exists()
    # Links are brought where they lead to what is brought, empty folders are, and what is left is named.
    line = "mkdir run e; sort {in} > run/r; ln -s run new; ln -s {in} same; ln -s /etc out; mkfifo p"
    done = run("map", "1.in", "--keep-new=linked", "--shell", "--", line, cwd=tmp_path)
    assert (tmp_path / "linked/new/r").read_text() == (tmp_path / "kept/1/d/1.sorted").read_text()
    assert (tmp_path / "linked/same").read_text() == (tmp_path / "1.in").read_text()
    assert (tmp_path / "linked/e").is_dir()
    assert "note: 2 files that 1 task made" in done.stderr and "`out`, `p`" in done.stderr
    run("map", "--range", "0..2", "--keep-new", "--", "touch", "x", cwd=tmp_path)
    assert (tmp_path / "new/1/x").exists()
    # A program that leaves only what it declares is not spoken of.
    assert (
        "note:"
        not in run("map", "1.in", "--out", "p/{name}", "--", "cp", "{in}", "{out}", cwd=tmp_path).stderr
    )
