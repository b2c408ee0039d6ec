"""Clocks that are wrong, that jump, and that go back: nothing depends on the wall clock but the times that are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock, build
from harness import Background, Eyas, wait_until
from weather import Cluster, kill_now

HOUR = 3600
DAY = 24 * HOUR
N = 12


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("clock"))


class Clocked(Cluster):
    """A cluster of two nodes in which every part has a clock of its own."""

    clocks: dict[str, Clock]

    def begin(self, library: Path) -> None:
        self.clocks = {
            who: Clock(library, self.folder / f"clock-{who}") for who in ("dispatcher", "N1", "N2", "client")
        }

    def start_dispatcher(self) -> Background:
        started = self.eyas.start(
            "dispatcher", "--dir", self.dir, "--lease", "5s", env=self.clocks["dispatcher"].env
        )
        wait_until(lambda: self.find_status() is not None, "the dispatcher's answer", alive=started)
        return started

    def start_node(self, name: str) -> Background:
        started = self.eyas.start(
            "executor", "--join", self.join, "--dir", self.node_dir(name), "--name", name,
            "--slots", "2", env=self.clocks[name].env,
        )  # fmt: skip
        self.executors[name] = started
        wait_until(lambda: self.state_of(name) == "connected", f"executor {name} to join", alive=started)
        return started

    def two_stages(self, gate: Path, prefix: str = "") -> list[dict[str, Any]]:
        """Files that stay where they are made, and tasks that read four of them each, after the gate is open."""
        makers = [
            {"id": f"{prefix}make{i}", "command": f"yes {i} | head -c 9000 > f",
             "outputs": {"f": f"run:{prefix}part/{i}"}}
            for i in range(N)
        ]  # fmt: skip
        gates = [
            {"id": f"{prefix}gate{i}", "command": f"while [ ! -e {gate} ]; do sleep 0.02; done; echo > g",
             "outputs": {"g": f"run:{prefix}gate/{i}"}}
            for i in range(2)
        ]  # fmt: skip
        readers = [
            {
                "id": f"{prefix}read{i}",
                "command": "cat 0 1 2 3 | cksum > out",
                "inputs": {
                    **{str(k): f"run:{prefix}part/{(5 * i + k) % N}" for k in range(4)},
                    "g": f"run:{prefix}gate/{i % 2}",
                },
                "outputs": {"out": str(self.home / f"{prefix}read{i}.out")},
            }
            for i in range(N)
        ]
        return makers + gates + readers

    def n_done(self) -> int:
        return sum(line["n_done"] for line in self.status()["runs"])

    def check(self, n_tasks: int) -> None:
        self.wait()
        status = self.status()
        assert sum(line["n_done"] for line in status["runs"]) == n_tasks, status["runs"]
        assert "expired" not in self.events() + self.said()
        # What is said of elapsed time makes sense.
        for line in status["runs"]:
            assert 0 <= line["ended"] - line["opened"] < 600_000_000_000, line
        # Times of the log only grow, over restarts, too.
        times = [entry["t"] for entry in self.entries()]
        assert times == sorted(times)


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path, library: Path) -> Clocked:
    made = Clocked(eyas, tmp_path / "cluster", tmp_path / "home")
    made.begin(library)
    return made


@pytest.mark.parametrize("ahead_s", [-HOUR, HOUR, DAY], ids=["hour-behind", "hour-ahead", "day-ahead"])
@pytest.mark.parametrize("who", ["dispatcher", "N1"])
def test_a_clock_that_is_wrong_from_the_start(
    cluster: Clocked, who: str, ahead_s: int, tmp_path: Path
) -> None:
    cluster.clocks[who].set(ahead_s)
    cluster.start_dispatcher()
    cluster.start_node("N1")
    cluster.start_node("N2")
    gate = tmp_path / "gate"
    gate.touch()
    cluster.submit(cluster.two_stages(gate))
    cluster.check(2 * N + 2)


@pytest.mark.parametrize("step_s", [-HOUR, HOUR], ids=["back", "forth"])
@pytest.mark.parametrize("who", ["dispatcher", "N1"])
def test_a_clock_that_jumps_in_the_middle_of_a_run(
    cluster: Clocked, who: str, step_s: int, tmp_path: Path
) -> None:
    cluster.start_dispatcher()
    cluster.start_node("N1")
    cluster.start_node("N2")
    gate = tmp_path / "gate"
    cluster.submit(cluster.two_stages(gate))
    wait_until(lambda: cluster.n_done() == N, "all that needs no gate")
    cluster.clocks[who].set(step_s)
    gate.touch()
    cluster.check(2 * N + 2)
    # And what is submitted afterwards goes as well.
    cluster.submit(cluster.two_stages(gate, "again-"))
    cluster.check(2 * (2 * N + 2))


def test_a_dispatcher_that_restarts_with_an_earlier_clock(cluster: Clocked, tmp_path: Path) -> None:
    """Its number and its times go on, so executors know it for another process, and nothing runs twice."""
    cluster.clocks["dispatcher"].set(HOUR)
    dispatcher = cluster.start_dispatcher()
    cluster.start_node("N1")
    cluster.start_node("N2")
    gate = tmp_path / "gate"
    cluster.submit(cluster.two_stages(gate))
    wait_until(lambda: cluster.n_done() == N, "all that needs no gate")
    kept = json.loads((cluster.dir / "incarnation.json").read_text())
    kill_now(dispatcher)
    cluster.clocks["dispatcher"].set(0)
    again = cluster.start_dispatcher()
    after = json.loads((cluster.dir / "incarnation.json").read_text())
    assert after["incarnation"] > kept["incarnation"] and after["given_ns"] > kept["given_ns"]
    said = re.search(r"the clock of this machine is (\d+) s behind", again.stderr)
    assert said is not None and abs(int(said[1]) - HOUR) < 60, again.stderr
    gate.touch()
    cluster.check(2 * N + 2)
    assigned = cluster.entries()
    tries = [
        line["out"]["assign"]["assignment"]["task"] for line in assigned if "assign" in line.get("out", {})
    ]
    made = [task for task in tries if task < N]
    assert len(made) == len(set(made)), "what was done ran again"


@pytest.mark.parametrize("ahead_s", [-DAY, DAY], ids=["day-behind", "day-ahead"])
def test_a_client_whose_clock_is_wrong(cluster: Clocked, ahead_s: int, tmp_path: Path) -> None:
    """Certificates, elapsed times and waiting do not depend on it."""
    cluster.clocks["client"].set(ahead_s)
    cluster.start_dispatcher()
    cluster.start_node("N1")
    gate = tmp_path / "gate"
    gate.touch()
    client = cluster.clocks["client"].env
    tasks = cluster.list_of(cluster.two_stages(gate))
    ran = cluster.eyas.run("run", tasks, "--join", cluster.join, env=client)
    assert f"{2 * N + 2} done, 0 failed" in ran.stderr
    seconds = float(ran.stderr.split(" tasks in ")[1].split()[0].replace(",", ""))
    assert seconds < 1_000, "elapsed time is by no clock that is a day off"
    shown = cluster.eyas.run("status", "--json", "--join", cluster.join, env=client)
    assert json.loads(shown.stdout)["runs"][0]["n_done"] == 2 * N + 2


def test_a_member_whose_clock_begins_in_1970(cluster: Clocked, tmp_path: Path) -> None:
    """As on boards without a battery: no certificate is not valid yet."""
    cluster.start_dispatcher()
    cluster.clocks["N1"].set(-50 * 365 * DAY)
    cluster.start_node("N1")
    gate = tmp_path / "gate"
    gate.touch()
    cluster.submit(cluster.two_stages(gate))
    cluster.check(2 * N + 2)
