"""Several dispatchers that a test starts, kills and restarts one by one, with their executors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import Background, Run, Start, log_text, wait_until


def written(path: Path, tasks: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return path


class Group:
    """Dispatchers and executors of a test, each with a folder of its own."""

    def __init__(self, start: Start, run: Run, tmp_path: Path, n: int, n_up: int | None = None) -> None:
        """Starts the first `n_up` of `n` dispatchers, or all."""
        self.start, self.run, self.tmp_path, self.n = start, run, tmp_path, n
        self.dispatchers: list[Background] = []
        self.start_up_to(n if n_up is None else n_up)

    def start_up_to(self, k: int) -> None:
        """Starts those up to the `k`th that were not started yet."""
        while len(self.dispatchers) < k:
            self.dispatchers.append(self.dispatcher(len(self.dispatchers) + 1))
        wait_until(lambda: sum(map(bool, self.members())) == k, "the dispatchers to know each other")

    def dir(self, k: int) -> Path:
        return self.tmp_path / f"D{k}"

    def join(self, k: int) -> Path:
        return self.dir(k) / "join.json"

    def members(self) -> list[str]:
        members: list[str] = json.loads(self.join(1).read_text())["members"]
        return members

    def dispatcher(self, k: int) -> Background:
        self.join(k).unlink(missing_ok=True)
        more: list[str | Path] = ["--group", self.join(1)] if k > 1 else []
        args: list[str | Path] = ["--dir", self.dir(k), "--member", f"{k}/{self.n}", "--lease", "30s", *more]
        started = self.start("dispatcher", *args)
        wait_until(self.join(k).exists, "its join file", alive=started)
        return started

    def one_address(self) -> Path:
        """A join file as somebody far away has it: the first dispatcher's address, as it was, and no other."""
        join = json.loads(self.join(1).read_text())
        del join["members"]
        path = self.tmp_path / "far.json"
        path.write_text(json.dumps(join))
        path.chmod(0o600)
        return path

    def executors(self, n: int, slots: int = 1) -> list[Background]:
        join = self.one_address()
        started = [
            self.start(
                "executor",
                "--join",
                join,
                "--dir",
                self.tmp_path / f"N{i}",
                "--name",
                f"N{i}",
                "--slots",
                str(slots),
            )
            for i in range(1, n + 1)
        ]
        wait_until(lambda: len(self.status()["executors"]) == n, "all executors to join")
        return started

    def status(self, k: int = 1) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.run("status", "--json", "--join", self.join(k)).stdout)
        return status

    def warnings(self) -> list[str]:
        warnings: list[str] = self.status()["warnings"]
        return warnings

    def n_done(self) -> int:
        return int(self.status()["runs"][-1]["n_done"])

    def at(self, k: int) -> set[str]:
        """Names of the executors that have joined a dispatcher, by its log."""
        log = log_text(self.dir(k) / "events.jsonl")
        joined = (json.loads(line) for line in log.splitlines() if '"executor_joined"' in line)
        return {line["in"]["executor_joined"]["offer"]["name"] for line in joined}
