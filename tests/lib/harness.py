"""What end-to-end tests share: run eyas, start it in the background, wait for things, leave nothing behind.

Tests get these through the fixtures of conftest.py; types are imported from here:

    def test_a_missing_input_is_named(run: Run, tmp_path: Path) -> None:
        done = run("run", "tasks.jsonl", status=1, cwd=tmp_path)
        assert "tiles/7.fits" in done.stderr

    def test_a_cluster_comes_up(start: Start, tmp_path: Path) -> None:
        dispatcher = start("dispatcher", "--listen", "127.0.0.1:0", "--dir", str(tmp_path / "d"))
        wait_until((tmp_path / "d" / "join.json").exists, "join.json", alive=dispatcher)

Nothing here sleeps for a guessed time: every wait polls a condition and ends with an error that says
what did not happen.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
# For a run of the Python package as it lies here. Bytecode written beside it would change its folders, and `make build` looks at these.
SOURCES = {"PYTHONPATH": str(ROOT / "python" / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
POLL_S = 0.02
# For steps that take milliseconds on a quiet machine; long, because a busy one is not a failure.
PATIENCE_S = 60.0
# For the end of what a test started.
GONE_S = 20.0
PANIC = "panicked at"
# In the environment of all that a test starts; its value tells what the test left behind.
MARK = "EYAS_TEST_MARK"


def shown(text: str, limit: int = 8_000) -> str:
    """Text for a failure message: the whole, or its two ends."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - limit:,} characters ...]\n{text[-half:]}"


@dataclass(frozen=True)
class Finished:
    """A program that has ended. `status` is its exit status, or minus the number of the signal that ended it."""

    args: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def notes(self) -> list[str]:
        """Its notes, without the one that the tests' folder is in memory, which is this machine's business."""
        notes = [
            line.removeprefix("note: ") for line in self.stderr.splitlines() if line.startswith("note: ")
        ]
        return [note for note in notes if "is in memory (tmpfs)" not in note]

    def __str__(self) -> str:
        return (
            f"eyas {' '.join(self.args)}\nended with {self.status} after {self.seconds:.1f} s\n"
            f"--- stdout\n{shown(self.stdout)}\n--- stderr\n{shown(self.stderr)}"
        )


class Run(Protocol):
    """The fixture `run`: eyas in the foreground, see [`Eyas.run`]."""

    def __call__(
        self,
        *args: str | Path,
        timeout: float = ...,
        status: int | None = ...,
        cwd: Path | None = ...,
        env: Mapping[str, str] | None = ...,
        stdin: str | bytes | None = ...,
    ) -> Finished: ...


class Start(Protocol):
    """The fixture `start`: eyas in the background, see [`Eyas.start`]."""

    def __call__(
        self,
        *args: str | Path,
        cwd: Path | None = ...,
        env: Mapping[str, str] | None = ...,
        program: Path | None = ...,
    ) -> Background: ...


class Background:
    """A program that runs beside the test.

    Its streams are files: it never blocks on a full pipe, and no child that keeps one open blocks the test.
    """

    def __init__(
        self, command: list[str], cwd: Path, env: Mapping[str, str], log: Path, stdin: bytes | None
    ) -> None:
        self.args = tuple(command[1:])
        self.stdout_path = log.with_suffix(".stdout")
        self.stderr_path = log.with_suffix(".stderr")
        self._started = time.monotonic()
        stdin_path = log.with_suffix(".stdin") if stdin is not None else Path(os.devnull)
        if stdin is not None:
            stdin_path.write_bytes(stdin)
        with (
            open(stdin_path, "rb") as given,
            open(self.stdout_path, "wb") as stdout,
            open(self.stderr_path, "wb") as stderr,
        ):
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=given,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def stdout(self) -> str:
        return self.stdout_path.read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(encoding="utf-8", errors="replace")

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def finished(self) -> Finished:
        """What it has said so far; call it once it has ended."""
        assert self.process.returncode is not None, f"eyas {' '.join(self.args)} still runs"
        seconds = time.monotonic() - self._started
        return Finished(self.args, self.process.returncode, self.stdout, self.stderr, seconds)

    def wait(self, timeout: float = PATIENCE_S, status: int | None = 0) -> Finished:
        """Wait for its own end, which has to come with this exit status (None: any)."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            end_group(self.process)
            pytest.fail(f"still running after {timeout:.0f} s\n{self.finished()}")
        return checked(self.finished(), status)

    def stop(self, timeout: float = PATIENCE_S, status: int | None = None) -> Finished:
        """Ask it to end (SIGTERM) and wait until it has."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout, status)

    def kill(self) -> Finished:
        """`kill -9` of this one process, as in a crash: its children are left to themselves."""
        self.signal(signal.SIGKILL)
        return self.wait(status=None)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_for_text(self, text: str, timeout: float = PATIENCE_S) -> None:
        """Wait until it has printed this, to either stream."""
        wait_until(lambda: text in self.stdout or text in self.stderr, f"the text {text!r}", timeout, self)


def log_text(log: Path) -> str:
    """The lines of an event log, without the last one where it is still being written."""
    whole, newline, _ = log.read_text(encoding="utf-8").rpartition("\n")
    return whole + newline


def log_entries(log: Path) -> list[dict[str, Any]]:
    """What an event log holds so far, an entry for each line that is whole."""
    return [json.loads(line) for line in log_text(log).splitlines()]


def wait_until(
    condition: Callable[[], object],
    what: str,
    timeout: float = PATIENCE_S,
    alive: Background | None = None,
    instead: Callable[[], str] = lambda: "",
) -> None:
    """Poll until `condition` holds; fails with `what` after `timeout` seconds, or when `alive` has ended.

    `instead` says what there is in place of it.
    """
    deadline = time.monotonic() + timeout
    while True:
        # Asked before the condition, so that what a process does last still counts.
        ended = alive is not None and not alive.is_alive()
        if condition():
            return
        if ended:
            assert alive is not None
            pytest.fail(f"waited for {what}, but\n{alive.finished()}")
        if time.monotonic() > deadline:
            said = f"\n--- stdout\n{shown(alive.stdout)}\n--- stderr\n{shown(alive.stderr)}" if alive else ""
            pytest.fail(f"waited {timeout:.0f} s for {what}{said}{shown(instead())}")
        time.sleep(POLL_S)


def checked(done: Finished, status: int | None) -> Finished:
    """The same, after the checks that hold for every end of eyas: no panic, and the expected exit status."""
    assert PANIC not in done.stderr, f"eyas panicked\n{done}"
    assert status is None or done.status == status, f"expected exit status {status}\n{done}"
    return done


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own group, with the whole group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Eyas:
    """The program under test, in an environment of this test's own: nothing of the user's is read or changed."""

    def __init__(self, path: Path, folder: Path, mark: str) -> None:
        self.path = path
        self.folder = folder
        self.mark = mark
        self._started: list[Background] = []
        self._n_begun = 0
        homes = {
            "HOME": "h",
            "XDG_STATE_HOME": "s",
            "XDG_RUNTIME_DIR": "r",
            "XDG_CONFIG_HOME": "c",
            "XDG_CACHE_HOME": "k",
            "TMPDIR": "t",
        }
        for name in homes.values():
            (folder / name).mkdir(parents=True, mode=0o700)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EYAS_")}
        self.env = {
            **kept,
            **{variable: str(folder / name) for variable, name in homes.items()},
            MARK: mark,
            "RUST_BACKTRACE": "1",
        }

    def run(
        self,
        *args: str | Path,
        timeout: float = 120.0,
        status: int | None = 0,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
    ) -> Finished:
        """Run eyas to its end. It has to end within `timeout` seconds, with `status` (None: any), without a panic.

        `env` is added to the environment; `cwd` is the folder that the test got as `tmp_path` unless given.
        """
        given = stdin.encode() if isinstance(stdin, str) else stdin
        return self._begin(args, cwd, env, given).wait(timeout, status)

    def lab(
        self,
        *args: str | Path,
        timeout: float = 120.0,
        status: int | None = 0,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
    ) -> Finished:
        """As [`Eyas.run`], with the `eyas-lab` that lies beside it."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        return self._begin(args, cwd, env, given, self.path.with_name("eyas-lab")).wait(timeout, status)

    def start(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> Background:
        """Start eyas in the background. The end of the test ends it, if the test does not.

        `program` is started in its place, with the same arguments: a script that starts it.
        """
        started = self._begin(args, cwd, env, None, program)
        self._started.append(started)
        return started

    def _begin(
        self,
        args: tuple[str | Path, ...],
        cwd: Path | None,
        env: Mapping[str, str] | None,
        stdin: bytes | None,
        program: Path | None = None,
    ) -> Background:
        self._n_begun += 1
        command = [str(program or self.path), *(str(arg) for arg in args)]
        log = self.folder / f"eyas-{self._n_begun}"
        return Background(command, cwd or self.folder.parent, {**self.env, **(env or {})}, log, stdin)

    def end(self) -> None:
        """End what was started, fail on a panic in any of it and on processes left behind."""
        for started in self._started:
            if started.is_alive():
                started.signal(signal.SIGTERM)
        deadline = time.monotonic() + GONE_S
        for started in self._started:
            try:
                started.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                end_group(started.process)
                pytest.fail(f"does not end within {GONE_S:.0f} s of SIGTERM\n{started.finished()}")
        # What eyas has ended may take a moment to be gone.
        deadline = time.monotonic() + GONE_S
        while (left := list(self.left_behind())) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for pid, _ in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for started in self._started:
            checked(started.finished(), None)
        assert not left, "left behind: " + "; ".join(f"{pid} {command}" for pid, command in left)

    def left_behind(self) -> Iterator[tuple[int, str]]:
        """Processes that this test started, directly or not, and that still run: id and command line."""
        mark = f"{MARK}={self.mark}".encode()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            # A process may end while it is looked at, and another user's cannot be looked at.
            with suppress(OSError):
                # eyas may give a task an environment of its own, but the task still sits in the test's folder.
                at = os.readlink(folder / "cwd")
                inside = (at + "/").startswith(f"{self.folder.parent}/")
                if inside or mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    yield int(folder.name), command.strip()


def run_guide(
    page: Path, has: str, eyas: Path, env: Mapping[str, str], before: Sequence[str | Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs the commands of a page of docs/guides, with those that need `has`; `before` begins the command line, as `nsenter` does.

    What the page says is not true, it prints, and ends with 1.
    """
    command = [*before, sys.executable, ROOT / "scripts" / "docs.py", "--run", page, "--with", has]
    return subprocess.run(
        [*command, "--eyas", eyas], env=env, capture_output=True, text=True, check=False, timeout=600
    )


def _absent(what: str, package: str) -> None:
    lacking(f"needs {what}: apt-get install {package}")


def peak_mib(pid: int) -> float:
    """The most memory that a process has had resident, without the pages of its program's file.

    How many of these count varies by some MB with how the file happens to lie in the system's cache.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    peak, of_files = (re.search(rf"^{key}:\s+(\d+) kB", status, re.MULTILINE) for key in ("VmHWM", "RssFile"))
    assert peak is not None and of_files is not None
    return (int(peak[1]) - int(of_files[1])) / 1024


def ask_http(host: str, port: int, method: str, path: str, body: bytes | None = None) -> bytes:
    """The body of the answer to one request, which has to be a good one."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        data = answer.read()
        assert answer.status < 300, (answer.status, data)
        return data
    finally:
        connection.close()


def lacking(text: str) -> None:
    """Skip on a developer's machine, fail in CI, where everything has to be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def need_program(name: str, package: str | None = None) -> str:
    """The path of a program that is not part of the project, from the Debian package of that name."""
    path = shutil.which(name)
    if path is None:
        _absent(f"the program {name}", package or name)
    assert path is not None
    return path


def need_path(path: str | Path, package: str) -> Path:
    """A file or folder that a Debian package installs."""
    if not Path(path).exists():
        _absent(str(path), package)
    return Path(path)
