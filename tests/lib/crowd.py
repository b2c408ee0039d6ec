"""Strangers: many connections to one port that never show that they belong to the cluster."""

from __future__ import annotations

import resource
import socket
import threading
import time
from contextlib import suppress

# The first byte of a TLS record; on the data plane it is the first byte of nothing.
DRIP = b"\x16"


class Crowd:
    """Keeps `n` connections to `port` open from a thread of its own; those that are closed it makes again.

    Idle strangers say nothing. Dripping ones send a byte every second, so that no pause in what they say is long.
    """

    def __init__(self, port: int, n: int, drips: bool) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < 2 * n:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * n)), hard))
        self.port = port
        self.n = n
        self.drips = drips
        # Connections that were made, and those that the other side has closed.
        self.n_made = 0
        self.n_closed = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._stand, daemon=True)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _stand(self) -> None:
        here: list[socket.socket] = []
        dripped = time.monotonic()
        while not self._over.is_set():
            while len(here) < self.n and not self._over.is_set():
                try:
                    one = socket.create_connection(("127.0.0.1", self.port), timeout=3)
                except OSError:
                    break
                one.setblocking(False)
                here.append(one)
                self.n_made += 1
            drips = self.drips and time.monotonic() - dripped >= 1
            if drips:
                dripped = time.monotonic()
            here = [one for one in here if self._stays(one, drips)]
            self._over.wait(0.05)
        for one in here:
            one.close()

    def _stays(self, one: socket.socket, drips: bool) -> bool:
        try:
            if drips:
                with suppress(BlockingIOError):
                    one.send(DRIP)
            if one.recv(100):
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass
        one.close()
        self.n_closed += 1
        return False


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
