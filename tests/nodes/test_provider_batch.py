"""Nodes of a real Slurm by `--provider slurm`: a Python process asks for them through Parsl."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch import shared
from harness import Eyas, wait_until
from slurm import Slurm, slurm
from weather import Cluster

# Slurm knows nothing shorter than a minute.
OPTIONS = ["--provider", "slurm", "--walltime", "10m", "--slots", "1", "--lease", "60s"]
# The nodes share one host, so they reach its dispatcher on loopback.
OPTIONS += ["--listen", "127.0.0.1:0", "--list-every", "1s"]


@pytest.fixture(scope="module")
def batch() -> Iterator[Slurm]:
    with slurm("PartitionName=short Nodes=ALL MaxTime=5") as made:
        yield made


@pytest.fixture
def cluster(batch: Slurm, eyas: Eyas, tmp_path: Path) -> Iterator[Cluster]:
    """Whatever happens, no job stays in the queue."""
    eyas.env |= batch.env
    yield Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    batch.ask("scancel", "--user=root")
    wait_until(lambda: not batch.queue(), "an empty queue")


def kill_helper(eyas: Eyas) -> None:
    """`kill -9` of the Python process."""
    (pid,) = [pid for pid, command in eyas.left_behind() if "eyas.provision" in command]
    os.kill(pid, signal.SIGKILL)


class Up:
    """`eyas up` with nodes of Slurm."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.cluster, self.eyas = cluster, cluster.eyas
        self.dir = cluster.folder / "up"
        self.words = [*OPTIONS, *options, "--dir", str(self.dir)]
        self.env = {"EYAS_JOIN": str(self.dir / "dispatcher" / "join.json")}
        self.eyas.run("up", *self.words)

    def run(self, *words: str | Path) -> str:
        return self.eyas.run(*words, env=self.env).stdout


def empty(batch: Slurm) -> None:
    # Slurm takes a moment to complete a job that was cancelled.
    wait_until(lambda: not batch.queue(), "an empty queue")


def test_a_run_on_slurm_leaves_nothing_in_the_queue(batch: Slurm, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task(f"t{i}", f"echo $SLURM_JOB_NAME {i} > out") for i in range(12)])
    done = cluster.eyas.run("run", tasks, *OPTIONS, "--nodes", "0..3")
    assert re.search(r"12 tasks in .*: 12 done, 0 failed", done.stderr), done
    for i in range(12):
        said = cluster.output(f"t{i}").decode()
        assert re.fullmatch(rf"eyas-[0-9a-f]+-[123]\.[0-9.]+ {i}\n", said), "it ran in a job of ours"
    empty(batch)
    assert not shared(cluster.eyas)


def test_the_python_process_is_started_again_and_its_blocks_are_found_by_name(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = cluster.list_of([cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(2)])
    running = cluster.eyas.start("run", tasks, *OPTIONS, "--nodes", "0..2")
    cluster.begun("t0", "t1")
    kill_helper(cluster.eyas)
    wait_until(lambda: any("eyas.provision" in c for _, c in cluster.eyas.left_behind()), "another one")
    assert len(batch.queue()) == 2
    gate.touch()
    done = running.wait()
    assert "2 done, 0 failed" in done.stderr, done
    assert sorted(cluster.ran()) == ["t0", "t1"], "nothing ran twice"
    empty(batch)


def test_scancel_in_mid_task_is_weather_and_uses_up_no_retries(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    up = Up(cluster, "--nodes", "0..1")
    gate = tmp_path / "gate"
    up.run("submit", cluster.list_of([cluster.task("t", "echo x > out", gate=gate, retries=0)]))
    cluster.begun("t")
    (job,) = batch.queue()
    batch.ask("scancel", job.split()[0])
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again, in another job")
    gate.touch()
    up.run("wait")
    cluster.expect(t=b"x\n")
    up.run("down")
    empty(batch)


def test_a_head_that_is_killed_and_started_again_adopts_its_jobs(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    up = Up(cluster, "--nodes", "0..1")
    gate = tmp_path / "gate"
    up.run("submit", cluster.list_of([cluster.task("t", "echo x > out", gate=gate)]))
    cluster.begun("t")
    jobs = batch.queue()
    for pid, command in list(cluster.eyas.left_behind()):
        if command.split()[1:2] in (["provider"], ["dispatcher"]):
            os.kill(pid, signal.SIGKILL)
    cluster.eyas.run("up", *up.words)
    gate.touch()
    up.run("wait")
    assert cluster.ran() == ["t"], "it went on where it was"
    assert batch.queue() == jobs
    up.run("down")
    empty(batch)


def test_down_ends_the_jobs_of_a_head_that_was_killed(batch: Slurm, cluster: Cluster, tmp_path: Path) -> None:
    up = Up(cluster, "--nodes", "0..1")
    up.run("submit", cluster.list_of([cluster.task("t", "echo x > out", gate=tmp_path / "gate")]))
    cluster.begun("t")
    for pid, command in list(cluster.eyas.left_behind()):
        if command.split()[1:2] in (["provider"], ["dispatcher"]):
            os.kill(pid, signal.SIGKILL)
    up.run("down")
    empty(batch)
    assert not shared(cluster.eyas)


def test_a_job_that_dies_at_once_is_said_with_its_own_output(batch: Slurm, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words = ["--nodes", "0..1", "--setup", "echo 'module: no such module: blast' >&2; exit 1"]
    done = cluster.eyas.run("run", tasks, *OPTIONS, *words, status=3)
    assert "ended before it joined" in done.stderr, done
    assert "module: no such module: blast" in done.stderr, done
    empty(batch)


def test_a_partition_that_is_not_there_is_said_in_slurms_words(batch: Slurm, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = cluster.eyas.run("run", tasks, *OPTIONS, "--partition", "nope", "--nodes", "0..1", status=3)
    assert "nobody could submit a block: sbatch ended with exit status 1: sbatch: error: " in done.stderr
    assert "nope" in done.stderr or "Invalid partition name" in done.stderr, done


def test_a_walltime_over_the_partitions_limit_is_said_with_both(batch: Slurm, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words: list[str | Path] = ["run", tasks, *OPTIONS, "--partition", "short", "--nodes", "0..1"]
    done = cluster.eyas.run(*words, status=3)
    limit = "partition short allows at most 0:05:00, and "
    assert f"nobody could submit a block: {limit}--walltime asks for 0:10:00" in done.stderr, done
    # Unless it is said, jobs ask for as much, and Slurm's listing tells that it starts none of them.
    del words[words.index("--walltime") : words.index("--walltime") + 2]
    done = cluster.eyas.run(*words, status=3)
    assert f"Slurm keeps it back: {limit}without --walltime a job asks for 0:10:00" in done.stderr, done
    empty(batch)


def test_options_that_parsl_does_not_have_are_refused(batch: Slurm, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = cluster.eyas.run("run", tasks, *OPTIONS, "--options", "qoss=x", "--nodes", "0..1", status=2)
    said = "error: --provider slurm has no option `qoss`\nhint: did you mean `qos`?\n"
    assert done.stderr.endswith(said), done
    assert not shared(cluster.eyas), "no cluster was started"


def test_a_python_without_parsl_is_refused_with_the_command_that_installs_it(
    eyas: Eyas, tmp_path: Path
) -> None:
    (tmp_path / "t.jsonl").write_text('{"command": ["true"]}\n')
    bare = tmp_path / "python3"
    # -S: without what is installed.
    bare.write_text('#!/bin/sh\nexec python3 -S "$@"\n')
    bare.chmod(0o755)
    words = ["--provider", "slurm", "--python", str(bare), "--nodes", "0..1"]
    done = eyas.run("run", tmp_path / "t.jsonl", *words, status=2)
    assert "need Parsl, which the Python" in done.stderr, done
    assert (
        f"hint: {bare} -m pip install 'WHEEL[batch]', where WHEEL is the wheel file of eyas" in done.stderr
    ), done


def test_a_job_of_two_nodes_has_an_executor_on_each(batch: Slurm, cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tasks = cluster.list_of(
        [cluster.task(f"t{i}", "echo $SLURMD_NODENAME $SLURM_JOB_ID > out", gate=gate) for i in range(2)]
    )
    words = ["--nodes", "0..2", "--nodes-per-job", "2", "--provisioning", "all-at-once"]
    running = cluster.eyas.start("run", tasks, *OPTIONS, *words)
    cluster.begun("t0", "t1")
    assert len(batch.queue()) == 1, "one job holds both"
    gate.touch()
    running.wait()
    (node0, job0), (node1, job1) = (cluster.output(f"t{i}").decode().split() for i in range(2))
    assert node0 != node1 and job0 == job1
    empty(batch)


def test_config_check_holds_options_against_parsl(eyas: Eyas, tmp_path: Path) -> None:
    toml = tmp_path / "eyas.toml"
    toml.write_text(
        '[profile.a]\nprovider = "lsf"\n\n[profile.a.options]\nkueue = "x"\nrequest_by_nodes = true\n'
    )
    done = eyas.run("config", "check", status=2)
    assert (
        "line 4: profile `a`: --provider lsf has no option `kueue`; did you mean `queue`?\n" in done.stderr
    ), done
    toml.write_text('[profile.a]\nprovider = "lsf"\nqueue = "x"\npartition = "y"\n')
    done = eyas.run("config", "check", status=2)
    assert "--partition has nothing to say to --provider lsf" in done.stderr, done
    bare = tmp_path / "python3"
    bare.write_text('#!/bin/sh\nexec python3 -S "$@"\n')
    bare.chmod(0o755)
    toml.write_text(f'[profile.a]\nprovider = "lsf"\npython = "{bare}"\noptions = {{ kueue = "x" }}\n')
    done = eyas.run("config", "check")
    assert "note: the options of profile `a` were not checked: " in done.stderr, done


def test_a_job_begins_with_the_cache_of_an_earlier_one(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    """Also with that of a job that was cancelled, and in another cluster."""
    file = cluster.file("f", 50_000, 1)
    disk = ["--node-dir", str(tmp_path / "disk of $SLURM_JOB_USER"), "--nodes", "0..1"]
    up = Up(cluster, *disk)
    gate = tmp_path / "gate"
    up.run("submit", cluster.list_of([cluster.task("t", inputs=[file], gate=gate)]))
    cluster.begun("t")
    (job,) = batch.queue()
    batch.ask("scancel", job.split()[0])
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again, in another job")
    gate.touch()
    up.run("wait")
    (line,) = json.loads(up.run("status", "--json"))["runs"]
    assert (line["home_bytes"], line["local_bytes"]) == (0, 50_000), "the cancelled job had read it"
    up.run("down")
    empty(batch)
    done = cluster.eyas.run("run", cluster.list_of([cluster.task("u", inputs=[file])]), *OPTIONS, *disk)
    assert "inputs: 48.8 KiB from the node's own cache (100 %), 0 B from peers, 0 B from home" in done.stderr
    cluster.expect(t=file.read_bytes(), u=file.read_bytes())
    empty(batch)
