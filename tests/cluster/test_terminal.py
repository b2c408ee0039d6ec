"""What programs say and how things are called never reaches the reader's terminal as more than text."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Eyas, Finished, Run, wait_until

# A new window title, the screen emptied, the same as one C1 byte, a reversed name, and a line of our own forged.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\u009b2J\u202egnp.\u2066"
# In a file's name, which may hold anything but a slash and a NUL byte.
FILE = f"in{ESCAPES}\nfailed: 7 more.dat"


def unsafe(text: str) -> list[str]:
    """What a terminal would obey, or show otherwise than it stands there."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n\t"]


def is_plain(done: Finished) -> None:
    assert not unsafe(done.stdout), f"{unsafe(done.stdout)} in {done.stdout!r}"
    assert not unsafe(done.stderr), f"{unsafe(done.stderr)} in {done.stderr!r}"


def on_terminal(eyas: Eyas, *args: str, stderr: Path) -> bytes:
    """What a program sends to its standard output where that is a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)
        os.execve(eyas.path, [str(eyas.path), *args], {**eyas.env, "TERM": "xterm-256color"})
    sent = b""
    try:
        # The other end's close is an error on Linux.
        while piece := os.read(terminal, 65536):
            sent += piece
    except OSError:
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return sent.replace(b"\r\n", b"\n")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A task list whose files, words and label are full of what a terminal obeys."""
    (tmp_path / FILE).write_text("x")
    says = tmp_path / "says"
    says.write_bytes(f"\x1b[1;31mred\x1b[0m {ESCAPES}50%\r100%\n".encode() + b"\xff\xc3\n")
    tasks: list[dict[str, object]] = [
        {"id": "reads", "command": "cat x", "inputs": {"x": FILE}, "label": f"l\u202e{ESCAPES[-1]}"},
        {"id": "fails\u202e", "command": f"cat '{says}'; cat '{says}' >&2; exit 3"},
        {"id": "absent", "command": ["true"], "inputs": {"x": f"no{FILE}"}},
        {"id": "writes", "command": "echo > y", "outputs": {"y": f"run:{FILE}"}},
        {"id": "slow", "command": "sleep 600", "inputs": {"x": f"run:{FILE}"}},
        {"id": "waits", "command": "true", "inputs": {"x": f"run:{FILE}2"}},
        {"id": "never", "command": "echo > y; sleep 600", "outputs": {"y": f"run:{FILE}2"}},
    ]
    path = tmp_path / f"t{ESCAPES}.jsonl"
    path.write_text("".join(json.dumps(t) + "\n" for t in tasks))
    return path


def test_nothing_from_outside_is_printed_raw(eyas: Eyas, run: Run, tmp_path: Path, hostile: Path) -> None:
    up = run("up", "--nodes", "1", "--slots", "6")
    try:
        named = tmp_path / "named"
        join = up.stdout.split("join file: ")[1].strip()
        odd = eyas.start("executor", "--join", join, "--name", f"n{ESCAPES}", "--dir", named, "--slots", "1")
        is_plain(run("submit", hostile))
        run_name = "in\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{9b}2J\\u{202e}gnp.\\u{2066}\\nfailed: 7 more.dat"

        def status() -> str:
            done = run("status")
            is_plain(done)
            return done.stdout

        wait_until(lambda: "n\\u{1b}" in status(), "the odd node", alive=odd)
        wait_until(
            lambda: re.search(r"\b2 +0  .*\\u\{1b\}.*jsonl$", status(), re.M), "two failures", alive=odd
        )
        assert f"t{ESCAPES}".encode() not in status().encode()
        for task in ("reads", "fails\u202e", "absent", "writes", "slow", "waits", "no such", f"no{ESCAPES}"):
            explanation = run("explain", task, status=None)
            is_plain(explanation)
            if task in ("reads", "absent", "waits"):
                # On its line, too.
                assert run_name[2:] in explanation.stdout, explanation
        is_plain(run("logs", "no such\x1b[2J", status=None))
        is_plain(run("cancel", "no such\x1b[2J", status=None))
        is_plain(run("cancel", "slow", "never", "waits", "writes", status=None))
        waited = run("wait", status=1)
        is_plain(waited)
        assert "its last words: \\xff" in waited.stderr or "last words" in waited.stderr
        # What the program printed is what goes into a pipe or a file, byte by byte.
        printed = (tmp_path / "says").read_bytes()
        logs = subprocess.run(
            [eyas.path, "logs", "fails\u202e"], env=eyas.env, capture_output=True, check=True
        )
        assert logs.stdout == printed and logs.stderr == printed
    finally:
        run("down", status=None)


def test_a_terminal_gets_a_programs_text_and_colours_and_nothing_else(
    eyas: Eyas, run: Run, tmp_path: Path, hostile: Path
) -> None:
    says = tmp_path / "says"
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": "one", "command": ["cat", str(says)]}) + "\n")
    folder = tmp_path / "cluster"
    run("run", "one.jsonl", "--nodes", "1", "--dir", folder)
    sent = on_terminal(eyas, "logs", "one", "--dir", str(folder), stderr=tmp_path / "stderr").decode()
    assert "\x1b[1;31mred\x1b[0m" in sent
    assert not unsafe(sent.replace("\x1b[1;31m", "").replace("\x1b[0m", "")), repr(sent)
    assert "\\u{1b}]0;owned\\u{7}" in sent and "50%\\r100%" in sent
    graph = on_terminal(eyas, "graph", str(hostile), "-o", "-", stderr=tmp_path / "stderr").decode()
    assert "<svg" in graph and not unsafe(graph)


def test_a_copy_says_what_it_waits_for(eyas: Eyas, tmp_path: Path) -> None:
    """A server that sends the first bytes and then says nothing."""
    held: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                held.append(server.accept()[0])
                held[-1].recv(65536)
                head = b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 100000\r\n\r\n'
                held[-1].sendall(head + b"x" * 1000)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(eyas.path, [str(eyas.path), "cp", url, str(tmp_path / "x")], eyas.env)
        sent = b""
        try:
            while not re.search(rf"nothing has moved for \d+ s: {re.escape(url)}".encode(), sent):
                piece = os.read(terminal, 65536)
                assert piece, sent
                sent += piece
        finally:
            os.kill(pid, signal.SIGTERM)
            server.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()
            with suppress(OSError):
                while os.read(terminal, 65536):
                    pass
            os.waitpid(pid, 0)
            os.close(terminal)


def test_mistakes_are_told_without_what_caused_them(run: Run, tmp_path: Path, hostile: Path) -> None:
    bad = tmp_path / f"bad{ESCAPES}\nerror: forged.jsonl"
    bad.write_text(
        '{"id": "a", "command": "true", "inputs": ["\u202e\\u001b[2J"], "' + ESCAPES[-1] + '": 1}\n'
    )
    for args in (
        ("run", bad),
        ("run", tmp_path / f"absent{ESCAPES}\nx"),
        ("convert", bad, "--to", "jsonl"),
        ("graph", bad),
        ("predict", bad),
        ("explain", "x", "--dir", tmp_path / f"d{ESCAPES}"),
        ("report", "--dir", tmp_path / f"d{ESCAPES}"),
        ("replay", "--dir", tmp_path / f"d{ESCAPES}"),
        ("status", "--join", tmp_path / f"j{ESCAPES}"),
        (f"verb{ESCAPES}",),
        ("run", "--slots", f"x{ESCAPES}", "t"),
        ("map", f"none{ESCAPES}*", "--", "true"),
    ):
        done = run(*args, status=None)
        assert done.status != 0
        is_plain(done)
        assert "\nerror: forged" not in done.stderr


def test_a_name_of_a_megabyte_is_cut_with_its_length(run: Run, tmp_path: Path) -> None:
    name = "n" * 1_000_000
    tasks: list[dict[str, object]] = [
        {"id": name, "command": "exit 3"},
        {"id": "reader", "command": "true", "inputs": {"x": f"run:{name}"}},
        {"id": "label", "command": "exit 4", "label": name},
    ]
    path = tmp_path / "t.jsonl"

    def write(tasks: list[dict[str, object]]) -> None:
        path.write_text("".join(json.dumps(t) + "\n" for t in tasks))

    def is_cut(done: Finished) -> None:
        assert "1000000 characters" in done.stderr + done.stdout or "1000004 characters" in done.stderr, done
        assert len(done.stderr) + len(done.stdout) < 5_000, len(done.stderr)

    write(tasks)
    is_cut(run("run", path, status=2))
    write([tasks[0], tasks[2], {"id": "after", "command": "true", "inputs": {"x": f"{name}/x"}}])
    folder = tmp_path / "c"
    is_cut(run("run", path, "--dir", folder, status=1))
    for task in (name[:10], name, "after", "label"):
        done = run("explain", "#0" if task == name else task, "--dir", folder, status=None)
        assert len(done.stdout) + len(done.stderr) < 10_000
    write([tasks[0], tasks[0]])
    is_cut(run("run", path, status=2))
    write([{"id": str(i), "command": "true", "outputs": {"x": f"run:{name}"}} for i in range(2)])
    is_cut(run("run", path, status=2))
