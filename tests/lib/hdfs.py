"""A real HDFS for tests: a name node and data nodes in one process, from Hadoop's own artifacts.

Each data node has an address of the loopback network as its name, so that a program can be on the host of one of them and not on
that of another.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from harness import ask_http, need_program, wait_until

HERE = Path(__file__).parent / "hdfs"
# Where `cargo` puts what can be made again, too.
JARS = Path(__file__).parents[2] / "target" / "hdfs"


def jars() -> Path:
    """The folder of Hadoop's classes; fetched once, by one process."""
    need_program("mvn", "maven")
    JARS.mkdir(parents=True, exist_ok=True)
    with open(JARS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = JARS / "lib"
        if not whole.exists():
            part = JARS / "part"
            shutil.rmtree(part, ignore_errors=True)
            command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={part}"], check=True, timeout=600)
            part.rename(whole)
    return JARS / "lib"


class Hdfs:
    """A client of WebHDFS that shares no code with eyas."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, path: str) -> str:
        return f"webhdfs://127.0.0.1:{self.port}/{path}"

    def ask(self, method: str, path: str, op: str) -> bytes:
        return self._send(
            method, f"http://127.0.0.1:{self.port}/webhdfs/v1/{quote(path)}?op={op}&user.name=test"
        )

    def put(self, path: str, data: bytes, *, more: str = "") -> None:
        answer = self.ask("PUT", path, f"CREATE&overwrite=true&noredirect=true{more}")
        self._send("PUT", json.loads(answer)["Location"], data)

    def get(self, path: str) -> bytes:
        return self._send("GET", json.loads(self.ask("GET", path, "OPEN&noredirect=true"))["Location"])

    def names(self, path: str) -> list[str]:
        found = json.loads(self.ask("GET", path, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
        return [one["pathSuffix"] for one in found]

    def hosts(self, path: str) -> list[list[str]]:
        """Of each block."""
        found = json.loads(self.ask("GET", path, "GETFILEBLOCKLOCATIONS"))
        return [one["hosts"] for one in found["BlockLocations"]["BlockLocation"]]

    @staticmethod
    def _send(method: str, url: str, body: bytes | None = None) -> bytes:
        parts = urlsplit(url)
        assert parts.hostname is not None
        return ask_http(parts.hostname, parts.port or 80, method, f"{parts.path}?{parts.query}", body)


@contextmanager
def hdfs(folder: Path, hosts: Sequence[str]) -> Iterator[Hdfs]:
    """An HDFS with one data node for each of these addresses, with one copy of each block."""
    classes = jars()
    java = shutil.which("java") or "java"
    command = [
        java,
        "-Xmx512m",
        "-cp",
        f"{classes}/*",
        str(HERE / "MiniHdfs.java"),
        str(folder / "files"),
        *hosts,
    ]
    said = folder / "hdfs.out"
    with open(said, "wb") as out, open(folder / "hdfs.err", "wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=folder)
    try:

        def is_up() -> bool:
            assert process.poll() is None, (folder / "hdfs.err").read_text()
            return b"port " in said.read_bytes()

        wait_until(is_up, "HDFS", timeout=180)
        yield Hdfs(int(said.read_text().split("port ")[1].split()[0]))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
