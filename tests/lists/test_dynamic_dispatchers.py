"""Tasks that are added to a run which several dispatchers share, by people and by its own tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from group import Group, written
from harness import Eyas, Run, Start, wait_until
from rounds import MergeSort

# So many names that each dispatcher of four has some, whatever the hash says.
N = 12


def waits(gate: Path, then: str = "true") -> str:
    return f"until [ -e {gate} ]; do sleep 0.02; done; {then}"


def makers() -> list[dict[str, Any]]:
    """Each makes a file that is where its name says, and one that is where the first is."""
    return [
        {
            "id": f"a{i}",
            "command": f"echo {i} > a; echo {100 * i} > s",
            "outputs": {"a": f"run:a/{i}", "s": f"run:s/{i}"},
        }
        for i in range(N)
    ]


def submit(group: Group, tmp_path: Path, tasks: list[dict[str, Any]], *options: str) -> None:
    group.run("submit", written(tmp_path / "first", tasks), "--join", group.join(1), *options)
    n_free = sum("gate" not in task["command"] for task in tasks)
    wait_until(lambda: group.n_done() == n_free, "all that waits for nothing")


@pytest.mark.parametrize("n", [2, 4])
def test_what_is_added_is_spread_and_waited_for(start: Start, run: Run, tmp_path: Path, n: int) -> None:
    group = Group(start, run, tmp_path, n)
    group.executors(4, slots=2)
    home, gate = tmp_path / "home", tmp_path / "gate"
    home.mkdir()
    late = {"id": "late", "command": waits(gate, "echo 7 > out"), "outputs": {"out": str(home / "late")}}
    submit(group, tmp_path, [*makers(), late], "--keep")
    sums: list[dict[str, Any]] = [
        {
            "id": f"b{i}",
            "command": "echo $(($(cat a) + $(cat s))) > out",
            "inputs": {"a": f"run:a/{i}", "s": f"run:s/{(i + 1) % N}"},
            "outputs": {"out": f"run:b/{i}", "late": f"run:late/{i}"} if i == 0 else {"out": f"run:b/{i}"},
        }
        for i in range(N)
    ]
    sums[0]["command"] += "; echo here > late"
    # At home when it begins, and made by a task that still waits.
    reads_home = {
        "command": "cat in > out",
        "inputs": {"in": str(home / "late")},
        "outputs": {"out": str(home / "copy")},
    }
    more = written(tmp_path / "more", [*sums, reads_home])
    into = ("--into", "1", "--join", group.join(n))
    assert run("submit", more, *into, "--token", "t").stdout == f"run 1: {N + 1} tasks added\n"
    assert "had been added before" in run("submit", more, *into, "--token", "t").stdout
    # What is added reads what was added, also what only its maker's dispatcher knows of.
    total = {
        "command": "cat b/* late | tr '\\n' ' ' > out",
        "inputs": {**{f"b/{i:02}": f"run:b/{i}" for i in range(N)}, "late": "run:late/0"},
        "outputs": {"out": str(home / "total")},
    }
    other = written(tmp_path / "other", [total])
    assert "used to add other tasks" in run("submit", other, *into, "--token", "t", status=2).stderr
    run("submit", other, "--into", "1", "--join", group.one_address())
    wait_until((home / "total").exists, "what was added")
    assert group.status()["runs"][0]["ended"] is None
    assert not (home / "copy").exists()
    gate.touch()
    run("wait", "--run", "1", "--join", group.join(1))
    expected = [i + 100 * ((i + 1) % N) for i in range(N)]
    assert (home / "total").read_text().split() == [*map(str, expected), "here"]
    assert (home / "copy").read_text() == "7\n"
    line = group.status(n)["runs"][0]
    assert line["n_tasks"] == line["n_done"] == 2 * N + 3
    assert "run 1 has ended" in run("submit", other, *into, status=2).stderr


def test_what_clashes_at_any_dispatcher_is_refused(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    group.executors(2, slots=2)
    gate = tmp_path / "gate"
    homes = [
        {"id": f"h{i}", "command": "echo > out", "outputs": {"out": str(tmp_path / f"h{i}")}}
        for i in range(4)
    ]
    held = {"id": "held", "command": waits(gate), "inputs": {f"{i}": f"run:a/{i}" for i in range(N)}}
    submit(group, tmp_path, [*makers(), *homes, held])

    def refusal(**task: Any) -> str:
        added = written(tmp_path / "added", [{"id": "new", "command": "echo > out", **task}])
        done = run("submit", added, "--into", "1", "--join", group.join(2), status=2)
        assert "`new`" in done.stderr, done
        return done.stderr

    for i in range(4):
        assert f"`a{i}` and `new` both write `run:a/{i}`" in refusal(outputs={"out": f"run:a/{i}"})
        assert f"`a{i}` and `new` both write `run:s/{i}`" in refusal(outputs={"out": f"run:s/{i}"})
        assert f"`h{i}` and `new` both write" in refusal(outputs={"out": str(tmp_path / f"h{i}")})
        assert "which no task of the run writes" in refusal(inputs={"in": f"run:nowhere/{i}"})
        assert "was dropped when the last task" in refusal(inputs={"in": f"run:s/{i}"})
    pair = [{"id": "x", "command": "true", "inputs": {"y": "run:y"}, "outputs": {"x": "run:x"}}]
    pair.append({"id": "y", "command": "true", "inputs": {"x": "run:x"}, "outputs": {"y": "run:y"}})
    circle = run("submit", written(tmp_path / "c", pair), "--into", "1", "--join", group.join(1), status=2)
    assert "`x`" in circle.stderr and "`y`" in circle.stderr
    done = run("submit", tmp_path / "added", "--into", "7", "--join", group.join(1), status=2)
    assert "there is no run 7" in done.stderr
    # What was refused leaves nothing behind: the same names are free.
    fine = {
        "id": "new",
        "command": "cat in > out",
        "inputs": {"in": "run:a/0"},
        "outputs": {"out": "run:nowhere/0"},
    }
    run("submit", written(tmp_path / "fine", [fine]), "--into", "1", "--join", group.join(1))
    gate.touch()
    run("wait", "--run", "1", "--join", group.join(1))
    assert group.status()["runs"][0]["n_done"] == N + 6


@pytest.mark.parametrize("n", [2, 4])
def test_tasks_of_its_own_add_to_a_run_at_once(eyas: Eyas, run: Run, tmp_path: Path, n: int) -> None:
    out = tmp_path / "out"
    out.mkdir()
    tasks: list[dict[str, Any]] = makers()
    for i in range(N):
        more = {
            "command": "cat a half > out",
            "inputs": {"a": f"run:s/{(i + 5) % N}", "half": f"run:half/{i}"},
            "outputs": {"out": str(out / str(i))},
        }
        tasks.append(
            {
                "id": f"adds{i}",
                "command": f"echo half{i} > half; echo '{json.dumps(more)}' | {eyas.path} submit -",
                "inputs": {"s": f"run:s/{(i + 5) % N}"},
                "outputs": {"half": f"run:half/{i}"},
                "dynamic": True,
            }
        )
    options = ("--nodes", "4", "--slots", "2", "--dispatchers", str(n), "--dir", tmp_path / "C")
    done = run("run", written(tmp_path / "tasks", tasks), *options)
    assert f"{3 * N} done, 0 failed" in done.stderr + done.stdout
    for i in range(N):
        assert (out / str(i)).read_text() == f"{100 * ((i + 5) % N)}\nhalf{i}\n"
    assert "adds3.1" in run("explain", "adds3.1", "--dir", tmp_path / "C").stdout


@pytest.mark.parametrize("n", [2, 4])
def test_rounds_are_added_while_dispatchers_die(
    eyas: Eyas, start: Start, run: Run, tmp_path: Path, n: int
) -> None:
    """One after the other is killed while a task of the run adds the next round, and comes back."""
    sort = MergeSort(eyas.path, tmp_path, tmp_path / "sorted")
    group = Group(start, run, tmp_path, n)
    group.executors(4, slots=2)
    run("submit", written(tmp_path / "tasks", sort.tasks), "--join", group.join(1))
    waiting = start("wait", "--join", group.join(2))
    for level in range(3):
        wait_until(sort.gate(level).exists, f"round {level}")
        killed = level % n
        group.dispatchers[killed].kill()
        group.dispatchers[killed] = group.dispatcher(killed + 1)
    waiting.wait()
    sort.check()
    line = group.status()["runs"][0]
    assert (line["n_tasks"], line["n_done"], line["n_failed"]) == (sort.n_tasks, sort.n_tasks, 0), line


def test_nothing_is_added_while_a_dispatcher_is_away(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    group.executors(2)
    gate = tmp_path / "gate"
    held = {"id": "held", "command": waits(gate)}
    run("submit", written(tmp_path / "first", [held]), "--join", group.join(1))
    group.dispatchers[1].kill()
    more = written(tmp_path / "more", [{"id": f"m{i}", "command": "true"} for i in range(8)])
    done = run("submit", more, "--into", "1", "--join", group.join(1), status=3)
    assert "dispatcher 2 of 2 does not answer" in done.stderr
    group.dispatchers[1] = group.dispatcher(2)
    wait_until(lambda: not group.warnings(), "it to be back")
    assert group.status()["runs"][0]["n_tasks"] == 1
    run("submit", more, "--into", "1", "--join", group.join(1))
    gate.touch()
    run("wait", "--run", "1", "--join", group.join(1))
    assert group.status()["runs"][0]["n_done"] == 9
