"""A cluster that stays, as a user drives it: up, submit, wait, status, logs, cancel, down."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Finished, wait_until
from weather import Cluster, kill_now, listing, payload, programs_under


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


class Up:
    """The cluster of `eyas up`, in this test's own folder for temporary files; commands need no --join."""

    def __init__(self, cluster: Cluster, nodes: int, *options: str) -> None:
        self.cluster = cluster
        self.eyas = cluster.eyas
        self.up = self.eyas.run("up", "--nodes", str(nodes), "--slots", "1", *options)

    def submit(self, *tasks: dict[str, Any]) -> Finished:
        return self.eyas.run("submit", self.cluster.list_of(tasks))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.eyas.run("status", "--json").stdout)
        return found

    def down(self) -> None:
        assert self.eyas.run("down").stdout == "the cluster has ended\n"
        wait_until(lambda: not list(self.eyas.left_behind()), "the end of all its processes")


def test_a_day_with_a_cluster(cluster: Cluster) -> None:
    assert cluster.eyas.run("status", status=3).stderr.startswith("error: no cluster is up\nhint: ")
    files = [cluster.file(f"f{i}", 20_000, i) for i in range(6)]
    up = Up(cluster, 2)
    assert up.up.stdout.startswith("2 nodes up; join file: ")
    again = cluster.eyas.run("up", status=3)
    assert "a cluster is up already" in again.stderr and "eyas down" in again.stderr
    tasks = [cluster.task(f"t{i}", "echo on $EYAS_TASK; cat input/* > out", [f]) for i, f in enumerate(files)]
    assert up.submit(*tasks).stdout == "run 1: 6 tasks accepted\n"
    waited = cluster.eyas.run("wait")
    assert re.search(r"6 tasks in .*: 6 done, 0 failed, 0 cancelled", waited.stderr), waited
    cluster.expect(**{f"t{i}": payload(20_000, i) for i in range(6)})
    assert cluster.eyas.run("logs", "t3").stdout == "on t3\n"
    shown = cluster.eyas.run("status").stdout
    assert re.search(r"^node1 +connected +0/1 ", shown, re.M) and re.search(
        r"^node2 +connected", shown, re.M
    ), shown
    assert re.search(r"^ +1 +6 +0 +0 +6 +0 +0 ", shown, re.M), shown
    status = up.status()
    assert sorted(line["name"] for line in status["executors"]) == ["node1", "node2"]
    assert status["warnings"] == []
    (run,) = status["runs"]
    counts = {key: value for key, value in run.items() if key.startswith("n_")}
    assert counts == {
        "n_tasks": 6,
        "n_waiting": 0,
        "n_ready": 0,
        "n_reserved": 0,
        "n_running": 0,
        "n_landing": 0,
        "n_done": 6,
        "n_failed": 0,
        "n_cancelled": 0,
        "n_nodes": None,
        "n_nodes_pending": 0,
    }
    assert run["ended"] >= run["opened"]
    up.down()
    assert cluster.eyas.run("status", status=3).stderr.startswith("error: no cluster is up")
    # The next morning: what was done is known, and the caches are warm.
    up = Up(cluster, 2)
    assert up.status()["runs"][0]["n_done"] == 6
    up.submit(*[cluster.task(f"u{i}", inputs=[f]) for i, f in enumerate(files)])
    cluster.eyas.run("wait")
    cluster.expect(**{f"u{i}": payload(20_000, i) for i in range(6)})
    assert up.status()["runs"][1]["home_bytes"] == 0, "nothing is read from home that a cache has"
    up.down()


def test_a_cluster_that_was_killed_comes_up_again(cluster: Cluster, tmp_path: Path) -> None:
    """The machine was reset: `eyas up` goes on with the run that was under way."""
    up = Up(cluster, 1)
    gate = tmp_path / "gate"
    up.submit(cluster.task("a", "echo a > out"), cluster.task("b", "echo b > out", gate=gate))
    cluster.begun("a", "b")
    wait_until(lambda: up.status()["runs"][0]["n_done"] == 1, "the first task to be done")
    for pid, _ in cluster.eyas.left_behind():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not list(cluster.eyas.left_behind()), "the end of all")
    assert "no cluster is up; the last one was ended" in cluster.eyas.run("status", status=3).stderr
    gate.touch()
    up = Up(cluster, 1)
    cluster.eyas.run("wait")
    cluster.expect(a=b"a\n", b=b"b\n")
    assert sorted(cluster.ran()) == ["a", "b", "b"]
    up.down()


def test_which_cluster_is_said_in_one_way(cluster: Cluster) -> None:
    """--join and EYAS_JOIN reach the same cluster, `map` too, and --join wins."""
    data = cluster.home / "in"
    data.mkdir()
    for i in range(3):
        (data / f"{i}.txt").write_bytes(payload(100, i))
    cluster.dispatcher()
    cluster.executor("N1")
    by_environment = {"EYAS_JOIN": str(cluster.join)}
    assert json.loads(cluster.eyas.run("status", "--json", env=by_environment).stdout)["runs"] == []
    wrong = {"EYAS_JOIN": str(cluster.home / "nowhere.json")}
    assert "cannot read the join file" in cluster.eyas.run("status", status=3, env=wrong).stderr
    cluster.eyas.run("status", "--join", cluster.join, env=wrong)
    out = str(cluster.home / "out" / "{stem}.copy")
    cluster.eyas.run("map", f"{data}/*.txt", "--out", out, "--", "cp", "{in}", "{out}", env=by_environment)
    made = {f"out/{i}.copy": payload(100, i) for i in range(3)}
    assert {k: v for k, v in listing(cluster.home).items() if k.startswith("out/") and k != "out/"} == made


def test_cancel_of_running_and_queued_tasks(cluster: Cluster, tmp_path: Path) -> None:
    """What is cancelled ends with all it started, leaves nothing at home, and the others go on."""
    cluster.dispatcher()
    cluster.executor("N1")
    gate = tmp_path / "gate"
    children = "sleep 1000 & setsid sleep 1000 & echo half > out; "
    tasks = [cluster.task(f"t{i}", "echo done > out", gate=gate) for i in range(5)]
    for task in tasks:
        # The children are there before the gate.
        task["command"] = children + task["command"]
    cluster.submit(tasks)
    cluster.begun("t0")
    wait_until(lambda: len(programs_under(cluster.node_dir("N1"))) >= 3, "the task and its children")
    assert cluster.run("cancel", "t0", "t3").stdout == "2 tasks cancelled\n"
    cluster.begun("t1")
    gate.touch()
    assert re.search(r"3 done, 0 failed, 2 cancelled", cluster.wait(status=1).stderr)
    assert sorted(path.name for path in cluster.home.iterdir()) == ["t1.out", "t2.out", "t4.out"]
    cluster.expect(t1=b"done\n", t2=b"done\n", t4=b"done\n")
    assert "t3" not in cluster.ran(), "a queued task that is cancelled never starts"
    wait_until(lambda: not programs_under(cluster.node_dir("N1")), "the end of what the tasks started")


def test_cancel_of_a_run_and_of_everything(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher()
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task(f"a{i}", "echo a > out", gate=gate) for i in range(100)])
    cluster.submit([cluster.task(f"b{i}", "echo b > out", gate=gate) for i in range(100)])
    # One that waits for another: it is cancelled with it.
    cluster.submit(
        [cluster.task("c0", "echo c > out", gate=gate), cluster.task("c1", inputs=[cluster.home / "c0.out"])]
    )
    cluster.begun("a0")
    assert cluster.run("cancel", "--run", "2").stdout == "100 tasks cancelled\n"
    assert "100 cancelled" in cluster.run("wait", "--run", "2", status=1).stderr
    assert cluster.run_line(1)["n_cancelled"] == 0
    assert cluster.run("cancel", "--all").stdout == "102 tasks cancelled\n"
    cluster.wait(status=1)
    assert [line["n_cancelled"] for line in cluster.status()["runs"]] == [100, 100, 2]
    assert not list(cluster.home.iterdir())
    wait_until(lambda: not programs_under(cluster.node_dir("N1")), "the end of the programs")
    gate.touch()
    cluster.submit([cluster.task("after", "echo after > out")])
    cluster.run("wait", "--run", "4")
    cluster.expect(after=b"after\n")


def test_a_cancelled_task_stays_cancelled_over_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    dispatcher = cluster.dispatcher("--lease", "30s")
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task(f"t{i}", "echo right > out", gate=gate) for i in range(3)])
    cluster.begun("t0")
    cluster.run("cancel", "t0", "t2")
    wait_until(lambda: cluster.run_line()["n_cancelled"] == 2, "both to be cancelled")
    kill_now(dispatcher)
    cluster.dispatcher("--lease", "30s")
    gate.touch()
    cluster.wait(status=1)
    line = cluster.run_line()
    assert (line["n_done"], line["n_cancelled"]) == (1, 2), line
    assert [path.name for path in cluster.home.iterdir()] == ["t1.out"]


def test_what_is_not_there_is_said_in_a_sentence(cluster: Cluster) -> None:
    cluster.dispatcher()
    for args, sentence in [
        (["cancel", "nope"], "no run has a task `nope`"),
        (["cancel", "#7"], "there is no task number 7"),
        (["cancel", "--run", "9"], "there is no run 9"),
        (["logs", "nope"], "no run has a task `nope`"),
        (["wait", "--run", "9"], "there is no run 9"),
    ]:
        refused = cluster.run(args[0], *args[1:], status=2)
        assert sentence in refused.stderr and refused.stderr.count("\n") == 1, refused
    assert cluster.run("wait").stdout == ""
    bad = cluster.folder / "bad.jsonl"
    bad.write_text('{"command": ["true"], "colour": "red"}\n')
    assert "colour" in cluster.run("submit", bad, status=2).stderr
    assert cluster.status()["runs"] == []


def test_logs_of_every_kind_of_task(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher()
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit(
        [
            cluster.task("both", "echo to stdout; echo to stderr >&2; touch out"),
            cluster.task("fails", "echo last words >&2; exit 3"),
            cluster.task("bytes", "printf '\\377\\000\\n'; touch out"),
            cluster.task("long", "seq 1 200000; touch out"),
            cluster.task("held", "echo out > out", gate=gate),
        ]
    )
    cluster.begun("held")
    both = cluster.run("logs", "both")
    assert (both.stdout, both.stderr) == ("to stdout\n", "to stderr\n")
    assert cluster.run("logs", "fails").stderr == "last words\n"
    assert "has printed nothing so far" in cluster.run("logs", "held").stderr
    cut = cluster.run("logs", "long", status=4)
    assert cut.stdout.startswith("1\n2\n3\n") and cut.stdout.endswith("\n199999\n200000\n")
    assert "not kept" in cut.stderr and len(cut.stdout) < 100_000
    gate.touch()
    failed = cluster.wait(status=1)
    assert (
        "failed: task `fails`: the program ended with status 3; its last words: last words" in failed.stderr
    )


def test_interrupting_wait_leaves_the_run(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher()
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("t", "echo right > out", gate=gate)])
    waiting = cluster.eyas.start("wait", "--join", cluster.join)
    waiting.wait_for_text("0/1 tasks")
    waiting.signal(signal.SIGINT)
    assert "run 1 goes on" in waiting.wait(status=130).stderr
    gate.touch()
    cluster.wait()
    cluster.expect(t=b"right\n")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_an_embedded_run_ends_with_its_client(cluster: Cluster, tmp_path: Path, how: signal.Signals) -> None:
    """^C, kill and kill -9 of `eyas run`: its cluster and all programs end, and nothing is left at home."""
    tasks = [cluster.task(f"t{i}", "echo late > out", gate=tmp_path / "never") for i in range(4)]
    running = cluster.eyas.start("run", cluster.list_of(tasks), "--nodes", "2", "--slots", "1")
    wait_until(lambda: len(cluster.ran()) == 2, "two programs", alive=running)
    running.signal(how)
    ended = running.wait(status=None)
    if how == signal.SIGINT:
        assert ended.status == 130, ended
    wait_until(lambda: not list(cluster.eyas.left_behind()), "the end of the embedded cluster")
    assert not list(cluster.home.iterdir())


def test_names_that_shells_dislike(cluster: Cluster) -> None:
    """A cluster whose folders have spaces and quotes in their names works like any other."""
    odd = Cluster(cluster.eyas, cluster.folder / 'it\'s a "cluster"', cluster.home / "süß und $HOME")
    data = odd.file("a b", 1000, 1)
    odd.dispatcher()
    odd.executor("N 1")
    odd.submit([odd.task("t", f"cat {shlex.quote('input/0000')} > out", inputs=[data])])
    odd.wait()
    odd.expect(t=payload(1000, 1))


def test_programs_that_have_ended_are_not_said_to_run(cluster: Cluster) -> None:
    """An executor tells its state once a second; it reports the ends of programs at once."""
    cluster.dispatcher()
    cluster.executor("N1", slots=3)
    gate = cluster.folder / "gate"
    cluster.submit([cluster.task(f"t{i}", "echo > out", gate=gate) for i in range(3)])

    def running() -> int:
        line = cluster.find_node("N1")
        assert line is not None
        assert len(line["status"]["running"]) <= line["n_assigned"], line
        return len(line["status"]["running"])

    wait_until(lambda: running() == 3, "three programs in the status")
    gate.touch()
    cluster.wait()
    assert running() == 0
