"""Executors whose batch system ends them: at their walltime, after SIGTERM, or before they have begun."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from batch import Batch
from harness import Eyas, wait_until
from kills import children
from weather import Cluster, kill_now, programs_under


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path / "batch")


def of_kind(cluster: Cluster, way: str, kind: str) -> list[dict[str, Any]]:
    """Events (`in`) or actions (`out`) of this kind in the event log."""
    return [entry[way][kind] for entry in cluster.entries() if kind in entry.get(way, {})]


def node_of(cluster: Cluster, task: str) -> list[str]:
    """The nodes that a task has begun on."""
    lines = [line.split() for line in cluster.ran_log.read_text().splitlines()]
    return [line[1] for line in lines if line[0] == task]


def test_many_tasks_run_on_nodes_of_some_seconds(batch: Batch, cluster: Cluster, tmp_path: Path) -> None:
    """The work of one node after the other: none of the tasks fails, although none may be tried again."""
    tasks = [cluster.task(f"t{i}", f"sleep 0.5; echo {i} > out", label="naps") for i in range(20)]
    folder = tmp_path / "run"
    options = [
        "--listen",
        "127.0.0.1:0",
        "--nodes",
        "0..2",
        "--slots",
        "1",
        "--walltime",
        "6s",
        "--dir",
        str(folder),
    ]
    done = cluster.eyas.run("run", cluster.list_of(tasks), *batch.options(), *options)
    assert re.search(r"20 tasks in .*: 20 done, 0 failed", done.stderr), done
    cluster.expect(**{f"t{i}": f"{i}\n".encode() for i in range(20)})
    assert len(batch.blocks()) > 2, "two nodes of six seconds are not enough"
    wait_until(lambda: not batch.running(), "the end of the blocks")


def test_after_sigterm_a_node_ends_what_it_has_and_takes_nothing_more(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.dispatcher()
    gate = tmp_path / "gate"
    leaver = cluster.executor("N1", "--grace", "600s")
    cluster.submit([cluster.task(name, "echo right > out", gate=gate, retries=0) for name in "abcd"])
    cluster.begun("a")
    leaver.signal(signal.SIGTERM)
    wait_until(lambda: cluster.state_of("N1") == "draining", "the drain of N1", alive=leaver)
    cluster.executor("N2", slots=3)
    # What N1 was given ahead comes back.
    cluster.begun("b", "c", "d")
    assert leaver.is_alive()
    gate.touch()
    leaver.wait(status=0)
    cluster.wait()
    cluster.expect(**dict.fromkeys("abcd", b"right\n"))
    assert [node_of(cluster, name) for name in "abcd"] == [["N1"], ["N2"], ["N2"], ["N2"]]
    [drain] = of_kind(cluster, "out", "drain_executor")
    assert drain["reason"] == "it was told to stop (SIGTERM)"
    assert "drained, because it was told to stop (SIGTERM)" in leaver.stderr


def test_what_does_not_end_within_the_grace_runs_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher("--lease", "600s")
    gate = tmp_path / "gate"
    leaver = cluster.executor("N1", "--grace", "1s")
    cluster.submit([cluster.task("a", "echo right > out", gate=gate, retries=0)])
    cluster.begun("a")
    leaver.signal(signal.SIGTERM)
    leaver.wait(status=0)
    assert not programs_under(cluster.node_dir("N1"))
    assert "its grace period is over" in leaver.stderr
    gate.touch()
    cluster.executor("N2")
    cluster.wait()
    cluster.expect(a=b"right\n")
    assert node_of(cluster, "a") == ["N1", "N2"]


def test_a_signal_for_all_processes_of_a_job_is_no_failure_of_its_programs(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A batch system signals programs and executor in any order; here the program is the first."""
    cluster.dispatcher("--lease", "600s")
    gate = tmp_path / "gate"
    leaver = cluster.executor("N1", "--grace", "600s")
    cluster.submit([cluster.task("a", "echo right > out", gate=gate, retries=0)])
    cluster.begun("a")
    for pid in programs_under(cluster.node_dir("N1")):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    leaver.signal(signal.SIGTERM)
    leaver.wait(status=0)
    gate.touch()
    cluster.executor("N2")
    cluster.wait()
    cluster.expect(a=b"right\n")
    assert node_of(cluster, "a") == ["N1", "N2"]


def test_a_program_that_does_not_heed_that_signal_goes_on_through_the_grace_period(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.dispatcher("--lease", "600s")
    gate = tmp_path / "gate"
    leaver = cluster.executor("N1", "--grace", "600s")
    cluster.submit([cluster.task("a", "echo right > out", gate=gate, retries=0)])
    cluster.begun("a")
    for slot in children(leaver.pid):
        os.kill(slot, signal.SIGTERM)
    leaver.signal(signal.SIGTERM)
    wait_until(lambda: cluster.state_of("N1") == "draining", "the drain of N1", alive=leaver)
    gate.touch()
    leaver.wait(status=0)
    cluster.wait()
    cluster.expect(a=b"right\n")
    assert node_of(cluster, "a") == ["N1"]


def test_a_second_sigterm_ends_a_node_at_once(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher()
    leaver = cluster.executor("N1", "--grace", "600s")
    cluster.submit([cluster.task("a", gate=tmp_path / "never")])
    cluster.begun("a")
    leaver.signal(signal.SIGTERM)
    wait_until(lambda: cluster.state_of("N1") == "draining", "the drain of N1", alive=leaver)
    leaver.signal(signal.SIGTERM)
    leaver.wait(status=0)
    assert not programs_under(cluster.node_dir("N1"))


def test_ends_by_walltime_are_no_losses_and_one_that_is_too_short_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The task has two whole nodes, one after the other, and does not end there."""
    cluster.dispatcher("--lease", "600s")
    never = tmp_path / "never"
    cluster.submit([cluster.task("a", gate=never, retries=0)])
    for number in (1, 2):
        cluster.begin_executor(f"N{number}", "--walltime", "8s").wait(status=0)
    done = cluster.wait(status=1)
    assert (
        "the task needs more than the walltime of 8 s: 2 nodes ended while it ran"
        in done.stdout + done.stderr
    )
    assert "its walltime of 8 s is over" in cluster.executors["N2"].stderr
    assert node_of(cluster, "a") == ["N1", "N2"]
    offers = [event["offer"]["walltime"] for event in of_kind(cluster, "in", "executor_joined")]
    assert all(offer["whole_ns"] == 8_000_000_000 >= offer["left_ns"] for offer in offers), offers


def test_slurm_says_when_its_job_ends(cluster: Cluster) -> None:
    cluster.dispatcher()
    # A job of an hour that has begun in 2001.
    slurm = {"SLURM_JOB_START_TIME": "1000000000", "SLURM_JOB_END_TIME": "1000003600"}
    given: list[str | Path] = [
        "--join",
        cluster.join,
        "--dir",
        cluster.node_dir("N1"),
        "--name",
        "N1",
        "--slots",
        "1",
    ]
    ended = cluster.eyas.run("executor", *given, env=slurm)
    assert "its walltime of 3600 s is over" in ended.stderr, ended


def test_a_job_that_starts_after_the_run_is_over_ends(cluster: Cluster) -> None:
    """The key is gone with the cluster, or is that of a cluster that was killed."""
    dispatcher = cluster.dispatcher()
    key = cluster.join.read_bytes()
    kill_now(dispatcher)
    cluster.join.write_bytes(key)
    late = cluster.begin_executor("N1")
    cluster.join.unlink()
    too_late = cluster.begin_executor("N2")
    too_late.wait(status=3)
    # It waits for as long as a dispatcher usually waits for executors.
    late.wait(status=3)
    assert "no dispatcher answered for 15 s" in late.stderr or "join.json" in late.stderr, late.finished()
