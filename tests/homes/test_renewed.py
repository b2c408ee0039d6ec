"""Credentials that are renewed while a cluster is up, at Azure's and Google's storage: used, and waited for once they expired."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from clouds import ACCOUNT, Google, azurite, fake_gcs
from harness import Finished, Run, wait_until
from test_homes_clouds import NOBODY, needs
from tls import Certified, certified


@pytest.fixture
def up(run: Run, tmp_path: Path) -> Iterator[None]:
    yield
    run("down", "--join", tmp_path / "C/dispatcher/join.json", status=None)


def replace(path: Path, text: str) -> None:
    """Whoever reads it reads the old text or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)


class Waited:
    """A cluster of one node, and a task whose input it may not read until somebody renews what it has."""

    def __init__(self, run: Run, folder: Path, env: dict[str, str]) -> None:
        self.run, self.folder = run, folder
        run("up", "--dir", "C", "--nodes", "1", env=env)
        self.env = env | {"EYAS_JOIN": str(folder / "C/dispatcher/join.json")}

    def try_to_read(self, location: str, status: int | None = None) -> Finished:
        return self.run("map", location, "--print", "--", "cat", "{in}", env=self.env, status=status)

    def read(self, location: str) -> str:
        return self.try_to_read(location, 0).stdout

    def submit(self, location: str) -> None:
        task = {"id": "a", "command": "cat x > y", "inputs": {"x": location}, "outputs": {"y": "y"}}
        (self.folder / "t.jsonl").write_text(json.dumps(task) + "\n")
        self.run("submit", "t.jsonl", env=self.env)

    def status(self) -> str:
        return self.run("status", env=self.env).stdout

    def end(self) -> str:
        self.run("wait", env=self.env)
        return (self.folder / "y").read_text()


def token_of_azure(seconds: float) -> str:
    """One that Azurite takes for so long: it looks at what is said, and not at the signature."""
    now = int(time.time())
    said = {
        "aud": "https://storage.azure.com/",
        "iss": "https://sts.windows.net/0f3b1a3e-0000-0000-0000-000000000000/",
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + int(seconds),
        "ver": "1.0",
    }

    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256', 'typ': 'JWT'})}.{part(dict(said))}.{part({'no': 'signature'})}"


@needs("azurite-blob")
@pytest.mark.usefixtures("up")
def test_a_login_at_azure_that_is_renewed_is_used_and_waited_for(run: Run, tmp_path: Path) -> None:
    files, token = certified(tmp_path, "127.0.0.1", "localhost"), tmp_path / "token"
    trusted = ssl.create_default_context(cafile=str(files.authority))
    options = ["--oauth", "basic", "--cert", str(files.certificate), "--key", str(files.key)]
    (tmp_path / "azurite").mkdir()
    # `az account get-access-token`, as the library asks it; what it says of the end is later than what the server takes.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "az").write_text(
        "#!/bin/sh\n"
        f'printf \'{{"accessToken": "%s", "expires_on": {int(time.time()) + 36000}, "tokenType": "Bearer"}}\' '
        f'"$(cat {token})"\n'
    )
    (tools / "az").chmod(0o755)
    with azurite(tmp_path / "azurite", *options) as server:

        def asked(method: str, path: str, value: str, body: bytes | None = None) -> int:
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=trusted)
            headers = {"authorization": f"Bearer {value}", "x-ms-version": "2023-11-03"}
            if body is not None:
                headers |= {"x-ms-blob-type": "BlockBlob", "content-length": str(len(body))}
            connection.request(method, f"/{ACCOUNT}{path}", body=body, headers=headers)
            status = connection.getresponse().status
            connection.close()
            return status

        long = token_of_azure(3600)
        assert asked("PUT", "/renewed?restype=container", long) == 201
        for name in "123":
            assert asked("PUT", f"/renewed/{name}", long, b"v") == 201
        env = NOBODY | {
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_SERVICE_ENDPOINT": f"https://127.0.0.1:{server.port}/{ACCOUNT}",
            "SSL_CERT_FILE": str(files.authority),
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        cluster = Waited(run, tmp_path, env)
        # It ends while the node has it. Where this machine is so slow that it ends before, the next one lasts longer.
        for seconds in (6, 12, 24, 48):
            short = token_of_azure(seconds)
            replace(token, short)
            if cluster.try_to_read("az://renewed/1").stdout == "v":
                break
        wait_until(lambda: asked("GET", "/renewed/1", short) != 200, "the end of the login", 60)
        cluster.submit("az://renewed/2")
        wait_until(
            lambda: "does not accept the credentials" in cluster.status(), "the reason in the status", 60
        )
        assert "az://renewed" in cluster.status()
        replace(token, long)
        assert cluster.end() == "v"
        assert cluster.read("az://renewed/3") == "v"


class Tokens:
    """What Google's own servers know of tokens: which one is good, and which one a login is given."""

    def __init__(self) -> None:
        self.good = ""
        self.of_login: dict[str, str] = {}


@contextmanager
def google_that_wants_tokens(server: Google, files: Certified, tokens: Tokens) -> Iterator[str]:
    """The URL of a proxy behind which Google's names are: its tokens, and its storage, which is `server`."""
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(files.certificate, files.key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        host = ""

        def log_message(self, *_args: object) -> None:
            pass

        def do_CONNECT(self) -> None:
            self.host = self.path.split(":")[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            self.connection = of_server.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)
            self.close_connection = False

        def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.host == "oauth2.googleapis.com":
                login = (parse_qs(body.decode()).get("refresh_token") or [""])[0]
                if not login and body.startswith(b"{"):
                    login = json.loads(body)["refresh_token"]
                if login not in tokens.of_login:
                    return self.answer(400, b'{"error": "invalid_grant"}')
                given = {"access_token": tokens.of_login[login], "expires_in": 36000, "token_type": "Bearer"}
                return self.answer(200, json.dumps(given).encode())
            if self.headers.get("authorization") != f"Bearer {tokens.good}":
                return self.answer(401, b'{"error": {"code": 401, "message": "Invalid Credentials"}}')
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            kept = ("content-type", "range")
            headers = {name: value for name, value in self.headers.items() if name.lower() in kept}
            connection.request(self.command, self.path, body=body or None, headers=headers)
            real = connection.getresponse()
            data = real.read()
            self.send_response(real.status)
            dropped = ("transfer-encoding", "connection", "content-length", "server", "date")
            for name, value in real.getheaders():
                if name.lower() not in dropped:
                    self.send_header(name, value)
            size = real.getheader("content-length") if self.command == "HEAD" else None
            self.send_header("content-length", size or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
            connection.close()

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}"
    finally:
        proxy.shutdown()
        proxy.server_close()


@needs("fake-gcs-server")
@pytest.mark.usefixtures("up")
def test_a_login_at_google_that_is_renewed_is_used_and_waited_for(run: Run, tmp_path: Path) -> None:
    """`gcloud auth application-default login` writes its file anew."""
    files, login = (
        certified(tmp_path, "storage.googleapis.com", "oauth2.googleapis.com"),
        tmp_path / "login.json",
    )
    tokens = Tokens()

    def renew(number: int) -> None:
        said = {
            "type": "authorized_user",
            "client_id": "c",
            "client_secret": "s",
            "refresh_token": f"login{number}",
        }
        replace(login, json.dumps(said))
        tokens.of_login[f"login{number}"] = f"token{number}"

    (tmp_path / "gcs").mkdir()
    with (
        fake_gcs(tmp_path / "gcs") as server,
        google_that_wants_tokens(server, files, tokens) as proxy,
    ):
        bucket = server.new_bucket("renewed")
        renew(1)
        tokens.good = "token1"
        env = NOBODY | {
            "GOOGLE_APPLICATION_CREDENTIALS": str(login),
            "HTTPS_PROXY": proxy,
            "https_proxy": proxy,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "SSL_CERT_FILE": str(files.authority),
        }
        for name in "1234":
            (tmp_path / name).write_text("v")
        run("cp", *"1234", f"gs://{bucket}/in/", env=env)
        cluster = Waited(run, tmp_path, env)
        assert cluster.read(f"gs://{bucket}/in/1") == "v"
        # Another one is there when the old one ends, and then none is.
        renew(2)
        tokens.good = "token2"
        assert cluster.read(f"gs://{bucket}/in/2") == "v"
        tokens.good = "token3"
        cluster.submit(f"gs://{bucket}/in/3")
        wait_until(lambda: f"gs://{bucket}" in cluster.status(), "the home in the status", 60)
        assert "credentials" in cluster.status()
        renew(3)
        assert cluster.end() == "v"
        assert cluster.read(f"gs://{bucket}/in/4") == "v"
