"""All that tasks print reaches a pipe or a file, whatever is killed on the way, through processes that stay small."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, peak_mib, wait_until
from weather import Cluster, Disk, Disks, kill_now, small_disks

# Bytes that one task prints: more than passes in the time that a test needs to see them pass.
N_BYTES = 60_000_000
SPOOLS_MIB_MAX = 60


@pytest.fixture
def disks() -> Iterator[Disks]:
    yield from small_disks()


@pytest.fixture
def cluster(disks: Disks, eyas: Eyas, tmp_path: Path) -> Cluster:
    """After `disks`, so that what runs on them has ended when they are unmounted."""
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def kept(cluster: Cluster) -> int:
    """Bytes of what tasks printed that the dispatcher has now."""
    return sum(path.stat().st_size for path in (cluster.dir / "printed").glob("*"))


def shows_all(stdout: Path, n_tasks: int) -> bool:
    with stdout.open("rb") as shown:
        parts = [shown.read(N_BYTES) for _ in range(n_tasks)]
        return parts == [bytes([ord("a") + i]) * N_BYTES for i in range(n_tasks)] and not shown.read(1)


@pytest.mark.parametrize("killed", ["nothing", "dispatcher", "executor"])
def test_what_tasks_print_is_shown_whole(cluster: Cluster, killed: str) -> None:
    """Nothing is lost or shown twice: the executor and the client go on where they were, and a task whose node is gone runs again."""
    dispatcher = cluster.dispatcher()
    cluster.executor("N1", slots=2)
    line = f"head -c {N_BYTES} /dev/zero | tr '\\0' $(printf 'abcd' | cut -c $((EYAS_TASK + 1)))"
    shown = cluster.eyas.start("map", "--join", cluster.join, "--range", "0..4", "--shell", "--", line)
    wait_until(lambda: kept(cluster) > N_BYTES // 10, "a part of what is printed", alive=shown)
    if killed == "dispatcher":
        kill_now(dispatcher)
        dispatcher = cluster.dispatcher()
    if killed == "executor":
        os.killpg(cluster.executors["N1"].pid, signal.SIGKILL)
        cluster.executor("N2", slots=2)
    shown.wait(timeout=120)
    assert shows_all(shown.stdout_path, 4)
    assert kept(cluster) == 0, "what was shown stays at the dispatcher"
    if killed == "nothing":
        peaks = [peak_mib(part.pid) for part in (dispatcher, cluster.executors["N1"])]
        assert max(peaks) < SPOOLS_MIB_MAX, peaks


def test_a_limit_of_file_sizes_ends_no_process(eyas: Eyas, tmp_path: Path) -> None:
    """With `ulimit -f` a file that grows too large is an error of who writes it; what is not kept for that reason is said."""
    limited = f"ulimit -f 2000; exec {eyas.path} map --range 0..2 -- seq 300000"
    done = subprocess.run(
        ["sh", "-c", limited], env=eyas.env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "2 done, 0 failed" in done.stderr) == (4, True), done.stderr
    assert "standard output is not whole" in done.stderr


def free_mib(disk: Disk) -> float:
    found = os.statvfs(disk.at)
    return found.f_bavail * found.f_frsize / 2**20


@pytest.mark.parametrize("where", ["node", "dispatcher"])
def test_what_tasks_print_leaves_room_on_the_disk(cluster: Cluster, disks: Disks, where: str) -> None:
    """A quarter of a small disk stays free. What is not kept is said, and everything else goes on."""
    disk = disks(cluster.node_dir("N1") if where == "node" else cluster.dir, 64 << 20)
    cluster.dispatcher()
    cluster.executor("N1")
    gate, begun = cluster.folder / "gate", cluster.folder / "begun"
    line = f"touch {begun}; while [ ! -e {gate} ]; do sleep 0.02; done; head -c {2 * N_BYTES} /dev/zero"
    shown = cluster.eyas.start("map", "--join", cluster.join, "--range", "0..3", "--shell", "--", line)
    wait_until(begun.exists, "the first program", alive=shown)
    # Nobody reads what comes to the dispatcher.
    shown.signal(signal.SIGSTOP)
    gate.touch()
    lowest = free_mib(disk)

    def is_over() -> bool:
        nonlocal lowest
        lowest = min(lowest, free_mib(disk))
        return bool(cluster.run_line()["ended"])

    wait_until(is_over, "the end of the run")
    assert lowest > 15
    assert cluster.run_line()["n_done"] == 3
    shown.signal(signal.SIGCONT)
    done = shown.wait(status=4)
    assert "standard output is not whole" in done.stderr
    assert kept(cluster) == 0
    # The disk's other uses go on.
    cluster.submit([cluster.task("next", "head -c 1000000 /dev/zero > out")])
    cluster.wait()
    cluster.expect(next=bytes(1_000_000))
