"""`eyas.Cluster(provider=...)`: clusters of this process whose nodes come from a batch system, from commands, or from hosts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eyas
import numpy as np
import pytest
from batch import START, Batch
from harness import ROOT, wait_until
from slurm import Slurm, slurm


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EYAS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "shared"))
    return tmp_path / "shared" / "eyas"


@pytest.fixture(scope="module")
def system() -> Iterator[Slurm]:
    with slurm() as made:
        yield made


@pytest.fixture
def queue(system: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """Whatever happens, no job stays in the queue."""
    for name, value in system.env.items():
        monkeypatch.setenv(name, value)
    yield system
    system.clear()


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path / "batch")


def commands(batch: Batch) -> Any:
    """The arguments for nodes of a batch system in small."""
    words = batch.options()
    given = {
        name.lstrip("-").replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }
    # On one machine nodes reach the dispatcher on loopback.
    return {**given, "listen": "127.0.0.1:0", "slots": 1}


def job_of(n: int, gate: Path) -> tuple[str, int]:
    while not gate.exists():
        time.sleep(0.05)
    return os.environ["SLURM_JOB_NAME"], n


def n_connected(c: eyas.Client) -> int:
    return sum(node["state"] == "connected" for node in c.status()["executors"])


# What a cluster of Slurm is in a program that is killed.
KILLED = """
import sys, time, eyas
c = eyas.Cluster(provider="slurm", nodes=(1, 2), slots=1, listen="127.0.0.1:0", list_every=1, lease=3, walltime="1h")
c.submit(abs, -1).result()
calls = [c.submit(time.sleep, 600) for _ in range(2)]
print("works", flush=True)
time.sleep(600)
"""


def test_a_cluster_of_slurm_grows_for_work_shrinks_after_it_and_ends_its_jobs(
    queue: Slurm, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with eyas.Cluster(
        provider="slurm",
        nodes=(0, 2),
        slots=1,
        listen="127.0.0.1:0",
        list_every=1,
        idle_release=1,
        walltime="1h",
        partition="debug",
    ) as c:
        assert not queue.queue(), "nobody asks for nodes without work"
        calls = c.map(job_of, range(20), context=gate)
        wait_until(lambda: n_connected(c) == 2, "two nodes")
        gate.touch()
        found = list(calls)
        assert [n for _, n in found] == list(range(20))
        names = {name for name, _ in found}
        assert len(names) == 2 and all(name.startswith("eyas-") for name in names), names
        wait_until(lambda: n_connected(c) == 0, "idle nodes to go")
        queue.empty()
        assert c.submit(job_of, 7, gate).result(120)[1] == 7, "and one comes again"
    queue.empty()


def test_what_the_guide_shows_is_what_is_printed(queue: Slurm, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "slurm.md").read_text()
    shown = re.search(
        r"<!-- file primes.py -->\n```python\n(.*?)```.*?\$ python3 primes.py\n(.*?)```", page, re.DOTALL
    )
    assert shown, "the guide shows a program"
    # The nodes share one host, so they reach its dispatcher on loopback.
    text = shown[1].replace('provider="slurm"', 'provider="slurm", slots=1, listen="127.0.0.1:0"')
    (tmp_path / "primes.py").write_text(text)
    command = [sys.executable, "primes.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, shown[2]), done
    queue.empty()


def test_a_python_that_is_killed_leaves_no_job(queue: Slurm) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None and program.stdout.readline() == "works\n"
            assert queue.queue()
        finally:
            program.kill()
    queue.empty(120)


def test_nodes_of_commands_have_large_values_and_contexts_and_end_with_the_cluster(
    batch: Batch, state: Path
) -> None:
    array = np.arange(50_000.0)
    with eyas.Cluster(nodes=(0, 2), idle_release=1, **commands(batch)) as c:
        assert n_connected(c) == 0
        model = c.context(np.sum, array)

        def use(n: int, total: float) -> Any:
            return np.full(20_000, total + n)

        found = [part[0] for part in c.map(use, range(4), context=model)]
        assert found == [array.sum() + n for n in range(4)]
        assert 1 <= len(batch.calls(START)) <= 2
        wait_until(lambda: n_connected(c) == 0 and not batch.running(), "idle nodes to go")
    assert not batch.running()
    assert not list(state.rglob("*")), "keys, scripts and values are gone"


def test_calls_end_where_no_node_can_ever_come(batch: Batch) -> None:
    batch.wish("refuse", "no such account")
    with eyas.Cluster(nodes=(0, 1), **commands(batch)) as c:
        call = c.submit(abs, -1)
        with pytest.raises(eyas.ClusterLost, match="no such account"):
            call.result(120)
        with pytest.raises(eyas.ClusterLost):
            c.submit(abs, -1)


def test_close_names_what_cannot_be_stopped(batch: Batch) -> None:
    c = eyas.Cluster(nodes=(1, 1), lease=3, **commands(batch))
    wait_until(lambda: n_connected(c) == 1, "the node")
    stuck = batch.wish("stuck", "no route to the controller")
    # It would end by itself when it hears that the cluster has ended, and nothing would be left.
    (block,) = batch.running()
    batch.signal(block, signal.SIGSTOP)
    with pytest.warns(RuntimeWarning, match="could not be ended and is left: .* no route to the controller"):
        c.close()
    stuck.unlink()
    batch.signal(block, signal.SIGCONT)
    wait_until(lambda: not batch.running(), "the node to end with its lease")


def test_a_provider_that_is_killed_is_started_again_and_its_nodes_are_taken_over(batch: Batch) -> None:
    with eyas.Cluster(nodes=(1, 1), **commands(batch)) as c:
        assert c.submit(abs, -1).result(60) == 1
        os.kill(c.processes()["provider"], signal.SIGKILL)
        wait_until(lambda: c.status()["provisioner"] is None, "the provider to be missed")
        wait_until(lambda: c.status()["provisioner"] is not None, "another provider")
        assert c.submit(abs, -2).result(60) == 2
        assert len(batch.calls(START)) == 1
    assert not batch.running()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"provider": "ssh"}, "provider ssh needs hosts"),
        ({"provider": "slurms"}, "provider is 'slurms': there is no such provider; choose one of local,"),
        ({"partition": "debug"}, "partition has nothing to say to provider local"),
        ({"provider": "command", "list": "x"}, "provider command needs start"),
        ({"slots": 0}, "slots is 0: give a whole number from 1 to 4096"),
        ({"nodes": (3, 1)}, "nodes is .3, 1.: at least 3 nodes and at most 1 cannot both be"),
        ({"cache": "much"}, "cache is 'much': "),
        ({"lease": 0.1}, "lease is 0.1: write a time of at least 1s"),
        ({"lease": "soon"}, "lease is 'soon': "),
        ({"resource": {"licence": 0}}, "resource is .'licence': 0.: the number after"),
        (
            {"nodes": 2, "idle_release": 3},
            "provisioning and idle_release have nothing to decide with nodes 2",
        ),
        ({"rubbish": 1}, "eyas.Cluster has no argument `rubbish`"),
        ({"nodes": 1.5}, "nodes is 1.5: give a whole number, or two: the fewest and the most"),
        ({"profile": "slurm"}, "eyas.Cluster has no argument `profile`"),
        ({"dir": b"x"}, "dir is a bytes: give a text"),
    ],
)
def test_what_is_wrong_names_the_argument(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(eyas.EyasError, match=said) as raised:
        eyas.Cluster(**arguments)
    assert "--" not in raised.value.message
    assert not (tmp_path / "state" / "runs").exists() or not list((tmp_path / "state" / "runs").iterdir())


def test_the_arguments_that_are_named_are_those_that_are_read() -> None:
    source = (ROOT / "crates" / "app" / "py" / "src" / "options.rs").read_text()
    read = set(re.findall(r'^        "(\w+)" => ', source, re.MULTILINE))
    assert read == {*eyas.ClusterOptions.__annotations__, "nodes", "slots", "cache"}
    words = re.findall(r"^    ([\w, ]+) : ", eyas.ClusterOptions.__doc__ or "", re.MULTILINE)
    named = {name for line in words for name in line.split(", ")}
    assert named == set(eyas.ClusterOptions.__annotations__), "and the text names them"


def test_hosts_are_all_used_and_nothing_of_them_is_left(state: Path, tmp_path: Path) -> None:
    """The way to a host is this machine's own shell: what counts is that all hosts are used where nobody says how many."""
    way = tmp_path / "way"
    way.write_text(
        '#!/bin/sh\nwhile :; do case $1 in -o) shift 2;; -*) shift;; *) break;; esac; done\nshift\nexec sh -c "$*"\n'
    )
    way.chmod(0o755)
    (tmp_path / "hosts").write_text("alpha\nbeta\n")
    with eyas.Cluster(
        provider="ssh", hosts=tmp_path / "hosts", ssh=str(way), slots=1, listen="127.0.0.1:0"
    ) as c:
        wait_until(lambda: n_connected(c) == 2, "a node on each host")
        assert [part.nbytes for part in c.map(np.ones, [20_000, 30_000])] == [160_000, 240_000]
    assert not list(state.rglob("*"))
