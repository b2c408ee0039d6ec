"""`eyas tasks`, and what `--json` prints: for programs, so nothing else is on standard output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import Run, Start, wait_until

LIST = """\
sleep 0.3
exit 3
while [ ! -e gate ]; do sleep 0.05; done
echo "a	b" >&2; true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "l.txt").write_text(LIST)
    return work


def states(printed: str) -> dict[str, str]:
    return {task["id"]: task["state"] for task in json.loads(printed)["tasks"]}


def test_tasks_of_a_run_that_goes_on_and_of_one_that_is_over(run: Run, start: Start, folder: Path) -> None:
    client = start("run", "l.txt", "--slots", "1", "--json", cwd=folder)

    def now() -> dict[str, str]:
        done = run("tasks", "--json", cwd=folder, status=None)
        return states(done.stdout) if done.status == 0 else {}

    wait_until(lambda: now().get("3") == "running", "the third task", alive=client)
    assert now() == {"1": "done", "2": "failed", "3": "running", "4": "waiting"}
    (only,) = json.loads(run("tasks", "--running", "--json", cwd=folder).stdout)["tasks"]
    assert (only["id"], only["node"], only["ended"], only["n_attempts"]) == ("3", "node1", None, 1)
    assert only["run_ns"] > 0
    (folder / "gate").touch()
    ended = client.wait(status=1)
    end = json.loads(ended.stdout)
    assert (end["state"], end["n_tasks"], end["n_done"], end["n_failed"]) == ("failed", 4, 3, 1)
    assert end["failures"] == [["2", "the program ended with status 3"]]
    assert "4 tasks in" in ended.stderr

    table = run("tasks", "--dir", end["dir"]).stdout.splitlines()
    assert table[0].split() == ["task", "state", "node", "attempts", "ran", "in", "all", "reason"]
    assert [line.split()[:4] for line in table[1:]] == [
        ["1", "done", "node1", "1"],
        ["2", "failed", "node1", "1"],
        ["3", "done", "node1", "1"],
        ["4", "done", "node1", "1"],
    ]
    assert table[2].endswith("the program ended with status 3")
    (failed,) = run("tasks", "--failed").stdout.splitlines()[1:]
    assert failed.split() == table[2].split()
    assert "no such task among the 4 of run 1" in run("tasks", "--running").stderr
    assert json.loads(run("tasks", "--running", "--json").stdout)["tasks"] == []
    rows = [line.split("\t") for line in run("tasks", "--tsv", "--slowest", "2").stdout.splitlines()]
    assert rows[0] == ["task", "number", "state", "node", "attempts", "ran_s", "in_all_s", "reason"]
    assert len(rows) == 3 and float(rows[1][5]) >= float(rows[2][5])
    assert "the log has no run 9" in run("tasks", "--run", "9", status=2).stderr


def test_how_tasks_ended_is_in_the_journal_where_the_log_lacks_it(run: Run, folder: Path) -> None:
    """As after a kill of the dispatcher with lines that were not in the log yet. The dispatcher's folder stays as it is."""
    (folder / "gate").touch()
    end = json.loads(run("run", "l.txt", "--json", cwd=folder, status=1).stdout)
    log = Path(end["dir"]) / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"end_task"' not in line))

    def kept() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (log.parent / "journal").iterdir()}

    before = kept()
    tasks = {
        task["id"]: task for task in json.loads(run("tasks", "--dir", end["dir"], "--json").stdout)["tasks"]
    }
    assert {name: task["state"] for name, task in tasks.items()} == {
        "1": "done",
        "2": "failed",
        "3": "done",
        "4": "done",
    }
    assert tasks["2"]["reason"] == "the program ended with status 3"
    assert kept() == before
    # A write that broke off is passed over, and a journal that is not there says nothing.
    last = max(path for path in (log.parent / "journal").glob("segment-*"))
    os.truncate(last, last.stat().st_size - 3)
    assert states(run("tasks", "--dir", end["dir"], "--json").stdout)["1"] == "done"
    shutil.rmtree(log.parent / "journal")
    assert set(states(run("tasks", "--dir", end["dir"], "--json").stdout).values()) == {"unfinished"}


def test_one_json_value_for_each_command(run: Run, folder: Path) -> None:
    def value(*args: str, status: int = 0) -> Any:
        return json.loads(run(*args, cwd=folder, status=status).stdout)

    (folder / "gate").touch()
    run("up", "--slots", "2")
    assert value("wait", "--json") == {"runs": []}
    assert value("submit", "l.txt", "--json") == {"run": 1, "n_tasks": 4, "again": False}
    (end,) = value("wait", "--json", status=1)["runs"]
    assert (end["run"], end["state"], end["n_done"]) == (1, "failed", 3)
    assert Path(end["dir"]).is_dir()
    (known,) = value("status", "--json")["runs"]
    assert {name: known[name] for name in known} == {name: end[name] for name in known}
    story = value("explain", "2", "--json")
    assert (story["state"], story["reason"]) == ("failed", "the program ended with status 3")
    assert story["task"]["command"] == {"shell": f"cd {folder} || exit; exit 3"}
    assert any("end_task" in event.get("out", {}) for event in story["events"])
    assert story["text"][0].startswith("Task `2`")
    assert states(run("tasks", "--json").stdout)["2"] == "failed"
    # A map's programs print nothing into it.
    mapped = value("map", "--param", "e=1,2", "--json", "--", "echo", "{e}")
    assert (mapped["state"], mapped["n_tasks"]) == ("done", 2)
    (folder / "one.txt").write_text("true\n")
    value("run", "one.txt", "--json")
    nothing = value("run", "one.txt", "--json", "--resume")
    assert nothing == {"state": "done", "run": None, "n_tasks": 0}
    run("down")


def test_a_reader_that_has_seen_enough_is_no_error(run: Run, folder: Path, eyas_path: Path) -> None:
    (folder / "many.txt").write_text("true\n" * 3000)
    end = json.loads(run("run", "many.txt", "--json", cwd=folder).stdout)
    line = f"'{eyas_path}' tasks --json --dir '{end['dir']}' | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=folder)
    assert (done.stdout, done.stderr) == ("{\n", "")
