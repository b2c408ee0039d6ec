"""`eyas explain --nodes`: why nodes came and went, from the log of a live cluster; figures and comparisons of the same logs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from batch import Batch, Up, pid_of
from harness import SOURCES, Eyas, Run, wait_until
from test_elastic import Elastic
from weather import Cluster


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def decisions(up: Elastic) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(up.ask("explain", "--nodes", "--json"))["decisions"]
    return found


def labelled(cluster: Cluster, name: str, command: str) -> dict[str, Any]:
    return cluster.task(name, command) | {"label": "nap"}


def test_requests_and_releases_are_told_with_the_numbers_that_they_follow_from(cluster: Cluster) -> None:
    up = Elastic(cluster, "0..3", "--idle-release", "1s", "--provisioning", "demand")
    assert "`eyas provider` was there and has decided nothing" in up.ask("explain", "--nodes")
    up.submit(labelled(cluster, "first", "sleep 0.3; echo > out"))
    up.ask("wait")
    # Of the label something is known now, also in another run.
    up.submit(*[labelled(cluster, f"t{i}", "sleep 0.5; echo > out") for i in range(30)])
    up.ask("wait")
    last = f"ago: {decisions(up)[-1]['sentence']}"
    assert last in up.ask("status") or "released" in up.ask("status")
    up.wait_for_nodes(lambda n: n == 0, "all nodes to go")
    wait_until(lambda: sum(decision["change"] for decision in decisions(up)) == 0, "all releases in the log")
    all_decisions = decisions(up)
    first, *_ = all_decisions
    assert first["change"] == 1 and first["policy"] == "demand"
    assert first["why"]["work"]["sizing"]["unknown"]["n"] == 1, "nothing was known of the first task"
    by_work = [one for one in all_decisions if one["change"] > 0 and one["seen"]["queued_ns"] > 0]
    assert by_work, all_decisions
    sizing = by_work[0]["why"]["work"]["sizing"]
    assert sizing["start_up_ns"] > 0, "how long a node takes was measured"
    assert sizing["queued"][0]["n"] >= 10, "the queue is listed by predicted time"
    released = [one for one in all_decisions if one["change"] < 0]
    assert all(one["released"] for one in released)
    up.down()
    # The same from the folder, in words, and the log gives the decisions again.
    text = up.eyas.run("explain", "--nodes", "--dir", up.dir).stdout
    assert "by the policy demand, from 0 to 3" in text
    assert text.count("requested ") + text.count("released ") == len(all_decisions), text
    assert "A node takes" in text and "predicted to run for" in text
    assert "give the same" in up.eyas.run("replay", "--dir", up.dir).stdout


def test_a_paper_policy_says_how_many_nodes_the_tasks_want(cluster: Cluster) -> None:
    up = Elastic(cluster, "1..3", "--provisioning", "all-at-once")
    up.submit(*[cluster.task(f"t{i}", "sleep 0.3; echo > out") for i in range(9)])
    up.ask("wait")
    text = up.ask("explain", "--nodes")
    assert "requested 1 node, as at least 1 node is to be there" in text, text
    assert "as 3 nodes would give room to each task, queued or running" in text, text
    up.down()


def test_lost_nodes_and_restarts_stand_among_the_decisions(cluster: Cluster, tmp_path: Path) -> None:
    batch = Batch(tmp_path / "batch")
    up = Up(cluster, batch, "1..1", lease="3s")
    up.start()
    wait_until(lambda: len(up.names()) == 1, "the node")
    first = up.names()[0]
    batch.kill("b1")

    def lines() -> list[str]:
        text = up.ask("explain", "--nodes")
        return [line for line in text.splitlines() if re.match(r" {1,9}[\d.]+ m?s  ", line)]

    wait_until(
        lambda: f"  -1  {first} was lost: nothing was heard of it for " in "\n".join(lines()), "its loss"
    )
    wait_until(lambda: up.names() not in ([], [first]), "another node")
    second = up.names()[0]
    up.kill("dispatcher")
    up.start()
    wait_until(lambda: up.names() == [second], "the node to come back")
    # Somebody else ends it in order.
    os.killpg(pid_of(batch.folder, "b2"), signal.SIGTERM)
    # The batch system may show that a block is over before the lease of its node is.
    starts = [
        "requested 1 node",
        "requested 1 node",
        f"{first} was lost",
        "the dispatcher was started again, ",
    ]
    starts += [f"{second} left: it was told to stop (SIGTERM)", "requested 1 node"]
    wait_until(lambda: len(lines()) >= len(starts), "all that happened")
    said = [re.sub(r"^ +[\d.]+ m?s +([-+]\d )? *", "", line) for line in lines()]
    assert [line.startswith(start) for line, start in zip(said, starts, strict=True)] == [True] * 6, said
    wait_until(lambda: up.names() not in ([], [second]), "a third node")
    story = json.loads(up.ask("explain", "--nodes", "--json"))
    assert ([loss["node"] for loss in story["lost"]], len(story["restarts"])) == ([first, second], 1)
    up.down()
    # Nodes that end with their cluster are not lost.
    story = json.loads(up.eyas.run("explain", "--nodes", "--json", "--dir", up.dir).stdout)
    assert [loss["node"] for loss in story["lost"]] == [first, second]


def test_a_run_whose_nodes_do_not_come_and_go_says_so_in_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text('{"id": "a", "command": ["true"]}\n')
    run("run", "list.jsonl", "--nodes", "1", "--dir", tmp_path / "C", cwd=tmp_path)
    explanation = run("explain", "--nodes", "--dir", tmp_path / "C")
    assert len(explanation.stdout.splitlines()) == 1 and "`--nodes 0..4`" in explanation.stdout
    assert json.loads(run("explain", "--nodes", "--json", "--dir", tmp_path / "C").stdout)["decisions"] == []
    assert "cannot be used with" in run("explain", "--nodes", "a", status=2).stderr
    assert "<TASK|FILE>" in run("explain", status=2).stderr


def test_policies_are_compared_on_real_nodes(eyas: Eyas, tmp_path: Path) -> None:
    small = "--nodes 2 --slots 1 --rates 3 --interval 1 --task 0.1 --idle 1 --files 5 --file-kb 10".split()
    places = ["--json", str(tmp_path / "rows.json"), "--out", str(tmp_path / "out")]
    done = eyas.lab("bench", "provision", *small, "--policies", "demand", *places, env=SOURCES)
    rows = {row["what"]: row for row in json.loads((tmp_path / "rows.json").read_text())["table"]["rows"]}
    assert rows["demand: node hours"]["ratio"] > 0.0, done
    page = (tmp_path / "out" / "provisioning.md").read_text(encoding="utf-8")
    assert "| `static` |" in page and "| `demand` |" in page
    has_figures = importlib.util.find_spec("matplotlib") is not None
    assert ("live-course-2.svg" in page) == has_figures
    wrong = eyas.lab("bench", "provision", "--policies", "nope", status=2)
    assert "there is no policy `nope`" in wrong.stderr


def test_figures_of_a_live_run_are_drawn_from_its_log(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "in").write_text("x" * 100_000)
    lines = [{"id": f"t{i}", "command": "cat in; sleep 0.2", "inputs": [f"{tmp_path}/in"]} for i in range(8)]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("run", "list.jsonl", "--nodes", "0..2", "--dir", tmp_path / "C", cwd=tmp_path)
    done = run("report", "--dir", tmp_path / "C", "--figures", tmp_path / "F", cwd=tmp_path, env=SOURCES)
    assert "6 figures in" in done.stderr, done
    course = (tmp_path / "F" / "live-course-1.svg").read_text(encoding="utf-8")
    for what in ("throughput (MB/s)", "nodes", "queue (tasks)", "local hit %"):
        assert what in course
    assert {path.stem for path in (tmp_path / "F").glob("*.svg")} == {
        "live-course-1",
        "live-hits",
        "live-index",
        "live-response",
        "live-slowdown",
        "live-throughput",
    }
    report = json.loads((tmp_path / "report.json").read_text())
    assert sum(row["n_tasks"] for row in report["arrivals"]) == 8
