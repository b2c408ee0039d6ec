"""Going on with a workflow: only what has to run does, as digests show, and the reasons are printed."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Finished, Run, Start, wait_until
from lists import no_run_was_made, runs, write_list
from weather import programs_under

N_PARTS = 6


SUM = "cat *.n | awk '{s += $1} END {print s}' > total"


def step(folder: Path, id_: str, command: str, inputs: list[str], outputs: list[str]) -> dict[str, object]:
    """One task. Its program leaves a line in `ran`, and waits at a gate that a test may write: of neither eyas knows."""
    return {
        "id": id_,
        "label": id_.split("-")[0],
        "command": f'echo {id_} >> "$NOTES/ran"; [ ! -e "$NOTES/{id_}.sh" ] || . "$NOTES/{id_}.sh"; {command}',
        "inputs": inputs,
        "outputs": outputs,
        "env": {"NOTES": str(folder)},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts that are prepared on the nodes, counted, and added up."""
    folder = tmp_path / "work"
    (folder / "in").mkdir(parents=True)
    for i in range(N_PARTS):
        (folder / "in" / f"{i}.txt").write_text("word " * (i + 1))
    write(folder)
    return folder


def write(folder: Path, sum_: str = SUM) -> None:
    """prep-i (stays on the nodes) -> count-i (home) -> sum (home)"""
    tasks = []
    for i in range(N_PARTS):
        prep = f"tr ' ' '\\n' < {i}.txt > {i}.w"
        tasks.append(step(folder, f"prep-{i}", prep, [f"in/{i}.txt"], [f"run:{i}.w"]))
        count = f"wc -w < {i}.w > {i}.n"
        tasks.append(step(folder, f"count-{i}", count, [f"run:{i}.w"], [f"out/{i}.n"]))
    tasks.append(step(folder, "sum", sum_, [f"out/{i}.n" for i in range(N_PARTS)], ["out/total"]))
    write_list(folder / "w.jsonl", *tasks)


def ran(folder: Path) -> list[str]:
    """The tasks that ran since the last time, sorted."""
    path = folder / "ran"
    lines = sorted(path.read_text().split()) if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def total(folder: Path) -> int:
    return int((folder / "out" / "total").read_text())


def all_tasks() -> list[str]:
    return sorted([f"{kind}-{i}" for kind in ("prep", "count") for i in range(N_PARTS)] + ["sum"])


EXPECTED = sum(range(1, N_PARTS + 1))


def test_nothing_changed_nothing_runs(run: Run, folder: Path) -> None:
    run("run", "w.jsonl", "--slots", "2", cwd=folder)
    assert ran(folder) == all_tasks()
    assert total(folder) == EXPECTED
    # Touched, and the list rewritten: the bytes are what counts.
    for path in folder.glob("in/*"):
        os.utime(path, (1, 1))
    os.utime(folder / "out" / "total")
    done = run("run", "w.jsonl", "--resume", cwd=folder)
    assert f"all {2 * N_PARTS + 1} tasks are up to date" in done.stderr
    assert ran(folder) == []


def test_bytes_decide_and_time_stamps_do_not(run: Run, folder: Path) -> None:
    run("run", "w.jsonl", "--slots", "2", cwd=folder)
    ran(folder)
    changed = folder / "in" / "3.txt"
    before = changed.stat()
    changed.write_text(changed.read_text().replace("word word", "wordsword", 1))
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (changed.stat().st_size, changed.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    run("run", "w.jsonl", "--resume", cwd=folder)
    assert ran(folder) == ["count-3", "prep-3", "sum"]
    assert total(folder) == EXPECTED - 1
    # And on from there: what was left out the last time is still known.
    (folder / "out" / "5.n").unlink()
    run("run", "w.jsonl", "--resume", cwd=folder)
    assert ran(folder) == ["count-5", "prep-5", "sum"]
    assert total(folder) == EXPECTED - 1
    run("run", "w.jsonl", "--resume", cwd=folder)
    assert ran(folder) == []


def test_a_changed_step_runs_with_what_comes_of_it(run: Run, folder: Path) -> None:
    run("run", "w.jsonl", "--slots", "2", cwd=folder)
    ran(folder)
    write(folder, SUM.replace("print s", "print 10 * s"))
    plan = run("run", "w.jsonl", "--dry-run", "--resume", cwd=folder).stdout
    assert f"1 of {2 * N_PARTS + 1} tasks would run, {2 * N_PARTS} up to date" in plan
    assert "1 task of stage `sum`: the command changed" in plan
    assert ran(folder) == []
    run("run", "w.jsonl", "--resume", cwd=folder)
    assert ran(folder) == ["sum"]
    assert total(folder) == EXPECTED * 10


def test_a_dry_run_names_reasons_and_starts_nothing(run: Run, folder: Path, tmp_path: Path) -> None:
    plan = run("run", "w.jsonl", "--dry-run", cwd=folder).stdout
    assert f"{N_PARTS} tasks of stage `prep`: all tasks run without --resume" in plan
    plan = run("run", "w.jsonl", "--dry-run", "--resume", cwd=folder).stdout
    assert f"{N_PARTS} tasks of stage `count`: there is no earlier run" in plan
    no_run_was_made(tmp_path)
    run("run", "w.jsonl", "--slots", "2", cwd=folder)
    ran(folder)
    n_runs = len(runs(tmp_path))
    for i in (1, 4):
        (folder / "out" / f"{i}.n").unlink()
    (folder / "out" / "2.n").write_text("7\n")
    plan = run("run", "w.jsonl", "--resume", "--dry-run", cwd=folder).stdout
    assert f"2 tasks of stage `count`: an output is missing (`{folder}/out/1.n` and 1 more)" in plan
    assert f"1 task of stage `count`: an output is not what the task made (`{folder}/out/2.n`)" in plan
    assert (
        "3 tasks of stage `prep`: a task that runs reads what it leaves on the nodes (`run:1.w` and 2 more)"
        in plan
    )
    assert "1 task of stage `sum`: an input is made by a task that runs" in plan
    assert ran(folder) == []
    assert len(runs(tmp_path)) == n_runs
    assert not (folder / "out" / "1.n").exists()


@pytest.mark.parametrize("own_dir", [False, True])
def test_after_a_crash_only_the_rest_runs(
    run: Run, start: Start, folder: Path, tmp_path: Path, own_dir: bool
) -> None:
    gate = tmp_path / "gate"
    for i in range(2, N_PARTS):
        (folder / f"count-{i}.sh").write_text(f"while [ ! -e '{gate}' ]; do sleep 0.05; done\n")
    where = ["--dir", str(tmp_path / "cluster")] if own_dir else []
    # A slot for each count: those that end are not behind those at the gate.
    client = start("run", "w.jsonl", "--slots", "3", "--nodes", "2", *where, cwd=folder)
    dirs = [tmp_path / "cluster"] if own_dir else []

    def dispatcher_log() -> str:
        logs = [path / "dispatcher" / "events.jsonl" for path in dirs or runs(tmp_path)]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def n_ended() -> int:
        return len(re.findall(r'"end_task"', dispatcher_log()))

    # All preparations and two counts are done, the others wait at the gate.
    wait_until(lambda: n_ended() == N_PARTS + 2, "the first counts", alive=client)
    wait_until(lambda: len((folder / "ran").read_text().split()) >= N_PARTS + 2, "their notes", alive=client)
    root = dirs[0] if own_dir else runs(tmp_path)[0]
    victims = [client.pid, *family(client.pid)]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    client.wait(status=None)
    gate.touch()
    wait_until(lambda: not programs_under(root), "the end of all that ran")
    # The last line may have been cut in the middle.
    with (root / "dispatcher" / "events.jsonl").open("ab") as log:
        log.write(b'{"t":179529300500000')
    assert not (folder / "out" / "total").exists()
    ran(folder)

    plan = run("run", "w.jsonl", "--dry-run", "--resume", cwd=folder).stdout
    assert f"{N_PARTS - 2} tasks of stage `count`: the earlier run did not come to its end" in plan
    done = run("run", "w.jsonl", "--slots", "2", "--resume", *where, cwd=folder)
    # What stayed on the nodes went with them.
    rest = [f"{kind}-{i}" for kind in ("count", "prep") for i in range(2, N_PARTS)]
    assert ran(folder) == sorted([*rest, "sum"])
    assert f"{len(rest) + 1} to run" in done.stderr
    assert total(folder) == EXPECTED
    run("run", "w.jsonl", "--resume", cwd=folder)
    assert ran(folder) == []


def family(pid: int) -> list[int]:
    """All children of a process, and theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                found += [int(child), *family(int(child))]
    return found


def test_a_failed_task_runs_again_and_what_was_done_does_not(run: Run, folder: Path) -> None:
    (folder / "count-4.sh").write_text("exit 9\n")
    run("run", "w.jsonl", "--slots", "2", cwd=folder, status=1)
    ran(folder)
    (folder / "count-4.sh").unlink()
    plan = run("run", "w.jsonl", "--resume", "--dry-run", cwd=folder).stdout
    assert "1 task of stage `count`: failed in the earlier run" in plan
    run("run", "w.jsonl", "--resume", cwd=folder)
    assert ran(folder) == ["count-4", "prep-4", "sum"]
    assert total(folder) == EXPECTED


def test_a_workflow_of_another_format_is_resumed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("a b c\n")
    makeflow = 'MAKEFLOW_OUTPUTS="t.txt"\none.n: one.txt\n\twc -w < one.txt > one.n\nt.txt: one.n\n\tcat one.n > t.txt\n'
    (tmp_path / "w.makeflow").write_text(makeflow)
    run("run", "w.makeflow", "--out", "results", cwd=tmp_path)
    done = run("run", "w.makeflow", "--out", "results", "--resume", cwd=tmp_path)
    assert "up to date" in done.stderr
    (tmp_path / "w.makeflow").write_text(makeflow.replace("cat one.n", "cat -n one.n"))
    done = run("run", "w.makeflow", "--out", "results", "--resume", cwd=tmp_path)
    assert "0 of 2 tasks are up to date, 2 to run" in done.stderr
    assert (tmp_path / "results" / "t.txt").read_text().split() == ["1", "3"]


def test_a_cluster_that_is_up_is_asked_first(run: Run, folder: Path, tmp_path: Path) -> None:
    run("up", "--slots", "2", cwd=folder)
    try:
        run("submit", "w.jsonl", cwd=folder)
        run("wait", cwd=folder)
        assert ran(folder) == all_tasks()
        done = run("submit", "w.jsonl", "--resume", cwd=folder)
        assert "up to date" in done.stderr and done.stdout == ""
        (folder / "out" / "0.n").unlink()
        run("submit", "w.jsonl", "--resume", cwd=folder)
        run("wait", cwd=folder)
        assert ran(folder) == ["count-0", "prep-0", "sum"]
        assert "up to date" in run("submit", "w.jsonl", "--resume", cwd=folder).stderr
    finally:
        run("down", cwd=folder)


def test_what_cannot_be_resumed_is_said(run: Run, folder: Path, tmp_path: Path) -> None:
    def refused(*args: str) -> Finished:
        return run("run", *args, status=2, cwd=folder, stdin=json.dumps({"command": ["true"]}) + "\n")

    done = refused("w.jsonl", "--resume", str(tmp_path / "nowhere"))
    assert "there is no run to resume in" in done.stderr and "nowhere" in done.stderr
    done = refused("-", "--resume")
    assert "through a pipe" in done.stderr and "--resume DIR" in done.stderr
    other = tmp_path / "other"
    other.mkdir()
    (other / "events.jsonl").write_text("something else\n")
    done = refused("w.jsonl", "--resume", str(other))
    assert "does not begin with the header" in done.stderr
    for words in (("--resume", "w.jsonl"), ("--slots", "2", "--resume=w.jsonl")):
        said = (
            "hint: --resume took `w.jsonl` for the folder of an earlier run; write `eyas run TASKS --resume`"
        )
        assert said in refused(*words).stderr
    assert "`-` is a list on standard input" in refused("--resume", str(other)).stderr
    assert ran(folder) == []
    no_run_was_made(tmp_path)
    # A first run may well ask for it.
    done = run("run", "w.jsonl", "--resume", "--slots", "2", cwd=folder)
    assert "no earlier run of `w.jsonl` is known here" in done.stderr
    assert ran(folder) == all_tasks()


def test_a_task_has_its_own_earlier_end_and_not_that_of_an_equal_one(
    run: Run, start: Start, tmp_path: Path
) -> None:
    """Of tasks without outputs: what a program prints or finds elsewhere is nothing that eyas could look at."""
    prog = tmp_path / "prog"
    prog.write_text(
        f'#!/bin/sh\necho "$EYAS_TASK" >> {tmp_path}/ran\ncase "$EYAS_TASK" in $(cat {tmp_path}/bad)) exit 1; esac\n'
    )
    prog.chmod(0o755)
    bad = tmp_path / "bad"
    bad.write_text("[23]")
    maps = ["map", "--range", "0..4", "--no-print"]
    for words in (["--", "sh", "-c", 'test "$EYAS_TASK" -lt 2'], ["--", "./prog"]):
        run(*maps, *words, cwd=tmp_path, status=1)
        (tmp_path / "ran").unlink(missing_ok=True)
        done = run(*maps, "--resume", *words, cwd=tmp_path, status=1)
        assert "2 of 4 tasks are up to date, 2 to run" in done.stderr
    assert ran(tmp_path) == ["2", "3"]
    bad.write_text("none")
    run(*maps, "--resume", "--", "./prog", cwd=tmp_path)
    assert "all 4 tasks are up to date" in run(*maps, "--resume", "--", "./prog", cwd=tmp_path).stderr
    ran(tmp_path)
    done = run("map", "--range", "0..6", "--no-print", "--resume", "--", "./prog", cwd=tmp_path)
    assert ran(tmp_path) == ["4", "5"]

    # Equal files in two folders.
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text("the same\n")
    bad.write_text("b/x")
    run("map", "a/x", "b/x", "--no-print", "--", "./prog", "{in}", cwd=tmp_path, status=1)
    ran(tmp_path)
    run("map", "a/x", "b/x", "--no-print", "--resume", "--", "./prog", "{in}", cwd=tmp_path, status=1)
    assert ran(tmp_path) == ["b/x"]

    # A list of commands with equal lines, and a line that is put between others.
    bad.write_text("2")
    commands = tmp_path / "c.txt"
    commands.write_text("./prog\n./prog\necho last\n")
    run("run", "c.txt", "--resume", cwd=tmp_path, status=1)
    ran(tmp_path)
    bad.write_text("none")
    assert "2 of 3 tasks are up to date" in run("run", "c.txt", "--resume", cwd=tmp_path).stderr
    assert ran(tmp_path) == ["2"]
    commands.write_text("./prog\n./prog\necho between\necho last\n")
    assert "3 of 4 tasks are up to date, 1 to run" in run("run", "c.txt", "--resume", cwd=tmp_path).stderr

    # ^C: what was cancelled, and what had not begun.
    slow = ["map", "--range", "0..5", "--slots", "1", "--no-print"]
    words = ["--", "sh", "-c", f"echo run >> {tmp_path}/ran; test -e {tmp_path}/go || sleep 100"]
    (tmp_path / "go").touch()
    run(*slow, *words, cwd=tmp_path)
    (tmp_path / "go").unlink()
    ran(tmp_path)
    client = start(*slow, *words, cwd=tmp_path)
    wait_until(lambda: (tmp_path / "ran").exists(), "the first task", alive=client)
    os.kill(client.pid, signal.SIGINT)
    client.wait(status=None)
    (tmp_path / "go").touch()
    ran(tmp_path)
    run(*slow, "--resume", *words, cwd=tmp_path)
    assert ran(tmp_path) == ["run"] * 5


def test_submit_resume_pairs_tasks_with_the_last_run(run: Run, tmp_path: Path) -> None:
    write_list(tmp_path / "t.jsonl", *({"command": f"test -e {tmp_path}/go-$EYAS_TASK"} for _ in range(3)))
    (tmp_path / "go-1").touch()
    run("up", "--slots", "2", cwd=tmp_path)
    try:
        run("submit", "t.jsonl", cwd=tmp_path)
        run("wait", cwd=tmp_path, status=1)
        assert (
            "1 of 3 tasks are up to date, 2 to run"
            in run("submit", "t.jsonl", "--resume", cwd=tmp_path).stderr
        )
        run("wait", cwd=tmp_path, status=None)
        for name in ("go-2", "go-3"):
            (tmp_path / name).touch()
        run("submit", "t.jsonl", "--resume", cwd=tmp_path)
        run("wait", cwd=tmp_path, status=None)
        assert "all 3 tasks are up to date" in run("submit", "t.jsonl", "--resume", cwd=tmp_path).stderr
        # The last end counts.
        (tmp_path / "go-2").unlink()
        run("submit", "t.jsonl", cwd=tmp_path)
        run("wait", cwd=tmp_path, status=None)
        assert (
            "2 of 3 tasks are up to date, 1 to run"
            in run("submit", "t.jsonl", "--resume", cwd=tmp_path).stderr
        )
    finally:
        run("down", cwd=tmp_path)
