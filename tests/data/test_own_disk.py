"""A machine knows the copy on its own disk: by its interfaces, where its hosts file has its name on a loopback address only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Eyas
from spaces import Host, hosts

SIZE = 300_000


@dataclass
class Place:
    """Two hosts as Debian installs them, each with a store that is known by an address and holds a copy of a data set."""

    eyas: Eyas
    folder: Path
    hosts: list[Host]

    def on(self, host: Host) -> Path:
        """eyas as a program that runs on this host."""
        script = self.folder / f"eyas-on-{host.name}"
        script.write_text(f'#!/bin/sh\nexec {host.enter} {self.eyas.path} "$@"\n')
        script.chmod(0o755)
        return script

    def run(self, host: Host, *words: str | Path) -> str:
        """What the program prints on a host."""
        env = {"EYAS_DATA": f"sqlite:{self.folder}/catalog.db"}
        done = self.eyas.start(*words, program=self.on(host), env=env).wait()
        return done.stdout + done.stderr


@pytest.fixture
def place(eyas: Eyas, tmp_path: Path) -> Iterator[Place]:
    with hosts(tmp_path, f"od{os.getpid() % 10_000}", "10.93.8", ["n1", "n2"], is_debian=True) as made:
        found = Place(eyas, tmp_path, made)
        found.run(made[0], "data", "init", "--dir", tmp_path / "here")
        for host in made:
            words = ("--dir", tmp_path / host.name, "--name", host.name, "--listen", f"{host.address}:0")
            eyas.start("store", *words, program=found.on(host)).wait_for_text("where the catalog is")
            found.run(made[0], "data", "site", "--join", tmp_path / host.name / "join.json")
        (tmp_path / "big").write_bytes(os.urandom(SIZE))
        found.run(made[0], "data", "put", tmp_path / "big", "--label", "set", "--copies", "3")
        assert "2 copies made" in found.run(made[0], "data", "repair")
        # All hosts here see this folder, which hosts of their own would not.
        shutil.rmtree(tmp_path / "here")
        yield found


def test_the_copy_on_the_own_disk_is_read_whatever_the_hosts_file_says(place: Place) -> None:
    before = [host.received_bytes() for host in place.hosts]
    for host in place.hosts:
        # Each process has an order of its own for copies that are equally far.
        for n in range(4):
            place.run(host, "data", "get", "set/big", place.folder / f"got-{host.name}-{n}")
            words = ("--explain", "--input", "in=/set/big", "--", "test", "-s", "in")
            assert f"{host.name} (on this machine)" in place.run(host, "at-data", *words)
    came = [host.received_bytes() - first for host, first in zip(place.hosts, before, strict=True)]
    assert max(came) < SIZE, came
