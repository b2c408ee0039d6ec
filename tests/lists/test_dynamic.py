"""Tasks that are added to a run while it goes on, by people and by its own tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from group import written
from harness import Eyas, Run, wait_until
from rounds import MergeSort
from weather import Cluster, kill_now


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def maker() -> dict[str, Any]:
    return {"id": "maker", "command": "echo 20 > out", "outputs": {"out": "run:a"}}


def held(gate: Path) -> dict[str, Any]:
    """Reads `run:a`, and holds its run open until the gate is there."""
    return {
        "id": "held",
        "command": f"until [ -e {gate} ]; do sleep 0.02; done; echo ok",
        "inputs": {"a": "run:a"},
    }


def test_tasks_are_added_and_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    """They read what the run keeps on its nodes, and what they make there; the run ends after them."""
    gate = tmp_path / "gate"
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    cluster.run("submit", written(tmp_path / "first", [maker(), held(gate)]))
    wait_until(lambda: cluster.run_line()["n_done"] == 1, "the first file")
    more = [
        {
            "command": "echo $(($(cat a) + 1)) > out",
            "inputs": {"a": "run:a"},
            "outputs": {"out": "run:b"},
        },
        {
            "command": "echo $(($(cat a) + $(cat b))) > out",
            "inputs": {"a": "run:a", "b": "run:b"},
            "outputs": {"out": str(cluster.home / "sum")},
        },
    ]
    added = written(tmp_path / "more", more)
    done = cluster.run("submit", added, "--into", "1", "--token", "again")
    assert done.stdout == "run 1: 2 tasks added\n"
    # Who does not know whether it was heard says it again.
    done = cluster.run("submit", added, "--into", "1", "--token", "again")
    assert done.stdout == "run 1: 2 tasks had been added before\n"
    other = written(tmp_path / "other", [{"command": "true"}])
    done = cluster.run("submit", other, "--into", "1", "--token", "again", status=2)
    assert "the token `again` was used to add other tasks to run 1" in done.stderr
    wait_until((cluster.home / "sum").exists, "the added tasks")
    assert cluster.run_line()["ended"] is None
    gate.touch()
    cluster.run("wait", "--run", "1")
    assert (cluster.home / "sum").read_text() == "41\n"
    line = cluster.run_line()
    assert (line["n_tasks"], line["n_done"]) == (4, 4)
    assert "(number 3, run 1)" in cluster.run("explain", "again.2").stdout
    done = cluster.run("submit", other, "--into", "1", status=2)
    assert "run 1 has ended" in done.stderr


def test_what_clashes_is_refused_by_name(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    here = cluster.home
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    first = [
        maker(),
        held(gate),
        {"id": "home", "command": "echo > out", "outputs": {"out": str(here / "x")}},
        {"id": "short", "command": "echo > out", "outputs": {"out": "run:short"}},
    ]
    cluster.run("submit", written(tmp_path / "first", first))
    wait_until(lambda: cluster.run_line()["n_done"] == 3, "all but the one that is held")
    for task, sentence in [
        ({"outputs": {"out": "run:a"}}, "both write `run:a`"),
        ({"outputs": {"out": str(here / "x")}}, f"both write `{here / 'x'}`"),
        ({"inputs": {"in": "run:nowhere"}}, "reads `run:nowhere`, which no task of the run writes"),
        ({"inputs": {"in": "run:short"}}, "was dropped when the last task that read it had ended"),
    ]:
        added = written(tmp_path / "added", [{"id": "new", "command": "echo > out", **task}])
        done = cluster.run("submit", added, "--into", "1", status=2)
        assert sentence in done.stderr and "`new`" in done.stderr, done
    done = cluster.run("submit", added, "--into", "7", status=2)
    assert "there is no run 7" in done.stderr
    assert cluster.run_line()["n_tasks"] == 4
    gate.touch()
    cluster.run("wait", "--run", "1")


def test_only_who_may_add_tasks_is_told_how(run: Run, eyas: Eyas, tmp_path: Path) -> None:
    command = 'echo "<$EYAS_JOIN> <$EYAS_RUN>" > out'
    tasks: list[dict[str, Any]] = [
        {"command": command, "outputs": {"out": "dynamic"}, "dynamic": True},
        {"command": command, "outputs": {"out": "static"}},
    ]
    run("run", written(tmp_path / "tasks", tasks), cwd=tmp_path, env={"EYAS_RUN": "9"})
    assert "join.json> <1>" in (tmp_path / "dynamic").read_text()
    assert (tmp_path / "static").read_text() == "<> <>\n"


ADDS = """
    [ -e {once} ] && again=1
    touch {once}
    printf '%s\\n' '{{"command": "cat a b > out", "inputs": {{"a": "run:a", "b": "run:half"}}, \
"outputs": {{"out": "{out}"}}}}' > more
    echo half > half
    {eyas} submit more
    [ $again ]
"""


def test_an_attempt_that_is_repeated_adds_nothing_twice(run: Run, eyas: Eyas, tmp_path: Path) -> None:
    """The first attempt adds its task and fails, the second adds it again and ends well."""
    out = tmp_path / "out"
    command = ADDS.format(once=tmp_path / "once", out=out, eyas=eyas.path)
    tasks: list[dict[str, Any]] = [
        {"command": "echo a > a", "outputs": {"a": "run:a"}},
        {
            "id": "adds",
            "command": command,
            "inputs": {"a": "run:a"},
            "outputs": {"half": "run:half"},
            "retries": 1,
            "dynamic": True,
        },
    ]
    done = run("run", written(tmp_path / "tasks", tasks), "--dir", tmp_path / "D")
    assert out.read_text() == "a\nhalf\n"
    assert "3 tasks" in done.stderr, done
    assert "added before" in run("logs", "adds", "--dir", tmp_path / "D").stdout
    assert "adds.1" in run("explain", "adds.1", "--dir", tmp_path / "D").stdout


def test_what_was_added_stays_when_the_task_that_added_it_fails(run: Run, eyas: Eyas, tmp_path: Path) -> None:
    more = json.dumps({"command": "echo here > out", "outputs": {"out": str(tmp_path / "out")}})
    task = {"command": f"echo '{more}' | {eyas.path} submit -; exit 3", "dynamic": True}
    run("run", written(tmp_path / "tasks", [task]), status=1)
    assert (tmp_path / "out").read_text() == "here\n"


def test_a_file_of_the_sandbox_is_no_input_of_what_is_added(run: Run, eyas: Eyas, tmp_path: Path) -> None:
    more = json.dumps({"command": "cat a", "inputs": ["a"]})
    task = {"command": f"touch a; echo '{more}' | {eyas.path} submit -", "dynamic": True}
    run("run", written(tmp_path / "tasks", [task]), "--dir", tmp_path / "D", status=1)
    said = run("logs", "1", "--dir", tmp_path / "D").stderr
    assert "names `a` in the sandbox of the task that adds it" in said


def test_rounds_of_tasks_that_each_add_the_next(cluster: Cluster, tmp_path: Path) -> None:
    """A merge sort that finds out as it goes how many rounds it takes; the dispatcher is killed in each."""
    sort = MergeSort(cluster.eyas.path, tmp_path, cluster.home / "sorted")
    dispatcher = cluster.dispatcher()
    cluster.executor("N1", slots=2)
    cluster.executor("N2", slots=2)
    cluster.run("submit", written(tmp_path / "tasks", sort.tasks))
    for level in range(3):
        wait_until(sort.gate(level).exists, f"round {level}")
        kill_now(dispatcher)
        dispatcher = cluster.dispatcher()
    cluster.wait()
    sort.check()
    line = cluster.run_line()
    assert (line["n_tasks"], line["n_done"], line["n_failed"]) == (sort.n_tasks, sort.n_tasks, 0), line
