"""Full disks, caches that are too small, and bytes that change under them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, wait_until
from weather import Cluster, Disks, kill_now, payload, small_disks

MIB = 1 << 20


@pytest.fixture
def disks() -> Iterator[Disks]:
    yield from small_disks()


@pytest.fixture
def cluster(disks: Disks, eyas: Eyas, tmp_path: Path) -> Cluster:
    """After `disks`, so that what runs on them has ended when they are unmounted."""
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def cached_files(cluster: Cluster, node: str) -> list[Path]:
    return sorted(p for p in (cluster.node_dir(node) / "cache" / "objects").rglob("*") if p.is_file())


def cached_copy(cluster: Cluster, node: str, content: bytes) -> Path:
    """The file in a node's cache that has these bytes."""
    found = [path for path in cached_files(cluster, node) if path.read_bytes() == content]
    assert len(found) == 1, f"{node} has {len(found)} copies"
    return found[0]


def flip(path: Path, silently: bool = False) -> None:
    """One bit in the middle; silently: as a failing disk does it, without a trace in the file's times."""
    stamp = path.stat()
    with path.open("r+b") as file:
        file.seek(stamp.st_size // 2)
        byte = file.read(1)[0]
        file.seek(stamp.st_size // 2)
        file.write(bytes([byte ^ 1]))
    if silently:
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


# ---------------------------------------------------------------- full disks


def test_a_full_disk_under_the_cache(cluster: Cluster, disks: Disks) -> None:
    """The budget promises more than the disk has: the only node makes do with what there is."""
    disk = disks(cluster.node_dir("N1") / "cache", 32 * MIB)
    files = [cluster.file(f"f{i}", MIB, i) for i in range(8)]
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "1GiB", slots=2)
    disk.fill(but_bytes=MIB + MIB // 2)
    cluster.submit(
        [cluster.task(f"t{i}", "cat input/* | md5sum > out", [path]) for i, path in enumerate(files)]
    )
    # The disk stays as it is: one input has room, then the next.
    cluster.wait()
    assert cluster.run_line()["n_failed"] == 0, "no task has failed for it"
    cluster.expect(**{f"t{i}": f"{hashlib.md5(payload(MIB, i)).hexdigest()}  -\n".encode() for i in range(8)})
    assert sorted(cluster.ran()) == [f"t{i}" for i in range(8)], "no program has begun without its input"


def test_a_full_disk_under_one_cache_of_two(cluster: Cluster, disks: Disks) -> None:
    """The node without space is no trap: what it cannot do, the other one does."""
    disk = disks(cluster.node_dir("N1") / "cache", 4 * MIB)
    files = [cluster.file(f"f{i}", MIB, i) for i in range(10)]
    cluster.dispatcher()
    cluster.executor("N1", slots=1)
    disk.fill(but_bytes=64 << 10)
    cluster.executor("N2", slots=1)
    cluster.submit([cluster.task(f"t{i}", inputs=[path]) for i, path in enumerate(files)])
    cluster.wait()
    cluster.expect(**{f"t{i}": payload(MIB, i) for i in range(10)})


def test_a_full_disk_costs_nothing_that_tasks_print(cluster: Cluster, disks: Disks) -> None:
    """What tasks print waits for room as the journal does, and their ends wait with it."""
    disk = disks(cluster.dir, 16 * MIB)
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    disk.fill(but_bytes=4 * MIB)
    words = "many words " * 300
    mapping = cluster.eyas.start("map", "--join", cluster.join, "--range", "0..2000", "--", "echo", words)
    mapping.wait_for_text("No space left on device")
    disk.free()
    assert mapping.wait(120).stdout.splitlines() == [words] * 2000


def test_a_batch_system_ends_a_run_whose_disk_is_full(disks: Disks, eyas: Eyas, tmp_path: Path) -> None:
    """SIGTERM is followed by SIGKILL after half a minute, so what cannot be ended in order is left before that."""
    disk = disks(tmp_path / "state", 16 * MIB)
    began, gate = tmp_path / "began", tmp_path / "gate"
    line = f"touch '{began}'; until test -e '{gate}'; do sleep 0.1; done; echo much"
    mapping = eyas.start("map", "--range", "0..4", "--shell", "--", line, env={"EYAS_STATE": str(disk.at)})
    wait_until(began.exists, "the first task", alive=mapping)
    disk.fill()
    gate.touch()
    mapping.wait_for_text("the journal waits: cannot write")
    mapping.signal(signal.SIGTERM)
    done = mapping.wait(status=130)
    assert "not all tasks could be ended within 20 s: leaving" in done.stderr, done
    wait_until(lambda: not list(eyas.left_behind()), "the end of all processes")


def test_a_full_disk_under_the_sandboxes(cluster: Cluster, disks: Disks) -> None:
    """What a program cannot write is the program's failure, with its own words; what eyas cannot write is the node's."""
    disk = disks(cluster.node_dir("N1") / "sandbox", 3 * MIB)
    data = cluster.file("a", 100_000, 1)
    cluster.dispatcher()
    cluster.executor("N1", slots=1)
    big = cluster.task("big", "head -c 20000000 /dev/zero > out || exit 9")
    cluster.submit([big, cluster.task("small", inputs=[data])])
    cluster.wait(status=1)
    cluster.expect(small=payload(100_000, 1))
    assert not (cluster.home / "big.out").exists()
    (name, message), *_ = cluster.run_line()["failures"]
    assert name == "big" and "No space left on device" in message, message
    # Another file system than the cache: no links are possible, and that is said once.
    assert cluster.said().count("hard links are refused") == 1
    disk.fill()
    cluster.submit([cluster.task("none", inputs=[data])])
    cluster.run("wait", "--run", "2", status=1)
    (name, message), *_ = cluster.run_line(2)["failures"]
    assert name == "none" and "No space left on device" in message, message
    disk.free()
    cluster.submit([cluster.task("again", inputs=[data])])
    cluster.run("wait", "--run", "3")
    cluster.expect(again=payload(100_000, 1))


def test_a_full_disk_under_the_journal(cluster: Cluster, disks: Disks, tmp_path: Path) -> None:
    """Nothing is accepted and no task is reported as ended until the journal has it; then all goes on."""
    disk = disks(cluster.dir / "journal", 2 * MIB)
    data = cluster.file("a", 10_000, 1)
    cluster.dispatcher()
    cluster.executor("N1", slots=1)
    gate = tmp_path / "gate"
    # More ends than the last page of the file on the disk has room for.
    early = [f"early{i}" for i in range(120)]
    cluster.submit([cluster.task(name, inputs=[data], gate=gate) for name in early])
    cluster.begun("early0")
    disk.fill()
    # The ends of tasks cannot be recorded: their outputs are home, but nobody is told that they are done.
    gate.touch()
    wait_until(lambda: len(list(cluster.home.glob("early*.out"))) == 120, "the outputs at home")
    wait_until(lambda: cluster.status()["warnings"], "a warning in `eyas status`")
    (warning,) = cluster.status()["warnings"]
    assert "journal" in warning and "No space left on device" in warning, warning
    assert f"warning: {warning[:20]}" in cluster.run("status").stdout
    # `explain` says no more than the journal has, although the event log does.
    n_said = sum("is done" in cluster.run("explain", name).stdout for name in early)
    assert n_said <= cluster.run_line(1)["n_done"] < 120
    # A submission cannot be recorded either: it waits, and nothing of it starts.
    late = [f"late{i}" for i in range(40)]
    tasks = [cluster.task(name, f": {name * 500}; cat input/* > out", [data]) for name in late]
    submission = cluster.eyas.start("submit", cluster.list_of(tasks), "--join", cluster.join)
    wait_until(lambda: cluster.find_status() is not None, "the dispatcher still answers")
    line = cluster.run_line(1)
    assert line["n_done"] < 120 and line["ended"] is None, line
    assert submission.is_alive(), "the submission is not accepted"
    assert set(cluster.ran()) == set(early)
    disk.free()
    assert submission.wait().stdout == "run 2: 40 tasks accepted\n"
    cluster.wait()
    wait_until(lambda: not cluster.status()["warnings"], "the end of the warning")
    cluster.expect(**{name: payload(10_000, 1) for name in early + late})
    assert len(cluster.ran()) == 160


def test_the_dispatcher_killed_while_its_journal_is_full(
    cluster: Cluster, disks: Disks, tmp_path: Path
) -> None:
    """What was not accepted is not there after the restart; the executor reports once more what had run."""
    disk = disks(cluster.dir / "journal", 2 * MIB)
    dispatcher = cluster.dispatcher("--lease", "30s")
    cluster.executor("N1", slots=1)
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("first", "echo right > out", gate=gate)])
    cluster.begun("first")
    disk.fill()
    gate.touch()
    wait_until((cluster.home / "first.out").exists, "the output at home")
    lost = cluster.task("second", ": " + "x" * 100_000 + "; echo wrong > out")
    submission = cluster.eyas.start("submit", cluster.list_of([lost]), "--join", cluster.join)
    wait_until(lambda: cluster.status()["warnings"], "a warning in `eyas status`")
    kill_now(dispatcher)
    gone = submission.wait(status=3)
    assert gone.stdout == ""
    assert gone.stderr.startswith("error: the connection to the dispatcher was closed\nhint: ")
    disk.free()
    cluster.dispatcher("--lease", "30s")
    cluster.wait()
    cluster.expect(first=b"right\n")
    assert cluster.ran() == ["first"], "it ran once; its executor reported its end once more"
    assert [line["n_tasks"] for line in cluster.status()["runs"]] == [1]
    cluster.submit([cluster.task("second", "echo right > out")])
    cluster.wait()
    cluster.expect(second=b"right\n")


def test_a_submission_larger_than_the_journals_memory(cluster: Cluster, disks: Disks) -> None:
    """While the disk is full, what does not fit into memory is refused; the dispatcher answers all the time."""
    disk = disks(cluster.dir / "journal", 64 * MIB)
    cluster.dispatcher()
    cluster.executor("N1")
    noise = [random.Random(i).randbytes(25_000).hex() for i in range(500)]
    tasks = [cluster.task(f"t{i}", f"echo {text} > out") for i, text in enumerate(noise)]
    disk.fill()
    small = cluster.eyas.start("submit", cluster.list_of(tasks[:1]), "--join", cluster.join)
    wait_until(lambda: cluster.status()["warnings"], "a warning in `eyas status`")
    refused = cluster.run("submit", cluster.list_of(tasks[1:]), status=None)
    assert refused.status != 0 and refused.stdout == "", refused
    assert "cannot keep this submission" in refused.stderr and "No space left on device" in refused.stderr
    assert cluster.ran() == []
    disk.free()
    small.wait()
    wait_until(lambda: not cluster.status()["warnings"], "the end of the warning")
    cluster.submit(tasks[1:20])
    cluster.wait()
    cluster.expect(**{f"t{i}": noise[i].encode() + b"\n" for i in range(20)})


def test_a_full_disk_under_the_dispatchers_log(cluster: Cluster, disks: Disks) -> None:
    """The event log is for people: what it cannot take is counted and reported, and the run goes on."""
    disk = disks(cluster.dir, 4 * MIB)
    inner = disks(cluster.dir / "journal", 4 * MIB)
    assert inner.at.exists()
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    disk.fill()
    cluster.submit([cluster.task(f"t{i}", f": {'y' * 2000}; echo {i} > out") for i in range(300)])
    cluster.wait()
    cluster.expect(**{f"t{i}": f"{i}\n".encode() for i in range(300)})
    wait_until(
        lambda: any("event log" in w for w in cluster.status()["warnings"]), "a warning in `eyas status`"
    )


def test_what_a_log_lacks_is_told_by_the_dispatcher_and_by_all_its_readers(
    cluster: Cluster, disks: Disks, tmp_path: Path
) -> None:
    """The log waits for its disk. Who asks meanwhile hears how tasks ended from the dispatcher, and what the log lacks."""
    disk = disks(cluster.dir, 4 * MIB)
    inner = disks(cluster.dir / "journal", 4 * MIB)
    assert inner.at.exists()
    dispatcher = cluster.dispatcher()
    cluster.executor("N1", slots=2)
    gate = tmp_path / "gate"
    cluster.submit([cluster.task(f"t{i}", f": {'y' * 2000}; echo {i} > out", gate=gate) for i in range(300)])
    cluster.begun("t0")
    wait_until(lambda: cluster.run("explain", "t299").stdout, "a log with the tasks")
    disk.fill()
    gate.touch()
    cluster.wait()

    def states(*where: str) -> set[str]:
        return {
            task["state"] for task in json.loads(cluster.eyas.run("tasks", "--json", *where).stdout)["tasks"]
        }

    told = cluster.run("tasks", "--json")
    assert {task["state"] for task in json.loads(told.stdout)["tasks"]} == {"done"}
    assert "lines of the event log could not be written: what is told here may be incomplete" in told.stderr
    assert "could not be written" in cluster.run("explain", "t299").stderr
    # The log has all of it as soon as its disk takes it.
    disk.free()
    wait_until(lambda: not cluster.status()["warnings"], "the end of the warning")
    assert states("--dir", str(cluster.dir)) == {"done"}
    # A dispatcher that ends before its disk takes more says in the log's last line what it lacks.
    gate.unlink()
    cluster.submit([cluster.task(f"u{i}", f": {'y' * 2000}; echo {i} > out", gate=gate) for i in range(300)])
    cluster.begun("u0")
    wait_until(lambda: cluster.run("explain", "u299").stdout, "a log with the tasks")
    disk.fill()
    gate.touch()
    cluster.wait()
    dispatcher.signal(signal.SIGTERM)
    dispatcher.wait(status=None)
    # The journal has all that counts.
    assert states("--dir", str(cluster.dir), "--run", "2") == {"done"}
    for file in (cluster.dir / "journal").iterdir():
        file.unlink()
    assert "unknown" in states("--dir", str(cluster.dir), "--run", "2") <= {"unknown", "done"}
    for reader in (
        ["tasks"],
        ["explain", "u299"],
        ["report", "--out", str(tmp_path / "page.html")],
        ["replay"],
    ):
        done = cluster.eyas.run(*reader, "--dir", str(cluster.dir), status=None)
        assert "the event log lacks" in done.stdout + done.stderr or "the log lacks" in done.stderr, reader
    assert "the event log lacks" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("what", ["inputs", "outputs"])
def test_a_full_disk_of_a_node_is_said_where_a_run_is_followed(
    cluster: Cluster, disks: Disks, what: str
) -> None:
    disk = disks(cluster.node_dir("N1"), 32 * MIB)
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    disk.fill(but_bytes=2 * MIB)
    if what == "inputs":
        files = [cluster.file(f"f{i}", 4 * MIB, i) for i in range(4)]
        tasks = [cluster.task(f"t{i}", "cksum < input/0000 > out", [path]) for i, path in enumerate(files)]
    else:
        tasks = [cluster.task(f"t{i}", "head -c 4000000 /dev/zero > out") for i in range(4)]
    run = cluster.eyas.start("run", cluster.list_of(tasks), "--join", cluster.join)
    run.wait_for_text("node `N1` fails tasks and rests: ")
    (said,) = [line for line in run.stderr.splitlines() if "fails tasks" in line]
    assert "No space left on device" in said or "disk" in said, said
    disk.free()
    run.wait()
    assert run.stderr.count("fails tasks and rests") == 1, "it is said once"


def test_a_full_disk_of_the_journal_is_said_where_a_client_waits(
    cluster: Cluster, disks: Disks, tmp_path: Path
) -> None:
    disk = disks(cluster.dir / "journal", 2 * MIB)
    cluster.dispatcher()
    cluster.executor("N1", slots=1)
    gate = tmp_path / "gate"
    tasks = [cluster.task(f"t{i}", "echo right > out", gate=gate) for i in range(120)]
    run = cluster.eyas.start("run", cluster.list_of(tasks), "--join", cluster.join)
    cluster.begun("t0")
    disk.fill()
    gate.touch()
    run.wait_for_text("warning: the journal waits: ")
    late = [cluster.task(f"late{i}", f": {'x' * 2000}; echo right > out") for i in range(40)]
    submission = cluster.eyas.start("submit", cluster.list_of(late), "--join", cluster.join)
    submission.wait_for_text("warning: the journal waits: ")
    disk.free()
    submission.wait()
    run.wait()
    for one in (run, submission):
        assert one.stderr.count("the journal waits") == 1, "it is said once"


# ---------------------------------------------------------------- small caches


def test_a_cache_smaller_than_the_inputs_of_one_task(cluster: Cluster) -> None:
    files = [cluster.file(f"f{i}", 300_000, i) for i in range(6)]
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "1MiB", slots=2)
    cluster.submit([cluster.task(f"t{i}", inputs=files[i:] + files[:i]) for i in range(6)])
    high = 0

    def done() -> bool:
        nonlocal high
        high = max(high, sum(path.stat().st_size for path in find_existing(cluster, "N1")))
        return bool(cluster.run_line()["ended"])

    wait_until(done, "the end of the run")
    one = [payload(300_000, i) for i in range(6)]
    cluster.expect(**{f"t{i}": b"".join(one[i:] + one[:i]) for i in range(6)})
    assert high <= MIB, f"the cache held {high} bytes"
    assert cluster.run_line()["n_done"] == 6


def find_existing(cluster: Cluster, node: str) -> Iterator[Path]:
    """Files of the cache that are still there when they are looked at."""
    for path in (cluster.node_dir(node) / "cache").rglob("*"):
        if path.is_file() and len(path.name) > 8:
            yield path


def test_an_object_larger_than_the_cache(cluster: Cluster) -> None:
    """It is read for the task alone and counted as read from home."""
    data = cluster.file("big", 3_000_000, 4)
    small = cluster.file("small", 20_000, 5)
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "1MiB")
    cluster.submit([cluster.task(f"t{i}", inputs=[data, small]) for i in range(3)])
    cluster.wait()
    cluster.expect(**{f"t{i}": payload(3_000_000, 4) + payload(20_000, 5) for i in range(3)})
    line = cluster.run_line()
    assert (line["home_bytes"], line["local_bytes"]) == (3 * 3_000_000 + 20_000, 2 * 20_000), line
    assert not list((cluster.node_dir("N1") / "private").iterdir()), "private copies go with their task"


def test_outputs_larger_than_the_cache_come_home(cluster: Cluster) -> None:
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "64KiB", slots=2)
    made = [cluster.task(f"a{i}", f"head -c 500000 /dev/zero | tr '\\0' {i} > out") for i in range(4)]
    used = [cluster.task(f"b{i}", inputs=[cluster.home / f"a{i}.out"]) for i in range(4)]
    cluster.submit(made + used)
    cluster.wait()
    cluster.expect(**{f"{kind}{i}": str(i).encode() * 500_000 for kind in "ab" for i in range(4)})


# ---------------------------------------------------------------- flipped bytes


def test_a_byte_flipped_in_the_nodes_own_cache(cluster: Cluster) -> None:
    """It is noticed before a program sees it, named in the log, and fetched again."""
    content = payload(80_000, 9)
    data = cluster.file("named-in-the-log", 80_000, 9)
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task("first", inputs=[data])])
    cluster.wait()
    # The output has the same bytes as the input and so the same file in the cache.
    flip(cached_copy(cluster, "N1", content))
    cluster.submit([cluster.task("second", "sort input/* | cat input/* > out", inputs=[data])])
    cluster.wait()
    cluster.expect(first=content, second=content)
    assert "named-in-the-log` was changed" in cluster.said()
    assert cluster.ran() == ["first", "second"], "no program has seen the wrong bytes"
    assert cached_copy(cluster, "N1", content).exists()


@pytest.mark.parametrize("silently", [False, True])
def test_a_byte_flipped_at_a_peer(cluster: Cluster, tmp_path: Path, silently: bool) -> None:
    """The copy is refused by its digest, and home is asked."""
    content = payload(2_500_000, 11)
    data = cluster.file("named-in-the-log", 2_500_000, 11)
    cluster.dispatcher("--placement", "max-compute-util")
    cluster.executor("N1")
    cluster.submit([cluster.task("first", "md5sum input/* > out", inputs=[data])])
    cluster.wait()
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("busy", "echo busy > out", gate=gate)])
    cluster.begun("busy")
    flip(cached_copy(cluster, "N1", content), silently)
    cluster.executor("N2")
    cluster.submit([cluster.task("second", inputs=[data])])
    cluster.run("wait", "--run", "3")
    gate.touch()
    cluster.wait()
    cluster.expect(second=content, busy=b"busy\n")
    line = cluster.run_line(3)
    assert (line["peer_bytes"], line["home_bytes"]) == (0, 2_500_000), line
    assert "named-in-the-log` was refused" in cluster.executors["N2"].stderr
    if not silently:
        assert "named-in-the-log` was changed" in cluster.executors["N1"].stderr
        assert all(path.read_bytes() != flipped(content) for path in cached_files(cluster, "N1"))


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_a_byte_flipped_while_the_node_was_down(cluster: Cluster) -> None:
    content = payload(80_000, 12)
    data = cluster.file("a", 80_000, 12)
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task("first", inputs=[data])])
    cluster.wait()
    kill_now(cluster.executors["N1"])
    flip(cached_copy(cluster, "N1", content))
    cluster.executor("N1")
    cluster.submit([cluster.task("second", "cat input/* > out; echo >> out", inputs=[data])])
    cluster.wait()
    cluster.expect(first=content, second=content + b"\n")
    assert cluster.ran() == ["first", "second"]


def test_a_cached_file_removed_behind_the_back(cluster: Cluster) -> None:
    content = payload(80_000, 13)
    data = cluster.file("a", 80_000, 13)
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task("first", "wc -c < input/0000 > out", inputs=[data])])
    cluster.wait()
    cached_copy(cluster, "N1", content).unlink()
    cluster.submit([cluster.task("second", inputs=[data])])
    cluster.wait()
    cluster.expect(first=b"80000\n", second=content)
    assert cluster.run_line(2)["n_done"] == 1
