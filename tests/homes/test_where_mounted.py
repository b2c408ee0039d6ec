"""Files on GlusterFS and MooseFS, whose servers are the nodes: tasks go to the hosts that have their files, by real servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from harness import Eyas, wait_until
from mounted import Mounted, gluster, moose
from spaces import Host, hosts
from weather import Cluster, payload

FILE_BYTES = 1_000_000
N_FILES_EACH = 6
# What a cluster and the servers say to each other while these tasks run: heartbeats, questions, answers.
TALK_BYTES = 1_500_000


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Host]]:
    with hosts(tmp_path, f"wm{os.getpid() % 10_000}", "10.94.9", ["g0", "g1", "g2"]) as made:
        yield made


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(gluster, id="gluster", marks=pytest.mark.long),
        pytest.param(moose, id="moosefs"),
    ],
)
def test_tasks_run_on_the_hosts_that_have_their_files(
    eyas: Eyas,
    tmp_path: Path,
    three: list[Host],
    make: Callable[[Path, Host, Sequence[Host]], AbstractContextManager[Mounted]],
) -> None:
    head, *members = three
    folder = tmp_path / "f"
    folder.mkdir()
    with make(folder, head, members) as mounted:
        program = eyas.path
        eyas.path = mounted.on(head.name, program, tmp_path)
        cluster = Cluster(eyas, tmp_path / "c", tmp_path / "home")
        # The system spreads files by chance; with as many on each host nobody has done before the other.
        names: dict[str, list[str]] = {host.name: [] for host in members}
        for n in range(100):
            name = f"{n} b\u00e9.<dat>"
            mounted.write(head.name, name, payload(FILE_BYTES, n))
            names[mounted.host_of(name)].append(name)
            if all(len(found) >= N_FILES_EACH for found in names.values()):
                break
        wanted = [name for found in names.values() for name in found[:N_FILES_EACH]]
        assert len(wanted) == len(members) * N_FILES_EACH, names
        started = [cluster.dispatcher("--listen", f"{head.address}:0")]
        for host in members:
            words: list[str | Path] = ["--join", cluster.join, "--dir", cluster.node_dir(host.name)]
            words += ["--data-listen", f"{host.address}:0", "--slots", "1"]
            started.append(eyas.start("executor", *words, program=mounted.on(host.name, program, tmp_path)))
            wait_until(lambda host=host: cluster.state_of(host.name) == "connected", host.name)  # type: ignore[misc]
        suite = mounted.on(head.name, program.with_name("eyas-lab"), tmp_path)
        said = eyas.start("homes", mounted.point / "base", program=suite).wait(timeout=120).stdout
        assert "keeps every promise" in said
        before = sum(host.received_bytes() for host in members)
        # Long enough that an executor which has done with its own files would have time for the others.
        tasks = [
            cluster.task(f"t{n}", "sleep 0.2; cat input/* > out", [mounted.point / name])
            for n, name in enumerate(wanted)
        ]
        cluster.submit(tasks)
        cluster.wait()
        crossed = sum(host.received_bytes() for host in members) - before
        for part in reversed(started):
            part.stop()
        for n, name in enumerate(wanted):
            assert cluster.output(f"t{n}") == payload(FILE_BYTES, int(name.split()[0]))
        ran_on = dict(line.split() for line in cluster.ran_log.read_text().splitlines())
        n_away = sum(ran_on[f"t{n}"] != mounted.host_of(name) for n, name in enumerate(wanted))
        # By chance it would be half of them. The last tasks may go to whoever is idle, and only their files cross the network.
        assert n_away <= 3, (ran_on, names)
        assert crossed <= n_away * FILE_BYTES * 1.1 + TALK_BYTES, (crossed, n_away)
