"""Nodes of a real Slurm, by the profile that the guide shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Eyas, wait_until
from slurm import Slurm, slurm
from weather import Cluster


@pytest.fixture(scope="module")
def batch() -> Iterator[Slurm]:
    with slurm() as made:
        yield made


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


@pytest.fixture
def profile(batch: Slurm, eyas: Eyas, tmp_path: Path) -> Iterator[list[str]]:
    """Options that use the profile of the guide. Whatever happens, no job stays in the queue."""
    page = (ROOT / "docs" / "guides" / "slurm.md").read_text()
    found = re.search(r"<!-- file eyas.toml -->\s*```toml\n(\[profile.slurm\].*?)```", page, re.DOTALL)
    assert found, "the guide shows a profile"
    (tmp_path / "eyas.toml").write_text(found[1])
    eyas.env |= batch.env
    # The nodes share one host, so they reach its dispatcher on loopback.
    yield [
        "--profile",
        "slurm",
        "--slots",
        "1",
        "--listen",
        "127.0.0.1:0",
        "--list-every",
        "1s",
        "--lease",
        "15s",
    ]
    batch.ask("scancel", "--user=root")
    wait_until(lambda: not batch.queue(), "an empty queue")


def test_a_run_on_slurm_leaves_nothing_in_the_queue(
    batch: Slurm, cluster: Cluster, profile: list[str]
) -> None:
    tasks = cluster.list_of([cluster.task(f"t{i}", f"echo $SLURM_JOB_NAME {i} > out") for i in range(12)])
    done = cluster.eyas.run("run", tasks, *profile, "--nodes", "0..3")
    assert re.search(r"12 tasks in .*: 12 done, 0 failed", done.stderr), done
    for i in range(12):
        assert re.fullmatch(rf"eyas-[0-9a-f]+-[123] {i}\n", cluster.output(f"t{i}").decode()), (
            "it ran in a job of ours"
        )
    # Slurm takes a moment to complete a job that was cancelled.
    wait_until(lambda: not batch.queue(), "an empty queue")


def test_scancel_in_mid_task_is_weather_and_uses_up_no_retries(
    batch: Slurm, cluster: Cluster, profile: list[str], tmp_path: Path
) -> None:
    folder = cluster.folder / "up"
    env = {"EYAS_JOIN": str(folder / "dispatcher" / "join.json")}
    cluster.eyas.run("up", *profile, "--nodes", "0..1", "--dir", folder)
    gate = tmp_path / "gate"
    cluster.eyas.run(
        "submit", cluster.list_of([cluster.task("t", "echo x > out", gate=gate, retries=0)]), env=env
    )
    cluster.begun("t")
    (job,) = batch.queue()
    batch.ask("scancel", job.split()[0])
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again, in another job")
    gate.touch()
    cluster.eyas.run("wait", env=env)
    cluster.expect(t=b"x\n")
    status: dict[str, Any] = json.loads(cluster.eyas.run("status", "--json", env=env).stdout)
    assert (status["runs"][0]["n_done"], status["runs"][0]["n_failed"]) == (1, 0)
    cluster.eyas.run("down", env=env)
    wait_until(lambda: not batch.queue(), "an empty queue")


def test_a_partition_that_is_not_there_is_said_in_slurms_words(
    batch: Slurm, cluster: Cluster, profile: list[str], tmp_path: Path
) -> None:
    toml = tmp_path / "eyas.toml"
    toml.write_text(toml.read_text().replace("sbatch ", "sbatch --partition=nope "))
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = cluster.eyas.run("run", tasks, *profile, "--nodes", "0..1", status=3)
    assert "nobody could submit a block: --start ended with exit status 1: " in done.stderr, done
    assert "invalid partition specified: nope" in done.stderr or "Invalid partition name" in done.stderr, done
    assert not batch.queue()
