"""Checkers of promises on what a live dispatcher has written: its event log and its journal.

    checker = Checker(cluster_dir / "dispatcher")
    checker.look()          # before each strike: what is done now has to stay done
    ...
    assert not checker.faults()

| promise | what is checked |
|---|---|
| 1 | a task that the journal had as done at an earlier look is done in the end, and got no further attempt unless it was revived |
| 3 | what an executor's cache holds, by its own reports, never exceeds its size |
| 4 | every task that was submitted has reached its last state, and so has its run |

Promise 5 is `eyas replay`, which tests call themselves.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from harness import log_entries
from kills import ends_in


class Checker:
    """Of one dispatcher; `folder` is its directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Of each task that was seen as done: how often it had been given out and revived when that was first seen.
        self._done: dict[int, tuple[int, int]] = {}
        self._lost: list[str] = []

    def _entries(self) -> list[dict[str, Any]]:
        return log_entries(self.folder / "events.jsonl")

    def look(self) -> None:
        """Notes what is done by now."""
        ends = ends_in(self.folder / "journal")
        # After the journal: whatever it has as done was given out before.
        assigned = _assigned(self._entries())
        for task in ends.done:
            revived = ends.revived[task]
            if self._done.get(task, (0, -1))[1] != revived:
                self._done[task] = (assigned[task], revived)
        for task, (_, revived) in self._done.items():
            if task not in ends.done and ends.revived[task] == revived:
                self._lost.append(f"promise 1: the journal has lost the end of task {task}")

    def faults(self) -> list[str]:
        """A sentence for each promise that was broken."""
        self.look()
        entries = self._entries()
        return [*self._lost, *self._ran_again(entries), *_budgets(entries), *_unended(entries)]

    def _ran_again(self, entries: list[dict[str, Any]]) -> list[str]:
        revived = ends_in(self.folder / "journal").revived
        assigned = _assigned(entries)
        return [
            f"promise 1: task {task} was done, and was given out again"
            for task, (n, n_revived) in self._done.items()
            if assigned[task] > n and revived[task] == n_revived
        ]


def _assigned(entries: list[dict[str, Any]]) -> Counter[int]:
    """How often each task was given to an executor."""
    actions = (entry["out"] for entry in entries if "out" in entry)
    return Counter(
        action["assign"]["assignment"]["task"]
        for action in actions
        if isinstance(action, dict) and "assign" in action
    )


def _budgets(entries: list[dict[str, Any]]) -> list[str]:
    faults = []
    held: dict[int, dict[int, int]] = {}
    size: dict[int, int] = {}
    for entry in entries:
        if "eyas_event_log" in entry:
            # Another process counts executors and objects anew.
            held, size = {}, {}
        event = entry.get("in")
        if not isinstance(event, dict):
            continue
        if about := event.get("executor_joined"):
            size[about["executor"]] = about["offer"]["cache_bytes"]
            held.setdefault(about["executor"], {})
        elif about := event.get("cache_resized"):
            size[about["executor"]] = about["cache_bytes"]
        elif about := event.get("replicas_changed"):
            executor = about["executor"]
            cache = held.setdefault(executor, {})
            for dropped in about["dropped"]:
                cache.pop(dropped, None)
            cache |= {added["object"]: added["size_bytes"] for added in about["added"]}
            # Files of the same bytes are kept once; here they count each, so tests with such files need room.
            if sum(cache.values()) > size.get(executor, 0):
                faults.append(
                    f"promise 3: executor {executor} holds {sum(cache.values())} bytes, and its cache has {size.get(executor)}"
                )
    return faults


def _unended(entries: list[dict[str, Any]]) -> list[str]:
    n_tasks, ended, runs, ended_runs = 0, set(), set(), set()
    for entry in entries:
        if "eyas_event_log" in entry:
            n_tasks = 0
        event, action = entry.get("in"), entry.get("out")
        if isinstance(event, dict):
            if about := event.get("array_added"):
                n_tasks += about["array"]["n_tasks"]
            elif about := event.get("run_committed"):
                runs.add(about["run"])
            elif about := event.get("task_restored"):
                ended.add(about["task"])
            elif about := event.get("task_revived"):
                ended.discard(about["task"])
        if isinstance(action, dict):
            if about := action.get("end_task"):
                ended.add(about["task"])
            elif about := action.get("revive_task"):
                ended.discard(about["task"])
            elif about := action.get("end_run"):
                ended_runs.add(about["run"])
    faults = [f"promise 4: task {task} has no end" for task in range(n_tasks) if task not in ended]
    # A run that had ended before a restart ends once.
    return faults + [f"promise 4: run {run} has no end" for run in sorted(runs - ended_runs)]
