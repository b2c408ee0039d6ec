"""Homes behind a proxy: which requests go through it, and what is said when it does not let them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from harness import Run
from lists import write_list

# Nobody knows this name, so that whatever reaches it has gone through the proxy.
AWAY = "home.invalid"


@dataclass
class Proxy:
    """A proxy that brings everything to one server, whatever its name is. `seen`: what it was asked for."""

    target: tuple[str, int]
    seen: list[str] = field(default_factory=list)
    refuses: bool = False
    port: int = 0


def relay(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def handler_of(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            proxy.seen.append(self.path)
            if proxy.refuses:
                self.send_error(403, "not from here")
                return
            with socket.create_connection(proxy.target) as there:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=relay, args=(there, self.connection), daemon=True)
                back.start()
                relay(self.connection, there)
                back.join()
            self.close_connection = True

        def forward(self) -> None:
            """A request with the whole URL, as clients send for http:// to proxies that they do not tunnel through."""
            proxy.seen.append(self.path)
            if proxy.refuses:
                self.send_error(403, "not from here")
                return
            path = "/" + self.path.split("://", 1)[1].split("/", 1)[1]
            with socket.create_connection(proxy.target) as there:
                lines = [f"{self.command} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in self.headers.items())]
                there.sendall(("\r\n".join(lines) + "\r\nConnection: close\r\n\r\n").encode())
                while data := there.recv(65536):
                    self.wfile.write(data)
            self.close_connection = True

        do_GET = do_HEAD = forward

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    folder = tmp_path / "shown"
    folder.mkdir()
    (folder / "data.txt").write_text("through the proxy\n")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    found = Proxy(("127.0.0.1", server.server_address[1]))
    front = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(found))
    found.port = front.server_address[1]
    for each in (server, front):
        each.daemon_threads = True
        threading.Thread(target=each.serve_forever, daemon=True).start()
    yield found
    for each in (server, front):
        each.shutdown()
        each.server_close()


def env_of(proxy: Proxy, no_proxy: str = "") -> dict[str, str]:
    address = f"http://127.0.0.1:{proxy.port}"
    names = {"HTTP_PROXY": address, "http_proxy": address, "NO_PROXY": no_proxy, "no_proxy": no_proxy}
    return {**names, "ALL_PROXY": "", "all_proxy": "", "HTTPS_PROXY": "", "https_proxy": ""}


def test_a_task_reads_through_the_proxy(run: Run, proxy: Proxy, tmp_path: Path) -> None:
    task = {
        "id": "t",
        "command": "cp data.txt out",
        "inputs": [f"http://{AWAY}/data.txt"],
        "outputs": {"out": str(tmp_path / "out.txt")},
    }
    write_list(tmp_path / "tasks.jsonl", task)
    run("run", tmp_path / "tasks.jsonl", env=env_of(proxy))
    assert (tmp_path / "out.txt").read_text() == "through the proxy\n"
    assert proxy.seen and all(AWAY in seen for seen in proxy.seen), proxy.seen


def test_what_no_proxy_names_is_asked_directly(run: Run, proxy: Proxy) -> None:
    url = f"http://127.0.0.1:{proxy.target[1]}/data.txt"
    assert run("cat", url, env=env_of(proxy, no_proxy="127.0.0.1")).stdout == "through the proxy\n"
    assert proxy.seen == []


def test_a_proxy_that_refuses_is_said(run: Run, proxy: Proxy) -> None:
    proxy.refuses = True
    done = run("cat", f"http://{AWAY}/data.txt", env=env_of(proxy), status=None)
    assert done.status != 0
    assert "403" in done.stderr or "proxy" in done.stderr.lower(), done
