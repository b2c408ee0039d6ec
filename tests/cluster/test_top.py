"""`eyas top` on a terminal of its own: it draws, follows the size, says when the dispatcher is gone, and ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from harness import PATIENCE_S, Eyas, Run, peak_mib, wait_until

PIECE = re.compile(r"\x1b\[([?>]?)([\d;]*)([@-~])|\x1b[()][0-9A-B]|\x1b[=>78]|([^\x1b])", re.DOTALL)
ALTERNATE_ON, ALTERNATE_OFF = "\x1b[?1049h", "\x1b[?1049l"


class Screen:
    """A program on a terminal, and what the terminal shows. Knows only what a full-screen program sends."""

    def __init__(self, pid: int, terminal: int) -> None:
        self.pid = pid
        self.terminal = terminal
        self.said = ""
        self._left = ""
        self._bytes = b""
        self.resize(120, 36)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.columns, self.rows = columns, rows
        self._clear()

    def _clear(self) -> None:
        self.cells = [[" "] * self.columns for _ in range(self.rows)]
        self.x = self.y = 0

    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def _take(self, text: str) -> None:
        text = self._left + text
        # A sequence that is cut off waits for its rest.
        cut = re.search(r"\x1b(\[[?>]?[\d;]*)?$", text)
        self._left = cut.group() if cut else ""
        for mark, numbers, command, char in PIECE.findall(text[: len(text) - len(self._left)]):
            if char:
                self._print(char)
            elif command == "H" and not mark:
                y, x = ([int(n or 1) for n in numbers.split(";")] + [1, 1])[:2] if numbers else [1, 1]
                self.x, self.y = x - 1, y - 1
            elif command == "J":
                self._clear()

    def _print(self, char: str) -> None:
        if char == "\r":
            self.x = 0
        elif char == "\n":
            self.y += 1
        elif char >= " ":
            if self.y < self.rows and self.x < self.columns:
                self.cells[self.y][self.x] = char
            self.x += 1

    def read(self) -> bool:
        """Take what there is within a moment; False once the program has closed the terminal."""
        if not select.select([self.terminal], [], [], 0.05)[0]:
            return True
        try:
            fresh = os.read(self.terminal, 65536)
        except OSError:
            return False
        self._bytes += fresh
        text = self._bytes.decode(errors="ignore")
        # A character may be cut in two.
        whole = len(text.encode())
        self._bytes = self._bytes[whole:] if len(self._bytes) - whole < 4 else b""
        self.said += text
        self._take(text)
        return bool(fresh)

    def wait_for(self, *wanted: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not all(text in self.text() for text in wanted):
            missing = [text for text in wanted if text not in self.text()]
            assert time.monotonic() < deadline, f"not on the screen: {missing}\n{self.text()}"
            assert self.read(), f"ended before it showed {missing}\n{self.said[-2000:]}"

    def press(self, key: str) -> None:
        os.write(self.terminal, key.encode())

    def ended(self) -> int:
        """The exit status, which has to come."""
        deadline = time.monotonic() + PATIENCE_S
        while self.read():
            assert time.monotonic() < deadline, f"does not end\n{self.text()}"
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@contextmanager
def on_terminal(eyas: Eyas, *args: str) -> Iterator[Screen]:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(eyas.path, [str(eyas.path), *args], {**eyas.env, "TERM": "xterm-256color"})
    screen = Screen(pid, terminal)
    try:
        yield screen
    finally:
        if screen.pid:
            with suppress(ProcessLookupError):
                os.kill(screen.pid, signal.SIGKILL)
            os.waitpid(screen.pid, 0)
        os.close(terminal)


def test_without_a_terminal_it_says_so(run: Run) -> None:
    done = run("top", status=2)
    assert done.stdout == ""
    assert done.stderr.startswith("error: `eyas top` needs a terminal")
    assert "eyas status" in done.stderr


def test_without_a_cluster_the_screen_is_left_alone(eyas: Eyas) -> None:
    with on_terminal(eyas, "top") as screen:
        assert screen.ended() == 3
    assert "no cluster is up" in screen.said
    assert ALTERNATE_ON not in screen.said


@pytest.mark.parametrize("key", ["q", "\x1b", "\x03"], ids=["q", "escape", "ctrl-c"])
def test_a_cluster_on_the_screen(eyas: Eyas, tmp_path: Path, key: str) -> None:
    eyas.run("up", "--nodes", "2", "--slots", "2", "--cache", "64MiB")
    try:
        tasks = tmp_path / "tasks.jsonl"
        tasks.write_text(
            '{"id": "good", "command": ["/bin/true"]}\n{"id": "sour", "command": "echo no stars >&2; exit 3"}\n'
        )
        eyas.run("submit", tasks)
        with on_terminal(eyas, "top") as screen:
            screen.wait_for(
                "eyas top", "2 nodes, 4 slots", "node1", "node2", "2/2", "sour", "no stars", "q quits"
            )
            screen.resize(60, 15)
            screen.wait_for("eyas top", "node1", "node2", "2/2", "sour", "q quits")
            eyas.run("down")
            screen.wait_for("node1", "trying again")
            screen.press(key)
            assert screen.ended() == 0
            assert ALTERNATE_ON in screen.said
            assert screen.said.rstrip().endswith("\x1b[?25h") or ALTERNATE_OFF in screen.said
    finally:
        eyas.run("down", status=None)


def test_a_terminal_of_any_size_costs_little_memory(eyas: Eyas) -> None:
    """A terminal may say that it has 65,535 columns and rows, or none."""
    eyas.run("up", "--nodes", "1", "--slots", "1", "--cache", "64MiB")

    def says(rows: int, columns: int) -> None:
        fcntl.ioctl(screen.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    try:
        with on_terminal(eyas, "top") as screen:
            screen.wait_for("eyas top", "node1", "q quits")
            says(65535, 65535)
            wait_until(lambda: screen.read() and "\x1b[400;" in screen.said, "the last row is drawn")
            assert peak_mib(screen.pid) < 300
            for i, (rows, columns) in enumerate([(0, 0), (0, 65535), (65535, 0), (1, 1)]):
                says(rows, columns)
                screen.press("x")
                # Another size each time, so that all is drawn anew also where the one in between was not seen.
                screen.resize(121 + i, 36)
                screen.wait_for("eyas top", "node1", "q quits")
            screen.press("q")
            assert screen.ended() == 0
    finally:
        eyas.run("down", status=None)


def test_a_dispatcher_that_is_away_is_told_on_top_until_it_is_back(eyas: Eyas) -> None:
    up = ["up", "--nodes", "1", "--slots", "1", "--cache", "64MiB"]
    eyas.run(*up)

    def dispatcher() -> int:
        return next(pid for pid, command in eyas.left_behind() if command.split()[1:2] == ["dispatcher"])

    try:
        with on_terminal(eyas, "top") as screen:
            screen.wait_for("eyas top", "node1", "q quits")
            # One that is there and says nothing.
            os.kill(dispatcher(), signal.SIGSTOP)
            screen.wait_for(
                "eyas top  no answer for ", "trying again: the dispatcher is there and does not", "node1"
            )
            os.kill(dispatcher(), signal.SIGCONT)
            screen.wait_for("eyas top  cluster", "node1", "q quits")
            # One that is gone, and another one in its place.
            os.kill(dispatcher(), signal.SIGKILL)
            screen.wait_for("eyas top  no answer for ", "trying again: ", "node1")
            said = re.findall(r"no answer for \d+ s", screen.text())
            while re.findall(r"no answer for \d+ s", screen.text()) == said:
                assert screen.read(), "the seconds go on"
            eyas.run(*up)
            screen.wait_for("eyas top  cluster", "node1", "q quits")
            screen.press("q")
            assert screen.ended() == 0
    finally:
        eyas.run("down", status=None)
