"""A task that makes much out of little runs again where its files are needed, instead of their being sent.

Before anything has been measured the engine takes links for 1 Gbit/s, so that 256 MiB take two seconds to send.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import Run, Start, log_entries, wait_until

N_NODES = 4
N_READERS = 12


def read_by_many(start: Start, folder: Path, command: str) -> set[str]:
    """Runs a task that makes a large file with `command`, and others that read it; what these saw of its end.

    It is made when all nodes are there, and one reader waits until the engine is done with its collective.
    """
    up, gate, go = folder / "up", folder / "gate", str(folder / "go")
    tasks: list[dict[str, Any]] = [
        {"id": "go", "command": f"until [ -e {up} ]; do sleep 0.02; done; echo > go", "outputs": {"go": go}},
        {
            "id": "make",
            "command": f"truncate -s 256M x && {command} >> x",
            "inputs": {"go": go},
            "outputs": {"x": "run:x"},
        },
    ]
    for i in range(N_READERS):
        wait = f"until [ -e {gate} ]; do sleep 0.02; done; " if i == 0 else ""
        tasks.append(
            {
                "id": f"r{i}",
                "command": f"{wait}tail -c 9 x > end",
                "inputs": {"x": "run:x"},
                "outputs": {"end": str(folder / f"end-{i}")},
                "label": "read",
            }
        )
    listed = folder / "tasks.jsonl"
    listed.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    nodes = ["--nodes", str(N_NODES), "--slots", "1", "--cache", "2GB"]
    eyas = start("run", listed, *nodes, "--collectives", "task-rerun", "--dir", folder / "kept")
    wait_until(lambda: len(entries(folder, "in", "executor_joined")) == N_NODES, "all nodes", alive=eyas)
    up.touch()
    wait_until(lambda: bool(entries(folder, "out", "end_collective")), "the end of a collective", alive=eyas)
    gate.touch()
    eyas.wait()
    return {(folder / f"end-{i}").read_text() for i in range(N_READERS)}


def entries(folder: Path, way: str, kind: str) -> list[dict[str, Any]]:
    """What the dispatcher heard ("in") or did ("out"), from its log, without a line that is being written."""
    lines = [
        entry.get(way)
        for log in (folder / "kept").glob("dispatcher*/**/events.jsonl")
        for entry in log_entries(log)
    ]
    return [what[kind] for what in lines if isinstance(what, dict) and kind in what]


def test_the_maker_runs_where_its_file_is_needed(run: Run, start: Start, tmp_path: Path) -> None:
    assert read_by_many(start, tmp_path, "echo the end.") == {"the end.\n"}
    given = entries(tmp_path, "out", "rerun_task")
    assert given and all(g["assignment"]["task"] == 1 for g in given)
    (record,) = (a["record"] for a in entries(tmp_path, "out", "end_collective"))
    assert record["way"] == "task-rerun"
    assert record["n_arrived"] == record["n_wanted"] == len(given)
    text = run("explain", "make", "--dir", tmp_path / "kept").stdout
    assert text.count("It also ran on `") == len(given)
    assert "quicker than to send them; that ended well." in text
    page = tmp_path / "page.html"
    run("report", "--dir", tmp_path / "kept", "--out", page)
    assert "task rerun" in page.read_text()


def test_readers_see_one_file_though_its_maker_makes_another_each_time(start: Start, tmp_path: Path) -> None:
    (seen,) = read_by_many(start, tmp_path, "date +%N")
    assert seen.strip().isdigit()
    assert entries(tmp_path, "out", "rerun_task"), "it was tried"
    (record,) = (a["record"] for a in entries(tmp_path, "out", "end_collective"))
    assert record["n_arrived"] == 0
