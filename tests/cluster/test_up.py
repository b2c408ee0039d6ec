"""Clusters that stay: several that start at the same instant."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from batch import Batch
from harness import Eyas, Run, Start, need_program, wait_until


@pytest.mark.parametrize("kind", ["fixed", "local", "command"])
def test_of_two_that_start_a_cluster_at_the_same_instant_one_does(
    eyas: Eyas, tmp_path: Path, kind: str
) -> None:
    words = ["up", "--dir", "c", "--listen", "127.0.0.1:0", "--slots", "1"]
    if kind == "command":
        words += [*Batch(tmp_path / "batch").options(), "--nodes", "0..1"]
    else:
        words += ["--nodes", "1" if kind == "fixed" else "1..2"]
    both = [eyas.start(*words) for _ in range(2)]
    done = [one.wait(status=None) for one in both]
    assert sorted(one.status for one in done) == [0, 3], done
    refused = next(one for one in done if one.status == 3)
    folder = tmp_path / "c"
    assert (
        f"error: a cluster is up already in `{folder}`\n" in refused.stderr
        or f" is just starting a cluster in `{folder}`\nhint: `eyas status`" in refused.stderr
    ), refused
    env = {"EYAS_JOIN": str(folder / "dispatcher" / "join.json")}
    status = json.loads(eyas.run("status", "--json", env=env).stdout)
    assert len(status["executors"]) == (0 if kind == "command" else 1)
    parts = [command.split()[1] for _, command in eyas.left_behind()]
    assert parts.count("dispatcher") == 1 and parts.count("provider") == (kind != "fixed"), parts
    eyas.run("down", env=env)


def test_of_two_runs_in_one_folder_at_the_same_instant_one_goes_on(eyas: Eyas, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "t.jsonl").write_text(
        json.dumps({"command": ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done"]}) + "\n"
    )
    both = [eyas.start("run", "t.jsonl", "--dir", "r") for _ in range(2)]
    wait_until(lambda: not all(one.is_alive() for one in both), "one to be refused")
    refused, other = sorted(both, key=lambda one: one.is_alive())
    assert "error: " in refused.wait(status=3).stderr
    gate.touch()
    assert "1 tasks in " in other.wait().stderr or "1 task in " in other.wait().stderr


def test_a_start_that_is_killed_leaves_no_lock(eyas: Eyas, tmp_path: Path) -> None:
    one = eyas.start("up", "--dir", "c", "--nodes", "1")
    lock = tmp_path / "c" / "dispatcher" / "start.lock"
    wait_until(lambda: lock.exists() and lock.read_text().strip() == str(one.pid), "its lock", alive=one)
    # A dispatcher that has just been started would begin when all else is over.
    wait_until((tmp_path / "c" / "dispatcher" / "join.json").exists, "its dispatcher")
    if one.is_alive():
        os.kill(one.pid, signal.SIGKILL)
    one.wait(status=None)
    again = eyas.run("up", "--dir", "c", "--nodes", "1", status=None)
    # It may have been killed a moment after all was done.
    assert again.status == 0 or "a cluster is up already" in again.stderr, again
    eyas.run("down", "--join", tmp_path / "c" / "dispatcher" / "join.json")


def test_wait_means_all_that_was_submitted_since_the_last_one(run: Run, tmp_path: Path) -> None:
    """However quickly a run ends, who waits after two submissions hears of both, and of each once."""
    other = tmp_path / "other"
    other.mkdir()
    for name, status in (("bad", 3), ("good", 0)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"command": f"exit {status}"}) + "\n")
    (other / "bad.jsonl").write_text('{"command": "exit 4"}\n')

    def waited(status: int, *options: str) -> list[int]:
        done = run("wait", "--json", *options, status=status)
        runs = [end["run"] for end in json.loads(done.stdout)["runs"]]
        assert all(f"run {number}:" in done.stderr for number in runs) or len(runs) == 1
        return runs

    def submitted(name: str, cwd: Path) -> None:
        """Until it has ended."""
        number = json.loads(run("submit", "--json", f"{name}.jsonl", cwd=cwd).stdout)["run"]

        def has_ended() -> bool:
            runs = json.loads(run("status", "--json").stdout)["runs"]
            return runs[number - 1]["ended"] is not None

        wait_until(has_ended, f"the end of run {number}")

    run("up", "--slots", "1", cwd=tmp_path)
    try:
        submitted("bad", other)
        submitted("bad", tmp_path)
        submitted("good", tmp_path)
        assert waited(1) == [2, 3]
        assert waited(0) == [3], "where all was said, the newest"
        submitted("good", tmp_path)
        assert waited(0) == [4]
        assert waited(1, "--run", "2") == [2]
        assert waited(0, "--all") == [4]
        assert [
            end["run"] for end in json.loads(run("wait", "--json", cwd=other, status=1).stdout)["runs"]
        ] == [1]
    finally:
        run("down", status=None)


def test_each_folder_means_its_own_runs(run: Run, start: Start, tmp_path: Path) -> None:
    """Two projects share one cluster, and a third has one of its own that ended last."""
    ada, bo, cy = (tmp_path / name for name in ("ada", "bo", "cy"))
    for folder in (ada, bo, cy):
        folder.mkdir()
    gate = tmp_path / "gate"
    held = f"echo of ada; while [ ! -e {gate} ]; do sleep 0.02; done"
    (ada / "l.jsonl").write_text(json.dumps({"id": "t", "command": held}) + "\n")
    (bo / "l.jsonl").write_text(json.dumps({"id": "t", "command": "echo of bo"}) + "\n")
    run("up", "--slots", "2", cwd=ada)
    try:
        for folder in (ada, bo):
            run("submit", "l.jsonl", cwd=folder)
        waited = run("wait", cwd=bo)
        assert "a run is from elsewhere not waited for" in waited.stderr
        run("map", "--range", "0..1", "--", "echo", "of cy", cwd=cy)
        assert run("logs", "t", cwd=bo).stdout == "of bo\n"
        wait_until(lambda: run("logs", "t", cwd=ada).stdout == "of ada\n", "the first words")
        assert run("logs", "0", cwd=cy).stdout == "of cy\n"
        assert "run 1)" in run("explain", "t", cwd=ada).stdout
        assert "run 2)" in run("explain", "t", cwd=bo).stdout
        assert json.loads(run("tasks", "--json", cwd=ada).stdout)["run"] == 1
        # A task that is only elsewhere is found there, which is said.
        elsewhere = run("logs", "0", cwd=bo)
        assert elsewhere.stdout == "of cy\n" and "note: this is the run of process" in elsewhere.stderr
        assert "no run has a task `nosuch`" in run("logs", "nosuch", cwd=bo, status=2).stderr
        again = run("up", cwd=bo, status=3).stderr
        assert "note: the cluster goes on with run 1, `l.jsonl`, of which 1 task is left" in again
        waits = start("wait", "--all", cwd=bo)
        waits.wait_for_text("waiting for runs 1, 2")
        gate.touch()
        waits.wait()
    finally:
        run("down", status=None)


def test_a_cluster_keeps_no_lock_of_the_script_that_started_it(eyas: Eyas, tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [str(eyas.path), "up", "--dir", "c", "--nodes", "1"]
        subprocess.run(command, cwd=tmp_path, env=eyas.env, pass_fds=[lock.fileno()], check=True)
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    eyas.run("down", "--join", tmp_path / "c" / "dispatcher" / "join.json")


def test_a_user_who_may_have_few_processes_is_told_so(eyas: Eyas) -> None:
    limit = "ulimit -u 4; exec "
    # Not under pytest's own folder, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="eyas-few-") as folder:
        program = shutil.copy(eyas.path, folder)
        if os.geteuid() == 0:
            os.chmod(folder, 0o777)
            setpriv = need_program("setpriv", "util-linux")
            limit += f"{setpriv} --reuid=54321 --regid=54321 --clear-groups "
        line = f"{limit}{program} dispatcher --dir d --listen 127.0.0.1:0"
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("error: ")) == (4, 1), done
    assert "error: cannot start 6 threads: " in done.stderr and "ulimit -u" in done.stderr, done
