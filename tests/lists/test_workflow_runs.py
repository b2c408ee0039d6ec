"""Workflows whose files stay on the nodes (`run:`), with processes that die in the middle of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Run, wait_until
from weather import Cluster, kill_now


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def written(path: Path, tasks: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return path


def three_stages(result: Path, n: int = 6) -> list[dict[str, Any]]:
    """`n` numbers, each doubled, all added up."""
    made = [{"id": f"a{i}", "command": f"echo {i} > out", "outputs": {"out": f"run:a/{i}"}} for i in range(n)]
    doubled = [
        {
            "id": f"b{i}",
            "command": "echo $((2 * $(cat in))) > out",
            "inputs": {"in": f"run:a/{i}"},
            "outputs": {"out": f"run:b/{i}"},
        }
        for i in range(n)
    ]
    total = {
        "id": "sum",
        "command": "cat in/* | awk '{s += $1} END {print s}' > out",
        "inputs": {f"in/{i}": f"run:b/{i}" for i in range(n)},
        "outputs": {"out": str(result)},
    }
    return [*made, *doubled, total]


@pytest.mark.parametrize("keep", [False, True])
def test_only_the_result_comes_home(run: Run, tmp_path: Path, keep: bool) -> None:
    home = tmp_path / "home"
    home.mkdir()
    tasks = written(tmp_path / "tasks.jsonl", three_stages(home / "sum"))
    options = ["--keep"] if keep else []
    run("run", tasks, "--nodes", "3", "--slots", "1", "--dir", tmp_path / "D", *options)
    assert (home / "sum").read_text() == "30\n"
    assert [path.name for path in home.iterdir()] == ["sum"]
    log = next((tmp_path / "D").rglob("events.jsonl")).read_text()
    assert ("drop_replicas" in log) is not keep


def test_a_file_that_nobody_makes_is_refused_with_place_and_name(run: Run, tmp_path: Path) -> None:
    tasks = three_stages(tmp_path / "sum")
    tasks[-1]["inputs"]["in/x"] = "run:nowhere"
    done = run("run", written(tmp_path / "tasks.jsonl", tasks), status=2)
    assert "run:nowhere" in done.stderr
    assert "sum" in done.stderr
    assert not (tmp_path / "sum").exists()


def test_caches_that_are_too_small_are_named(run: Run, tmp_path: Path) -> None:
    big = {"id": "big", "command": "head -c 3000000 /dev/zero > out", "outputs": {"out": "run:big"}}
    read: dict[str, Any] = {"id": "read", "command": "wc -c < in > out", "inputs": {"in": "run:big"}}
    read["outputs"] = {"out": str(tmp_path / "n")}
    done = run(
        "run", written(tmp_path / "t.jsonl", [big, read]), "--cache", "1000000", "--slots", "1", status=1
    )
    for text in ("3000000", "1000000", "cache"):
        assert text in done.stderr


def chain(cluster: Cluster, gate: Path) -> list[dict[str, Any]]:
    """A file that is made at once, and a reader of it that waits for the gate."""
    made: dict[str, Any] = {"id": "made", "command": "echo 7 > out; echo made >> " + str(cluster.ran_log)}
    made["outputs"] = {"out": "run:seven"}
    reader = cluster.task("reader", "cat in > out", gate=gate, inputs=[])
    reader["inputs"] = {"in": "run:seven"}
    return [made, reader]


def test_a_lost_file_is_made_again_and_explained(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit(chain(cluster, gate))
    cluster.begun("reader")
    kill_now(cluster.executors["N1"])
    cluster.executor("N2")
    gate.touch()
    cluster.wait()
    assert cluster.output("reader") == b"7\n"
    assert cluster.ran().count("made") == 2
    explained = cluster.run("explain", "made").stdout
    assert "run:seven" in explained
    assert "again" in explained


def test_the_dispatcher_dies_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    dispatcher = cluster.dispatcher("--lease", "20s")
    cluster.executor("N1", slots=2)
    cluster.submit(chain(cluster, gate))
    cluster.begun("reader")
    kill_now(dispatcher)
    cluster.dispatcher("--lease", "20s")
    wait_until(lambda: cluster.state_of("N1") == "connected", "the executor's return")
    gate.touch()
    cluster.wait()
    assert cluster.output("reader") == b"7\n"
    assert cluster.ran().count("made") == 1, "the file was still there"
    wait_until(lambda: cluster.counter("N1", "cache_n_objects") <= 1, "the drop of the file")


def test_two_runs_at_once_may_use_equal_names(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher()
    cluster.executor("N1", slots=2)
    cluster.executor("N2", slots=2)
    lists = [three_stages(tmp_path / f"sum{n}", n) for n in (4, 8)]
    for tasks in lists:
        cluster.submit(tasks)
    for n in (1, 2):
        cluster.run("wait", "--run", str(n))
    assert (tmp_path / "sum4").read_text() == "12\n"
    assert (tmp_path / "sum8").read_text() == "56\n"
