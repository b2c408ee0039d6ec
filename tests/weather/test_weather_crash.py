"""Processes that die at the worst moment: executors, the dispatcher, clients."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from harness import Eyas, wait_until
from weather import Cluster, kill_now, listing, payload, programs_under


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


class SlowHome:
    """An HTTP home that sends the first half of a file, and the rest when it is told to."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.go = threading.Event()
        self.n_half_sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/{name}"

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while request := self._read_request(connection):
                    head = f'HTTP/1.1 200 OK\r\nContent-Length: {len(self.body)}\r\nETag: "v1"\r\n\r\n'
                    connection.sendall(head.encode())
                    if request.startswith(b"GET"):
                        half = len(self.body) // 2
                        connection.sendall(self.body[:half])
                        # Whoever asks for the size asks for the first byte, which this server does not know how to give.
                        self.n_half_sent += b"bytes=0-0\r\n" not in request
                        self.go.wait(120)
                        connection.sendall(self.body[half:])
            except OSError:
                return  # the other end was killed: that is what this is for

    @staticmethod
    def _read_request(connection: socket.socket) -> bytes:
        request = b""
        while b"\r\n\r\n" not in request:
            more = connection.recv(65536)
            if not more:
                return b""
            request += more
        return request

    def close(self) -> None:
        self._closing = True
        self.go.set()
        self._listener.close()


@pytest.fixture
def slow_home() -> Iterator[SlowHome]:
    home = SlowHome(payload(300_000, 77))
    yield home
    home.close()


def test_an_executor_killed_mid_task(cluster: Cluster, tmp_path: Path) -> None:
    """Its programs die with it, and the tasks run elsewhere."""
    data = cluster.file("a", 50_000, 1)
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    gate = tmp_path / "gate"
    cluster.submit([cluster.task(f"t{i}", inputs=[data], gate=gate) for i in range(4)])
    cluster.begun("t0", "t1")
    assert programs_under(cluster.node_dir("N1")), "programs run in the node's folder"
    kill_now(cluster.executors["N1"])
    wait_until(lambda: not programs_under(cluster.node_dir("N1")), "the end of the killed node's programs")
    assert not list(cluster.home.glob("*.out"))
    cluster.executor("N2", slots=2)
    gate.touch()
    cluster.wait()
    cluster.expect(**{f"t{i}": payload(50_000, 1) for i in range(4)})
    assert cluster.run_line()["n_done"] == 4
    assert sorted(cluster.ran()) == ["t0", "t0", "t1", "t1", "t2", "t3"]


def test_an_executor_killed_mid_transfer(cluster: Cluster, slow_home: SlowHome) -> None:
    """Half an object is nothing: whoever takes over has it from the start, and the dead node's half goes."""
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([cluster.task("t", inputs=[slow_home.url("x")])])
    wait_until(lambda: slow_home.n_half_sent == 1, "half of the transfer")
    kill_now(cluster.executors["N1"])
    slow_home.go.set()
    cluster.executor("N2")
    cluster.wait()
    cluster.expect(t=slow_home.body)
    cluster.executor("N1")
    assert not list((cluster.node_dir("N1") / "cache" / "incoming").iterdir())
    assert cluster.counter("N1", "cache_n_objects") == 0


def test_a_restarted_executor_brings_its_cache(cluster: Cluster) -> None:
    """After kill -9 it finds on its disk what it had, and tasks use it without asking home for a byte."""
    files = [cluster.file(f"f{i}", 40_000 + i, i) for i in range(8)]
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    cluster.submit([cluster.task(f"a{i}", inputs=[path]) for i, path in enumerate(files)])
    cluster.wait()
    kill_now(cluster.executors["N1"])
    cluster.executor("N1", slots=2)
    wait_until(lambda: cluster.counter("N1", "cache_n_objects") >= 8, "the replicas to be found again")
    cluster.submit([cluster.task(f"b{i}", inputs=[path]) for i, path in enumerate(files)])
    cluster.wait()
    cluster.expect(**{f"{run}{i}": payload(40_000 + i, i) for run in "ab" for i in range(8)})
    line = cluster.run_line(2)
    assert (line["home_bytes"], line["peer_bytes"]) == (0, 0), line
    assert line["local_bytes"] == sum(40_000 + i for i in range(8))


def test_replicas_of_a_restarted_executor_serve_its_peers(cluster: Cluster, tmp_path: Path) -> None:
    data = cluster.file("a", 200_000, 5)
    cluster.dispatcher("--placement", "max-compute-util")
    cluster.executor("N1")
    cluster.submit([cluster.task("first", inputs=[data])])
    cluster.wait()
    kill_now(cluster.executors["N1"])
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("busy", "echo busy > out", gate=gate)])
    cluster.begun("busy")
    cluster.executor("N2")
    cluster.submit([cluster.task("second", inputs=[data])])
    cluster.run("wait", "--run", "3")
    gate.touch()
    cluster.wait()
    cluster.expect(first=payload(200_000, 5), second=payload(200_000, 5), busy=b"busy\n")
    line = cluster.run_line(3)
    assert (line["peer_bytes"], line["home_bytes"]) == (200_000, 0), line


def connected_to(port: int) -> bool:
    """Whether somebody has a connection to this port of this machine."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(fields[2].endswith(f":{port:04X}") and fields[3] == "01" for fields in lines)


def test_a_peer_that_dies_while_it_is_asked(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever was fetching from it goes on with home."""
    data = cluster.file("a", 2_000_000, 6)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cluster.dispatcher("--placement", "max-compute-util", "--lease", "60s")
    holder = cluster.executor("N1", "--data-listen", f"127.0.0.1:{port}")
    cluster.submit([cluster.task("first", "wc -c < input/0000 > out", inputs=[data])])
    cluster.wait()
    cluster.submit([cluster.task("busy", "echo busy > out", gate=tmp_path / "gate")])
    cluster.begun("busy")
    cluster.executor("N2")
    holder.signal(signal.SIGSTOP)  # it accepts the connection and says nothing
    cluster.submit([cluster.task("second", inputs=[data])])
    wait_until(lambda: connected_to(port), "the fetch from the peer")
    kill_now(holder)
    cluster.run("wait", "--run", "3")
    cluster.expect(second=payload(2_000_000, 6))
    line = cluster.run_line(3)
    assert (line["peer_bytes"], line["home_bytes"]) == (0, 2_000_000), line
    (tmp_path / "gate").touch()


def test_an_executor_that_hangs_and_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    """It is given up and its task runs elsewhere; when it wakes up, it ends what is no longer its own."""
    cluster.dispatcher()
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("t", "echo right > out", gate=gate)])
    cluster.begun("t")
    cluster.executors["N1"].signal(signal.SIGSTOP)
    try:
        cluster.executor("N2")
        wait_until(lambda: cluster.ran() == ["t", "t"], "the task to begin elsewhere")
    finally:
        cluster.executors["N1"].signal(signal.SIGCONT)
    wait_until(lambda: not programs_under(cluster.node_dir("N1")), "the end of what is no longer its own")
    assert programs_under(cluster.node_dir("N2")), "the other one goes on"
    gate.touch()
    cluster.wait()
    cluster.expect(t=b"right\n")
    assert cluster.ran() == ["t", "t"]
    wait_until(lambda: cluster.state_of("N1") == "connected", "N1 to be of use again")


@contextmanager
def stranger(port: int) -> Iterator[None]:
    """Somebody else listens on that port of this machine, and says nothing to anybody."""
    with socket.create_server(("127.0.0.1", port)) as door:

        def turn_away() -> None:
            with suppress(OSError):
                while True:
                    door.accept()[0].close()

        threading.Thread(target=turn_away, daemon=True).start()
        yield
        door.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("is_port_free", [True, False])
def test_the_dispatcher_killed_mid_run(cluster: Cluster, tmp_path: Path, is_port_free: bool) -> None:
    """The run goes on: done tasks stay done, executors reconnect and keep what they run."""
    data = cluster.file("a", 10_000, 3)
    # Longer than the 15 s for which `status` looks for the dispatcher, and the search of executors for the new one after these.
    dispatcher = cluster.dispatcher("--lease", "90s")
    address = json.loads(cluster.join.read_text())["address"]
    cluster.executor("N1", slots=2)
    cluster.executor("N2", slots=2)
    before = listing(cluster.home)
    gate = tmp_path / "gate"
    quick, held, late = (
        [f"{kind}{i}" for i in range(n)] for kind, n in [("quick", 6), ("held", 4), ("late", 6)]
    )
    cluster.submit([cluster.task(name, inputs=[data]) for name in quick])
    cluster.wait()
    cluster.submit([cluster.task(name, inputs=[data], gate=gate) for name in held])
    cluster.begun(*held)
    cluster.submit([cluster.task(name, inputs=[data]) for name in late])
    running = {name: programs_under(cluster.node_dir(name)) for name in ("N1", "N2")}
    kill_now(dispatcher)
    unreachable = cluster.run("status", status=3)
    assert "cannot reach the dispatcher" in unreachable.stderr
    with nullcontext() if is_port_free else stranger(int(address.rpartition(":")[2])):
        cluster.dispatcher("--lease", "90s")
    assert (json.loads(cluster.join.read_text())["address"] == address) == is_port_free
    assert cluster.run_line(1)["n_done"] == 6, "what was done is done"
    for name in ("N1", "N2"):
        wait_until(lambda name=name: cluster.state_of(name) == "connected", f"{name} to reconnect")  # type: ignore[misc]
        assert set(running[name]) & set(programs_under(cluster.node_dir(name))), "its programs go on"
    gate.touch()
    cluster.wait()
    ends = [(line["n_done"], line["n_failed"], line["n_cancelled"]) for line in cluster.status()["runs"]]
    assert ends == [(6, 0, 0), (4, 0, 0), (6, 0, 0)]
    names = [*quick, *held, *late]
    cluster.expect(**{name: payload(10_000, 3) for name in names})
    again = {name: n for name, n in Counter(cluster.ran()).items() if n > 1}
    assert not again, f"run again although nothing of them was lost: {again}"
    expected = before | {f"{name}.out": payload(10_000, 3) for name in names}
    assert listing(cluster.home) == expected


def test_tasks_that_end_while_the_dispatcher_is_away(cluster: Cluster, tmp_path: Path) -> None:
    """It hears of their ends and of what they printed when it is back. What is not home by then goes there afterwards: an
    executor whose dispatcher does not answer may have been given up, so it puts nothing in the place of others' files."""
    dispatcher = cluster.dispatcher("--lease", "30s")
    cluster.executor("N1", slots=2)
    gate = tmp_path / "gate"
    ended = tmp_path / "ended"
    line = f"echo said by $EYAS_TASK; echo $EYAS_TASK > out; echo $EYAS_TASK >> {ended}"
    cluster.submit([cluster.task(f"t{i}", line, gate=gate) for i in range(2)])
    cluster.begun("t0", "t1")
    kill_now(dispatcher)
    gate.touch()
    wait_until(
        lambda: ended.exists() and len(ended.read_text().splitlines()) == 2,
        "the programs to end without a dispatcher",
    )
    cluster.dispatcher("--lease", "30s")
    cluster.wait()
    cluster.expect(t0=b"t0\n", t1=b"t1\n")
    assert sorted(cluster.ran()) == ["t0", "t1"]
    assert cluster.run("logs", "t0").stdout == "said by t0\n"


def n_unread(port: int) -> int:
    """The bytes that wait to be read by whoever serves this port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(queues[9:], 16) for _, local, _, _, queues, *_ in lines if int(local[9:], 16) == port)


def test_what_a_killed_dispatcher_had_not_written_is_told_again(cluster: Cluster, tmp_path: Path) -> None:
    """What a task printed is its executor's to keep until the task's end is recorded."""
    dispatcher = cluster.dispatcher("--lease", "30s")
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("t", "printf %015000d 7; echo right > out", gate=gate)])
    cluster.begun("t")
    dispatcher.signal(signal.SIGSTOP)
    gate.touch()
    port = int(json.loads(cluster.join.read_text())["address"].rpartition(":")[2])
    wait_until(lambda: n_unread(port) > 15_000, "the executor to say what the task printed")
    kill_now(dispatcher)
    cluster.dispatcher("--lease", "30s")
    cluster.wait()
    cluster.expect(t=b"right\n")
    assert cluster.run("logs", "t").stdout == f"{7:015000}"


def test_the_dispatcher_killed_many_times(cluster: Cluster) -> None:
    """A run with dependencies survives one kill after the other; each output is right."""
    data = cluster.file("a", 1_000, 8)
    dispatcher = cluster.dispatcher("--lease", "30s")
    cluster.executor("N1", slots=2)
    cluster.executor("N2", slots=2)
    tasks = []
    for i in range(40):
        tasks.append(cluster.task(f"make{i}", "sleep 0.03; cat input/* > out", inputs=[data]))
        tasks.append(cluster.task(f"use{i}", "cat input/* input/* > out", [cluster.home / f"make{i}.out"]))
    cluster.submit(tasks)
    for n_kills in range(1, 5):
        wait_until(
            lambda n=n_kills: cluster.run_line()["n_done"] >= 12 * n,  # type: ignore[misc]
            f"{12 * n_kills} tasks to be done",
        )
        n_done = cluster.run_line()["n_done"]
        kill_now(dispatcher)
        dispatcher = cluster.dispatcher("--lease", "30s")
        assert cluster.run_line()["n_done"] >= n_done
    cluster.wait()
    one = payload(1_000, 8)
    cluster.expect(**{f"make{i}": one for i in range(40)}, **{f"use{i}": one + one for i in range(40)})
    line = cluster.run_line()
    assert (line["n_done"], line["n_failed"]) == (80, 0), line


def test_both_killed_and_restarted(cluster: Cluster, tmp_path: Path) -> None:
    files = [cluster.file(f"f{i}", 30_000, i) for i in range(6)]
    dispatcher = cluster.dispatcher()
    cluster.executor("N1", slots=2)
    gate = tmp_path / "gate"
    cluster.submit(
        [cluster.task(f"t{i}", inputs=[path], gate=gate if i > 2 else None) for i, path in enumerate(files)]
    )
    wait_until(lambda: cluster.run_line()["n_done"] == 3, "three tasks to be done")
    kill_now(dispatcher)
    kill_now(cluster.executors["N1"])
    wait_until(lambda: not programs_under(cluster.node_dir("N1")), "the end of the programs")
    gate.touch()
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    cluster.wait()
    cluster.expect(**{f"t{i}": payload(30_000, i) for i in range(6)})
    ran = Counter(cluster.ran())
    assert (ran["t0"], ran["t1"], ran["t2"]) == (1, 1, 1), "what was done is not run again"


def test_without_a_dispatcher_an_executor_ends_itself(cluster: Cluster, tmp_path: Path) -> None:
    dispatcher = cluster.dispatcher("--lease", "1s")
    executor = cluster.executor("N1")
    cluster.submit([cluster.task("t", gate=tmp_path / "never")])
    cluster.begun("t")
    kill_now(dispatcher)
    ended = executor.wait(status=3)
    assert "error: no dispatcher answered for 1 s; the last try: cannot reach the dispatcher" in ended.stderr
    assert not programs_under(cluster.node_dir("N1")), "its programs end with it"


def test_an_executor_told_to_stop_hands_its_tasks_on(cluster: Cluster, tmp_path: Path) -> None:
    """SIGTERM, as a batch system sends it: no lease has to pass before the tasks run elsewhere."""
    cluster.dispatcher("--lease", "600s")
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("t", "echo right > out", gate=gate)])
    cluster.begun("t")
    cluster.executors["N1"].stop(status=0)
    assert not programs_under(cluster.node_dir("N1"))
    gate.touch()
    cluster.executor("N2")
    cluster.wait()
    cluster.expect(t=b"right\n")


class Strait:
    """A way to the dispatcher that lets so many bytes of a client pass, and then none."""

    def __init__(self, to: tuple[str, int], bytes_max: int) -> None:
        self.full = threading.Event()
        self._to = to
        self._left = bytes_max
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._pass, daemon=True).start()

    def _pass(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._to)
        self._sockets += [client, server]
        threading.Thread(target=self._back, args=(server, client), daemon=True).start()
        while self._left > 0 and (some := client.recv(min(65536, self._left))):
            server.sendall(some)
            self._left -= len(some)
        self.full.set()

    @staticmethod
    def _back(server: socket.socket, client: socket.socket) -> None:
        try:
            while some := server.recv(65536):
                client.sendall(some)
        except OSError:
            return  # closed by the test

    def close(self) -> None:
        self._listener.close()
        for one in self._sockets:
            one.close()


@pytest.mark.parametrize("bytes_max", [4_000, 100_000, 400_000])
def test_a_client_that_vanishes_while_it_submits(cluster: Cluster, bytes_max: int) -> None:
    """Nothing of half a submission starts, and its outputs can be claimed by another one."""
    cluster.dispatcher()
    cluster.executor("N1")
    # Commands without a common form, so that the list does not fold into a few hundred bytes.
    noise = [random.Random(i).randbytes(500).hex() for i in range(1000)]
    tasks = [cluster.task(f"t{i}", f"echo wrong {text} > out") for i, text in enumerate(noise)]
    join = json.loads(cluster.join.read_text())
    host, _, port = join["address"].rpartition(":")
    strait = Strait((host, int(port)), bytes_max)
    narrow = cluster.folder / "narrow.json"
    narrow.write_text(json.dumps(join | {"address": strait.address}))
    narrow.chmod(0o600)
    client = cluster.eyas.start("submit", cluster.list_of(tasks), "--join", narrow)
    assert strait.full.wait(60), "the client sends that much"
    kill_now(client)
    strait.close()
    cluster.submit([cluster.task(f"t{i}", "echo right > out") for i in range(20)])
    cluster.wait()
    cluster.expect(**{f"t{i}": b"right\n" for i in range(20)})
    assert len(cluster.ran()) == 20
    assert [line["n_tasks"] for line in cluster.status()["runs"]] == [20]


def test_a_client_that_vanishes_while_it_watches(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher()
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("t", "echo right > out", gate=gate)])
    watchers = [cluster.eyas.start("wait", "--join", cluster.join) for _ in range(3)]
    cluster.begun("t")
    kill_now(watchers[0])
    watchers[1].signal(signal.SIGSTOP)  # does not read any more, but its connection stands
    try:
        gate.touch()
        watchers[2].wait()
        cluster.wait()
    finally:
        watchers[1].signal(signal.SIGCONT)
    watchers[1].wait()
    cluster.expect(t=b"right\n")


def test_a_watcher_hears_that_the_dispatcher_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    dispatcher = cluster.dispatcher("--lease", "30s")
    cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("t", "echo right > out", gate=gate)])
    cluster.begun("t")
    watcher = cluster.eyas.start("wait", "--join", cluster.join)
    watcher.wait_for_text("0/1 tasks")
    kill_now(dispatcher)
    gone = watcher.wait(status=3)
    assert "dispatcher" in gone.stderr
    cluster.dispatcher("--lease", "30s")
    gate.touch()
    cluster.wait()
    cluster.expect(t=b"right\n")
