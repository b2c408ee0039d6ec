"""Task lists for tests, and what a run of one says and leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import Finished

Json = Any


def write_list(path: Path, *tasks: Mapping[str, Json] | str) -> Path:
    """Writes a task list, one task a line; a string is a line as it is."""
    lines = [task if isinstance(task, str) else json.dumps(task) for task in tasks]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def failures(done: Finished) -> dict[str, str]:
    """Why each task failed, as a run printed it: one line for each, and no task twice."""
    found = re.findall(r"^failed: task `(.*?)`: (.*)$", done.stderr, re.MULTILINE)
    reasons = dict(found)
    assert len(reasons) == len(found), f"a failure was printed twice\n{done}"
    return reasons


def runs(test_folder: Path) -> list[Path]:
    """The folders of the embedded runs of a test."""
    return sorted(test_folder.glob(".eyas-test/t/eyas-*/runs/*"))


def no_run_was_made(test_folder: Path) -> None:
    """Nothing was started: not even a run's folder was made."""
    assert runs(test_folder) == []


def nothing_is_left(test_folder: Path) -> None:
    """No cache, sandbox or private copy of an ended run remains; processes are the harness's to find."""
    left = [path for run in runs(test_folder) for path in run.glob("node*")]
    assert left == [], f"left behind: {left}"


def workflow(run_time: float | None, cores: int = 1) -> dict[str, object]:
    """Two tasks, one after the other."""
    executed = [{"id": name, "runtimeInSeconds": run_time, "coreCount": cores} for name in "ab"]
    tasks = [
        {"id": "a", "parents": [], "children": ["b"], "inputFiles": ["raw"], "outputFiles": ["middle"]},
        {"id": "b", "parents": ["a"], "children": [], "inputFiles": ["middle"], "outputFiles": ["end"]},
    ]
    files = [{"id": name, "sizeInBytes": 1_000_000} for name in ("raw", "middle", "end")]
    specification = {"tasks": tasks, "files": files}
    return {"name": "two", "workflow": {"specification": specification, "execution": {"tasks": executed}}}
