"""Nodes of a local cluster that come when tasks wait and go when they are idle."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Run, log_entries, wait_until
from weather import Cluster, payload


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


class Elastic:
    """The cluster of `eyas up --nodes A..B` in a folder of its own."""

    def __init__(self, cluster: Cluster, nodes: str, *options: str) -> None:
        self.cluster = cluster
        self.eyas = cluster.eyas
        self.dir = cluster.folder / "up"
        self.env = {"EYAS_JOIN": str(self.dir / "dispatcher" / "join.json")}
        slots = () if "--slots" in options else ("--slots", "1")
        lease = () if "--lease" in options else ("--lease", "60s")
        given = (*slots, *lease, *options)
        self.up = self.eyas.run("up", "--nodes", nodes, "--dir", self.dir, *given)

    def ask(self, *args: str | Path) -> str:
        return self.eyas.run(*args, env=self.env).stdout

    def submit(self, *tasks: dict[str, Any]) -> None:
        self.ask("submit", self.cluster.list_of(tasks))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("status", "--json"))
        return found

    def states(self) -> dict[str, str]:
        return {line["name"]: line["state"] for line in self.status()["executors"]}

    def n_connected(self) -> int:
        return list(self.states().values()).count("connected")

    def wait_for_nodes(self, is_right: Callable[[int], bool], what: str) -> None:
        wait_until(lambda: is_right(self.n_connected()), what)

    def down(self) -> None:
        self.ask("down")
        wait_until(lambda: not list(self.eyas.left_behind()), "the end of all its processes")

    def life(self) -> list[tuple[str, int]]:
        """What executors did, in order: joined, draining or lost, and which."""
        found = []
        for entry in log_entries(self.dir / "dispatcher" / "events.jsonl"):
            event = entry.get("in")
            for what in ("joined", "draining", "lost"):
                if isinstance(event, dict) and (about := event.get(f"executor_{what}")):
                    found.append((what, about["executor"]))
        return found

    def n_events(self, what: str) -> int:
        return sum(event == what for event, _ in self.life())

    def wait_for_events(self, what: str, n_min: int) -> None:
        wait_until(lambda: self.n_events(what) >= n_min, f"{n_min} times `{what}`")


def most_at_once(life: list[tuple[str, int]]) -> int:
    there: set[int] = set()
    most = 0
    for what, executor in life:
        there = there | {executor} if what == "joined" else there - {executor} if what == "lost" else there
        most = max(most, len(there))
    return most


@pytest.mark.parametrize("policy", ["exponential", "one-at-a-time", "demand"])
def test_a_burst_makes_nodes_come_and_idleness_makes_them_go(
    cluster: Cluster, tmp_path: Path, policy: str
) -> None:
    up = Elastic(cluster, "1..3", "--idle-release", "1s", "--provisioning", policy)
    assert up.up.stdout.startswith("1 node up, at most 3; join file: ")
    assert f"1 of 1 to 3 nodes, provisioning {policy}\n" in up.ask("status")
    gate = tmp_path / "gate"
    files = [cluster.file(f"f{i}", 10_000, i) for i in range(12)]
    up.submit(*[cluster.task(f"t{i}", inputs=[f], gate=gate) for i, f in enumerate(files)])
    up.wait_for_nodes(lambda n: n == 3, "three nodes")
    assert "3 of 1 to 3 nodes" in up.ask("status")
    gate.touch()
    up.ask("wait")
    cluster.expect(**{f"t{i}": payload(10_000, i) for i in range(12)})
    assert sorted(cluster.ran()) == sorted(f"t{i}" for i in range(12)), "each task ran once"
    up.wait_for_nodes(lambda n: n == 1, "all but one node to go")
    up.wait_for_events("lost", 2)
    life = up.life()
    assert most_at_once(life) == 3
    for executor in [executor for what, executor in life if what == "lost"]:
        assert life.index(("draining", executor)) < life.index(("lost", executor)), "drained first"
    # The next wave.
    up.submit(*[cluster.task(f"u{i}", inputs=[f]) for i, f in enumerate(files)])
    up.ask("wait")
    cluster.expect(**{f"u{i}": payload(10_000, i) for i in range(12)})
    up.down()
    assert most_at_once(up.life()) <= 3


@pytest.mark.parametrize("policy", ["all-at-once", "exponential", "demand"])
def test_tasks_of_several_cpus_get_as_many_nodes_as_they_fill(
    cluster: Cluster, tmp_path: Path, policy: str
) -> None:
    """Three tasks that take both slots of a node each want three nodes, and run at once."""
    up = Elastic(cluster, "0..4", "--slots", "2", "--provisioning", policy)
    if policy == "demand":
        # While nothing is predicted, `demand` asks for no more nodes than there are; so a first task shows how long they take.
        up.submit(cluster.task("first", "sleep 3; echo > out") | {"label": "wide", "cpus": 2})
        up.ask("wait")
    gate = tmp_path / "gate"
    wide = [cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(3)]
    up.submit(*[task | {"label": "wide", "cpus": 2} for task in wide])
    wait_until(lambda: {"t0", "t1", "t2"} <= set(cluster.ran()), "all three at once")
    gate.touch()
    up.ask("wait")
    up.down()
    assert most_at_once(up.life()) == 3, "and a fourth node would have been idle"


def test_nothing_is_lost_while_nodes_go_at_once(cluster: Cluster) -> None:
    """Whoever is idle at a look goes, often just when the next tasks come: these end there, or run elsewhere, once."""
    up = Elastic(cluster, "0..3", "--idle-release", "10ms", "--provisioning", "all-at-once")
    names = []
    n_waves = 6
    for wave in range(n_waves):
        names += (wave_names := [f"w{wave}-{i}" for i in range(6)])
        n_gone = up.n_events("draining")
        up.submit(*[cluster.task(name, f"sleep 0.1; echo {name} > out") for name in wave_names])
        # The next wave comes while nodes of this one leave.
        up.wait_for_events("draining", n_gone + 1)
    up.ask("wait")
    wait_until(lambda: all(run["ended"] for run in up.status()["runs"]), "the end of all waves")
    cluster.expect(**{name: f"{name}\n".encode() for name in names})
    assert sorted(cluster.ran()) == sorted(names), "each task ran once"
    wait_until(lambda: not up.status()["executors"], "all nodes to go")
    up.down()
    assert most_at_once(up.life()) <= 3
    assert up.n_events("joined") == up.n_events("lost") >= n_waves


def test_no_node_without_work_and_each_comes_back_with_its_cache(cluster: Cluster) -> None:
    up = Elastic(cluster, "0..1", "--idle-release", "500ms")
    assert up.up.stdout.startswith("0 nodes up, at most 1; ")
    assert "0 of 0 to 1 nodes, provisioning exponential\n" in up.ask("status")
    file = cluster.file("f", 50_000, 1)
    up.submit(cluster.task("a", inputs=[file]))
    up.ask("wait")
    wait_until(lambda: not up.status()["executors"], "the node to go")
    up.submit(cluster.task("b", inputs=[file]))
    up.ask("wait")
    cluster.expect(a=payload(50_000, 1), b=payload(50_000, 1))
    first, second = up.status()["runs"]
    assert first["home_bytes"] == 50_000
    assert (second["home_bytes"], second["local_bytes"]) == (0, 50_000)
    up.down()


def pid_of(eyas: Eyas, *words: str) -> int | None:
    """The process with these words in its command line."""
    found = [pid for pid, command in eyas.left_behind() if set(words) <= set(command.split())]
    return found[0] if found else None


def test_a_node_that_is_killed_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    up = Elastic(cluster, "1..2", "--idle-release", "60s", "--lease", "5s")
    gate = tmp_path / "gate"
    up.submit(*[cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(4)])
    up.wait_for_nodes(lambda n: n == 2, "two nodes")
    wait_until(lambda: len(cluster.ran()) == 2, "a task on each")
    victim = pid_of(cluster.eyas, "executor", "node1")
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    # The dispatcher gives the lost one's name free only after its lease.
    wait_until(lambda: up.n_connected() == 2, "another node")
    assert "node3" in up.states()
    gate.touch()
    up.ask("wait")
    cluster.expect(**{f"t{i}": b"x\n" for i in range(4)})
    up.down()


def test_when_the_provider_is_killed_no_node_stays_behind(cluster: Cluster) -> None:
    up = Elastic(cluster, "2..3")
    provider = pid_of(cluster.eyas, "provider")
    assert provider is not None
    os.kill(provider, signal.SIGKILL)
    wait_until(lambda: pid_of(cluster.eyas, "executor") is None, "the nodes to end")
    assert "provisioning" not in up.ask("status")
    up.down()


def test_a_run_on_a_cluster_of_its_own(run: Run, tmp_path: Path) -> None:
    script = "sleep 0.2; echo {index} > {out}"
    done = run("map", "--range", "0..12", "--out", "o/{index}", "--nodes", "1..3", "--shell", "--", script)
    assert re.search(r"12 tasks in .*: 12 done, 0 failed", done.stderr), done
    assert {p.name: p.read_text() for p in (tmp_path / "o").iterdir()} == {
        str(i): f"{i}\n" for i in range(12)
    }


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--nodes", "4..1"], "at least 4 nodes and at most 1 cannot both be"),
        (["--nodes", "0"], "there must be at least 1 node"),
        (["--nodes", "0..0"], "there must be at least 1 node"),
        (["--nodes", "1..9999"], "write a number from 1 to 1024, or a range such as 1..4"),
        (["--nodes", "many"], "write a number from 1 to 1024, or a range such as 1..4"),
        (
            ["--nodes", "1..4", "--provisioning", "nope"],
            "error: there is no provisioning policy `nope`; known are static, one-at-a-time, additive, "
            "exponential, all-at-once, demand\n",
        ),
        (
            ["--nodes", "4", "--provisioning", "demand"],
            "error: --provisioning and --idle-release have nothing to decide with --nodes 4\n"
            "hint: a range, such as --nodes 1..4, lets nodes come and go\n",
        ),
        (["--nodes", "1..4", "--idle-release", "soon"], "'--idle-release <TIME>'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(run: Run, options: list[str], sentence: str) -> None:
    for verb in (["up"], ["map", "--range", "0..3"]):
        words = ["--", "true"] if verb[0] == "map" else []
        done = run(*verb, *options, *words, status=2)
        assert sentence in done.stderr, done
        assert done.stdout == ""


def test_nodes_that_cannot_start_end_the_start(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "node1").write_text("in the way")
    done = run("up", "--nodes", "1..2", "--dir", folder, status=3)
    assert re.match(
        r"error: the provider ended: .*no node can be started: node1 ended before it joined: ", done.stderr
    ), done
