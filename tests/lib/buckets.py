"""A real S3 server for tests: moto, with its objects in memory.

Faults are made in front of it by `Weather`, a proxy that answers what a test wants in place of the server, or cuts
connections. Each test has a bucket of its own.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

import pytest
from harness import ask_http, wait_until

KEY, SECRET = "TESTKEY123", "averysecretword/42"


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port


def answers_at(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A server of buckets and a client of it that shares no code with eyas."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"

    def env(self, endpoint: str | None = None) -> dict[str, str]:
        """What a user of this server has in the environment."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        return ask_http("127.0.0.1", self.port, method, path, body)

    def new_bucket(self) -> str:
        bucket = f"b{uuid.uuid4().hex[:12]}"
        self.ask("PUT", f"/{bucket}")
        return bucket

    def uploads(self, bucket: str) -> bytes:
        """What is left of uploads in parts."""
        return self.ask("GET", f"/{bucket}?uploads")


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    port = free_port()
    program = Path(sys.executable).parent / "moto_server"
    command = str(
        program if program.exists() else shutil.which("moto_server") or pytest.fail("no moto_server")
    )
    with open(folder / "moto.log", "wb") as log:
        process = subprocess.Popen(
            [command, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, (folder / "moto.log").read_text()
            return answers_at(port)

        wait_until(answers, "moto_server")
        yield Server(port)
    finally:
        process.terminate()
        process.wait(30)


class Listening(Protocol):
    """A server that listens on a port of this machine."""

    port: int


# An answer in place of the server's: a status and a body; or `None` to pass the request on; or "cut".
Answer = tuple[int, bytes] | None | str
Decide = Callable[[str, str], Answer]


@contextmanager
def weather(server: Listening, decide: Decide) -> Iterator[str]:
    """The endpoint of a proxy before the server. `decide` is given method and path of each request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: object) -> None:
            pass

        def handle_one(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            answer = decide(self.command, self.path)
            if answer == "cut":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if isinstance(answer, tuple):
                status, data = answer
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)
                return
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                real = connection.getresponse()
                data = real.read()
                self.send_response(real.status)
                for name, value in real.getheaders():
                    if name.lower() not in (
                        "transfer-encoding",
                        "connection",
                        "content-length",
                        "server",
                        "date",
                    ):
                        self.send_header(name, value)
                size = real.getheader("content-length") if self.command == "HEAD" else None
                self.send_header("content-length", size or str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)
            finally:
                connection.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PROPFIND = handle_one

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}"
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
