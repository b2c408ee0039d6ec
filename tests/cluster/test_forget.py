"""Runs that a cluster forgets: by number and by name, over a restart, in the journal and in the caches."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Run, wait_until


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster that the test brings up; it is ended afterwards."""
    yield tmp_path / "cluster"
    run("down", "--join", tmp_path / "cluster" / "dispatcher" / "join.json", status=None)


def done(run: Run, join: Path, tasks: Path) -> None:
    run("submit", "--join", join, tasks)
    run("wait", "--join", join)


def remembered(run: Run, join: Path) -> list[int]:
    return [line["run"] for line in json.loads(run("status", "--join", join, "--json").stdout)["runs"]]


def report(run: Run, folder: Path, out: Path, number: int) -> dict[str, object]:
    run("report", "--dir", folder / "dispatcher", "--run", str(number), "--out", out)
    found: dict[str, object] = json.loads(out.with_suffix(".json").read_text())
    return found


def journal_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "dispatcher" / "journal").iterdir())


def test_a_cluster_keeps_its_last_runs(run: Run, folder: Path, tmp_path: Path) -> None:
    """Also when its dispatcher was killed; numbers go on, and the journal and the event log are rid of the others."""
    join = folder / "dispatcher" / "join.json"
    many = tmp_path / "many.jsonl"
    many.write_text("".join(f'{{"id": "t{i}", "command": "true"}}\n' for i in range(4_000)))
    up = ("up", "--dir", folder, "--slots", "2", "--keep-runs", "2")
    run(*up)
    for _ in range(2):
        done(run, join, many)
    most = journal_bytes(folder)
    for _ in range(2):
        done(run, join, many)
    whole = report(run, folder, tmp_path / "whole.html", 4)
    done(run, join, many)
    log = folder / "dispatcher" / "events.jsonl"
    wait_until(lambda: '"is_cut":true' in log.open().readline(), "the event log to be cut")
    assert report(run, folder, tmp_path / "cut.html", 4) == whole
    done(run, join, many)
    wait_until(lambda: remembered(run, join) == [5, 6], "the first runs to be forgotten")
    # 16,000 tasks are forgotten, 8,000 kept: the records of most of the former are gone.
    wait_until(lambda: journal_bytes(folder) < 2.5 * most, "the journal to be cleaned")
    (snapshot,) = (folder / "dispatcher" / "journal").glob("snapshot*")
    assert snapshot.stat().st_size > 0
    os.kill(int((folder / "dispatcher" / "journal" / "lock").read_text()), signal.SIGKILL)
    run(*up)
    assert remembered(run, join) == [5, 6]
    gone = run("wait", "--join", join, "--run", "1", status=None)
    assert gone.status != 0
    assert "there is no run 1: it has ended and was forgotten" in gone.stderr
    done(run, join, many)
    wait_until(lambda: remembered(run, join) == [6, 7], "the next run to be forgotten")
    table = json.loads(run("tasks", "--dir", folder / "dispatcher", "--run", "6", "--json").stdout)
    assert len(table["tasks"] if isinstance(table, dict) else table) == 4_000
    run("down", "--join", join)
    gone = run("report", "--dir", folder / "dispatcher", "--run", "2", status=None)
    assert gone.status != 0 and "run 2" in gone.stderr
    assert "cannot be replayed" in run("replay", "--dir", folder / "dispatcher").stderr


def test_what_is_named_is_forgotten_with_its_files(run: Run, folder: Path, tmp_path: Path) -> None:
    join = folder / "dispatcher" / "join.json"
    run("up", "--dir", folder, "--slots", "1", "--keep-runs", "all")
    shared = tmp_path / "shared"
    shared.write_text("both runs read this\n")
    for name in ("one", "two"):
        own = tmp_path / name
        own.write_text(name)
        task = {
            "id": name,
            "command": "cat shared own > out",
            "inputs": {"shared": str(shared), "own": str(own)},
            "outputs": {"out": str(tmp_path / f"{name}.out")},
        }
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(task) + "\n")
        done(run, join, tmp_path / f"{name}.jsonl")
    cached = [file for file in (folder / "node1" / "cache").rglob("*") if file.is_file()]
    assert run("forget", "--join", join, "1").stdout == "1 run forgotten\n"
    assert remembered(run, join) == [2]

    def left() -> int:
        return len([file for file in (folder / "node1" / "cache").rglob("*") if file.is_file()])

    # What only the first run had named goes; what the second one named, too, stays.
    wait_until(lambda: left() < len(cached), "the first run's files to leave the cache")
    again = run("forget", "--join", join, "1", "2", status=None)
    assert again.status != 0 and "there is no run 1: it has ended and was forgotten" in again.stderr
    assert remembered(run, join) == [2]
    unknown = run("forget", "--join", join, "9", status=None)
    assert "there is no run 9" in unknown.stderr
    assert run("forget", "--join", join, "--all").stdout == "1 run forgotten\n"
    assert remembered(run, join) == []
    assert "(no run: nothing was submitted" in run("status", "--join", join).stdout
    assert (tmp_path / "one.out").read_text() == "both runs read this\none"


def test_what_cannot_be_kept_or_forgotten_is_said(run: Run, folder: Path, tmp_path: Path) -> None:
    for rule, why in (
        ("ten", "neither a number of runs nor a time"),
        ("1,2", "one number of runs and one time"),
    ):
        refused = run("up", "--dir", folder, "--keep-runs", rule, status=None)
        assert refused.status == 2 and why in refused.stderr, refused
    assert not folder.exists()
    run("up", "--dir", folder, "--slots", "1")
    join = folder / "dispatcher" / "join.json"
    gate = tmp_path / "gate"
    (tmp_path / "long.jsonl").write_text(
        json.dumps({"id": "a", "command": f"while [ ! -e {gate} ]; do sleep 0.1; done"})
    )
    run("submit", "--join", join, tmp_path / "long.jsonl")
    early = run("forget", "--join", join, "1", status=None)
    assert early.status != 0 and "run 1 has not ended" in early.stderr
    gate.touch()
    run("wait", "--join", join)
    run("forget", "--join", join, "1")


def test_several_dispatchers_forget_runs_together(run: Run, folder: Path, tmp_path: Path) -> None:
    """By rule and by name, and numbers go on."""
    join = folder / "dispatcher" / "join.json"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(f'{{"id": "t{i}", "command": "true"}}\n' for i in range(40)))
    run("up", "--dir", folder, "--dispatchers", "2", "--nodes", "2", "--slots", "1", "--keep-runs", "2")
    for _ in range(4):
        done(run, join, tasks)
    wait_until(lambda: remembered(run, join) == [3, 4], "the first two runs to be forgotten")
    again = run("forget", "--join", join, "1", status=None)
    assert again.status != 0 and "has ended and was forgotten" in again.stderr
    assert run("forget", "--join", join, "3").stdout == "1 run forgotten\n"
    assert remembered(run, join) == [4]
    run("forget", "--join", join, "--all")
    assert remembered(run, join) == []
    done(run, join, tasks)
    assert remembered(run, join) == [5]
