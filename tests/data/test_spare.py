"""Spare copies: what is read much gains copies while `eyas data tend --spare` looks, and loses them again; room comes from them first."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from harness import Run, Start, wait_until
from test_data import objects
from test_store import Store

SITES = ("here", "one", "two", "three")


def catalog(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/catalog.db"


def add_folders(data: Run, tmp_path: Path) -> None:
    for name in SITES[1:]:
        data("site", name, tmp_path / name)


def n_copies(tmp_path: Path) -> dict[str, int]:
    """By the name of an object: how many sites have it."""
    copies: dict[str, int] = {}
    for site in SITES:
        for path in objects(tmp_path / site):
            copies[path.name] = copies.get(path.name, 0) + 1
    return copies


def test_what_is_read_much_gains_copies_and_loses_them(data: Run, start: Start, tmp_path: Path) -> None:
    stores = [Store(start, tmp_path / name) for name in SITES[1:]]
    for store in stores:
        data("site", "--join", store.join)
    for name in ("hot", "cold"):
        (tmp_path / name).write_bytes(os.urandom(200_000))
        data("put", name, "--label", name, "--copies", "2")
    data("repair")
    tend = start(
        *("data", "--db", catalog(tmp_path), "tend", "--every", "200ms", "--spare", "1GiB"),
        *("--reads-per-copy", "1", "--half-life", "3s", "--keep-free", "0"),
    )

    def read() -> bool:
        data("get", "hot", "back")
        (tmp_path / "back" / "hot").unlink()
        (tmp_path / "back").rmdir()
        return "2 more than asked for" in data("where", "hot").stdout

    wait_until(read, "all sites have a copy", alive=tend)
    assert "hot: here, one, three, two (2 more than asked for)" in data("where", "hot").stdout
    assert "more than asked for" not in data("where", "cold").stdout
    assert "spare: `hot` has 2 copies more than it asks for (390.6 KiB)" in data("top", "--once").stdout
    # Nobody reads any more: the data set falls back to what it asks for, and its copies are good.
    wait_until(lambda: "more" not in data("where", "hot").stdout, "they are dropped", alive=tend)
    assert sorted(n_copies(tmp_path).values()) == [2, 2]
    data("audit")
    tend.stop(status=0)
    assert "spare copy made (195.3 KiB)" in tend.stderr or "2 spare copies made" in tend.stderr, tend.stderr
    assert "no file is short" not in tend.stderr and "short:" not in tend.stderr, tend.stderr


def test_programs_that_read_folders_are_counted(data: Run, run: Run, tmp_path: Path) -> None:
    """Each way of reading leaves its bytes where the next look finds them."""
    (tmp_path / "x").write_bytes(os.urandom(1000))
    data("put", "x", "--label", "x")
    reads = tmp_path / "here" / "reads"
    environment = {"EYAS_DATA": catalog(tmp_path)}

    def counted() -> int:
        total = sum(int(line.split()[1]) for line in reads.read_text().splitlines())
        reads.unlink()
        return total

    data("get", "x", "back")
    assert counted() == 1000
    run("at-data", "--input", "in=/x/x", "--", "cat", "in", env=environment)
    assert counted() == 1000
    run("cp", "data:x/x", "copied", env=environment)
    assert counted() == 1000
    data("audit")
    assert not reads.exists(), "an audit is no reading"


def test_a_kill_while_copies_are_dropped_loses_nothing(data: Run, start: Start, tmp_path: Path) -> None:
    """Copies beyond what is asked for are dropped by processes that are killed at random moments."""
    add_folders(data, tmp_path)
    rng = random.Random(73)
    source = tmp_path / "source"
    source.mkdir()
    n_files = 60
    for n in range(n_files):
        (source / f"f{n}").write_bytes(rng.randbytes(rng.choice([10, 3000, 70_000])))
    data("put", source, "--label", "x", "--copies", "4")
    for _ in range(6):
        data("copies", "x", "4")
        data("repair")
        assert set(n_copies(tmp_path).values()) == {4}
        data("copies", "x", "2")
        tend = start("data", "--db", catalog(tmp_path), "tend", "--spare", "1GiB", "--keep-free", "0")
        tend.wait_for_text("looking after")
        time.sleep(rng.uniform(0.0, 0.15))
        tend.kill()
        assert all(n >= 2 for n in n_copies(tmp_path).values()), n_copies(tmp_path)
        assert len(n_copies(tmp_path)) == n_files
        data("repair")
        data("audit")
    tend = start("data", "--db", catalog(tmp_path), "tend", "--every", "200ms", "--spare", "1GiB")
    # Before it has begun, a signal ends it like any process.
    tend.wait_for_text("looking after")
    wait_until(lambda: set(n_copies(tmp_path).values()) == {2}, "they fall back", alive=tend)
    tend.stop(status=0)
    data("audit")
    data("get", "x", "back")


def test_room_comes_from_spare_copies_first(data: Run, start: Start, tmp_path: Path) -> None:
    store = Store(start, tmp_path / "one", "--keep", "1MB")
    data("site", "--join", store.join)
    for name, n_bytes in [("x", 600_000), ("y", 700_000), ("z", 700_000)]:
        (tmp_path / name).write_bytes(os.urandom(n_bytes))
    data("put", "x", "--label", "x", "--copies", "2")
    data("repair")
    refused = data("put", "y", "--label", "y", "--site", "one", status=4)
    assert "it keeps at most 1000000 bytes" in refused.stderr, "both copies of x are asked for"
    data("copies", "x", "1")
    data("put", "y", "--label", "y", "--site", "one")
    assert data("where", "x").stdout == "x: here\n"
    # A repair finds room in the same way.
    data("rm", "y")
    data("repair")
    data("copies", "x", "2")
    data("repair")
    data("copies", "x", "1")
    data("put", "z", "--label", "z", "--copies", "2", "--site", "here")
    assert "1 copy made" in data("repair").stdout
    assert data("where", "z").stdout == "z: here, one\n"
    assert data("where", "x").stdout == "x: here\n"


def test_budgets_and_set_points_are_kept(data: Run, start: Start, tmp_path: Path) -> None:
    """Two files are read alike; there is room for one spare copy, and the other site's free part is not touched."""
    data("site", "here", tmp_path / "here", "--keep", "1GB")
    data("site", "one", tmp_path / "one", "--keep", "1MB")
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(os.urandom(300_000))
        data("put", name, "--label", name, "--site", "here")
    for _ in range(4):
        for name in ("a", "b"):
            data("get", f"{name}/{name}", "back")
            (tmp_path / "back").unlink()
    options = ("--every", "200ms", "--reads-per-copy", "1", "--keep-free", "50")
    tend = start("data", "--db", catalog(tmp_path), "tend", "--spare", "1GiB", *options)
    tend.wait_for_text("1 spare copy made")
    time.sleep(0.7)
    tend.stop(status=0)
    assert len(objects(tmp_path / "one")) == 1, "half of the site stays free"
    bad = data("tend", "--half-life", "1h", status=2)
    assert "--spare" in bad.stderr
