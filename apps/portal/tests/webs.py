"""Web servers with exposures, for tests: with parts and without, with versions and without, and with failures on demand."""

from __future__ import annotations

import contextlib
import email.utils
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import unquote


class Site:
    """What a server has and does: files below a folder, which tests change while it is up."""

    def __init__(
        self, root: Path, ranges: bool = True, etags: bool = True, dates: bool = True, query: str = ""
    ) -> None:
        self.root, self.ranges, self.etags, self.dates, self.query = root, ranges, etags, dates, query
        # Answers in place of files, by their paths; "" stands for all of them.
        self.statuses: dict[str, int] = {}
        self.moved: dict[str, str] = {}
        # What was asked for: path, `Range`, and how many bytes of a file were given.
        self.asked: list[tuple[str, str, int]] = []
        # With a number, each byte of a file comes alone, so many seconds after the one before.
        self.wait_s = 0.0
        # Requests that have no answer yet, and the most of them that there were.
        self.n_now = self.n_most = 0
        self.lock = Lock()
        self.may_answer = Event()
        self.may_answer.set()
        self.url = ""
        self.stop: Callable[[], None] = lambda: None
        # This process waits for its answers until it is another one.
        self.held = 0
        self._n_before, self._is_reached = 0, Event()

    def gate_after(self, n: int) -> Event:
        """Let only the next `n` requests have answers; gives what is set when another one waits."""
        self._n_before, self._is_reached = len(self.asked) + n, Event()
        return self._is_reached

    def open_gate(self) -> None:
        self._n_before = 0

    def wait_at_gate(self) -> None:
        with self.lock:
            is_behind = bool(self._n_before) and len(self.asked) >= self._n_before
        if is_behind:
            self._is_reached.set()
            while self._n_before:
                time.sleep(0.05)

    def n_asked(self, path: str) -> int:
        return sum(one[0] == path for one in self.asked)

    def address(self, path: str) -> str:
        return f"{self.url}/{path}" + (f"?{self.query}" if self.query else "")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def handle_error(self, *_: object) -> None:
        """A client that has what it wants goes."""

    def stop(self) -> None:
        """Also for those whose connections stayed open."""
        self.shutdown()
        self.server_close()
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def is_of(process: int, port: int) -> bool:
    """Whether the connection from this port of this machine is one of that process."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]" for line in lines if int(line[1].rpartition(":")[2], 16) == port}
    opened = set()
    for file in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            opened.add(os.readlink(f"/proc/{process}/fd/{file}"))
    return bool(sockets & opened)


def handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def refuse(self, status: int, **headers: str) -> None:
            body = b"<html>no</html>"
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            with site.lock:
                site.n_now += 1
                site.n_most = max(site.n_most, site.n_now)
            try:
                site.may_answer.wait(60)
                site.wait_at_gate()
                while site.held and is_of(site.held, self.client_address[1]):
                    time.sleep(0.05)
                self.give()
            finally:
                with site.lock:
                    site.n_now -= 1

        def give(self) -> None:
            path, _, query = self.path.partition("?")
            path = unquote(path).lstrip("/")
            wanted = self.headers.get("Range", "")
            with site.lock:
                number = len(site.asked)
                site.asked.append((path, wanted, 0))
            if path in site.moved:
                return self.refuse(302, Location=site.moved[path])
            status = site.statuses.get(path, site.statuses.get("", 200))
            if status != 200:
                return self.refuse(status)
            if query != site.query:
                return self.refuse(403)
            try:
                data = (site.root / path).read_bytes()
                state = (site.root / path).stat()
            except OSError:
                return self.refuse(404)
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted) if site.ranges else None
            body = data
            if found:
                begin = int(found[1])
                if begin >= len(data):
                    return self.refuse(416, **{"Content-Range": f"bytes */{len(data)}"})
                body = data[begin : int(found[2]) + 1 if found[2] else None]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{len(data)}")
            else:
                self.send_response(200)
            if site.etags:
                self.send_header("ETag", f'"{state.st_ino}-{state.st_mtime_ns}"')
            if site.dates:
                self.send_header("Last-Modified", email.utils.formatdate(state.st_mtime, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for start in range(0, len(body), 65536) if not site.wait_s else range(len(body)):
                if site.wait_s:
                    self.wfile.write(body[start : start + 1])
                    time.sleep(site.wait_s)
                    continue
                self.wfile.write(body[start : start + 65536])
                with site.lock:
                    if number < len(site.asked):
                        site.asked[number] = (path, wanted, min(start + 65536, len(body)))

    return Handler


@contextmanager
def serving(site: Site, port: int = 0) -> Iterator[Site]:
    """A server of this site, at a port that is free or at the one that it had before."""
    server = Server(("127.0.0.1", port), handler_of(site))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    site.stop = server.stop
    try:
        yield site
    finally:
        server.stop()
