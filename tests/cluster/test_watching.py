"""Which cluster is meant: a run that goes on is found, clusters in any folder are, and a restart is waited for."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from harness import Eyas, Run, Start, wait_until


def write(path: Path, *tasks: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks), encoding="utf-8")
    return path


def held(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.02; done"


def pid_of(folder: Path, part: str) -> int:
    """The process that has the journal, or the cache, in that folder of a cluster."""
    lock = "journal/lock" if part.startswith("dispatcher") else "cache/lock"
    return int((folder / part / lock).read_text())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def folder(eyas: Eyas, run: Run, tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster that the test brings up; it is ended afterwards."""
    yield tmp_path / "cluster"
    run("down", "--join", tmp_path / "cluster" / "dispatcher" / "join.json", status=None)


def test_a_run_that_goes_on_can_be_watched(eyas: Eyas, run: Run, start: Start, tmp_path: Path) -> None:
    """`status`, `logs`, `explain` and `cancel` find the cluster of `eyas run`; newest first, `--all` shows all."""
    gate = tmp_path / "gate"
    tasks = [{"id": "talks", "command": f"echo hello; {held(gate)}"}, {"id": "kept", "command": held(gate)}]
    going = start("run", write(tmp_path / "one.jsonl", *tasks), "--slots", "2")

    def talks() -> bool:
        return run("logs", "talks", status=None).stdout == "hello\n"

    wait_until(talks, "the run to be found", alive=going)
    (line,) = json.loads(run("status", "--json").stdout)["runs"]
    assert (line["name"], line["n_tasks"]) == (str(tmp_path / "one.jsonl"), 2)
    # Which programs run a node says once a second.
    wait_until(
        lambda: "is running on `node1`" in run("explain", "talks").stdout, "the explanation", alive=going
    )
    other = start("run", write(tmp_path / "two.jsonl", {"id": "late", "command": f"echo late; {held(gate)}"}))
    wait_until(lambda: run("logs", "late", status=None).stdout == "late\n", "the other run", alive=other)
    newest = run("status")
    assert "two.jsonl" in newest.stdout and "one.jsonl" not in newest.stdout
    assert (
        f"this is the run of process {other.pid} in " in newest.stderr
        and "`eyas status --all`" in newest.stderr
    )
    both = run("status", "--all").stdout
    assert both.index("two.jsonl") < both.index("one.jsonl") and f"process {going.pid}" in both
    described = json.loads(run("status", "--all", "--json").stdout)
    assert [entry["status"]["runs"][0]["n_tasks"] for entry in described] == [1, 2]
    assert run("cancel", "late").stdout == "1 task cancelled\n"
    other.wait(status=1)
    assert run("cancel", "kept").stdout == "1 task cancelled\n"
    gate.touch()
    going.wait(status=1)
    assert "no cluster is up" in run("status", status=3).stderr
    assert "two.jsonl" in run("report", "--out", tmp_path / "r.html").stderr


def test_a_cluster_in_a_folder_of_its_own_is_found(run: Run, folder: Path, tmp_path: Path) -> None:
    run("up", "--dir", folder, "--nodes", "1", "--slots", "1")
    assert len(json.loads(run("status", "--json").stdout)["executors"]) == 1
    listed = write(tmp_path / "l.jsonl", {"id": "a", "command": "echo a"})
    run("submit", listed)
    run("wait")
    assert run("logs", "a").stdout == "a\n"
    beside = run("run", write(tmp_path / "m.jsonl", {"id": "b", "command": "echo b"}))
    join = folder / "dispatcher" / "join.json"
    assert f"note: this has a cluster of its own; --join {join} uses the one" in beside.stderr
    assert [line["n_tasks"] for line in json.loads(run("status", "--json").stdout)["runs"]] == [1]
    run("submit", listed)
    run("wait")
    assert len(json.loads(run("status", "--json").stdout)["runs"]) == 2
    run("down")
    assert "no cluster is up" in run("status", status=3).stderr


def test_up_takes_over_what_a_killed_dispatcher_left(
    run: Run, start: Start, folder: Path, tmp_path: Path
) -> None:
    """`eyas up` works at once, with the nodes that are there and what they run; who waits goes on waiting, and says so."""
    up: list[str | Path] = ["up", "--dir", folder, "--nodes", "2", "--slots", "1", "--lease", "60s"]
    run(*up)
    gate = tmp_path / "gate"
    ran = tmp_path / "ran"
    tasks = [{"id": f"t{i}", "command": f"echo t{i} >> {ran}; {held(gate)}"} for i in range(2)]
    run("submit", write(tmp_path / "l.jsonl", *tasks))
    wait_until(lambda: ran.exists() and len(ran.read_text().split()) == 2, "both programs to run")
    nodes = [pid_of(folder, node) for node in ("node1", "node2")]
    waiting = start("wait")
    waiting.wait_for_text(" placed")
    kill(pid_of(folder, "dispatcher"))
    waiting.wait_for_text("waiting up to 15 s for the dispatcher to come back")
    again = run(*up)
    assert "2 nodes up" in again.stdout
    assert [pid_of(folder, node) for node in ("node1", "node2")] == nodes, "the nodes live on"
    gate.touch()
    done = waiting.wait()
    assert "the dispatcher is back" in done.stderr and "2 done" in done.stderr
    assert sorted(ran.read_text().split()) == ["t0", "t1"], "nothing ran twice"


def test_up_replaces_a_node_that_was_killed(run: Run, folder: Path, tmp_path: Path) -> None:
    up: list[str | Path] = ["up", "--dir", folder, "--nodes", "2", "--slots", "1", "--lease", "10s"]
    run(*up)
    assert "a cluster is up already" in run(*up, status=3).stderr
    kill(pid_of(folder, "node2"))

    def is_gone() -> bool:
        lines = json.loads(run("status", "--json").stdout)["executors"]
        return "node2" not in [line["name"] for line in lines if line["state"] == "connected"]

    wait_until(is_gone, "the node to be missed")
    assert run(*up).stdout == "node2 started; the rest of the cluster was up\n"
    lines = json.loads(run("status", "--json").stdout)["executors"]
    assert sorted(line["name"] for line in lines if line["state"] == "connected") == ["node1", "node2"]
    assert "a cluster is up already" in run(*up, status=3).stderr


def test_a_run_says_that_a_node_has_ended_and_ends_without_any(start: Start, tmp_path: Path) -> None:
    """It waited for ever when its last node was gone."""
    folder = tmp_path / "d"
    listed = write(tmp_path / "l.jsonl", {"command": held(tmp_path / "gate")})
    going = start("run", listed, "--dir", folder, "--nodes", "2", "--slots", "1")
    going.wait_for_text("0/1 tasks, 0.0/s, 1 placed")
    kill(pid_of(folder, "node2"))
    going.wait_for_text("note: node2 ended: signal: 9 (SIGKILL)")
    kill(pid_of(folder, "node1"))
    ended = going.wait(status=3)
    assert "error: no node is left; node1 was the last" in ended.stderr
    assert "--resume goes on" in ended.stderr


def test_elastic_nodes_come_back_after_their_dispatcher_was_killed(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    up: list[str | Path] = ["up", "--dir", folder, "--nodes", "1..2", "--slots", "1"]
    run(*up)
    kill(pid_of(folder, "dispatcher"))
    assert "1 node up, at most 2" in run(*up).stdout
    run("submit", write(tmp_path / "l.jsonl", {"command": "true"}))
    assert "1 done" in run("wait").stderr


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("verb", ["status", "wait", "submit"])
def test_a_restart_is_waited_for(run: Run, start: Start, tmp_path: Path, verb: str, how: str) -> None:
    """A dispatcher that is being started again is waited for, also while there is no join file, and that is said."""
    given: list[str | Path] = ["dispatcher", "--dir", tmp_path / "d", "--lease", "600s"]
    join = tmp_path / "d" / "join.json"
    dispatcher = start(*given)
    wait_until(join.exists, "the join file", alive=dispatcher)
    executor = start("executor", "--join", join, "--dir", tmp_path / "n", "--name", "N", "--slots", "1")
    executor.wait_for_text("has taken this executor in")
    listed = write(tmp_path / "l.jsonl", {"command": "true"})
    run("submit", "--join", join, listed)
    run("wait", "--join", join)
    dispatcher.kill() if how == "killed" else dispatcher.stop()
    assert join.exists() == (how == "killed")
    more: dict[str, list[str | Path]] = {"status": ["--json"], "submit": [listed]}
    waiting = start(verb, *more.get(verb, []), "--join", join)
    waiting.wait_for_text("s for the dispatcher to come back")
    start(*given)
    done = waiting.wait()
    match verb:
        case "status":
            assert json.loads(done.stdout)["runs"][0]["n_done"] == 1
        case "wait":
            assert "1 done" in done.stderr
        case _:
            assert done.stdout == "run 2: 1 task accepted\n"


def test_a_dispatcher_that_does_not_come_back_is_waited_for_no_longer(
    run: Run, start: Start, tmp_path: Path
) -> None:
    dispatcher = start("dispatcher", "--dir", tmp_path / "d")
    join = tmp_path / "d" / "join.json"
    wait_until(join.exists, "the join file", alive=dispatcher)
    dispatcher.kill()
    gone = run("status", "--join", join, status=3)
    assert re.search(r"error: cannot reach the dispatcher at .*; waited \d+ s", gone.stderr), gone
    # A name that nobody knows is a mistake, and so is a file that never was there.
    assert "waiting" not in run("status", "--join", tmp_path / "none.json", status=3).stderr


def test_parts_say_where_they_listen_who_comes_and_why_they_leave(
    run: Run, start: Start, tmp_path: Path
) -> None:
    dispatcher = start("dispatcher", "--dir", tmp_path / "d", "--lease", "60s")
    join = tmp_path / "d" / "join.json"
    wait_until(join.exists, "the join file", alive=dispatcher)
    address = json.loads(join.read_text())["address"]
    dispatcher.wait_for_text(
        f"the dispatcher listens on {address}, others reach it at {address}; join file `{join}`"
    )
    given: list[str | Path] = ["--join", join, "--slots", "1"]
    first = start("executor", *given, "--dir", tmp_path / "n1", "--name", "first")
    first.wait_for_text("has taken this executor in")
    assert re.search(r"executor `first` serves its cache on 127\.0\.0\.1:\d+ and joins with ", first.stderr)
    assert re.search(r"executor `first` joined from 127\.0\.0\.1:\d+, with 1 slots?", dispatcher.stderr)
    second = start("executor", *given, "--dir", tmp_path / "n2", "--name", "second")
    second.wait_for_text("has taken this executor in")
    second.stop()
    assert "this executor ends: it was told to stop (SIGTERM)" in second.stderr
    dispatcher.wait_for_text("executor `second` left: it was told to stop (SIGTERM)")
    first.kill()
    dispatcher.wait_for_text("executor `first` fell silent")
    third = start("executor", *given, "--dir", tmp_path / "n3", "--name", "third")
    third.wait_for_text("has taken this executor in")
    run("down", "--join", join)
    dispatcher.wait_for_text("the dispatcher ends: the cluster was shut down")
    third.wait()
    assert "this executor ends: the cluster was shut down" in third.stderr
