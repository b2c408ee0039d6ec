"""Nodes of a real Grid Engine, whose hosts have addresses and names of their own: `--provider grid-engine`, and within its jobs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch import shared
from gridengine import GridEngine, grid_engine
from harness import ROOT, Background, Eyas, log_text, run_guide, wait_until
from weather import Cluster

# Short, as tests wait for its end, and long enough that a busy machine alone does not bring that about.
LEASE = ["--lease", "10s"]
OPTIONS = ["--provider", "grid-engine", "--walltime", "10m", "--list-every", "1s"]


@pytest.fixture(scope="module")
def batch() -> Iterator[GridEngine]:
    with grid_engine() as made:
        yield made


@pytest.fixture
def eyas(batch: GridEngine, eyas_path: Path, tmp_path: Path) -> Iterator[Eyas]:
    """The program, on the head."""
    program = tmp_path / "eyas"
    program.write_text(f'#!/bin/sh\nexec {batch.hosts[0].enter} {shlex.quote(str(eyas_path))} "$@"\n')
    program.chmod(0o755)
    made = Eyas(program, tmp_path / ".eyas-test", uuid.uuid4().hex)
    made.env |= batch.env
    yield made
    made.end()


@pytest.fixture
def cluster(batch: GridEngine, eyas: Eyas, tmp_path: Path) -> Iterator[Cluster]:
    """Whatever happens, no job stays in the queue."""
    yield Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    batch.clear()


def kill_parts(eyas: Eyas, *parts: str) -> None:
    """`kill -9` of these parts of the head."""
    for pid, command in list(eyas.left_behind()):
        if command.split()[1:2] and command.split()[1] in parts:
            os.kill(pid, signal.SIGKILL)


class Up:
    """`eyas up` with nodes of Grid Engine."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.eyas = cluster.eyas
        self.dir = cluster.folder / "up"
        self.words = ["up", *OPTIONS, *options, "--dir", str(self.dir)]
        self.env = {"EYAS_JOIN": str(self.dir / "dispatcher" / "join.json")}
        self.eyas.run(*self.words)

    def ask(self, *words: str | Path) -> str:
        return self.eyas.run(*words, env=self.env).stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("status", "--json"))
        return found


def start(cluster: Cluster, tasks: list[dict[str, Any]], *options: str) -> Background:
    lease = () if "--lease" in options else LEASE
    words = ["--dir", str(cluster.folder / "run"), *lease, *OPTIONS, *options]
    return cluster.eyas.start("run", cluster.list_of(tasks), *words)


def nodes_of(eyas: Eyas, folder: Path) -> list[dict[str, Any]]:
    """Executors of the run that has this folder."""
    env = {"EYAS_JOIN": str(folder / "dispatcher" / "join.json")}
    found: dict[str, Any] = json.loads(eyas.run("status", "--json", env=env).stdout)
    return list(found["executors"])


def test_a_run_from_nothing_whose_tasks_read_each_others_files_across_hosts(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    # Four makers at once are on four hosts, as each fills one; each reader needs what two hosts have.
    makers = [
        {
            "id": f"m{i}",
            "command": f"hostname > h; head -c 300000 /dev/zero | tr '\\0' {i} > f; touch {tmp_path}/m{i}; "
            f"while [ ! -e {gate} ]; do sleep 0.02; done",
            "outputs": {"f": f"run:f{i}", "h": str(tmp_path / f"h{i}")},
            "cpus": 2,
        }
        for i in range(4)
    ]
    readers = [
        {
            "id": f"r{i}",
            "command": "cat a b > out",
            "inputs": {"a": f"run:f{i}", "b": f"run:f{(i + 1) % 4}"},
            "outputs": {"out": str(cluster.home / f"r{i}.out")},
        }
        for i in range(4)
    ]
    words = ["--nodes", "4", "--slots", "2", "--options", "pe=smp"]
    running = start(cluster, makers + readers, *words)
    wait_until(lambda: all((tmp_path / f"m{i}").exists() for i in range(4)), "four hosts", alive=running)
    names = [line.split()[1] for line in batch.queue()]
    assert all(re.fullmatch(r"eyas-[0-9a-f]+-[1-9]\.[0-9.]+\.submit", name) for name in names), names
    gate.touch()
    done = running.wait()
    assert "8 done, 0 failed" in done.stderr, done
    assert sorted((tmp_path / f"h{i}").read_text() for i in range(4)) == ["g1\n", "g2\n", "g3\n", "g4\n"]
    for i in range(4):
        cluster.expect(**{f"r{i}": str(i).encode() * 300_000 + str((i + 1) % 4).encode() * 300_000})
    assert re.search(r"inputs: .*, [1-9][\d.]* [KM]iB from peers", done.stderr), done
    batch.empty()
    assert not shared(cluster.eyas)


# A program on the head whose cluster's nodes are jobs.
FROM_PYTHON = """
import os, socket, sys, time, eyas
import numpy as np

def job_of(n, gate):
    while not os.path.exists(gate):
        time.sleep(0.05)
    return os.environ["JOB_NAME"], socket.gethostname(), n, np.full(20_000, n)

def n_nodes():
    return sum(node["state"] == "connected" for node in c.status()["executors"])

c = eyas.Cluster(
    provider="grid-engine", nodes=(0, 2), slots=2, list_every=1, idle_release=1, lease=10, walltime="10m",
    options={"pe": "smp"},
)
calls = c.map(job_of, range(8), context=sys.argv[1])
while n_nodes() < 2:
    time.sleep(0.1)
print("works", flush=True)
found = list(calls)
assert [(n, float(array[-1])) for _, _, n, array in found] == [(n, n) for n in range(8)]
while n_nodes() > 0:
    time.sleep(0.1)
print(*sorted({(job, host) for job, host, _, _ in found}), flush=True)
c.close()
"""


def from_python(batch: GridEngine, cluster: Cluster, gate: Path) -> subprocess.Popen[str]:
    folders = {name: str(cluster.folder / name.lower()) for name in ("EYAS_STATE", "XDG_STATE_HOME")}
    return subprocess.Popen(
        batch.on_head(sys.executable, "-c", FROM_PYTHON, str(gate)),
        env={**os.environ, **batch.env, **folders},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_cluster_from_python_grows_for_calls_and_shrinks_behind_them(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    with from_python(batch, cluster, tmp_path / "gate") as program:
        assert program.stdout is not None and program.stdout.readline() == "works\n"
        (tmp_path / "gate").touch()
        places = re.findall(r"\('eyas-[^']*', '(g[1-4])'\)", program.stdout.readline())
        assert len(set(places)) == 2, "two slots fill a host"
    assert program.returncode == 0
    batch.empty()
    shared = cluster.folder / "xdg_state_home"
    assert not [path for path in shared.rglob("*") if path.is_file()], "keys, scripts and values are gone"


def test_a_python_that_is_killed_leaves_no_job(batch: GridEngine, cluster: Cluster, tmp_path: Path) -> None:
    with from_python(batch, cluster, tmp_path / "gate") as program:
        try:
            assert program.stdout is not None and program.stdout.readline() == "works\n"
            assert batch.queue()
        finally:
            program.kill()
    batch.empty(120)


def test_a_job_of_several_nodes_has_an_executor_on_each_host(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = [
        cluster.task(f"t{i}", "echo $(hostname) $JOB_ID > out", gate=gate) | {"cpus": 2} for i in range(3)
    ]
    words = ["--nodes", "3", "--nodes-per-job", "3", "--slots", "2"]
    running = start(cluster, tasks, *words, "--options", "pe=pair")
    cluster.begun("t0", "t1", "t2")
    assert len(batch.queue()) == 1, "one job holds them all"
    gate.touch()
    done = running.wait()
    assert "3 done, 0 failed" in done.stderr, done
    found = [cluster.output(f"t{i}").decode().split() for i in range(3)]
    assert len({host for host, _ in found}) == 3 and len({job for _, job in found}) == 1, found
    batch.empty()


def test_slots_are_those_of_the_job_where_nobody_says_them(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = [cluster.task("t", "echo x > out", gate=gate)]
    running = start(cluster, tasks, "--nodes", "0..1")
    cluster.begun("t")
    (node,) = nodes_of(cluster.eyas, cluster.folder / "run")
    assert node["slots"] == 1, "a job without a parallel environment has one"
    gate.touch()
    running.wait()
    batch.empty()


def test_qdel_in_mid_task_is_weather_and_uses_up_no_retries(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    running = start(cluster, [cluster.task("t", "echo x > out", gate=gate, retries=0)], "--nodes", "0..1")
    cluster.begun("t")
    (job,) = batch.queue()
    batch.ask("qdel", job.split()[0])
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again, in another job", alive=running)
    gate.touch()
    done = running.wait()
    assert "1 done, 0 failed" in done.stderr, done
    cluster.expect(t=b"x\n")
    batch.empty()


def test_a_job_in_an_error_state_is_said_in_grid_engines_words_and_taken_away(
    batch: GridEngine, cluster: Cluster
) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words = ["--nodes", "0..1", "--options", "scheduler_options=#$ -o /no/such/folder/out"]
    done = cluster.eyas.run("run", tasks, *OPTIONS, *words, status=3)
    said = r"ended before it joined: Grid Engine has it in the error state Eqw: error: can't open output file \"/no/such/folder/out\""
    assert re.search(said, done.stderr), done
    batch.empty()
    assert done.stderr.count("ended before it joined") == 1, "three jobs were tried"


def test_qdel_of_a_job_with_notify_lets_its_task_end(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    """Grid Engine announces the end by SIGUSR2, to all processes of the job, and kills them a while later."""
    gate = tmp_path / "gate"
    batch.change("q", ["all.q"], {"notify": "00:02:00"})
    try:
        tasks = [cluster.task("t", "echo x > out", gate=gate, retries=0)]
        words = ["--nodes", "0..1", "--grace", "110s", "--options", "scheduler_options=#$ -notify"]
        running = start(cluster, tasks, *words)
        cluster.begun("t")
        (job,) = batch.queue()
        batch.ask("qdel", job.split()[0])
        log = cluster.folder / "run" / "dispatcher" / "dispatcher.log"
        said = "gets nothing more, because it was told to stop (SIGUSR2)"
        wait_until(lambda: said in log.read_text(), "the node to drain", alive=running)
        gate.touch()
        done = running.wait()
    finally:
        batch.change("q", ["all.q"], {"notify": "00:00:05"})
    assert "1 done, 0 failed" in done.stderr, done
    assert cluster.ran() == ["t"], "the task ended in time"
    batch.empty()


def test_a_job_that_no_host_can_hold_says_why_it_waits(batch: GridEngine, cluster: Cluster) -> None:
    options = ["--options", "scheduler_options=#$ -l mem_free=900G"]
    running = start(cluster, [cluster.task("t", "echo x > out")], "--nodes", "0..1", *options)
    why = (
        r"no queue of Grid Engine can ever hold it: it cannot run in queue \"all.q@g\d\" because job requests"
    )
    env = {"EYAS_JOIN": str(cluster.folder / "run" / "dispatcher" / "join.json")}
    wait_until(lambda: re.search(f"to come \\({why}", running.stderr), "the line to say so", alive=running)
    assert re.search(rf"queued +\d+ +{why}", cluster.eyas.run("status", env=env).stdout)
    text = cluster.eyas.run("explain", "--nodes", env=env).stdout
    assert re.search(rf"^eyas-\w+-1 \(\d+\) waits in the queue: {why}", text, re.M), text
    running.signal(signal.SIGINT)
    done = running.wait(status=130)
    # A listing is one call, and the reason was asked for once.
    calls = json.loads((cluster.folder / "run" / "dispatcher" / "calls.json").read_text())
    assert calls["n_list"] >= 3, done
    batch.empty()


def test_what_qsub_refuses_is_said_in_its_own_words(batch: GridEngine, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    for options, words in (
        (["--options", "scheduler_options=#$ -l nosuch=1"], 'Unable to run job: unknown resource "nosuch"'),
        (
            ["--queue", "nope.q"],
            'Unable to run job: Job was rejected because job requests unknown queue "nope.q"',
        ),
        (
            ["--options", "pe=nope"],
            'Unable to run job: job rejected: the requested parallel environment "nope" does not exist',
        ),
    ):
        done = cluster.eyas.run("run", tasks, *OPTIONS, *options, "--nodes", "0..1", status=3)
        assert f"nobody could submit a block: qsub ended with exit status 1: {words}" in done.stderr, done
    assert not batch.queue()


def test_several_nodes_need_a_parallel_environment(cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = cluster.eyas.run("run", tasks, *OPTIONS, "--nodes-per-job", "2", "--nodes", "0..2", status=2)
    said = "error: jobs of several nodes need a parallel environment of Grid Engine\nhint: the option `pe` names one"
    assert said in done.stderr, done


@pytest.mark.long  # Two jobs after each other, each until its limit.
def test_a_time_limit_that_is_shorter_than_a_task_costs_no_retry_and_is_said(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    """The job's own limit is below what eyas was told, so Grid Engine kills it without a warning."""
    gate = tmp_path / "gate"
    tasks = [cluster.task("t", "echo x > out", gate=gate, retries=0)]
    running = start(cluster, tasks, "--nodes", "0..1", "--options", "scheduler_options=#$ -l h_rt=8")
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again, in another job", alive=running)
    gate.touch()
    done = running.wait()
    assert "1 done, 0 failed" in done.stderr, done
    batch.empty()


@pytest.mark.long  # Grid Engine's clients wait half a minute for it.
def test_a_master_that_is_down_for_a_while_stops_nothing(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = [cluster.task(f"t{i}", "echo x > out", gate=gate, retries=0) for i in range(2)]
    running = start(cluster, tasks, "--nodes", "0..2", "--lease", "60s")
    cluster.begun("t0", "t1")
    batch.stop_master()
    running.wait_for_text("nobody could list the blocks: qstat ended with exit status 1: ")
    batch.start_master()
    wait_until(batch.answers, "sge_qmaster")
    gate.touch()
    done = running.wait()
    assert "2 done, 0 failed" in done.stderr, done
    assert sorted(cluster.ran()) == ["t0", "t1"], "nothing ran twice"
    batch.empty()


def test_a_head_that_is_killed_for_good_leaves_nothing_in_the_queue(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    Up(cluster, "--nodes", "2", *LEASE)
    wait_until(lambda: [line.split()[2] for line in batch.queue()] == ["r", "r"], "two jobs")
    kill_parts(cluster.eyas, "provider", "dispatcher")
    batch.empty()


def test_a_head_that_comes_back_adopts_its_jobs(batch: GridEngine, cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    up = Up(cluster, "--nodes", "0..1", "--lease", "60s")
    up.ask("submit", cluster.list_of([cluster.task("t", "echo x > out", gate=gate, retries=0)]))
    cluster.begun("t")
    before = batch.queue()
    kill_parts(cluster.eyas, "provider", "dispatcher")
    cluster.eyas.run(*up.words)
    gate.touch()
    up.ask("wait")
    cluster.expect(t=b"x\n")
    assert cluster.ran() == ["t"], "it went on where it was"
    assert len(before) == 1 and [line.split()[0] for line in batch.queue()] in ([before[0].split()[0]], [])
    up.ask("down")
    batch.empty()


def test_a_limit_of_jobs_is_learnt_and_not_hammered(
    batch: GridEngine, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    batch.change("conf", ["global"], {"max_u_jobs": "2"})
    try:
        tasks = [cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(4)]
        running = start(cluster, tasks, "--nodes", "0..4", "--provisioning", "all-at-once")
        said = "nobody could submit a block beside the 2 there are: qsub ended with exit status 25: Unable to run job: "
        running.wait_for_text(said + "job rejected: only 2 jobs are allowed per user (current job count: 2)")
        wait_until(lambda: len(cluster.ran()) == 2, "a task on each of two nodes", alive=running)
        gate.touch()
        done = running.wait()
    finally:
        batch.change("conf", ["global"], {"max_u_jobs": "0"})
    assert "4 done, 0 failed" in done.stderr, done
    assert done.stderr.count("could submit a block") == 1, done
    batch.empty()


def test_what_the_guide_shows_is_what_is_printed(
    batch: GridEngine, cluster: Cluster, eyas_path: Path, tmp_path: Path
) -> None:
    """The page's module is none that this machine has."""
    text = (ROOT / "docs" / "guides" / "grid-engine.md").read_text(encoding="utf-8")
    path = tmp_path / "grid-engine.md"
    path.write_text(text.replace('"module load blast"', '"true"'))
    done = run_guide(path, "grid-engine", eyas_path, {**os.environ, **batch.env}, [batch.hosts[0].enter])
    assert done.returncode == 0, done.stdout + done.stderr
    batch.empty()


# ------------------------------------------------------------------------------------------------ the probe


def test_a_good_profile_is_shown_and_found_good(batch: GridEngine, eyas: Eyas, tmp_path: Path) -> None:
    (tmp_path / "eyas.toml").write_text(
        '[profile.ge]\nprovider = "grid-engine"\nqueue = "all.q"\nnodes-per-job = 2\nwalltime = "10min"\nslots = 2\n'
        'memory = "1GiB"\noptions = { pe = "pair", memory_resource = "mem_free" }\n'
    )
    assert "1 profile: ge" in eyas.run("config", "check").stdout
    done = eyas.run("provider", "check", "--profile", "ge", "--cache", "1MiB", "--wait", "60s")
    for line in ("#$ -pe pair 4", "#$ -l mem_free=512M", "#$ -l h_rt=00:10:00", "by qsub -q all.q -terse"):
        assert line in done.stdout, done
    assert done.stdout.count("node        ") == 2, done
    assert done.stdout.endswith("good: nodes can be taken like this\n"), done
    batch.empty()


def test_the_probe_says_what_is_wrong(batch: GridEngine, eyas: Eyas) -> None:
    words = ["provider", "check", *OPTIONS, "--cache", "1MiB", "--wait", "30s"]
    for options, said in (
        (["--queue", "nope.q"], "hint: --queue names another one"),
        (["--options", "pe=nope"], "hint: `qconf -spl` shows the parallel environments there are"),
        (
            ["--options", "scheduler_options=#$ -l nosuch=1"],
            "hint: `qconf -sc` shows the resources there are",
        ),
        (["--options", "scheduler_options=#$ -o /no/such/folder/out"], "can't open output file"),
        (["--program", "/no/such/eyas"], "error: the node has no program /no/such/eyas\n"),
        (["--setup", "echo 'no such module: blast' >&2; exit 1"], "it said last: no such module: blast\n"),
    ):
        done = eyas.run(*words, *options, status=3)
        assert said in done.stderr, done
    batch.empty()


# ---------------------------------------------------------------------------------------- within a job


def test_one_line_in_a_job_uses_all_of_its_hosts(
    batch: GridEngine, eyas: Eyas, eyas_path: Path, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = cluster.list_of(
        [cluster.task(f"t{i}", "hostname > out", gate=gate) | {"cpus": 2} for i in range(3)]
    )
    job, log = tmp_path / "job.sh", tmp_path / "job.log"
    line = f"{eyas_path} run tasks.jsonl --provider allocation --dir run"
    Path(tasks).rename(tmp_path / "tasks.jsonl")
    job.write_text(f"#!/bin/sh\n{line}\necho status $?\n")
    exports = [
        f"{name}={value}" for name, value in eyas.env.items() if name.startswith(("XDG", "EYAS", "HOME"))
    ]
    # Grid Engine takes a limit of the job, of which eyas learns by itself.
    words = [
        "qsub",
        "-terse",
        "-S",
        "/bin/sh",
        "-j",
        "y",
        "-o",
        str(log),
        "-l",
        "h_rt=600",
        "-pe",
        "pair",
        "6",
    ]
    batch.ask(*words, "-wd", str(tmp_path), *[word for one in exports for word in ("-v", one)], str(job))
    cluster.begun("t0", "t1", "t2")
    assert [node["slots"] for node in nodes_of(eyas, tmp_path / "run")] == [2, 2, 2]
    ends = re.findall(
        r'"walltime":\{"whole_ns":(\d+),"left_ns":(\d+)',
        log_text(tmp_path / "run" / "dispatcher" / "events.jsonl"),
    )
    assert len(ends) == 3 and all(int(whole) == 600 * 10**9 > int(left) for whole, left in ends), ends
    gate.touch()
    wait_until(lambda: log.exists() and "status " in log.read_text(), "the job's end")
    assert log.read_text().endswith("status 0\n"), log.read_text()
    assert ": 3 done, 0 failed" in log.read_text()
    assert len({cluster.output(f"t{i}") for i in range(3)}) == 3
    batch.empty()
