"""`--eviction two-mark-exchange`: what leaves a full cache goes to another one, and home is asked once for each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, wait_until
from weather import Cluster, kill_now

FILE_BYTES = 1_000_000
# Two files, and the reserve through which files are exchanged.
CACHE = "3MB"


@pytest.fixture
def stores(eyas: Eyas, tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes of one slot, and four files, which fill both caches."""
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    cluster.dispatcher("--lease", "5s")
    for name in ("left", "right"):
        join(cluster, name)
    for seed, name in enumerate("abcd"):
        cluster.file(name, FILE_BYTES, seed)
    yield cluster


def join(cluster: Cluster, name: str) -> None:
    options = ("--cache", CACHE, "--eviction", "two-mark-exchange", "--resource", f"{name}=1")
    cluster.executor(name, *options)


def read(cluster: Cluster, file: str, store: str) -> tuple[int, int]:
    """A task at this store reads the file; gives the bytes that it had from home and from the other store."""
    task: dict[str, Any] = {
        "id": f"{file}-{store}",
        "command": ["cksum", "in"],
        "inputs": {"in": str(cluster.home / file)},
        "resources": {store: 1},
    }
    run = cluster.submit([task])
    cluster.wait()
    line = cluster.run_line(run)
    assert (line["n_done"], line["n_failed"]) == (1, 0), line
    wait_until(lambda: settled(cluster), "what was moved to arrive")
    return line["home_bytes"], line["peer_bytes"]


def of_kind(cluster: Cluster, way: str, name: str) -> Iterator[dict[str, Any]]:
    """What the log has under this name, as an event ("in") or as an action ("out")."""
    for entry in cluster.entries():
        found = entry.get(way)
        if isinstance(found, dict) and name in found:
            yield found[name]


def held(cluster: Cluster) -> dict[int, set[int]]:
    """By executor: the objects that it holds, by the log."""
    there: dict[int, set[int]] = {}
    for change in of_kind(cluster, "in", "replicas_changed"):
        objects = there.setdefault(change["executor"], set())
        objects -= set(change["dropped"])
        objects |= {added["object"] for added in change["added"]}
    return there


def moves(cluster: Cluster) -> set[tuple[int, int]]:
    """Each executor that was to get an object from the store that the object leaves, with that object."""
    asked = of_kind(cluster, "out", "prefetch")
    return {(move["executor"], move["inputs"][0]["object"]) for move in asked}


def settled(cluster: Cluster) -> bool:
    """What was to be moved has arrived, and no file is at two stores."""
    stores = list(held(cluster).values())
    changes = of_kind(cluster, "in", "replicas_changed")
    had = {(change["executor"], added["object"]) for change in changes for added in change["added"]}
    return moves(cluster) <= had and not (len(stores) == 2 and stores[0] & stores[1])


def test_full_caches_exchange_files_and_home_is_asked_once_for_each(stores: Cluster) -> None:
    assert [read(stores, file, "left") for file in "ab"] == [(FILE_BYTES, 0)] * 2
    assert [read(stores, file, "right") for file in "cd"] == [(FILE_BYTES, 0)] * 2
    # Both caches are full, and each file is read at the other store: two files change places each time.
    for file, store in (("c", "left"), ("a", "right"), ("b", "right"), ("d", "left"), ("c", "right")):
        home_bytes, _ = read(stores, file, store)
        assert home_bytes == 0, f"{file} is in the system"
        assert sorted(len(objects) for objects in held(stores).values()) == [2, 2]
    assert len(moves(stores)) >= 2, "what left one store went to the other"
    # A fifth file begins a global phase, as the four are marked: one of them leaves, and nothing else.
    stores.file("e", FILE_BYTES, 9)
    assert read(stores, "e", "left") == (FILE_BYTES, 0)
    phases = [phase["executor"] for phase in of_kind(stores, "out", "begin_phase")]
    assert None in phases and len(phases) > 1, phases
    assert sorted(len(objects) for objects in held(stores).values()) == [2, 2]
    assert "give the same" in stores.eyas.run("replay", "--dir", stores.dir).stdout


def test_a_store_that_is_gone_takes_its_files_along_and_no_task_fails(stores: Cluster) -> None:
    for file, store in (("a", "left"), ("b", "left"), ("c", "right"), ("d", "right"), ("d", "left")):
        read(stores, file, store)
    kill_now(stores.executors["right"])
    wait_until(lambda: stores.state_of("right") in (None, "lost", "silent"), "the node to be missed")
    for file in "abcd":
        task = {
            "id": f"again-{file}",
            "command": ["cksum", "in"],
            "inputs": {"in": str(stores.home / file)},
            "resources": {"left": 1},
        }
        stores.submit([task])
    stores.wait()
    lines = stores.status()["runs"]
    assert sum(line["n_failed"] for line in lines) == 0, lines
    join(stores, "right")
    assert read(stores, "a", "right")[0] + read(stores, "a", "right")[0] <= FILE_BYTES
    assert "give the same" in stores.eyas.run("replay", "--dir", stores.dir).stdout
