"""`eyas explain TASK` when the node of a task is lost: the live dispatcher and the log's folder say what became of it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from harness import Eyas, wait_until
from weather import Cluster, kill_now


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def test_a_node_that_was_killed_is_named_with_the_times(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    cluster.dispatcher("--lease", "3s")
    cluster.executor("first")
    cluster.submit([cluster.task("nap", "echo > out", gate=gate)])
    cluster.begun("nap")
    kill_now(cluster.executors["first"])

    def explained() -> str:
        return cluster.run("explain", "nap").stdout

    # While it is away it may still come back.
    silent = r"`first` fell silent [\d.]+ m?s after the attempt began\. If it does not come back"
    lost = (
        r"its executor fell silent [\d.]+ m?s after the attempt began and did not come back within [\d.]+ s"
    )
    wait_until(lambda: re.search(f"{silent}|{lost}", explained()) is not None, "a word on the silence")
    wait_until(lambda: re.search(lost, explained()) is not None, "a word on the loss")
    cluster.executor("second")
    gate.touch()
    cluster.wait()
    live = explained()
    assert live.index("Attempt 1 on `first`") < live.index("Attempt 2 on `second`")
    assert re.search(lost, live) and "It ended well" in live
    from_folder = cluster.eyas.run("explain", "nap", "--dir", cluster.dir).stdout
    assert re.search(lost, from_folder), from_folder


def test_a_node_that_was_asked_to_go_is_named_with_the_reason(cluster: Cluster, tmp_path: Path) -> None:
    """A batch system's signal, as at the end of a walltime: the program does not end in time."""
    gate = tmp_path / "gate"
    cluster.dispatcher()
    cluster.executor("first", "--grace", "1s")
    cluster.submit([cluster.task("nap", "echo > out", gate=gate)])
    cluster.begun("nap")
    os.kill(cluster.executors["first"].pid, signal.SIGTERM)
    wait_until(lambda: "ended without a result" in cluster.run("explain", "nap").stdout, "a word on the loss")
    cluster.executor("second")
    gate.touch()
    cluster.wait()
    live = cluster.run("explain", "nap").stdout
    reason = "its executor was lost: it was told to stop (SIGTERM), and its grace period is over"
    assert live.index("Attempt 1 on `first`") < live.index(reason) < live.index("Attempt 2 on `second`")


def test_attempts_with_one_number_are_told_apart_by_the_restart_between_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The dispatcher and the node are killed at once, so nobody tells the next dispatcher of the attempt."""
    gate = tmp_path / "gate"
    head = cluster.dispatcher()
    cluster.executor("first")
    cluster.submit([cluster.task("nap", "echo > out", gate=gate)])
    cluster.begun("nap")
    # A log line may reach its file a moment later.
    wait_until(lambda: '"assign"' in cluster.events(), "the attempt in the log")
    kill_now(head)
    kill_now(cluster.executors["first"])
    cluster.dispatcher()
    cluster.executor("second")
    wait_until(lambda: "is running on `second`" in cluster.run("explain", "nap").stdout, "the second attempt")
    gate.touch()
    cluster.wait()
    expected = [
        "Attempt 1 on `first` (before the dispatcher was started again)",
        "Attempt 1 on `second` (after the dispatcher was started again)",
    ]
    from_folder = cluster.eyas.run("explain", "nap", "--dir", cluster.dir)
    for said in (cluster.run("explain", "nap").stdout, from_folder.stdout):
        assert [line for line in said.splitlines() if line.startswith("Attempt ")] == expected, said
