"""What an earlier eyas wrote is read: its journal, its event log, its catalog and its site. See past/README.md."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Run

PAST = Path(__file__).parent / "past"


@pytest.fixture
def cluster(run: Run, tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster whose dispatcher was killed. It has no identity, so the next one makes one."""
    folder = tmp_path / "C"
    shutil.copytree(PAST / "dispatcher", folder / "dispatcher")
    for made in (folder / "dispatcher", folder / "dispatcher" / "journal"):
        made.chmod(0o700)
    yield folder
    run("down", "--join", folder / "dispatcher" / "join.json", status=None)


def test_a_killed_dispatchers_runs_go_on(run: Run, cluster: Path) -> None:
    join = cluster / "dispatcher" / "join.json"
    said = run("up", "--dir", cluster, "--slots", "1").stderr
    assert "goes on with run 2" in said
    run("wait", "--join", join, "--run", "2")
    states = {
        number: {task["id"]: task["state"] for task in tasks_of(run, cluster, number)}
        for number in ("1", "2")
    }
    assert states == {
        "1": {"one": "done", "two": "done", "bad": "failed"},
        "2": {"late": "done", "last": "done"},
    }


def tasks_of(run: Run, cluster: Path, number: str) -> list[dict[str, str]]:
    done = run("tasks", "--dir", cluster, "--run", number, "--json")
    tasks: list[dict[str, str]] = json.loads(done.stdout)["tasks"]
    return tasks


def test_an_event_log_is_read_by_all_that_read_one(run: Run, cluster: Path, tmp_path: Path) -> None:
    log = cluster / "dispatcher"
    assert [task["state"] for task in tasks_of(run, cluster, "1")] == ["done", "done", "failed"]
    assert run("logs", "one", "--dir", cluster, "--run", "1").stdout == "said\n"
    assert "It ended well." in run("explain", "two", "--dir", log, "--run", "1").stdout
    run("report", "--dir", log, "--run", "1", "--out", tmp_path / "r.html")
    assert json.loads((tmp_path / "r.json").read_text())["runs"]
    assert "give the same" in run("replay", "--dir", log).stdout
    exported = json.loads(run("export", "--dir", log, "1", "--wfformat", "-").stdout)
    assert len(exported["workflow"]["specification"]["tasks"]) == 3


def test_a_catalog_and_its_site_are_read_and_go_on(run: Run, tmp_path: Path) -> None:
    site, db = tmp_path / "site", tmp_path / "catalog.db"
    shutil.copytree(PAST / "catalog" / "site", site)
    dump = (PAST / "catalog" / "catalog.sql").read_text(encoding="utf-8").replace("@SITE@", str(site))
    connection = sqlite3.connect(db)
    connection.executescript(dump)
    connection.close()

    def data(*words: str | Path) -> str:
        return run("data", "--db", f"sqlite:{db}", *words, cwd=tmp_path).stdout

    # The catalog is brought up to date where its tables have changed since.
    data("init")
    assert data("find", "colour=red").split()[0] == "old"
    data("get", "old", "got")
    assert {path.name: path.read_text() for path in (tmp_path / "got").iterdir()} == {
        "a.txt": "kept\n",
        "b.txt": "two\n",
    }
    data("audit")
    (tmp_path / "a.txt").write_text("kept, and more\n")
    data("put", "a.txt", "--label", "old")
    assert data("ls", "old@2").split()[-1] == "a.txt"
