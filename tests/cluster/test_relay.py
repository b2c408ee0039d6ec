"""Relays: many executors on one connection to the dispatcher, and relays that die, stop and lie."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness import Background, Eyas, wait_until
from weather import Cluster, kill_now

N = 60


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def named(cluster: Cluster) -> list[str]:
    """The relays that the join file names."""
    found: list[str] = json.loads(cluster.join.read_text()).get("relays", [])
    return found


def relay(cluster: Cluster, n: int = 1) -> Background:
    """Starts a relay, and waits until the join file names `n`."""
    started = cluster.eyas.start("relay", "--join", cluster.join)
    wait_until(lambda: len(named(cluster)) == n, f"{n} relays in the join file", alive=started)
    return started


def sockets_of(pid: int) -> set[str]:
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(descriptor)
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def n_connections(part: Background) -> int:
    """Established TCP connections of this process."""
    own = sockets_of(part.pid)
    lines = [line.split() for line in Path(f"/proc/{part.pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(fields[3] == "01" and fields[9] in own for fields in lines)


def some_tasks(cluster: Cluster, gate: Path | None = None) -> list[dict[str, Any]]:
    return [cluster.task(f"t{i}", f"echo {i} > out", gate=gate if i < 4 else None) for i in range(N)]


def expect_all(cluster: Cluster) -> None:
    cluster.expect(**{f"t{i}": f"{i}\n".encode() for i in range(N)})
    line = cluster.run_line()
    assert (line["n_done"], line["n_failed"]) == (N, 0), line


def test_executors_behind_a_relay_share_its_connection(cluster: Cluster) -> None:
    dispatcher = cluster.dispatcher()
    between = relay(cluster)
    for i in range(4):
        cluster.executor(f"N{i}")
    # One is of the relay; a client may just have left.
    wait_until(lambda: n_connections(dispatcher) == 1, "one connection at the dispatcher")
    assert n_connections(between) == 5
    cluster.submit(some_tasks(cluster))
    cluster.wait()
    expect_all(cluster)
    assert Counter(cluster.ran()) == Counter(f"t{i}" for i in range(N))
    # An executor that leaves is known to have left, and the others stay.
    cluster.executors["N0"].stop()
    wait_until(lambda: cluster.state_of("N0") in (None, "lost"), "the dispatcher to know that N0 has left")
    assert cluster.state_of("N1") == "connected"
    assert n_connections(between) == 4


@pytest.mark.parametrize("others", [1, 0], ids=["another relay", "the dispatcher itself"])
def test_a_relay_that_is_killed_costs_no_task(cluster: Cluster, tmp_path: Path, others: int) -> None:
    """Programs go on meanwhile, and none begins twice."""
    dispatcher = cluster.dispatcher("--lease", "30s")
    doomed = relay(cluster)
    rest = [relay(cluster, i + 2) for i in range(others)]
    for i in range(6):
        cluster.executor(f"N{i}")
    gate = tmp_path / "gate"
    cluster.submit(some_tasks(cluster, gate))
    cluster.begun("t0", "t1", "t2", "t3")
    # Whichever has executors: with one relay left all would do, as names are spread by chance.
    if rest and n_connections(doomed) == 1:
        doomed, rest = rest[0], [doomed]
    assert n_connections(doomed) > 1
    kill_now(doomed)
    wait_until(lambda: len(named(cluster)) == others, "the relay to leave the join file")
    wait_until(
        lambda: all(cluster.state_of(f"N{i}") == "connected" for i in range(6)),
        "all executors to be back",
    )
    gate.touch()
    cluster.wait()
    expect_all(cluster)
    assert Counter(cluster.ran()) == Counter(f"t{i}" for i in range(N))
    assert "did not come back" not in dispatcher.stderr
    assert [n_connections(part) for part in rest] == [7] * others
    assert n_connections(dispatcher) == (1 if others else 6)


def test_a_dispatcher_that_is_killed_is_found_again_by_its_relays(cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.dispatcher("--lease", "30s")
    between = relay(cluster)
    for i in range(3):
        cluster.executor(f"N{i}", slots=2)
    gate = tmp_path / "gate"
    cluster.submit(some_tasks(cluster, gate))
    cluster.begun("t0", "t1", "t2", "t3")
    kill_now(first)
    second = cluster.dispatcher("--lease", "30s")
    wait_until(lambda: len(named(cluster)) == 1, "the relay in the new join file")
    wait_until(
        lambda: all(cluster.state_of(f"N{i}") == "connected" for i in range(3)),
        "all executors to be back",
    )
    gate.touch()
    cluster.wait()
    expect_all(cluster)
    assert Counter(cluster.ran()) == Counter(f"t{i}" for i in range(N))
    assert n_connections(between) == 4
    assert n_connections(second) == 1


def test_the_end_of_a_cluster_ends_its_relays(cluster: Cluster) -> None:
    dispatcher = cluster.dispatcher()
    between = relay(cluster)
    node = cluster.executor("N1")
    dispatcher.stop(status=0)
    assert "the dispatcher ends, and so does this relay" in between.wait(status=0).stderr
    node.wait(status=0)


def test_a_relay_whose_dispatcher_is_gone_ends_after_the_lease(cluster: Cluster) -> None:
    dispatcher = cluster.dispatcher("--lease", "1s")
    between = relay(cluster)
    kill_now(dispatcher)
    ended = between.wait(status=3)
    assert (
        "error: no dispatcher answered for 1 s; the last try: cannot reach the dispatcher at" in ended.stderr
    )


def test_an_executor_that_is_stopped_holds_up_no_other_behind_its_relay(cluster: Cluster) -> None:
    cluster.dispatcher()
    relay(cluster)
    stopped = cluster.executor("N0")
    cluster.executor("N1")
    stopped.signal(signal.SIGSTOP)
    try:
        cluster.submit(some_tasks(cluster))
        cluster.wait()
        expect_all(cluster)
    finally:
        stopped.signal(signal.SIGCONT)


def test_strangers_get_no_further_than_the_relay(cluster: Cluster, eyas: Eyas, tmp_path: Path) -> None:
    """Another cluster's executor, a user of this one, and a relay without the cluster's key."""
    cluster.dispatcher()
    between = relay(cluster)
    other = Cluster(eyas, tmp_path / "other", tmp_path / "other-home")
    other.dispatcher()
    user = tmp_path / "bo.json"
    cluster.run("user", "add", "bo", "--out", user)

    def at_relay(join: Path, to: Path) -> Path:
        """The same key, with the address of the relay."""
        content = json.loads(join.read_text())
        content["address"] = named(cluster)[0]
        to.touch(mode=0o600)
        to.write_text(json.dumps(content))
        return to

    stranger = at_relay(other.join, tmp_path / "stranger.json")
    as_node = ("executor", "--dir", tmp_path / "n", "--join")
    refused = eyas.run(*as_node, stranger, status=3)
    assert "does not let this join file in" in refused.stderr
    refused = eyas.run(*as_node, at_relay(user, tmp_path / "bo-relay.json"), status=3)
    assert "does not let this join file in" in refused.stderr
    # At the dispatcher itself.
    content = json.loads(other.join.read_text())
    content["address"] = json.loads(cluster.join.read_text())["address"]
    stranger.write_text(json.dumps(content))
    refused = eyas.run("relay", "--join", stranger, status=3)
    assert "does not let this join file in" in refused.stderr
    refused = eyas.run("relay", "--join", user, status=3)
    assert "nodes, relays and dispatchers need the cluster's own" in refused.stderr
    # Commands do not go through relays, and are told so.
    refused = eyas.run("status", "--join", at_relay(cluster.join, tmp_path / "owner.json"), status=2)
    assert "a relay, which is for executors alone" in refused.stderr
    assert len(named(cluster)) == 1 and between.is_alive()
    cluster.executor("N1")
    cluster.submit(some_tasks(cluster))
    cluster.wait()
    expect_all(cluster)


def test_a_group_of_dispatchers_takes_no_relay(cluster: Cluster) -> None:
    cluster.eyas.start("dispatcher", "--dir", cluster.dir, "--member", "1/2")
    wait_until(cluster.join.exists, "the join file")
    refused = cluster.eyas.run("relay", "--join", cluster.join, status=3)
    assert "a relay belongs to a single dispatcher, and this one is of a group" in refused.stderr
