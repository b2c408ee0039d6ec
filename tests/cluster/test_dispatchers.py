"""Several dispatchers: workflows whose files cross from one to another, with real processes that die and come back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from group import Group, written
from harness import Background, Eyas, Run, Start, log_entries, log_text, wait_until

N_FILES = 8


def workflow(home: Path, gate: Path | None = None, n: int = N_FILES) -> list[dict[str, Any]]:
    """`n` numbers, each with the next one added, doubled as results at home, all of which one task adds up.

    Each sum has inputs of two makers and is a task of its own name, so files cross whatever the hash says; the doubled
    ones are files at home that another task reads.
    """
    wait = f"while [ ! -e {gate} ]; do sleep 0.02; done; " if gate else ""
    made = [{"id": f"a{i}", "command": f"echo {i} > out", "outputs": {"out": f"run:a/{i}"}} for i in range(n)]
    added = [
        {
            "id": f"b{i}",
            "command": f"{wait}echo $(($(cat x) + $(cat y))) > out",
            "inputs": {"x": f"run:a/{i}", "y": f"run:a/{(i + 1) % n}"},
            "outputs": {"out": f"run:b/{i}"},
        }
        for i in range(n)
    ]
    doubled = [
        {
            "id": f"c{i}",
            "command": "echo $((2 * $(cat in))) > out",
            "inputs": {"in": f"run:b/{i}"},
            "outputs": {"out": str(home / f"c{i}")},
        }
        for i in range(n)
    ]
    total = {
        "id": "sum",
        "command": "cat in/* | awk '{s += $1} END {print s}' > out",
        "inputs": {f"in/{i}": str(home / f"c{i}") for i in range(n)},
        "outputs": {"out": str(home / "sum")},
    }
    return [total, *doubled, *added, *made]


def check(home: Path, n: int = N_FILES) -> None:
    sums = [2 * (i + (i + 1) % n) for i in range(n)]
    assert [int((home / f"c{i}").read_text()) for i in range(n)] == sums
    assert int((home / "sum").read_text()) == sum(sums)
    assert len(list(home.iterdir())) == n + 1, "only results come home"


@pytest.mark.parametrize("n", [2, 4])
def test_an_embedded_cluster_of_several(run: Run, tmp_path: Path, n: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    tasks = written(tmp_path / "tasks.jsonl", workflow(home))
    done = run("run", tasks, "--nodes", "4", "--slots", "1", "--dispatchers", str(n), "--dir", tmp_path / "C")
    check(home)
    assert f"{3 * N_FILES + 1} done, 0 failed" in done.stderr + done.stdout
    logs = [path.read_text() for path in sorted((tmp_path / "C").glob("dispatcher*/events.jsonl"))]
    assert len(logs) == n
    assert all('"assign"' in log for log in logs), "each dispatcher had tasks"
    assert any('"held"' in log for log in logs), "files crossed"
    for k in range(1, n + 1):
        run("replay", "--dir", tmp_path / "C" / ("dispatcher" if k == 1 else f"dispatcher{k}"))


@pytest.mark.parametrize("n", [1, 3])
def test_a_reduce_of_several_keeps_the_order_of_its_inputs(run: Run, tmp_path: Path, n: int) -> None:
    """Its parts are tasks of whichever dispatcher has what they make; their inputs come from the nodes of all."""
    made = [
        {"id": f"m{i}", "command": f"echo {i} > out", "outputs": {"out": f"run:m/{i}"}} for i in range(40)
    ]
    joined = {
        "id": "joined",
        "command": "cat {inputs} > joined",
        "inputs": {f"m{i}": f"run:m/{i}" for i in range(40)},
        "outputs": {"joined": str(tmp_path / "joined")},
        "reduce": 3,
    }
    tasks = written(tmp_path / "tasks.jsonl", [*made, joined])
    done = run("run", tasks, "--nodes", "3", "--slots", "1", "--dispatchers", str(n), "--dir", tmp_path / "C")
    # 40 files are 14, 5 and 2 parts, and the last one.
    assert "62 done, 0 failed" in done.stderr, done.stderr
    assert (tmp_path / "joined").read_text() == "".join(f"{i}\n" for i in range(40))
    logs = sorted((tmp_path / "C").glob("dispatcher*/events.jsonl"))
    parts = [log.read_text().count(".reduce/") for log in logs]
    assert len(parts) == n and all(parts), "each dispatcher had parts"


def searched(home: Path, n: int = 12, gate: Path | None = None) -> list[dict[str, Any]]:
    """One task splits a file, `n` search the parts together with one query, and one gathers what they found.

    The file is split when `gate/split` is there, and the query is made when `gate/query` is.
    """

    def after(name: str) -> str:
        return f"while [ ! -e {gate / name} ]; do sleep 0.02; done; " if gate else ""

    ways = {"multicast": "always", "scatter": "always", "gather": "always"}
    parts = {f"part{i}": f"run:part/{i}" for i in range(n)}
    split = {
        "id": "split",
        "label": "split",
        "command": f"{after('split')}for i in $(seq 0 {n - 1}); do echo $i > part$i; done",
        "outputs": parts,
    }
    query = {
        "id": "query",
        "label": "query",
        "command": f"{after('query')}echo 100 > out",
        "outputs": {"out": "run:query"},
    }
    search = [
        {
            "id": f"search{i}",
            "label": "even" if i % 2 == 0 else "odd",
            "command": "sleep 0.2; echo $(($(cat part) + $(cat query))) > out",
            "inputs": {"part": f"run:part/{i}", "query": "run:query"},
            "outputs": {"out": f"run:found/{i}"},
            "hints": ways,
        }
        for i in range(n)
    ]
    # Of two files each, and then of all: a tree by hand.
    merge = {
        "id": "merge",
        "label": "merge",
        "command": "cat in/* | awk '{s += $1} END {print s}' > out",
        "inputs": {f"in/{i}": f"run:found/{i}" for i in range(n)},
        "outputs": {"out": str(home / "merged")},
        "hints": ways,
    }
    return [split, query, *search, merge]


def events(cluster: Path) -> list[dict[str, Any]]:
    """What the event logs of all dispatchers of a run have so far."""
    return [entry for path in sorted(cluster.glob("dispatcher*/events.jsonl")) for entry in log_entries(path)]


def wait_for_nodes(cluster: Path, n: int, running: Background) -> None:
    """Until so many nodes have joined a dispatcher."""

    def have_joined() -> bool:
        return sum("executor_joined" in entry.get("in", {}) for entry in events(cluster)) >= n

    wait_until(have_joined, f"{n} nodes", alive=running)


def wait_for_scatter(cluster: Path, running: Background) -> None:
    """Until files that were dealt out over the nodes are there."""

    def has_ended() -> bool:
        ends = [entry["out"].get("end_collective") for entry in events(cluster) if "out" in entry]
        return any(end and end["record"]["kind"] == "scatter" for end in ends)

    wait_until(has_ended, "the end of a scatter", alive=running)


def test_a_group_finds_the_patterns_of_the_whole_run(run: Run, start: Start, tmp_path: Path) -> None:
    """Four dispatchers have a quarter each, and find and plan what one does that has all."""
    n, found, kinds = 12, {}, {}
    for dispatchers in (1, 4):
        home, cluster = tmp_path / f"home{dispatchers}", tmp_path / f"C{dispatchers}"
        home.mkdir()
        gate = tmp_path / f"gate{dispatchers}"
        gate.mkdir()
        tasks = written(tmp_path / "tasks.jsonl", searched(home, n, gate))
        options = ("--nodes", "8", "--slots", "1", "--dispatchers", str(dispatchers))
        running = start("run", tasks, *options, "--dir", cluster)
        # Files are dealt out over the nodes that are there when they are made.
        wait_for_nodes(cluster, 8, running)
        (gate / "split").touch()
        if dispatchers == 1:
            # Until the query is there, only the scatter moves the parts.
            wait_for_scatter(cluster, running)
        (gate / "query").touch()
        running.wait()
        assert int((home / "merged").read_text()) == sum(range(n)) + 100 * n
        logs = [log_entries(path) for path in sorted(cluster.glob("dispatcher*/events.jsonl"))]
        assert len(logs) == dispatchers
        actions = [[entry["out"] for entry in log if "out" in entry] for log in logs]
        pattern = [
            {
                json.dumps(out["found_pattern"]["evidence"], sort_keys=True)
                for out in outs
                if "found_pattern" in out
            }
            for outs in actions
        ]
        assert all(one == pattern[0] for one in pattern), "each dispatcher knows all of them"
        found[dispatchers] = pattern[0]
        records = [
            out["end_collective"]["record"] for outs in actions for out in outs if "end_collective" in out
        ]
        kinds[dispatchers] = {record["kind"] for record in records if record["n_arrived"] > 0}
        page = tmp_path / f"{dispatchers}.html"
        run("report", "--dir", cluster, "--out", page)
        sentences = json.loads(page.with_suffix(".json").read_text())["patterns"]
        assert sorted(sentences) == sorted(set(sentences)), "each once"
        assert {s.split(":")[0] for s in sentences} == {"gather", "multicast", "scatter"}
        assert "gather" in run("explain", "merge", "--dir", cluster).stdout
        assert "of stages even and odd" in run("explain", "split", "--dir", cluster).stdout
        for k in range(1, dispatchers + 1):
            run("replay", "--dir", cluster / ("dispatcher" if k == 1 else f"dispatcher{k}"))
    assert found[4] == found[1]
    # Nodes go to the dispatchers that have more to do: whose files were scattered may have one left by then.
    assert {"gather", "scatter"} <= kinds[1] and "gather" in kinds[4], kinds


def test_the_logs_of_several_are_one_report(run: Run, tmp_path: Path) -> None:
    home, cluster = tmp_path / "home", tmp_path / "C"
    home.mkdir()
    n_tasks = 3 * N_FILES + 1
    tasks = written(tmp_path / "tasks.jsonl", workflow(home))
    run("run", tasks, "--nodes", "4", "--slots", "1", "--dispatchers", "2", "--dir", cluster)

    def report(folder: Path, name: str) -> tuple[dict[str, Any], str]:
        page = tmp_path / f"{name}.html"
        run("report", "--dir", folder, "--out", page)
        figures: dict[str, Any] = json.loads(page.with_suffix(".json").read_text())
        return figures, page.read_text()

    whole, page = report(cluster, "whole")
    parts = [report(cluster / name, name)[0] for name in ("dispatcher", "dispatcher2")]
    assert (whole["totals"]["n_tasks"], whole["totals"]["n_done"]) == (n_tasks, n_tasks)
    assert whole["complete"] and len(whole["runs"]) == 1
    assert (whole["n_dispatchers_read"], whole["n_dispatchers"]) == (2, 2)
    assert "The logs of 2 dispatchers" in page
    for figure in ("n_tasks", "n_attempts", "cache_local_bytes", "cache_remote_bytes", "home_in_bytes"):
        assert whole["totals"][figure] == sum(part["totals"][figure] for part in parts), figure
    assert all(0 < part["totals"]["n_tasks"] < n_tasks for part in parts)
    assert {e["name"] for e in whole["executors"]} == {f"node{i}" for i in range(1, 5)}
    # Each task is found, wherever it was.
    for task in ("sum", "a0", "b1", "b2", "c3"):
        assert "done" in run("explain", task, "--dir", cluster).stdout
    assert "name the task by its id" in run("explain", "#0", "--dir", cluster, status=2).stderr
    # The message about the directory of one says what it is.
    _, alone = report(cluster / "dispatcher2", "alone")
    assert "had 2 dispatchers" in alone


def test_a_run_of_several_is_exported_whole(run: Run, tmp_path: Path) -> None:
    home, cluster = tmp_path / "home", tmp_path / "C"
    home.mkdir()
    tasks = written(tmp_path / "tasks.jsonl", workflow(home))
    run("run", tasks, "--nodes", "4", "--slots", "1", "--dispatchers", "2", "--dir", cluster)

    def exported(folder: Path) -> tuple[dict[str, Any], str]:
        done = run("export", "--dir", folder, "--wfformat", "-")
        workflow: dict[str, Any] = json.loads(done.stdout)["workflow"]
        return workflow, done.stderr

    whole, said = exported(cluster)
    assert said == ""
    planned = {task["id"]: task for task in whole["specification"]["tasks"]}
    measured = {task["id"]: task for task in whole["execution"]["tasks"]}
    assert len(planned) == len(measured) == 3 * N_FILES + 1
    # Both sides of files that crossed are there, and times of all tasks.
    assert sorted(planned["sum"]["parents"]) == sorted(f"c{i}" for i in range(N_FILES))
    assert sorted(planned["b0"]["parents"]) == ["a0", "a1"]
    assert all(task["runtimeInSeconds"] > 0 for task in measured.values())
    # The nodes that ran tasks, of both dispatchers; one that joined late may have had none.
    machines = {machine["nodeName"] for machine in whole["execution"]["machines"]}
    table = json.loads(run("tasks", "--dir", cluster, "--json").stdout)["tasks"]
    assert machines == {task["node"] for task in table} and len(machines) > 1
    sizes = {file["id"]: file["sizeInBytes"] for file in whole["specification"]["files"]}
    assert len(sizes) == 3 * N_FILES + 1 and all(size > 0 for size in sizes.values())
    part, said = exported(cluster / "dispatcher2")
    assert 0 < len(part["specification"]["tasks"]) < len(planned)
    assert "one of 2 dispatchers" in said


def test_a_run_of_several_is_resumed(run: Run, tmp_path: Path) -> None:
    home, cluster = tmp_path / "home", tmp_path / "C"
    home.mkdir()
    tasks = written(tmp_path / "tasks.jsonl", workflow(home))
    several = ("--nodes", "2", "--slots", "1", "--dispatchers", "2")
    run("run", tasks, *several, "--dir", cluster)
    again = run("run", tasks, "--resume", cluster)
    assert "nothing to do" in again.stderr
    # What is gone runs again, with what makes its inputs and what reads it, and no more.
    (home / "c0").unlink()
    left = run("run", tasks, *several, "--resume", cluster)
    assert "5 done, 0 failed" in left.stderr + left.stdout
    check(home)


@pytest.mark.parametrize("n", [2, 4])
def test_executors_with_one_address_are_shared_out(start: Start, run: Run, tmp_path: Path, n: int) -> None:
    group = Group(start, run, tmp_path, n)
    group.executors(n)
    wait_until(lambda: all(len(group.at(k)) == 1 for k in range(1, n + 1)), "one executor at each")
    home = tmp_path / "home"
    home.mkdir()
    run("run", written(tmp_path / "tasks.jsonl", workflow(home)), "--join", group.join(n))
    check(home)
    # Any dispatcher answers for all of them.
    for k in (1, n):
        status = group.status(k)
        assert [r["n_done"] for r in status["runs"]] == [3 * N_FILES + 1]
        assert len(status["executors"]) == n
        for task in ("sum", "a0", "b3"):
            assert "done" in run("explain", task, "--join", group.join(k)).stdout


@pytest.mark.parametrize("killed", [1, 2])
def test_one_dispatcher_dies_in_the_middle(start: Start, run: Run, tmp_path: Path, killed: int) -> None:
    group = Group(start, run, tmp_path, 2)
    group.executors(4)
    home, gate = tmp_path / "home", tmp_path / "gate"
    home.mkdir()
    other = group.join(3 - killed)
    run("submit", written(tmp_path / "tasks.jsonl", workflow(home, gate)), "--join", other)
    waiting = start("wait", "--join", other)
    wait_until(lambda: group.status(3 - killed)["runs"][0]["n_done"] >= N_FILES, "the first stage")
    group.dispatchers[killed - 1].kill()
    gate.touch()
    wait_until(
        lambda: "does not answer" in " ".join(group.status(3 - killed)["warnings"]),
        "a warning of its absence",
    )
    assert waiting.is_alive(), "who waits goes on waiting"
    group.dispatchers[killed - 1] = group.dispatcher(killed)
    waiting.wait()
    check(home)
    assert group.status()["runs"][0]["n_failed"] == 0


def test_work_of_a_dispatcher_that_died_is_nobody_elses(start: Start, run: Run, tmp_path: Path) -> None:
    """An executor comes back to the dispatcher that it belongs to, and to no other one, where its tasks' numbers are others'."""
    group = Group(start, run, tmp_path, 2)
    for k, slots in ((1, "6"), (2, "1")):
        names = ("--dir", tmp_path / f"N{k}", "--name", f"N{k}", "--slots", slots)
        start("executor", "--join", group.join(1), *names)
        wait_until(lambda k=k: f"N{k}" in group.at(k), f"N{k} to join")  # type: ignore[misc]
    assert (group.at(1), group.at(2)) == ({"N1"}, {"N2"})
    home, gate, ran = tmp_path / "home", tmp_path / "gate", tmp_path / "ran"
    home.mkdir()
    n = 40
    work = f"while [ ! -e {gate} ]; do sleep 0.02; done; sleep 0.1"
    tasks = [
        {
            "id": f"t{i}",
            "command": f"echo {i} >> {ran}; {work}; echo {i} > o",
            "outputs": {"o": str(home / f"{i}")},
        }
        for i in range(n)
    ]
    run("submit", written(tmp_path / "tasks.jsonl", tasks), "--join", group.join(1))
    wait_until(lambda: ran.exists() and len(ran.read_text().split()) >= 7, "all slots to be at work")
    group.dispatchers[0].kill()
    gate.touch()
    # By then N1 has ended what it had, and looked for its dispatcher for a while.
    wait_until(lambda: '"end_run"' in log_text(group.dir(2) / "events.jsonl"), "the part of the second one")
    group.dispatchers[0] = group.dispatcher(1)
    run("wait", "--join", group.join(2))
    assert {path.name: path.read_text().strip() for path in home.iterdir()} == {
        f"{i}": f"{i}" for i in range(n)
    }
    assert sorted(ran.read_text().split(), key=int) == [f"{i}" for i in range(n)], "nothing ran twice"
    assert (group.at(1), group.at(2)) == ({"N1"}, {"N2"})


def test_an_executor_that_holds_what_others_read_is_killed(
    eyas: Eyas, start: Start, run: Run, tmp_path: Path
) -> None:
    group = Group(start, run, tmp_path, 2)
    nodes = group.executors(4)
    home, gate = tmp_path / "home", tmp_path / "gate"
    home.mkdir()
    run("submit", written(tmp_path / "tasks.jsonl", workflow(home, gate)), "--join", group.join(1))
    wait_until(lambda: group.n_done() >= N_FILES, "the first stage")
    os.kill(nodes[0].pid, signal.SIGKILL)
    nodes[0].wait(status=None)
    gate.touch()
    run("wait", "--join", group.join(2), timeout=120)
    check(home)


def test_two_runs_may_use_equal_names_and_one_is_cancelled(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    group.executors(2, slots=2)
    first, second, gate = tmp_path / "first", tmp_path / "second", tmp_path / "gate"
    first.mkdir()
    second.mkdir()
    run("submit", written(tmp_path / "1.jsonl", workflow(first, gate)), "--join", group.join(1))
    run("submit", written(tmp_path / "2.jsonl", workflow(second)), "--join", group.join(2))
    run("cancel", "--run", "1", "--join", group.join(2))
    run("wait", "--run", "2", "--join", group.join(1))
    check(second)
    run("wait", "--run", "1", "--join", group.join(1), status=1)
    runs = group.status()["runs"]
    assert [r["run"] for r in runs] == [1, 2]
    assert runs[0]["n_done"] + runs[0]["n_cancelled"] == 3 * N_FILES + 1
    assert runs[1]["n_done"] == 3 * N_FILES + 1


def test_an_idle_executor_goes_where_there_is_work(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    group.executors(2)
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    seen.mkdir()
    source, other = tmp_path / "source", tmp_path / "other"
    source.write_text("x")
    other.write_text("y")
    # All but one read one file, so these are at one dispatcher; for two of them to run at once both executors have to go there.
    work = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    reads = {"inputs": {"in": str(source)}}
    tasks = [{"id": f"t{i}", "command": f"touch {seen}/{i}; {work}", **reads} for i in range(6)]
    tasks.append({"id": "other", "command": "true", "inputs": {"in": str(other)}})
    run("submit", written(tmp_path / "tasks.jsonl", tasks), "--join", group.join(1))
    wait_until(lambda: group.at(1) == {"N1", "N2"} or group.at(2) == {"N1", "N2"}, "the idle one's move")
    wait_until(lambda: len(list(seen.iterdir())) >= 2, "two tasks at once")
    gate.touch()
    run("wait", "--join", group.join(1))


def test_several_have_no_users_and_say_so(run: Run, tmp_path: Path) -> None:
    run("up", "--dir", "c", "--nodes", "2", "--slots", "1", "--dispatchers", "2")
    try:
        for words in (
            ["add", "ada"],
            ["set", "ada", "--weight", "2"],
            ["remove", "ada"],
            ["list"],
            ["list", "--json"],
        ):
            refused = run("user", *words, status=None)
            assert refused.status != 0 and refused.stdout == ""
            assert "a cluster of several dispatchers has no users beside its owner" in refused.stderr
            assert "start a cluster of one dispatcher to share it" in refused.stderr
        assert not (tmp_path / "ada.json").exists(), "a key that opens nothing is not left"
    finally:
        run("down")


def test_fewer_nodes_than_dispatchers_are_refused(run: Run) -> None:
    done = run("map", "--range", "0..2", "--dispatchers", "2", "--", "true", status=2)
    assert "at least as many nodes" in done.stderr


def test_a_directory_of_a_group_is_not_taken_for_another(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    group.dispatchers[1].stop()
    alone = run("dispatcher", "--dir", group.dir(2), status=3)
    assert "--member 2/2" in alone.stderr
    wrong = run("dispatcher", "--dir", group.dir(2), "--member", "1/2", status=3)
    assert "dispatcher 2 of 2" in wrong.stderr


def test_a_submission_needs_all_dispatchers(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    group.executors(2)
    group.dispatchers[1].kill()
    wait_until(lambda: group.warnings(), "a warning of its absence")
    tasks = written(tmp_path / "t.jsonl", [{"id": "t", "command": "true"}])
    done = run("submit", tasks, "--join", group.join(1), status=None)
    assert done.status != 0
    assert "dispatcher 2 of 2 does not answer" in done.stderr


def copied_early(group: Group) -> Path:
    """The first one's join file as a user copies it, as the guide says, before the others are up."""
    copy = group.tmp_path / "copy.json"
    shutil.copy(group.join(1), copy)
    assert json.loads(copy.read_text())["members"][1] == ""
    return copy


def test_an_early_copy_of_the_join_file_finds_those_that_came_later(
    start: Start, run: Run, tmp_path: Path
) -> None:
    group = Group(start, run, tmp_path, 2, n_up=1)
    copy = copied_early(group)
    home, gate = tmp_path / "home", tmp_path / "gate"
    home.mkdir()
    tasks = written(tmp_path / "tasks.jsonl", workflow(home, gate))
    group.start_up_to(2)
    group.executors(2)

    run("submit", tasks, "--join", copy)
    seen = json.loads(run("status", "--json", "--join", copy).stdout)
    assert (seen["warnings"], len(seen["executors"])) == ([], 2)
    assert seen["runs"][0]["n_tasks"] == 3 * N_FILES + 1
    gate.touch()
    done = run("wait", "--join", copy)
    check(home)
    assert f"{3 * N_FILES + 1} done" in done.stderr + done.stdout


def test_a_submission_waits_for_a_dispatcher_that_is_coming(start: Start, run: Run, tmp_path: Path) -> None:
    tasks = written(tmp_path / "t.jsonl", [{"id": f"t{i}", "command": "true"} for i in range(8)])
    lonely = Group(start, run, tmp_path / "lonely", 2, n_up=1)
    never = start("submit", tasks, "--join", copied_early(lonely))

    group = Group(start, run, tmp_path / "group", 2, n_up=1)
    copy = copied_early(group)
    warned = json.loads(run("status", "--json", "--join", copy).stdout)["warnings"]
    assert any("dispatcher 2 of 2 has not come yet" in warning for warning in warned)
    submitting = start("submit", tasks, "--join", copy)
    group.start_up_to(2)
    submitting.wait()
    group.executors(2)
    assert "8 done" in run("wait", "--join", copy).stderr

    assert "dispatcher 2 of 2 has not come yet" in never.wait(status=3).stderr


def test_what_a_missing_dispatcher_has_is_not_taken_to_be_over(
    start: Start, run: Run, tmp_path: Path
) -> None:
    group = Group(start, run, tmp_path, 2, n_up=1)
    copy = copied_early(group)
    group.start_up_to(2)
    group.executors(2)
    gate = tmp_path / "gate"
    wait_for_gate = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    tasks = [{"id": f"t{i}", "command": wait_for_gate} for i in range(8)]
    run("submit", written(tmp_path / "t.jsonl", tasks), "--join", copy)
    wait_until(lambda: group.status()["runs"][0]["n_running"] == 2, "both executors to be busy")
    group.dispatchers[1].kill()
    gate.touch()

    def first_part() -> dict[str, Any]:
        part: dict[str, Any] = json.loads(run("status", "--json", "--join", copy).stdout)["runs"][0]
        return part

    wait_until(lambda: first_part()["n_done"] == first_part()["n_tasks"], "the first one's part to end")
    part = first_part()
    assert 0 < part["n_tasks"] < 8
    assert part["ended"] is None
    waiting = start("wait", "--join", copy)
    wait_until(
        lambda: "dispatcher 2 of 2" in waiting.stderr, "a message that says what is waited for", alive=waiting
    )
    group.dispatcher(2)
    assert "8 done" in waiting.wait().stderr


def test_a_run_took_no_longer_than_the_time_that_passed(start: Start, run: Run, tmp_path: Path) -> None:
    """A dispatcher that was killed goes on with its clock: it did not know how far it was, and was some seconds ahead each time."""
    group = Group(start, run, tmp_path, 2)
    group.executors(2)
    gate = tmp_path / "gate"
    tasks = [{"id": f"t{i}", "command": f"while [ ! -e {gate} ]; do sleep 0.02; done"} for i in range(4)]
    began = time.monotonic()
    run("submit", written(tmp_path / "t.jsonl", tasks), "--join", group.join(1))
    for k in (2, 1, 2):
        group.dispatchers[k - 1].kill()
        group.dispatchers[k - 1] = group.dispatcher(k)
    wait_until(lambda: not group.warnings(), "the dispatchers to know each other")
    gate.touch()
    run("wait", "--join", group.join(1))
    passed = time.monotonic() - began
    summary = group.status()["runs"][0]
    # Each has a clock of its own, set by the machine's when it first started.
    assert (summary["ended"] - summary["opened"]) / 1e9 < passed + 1
