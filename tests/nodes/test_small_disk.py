"""A disk that is smaller than `--cache`, full, read-only or cleared: tasks end, and people are told."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, wait_until
from weather import Cluster, Disks, payload, small_disks

MIB = 1 << 20


@pytest.fixture
def disks() -> Iterator[Disks]:
    yield from small_disks()


@pytest.fixture
def cluster(disks: Disks, eyas: Eyas, tmp_path: Path) -> Cluster:
    """After `disks`, so that what runs on them has ended when they are unmounted."""
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def warnings(cluster: Cluster) -> list[str]:
    return list(cluster.status()["warnings"])


def read_24_mib(cluster: Cluster, cache: str) -> None:
    """Starts the cluster with one node of that cache, where 24 tasks read a file of 1 MiB each."""
    files = [cluster.file(f"f{i}", MIB, i) for i in range(24)]
    cluster.dispatcher()
    cluster.executor("N1", "--cache", cache)
    cluster.submit(
        [cluster.task(f"t{i}", "cksum < input/0000 > out", [path]) for i, path in enumerate(files)]
    )
    cluster.wait()


def test_a_disk_smaller_than_the_cache(cluster: Cluster, disks: Disks) -> None:
    """80 tasks read 80 MiB in all; the disk has 24, the budget says 256."""
    disks(cluster.node_dir("N1"), 24 * MIB)
    files = [cluster.file(f"f{i}", MIB, i) for i in range(80)]
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "256MiB", slots=2)
    # What it says of the cache is what there is room for.
    wait_until(
        lambda: (cluster.find_node("N1") or {"cache_bytes": 0})["cache_bytes"] < 24 * MIB,
        "the smaller budget in the status",
    )
    assert any("`N1`" in warning and "not for the 256 MiB" in warning for warning in warnings(cluster))
    lines = [cluster.task(f"t{i}", "cat input/* | md5sum > out", [path]) for i, path in enumerate(files)]
    cluster.submit(lines)
    cluster.wait()
    line = cluster.run_line()
    assert (line["n_done"], line["n_failed"]) == (80, 0)
    cluster.expect(
        **{f"t{i}": f"{hashlib.md5(payload(MIB, i)).hexdigest()}  -\n".encode() for i in range(80)}
    )
    # No program has begun without its input, and none ran twice.
    assert sorted(cluster.ran()) == sorted(f"t{i}" for i in range(80))


def test_a_smaller_budget_is_never_said_with_more_bytes_in_it(cluster: Cluster, disks: Disks) -> None:
    disk = disks(cluster.node_dir("N1"), 64 * MIB)
    read_24_mib(cluster, cache="32MiB")
    wait_until(lambda: cluster.counter("N1", "cache_used_bytes") >= 24 * MIB, "a full cache")
    disk.fill(but_bytes=MIB)

    def is_smaller() -> bool:
        line = cluster.find_node("N1")
        assert line is not None
        assert line["status"]["cache_used_bytes"] <= line["cache_bytes"], line
        return int(line["cache_bytes"]) < 24 * MIB

    wait_until(is_smaller, "the smaller budget")


def test_space_that_comes_back_is_used_again(cluster: Cluster, disks: Disks) -> None:
    disk = disks(cluster.node_dir("N1"), 64 * MIB)
    cluster.dispatcher()
    disk.fill(but_bytes=16 * MIB)
    cluster.executor("N1", "--cache", "32MiB")

    def cache_bytes() -> int:
        return int((cluster.find_node("N1") or {"cache_bytes": 0})["cache_bytes"])

    wait_until(lambda: cache_bytes() < 16 * MIB, "the smaller budget")
    disk.free()
    wait_until(lambda: cache_bytes() == 32 * MIB, "the budget that was asked for")
    assert not any("N1" in warning for warning in warnings(cluster))


def test_a_program_that_finds_the_disk_full_runs_again(cluster: Cluster, disks: Disks) -> None:
    """Its failure is the node's. The cache makes room, so it needs no other node."""
    disk = disks(cluster.node_dir("N1"), 32 * MIB)
    read_24_mib(cluster, cache="1GiB")
    # Others fill what the cache has left, but for less than what the program writes.
    disk.fill(but_bytes=2 * MIB)
    cluster.submit([cluster.task("large", "head -c 8388608 /dev/zero > scratch && cksum < scratch > out")])
    cluster.wait()
    assert cluster.run_line(2)["n_failed"] == 0
    if cluster.ran().count("large") > 1:
        wait_until(lambda: "disk_shared" in cluster.events(), "why it ran again in the log")


def test_neighbours_that_fill_the_disk_together(cluster: Cluster, disks: Disks) -> None:
    """Each program alone has room, two at once have not; who finds none has given back its own when somebody looks."""
    disk = disks(cluster.node_dir("N1"), 50 * MIB)
    disk.fill(but_bytes=20 * MIB)
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "4GiB", slots=2)
    line = "head -c 12582912 /dev/zero > scratch && cksum < scratch > out && sleep 0.05 || { rm scratch; exit 1; }"
    # It says no word of the disk.
    quiet = f"{{ {line}; }} 2> /dev/null"
    names = [f"t{i}" for i in range(20)]
    cluster.submit([cluster.task(name, quiet) for name in names])
    cluster.wait()
    sums = {(cluster.home / f"{name}.out").read_bytes() for name in names}
    assert len(sums) == 1, sums


def test_a_program_that_fails_by_itself_fails_soon_on_a_tight_disk(cluster: Cluster, disks: Disks) -> None:
    """It has had the disk to itself before that is believed, and no more tries than that."""
    disk = disks(cluster.node_dir("N1"), 50 * MIB)
    disk.fill(but_bytes=4 * MIB)
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "4GiB", slots=2)
    line = "echo No space left on device >&2; exit 7"
    tasks = [cluster.task("bad", line), *(cluster.task(f"t{i}", "echo > out; sleep 0.1") for i in range(8))]
    cluster.submit(tasks)
    done = cluster.wait(status=1)
    assert "the program ended with status 7" in done.stderr, done
    assert cluster.ran().count("bad") == 3
    assert cluster.run_line()["n_done"] == 8
    said = cluster.run("explain", "bad").stdout
    assert "may have had no room for this program and others at once" in said, said
    assert "Nothing else ran there meanwhile" in said, said


def test_a_program_that_fails_where_there_is_room_fails_at_once(cluster: Cluster, disks: Disks) -> None:
    disks(cluster.node_dir("N1"), 64 * MIB)
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    cluster.submit(
        [
            cluster.task("bad", "head -c 1000000 /dev/zero > scratch; exit 7"),
            cluster.task("good", "echo > out"),
        ]
    )
    cluster.wait(status=1)
    assert cluster.ran().count("bad") == 1


def test_an_input_that_never_fits_says_so(cluster: Cluster, disks: Disks) -> None:
    disks(cluster.node_dir("N1"), 8 * MIB)
    large = cluster.file("large", 16 * MIB, 1)
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "1GiB")
    cluster.submit([cluster.task("t", inputs=[large])])

    def says() -> str:
        return cluster.run("explain", "t", status=None).stdout

    # While it waits for another try, it says that the node rests, and why.
    wait_until(lambda: "rests" in says() or "failed" in says(), "a reason")
    done = cluster.wait(status=1, timeout=180.0)
    assert f"take {16 * MIB} bytes, and the whole disk of the node has {8 * MIB}" in done.stderr, done
    assert cluster.ran() == []


def test_a_node_that_rests_says_why(cluster: Cluster, disks: Disks) -> None:
    disks(cluster.node_dir("N1"), 8 * MIB)
    large = cluster.file("large", 16 * MIB, 1)
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "1GiB")
    cluster.submit(
        [cluster.task("large", inputs=[large], retries=0), cluster.task("small", "echo > out", priority=-1)]
    )

    def is_said() -> bool:
        explained = cluster.run("explain", "large", status=None).stdout
        return "node `N1` rests" in explained and "the whole disk of the node has" in explained

    wait_until(is_said, "the reason in `explain`")
    cluster.wait(status=1, timeout=180.0)
    assert (cluster.home / "small.out").exists()


def test_a_cache_folder_that_somebody_clears(cluster: Cluster) -> None:
    """What lay there is fetched again, and the folders are made anew."""
    files = [cluster.file(f"f{i}", 100_000, i) for i in range(6)]
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task(f"a{i}", inputs=[path]) for i, path in enumerate(files)])
    cluster.wait()
    shutil.rmtree(cluster.node_dir("N1") / "cache")
    shutil.rmtree(cluster.node_dir("N1") / "private")
    cluster.submit([cluster.task(f"b{i}", inputs=[path]) for i, path in enumerate(files)])
    cluster.wait()
    cluster.expect(**{f"b{i}": payload(100_000, i) for i in range(6)})


def test_a_disk_that_becomes_read_only(cluster: Cluster, disks: Disks) -> None:
    """The node rests and says why; when the disk takes writes again it goes on."""
    disks(cluster.node_dir("N1"), 64 * MIB)
    files = [cluster.file(f"f{i}", MIB, i) for i in range(4)]
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "32MiB")
    cluster.submit([cluster.task("a", inputs=files[:1])])
    cluster.wait()
    at = str(cluster.node_dir("N1"))
    # Its own log files are open for writing, so only a remount of the whole mount by force would do: a bind mount of
    # the folder over itself is made read-only in place of it.
    subprocess.run(["mount", "--bind", f"{at}/cache", f"{at}/cache"], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", f"{at}/cache"], check=True)
        cluster.submit([cluster.task(f"b{i}", inputs=[path]) for i, path in enumerate(files)])
        said = "a cache of 0 MiB, not for the 32 MiB"
        wait_until(lambda: any(said in warning for warning in warnings(cluster)), f"the warning {said!r}")
    finally:
        subprocess.run(["umount", "--lazy", f"{at}/cache"], check=True)
    cluster.wait(timeout=180.0)
    assert cluster.run_line(2)["n_failed"] == 0
    cluster.expect(**{f"b{i}": payload(MIB, i) for i in range(4)})
    # The budget that was asked for comes back.
    wait_until(
        lambda: (cluster.find_node("N1") or {"cache_bytes": 0})["cache_bytes"] == 32 * MIB,
        "the whole budget",
    )
