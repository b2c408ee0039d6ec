"""What eyas says is so: what was printed is in the log, a report is of the run that it names, nodes that were away do not count."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from harness import Run, Start, wait_until


def tasks(folder: Path, name: str, n: int, command: str = "true") -> Path:
    path = folder / name
    lines = (json.dumps({"id": f"{name}-{i}", "command": [command]}) for i in range(n))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def reported(run: Run, folder: Path, *args: str | Path) -> dict[str, Any]:
    run("report", "--out", folder / "page.html", *args)
    read: dict[str, Any] = json.loads((folder / "page.json").read_text(encoding="utf-8"))
    return read


def test_what_wait_has_said_is_in_the_log(run: Run, tmp_path: Path) -> None:
    """`submit`, `wait`, `report`: the report knows of the end of each task that `wait` has counted."""
    run("up", "--nodes", "1", "--slots", "2")
    try:
        for i in range(1, 6):
            run("submit", tasks(tmp_path, f"list{i}", 200))
            assert "200 done" in run("wait").stderr
            totals = reported(run, tmp_path, "--run", str(i))["totals"]
            assert (totals["n_done"], totals["n_unfinished"]) == (200, 0), f"round {i}"
    finally:
        run("down")


def test_a_report_is_of_the_newest_run_unless_all_are_asked_for(run: Run, tmp_path: Path) -> None:
    run("up", "--nodes", "1", "--slots", "2")
    try:
        for i, n in enumerate([3, 5, 7]):
            run("submit", tasks(tmp_path, f"list{i}", n))
            run("wait")
        page = tmp_path / "page.html"
        assert reported(run, tmp_path)["totals"]["n_tasks"] == 7
        assert "<h1>Run 3: " in page.read_text(encoding="utf-8")
        assert reported(run, tmp_path, "--run", "2")["totals"]["n_tasks"] == 5
        assert "<h1>Run 2: " in page.read_text(encoding="utf-8")
        assert reported(run, tmp_path, "--all")["totals"]["n_tasks"] == 15
        assert "the newest run, 3, has no such task; this is of run 1" in run("explain", "list0-1").stderr
        assert run("explain", "list2-1").stderr == ""
    finally:
        run("down")
    # With nobody there any more: the same run, and that it has ended is said.
    answer = run("report", "--out", page)
    assert "run 3, " in answer.stderr and "is not up; this is what its log says" in answer.stderr
    assert "<h1>Run 3: " in page.read_text(encoding="utf-8")
    assert "run 3)" in run("explain", "list2-1").stdout
    assert "(number 1, run 1)" in run("explain", "list0-1", "--run", "1").stdout
    assert "run 2" in run("explain", "list0-1", "--run", "2", status=2).stderr


def test_what_ran_last_is_told_of_and_named(run: Run, tmp_path: Path) -> None:
    """After `eyas down` another run is not shown in silence: it is the newest, and it is named."""
    earlier = tasks(tmp_path, "earlier", 2)
    run("run", earlier)
    run("up", "--nodes", "1", "--slots", "1")
    run("submit", tasks(tmp_path, "here", 4))
    run("wait")
    run("down")
    assert reported(run, tmp_path)["totals"]["n_tasks"] == 4
    run("run", earlier)
    answer = run("report", "--out", tmp_path / "page.html")
    assert "run 1, `" in answer.stderr and "earlier" in answer.stderr
    assert json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))["totals"]["n_tasks"] == 2


def test_nodes_that_were_not_there_have_no_time(run: Run, tmp_path: Path) -> None:
    """Between `eyas down` and `eyas up` there are no nodes: their time, and so utilisation, does not count it."""
    listed = tasks(tmp_path, "list", 1)
    for _ in range(2):
        run("up", "--nodes", "1", "--slots", "1")
        run("submit", listed)
        run("wait")
        run("down")
        time.sleep(2)
    (node,) = reported(run, tmp_path, "--all")["executors"]
    took_s = reported(run, tmp_path, "--all")["totals"]["makespan_ns"] / 1e9
    assert took_s > 2
    assert node["present_ns"] / 1e9 < took_s - 1.9, (node, took_s)


def test_a_node_that_lived_through_a_restart_was_there_all_the_time(
    run: Run, start: Start, tmp_path: Path
) -> None:
    given: list[str | Path] = ["dispatcher", "--dir", tmp_path / "d", "--lease", "60s"]
    join = tmp_path / "d" / "join.json"
    dispatcher = start(*given)
    wait_until(join.exists, "the join file", alive=dispatcher)
    node = start("executor", "--join", join, "--dir", tmp_path / "n", "--slots", "1")
    node.wait_for_text("has taken this executor in")
    gate = tmp_path / "gate"
    line = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    listed = tmp_path / "l.jsonl"
    listed.write_text(json.dumps({"id": "a", "command": line}) + "\n", encoding="utf-8")
    run("submit", "--join", join, listed)
    wait_until(lambda: "runs and" in run("logs", "--join", join, "a").stderr, "the program to run")
    dispatcher.kill()
    time.sleep(1)
    start(*given)
    wait_until(lambda: "is running" in run("explain", "--join", join, "a", status=None).stdout, "its return")
    gate.touch()
    run("wait", "--join", join)
    totals = reported(run, tmp_path, "--join", join)["totals"]
    assert totals["cpu_hours_busy"] <= totals["cpu_hours_allocated"], totals
