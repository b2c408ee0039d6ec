"""Homes whose answers prove little: no version, another answer to HEAD; and credentials that are renewed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from harness import Run, Start, wait_until


class Web(BaseHTTPRequestHandler):
    """One file under each name. Nothing tells its version, and HEAD is answered wrongly."""

    protocol_version = "HTTP/1.1"
    body = b""
    etag = ""
    head: tuple[int, int] = (200, 0)

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.send_response(self.head[0])
        self.send_header("Content-Length", str(self.head[1]))
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        if self.etag:
            self.send_header("ETag", self.etag)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)


class S3(BaseHTTPRequestHandler):
    """A bucket that lets one key in; every object is `v`."""

    protocol_version = "HTTP/1.1"
    good = "KEYONE"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        is_good = self.good in self.headers.get("authorization", "")
        body = b"v" if is_good else b"<Error><Code>ExpiredToken</Code></Error>"
        self.send_response(200 if is_good else 400)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def up(run: Run, tmp_path: Path) -> Iterator[None]:
    yield
    run("down", "--join", tmp_path / "C/dispatcher/join.json", status=None)


@pytest.mark.usefixtures("up")
def test_a_web_file_without_a_version_is_read_anew_for_each_run(run: Run, tmp_path: Path) -> None:
    class Changing(Web):
        pass

    with serving(Changing) as web:
        run("up", "--dir", "C", "--nodes", "1")
        join = {"EYAS_JOIN": str(tmp_path / "C/dispatcher/join.json")}
        for etag in ("", 'W/"same"'):
            Changing.etag = etag
            for letter in (b"A", b"B"):
                Changing.body = letter * 1000
                said = run("map", f"{web}/f{len(etag)}", "--print", "--", "head", "-c", "1", "{in}", env=join)
                assert said.stdout.encode() == letter
        # HEAD says anything.
        for number, head in enumerate([(404, 0), (500, 0), (403, 0), (302, 0), (200, 7)]):
            Changing.head = head
            said = run("map", f"{web}/{number}", "--print", "--shell", "--", "wc -c < {in}", env=join)
            assert said.stdout.strip() == "1000"


@pytest.mark.usefixtures("up")
def test_renewed_credentials_are_used_and_waited_for(run: Run, tmp_path: Path) -> None:
    def renew(key: str) -> None:
        text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = s\naws_session_token = t\n"
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", tmp_path / "credentials")

    class Bucket(S3):
        pass

    with serving(Bucket) as server:
        renew("KEYONE")
        env = {
            "AWS_ENDPOINT_URL": server,
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        run("up", "--dir", "C", "--nodes", "1", env=env)
        env["EYAS_JOIN"] = str(tmp_path / "C/dispatcher/join.json")
        read = ["--print", "--", "cat", "{in}"]
        assert run("map", "s3://b/in/1", *read, env=env).stdout == "v"
        renew("KEYTWO")
        Bucket.good = "KEYTWO"
        assert run("map", "s3://b/in/2", *read, env=env).stdout == "v"
        # They expire before they are renewed.
        Bucket.good = "KEYTHREE"
        task = '{"id": "a", "command": "cat x > y", "inputs": {"x": "s3://b/in/3"}, "outputs": {"y": "y"}}\n'
        (tmp_path / "t.jsonl").write_text(task)
        run("submit", "t.jsonl", env=env)
        wait_until(lambda: "have expired" in run("status", env=env).stdout, "the reason in the status", 30)
        assert "s3://b" in run("status", env=env).stdout
        renew("KEYTHREE")
        run("wait", env=env)
        assert (tmp_path / "y").read_text() == "v"


@pytest.mark.usefixtures("up")
def test_a_right_that_is_taken_away_is_waited_for_and_one_file_without_it_fails_alone(
    run: Run, start: Start, tmp_path: Path
) -> None:
    class Bucket(S3):
        is_shut = False

        def do_GET(self) -> None:
            if not self.is_shut and "secret" not in self.path:
                return super().do_GET()
            body = b"<Error><Code>AccessDenied</Code></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    with serving(Bucket) as server:
        env = {
            "AWS_ENDPOINT_URL": server,
            "AWS_ACCESS_KEY_ID": "KEYONE",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        run("up", "--dir", "C", "--nodes", "1", env=env)
        env["EYAS_JOIN"] = str(tmp_path / "C/dispatcher/join.json")
        read = ["--print", "--", "cat", "{in}"]
        assert run("map", "s3://b/in/1", *read, env=env).stdout == "v"
        # Others are let in, so nobody waits for this one.
        said = run("map", "s3://b/in/secret", *read, env=env, status=1)
        assert said.seconds < 30 and "access is denied" in said.stderr
        Bucket.is_shut = True
        task = '{"id": "a", "command": "cat x > y", "inputs": {"x": "s3://b/in/3"}, "outputs": {"y": "y"}}\n'
        (tmp_path / "t.jsonl").write_text(task)
        run("submit", "t.jsonl", env=env)
        waiting = start("wait", env=env)
        waiting.wait_for_text("nodes wait for `s3://b`, which no longer lets them read what they read before")
        explained = run("explain", "a", env=env).stdout
        assert "its node waits for `s3://b`, which has refused it for" in explained, explained
        assert "such as `s3://b/in/1`: " in run("status", env=env).stdout
        Bucket.is_shut = False
        waiting.wait()
        assert (tmp_path / "y").read_text() == "v"


class Stalls(Web):
    """A file of which the second half never comes."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2000000")
        self.end_headers()
        self.wfile.write(b"x" * 1000000)
        self.wfile.flush()
        self.rfile.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_copy_that_is_ended_leaves_no_part(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    to = tmp_path / "to"
    to.mkdir()
    with serving(Stalls) as address:
        copy = start("cp", f"{address}/file", "to/file")
        wait_until(lambda: any(part.stat().st_size for part in to.iterdir()), "a part of it", alive=copy)
        copy.signal(number)
        copy.wait(status=130)
    assert not list(to.iterdir())
