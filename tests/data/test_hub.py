"""Stores that nobody can reach keep a connection out to a hub, and catalogs use them through it; real processes, each on a host of its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Background, Eyas, wait_until
from spaces import Host, hosts
from test_data import objects, spoil, tree

BEAT_S = 5


@dataclass
class Place:
    """Three hosts: the catalog's, the hub's, and one with room that the catalog's host cannot reach."""

    eyas: Eyas
    folder: Path
    catalog: Host
    hub: Host
    far: Host

    def on(self, host: Host) -> Path:
        """eyas as a program that runs on this host."""
        script = self.folder / f"eyas-on-{host.name}"
        script.write_text(f'#!/bin/sh\nexec {host.enter} {self.eyas.path} "$@"\n')
        script.chmod(0o755)
        return script

    def start_hub(self) -> Background:
        hub = self.eyas.start(
            *("data", "hub", "--dir", self.folder / "hub", "--listen", f"{self.hub.address}:0"),
            program=self.on(self.hub),
        )
        hub.wait_for_text("where there is room")
        return hub

    @property
    def hub_json(self) -> Path:
        return self.folder / "hub" / "hub.json"

    def start_store(self, name: str, folder: Path, *options: str, connects: bool = True) -> Background:
        words: tuple[str | Path, ...] = (
            "store",
            "--dir",
            folder,
            "--name",
            name,
            "--hub",
            self.hub_json,
            *options,
        )
        store = self.eyas.start(*words, program=self.on(self.far))
        store.wait_for_text("is connected to its hub" if connects else "where the catalog is")
        return store

    def data(self, *words: str | Path, status: int | None = 0) -> str:
        """What `eyas data` prints on the catalog's host."""
        done = self.eyas.start(
            *("data", "--db", f"sqlite:{self.folder}/catalog.db", *words), program=self.on(self.catalog)
        ).wait(status=status)
        return done.stdout + done.stderr

    def audited(self) -> dict[str, tuple[int, int, int]]:
        """By site: how many copies are good, bad and missing."""
        out = self.data("audit", "--json", status=None)
        reports = json.loads(out[out.index("[") :])
        return {r["site"]: (r["n_good"], len(r["bad"]), len(r["missing"])) for r in reports}


def wait_for_stores(hub: Background, n: int) -> None:
    wait_until(lambda: hub.stderr.count("is connected") == n, f"{n} stores are there", 60, hub)


@pytest.fixture
def place(eyas: Eyas, tmp_path: Path) -> Iterator[Place]:
    with hosts(tmp_path, f"hb{os.getpid() % 10_000}", "10.93.7", ["cat", "hub", "far"]) as made:
        found = Place(eyas, tmp_path, *made)
        # As behind a router that passes nothing on: connections go out to the hub, and the catalog's host gets nowhere.
        route = ["ip", "-n", found.catalog.space, "route", "add", "prohibit", found.far.address]
        subprocess.run(route, check=True)
        found.data("init", "--dir", tmp_path / "here")
        yield found


def test_a_store_that_nobody_can_reach_keeps_copies(place: Place, tmp_path: Path) -> None:
    hub = place.start_hub()
    far = tmp_path / "far"
    store = place.start_store("far", far)
    listening = subprocess.check_output([place.far.enter, "ss", "-Htln"], text=True)
    assert listening == "", "the store listens nowhere"
    assert "far" in place.data("site", "--join", far / "join.json", "--domain", "house")
    source = tmp_path / "traj"
    source.mkdir()
    for name, n_bytes in [("large", 5_000_000), ("größe", 10), ("empty", 0)]:
        (source / name).write_bytes(os.urandom(n_bytes))
    place.data("put", source, "--label", "adk", "--copies", "2")
    assert "3 copies made" in place.data("repair")
    spoil(max(objects(far), key=lambda path: path.stat().st_size))
    assert place.audited() == {"far": (2, 1, 0), "here": (3, 0, 0)}
    place.data("repair")
    # All that the catalog's machine had is read from there.
    for path in objects(tmp_path / "here"):
        path.unlink()
    place.data("get", "adk", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    [row] = [line for line in place.data("top", "--once").splitlines() if line.startswith("far ")]
    assert " up " in row, row
    (tmp_path / "only there").write_bytes(os.urandom(100_000))
    place.data("put", tmp_path / "only there", "--label", "direct", "--site", "far")

    # The hub ends: the store is away, by name, and has lost nothing.
    hub.kill()
    store.wait_for_text("is not connected")
    text = place.data("get", "direct", tmp_path / "no", status=4)
    assert "`far` cannot be reached: nothing answers at its hub" in text and "eyas data hub" in text, text
    place.data("repair", status=1)
    hub = place.start_hub()
    wait_until(lambda: store.stderr.count("is connected to its hub") == 2, "it comes back", alive=store)
    place.data("get", "direct", tmp_path / "yes")

    # The store ends: the hub forgets it, and whoever wants it hears which one is not there.
    store.kill()
    hub.wait_for_text("the store `far` is gone")
    text = place.data("get", "direct", tmp_path / "no", status=4)
    assert "`far` cannot be reached: its hub at" in text and "is `eyas store --hub` running" in text, text
    assert "away" in place.data("site")
    store = place.start_store("far", far)
    place.data("audit", status=1)
    place.data("repair")
    assert place.audited() == {"far": (4, 0, 0), "here": (3, 0, 0)}

    # The network is cut without a word: both sides notice, and find each other again.
    place.far.set_link("down")
    store.wait_for_text("has said nothing for 15 s", timeout=8 * BEAT_S)
    wait_until(lambda: hub.stderr.count("is gone") == 2, "the hub forgets the store", 8 * BEAT_S, hub)
    place.far.set_link("up")
    wait_until(lambda: store.stderr.count("is connected to its hub") == 2, "it comes back", 60, store)
    place.data("audit", "far")
    store.stop(status=0)
    hub.stop(status=0)


def test_only_those_with_the_keys_come_through(place: Place, tmp_path: Path) -> None:
    hub = place.start_hub()
    far, other = tmp_path / "far", tmp_path / "other" / "far"
    other.parent.mkdir()
    # Two stores of one name are two stores.
    first, second = place.start_store("far", far), place.start_store("far", other)
    place.data("site", "--join", far / "join.json")
    (tmp_path / "x").write_bytes(os.urandom(100_000))
    place.data("put", tmp_path / "x", "--label", "x", "--site", "far")
    assert (len(objects(far)), len(objects(other))) == (1, 0)
    assert "there is a site `far` already" in place.data("site", "--join", other / "join.json", status=2)

    # A copy of a store's folder does not take its place.
    copied = tmp_path / "copy"
    subprocess.run(["cp", "-r", far, copied], check=True)
    thief = place.start_store("far", copied, connects=False)
    thief.wait_for_text("has a connection of a store with this key already")
    place.data("get", "x", tmp_path / "back")
    thief.kill()

    # Neither kind of join file is taken for another one.
    words = ("store", "--dir", tmp_path / "new", "--hub", far / "join.json")
    text = place.eyas.run(*words, status=2).stderr
    assert "is the join file of the store `far`; this needs the one that `eyas data hub` writes" in text
    assert "is the join file of a hub; this needs the one that `eyas store` writes" in place.data(
        "site", "--join", place.hub_json, status=2
    )
    text = place.eyas.run("status", "--join", place.hub_json, status=3).stderr
    assert "is the join file of a hub; this needs the join file of a dispatcher" in text, text
    assert (
        "another `eyas data hub` serves"
        in place.eyas.run("data", "hub", "--dir", tmp_path / "hub", status=2).stderr
    )

    # The hub is another one now, with other keys, where the old one was.
    hub.kill()
    (tmp_path / "hub" / "identity.json").unlink()
    before = place.hub_json.read_bytes()
    hub = place.start_hub()
    assert place.hub_json.read_bytes() != before
    first.wait_for_text("does not accept the key that this join file has of it")
    text = place.data("get", "x", tmp_path / "no", status=4)
    assert "`far` cannot be reached: the hub at" in text and "start the store with the hub's new" in text
    first.kill()
    second.kill()
    place.start_store("far", far)
    text = place.data("get", "x", tmp_path / "no", status=4)
    assert "does not accept the key" in text, "the catalog has the old join file"
    place.data("site", "--join", far / "join.json")
    place.data("get", "x", tmp_path / "yes")


def memory_has(pid: int, mark: bytes) -> bool:
    """Whether these bytes are anywhere in the memory that a process may write."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.split()[1].startswith("rw"):
                start, end = (int(number, 16) for number in line.split()[0].split("-"))
                with suppress(OSError):
                    memory.seek(start)
                    if mark in memory.read(end - start):
                        return True
    return False


def test_the_hub_sees_no_plain_byte(place: Place, tmp_path: Path) -> None:
    """While a file passes, its bytes are in the memory of the store, and not in that of the hub."""
    hub = place.start_hub()
    far = tmp_path / "far"
    store = place.start_store("far", far, "--rate", "2MB/s")
    place.data("site", "--join", far / "join.json")
    mark = b"what nobody else may read"
    (tmp_path / "x").write_bytes(mark * 400_000)
    putting = place.eyas.start(
        *("data", "--db", f"sqlite:{tmp_path}/catalog.db", "put", tmp_path / "x", "--site", "far"),
        program=place.on(place.catalog),
    )
    wait_until(lambda: memory_has(store.pid, mark), "bytes of the file come", alive=putting)
    for _ in range(20):
        assert not memory_has(hub.pid, mark)
    assert putting.is_alive(), "it was still passing"
    secret = json.loads((far / "identity.json").read_text())
    assert not any(memory_has(hub.pid, key[40:100].encode()) for key in (secret["key_pem"], secret["secret"]))
    putting.stop()


def test_strangers_keep_nobody_out(place: Place, tmp_path: Path) -> None:
    """Connections that say nothing, or what is no greeting, are many; stores and catalogs come through all the same."""
    hub = place.start_hub()
    far = tmp_path / "far"
    host, port = json.loads(place.hub_json.read_text())["address"].rsplit(":", 1)
    crowd = (
        "import socket, sys, time\n"
        f"all = [socket.create_connection(({host!r}, {port})) for _ in range(200)]\n"
        "[s.send(b'GET / HTTP/1.0\\r\\n\\r\\n') for s in all[::2]]\n"
        "print('here', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [place.catalog.enter, "python3", "-c", crowd], stdout=subprocess.PIPE, text=True
    ) as strangers:
        assert strangers.stdout is not None
        assert strangers.stdout.readline() == "here\n"
        store = place.start_store("far", far)
        place.data("site", "--join", far / "join.json")
        (tmp_path / "x").write_bytes(os.urandom(100_000))
        place.data("put", tmp_path / "x", "--label", "x", "--site", "far")
        strangers.kill()
    held = len(list(Path(f"/proc/{hub.pid}/fd").iterdir()))
    assert held < 60, "the hub closes what strangers leave"
    # A hub that vanishes in the middle of a transfer leaves nothing half-done.
    store.stop(status=0)
    store = place.start_store("far", far, "--rate", "2MB/s")
    (tmp_path / "big").write_bytes(os.urandom(20_000_000))
    place.data("put", tmp_path / "big", "--label", "big", "--copies", "2", "--site", "here")
    repair = place.eyas.start(
        "data", "--db", f"sqlite:{tmp_path}/catalog.db", "repair", program=place.on(place.catalog)
    )
    wait_until(lambda: list((far / "incoming").iterdir()), "an object is on its way", alive=repair)
    hub.kill()
    ended = repair.wait(status=1)
    assert "`far` took no part" in ended.stderr or "could not be made" in ended.stderr, ended
    wait_until(lambda: not list((far / "incoming").iterdir()), "what was half there is gone", alive=store)


def test_many_at_once_and_a_hub_that_is_killed_again_and_again(place: Place, tmp_path: Path) -> None:
    rng = random.Random(1962)
    hub = place.start_hub()
    stores = {name: place.start_store(name, tmp_path / name) for name in ("a", "b", "c", "d")}
    for name in stores:
        place.data("site", "--join", tmp_path / name / "join.json")
    source = tmp_path / "many"
    source.mkdir()
    for n in range(40):
        (source / f"f{n}").write_bytes(rng.randbytes(rng.choice([10, 70_000, 400_000])))
    place.data("put", source, "--label", "many", "--copies", "5")
    for _ in range(4):
        repair = place.eyas.start(
            "data", "--db", f"sqlite:{tmp_path}/catalog.db", "repair", program=place.on(place.catalog)
        )
        time.sleep(rng.uniform(0, 1))
        hub.kill()
        hub = place.start_hub()
        assert repair.wait(status=None).status in (0, 1)
        wait_for_stores(hub, 4)
    place.data("repair")
    assert place.audited() == dict.fromkeys(("here", "a", "b", "c", "d"), (40, 0, 0))
