"""Daemons that a test starts and ends by name: those of a batch system of its own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# How long one may take to end in order.
END_MAX_S = 20


class Daemons:
    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self._logs = logs
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def launch(self, name: str, words: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Starts one, which has to stay in the foreground; what it prints is in the file NAME.out among the logs."""
        with open(self._logs / f"{name}.out", "ab") as log:
            self._daemons[name] = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self, name: str, with_signal: int = signal.SIGTERM) -> None:
        process = self._daemons.pop(name)
        with suppress(ProcessLookupError):
            process.send_signal(with_signal)
        try:
            process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop_all(self) -> None:
        """The last one first. All are told at once."""
        for process in reversed(self._daemons.values()):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for name in reversed(list(self._daemons)):
            self.stop(name)
