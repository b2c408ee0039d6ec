"""`eyas warm` from homes on other machines: each file is read there once, however many nodes get it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from buckets import Server, moto
from harness import Run, wait_until

N_FILES, N_NODES, FILE_BYTES = 6, 3, 300_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with moto(tmp_path) as started:
        yield started


@pytest.fixture
def at(server: Server, tmp_path: Path) -> Iterator[Callable[[str, dict[str, bytes]], tuple[str, list[str]]]]:
    """Puts files into a home: its root, and words that mean the files."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    web = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=web.serve_forever)
    thread.start()

    def put(home: str, files: dict[str, bytes]) -> tuple[str, list[str]]:
        bucket = server.new_bucket()
        for name, data in files.items():
            server.ask("PUT", f"/{bucket}/{name}", data)
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        if home == "s3":
            return f"s3://{bucket}", [f"s3://{bucket}/run/*"]
        # A web server has no list of its files.
        root = f"http://127.0.0.1:{web.server_port}"
        return root, [f"{root}/{name}" for name in files]

    yield put
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.mark.parametrize("home", ["s3", "http"])
def test_a_home_elsewhere_is_read_once_for_all_nodes(
    run: Run, server: Server, at: Callable[[str, dict[str, bytes]], tuple[str, list[str]]], home: str
) -> None:
    files = {f"run/f{i}": os.urandom(FILE_BYTES) for i in range(N_FILES)}
    root, places = at(home, files)
    env = server.env()
    run("up", "--dir", "c", "--nodes", str(N_NODES), "--slots", "1", env=env)
    try:
        pushed = json.loads(run("warm", *places, "--json", env=env).stdout)
        assert (pushed["n_files"], pushed["n_nodes"]) == (N_FILES, N_NODES)
        assert pushed["n_there"] == pushed["n_wanted"] == N_FILES * N_NODES, pushed
        assert pushed["there_bytes"] == N_FILES * N_NODES * FILE_BYTES

        def read_bytes() -> int:
            nodes = json.loads(run("status", "--json").stdout)["executors"]
            return sum(int(node["status"]["home_read_bytes"]) for node in nodes)

        wait_until(lambda: read_bytes() >= N_FILES * FILE_BYTES, "the nodes' counts")
        assert read_bytes() == N_FILES * FILE_BYTES
        story = json.loads(run("explain", f"{root}/run/f3", "--json", env=env).stdout)
        assert len(story["there"]) == N_NODES, story
    finally:
        run("down", env=env)
