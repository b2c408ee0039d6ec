"""A real Ray cluster of this machine for tests: a head and further nodes, each a raylet of its own, on loopback or the machine's address.

Ray's processes are known by a mark in their environment, which what they start inherits, and are ended by their numbers. `gcs_server` does
not end on SIGTERM.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from harness import ask_http, lacking, wait_until

MARK = "EYAS_RAY_TEST"
# `ray start` waits for its daemons. A busy machine takes its time for it.
START_MAX_S = 120
OBJECT_STORE_BYTES = 100_000_000


class Process:
    """A process of a cluster: its number, its command line and its environment."""

    def __init__(self, pid: int) -> None:
        folder = Path("/proc") / str(pid)
        self.pid = pid
        self.words = (folder / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        lines = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        self.env = dict(line.partition("=")[::2] for line in lines)
        self.parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])


class Ray:
    """What a test asks of it. Each node has the name that it was started with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.port, self.client_port, self.dashboard_port = _free_ports(3)
        self.host = _own_address()
        self.address = ""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTEST_"))}
        # A token that its user has for another cluster is none of this one.
        off = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        self.env = {**kept, **off, MARK: self.mark, "TMPDIR": str(folder / "tmp")}
        # As in a shell that has activated the environment: a job of Ray finds `eyas` there, and a user `ray`.
        self.env["PATH"] = f"{_ray().parent}:{self.env['PATH']}"
        self.env["XDG_STATE_HOME"] = str(folder / "tmp" / "state")
        (folder / "tmp").mkdir()

    def _start(self, name: str, words: Sequence[str], hidden: Path | None = None) -> None:
        command = [str(_ray()), "start", f"--object-store-memory={OBJECT_STORE_BYTES}", *words]
        if hidden:
            # The node sees an empty folder there.
            line = f"mount -t tmpfs none '{hidden}' && exec \"$@\""
            command = ["unshare", "--mount", "sh", "-c", line, "sh", *command]
        done = subprocess.run(
            command,
            env={**self.env, f"{MARK}_NODE": name},
            capture_output=True,
            text=True,
            timeout=START_MAX_S,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"

    def start_head(self, *words: str) -> None:
        self._start(
            "head",
            [
                "--head",
                f"--port={self.port}",
                f"--ray-client-server-port={self.client_port}",
                f"--dashboard-port={self.dashboard_port}",
                f"--temp-dir={self.folder}",
                "--disable-usage-stats",
                *words,
            ],
        )
        # Ray announces an address of the machine that is not loopback.
        current = (self.folder / "ray_current_cluster").read_text().strip()
        self.address = current
        self.env["RAY_ADDRESS"] = current

    def wait_for_jobs(self) -> None:
        """Waits until a job can be submitted, which takes a while after the start of a head with a dashboard."""

        def takes_one() -> bool:
            with suppress(AssertionError, OSError):
                return bool(
                    ask_http(
                        "127.0.0.1", self.dashboard_port, "POST", "/api/jobs/", b'{"entrypoint": "true"}'
                    )
                )
            return False

        wait_until(takes_one, "an agent that takes jobs", START_MAX_S)

    def add(self, name: str, *words: str, hidden: Path | None = None) -> None:
        self._start(name, [f"--address={self.address}", *words], hidden)

    # ------------------------------------------------------------ what there is

    def processes(self) -> Iterator[Process]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    process = Process(int(entry.name))
                    if process.env.get(MARK) == self.mark:
                        yield process

    def executors(self) -> list[Process]:
        """Executors of eyas that actors have started."""
        return [p for p in self.processes() if p.words[1:2] == ["executor"]]

    def actors(self) -> list[Process]:
        """Processes that run an actor of eyas."""
        return [p for p in self.processes() if p.words[0].startswith("ray::Node")]

    def nodes_used(self) -> set[str]:
        return {p.env.get(f"{MARK}_NODE", "?") for p in self.executors()}

    def ask(self, line: str) -> Any:
        """The value of an expression in a driver of this cluster."""
        program = (
            "import json, ray, ray.util\n"
            f"ray.init(address={self.address!r}, namespace='test', log_to_driver=False, logging_level='ERROR')\n"
            f"print('said', json.dumps({line}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=START_MAX_S,
            check=False,
        )
        said = [text for text in done.stdout.splitlines() if text.startswith("said ")]
        assert said, done.stdout + done.stderr
        return json.loads(said[0].removeprefix("said "))

    # ------------------------------------------------------------ weather and the end

    def kill_raylet(self, name: str) -> None:
        """`kill -9` of the raylet of that node."""
        for process in self.processes():
            if process.words[0].endswith("/raylet") and process.env[f"{MARK}_NODE"] == name:
                os.kill(process.pid, signal.SIGKILL)
                return
        raise AssertionError(f"node {name} has no raylet")

    def remove(self, name: str) -> None:
        """Ends a node, whatever is left of it."""
        while pids := [p.pid for p in self.processes() if p.env.get(f"{MARK}_NODE") == name]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        while pids := [p.pid for p in self.processes()]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _ray() -> Path:
    return Path(sys.executable).with_name("ray")


def _own_address() -> str:
    """The address of this machine that Ray takes for its nodes: that of the way out. Nothing is sent."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("8.8.8.8", 80))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _free_ports(n: int) -> list[int]:
    """Ports outside of what Ray gives to its workers, which end at 19999."""
    found: list[int] = []
    for port in range(20_000 + os.getpid() % 1_000 * 7, 32_000):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
            found.append(port)
        if len(found) == n:
            return found
    raise AssertionError("no free ports")


@contextmanager
def ray() -> Iterator[Ray]:
    """A Ray with a head and no processors yet on any node; all of it is gone afterwards."""
    if importlib.util.find_spec("ray") is None:
        lacking("needs Ray: make .venv/.test")
    # Paths of sockets in it have a limit of about a hundred letters.
    folder = Path(tempfile.mkdtemp(prefix="eyas-ray-"))
    made = Ray(folder)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


def need_root() -> None:
    if os.geteuid() != 0:
        lacking("needs root, for a node that sees other folders")


def none_left(made: Ray) -> None:
    """Waits until neither an actor of eyas nor an executor is there."""
    try:
        wait_until(lambda: not made.executors() and not made.actors(), "the end of all actors and executors")
    except pytest.fail.Exception:
        pytest.fail(f"left: {[p.words for p in [*made.executors(), *made.actors()]]}")
