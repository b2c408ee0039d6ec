"""A real Slurm whose nodes, and the head, are hosts of their own: files go from host to host, and hosts lose their network."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Eyas, run_guide, wait_until
from slurm import Slurm, slurm_of_hosts
from test_weather_slurm import LEASE_S, Running, processes
from weather import Cluster

FORWARD = """
import socket, sys, threading

def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

at, to = sys.argv[1:]
door = socket.create_server((at.split(":")[0], int(at.split(":")[1])))
while True:
    one, _ = door.accept()
    try:
        other = socket.create_connection((to.split(":")[0], int(to.split(":")[1])))
    except OSError:
        one.close()
        continue
    for pair in ((one, other), (other, one)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


@pytest.fixture(scope="module")
def batch() -> Iterator[Slurm]:
    # A node that does not answer is given up soon.
    more = "SlurmdTimeout=10\nMessageTimeout=5\nUnkillableStepTimeout=10\nPartitionName=cpu Nodes=ALL"
    with slurm_of_hosts(more) as made:
        yield made


@pytest.fixture
def eyas(batch: Slurm, eyas_path: Path, tmp_path: Path) -> Iterator[Eyas]:
    """The program, on the head."""
    program = tmp_path / "eyas"
    program.write_text(f'#!/bin/sh\nexec {batch.hosts[0].enter} {shlex.quote(str(eyas_path))} "$@"\n')
    program.chmod(0o755)
    made = Eyas(program, tmp_path / ".eyas-test", uuid.uuid4().hex)
    made.env |= batch.env
    yield made
    made.end()


@pytest.fixture
def cluster(batch: Slurm, eyas: Eyas, tmp_path: Path) -> Iterator[Cluster]:
    yield Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    for host in batch.hosts:
        host.set_link("up")
    batch.clear()
    batch.wait_for_nodes()


class Far(Running):
    """`eyas run` on the head, whose nodes find it by its name."""

    def __init__(self, cluster: Cluster, tasks: list[dict[str, Any]], *given: str) -> None:
        super().__init__(cluster, tasks, *given, "--listen", "0.0.0.0:0")


def host_of(cluster: Cluster, task: str) -> str:
    """The host that the task's program runs on now, or ran on last."""
    return (cluster.folder / f"{task}.host").read_text().split()[-1]


def on_its_host(cluster: Cluster, name: str, line: str, **more: Any) -> dict[str, Any]:
    """A task that says which host it is on when it begins."""
    note = f"hostname >> {cluster.folder / name}.host"
    return cluster.task(name, line, **more) | {
        "command": f"{note}; {cluster.task(name, line, **more)['command']}"
    }


def test_files_go_from_host_to_host(batch: Slurm, cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    # Four makers at once are on four hosts; each reader needs what two hosts have.
    makers = [
        {
            "id": f"m{i}",
            "command": f"hostname > h; head -c 300000 /dev/zero | tr '\\0' {i} > f; touch {tmp_path}/m{i}; "
            f"while [ ! -e {gate} ]; do sleep 0.02; done",
            "outputs": {"f": f"run:f{i}", "h": str(tmp_path / f"h{i}")},
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
    # Each job has a host of its own.
    words = ["--nodes", "0..4", "--provisioning", "all-at-once", "--options", "exclusive=true"]
    running = Far(cluster, makers + readers, *words)
    wait_until(
        lambda: all((tmp_path / f"m{i}").exists() for i in range(4)), "four hosts", alive=running.process
    )
    gate.touch()
    done = running.finish()
    assert "8 done, 0 failed" in done.stderr, done
    assert sorted((tmp_path / f"h{i}").read_text() for i in range(4)) == ["c1\n", "c2\n", "c3\n", "c4\n"]
    for i in range(4):
        cluster.expect(**{f"r{i}": str(i).encode() * 300_000 + str((i + 1) % 4).encode() * 300_000})
    assert re.search(r"inputs: .*, [1-9][\d.]* [KM]iB from peers", done.stderr), done
    batch.empty()


def test_a_job_of_two_nodes_has_an_executor_on_each_host(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = [cluster.task(f"t{i}", "echo $(hostname) $SLURM_JOB_ID > out", gate=gate) for i in range(2)]
    words = ["--nodes", "0..2", "--nodes-per-job", "2", "--provisioning", "all-at-once"]
    running = Far(cluster, tasks, *words)
    cluster.begun("t0", "t1")
    env = {"EYAS_JOIN": str(running.dir / "dispatcher" / "join.json")}
    status = json.loads(cluster.eyas.run("status", "--json", env=env).stdout)
    names = sorted(line["name"] for line in status["executors"])
    assert re.fullmatch(r"eyas-\w+-1\.c\d eyas-\w+-1\.c\d", " ".join(names)), names
    gate.touch()
    running.finish()
    (host0, job0), (host1, job1) = (cluster.output(f"t{i}").decode().split() for i in range(2))
    assert host0 != host1 and job0 == job1
    batch.empty()


def test_a_node_that_is_cut_off_for_less_than_its_lease_comes_back_with_its_work(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = [on_its_host(cluster, "t", "echo x > out", gate=gate, retries=0)]
    running = Far(cluster, tasks, "--nodes", "0..1", "--lease", "60s")
    cluster.begun("t")
    host = batch.host_of(host_of(cluster, "t"))
    running.checker.look()
    host.set_link("down")
    time.sleep(5)
    host.set_link("up")
    gate.touch()
    done = running.finish()
    assert "1 done, 0 failed" in done.stderr, done
    assert cluster.ran() == ["t"], "it went on where it was"
    batch.empty()


def test_a_node_that_is_cut_off_for_good_is_replaced_and_ends_itself(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    # One node at most: the other one may come only when the first one's job is over.
    tasks = [on_its_host(cluster, "t", "echo x > out", gate=gate, retries=0)]
    running = Far(cluster, tasks, "--nodes", "0..1", "--slots", "4", "--lease", f"{LEASE_S}s")
    cluster.begun("t")
    first = host_of(cluster, "t")
    (executor,) = processes(cluster.eyas, "executor")
    running.checker.look()
    batch.host_of(first).set_link("down")
    wait_until(
        lambda: executor not in processes(cluster.eyas, "executor"), "the executor to end with its lease"
    )
    wait_until(lambda: host_of(cluster, "t") != first, "the task on another host", 100, running.process)
    gate.touch()
    done = running.finish()
    assert "1 done, 0 failed" in done.stderr, done
    assert len(cluster.ran()) == 2
    cluster.expect(t=b"x\n")


def test_nodes_reach_the_head_by_another_address_than_it_has_itself(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    """A machine between passes connections on, as that of a site does, and the head has no way to its outer address."""
    import subprocess

    outer, relay = "10.79.0.1", batch.hosts[4]
    subprocess.run(["ip", "-n", relay.space, "addr", "add", f"{outer}/32", "dev", "eth0"], check=True)
    for host in batch.hosts[1:4]:
        subprocess.run(["ip", "-n", host.space, "route", "add", outer, "via", relay.address], check=True)
    program = tmp_path / "forward.py"
    program.write_text(FORWARD)
    words = [str(relay.enter), "python3", str(program), f"{outer}:7711", f"{batch.hosts[0].address}:7712"]
    forward = subprocess.Popen(words)
    try:
        tasks = [cluster.task(f"t{i}", "hostname > out") for i in range(4)]
        running = Running(
            cluster, tasks, "--nodes", "0..2", "--listen", "0.0.0.0:7712", "--advertise", f"{outer}:7711",
            "--options", 'scheduler_options="#SBATCH --exclude=c4"',
        )  # fmt: skip
        done = running.finish()
        assert "4 done, 0 failed" in done.stderr, done
    finally:
        forward.kill()
        forward.wait()
        subprocess.run(["ip", "-n", relay.space, "addr", "del", f"{outer}/32", "dev", "eth0"], check=True)
        for host in batch.hosts[1:4]:
            subprocess.run(["ip", "-n", host.space, "route", "del", outer], check=True)
    batch.empty()


def test_an_address_that_nodes_cannot_reach_is_said_by_them(batch: Slurm, cluster: Cluster) -> None:
    words = ["--provider", "slurm", "--walltime", "10m", "--slots", "1", "--list-every", "1s"]
    words += ["--advertise", "10.78.0.99:7700"]
    done = cluster.eyas.run("provider", "check", *words, "--wait", "60s", status=3)
    said = "error: the dispatcher at 10.78.0.99:7700 cannot be reached from the node: "
    assert said in done.stderr and "hint: --advertise HOST:PORT" in done.stderr, done
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = cluster.eyas.run("run", tasks, *words, "--nodes", "0..1", status=3)
    said = r"it said: error: no dispatcher answered for 15 s; the last try: cannot reach the dispatcher at 10\.78\.0\.99:7700: "
    assert re.search(said, done.stderr), done
    assert "hint: --advertise HOST:PORT" in done.stderr, done
    batch.empty()


@pytest.mark.parametrize("page", ["slurm", "hosts"])
def test_what_a_guide_shows_is_what_is_printed_on_a_login_node(
    batch: Slurm, cluster: Cluster, eyas_path: Path, tmp_path: Path, page: str
) -> None:
    """The page's module is none that this machine has."""
    text = (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8")
    path = tmp_path / f"{page}.md"
    path.write_text(text.replace('"module load blast"', '"true"'))
    done = run_guide(path, "slurm", eyas_path, {**os.environ, **batch.env}, [batch.hosts[0].enter])
    assert done.returncode == 0, done.stdout + done.stderr
    batch.empty()
