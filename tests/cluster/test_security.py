"""Nobody else gets in: not with another cluster's secret, an old version, garbage, or no ticket."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from harness import Background, Eyas, Run, wait_until
from weather import Cluster, kill_now, payload

MAGIC = b"EYAS"
PROTOCOL = 30
PREAMBLE_BYTES = 8
PATIENCE_S = 30.0


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def address_of(join: Path) -> tuple[str, int]:
    host, _, port = json.loads(join.read_text())["address"].rpartition(":")
    return host, int(port)


@contextmanager
def member(join: Path, folder: Path) -> Iterator[ssl.SSLSocket]:
    """A connection that is let in: the join file's certificate inside TLS, and nothing said yet."""
    secrets: dict[str, Any] = json.loads(join.read_text())
    (folder / "member.pem").write_text(secrets["certificate_pem"] + secrets["key_pem"])
    # Whether the dispatcher is a member is for eyas to check; this peer only has to be let in.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(folder / "member.pem")
    with (
        socket.create_connection(address_of(join), timeout=PATIENCE_S) as tcp,
        context.wrap_socket(tcp, server_hostname="member.eyas") as tls,
    ):
        yield tls


def rest(connection: socket.socket) -> bytes:
    """Everything until the other side ends the connection, which it has to do."""
    got = b""
    with suppress(ConnectionResetError, ssl.SSLError):
        while some := connection.recv(65536):
            got += some
    return got


def still_works(cluster: Cluster, name: str) -> None:
    """A task can be submitted, runs, and its output is right."""
    cluster.submit([cluster.task(name, f"echo {name} > out")])
    cluster.wait()
    cluster.expect(**{name: f"{name}\n".encode()})


def preamble(version: int) -> bytes:
    return MAGIC + struct.pack("<HH", version, 0)


def test_the_join_file_is_private_and_appears_when_the_dispatcher_answers(cluster: Cluster) -> None:
    started = cluster.eyas.start("dispatcher", "--dir", cluster.dir)
    wait_until(cluster.join.exists, "the join file", alive=started)
    # No retry: whoever sees the file can use it.
    assert cluster.status()["runs"] == []
    assert stat.S_IMODE(cluster.join.stat().st_mode) == 0o600
    private = [
        p for p in cluster.dir.rglob("*") if p.is_file() and "key_pem" in p.read_text(errors="replace")
    ]
    assert len(private) == 2, "the join file and the dispatcher's own copy"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in private)
    started.stop(status=0)
    assert not cluster.join.exists(), "a dispatcher that ended takes its join file along"
    gone = cluster.run("status", status=3)
    assert "error: cannot read the join file" in gone.stderr, gone.stderr


def test_a_stale_join_file_goes_when_a_dispatcher_starts(cluster: Cluster) -> None:
    """After kill -9 the file names a port where nobody answers; the next start removes it first."""
    kill_now(cluster.dispatcher())
    stale = cluster.join.stat().st_mtime_ns
    started = cluster.eyas.start("dispatcher", "--dir", cluster.dir)
    # The new process takes the same port, so the new file says the same.
    wait_until(
        lambda: not cluster.join.exists() or cluster.join.stat().st_mtime_ns != stale,
        "the stale file to go",
        alive=started,
    )
    wait_until(cluster.join.exists, "the new file", alive=started)
    assert cluster.status()["runs"] == []


def test_the_wrong_secret(cluster: Cluster, eyas: Eyas, tmp_path: Path) -> None:
    """A join file of another cluster opens nothing, for clients and executors alike."""
    cluster.dispatcher()
    cluster.executor("N1")
    other = Cluster(eyas, tmp_path / "other", tmp_path / "other-home")
    other.dispatcher()
    forged = json.loads(other.join.read_text()) | {"address": json.loads(cluster.join.read_text())["address"]}
    forged_path = tmp_path / "forged.json"
    forged_path.write_text(json.dumps(forged))
    forged_path.chmod(0o600)
    tasks = other.list_of([other.task("t", "echo wrong > out")])
    sentence = "does not let this join file in"
    for verb in (["status"], ["submit", str(tasks)], ["wait"], ["cancel", "--all"], ["down"]):
        refused = eyas.run(*verb, "--join", forged_path, status=3)
        assert sentence in refused.stderr, refused
        assert refused.stdout == ""
    executor = eyas.start("executor", "--join", forged_path, "--dir", tmp_path / "X", "--name", "stranger")
    assert sentence in executor.wait(status=3).stderr
    assert cluster.find_node("stranger") is None
    assert cluster.status()["runs"] == []
    still_works(cluster, "after")


def test_a_broken_join_file_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "join.json"
    for text in ["", "{", '{"version": 1}', "[]", '{"version": 9, "address": "127.0.0.1:1"}']:
        path.write_text(text)
        path.chmod(0o600)
        refused = cluster.eyas.run("status", "--join", path, status=3)
        assert refused.stderr.startswith(f"error: `{path}` is not a join file of this version of eyas"), (
            refused
        )
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("version", [0, 1, 65535])
def test_another_protocol_version(cluster: Cluster, tmp_path: Path, version: int) -> None:
    """It learns which version is spoken here, and gets nothing else; the dispatcher lives on."""
    cluster.dispatcher()
    cluster.executor("N1")
    with member(cluster.join, tmp_path) as peer:
        peer.sendall(preamble(version) + b"\x05\x00\x00\x00whatever an old version said")
        answer = rest(peer)
    assert answer[:4] == MAGIC
    assert struct.unpack("<H", answer[4:6])[0] == PROTOCOL
    assert len(answer) == PREAMBLE_BYTES, "nothing but its version"
    still_works(cluster, "after")


def test_an_old_dispatcher_is_named_by_the_client(cluster: Cluster, tmp_path: Path) -> None:
    """The other way round: this eyas meets a dispatcher of an old version and says what to do."""
    cluster.dispatcher()
    secrets = json.loads(cluster.join.read_text())
    (tmp_path / "server.pem").write_text(secrets["certificate_pem"] + secrets["key_pem"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        old = tmp_path / "old.json"
        old.write_text(json.dumps(secrets | {"address": f"127.0.0.1:{listener.getsockname()[1]}"}))
        old.chmod(0o600)
        client = cluster.eyas.start("status", "--join", old)
        tcp, _ = listener.accept()
        with context.wrap_socket(tcp, server_side=True) as tls:
            tls.sendall(preamble(0))
            said = client.wait(status=3).stderr
    assert f"speaks protocol version 0, this eyas speaks {PROTOCOL}" in said
    assert "install the same version" in said


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="plain-http"),
        pytest.param(os.urandom(100_000), id="random"),
        pytest.param(b"", id="silence"),
        pytest.param(b"\x16\x03\x01\xff\xff" + b"\x01" * 100, id="half-a-tls-hello"),
    ],
)
def test_a_stranger_at_the_dispatchers_port(cluster: Cluster, said: bytes) -> None:
    """Nobody gets an answer who does not open with the cluster's TLS, and others are served meanwhile."""
    cluster.dispatcher()
    cluster.executor("N1")
    with socket.create_connection(address_of(cluster.join), timeout=PATIENCE_S) as stranger:
        with suppress(ConnectionError):
            stranger.sendall(said)
        still_works(cluster, "meanwhile")
        got = rest(stranger)
    assert MAGIC not in got and b"eyas" not in got.lower(), got
    assert len(got) < 100, "a TLS alert at most"
    still_works(cluster, "after")


@pytest.mark.parametrize(
    ("frame", "closes"),
    [
        pytest.param(b"\xff\xff\xff\xff", True, id="huge-length"),
        pytest.param(struct.pack("<I", 256 << 20) + b"x" * 1000, False, id="largest-length-and-then-nothing"),
        pytest.param(struct.pack("<I", 4) + b"\xff\xff\xff\xff", True, id="unknown-message"),
        pytest.param(struct.pack("<I", 0), True, id="empty"),
        pytest.param(struct.pack("<I", 12) + b"\x01" + b"\xff" * 9 + b"\x01x", True, id="huge-string"),
        pytest.param(b"\xff" * 50_000, True, id="noise"),
    ],
)
def test_a_member_that_talks_nonsense(cluster: Cluster, tmp_path: Path, frame: bytes, closes: bool) -> None:
    """Even a peer with the secret cannot take memory or end the dispatcher with a malformed frame."""
    dispatcher = cluster.dispatcher()
    cluster.executor("N1")
    with member(cluster.join, tmp_path) as peer:
        with suppress(ConnectionError, ssl.SSLError):
            peer.sendall(preamble(1) + frame)
        still_works(cluster, "meanwhile")
        assert cluster.status()["own_rss_bytes"] < 100 << 20, "no memory is taken for what is only announced"
        if closes:
            assert rest(peer)[PREAMBLE_BYTES:] == b""
    assert dispatcher.is_alive()
    still_works(cluster, "after")


def test_two_dispatchers_on_one_directory(cluster: Cluster) -> None:
    """The second one says who is there, and does not disturb the first."""
    first = cluster.dispatcher()
    join = cluster.join.read_text()
    second = cluster.eyas.run("dispatcher", "--dir", cluster.dir, status=3)
    assert f"another dispatcher (pid {first.pid}) uses" in second.stderr
    assert second.stderr.count("\n") == 1, second.stderr
    assert cluster.join.read_text() == join
    cluster.executor("N1")
    still_works(cluster, "after")


def test_two_executors_on_one_directory(cluster: Cluster) -> None:
    cluster.dispatcher()
    first = cluster.executor("N1")
    second = cluster.eyas.start(
        "executor", "--join", cluster.join, "--dir", cluster.node_dir("N1"), "--name", "N2"
    )
    refused = second.wait(status=3)
    assert f"is used by another executor (process {first.pid})" in refused.stderr
    assert refused.stderr.count("\n") == 1, refused.stderr
    assert cluster.find_node("N2") is None
    still_works(cluster, "after")


def test_a_second_run_in_a_directory_in_use(cluster: Cluster) -> None:
    """`eyas run --dir` beside a live cluster of that directory: refused, and the cluster is not disturbed."""
    dispatcher_dir = cluster.folder / "both" / "dispatcher"
    started = cluster.eyas.start("dispatcher", "--dir", dispatcher_dir)
    join = dispatcher_dir / "join.json"
    wait_until(join.exists, "the join file", alive=started)
    tasks = cluster.list_of([cluster.task("t", "echo wrong > out")])
    refused = cluster.eyas.run("run", tasks, "--dir", cluster.folder / "both", status=3)
    assert f"another dispatcher (pid {started.pid})" in refused.stderr
    assert not list(cluster.home.iterdir())
    cluster.eyas.run("status", "--join", join)


# ---------------------------------------------------------------- the data plane


def listening_port(part: Background) -> int:
    """The port on which a process listens; an executor has one, for its peers."""
    wanted = {os.readlink(f) for f in Path(f"/proc/{part.pid}/fd").iterdir() if os.path.islink(f)}
    for line in Path(f"/proc/{part.pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in wanted:
            return int(fields[1].partition(":")[2], 16)
    raise AssertionError("it does not listen")


@pytest.mark.parametrize("plane", ["signed", "tls"])
def test_a_peer_without_the_secret_gets_nothing(cluster: Cluster, plane: str) -> None:
    """The holder tells its half of the greeting and hangs up on a wrong proof, whatever is asked for."""
    content = payload(100_000, 3)
    data = cluster.file("a", 100_000, 3)
    cluster.dispatcher()
    executor = cluster.executor("N1", "--data-plane", plane)
    cluster.submit([cluster.task("t", inputs=[data])])
    cluster.wait()
    hello = b"eyasdata" + struct.pack("<H", 1) + os.urandom(32) + struct.pack("<I", 7)
    digests = [
        bytes.fromhex(p.name)
        for p in (cluster.node_dir("N1") / "cache" / "objects").rglob("*")
        if p.is_file()
    ]
    ticket = digests[0] + struct.pack("<QIIQ", len(content), 1, 7, 1 << 50) + os.urandom(32)
    request = ticket + struct.pack("<QQB", 0, len(content), 1)
    forgery = hello + os.urandom(32) + request
    for said in [forgery, hello, b"GET / HTTP/1.1\r\n\r\n", os.urandom(5_000), b"eyasdata\x00\x00", b""]:
        with socket.create_connection(("127.0.0.1", listening_port(executor)), timeout=PATIENCE_S) as peer:
            with suppress(OSError):  # it may have hung up already
                peer.sendall(said)
                peer.shutdown(socket.SHUT_WR)
            got = rest(peer)
        assert len(got) <= 200, f"{len(got)} bytes for a stranger"
        assert content[:64] not in got
    assert executor.is_alive()
    still_works(cluster, "after")


def test_peers_with_tickets_get_what_they_need_over_tls(cluster: Cluster, tmp_path: Path) -> None:
    """The other side of the same coin: with --data-plane=tls executors still serve each other."""
    data = cluster.file("a", 1_500_000, 3)
    cluster.dispatcher("--placement", "max-compute-util")
    cluster.executor("N1", "--data-plane", "tls")
    cluster.submit([cluster.task("first", "wc -c < input/0000 > out", inputs=[data])])
    cluster.wait()
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("busy", "echo busy > out", gate=gate)])
    cluster.begun("busy")
    cluster.executor("N2", "--data-plane", "tls")
    cluster.submit([cluster.task("second", inputs=[data])])
    cluster.run("wait", "--run", "3")
    gate.touch()
    cluster.wait()
    cluster.expect(second=payload(1_500_000, 3))
    assert cluster.run_line(3)["peer_bytes"] == 1_500_000


def test_secrets_are_in_no_log_and_no_command_line(cluster: Cluster) -> None:
    cluster.dispatcher()
    cluster.executor("N1")
    still_works(cluster, "t")
    secrets = json.loads(cluster.join.read_text())
    key_line = secrets["key_pem"].splitlines()[1]
    logs = [
        p for p in cluster.folder.rglob("*") if p.is_file() and p.name not in ("join.json", "identity.json")
    ]
    streams = [p for p in cluster.eyas.folder.glob("eyas-*") if p.is_file()]
    for path in logs + streams:
        text = path.read_bytes()
        assert secrets["secret"].encode() not in text and key_line.encode() not in text, path
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert secrets["secret"] not in shown


def test_a_device_is_no_join_file(run: Run) -> None:
    for device in ("/dev/zero", "/dev/null"):
        refused = run("status", "--join", device, status=3, timeout=10)
        assert f"error: cannot read the join file `{device}`: it is no file" in refused.stderr
