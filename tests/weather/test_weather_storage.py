"""Home storage that fails now and then, and home storage that eyas leaves alone."""

from __future__ import annotations

import random
import re
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, wait_until
from weather import Cluster, listing, payload

# One file's requests fail at most so often in a row: below the number of tries that eyas makes.
FAILURES_IN_A_ROW_MAX = 3

# Enough reads that the seeds' weather is bad, though each file is read from home about once.
N_FLAKY = 30


class FlakyHome(ThreadingHTTPServer):
    """An HTTP server whose answers fail by a seed: 503, bodies that break off, resets, stalls."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, seed: int, share: float) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.faults: Counter[str] = Counter()
        self.down = False
        self.n_while_down = 0
        self._share = share
        self._seed = seed
        self._asked: Counter[str] = Counter()
        self._in_a_row: Counter[str] = Counter()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def put(self, name: str, content: bytes) -> str:
        self.files[name] = content
        return self.url(name)

    def fault(self, path: str) -> str | None:
        """What this request for `path` suffers. By file and count, so that threads do not change it."""
        with self._lock:
            if self.down:
                self.n_while_down += 1
                return "503"
            self._asked[path] += 1
            dice = random.Random(f"{self._seed} {path} {self._asked[path]}")
            if self._in_a_row[path] >= FAILURES_IN_A_ROW_MAX or dice.random() > self._share:
                self._in_a_row[path] = 0
                return None
            self._in_a_row[path] += 1
            kind = dice.choice(["503", "short", "reset", "slow"])
            self.faults[kind] += 1
            return kind

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed or reset is expected here."""


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FlakyHome

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, with_body: bool) -> None:
        name = self.path.lstrip("/")
        body = self.server.files.get(name)
        fault = self.server.fault(self.path)
        if fault == "reset":
            # Closing with this option sends a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        if fault == "503" or body is None:
            self.send_response(503 if fault == "503" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, end = 0, len(body)
        ranged = self.headers.get("Range", "")
        if ranged.startswith("bytes="):
            first, _, last = ranged.removeprefix("bytes=").partition("-")
            start, end = int(first), min(len(body), int(last) + 1 if last else len(body))
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(body)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{len(body)}-v1"')
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if not with_body:
            return
        part = body[start:end]
        if fault == "short":
            self.wfile.write(part[: len(part) // 3])
            self.close_connection = True
        elif fault == "slow":
            for at in range(0, len(part), max(1, len(part) // 4)):
                self.wfile.write(part[at : at + max(1, len(part) // 4)])
                self.wfile.flush()
                threading.Event().wait(0.1)
        else:
            self.wfile.write(part)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is not the server's log."""


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    eyas.env.update({"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"})
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


@pytest.fixture
def flaky(request: pytest.FixtureRequest) -> Iterator[FlakyHome]:
    server = FlakyHome(seed=request.param, share=0.4)
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("flaky", [1, 2], indirect=True)
def test_home_that_fails_now_and_then(cluster: Cluster, flaky: FlakyHome) -> None:
    """Every task ends well, with the right bytes, and no user's retry is used up for it."""
    urls = [flaky.put(f"f{i}", payload(50_000 + 1000 * i, i)) for i in range(N_FLAKY)]
    cluster.dispatcher("--home-streams", "8")
    cluster.executor("N1", slots=2)
    cluster.executor("N2", slots=2)
    cluster.submit([cluster.task(f"t{i}", inputs=[urls[i], urls[(i + 5) % N_FLAKY]]) for i in range(N_FLAKY)])
    cluster.wait()
    cluster.expect(
        **{f"t{i}": flaky.files[f"f{i}"] + flaky.files[f"f{(i + 5) % N_FLAKY}"] for i in range(N_FLAKY)}
    )
    assert sorted(cluster.ran()) == sorted(f"t{i}" for i in range(N_FLAKY))
    assert sum(flaky.faults.values()) >= 8, f"the weather was too fine: {flaky.faults}"


@pytest.mark.parametrize("flaky", [3], indirect=True)
def test_home_that_is_down_for_longer(cluster: Cluster, flaky: FlakyHome) -> None:
    """The task fails with a sentence that names the file and what the server said; nothing hangs."""
    url = flaky.put("there", payload(1000, 1))
    flaky.down = True
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task("t", inputs=[url])])
    cluster.wait(status=1)
    (name, message), *_ = cluster.run_line()["failures"]
    assert name == "t"
    assert url in message and "503" in message, message
    assert not list(cluster.home.iterdir()), "nothing of a failed task comes home"
    flaky.down = False
    cluster.submit([cluster.task("t", inputs=[url])])
    cluster.run("wait", "--run", "2")
    cluster.expect(t=payload(1000, 1))


@pytest.mark.parametrize("flaky", [5], indirect=True)
def test_a_home_that_has_answered_is_waited_for(cluster: Cluster, flaky: FlakyHome) -> None:
    """Tasks wait while home is away for longer than a request is tried, and then end well; users see what is waited for."""
    urls = [flaky.put(f"f{i}", payload(1000, i)) for i in range(4)]
    cluster.dispatcher()
    node = cluster.executor("N1", slots=2)
    cluster.submit([cluster.task("before", inputs=[urls[0]])])
    cluster.wait()
    flaky.down = True
    cluster.submit([cluster.task(f"t{i}", inputs=[urls[i]]) for i in range(1, 4)])

    def warning() -> str:
        return "".join(line for line in cluster.status()["warnings"] if "has not answered" in line)

    wait_until(lambda: warning() != "", "the warning")
    assert warning().startswith(f"`{flaky.url('').rstrip('/')}` has not answered 1 node for "), warning()
    assert "503" in warning(), warning()
    explained = cluster.run("explain", "t1").stdout
    assert (
        f"Why: its node waits for `{flaky.url('').rstrip('/')}`, which has not answered for" in explained
    ), explained
    # A request is tried for some six seconds; all three have failed by then, and wait.
    time.sleep(15)
    assert cluster.run_line(2)["n_failed"] == 0
    flaky.down = False
    cluster.wait()
    cluster.expect(**{f"t{i}": payload(1000, i) for i in range(1, 4)})
    assert sorted(cluster.ran()) == ["before", "t1", "t2", "t3"], "each ran once"
    wait_until(lambda: warning() == "", "the end of the warning")
    assert node.stderr.count("does not answer, and this node waits up to 300 s for it: ") == 1, node.stderr
    assert node.stderr.count(" answers again after ") == 1, node.stderr


@pytest.mark.parametrize("flaky", [7], indirect=True)
def test_a_cancelled_task_waits_no_longer(cluster: Cluster, flaky: FlakyHome) -> None:
    url = flaky.put("f", payload(1000, 1))
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task("before", inputs=[url])])
    cluster.wait()
    other = flaky.put("g", payload(1000, 2))
    flaky.down = True
    cluster.submit([cluster.task("t", inputs=[other])])

    def is_waited_for() -> bool:
        return any("has not answered" in line for line in cluster.status()["warnings"])

    wait_until(is_waited_for, "the warning")
    cluster.run("cancel", "--run", "2")
    cluster.wait(status=1)
    wait_until(lambda: not is_waited_for(), "the end of the wait, although home is still away")


@pytest.mark.parametrize("flaky", [6], indirect=True)
def test_a_home_is_not_waited_for_longer_than_asked(cluster: Cluster, flaky: FlakyHome) -> None:
    urls = [flaky.put(f"f{i}", payload(1000, i)) for i in range(2)]
    cluster.dispatcher()
    cluster.executor("N1", "--home-wait", "1s")
    cluster.submit([cluster.task("before", inputs=[urls[0]])])
    cluster.wait()
    flaky.down = True
    cluster.submit([cluster.task("t", inputs=[urls[1]])])
    cluster.wait(status=1)
    (_, message), *_ = cluster.run_line(2)["failures"]
    assert urls[1] in message and "503" in message, message
    assert re.search("it has not answered this node for [0-9]+ s, and --home-wait is 1 s", message), message
    # A run of many tasks ends soon: few of them still ask.
    n_before = flaky.n_while_down
    many = [flaky.put(f"many{i}", payload(1000, i)) for i in range(200)]
    cluster.submit([cluster.task(f"m{i}", inputs=[url]) for i, url in enumerate(many)])
    cluster.wait(status=1)
    assert cluster.run_line(3)["n_failed"] == 200
    assert flaky.n_while_down - n_before < 100, "most tasks fail without a request"
    (_, message), *_ = cluster.run_line(3)["failures"]
    assert "--home-wait is 1 s" in message, message


@pytest.mark.parametrize("flaky", [4], indirect=True)
def test_a_file_that_is_not_there_is_told_at_once(cluster: Cluster, flaky: FlakyHome) -> None:
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task("t", inputs=[flaky.url("absent")])])
    cluster.wait(status=1)
    (_, message), *_ = cluster.run_line()["failures"]
    assert flaky.url("absent") in message and ("not found" in message or "404" in message), message


def test_shared_storage_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    """At home there is afterwards what was declared, and nothing else, failed and cancelled tasks included."""
    data = cluster.home / "in"
    data.mkdir()
    for i in range(10):
        (data / f"{i}.dat").write_bytes(payload(5_000, i))
    before = listing(cluster.home)
    stamps = {path: path.stat().st_mtime_ns for path in [data, *data.iterdir()]}
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    gate = tmp_path / "gate"
    tasks = [cluster.task(f"t{i}", inputs=[data / f"{i}.dat"]) for i in range(10)]
    for i, task in enumerate(tasks):
        task["outputs"] = {"out": str(cluster.home / "results" / "deep" / f"{i}.out")}
    tasks.append(cluster.task("fails", "echo half > out; touch extra core; exit 7"))
    tasks.append(cluster.task("undeclared", "echo declared > out; echo more > undeclared; mkdir -p a/b"))
    cluster.submit(tasks)
    cluster.wait(status=1)
    cluster.submit([cluster.task("cancelled", "echo half > out", gate=gate)])
    cluster.begun("cancelled")
    cluster.run("cancel", "cancelled")
    cluster.run("wait", "--run", "2", status=1)
    expected = before | {"results/": b"", "results/deep/": b"", "undeclared.out": b"declared\n"}
    expected |= {f"results/deep/{i}.out": payload(5_000, i) for i in range(10)}
    assert listing(cluster.home) == expected
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps, "inputs are not touched"


def test_home_local_inputs_are_read_where_they_are(cluster: Cluster) -> None:
    """With --home-local nothing is copied into a cache, and the files stay what they are."""
    data = cluster.file("a", 100_000, 1)
    inode = data.stat().st_ino
    cluster.dispatcher()
    cluster.executor("N1", "--home-local", str(cluster.home))
    cluster.submit([cluster.task("t", inputs=[data])])
    cluster.wait()
    cluster.expect(t=payload(100_000, 1))
    wait_until(lambda: cluster.find_node("N1") is not None, "the node")
    assert data.read_bytes() == payload(100_000, 1) and data.stat().st_ino == inode
    assert cluster.run_line()["home_bytes"] == 0


@pytest.mark.parametrize("n_interrupts", [1, 2])
def test_an_interrupt_while_an_output_lands_lets_it_land_or_leaves_nothing(
    eyas: Eyas, tmp_path: Path, n_interrupts: int
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    line = "head -c 3000000 /dev/zero > {out}"
    slow = ("--home-rate", "500KB", "--out", f"{home}/{{index}}")
    mapping = eyas.start("map", "--range", "0..1", *slow, "--shell", "--", line)
    wait_until(lambda: list(home.glob(".eyas-part-*")), "an output on its way", alive=mapping)
    mapping.signal(signal.SIGINT)
    mapping.wait_for_text("the outputs of 1 task are on their way home, which is finished first")
    if n_interrupts == 2:
        mapping.signal(signal.SIGINT)
    done = mapping.wait(status=130)
    there = {path.name: path.stat().st_size for path in home.iterdir()}
    assert there == ({"0": 3_000_000} if n_interrupts == 1 else {}), done
    assert ("1 done, 0 failed, 0 cancelled" in done.stderr) == (n_interrupts == 1)
