"""Promise 6 from its other side: who is not let in keeps nobody else out, and breaks nothing.

All parts of these clusters may have few descriptors, as under `ulimit -n`, and a crowd of strangers holds more connections
to one of them than it has descriptors.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from crowd import Crowd, free_port
from harness import PATIENCE_S, ROOT, Eyas, wait_until
from weather import Cluster, kill_now, payload

# What the parts may have, and the strangers: more than twice as many.
DESCRIPTORS = 320
STRANGERS = 800
N = 30


@pytest.fixture(scope="module")
def eyas_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program under test with few descriptors; they cannot be raised."""
    real = Path(os.environ.get("EYAS_BIN") or ROOT / ".venv" / "bin" / "eyas").absolute()
    wrapper = tmp_path_factory.mktemp("few") / "eyas"
    wrapper.write_text(f'#!/bin/sh\nulimit -n {DESCRIPTORS}\nexec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def between_peers(cluster: Cluster) -> list[dict[str, Any]]:
    """Tasks that make files which stay on the nodes, and tasks that each read three of them: from the other node, too."""
    makers = [
        {
            "id": f"make{i}",
            "command": f"yes {i} | head -c 20000 > f",
            "outputs": {"f": f"run:part/{i}"},
        }
        for i in range(N)
    ]
    readers = [
        {
            "id": f"read{i}",
            "command": "cat a b c | md5sum > out",
            "inputs": {name: f"run:part/{(i * 7 + k * 11) % N}" for k, name in enumerate("abc")},
            "outputs": {"out": str(cluster.home / f"read{i}.out")},
        }
        for i in range(N)
    ]
    return makers + readers


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("drips", [False, True], ids=["idle", "drip"])
@pytest.mark.parametrize("at", ["dispatcher", "executor"])
def test_a_crowd_at_a_port_fails_no_task(cluster: Cluster, at: str, drips: bool) -> None:
    ports = {"dispatcher": free_port(), "executor": free_port()}
    dispatcher = cluster.dispatcher("--listen", f"127.0.0.1:{ports['dispatcher']}")
    first = cluster.executor("N1", "--data-listen", f"127.0.0.1:{ports['executor']}", slots=2)
    pid = {"dispatcher": dispatcher.pid, "executor": first.pid}[at]
    with Crowd(ports[at], STRANGERS, drips) as crowd:
        # The kernel takes some more into its queue; those that were accepted make room for others.
        wait_until(lambda: crowd.n_closed > DESCRIPTORS, "the crowd to be more than the part has descriptors")
        # Who joins while they are there is let in.
        cluster.executor("N2", slots=2)
        cluster.submit(between_peers(cluster))
        cluster.wait()
        line = cluster.run_line()
        assert (line["n_done"], line["n_failed"]) == (2 * N, 0), line
        assert {node["state"] for node in cluster.status()["executors"]} == {"connected"}
        assert descriptors_of(pid) < DESCRIPTORS // 2 + STRANGERS // 10, "strangers hold descriptors"
    assert "was changed" not in cluster.said()
    assert "Too many open files" not in cluster.events()
    assert len(list(cluster.home.glob("read*.out"))) == N
    assert f"only {DESCRIPTORS} files" in dispatcher.stderr and "ulimit -Hn" in dispatcher.stderr


@pytest.mark.parametrize("at", ["dispatcher", "executor"])
def test_a_greeting_has_an_end_however_it_is_spoken(cluster: Cluster, at: str) -> None:
    """One byte at a time is no way to stay."""
    ports = {"dispatcher": free_port(), "executor": free_port()}
    cluster.dispatcher("--listen", f"127.0.0.1:{ports['dispatcher']}")
    cluster.executor("N1", "--data-listen", f"127.0.0.1:{ports['executor']}")
    # The start of a true greeting, so that it is not refused for what it says.
    spoken = {"dispatcher": b"\x16\x03\x01\x02\x00" + bytes(512), "executor": b"eyasdata" + bytes(40)}[at]
    with socket.create_connection(("127.0.0.1", ports[at])) as one:
        deadline = time.monotonic() + PATIENCE_S
        for byte in spoken:
            try:
                one.send(bytes([byte]))
                one.settimeout(0.5)
                if not one.recv(100):
                    return
            except TimeoutError:
                assert time.monotonic() < deadline, "still listening"
            except OSError:
                return
    pytest.fail("the whole of it was listened to")


def test_a_node_out_of_descriptors_drops_no_good_copy(cluster: Cluster) -> None:
    """What cannot be opened for want of descriptors is not changed, and is there again when there are some."""
    cluster.dispatcher()
    node = cluster.executor("N1", slots=2)
    files = [cluster.file(f"f{i}", 50_000, i) for i in range(10)]
    lines = [cluster.task(f"a{i}", inputs=[f]) for i, f in enumerate(files)]
    cluster.submit(lines)
    cluster.wait()
    # From outside: nothing can be opened any more.
    import resource

    used = descriptors_of(node.pid)
    before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (max(4, used // 2), before[1]))
    cluster.submit([cluster.task(f"b{i}", inputs=[f]) for i, f in enumerate(files)])
    wait_until(lambda: "Too many open files" in cluster.events(), "the node to notice")
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)
    cluster.wait()
    cluster.expect(**{f"b{i}": payload(50_000, i) for i in range(10)})
    assert "was changed" not in cluster.said() and "was changed" not in cluster.events()
    assert "replica_dropped" not in cluster.events()
    dropped = cluster.entries()
    changed = [line["in"]["replicas_changed"] for line in dropped if "replicas_changed" in line.get("in", {})]
    assert not any(change["dropped"] for change in changed), "copies were dropped"


def test_programs_have_the_limit_that_they_would_have_without_eyas(
    cluster: Cluster, eyas: Eyas, tmp_path: Path
) -> None:
    """The executor raises its own soft limit, and gives programs the one that it was started with."""
    real = Path(os.environ.get("EYAS_BIN") or ROOT / ".venv" / "bin" / "eyas").absolute()
    wrapper = tmp_path / "eyas-soft"
    wrapper.write_text(f'#!/bin/sh\nulimit -Sn 100; exec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    eyas.path = wrapper
    cluster.dispatcher()
    node = cluster.executor("N1")
    limits = Path(f"/proc/{node.pid}/limits").read_text()
    line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    assert soft == hard or int(soft) >= 1 << 20
    cluster.submit([cluster.task("t", "ulimit -Sn > out")])
    cluster.wait()
    cluster.expect(t=b"100\n")
    kill_now(node)
