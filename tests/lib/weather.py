"""A cluster whose parts a test starts, kills and restarts one by one, and small disks that can be full.

The tasks of these tests are shell lines. Each writes its id to `ran.log` when it begins, so a test can tell
which tasks ran, how often, and on which node; a *gate* is a file that a task waits for, so a test can say
what is running when it strikes.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import PATIENCE_S, Background, Eyas, Finished, lacking, log_entries, log_text, wait_until

# Short, as many tests wait for its end; and long enough that a busy machine alone does not bring that about.
LEASE = "5s"


def payload(n_bytes: int, seed: int) -> bytes:
    """Bytes that differ from those of any other seed, at every place."""
    block = b"".join((seed * 1_000_003 + i).to_bytes(8, "big") for i in range(512))
    return (block * (n_bytes // len(block) + 1))[:n_bytes]


def listing(folder: Path) -> dict[str, bytes]:
    """Everything under a folder: path to content; folders end in a slash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name + "/"] = b""
        else:
            found[name] = path.read_bytes()
    return found


@dataclass
class Cluster:
    """One dispatcher and its executors. Everything that is not home lies in `folder`."""

    eyas: Eyas
    folder: Path
    home: Path
    executors: dict[str, Background] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.folder.mkdir()

    @property
    def dir(self) -> Path:
        return self.folder / "D"

    @property
    def join(self) -> Path:
        return self.dir / "join.json"

    @property
    def ran_log(self) -> Path:
        return self.folder / "ran.log"

    # ---------------------------------------------------------------- parts

    def dispatcher(self, *options: str) -> Background:
        """Starts the dispatcher and waits until it answers."""
        given = options if "--lease" in options else ("--lease", LEASE, *options)
        started = self.eyas.start("dispatcher", "--dir", self.dir, *given)
        wait_until(lambda: self.find_status() is not None, "the dispatcher's answer", alive=started)
        return started

    def node_dir(self, name: str) -> Path:
        return self.folder / name

    def executor(self, name: str, *options: str, slots: int = 1) -> Background:
        """Starts an executor and waits until it has joined."""
        started = self.begin_executor(name, *options, slots=slots)
        wait_until(lambda: self.state_of(name) == "connected", f"executor {name} to join", alive=started)
        return started

    def begin_executor(self, name: str, *options: str, slots: int = 1) -> Background:
        given: list[str | Path] = ["--join", self.join, "--dir", self.node_dir(name), "--name", name]
        started = self.eyas.start("executor", *given, "--slots", str(slots), *options)
        self.executors[name] = started
        return started

    # ---------------------------------------------------------------- what it says

    def run(self, verb: str, *args: str | Path, status: int | None = 0, timeout: float = 120.0) -> Finished:
        return self.eyas.run(verb, *args, "--join", self.join, status=status, timeout=timeout)

    def find_status(self) -> dict[str, Any] | None:
        """`eyas status --json`, if the cluster answers."""
        done = self.run("status", "--json", status=None)
        if done.status != 0:
            return None
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def status(self) -> dict[str, Any]:
        found = self.find_status()
        assert found is not None, "the cluster does not answer"
        return found

    def find_node(self, name: str) -> dict[str, Any] | None:
        """The executor's line, the latest where several had this name."""
        status = self.find_status() or {"executors": []}
        lines = [line for line in status["executors"] if line["name"] == name]
        return lines[-1] if lines else None

    def state_of(self, name: str) -> str | None:
        line = self.find_node(name)
        return str(line["state"]) if line else None

    def counter(self, name: str, which: str) -> int:
        """A counter of the executor's latest status; it is sent once a second."""
        line = self.find_node(name)
        return int(line["status"][which]) if line else 0

    def run_line(self, run: int = 1) -> dict[str, Any]:
        return next(line for line in self.status()["runs"] if line["run"] == run)

    def events(self) -> str:
        return log_text(self.dir / "events.jsonl")

    def entries(self) -> list[dict[str, Any]]:
        return log_entries(self.dir / "events.jsonl")

    def said(self) -> str:
        """What all executors have printed so far."""
        return "".join(part.stderr for part in self.executors.values())

    # ---------------------------------------------------------------- tasks

    def task(
        self,
        name: str,
        line: str = "cat input/* > out",
        inputs: Sequence[Path | str] = (),
        gate: Path | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """A task that reads its inputs as `input/0`, `input/1`, ... and writes `out`, which goes to `NAME.out`."""
        begun = f'echo "$EYAS_TASK $(basename "$(dirname "$(dirname "$PWD")")")" >> {shlex.quote(str(self.ran_log))}; '
        wait = f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.02; done; " if gate else ""
        return {
            "id": name,
            "command": begun + wait + line,
            "inputs": {f"input/{i:04}": str(path) for i, path in enumerate(inputs)},
            "outputs": {"out": str(self.home / f"{name}.out")},
            **more,
        }

    def list_of(self, tasks: Sequence[dict[str, Any]]) -> Path:
        path = self.folder / f"tasks-{len(list(self.folder.glob('tasks-*')))}.jsonl"
        path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
        return path

    def submit(self, tasks: Sequence[dict[str, Any]]) -> int:
        done = self.run("submit", self.list_of(tasks))
        return int(done.stdout.removeprefix("run ").partition(":")[0])

    def wait(self, status: int = 0, timeout: float = 120.0) -> Finished:
        return self.run("wait", status=status, timeout=timeout)

    def ran(self) -> list[str]:
        """Ids of the tasks that have begun, in that order, once for each time."""
        if not self.ran_log.exists():
            return []
        return [line.split()[0] for line in self.ran_log.read_text().splitlines()]

    def file(self, name: str, n_bytes: int, seed: int) -> Path:
        path = self.home / name
        path.write_bytes(payload(n_bytes, seed))
        return path

    def output(self, name: str) -> bytes:
        return (self.home / f"{name}.out").read_bytes()

    def expect(self, **outputs: bytes) -> None:
        """These outputs are at home, byte for byte."""
        for name, expected in outputs.items():
            assert self.output(name) == expected, f"{name}.out has other bytes"

    def begun(self, *names: str) -> None:
        """Waits until the programs of these tasks run."""
        wait_until(lambda: set(names) <= set(self.ran()), f"the start of {names}; begun: {self.ran()}")


def programs_under(folder: Path) -> list[int]:
    """Processes whose current folder is below this one: programs in sandboxes."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (os.readlink(entry / "cwd") + "/").startswith(f"{folder}/"):
                    found.append(int(entry.name))
    return found


def kill_now(part: Background) -> None:
    """`kill -9`, and wait until it is gone."""
    part.signal(signal.SIGKILL)
    part.wait(status=None)


class Disk:
    """A small file system in memory."""

    def __init__(self, at: Path, n_bytes: int) -> None:
        at.mkdir(parents=True)
        self.at = at
        self._filler = at / "filler"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "eyas-test", str(at)], check=True)

    def fill(self, but_bytes: int = 0) -> None:
        """Takes all space that is left, but so many bytes."""
        left = os.statvfs(self.at)
        with self._filler.open("ab") as file:
            file.write(bytes(max(0, left.f_bavail * left.f_frsize - but_bytes)))

    def free(self) -> None:
        self._filler.unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.at)], check=False)


class Disks:
    def __init__(self) -> None:
        self.mounted: list[Disk] = []

    def __call__(self, at: Path, n_bytes: int) -> Disk:
        if os.geteuid() != 0:
            lacking("only root can mount a small disk")
        disk = Disk(at, n_bytes)
        self.mounted.append(disk)
        return disk


def small_disks() -> Iterator[Disks]:
    disks = Disks()
    yield disks
    for disk in disks.mounted:
        disk.unmount()


__all__ = [
    "PATIENCE_S",
    "Cluster",
    "Disks",
    "kill_now",
    "listing",
    "payload",
    "programs_under",
    "small_disks",
]
