"""eyas predict: beside what was measured, from a recorded run, from probes, and refused with a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import Run
from lists import workflow

N_FILES = 6
N_TASKS = 60
SLEEP_S = 0.1


def write_list(folder: Path, command: str = f"cksum < x > y; sleep {SLEEP_S}") -> Path:
    (folder / "in").mkdir(exist_ok=True)
    for i in range(N_FILES):
        (folder / "in" / f"{i}.dat").write_bytes(bytes([i]) * 400_000)
    tasks = [
        {
            "id": f"t{i}",
            "command": command,
            "inputs": {"x": f"in/{i % N_FILES}.dat"},
            "outputs": {"y": f"out/{i}"},
        }
        for i in range(N_TASKS)
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return path


@pytest.fixture
def recorded(run: Run, tmp_path: Path) -> Path:
    write_list(tmp_path)
    run(
        "run", "tasks.jsonl", "--nodes", "2", "--slots", "1", "--dir", "c", "--home-rate", "4MB", cwd=tmp_path
    )
    return tmp_path / "c"


def rows(text: str) -> list[list[str]]:
    """Cells of the table's lines, its head first."""
    lines = text.split("placement ", 1)[1].splitlines()
    table = [line for line in lines[1:] if line and not line.startswith("Advice")]
    return [re.split(r"\s{2,}", line) for line in table]


def test_a_run_is_predicted_beside_what_was_measured(run: Run, recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    done = run("predict", "--from", recorded, "--nodes", "2,4", "--price", "0.5", "--json", out)
    assert "measured   predicted" in done.stdout
    replayed = json.loads(out.read_text())["replayed"]
    # Sleeping programs hardly feel a busy machine; the margin is for what a very busy one adds around them.
    assert abs(replayed["error"]) < 0.2, done
    assert abs(replayed["predicted"]["n_home"] - N_FILES) <= N_FILES
    assert [row[2] for row in rows(done.stdout)] == ["2", "4"]
    assert "Advice: " in done.stdout
    assert "cost" in done.stdout


def test_predictions_have_ranges_and_more_nodes_are_faster(run: Run, recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    options = ("--nodes", "1,2,4", "--cache", "1MB,1GB", "--placement", "good-cache-compute,first-available")
    done = run("predict", recorded, *options, "--home-rate", "1GB", "--json", out)
    predictions = json.loads(out.read_text())["predictions"]
    assert len(predictions) == len(rows(done.stdout)) == 12
    for p in predictions:
        assert p["makespan_min_s"] <= p["summary"]["makespan_s"] <= p["makespan_max_s"]
        assert p["makespan_min_s"] < p["makespan_max_s"]
        assert p["summary"]["n_done"] == N_TASKS
    for one, two, four in zip(predictions[::3], predictions[1::3], predictions[2::3], strict=True):
        assert one["summary"]["makespan_s"] > two["summary"]["makespan_s"] > four["summary"]["makespan_s"]
    direct = [p for p in predictions if p["placement"] == "first-available"]
    assert all(p["summary"]["n_home"] == N_TASKS for p in direct)
    again = tmp_path / "again.json"
    run("predict", recorded, *options, "--home-rate", "1GB", "--json", again)
    assert json.loads(again.read_text()) == json.loads(out.read_text())


def test_a_list_is_predicted_from_a_few_probes(run: Run, tmp_path: Path) -> None:
    path = write_list(tmp_path)
    out = tmp_path / "p.json"
    done = run("predict", path, "--nodes", "1,2", "--slots", "1", "--probe", "3", "--json", out, cwd=tmp_path)
    assert "3 tasks of the list are run here" in done.stderr
    assert not (tmp_path / "out").exists(), "what probes write is thrown away"
    one, two = (p["summary"] for p in json.loads(out.read_text())["predictions"])
    assert one["n_done"] == N_TASKS
    assert one["makespan_s"] >= N_TASKS * SLEEP_S
    assert two["makespan_s"] >= N_TASKS * SLEEP_S / 2
    assert two["makespan_s"] < one["makespan_s"]


def test_a_list_is_predicted_from_a_run_of_another(run: Run, recorded: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    path = write_list(other)
    done = run("predict", path, "--from", recorded, "--nodes", "3", cwd=other)
    assert "are run here" not in done.stderr
    assert [row[2] for row in rows(done.stdout)] == ["3"]


def test_a_workflow_is_predicted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(workflow(run_time=2.0)))
    done = run("predict", path, "--nodes", "1,2", "--slots", "1")
    assert "this-machine" in done.stderr
    # One task waits for the other: a second node brings nothing.
    assert "Advice: 1 node " in done.stdout


def test_a_task_that_fits_no_node_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(workflow(run_time=2.0, cores=4)))
    for command in (("predict", path, "--nodes", "2"), ("sim", "workflow", path)):
        done = run(*command, "--slots", "2", status=2)
        assert "task `a` needs 4 slots, and the largest node has 2" in done.stderr


def test_a_task_of_more_than_an_hour_is_predicted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(workflow(run_time=3_700.0)))
    done = run("predict", path, "--nodes", "1,2", "--slots", "1")
    assert [row[2] for row in rows(done.stdout)] == ["1", "2"]


def test_files_larger_than_the_cache_are_predicted(run: Run, tmp_path: Path) -> None:
    """They are read past it, as in a live run."""
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(workflow(run_time=2.0)))
    done = run("predict", path, "--nodes", "1", "--cache", "1kB,1GB", "--slots", "1")
    assert len(rows(done.stdout)) == 2


def test_what_cannot_be_leaves_the_other_rows_alone(run: Run, tmp_path: Path) -> None:
    """What stays on the nodes has to fit into a cache there: the row says that it does not, the others are right."""
    (tmp_path / "in").write_bytes(b"x" * 1000)
    tasks = [
        {"id": "a", "command": "head -c 300000 /dev/zero > m", "inputs": ["in"], "outputs": {"m": "run:m"}},
        {"id": "b", "command": "wc -c < m > n", "inputs": ["run:m"], "outputs": {"n": "out/n"}},
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    run("run", "tasks.jsonl", "--nodes", "1", "--dir", "c", cwd=tmp_path)
    out = tmp_path / "p.json"
    options = ("--nodes", "1,2", "--cache", "100kB,1GB", "--placement", "affinity")
    done = run("predict", "c", *options, "--json", out, cwd=tmp_path)
    assert "`run:m` of task `a` stays on the nodes and has 300000 bytes" in done.stdout
    table = [row for row in rows(done.stdout) if len(row) > 3]
    assert [row[3] == "cannot be" for row in table] == [True, True, False, False]
    assert re.search(r"Advice: . nodes? with `affinity` and caches of", done.stdout)
    predictions = json.loads(out.read_text())["predictions"]
    assert [p.get("cannot_be") is not None for p in predictions] == [True, True, False, False]
    assert all(p["summary"]["n_done"] == 2 for p in predictions[2:])
    # Where nothing can be, that is an error.
    refused = run("predict", "c", "--nodes", "1", "--cache", "100kB", cwd=tmp_path, status=2)
    assert "stays on the nodes" in refused.stderr


def test_workflows_of_every_format_are_predicted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "two.dax"
    path.write_text(
        '<adag version="2.1" name="two">'
        '<job id="a" name="make" runtime="2"><uses file="m" link="output" size="1000"/></job>'
        '<job id="b" name="use" runtime="3"><uses file="m" link="input" size="1000"/></job></adag>\n'
    )
    done = run("predict", path, "--nodes", "1,2")
    assert "Advice: 1 node " in done.stdout


def test_what_one_node_alone_can_read_is_a_range_where_home_was_saturated(run: Run, tmp_path: Path) -> None:
    """Four nodes read all the time: each had a quarter of home, which says nothing of what one of them could read."""
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / "in" / f"{i}.dat").write_bytes(bytes([i]) * 2_000_000)
    tasks = [{"command": "cksum < x", "inputs": {"x": f"in/{i}.dat"}} for i in range(4)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    for nodes in ("4", "1"):
        options = ("--nodes", nodes, "--slots", "1", "--home-rate", "4MB")
        run("run", "tasks.jsonl", *options, "--dir", f"on-{nodes}", cwd=tmp_path)
    out = tmp_path / "p.json"
    done = run("predict", "on-4", "--nodes", "1,4", "--processors", "99", "--json", out, cwd=tmp_path)
    assert re.search(r"to 4 nodes together; what one node alone can read was never seen", done.stdout), done
    assert "run once with --nodes 1 to know" in done.stdout
    said = json.loads(out.read_text())
    slowest, fastest = (end["home_client_bytes_per_s"] for end in said["ends"])
    # A quarter of home and all of it, with room for a busy machine.
    assert slowest < 1.5e6
    assert fastest > 3e6
    one, four = said["predictions"]
    assert one["makespan_max_s"] > 2 * one["makespan_min_s"]
    assert four["makespan_max_s"] < 2 * four["makespan_min_s"]
    # The run on one node says it.
    known = run("predict", "on-1", "--nodes", "1", "--json", out, cwd=tmp_path)
    assert "never seen" not in known.stdout
    assert json.loads(out.read_text())["ends"] == []


def test_a_failed_run_is_no_ground_for_predictions(run: Run, tmp_path: Path) -> None:
    write_list(tmp_path, command="test ! -e x")
    run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, status=1)
    done = run("predict", "--from", "c", cwd=tmp_path, status=2)
    assert f"{N_TASKS} of {N_TASKS} tasks" in done.stderr
    assert "failed" in done.stderr


def test_failing_probes_are_no_ground_either(run: Run, tmp_path: Path) -> None:
    path = write_list(tmp_path, command="test ! -e x")
    done = run("predict", path, cwd=tmp_path, status=2)
    assert "the probes failed" in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("tasks.jsonl", "--placement", "best"), ("`best`", "first-available")),
        (("tasks.jsonl", "--nodes", "0"), ("at least 1",)),
        (("tasks.jsonl", "--price=-1"), ("--price",)),
        (("tasks.jsonl", "--machine", "cray"), ("`cray`", "this-machine")),
        (("absent.jsonl",), ("absent.jsonl", "no such file")),
        (("lost.jsonl",), ("in/absent.dat",)),
        (("grows.jsonl",), ("`plan`", "`run:all`", "eyas export")),
        (("empty",), ("no event log",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_predicted_is_said_before_anything_runs(
    run: Run, tmp_path: Path, command: tuple[str, ...], words: tuple[str, ...]
) -> None:
    write_list(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "lost.jsonl").write_text('{"command": ["true"], "inputs": {"x": "in/absent.dat"}}\n')
    grows = {"id": "plan", "command": ["true"], "dynamic": True, "promises": ["run:all"]}
    (tmp_path / "grows.jsonl").write_text(json.dumps(grows) + "\n")
    done = run("predict", *command, status=2, cwd=tmp_path)
    assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 1, done
    assert "are run here" not in done.stderr
    for word in words:
        assert word in done.stderr, done
