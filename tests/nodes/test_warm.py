"""Nodes that begin with what an earlier node of the same user has left on their disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch import Batch
from harness import Eyas, Finished, wait_until
from test_weather_crash import SlowHome
from weather import Cluster, kill_now, payload, programs_under

DAY_S = 24 * 3600


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path / "batch")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The disk of a node, which outlives clusters."""
    return tmp_path / "node disk"


@pytest.fixture
def slow_home() -> Iterator[SlowHome]:
    home = SlowHome(payload(300_000, 1))
    yield home
    home.close()


def sizes(done: Finished) -> tuple[str, str, str]:
    """Bytes from the nodes' own caches, from peers and from home, as people read them."""
    found = re.search(
        r"inputs: (.*?) from the node's own cache.*?, (.*?) from peers, (.*?) from home", done.stderr
    )
    assert found, done
    return found[1], found[2], found[3]


def folders(disk: Path) -> list[Path]:
    return sorted(disk.iterdir()) if disk.exists() else []


def objects(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "cache" / "objects").rglob("*") if path.is_file())


def executors_at(eyas: Eyas) -> list[str]:
    return [
        command for _, command in eyas.left_behind() if command.split()[1:2] in (["executor"], ["__keeper"])
    ]


@pytest.mark.parametrize("provider", ["command", "local", "local that comes and goes"])
def test_a_second_run_begins_with_the_cache_of_the_first(
    eyas: Eyas, batch: Batch, cluster: Cluster, disk: Path, provider: str
) -> None:
    options = ["--node-dir", "$NODE_DISK", "--cache", "1GiB", "--slots", "1"]
    if provider == "command":
        options += [*batch.options(), "--listen", "127.0.0.1:0", "--nodes", "1..1"]
    elif provider != "local":
        options += ["--nodes", "0..1"]
    files = [cluster.file(f"f{i}", 40_000 + i, i) for i in range(4)]

    def run(name: str) -> Finished:
        tasks = [cluster.task(f"{name}{i}", inputs=[path]) for i, path in enumerate(files)]
        # A file that an earlier task made, which went home, is known by its name there, too.
        made = cluster.home / "first0.out"
        tasks += [cluster.task(f"{name}-made", inputs=[made])] if name != "first" else []
        done = eyas.run("run", cluster.list_of(tasks), *options, env={"NODE_DISK": str(disk)})
        assert re.search(rf"{len(tasks)} tasks in .*: {len(tasks)} done, 0 failed", done.stderr), done
        cluster.expect(**{f"{name}{i}": path.read_bytes() for i, path in enumerate(files)})
        wait_until(lambda: not executors_at(eyas), "the end of the nodes")
        return done

    n_bytes = sum(40_000 + i for i in range(4))
    assert sizes(run("first")) == ("0 B", "0 B", f"{n_bytes / 1024:.1f} KiB")
    (folder,) = folders(disk)
    assert sorted(path.name for path in folder.iterdir()) == [
        "cache",
        "landings",
        "origins.jsonl",
        "owner.json",
    ]
    assert (folder.stat().st_mode & 0o777, folder.name) == (0o700, f"eyas-{os.getuid()}-1")
    assert sizes(run("second")) == (f"{(n_bytes + 40_000) / 1024:.1f} KiB", "0 B", "0 B")
    # A file that has changed at home is read anew, and only that one.
    cluster.file("f2", 50_002, 99)
    done = run("third")
    assert sizes(done)[2] == f"{50_002 / 1024:.1f} KiB", done
    # The latest bytes count, not those of before, which are nobody's any more.
    assert sizes(run("fourth"))[2] == "0 B"
    assert folders(disk) == [folder]


def test_cached_bytes_that_were_damaged_meanwhile_are_found_and_not_used(
    cluster: Cluster, disk: Path
) -> None:
    """Damage that no size and no time shows: what was cached by an earlier process is hashed before it is used."""
    files = [cluster.file(f"f{i}", 3_000_000 + i, i) for i in range(3)]
    scratch = ["--scratch", str(disk)]
    cluster.dispatcher()
    cluster.executor("N1", *scratch)
    cluster.submit([cluster.task(f"a{i}", inputs=[path]) for i, path in enumerate(files)])
    cluster.wait()
    cluster.executors["N1"].stop()
    (folder,) = folders(disk)
    by_size = {path.stat().st_size: path for path in objects(folder)}
    for size, keeps_time in [(3_000_000, True), (3_000_001, False)]:
        path = by_size[size]
        before = path.stat()
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.seek(1_500_000)
            file.write(b"damaged")
        path.chmod(0o444)
        if keeps_time:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    node = cluster.executor("N2", *scratch)
    assert folders(disk) == [folder]
    # All inputs of one task, and each of a task of its own.
    tasks = [cluster.task(f"b{i}", inputs=[path]) for i, path in enumerate(files)]
    run = cluster.submit([cluster.task("all", inputs=files), *tasks])
    cluster.wait()
    cluster.expect(all=b"".join(path.read_bytes() for path in files))
    cluster.expect(**{f"b{i}": path.read_bytes() for i, path in enumerate(files)})
    assert "was changed; it is dropped, the next task fetches it again" in node.stderr
    assert cluster.run_line(run)["home_bytes"] == 6_000_001, "the two that were damaged, once each"
    at_home = {path.read_bytes() for path in cluster.home.iterdir()}
    assert {path.read_bytes() for path in objects(folder)} <= at_home


def test_two_executors_on_one_host_never_share_a_folder(cluster: Cluster, disk: Path) -> None:
    cluster.dispatcher()
    file = cluster.file("f", 50_000, 1)
    for name in ("N1", "N2", "N3"):
        cluster.begin_executor(name, "--scratch", str(disk))
    wait_until(
        lambda: all(cluster.state_of(n) == "connected" for n in ("N1", "N2", "N3")), "all three to join"
    )
    assert len(folders(disk)) == 3
    own = {cluster.node_dir(name).resolve() for name in ("N1", "N2", "N3")}
    assert own == set(folders(disk)), "--dir is a link to each"
    cluster.submit([cluster.task("t", inputs=[file])])
    cluster.wait()
    for part in cluster.executors.values():
        part.stop()
    # The next one takes the folder that was used last, and of two that come at once each takes its own.
    cluster.begin_executor("N4", "--scratch", str(disk))
    cluster.begin_executor("N5", "--scratch", str(disk))
    wait_until(lambda: all(cluster.state_of(n) == "connected" for n in ("N4", "N5")), "both to join")
    assert len(folders(disk)) == 3
    assert cluster.node_dir("N4").resolve() != cluster.node_dir("N5").resolve()
    # A folder that is named outright is refused, as ever.
    named = str(cluster.node_dir("N4").resolve())
    done = cluster.eyas.run("executor", "--join", str(cluster.join), "--dir", named, "--name", "x", status=3)
    assert "is used by another executor" in done.stderr, done


def test_an_executor_killed_while_it_writes_a_cached_file_leaves_no_half(
    cluster: Cluster, slow_home: SlowHome, disk: Path, tmp_path: Path
) -> None:
    small = cluster.file("f", 50_000, 7)
    gate = tmp_path / "gate"
    cluster.dispatcher()
    cluster.executor("N1", "--scratch", str(disk), slots=2)
    cluster.submit(
        [cluster.task("s", inputs=[small], gate=gate), cluster.task("t", inputs=[slow_home.url("x")])]
    )
    cluster.begun("s")
    wait_until(lambda: slow_home.n_half_sent == 1, "half of the transfer")
    kill_now(cluster.executors["N1"])
    (folder,) = folders(disk)
    wait_until(lambda: not (folder / "sandbox").exists(), "its keeper to remove all but the cache")
    assert not programs_under(folder)
    assert [path.stat().st_size for path in objects(folder)] == [50_000]
    slow_home.go.set()
    gate.touch()
    cluster.executor("N2", "--scratch", str(disk), slots=2)
    cluster.wait()
    assert folders(disk) == [folder]
    cluster.expect(s=payload(50_000, 7), t=slow_home.body)
    assert not list((folder / "cache" / "incoming").iterdir())
    line = cluster.run_line()
    assert (line["home_bytes"], line["local_bytes"]) == (300_000, 50_000), "the whole one was not read again"


def test_the_folder_of_an_executor_that_has_ended_is_the_next_ones_at_once(
    cluster: Cluster, disk: Path
) -> None:
    """Its keeper, which hears of the end whenever it gets a processor, neither locks the folder nor makes it young."""
    cluster.dispatcher()
    node = cluster.executor("N1", "--scratch", str(disk))
    (folder,) = folders(disk)
    (keeper,) = [pid for pid, command in cluster.eyas.left_behind() if command.split()[1] == "__keeper"]
    os.kill(keeper, signal.SIGSTOP)
    node.stop()
    old_ns = time.time_ns() - DAY_S * 10**9
    os.utime(folder / "owner.json", ns=(old_ns, old_ns))
    os.kill(keeper, signal.SIGCONT)
    wait_until(lambda: keeper not in (pid for pid, _ in cluster.eyas.left_behind()), "the end of the keeper")
    assert (folder / "owner.json").stat().st_mtime_ns == old_ns


def test_old_folders_go_and_no_others(cluster: Cluster, disk: Path) -> None:
    cluster.dispatcher()
    ages = ["--scratch", str(disk), "--scratch-age", "2d"]
    for name in ("N1", "N2", "N3"):
        cluster.executor(name, *ages)
    place = {name: cluster.node_dir(name).resolve() for name in ("N1", "N2", "N3")}
    for name in ("N1", "N2"):
        cluster.executors[name].stop()
    prefix = f"eyas-{os.getuid()}-"
    # Others' folders, one of which looks like ours.
    (disk / "thesis").mkdir()
    (disk / "thesis" / "chapter1").write_text("words")
    (disk / f"{prefix}99").mkdir()
    (disk / f"{prefix}99" / "data").write_text("words")
    outside = disk.parent / "outside"
    shutil.copytree(place["N1"], outside)
    (disk / f"{prefix}98").symlink_to(outside)
    old = time.time() - 3 * DAY_S
    for folder in (*place.values(), outside):
        os.utime(folder / "owner.json", (old, old))
    # Its time is young, but its cache is old: the time of its last use counts.
    os.utime(place["N2"] / "owner.json", (time.time() - DAY_S, time.time() - DAY_S))
    cluster.executor("N4", *ages)
    wait_until(lambda: not place["N1"].exists(), "the old folder to go")
    assert cluster.node_dir("N4").resolve() == place["N2"]
    assert place["N3"].exists(), "it is in use, whatever its time says"
    assert (disk / "thesis" / "chapter1").read_text() == "words"
    assert (disk / f"{prefix}99" / "data").read_text() == "words"
    assert (outside / "owner.json").exists() and (disk / f"{prefix}98").is_symlink()
    assert "unused for 72 h" in cluster.executors["N4"].stderr


def test_nothing_stays_where_nobody_named_a_folder_or_no_age(
    eyas: Eyas, batch: Batch, cluster: Cluster, disk: Path
) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    options = [*batch.options(), "--listen", "127.0.0.1:0", "--nodes", "1..1"]
    eyas.run("run", tasks, *options)
    own = Path(eyas.env["TMPDIR"]) / f"eyas-nodes-{os.getuid()}"
    wait_until(lambda: not executors_at(eyas), "the end of the node")
    assert not own.exists()
    eyas.run("run", tasks, *options, "--node-dir", str(disk), "--scratch-age", "0")
    wait_until(lambda: not executors_at(eyas), "the end of the node")
    assert folders(disk) == []
    # An executor that keeps nothing takes nothing over either.
    eyas.run("run", tasks, *options, "--node-dir", str(disk))
    wait_until(lambda: not executors_at(eyas), "the end of the node")
    (kept,) = folders(disk)
    eyas.run("run", tasks, *options, "--node-dir", str(disk), "--scratch-age", "0")
    wait_until(lambda: not executors_at(eyas), "the end of the node")
    assert folders(disk) == [kept]
    assert json.loads((kept / "owner.json").read_text()) == {"eyas": 1, "keep_s": 7 * DAY_S}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--scratch-age", "3d"], "error: --scratch-age needs --node-dir with --provider local\n"),
        (
            ["--node-dir", "$NO_SUCH_VARIABLE"],
            "error: --node-dir $NO_SUCH_VARIABLE is no folder: it is empty here\n",
        ),
        (["--node-dir", "/proc/nowhere"], "cannot use the folder for caches `/proc/nowhere`: no such file"),
        (["--node-dir", "x", "--scratch-age", "soon"], "invalid value 'soon' for '--scratch-age <TIME>'"),
    ],
)
def test_what_cannot_be_is_said(eyas: Eyas, cluster: Cluster, options: list[str], sentence: str) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = eyas.run("run", tasks, *options, status=None)
    assert done.status != 0 and sentence in done.stderr, done
