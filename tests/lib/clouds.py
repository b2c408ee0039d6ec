"""Real servers for tests that speak as Azure's and Google's storage do: Azurite, of Microsoft, and fake-gcs-server.

Where a program is missing, the tests that need it are skipped.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from buckets import answers_at, free_port
from harness import ask_http, wait_until

# The account that all emulators of Azure's storage have; its key is no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def program(name: str) -> str | None:
    """Where a server's program is: on the path, or where `go install` and `npm install` put it."""
    places = [os.environ["PATH"], str(Path.home() / "go" / "bin"), str(Path.home() / "node_modules" / ".bin")]
    return shutil.which(name, path=os.pathsep.join(places))


@contextmanager
def _served(command: list[str], port: int, log: Path) -> Iterator[None]:
    with open(log, "wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:

        def answers() -> bool:
            assert server.poll() is None, log.read_text()
            return answers_at(port)

        wait_until(answers, command[0])
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            # Azurite waits for a connection that a cut upload has left open.
            server.kill()
            server.wait(10)


class Azure:
    """A storage account, and requests to it that share no code with eyas."""

    def __init__(self, port: int) -> None:
        self.port = port

    def env(self, port: int | None = None, key: str = KEY) -> dict[str, str]:
        """What a user of this account has in the environment."""
        endpoint = f"http://127.0.0.1:{port or self.port}/{ACCOUNT}"
        return {
            "AZURE_STORAGE_CONNECTION_STRING": (
                f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={endpoint}"
            )
        }

    def ask(self, method: str, path: str, query: dict[str, str]) -> bytes:
        """One request without a body, signed with the key of the account."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
        said = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        resource = f"/{ACCOUNT}/{ACCOUNT}{path}" + "".join(
            f"\n{name}:{query[name]}" for name in sorted(query)
        )
        to_sign = f"{method}{chr(10) * 12}{said}{resource}"
        digest = hmac.new(base64.b64decode(KEY), to_sign.encode(), hashlib.sha256).digest()
        headers["authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            asked = "&".join(f"{name}={value}" for name, value in query.items())
            connection.request(method, f"/{ACCOUNT}{path}?{asked}", headers=headers)
            answer = connection.getresponse()
            data = answer.read()
            assert answer.status < 300, (answer.status, data)
            return data
        finally:
            connection.close()

    def new_container(self, name: str) -> str:
        self.ask("PUT", f"/{name}", {"restype": "container"})
        return name


@contextmanager
def azurite(folder: Path, *options: str) -> Iterator[Azure]:
    port = free_port()
    command = [program("azurite-blob") or "azurite-blob", "--blobPort", str(port), "--location", str(folder)]
    with _served([*command, "--silent", *options], port, folder / "log"):
        yield Azure(port)


class Google:
    """A server of buckets, and requests to it that share no code with eyas."""

    def __init__(self, port: int) -> None:
        self.port = port

    def env(self, port: int | None = None) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": f"127.0.0.1:{port or self.port}"}

    def new_bucket(self, name: str) -> str:
        ask_http("127.0.0.1", self.port, "POST", "/storage/v1/b", json.dumps({"name": name}).encode())
        return name


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Google]:
    port = free_port()
    server = program("fake-gcs-server") or "fake-gcs-server"
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with _served([server, *options, "-public-host", f"127.0.0.1:{port}"], port, folder / "log"):
        yield Google(port)
