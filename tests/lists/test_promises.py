"""Tasks that read what will be added: the file is promised by the task that adds its writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from group import Group, written
from harness import Eyas, Run, Start, wait_until

ROUND = """
import json, os, subprocess, sys

eyas, gates, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
if left:
    more = {"id": f"round-{left - 1}", "dynamic": True, "promises": ["run:total", "run:rest"],
            "command": ["python3", "round.py", eyas, gates, str(left - 1)],
            "inputs": {"round.py": os.environ["ROUND"]}, "env": {"ROUND": os.environ["ROUND"]}}
else:
    more = {"id": "writer", "command": "echo total > t; echo rest > r",
            "outputs": {"t": "run:total", "r": "run:rest"}}
with open("more.jsonl", "w") as out:
    out.write(json.dumps(more) + "\\n")
open(f"{gates}/begun-{left}", "w").close()
sys.exit(subprocess.call([eyas, "submit", "more.jsonl"]))
"""

N_READERS = 8


def rounds(eyas: Eyas, folder: Path, n_rounds: int) -> list[dict[str, Any]]:
    """Readers of two files, which whoever the last round adds will write."""
    (folder / "gates").mkdir()
    program = folder / "round.py"
    program.write_text(ROUND)
    plan = {
        "id": f"round-{n_rounds}",
        "command": ["python3", "round.py", str(eyas.path), str(folder / "gates"), str(n_rounds)],
        "inputs": {"round.py": str(program)},
        "env": {"ROUND": str(program)},
        "dynamic": True,
        "promises": ["run:total", "run:rest"],
    }
    # Whatever each makes has a name of its own, so they are at different dispatchers.
    readers = [
        {
            "id": f"r{i}",
            "command": "cat t r > out; cat out > copy",
            "inputs": {"t": "run:total", "r": "run:rest"},
            "outputs": {"copy": f"run:copy/{i}", "out": str(folder / f"out{i}")},
        }
        for i in range(N_READERS)
    ]
    return [*readers, plan]


def check(folder: Path) -> None:
    for i in range(N_READERS):
        assert (folder / f"out{i}").read_text() == "total\nrest\n"


@pytest.mark.parametrize("n_dispatchers", [1, 2, 4])
def test_readers_wait_until_the_last_round(eyas: Eyas, run: Run, tmp_path: Path, n_dispatchers: int) -> None:
    tasks = written(tmp_path / "tasks", rounds(eyas, tmp_path, 3))
    options = ("--nodes", str(n_dispatchers), "--slots", "2", "--dispatchers", str(n_dispatchers))
    done = run("run", tasks, *options, "--dir", tmp_path / "C")
    check(tmp_path)
    assert f"{N_READERS + 5} done, 0 failed" in done.stderr + done.stdout
    # As a workflow the run is whole: readers follow the writer that was added.
    whole = json.loads(run("export", "--dir", tmp_path / "C", "--wfformat", "-").stdout)["workflow"]
    parents = {task["id"]: task["parents"] for task in whole["specification"]["tasks"]}
    assert all(parents[f"r{i}"] == ["writer"] for i in range(N_READERS))


@pytest.mark.parametrize("n", [2, 4])
def test_promises_outlive_dispatchers(eyas: Eyas, start: Start, run: Run, tmp_path: Path, n: int) -> None:
    group = Group(start, run, tmp_path, n)
    group.executors(4, slots=2)
    run("submit", written(tmp_path / "tasks", rounds(eyas, tmp_path, 3)), "--join", group.join(1))
    waiting = start("wait", "--join", group.join(2))
    for left in (3, 2, 1):
        wait_until((tmp_path / "gates" / f"begun-{left}").exists, f"round {left}")
        killed = left % n
        group.dispatchers[killed].kill()
        group.dispatchers[killed] = group.dispatcher(killed + 1)
    waiting.wait()
    check(tmp_path)
    line = group.status()["runs"][0]
    assert (line["n_done"], line["n_failed"]) == (N_READERS + 5, 0)


@pytest.mark.parametrize("n_dispatchers", [1, 2, 4])
def test_a_broken_promise_ends_its_readers_by_name(run: Run, tmp_path: Path, n_dispatchers: int) -> None:
    readers: list[dict[str, Any]] = [
        {"id": f"r{i}", "command": "true", "inputs": {"x": "run:x"}, "outputs": {"y": f"run:y/{i}"}}
        for i in range(N_READERS)
    ]
    late = {"id": "after", "command": "true", "inputs": {"y": "run:y/0"}}
    plan = {"id": "plan", "command": "echo nothing to add", "dynamic": True, "promises": ["run:x"]}
    tasks = written(tmp_path / "tasks", [plan, *readers, late])
    options = ("--nodes", str(n_dispatchers), "--slots", "1", "--dispatchers", str(n_dispatchers))
    done = run("run", tasks, *options, "--dir", tmp_path / "C", status=1)
    said = "nobody wrote its input `run:x`: task `plan`, which promised it, ended without adding a task"
    assert said in done.stderr + done.stdout
    assert f"1 done, {N_READERS + 1} failed" in done.stderr + done.stdout
    for i in range(N_READERS):
        assert said in run("explain", f"r{i}", "--dir", tmp_path / "C").stdout


def test_a_promise_is_kept_from_outside(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    group.executors(2, slots=2)
    gate = tmp_path / "gate"
    plan = {
        "id": "plan",
        "command": f"until [ -e {gate} ]; do sleep 0.02; done",
        "dynamic": True,
        "promises": [f"run:x{i}" for i in range(N_READERS)],
    }
    readers: list[dict[str, Any]] = [
        {
            "id": f"r{i}",
            "command": "cat x > out; cat out > home",
            "inputs": {"x": f"run:x{i}"},
            "outputs": {"out": f"run:out{i}", "home": str(tmp_path / f"home{i}")},
        }
        for i in range(N_READERS)
    ]
    run("submit", written(tmp_path / "tasks", [plan, *readers]), "--join", group.join(1))
    into = ("--into", "1", "--join", group.join(2))
    why = run("explain", "r0", "--join", group.join(1)).stdout
    assert "waits for `run:x0`, which" in why

    def refusal(*tasks: dict[str, Any]) -> str:
        return run("submit", written(tmp_path / "more", list(tasks)), *into, status=2).stderr

    # Whoever writes it may not wait for its readers.
    writer = {"id": "w", "command": "true", "inputs": {"o": "run:out3"}, "outputs": {"x": "run:x3"}}
    assert "in a circle" in refusal(writer) and "`r3`, `w`" in refusal(writer)
    other = {"id": "p", "command": "true", "dynamic": True, "promises": ["run:out1"]}
    assert "task `p` promises `run:out1`, which task `r1` writes" in refusal(other)
    # One task writes two of them, the others have one each.
    pair = {
        "command": "echo 0 > a; echo 1 > b",
        "outputs": {"a": "run:x0", "b": "run:x1"},
    }
    single = [{"command": f"echo {i} > x", "outputs": {"x": f"run:x{i}"}} for i in range(2, N_READERS)]
    run("submit", written(tmp_path / "more", [pair, *single]), *into)
    twice = {"id": "again", "command": "true", "outputs": {"x": "run:x0"}}
    assert "both write `run:x0`" in refusal(twice)
    wait_until(lambda: all((tmp_path / f"home{i}").exists() for i in range(N_READERS)), "the readers")
    gate.touch()
    run("wait", "--run", "1", "--join", group.join(1))
    assert [(tmp_path / f"home{i}").read_text() for i in range(N_READERS)] == [
        f"{i}\n" for i in range(N_READERS)
    ]
    assert group.status()["runs"][0]["n_failed"] == 0
