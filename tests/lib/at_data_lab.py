"""Nodes of a batch system with a store on each, for tests of `eyas at-data`: programs go to where their data is."""

from __future__ import annotations

import os
import re
import shlex
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from harness import Eyas, Finished
from spaces import Host

SIZE = 200_000


class BatchSystem(Protocol):
    """A real batch system whose first host is where users are."""

    env: dict[str, str]

    @property
    def hosts(self) -> Sequence[Host]: ...

    def host_of(self, node: str) -> Host: ...

    def clear(self) -> None: ...


class Lab:
    """A head with a catalog, and nodes each with a store of its name."""

    def __init__(
        self, batch: BatchSystem, eyas: Eyas, folder: Path, names: Sequence[str], eyas_path: Path
    ) -> None:
        self.eyas, self.folder = eyas, folder
        self.stores = {}
        self.data("init", "--dir", "here")
        for name in names:
            # The program of `eyas` is a script that runs it on the head; a store runs on its node.
            host = batch.host_of(name)
            script = folder / f"store-on-{name}"
            binary = shlex.quote(str(eyas_path))
            script.write_text(f'#!/bin/sh\nexec {host.enter} {binary} "$@"\n')
            script.chmod(0o755)
            place = ("--dir", folder / name, "--name", name, "--listen", f"{host.address}:0")
            self.stores[name] = eyas.start("store", *place, program=script, cwd=folder)
            self.stores[name].wait_for_text("where the catalog is")
            self.data("site", "--join", folder / name / "join.json")

    def data(self, *words: str | Path) -> Finished:
        return self.eyas.run("data", *words, cwd=self.folder)

    def put(self, label: str, site: str) -> bytes:
        """A data set with one file, and its only copy at this site."""
        content = os.urandom(SIZE)
        (self.folder / label).write_bytes(content)
        self.data("put", label, "--label", label, "--site", site)
        return content

    def at_data(self, mode: str, *words: str, status: int = 0) -> Finished:
        command = ("at-data", "--mode", mode, "--explain", *words)
        return self.eyas.run(*command, cwd=self.folder, status=status)

    def left_over(self) -> list[str]:
        """Folders of jobs and of waiting commands."""
        tmp = Path(self.eyas.env["TMPDIR"])
        return [path.name for where in (self.folder, tmp) for path in where.glob("eyas-at-data-*")]


@contextmanager
def lab_of(batch: BatchSystem, names: Sequence[str], eyas_path: Path, folder: Path) -> Iterator[Lab]:
    """A lab whose `eyas` runs on the head. Whatever happens, no job stays in the queue."""
    program = folder / "eyas"
    program.write_text(f'#!/bin/sh\nexec {batch.hosts[0].enter} {shlex.quote(str(eyas_path))} "$@"\n')
    program.chmod(0o755)
    eyas = Eyas(program, folder / ".eyas-test", uuid.uuid4().hex)
    eyas.env |= {**batch.env, "EYAS_DATA": f"sqlite:{folder}/catalog.db"}
    try:
        yield Lab(batch, eyas, folder, names, eyas_path)
    finally:
        eyas.end()
        batch.clear()


def input_line(done: Finished) -> tuple[str, str, str]:
    """Of `--explain`: the host of the job, and what came from it and over the network."""
    host = re.search(r"job \d+ ran on (\S+)", done.stderr)
    moved = re.search(r"as \S+: (.+) from this host, (.+) over the network", done.stderr)
    assert host and moved, done
    return host[1], moved[1], moved[2]
