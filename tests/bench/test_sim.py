"""`eyas sim` and `eyas-lab sim`: workloads on machines that are not here, their logs, and sentences about what cannot be simulated."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import Run
from lists import workflow

# Workloads of the papers, which `eyas-lab` has.
PAPERS = ("mi", "sw", "stacking")
SMALL = ("allpairs", "-n", "8", "--compute", "100ms", "--nodes", "3")


def test_a_table_and_all_of_it_as_json(lab: Run, tmp_path: Path) -> None:
    out = tmp_path / "mi.json"
    done = lab("sim", "mi", "--tasks", "500", "--nodes", "4", "--json", out)
    assert "mi: 500 tasks on tg-anl-64; 4 nodes of 2 slots" in done.stdout
    for row in ("makespan", "inputs", "moved", "response", "CPU hours", "simulated in"):
        assert re.search(rf"^  {row} ", done.stdout, re.MULTILINE), row
    all_of_it = json.loads(out.read_text())
    summary = all_of_it["summary"]
    assert summary["n_done"] == 500
    assert summary["n_local"] + summary["n_peer"] + summary["n_home"] == 500
    assert all_of_it["machine"]["nodes"] == 4

    # What was written describes a machine that can be used again, and the same seed gives the same run.
    again = tmp_path / "again.json"
    lab("sim", "mi", "--tasks", "500", "--machine", out, "--json", again)
    assert json.loads(again.read_text())["summary"] == summary


@pytest.mark.parametrize(
    "workload",
    [
        ("sw", "--duration", "120s", "--nodes", "5"),
        ("stacking", "--locality", "30", "--nodes", "8"),
        ("mi", "--tasks", "2000", "--nodes", "8", "--provisioning", "demand", "--idle-release", "10s"),
        ("mi", "--tasks", "300", "--nodes", "4", "--losses-per-hour", "20", "--slow-share", "0.5"),
        ("allpairs", "-n", "10", "--nodes", "4", "--placement", "first-available", "--no-ahead"),
    ],
    ids=lambda workload: " ".join(workload[:3]),
)
def test_workloads_come_to_their_end(run: Run, lab: Run, workload: tuple[str, ...]) -> None:
    done = (lab if workload[0] in PAPERS else run)("sim", *workload)
    assert "simulated in" in done.stdout
    assert "failed" not in done.stdout


def test_the_event_log_is_like_that_of_a_live_run(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run("sim", *SMALL, "--event-log", log)
    done = run("replay", "--dir", log)
    assert "give the same" in done.stdout
    story = run("explain", "3-4", "--dir", log).stdout
    assert "a3" in story
    assert "It ended well." in story
    report = tmp_path / "report.html"
    run("report", "--dir", log, "--out", report)
    assert json.loads(report.with_suffix(".json").read_text())["runs"]
    again = run("sim", "trace", log)
    assert "64 tasks on as measured; 3 nodes of 2 slots" in again.stdout


def test_the_same_seed_gives_the_same_bytes(lab: Run, tmp_path: Path) -> None:
    def log(name: str, seed: str) -> bytes:
        options = ("--seed", seed, "--losses-per-hour", "30", "--nodes", "4", "--eviction", "random")
        lab("sim", "mi", "--tasks", "400", *options, "--event-log", tmp_path / name)
        return (tmp_path / name / "events.jsonl").read_bytes()

    first = log("a", "5")
    assert first == log("b", "5")
    assert first != log("c", "6")


def test_a_live_run_is_simulated_from_its_log(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / "in" / f"{i}.dat").write_bytes(bytes(200_000))
    run("map", *[f"in/{i}.dat" for i in range(4)], "--dir", "c", "--", "cksum", "{in}", cwd=tmp_path)
    done = run("sim", "trace", "c", cwd=tmp_path)
    assert "4 tasks on as measured; 1 node" in done.stdout


def test_a_workflow_is_simulated(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(workflow(run_time=2.0)))
    done = run("sim", "workflow", path, "--nodes", "2")
    assert "2 tasks on this-machine" in done.stdout
    path.write_text(json.dumps(workflow(run_time=None)))
    assert "no run time" in run("sim", "workflow", path, status=2).stderr
    run("sim", "workflow", path, "--missing-run-time", "1s")


def test_long_programs_and_files_larger_than_caches_are_simulated(run: Run, lab: Run, tmp_path: Path) -> None:
    path = tmp_path / "workflow.json"
    path.write_text(json.dumps(workflow(run_time=90_000.0)))
    assert "2 tasks on this-machine" in run("sim", "workflow", path, "--nodes", "2").stdout
    lab("sim", "mi", "--cache", "1MB", "--tasks", "10")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("mi", "--placement", "best"), ("`best`", "max-compute-util", "first-available")),
        (("mi", "--eviction", "best"), ("`best`", "lru")),
        (("mi", "--provisioning", "best"), ("`best`", "one-at-a-time")),
        (("mi", "--machine", "cray"), ("`cray`", "bgp-4096", "hint:")),
        (("mi", "--machine", "absent.json"), ("absent.json", "no such file")),
        (("mi", "--machine", "zero.json"), ("home_bytes_per_s", "above 0")),
        (("mi", "--machine", "odd.json"), ("odd.json", "does not describe a machine")),
        (("mi", "--slots", "0"), ("at least one node with one slot",)),
        (("mi", "--nodes", "99999999"), ("more than 10,000,000 slots",)),
        (("mi", "--rate-max", "0"), ("no task ever arrives",)),
        (("mi", "--slow-share", "2"), ("slow_share", "between 0 and 1")),
        (("stacking", "--locality", "7"), ("`7`", "1.38")),
        (("trace", "absent"), ("`absent` does not exist",)),
        (("trace", "odd.json"), ("no event log", "odd.json")),
        (("workflow", "odd.json"), ("odd.json", "WfCommons")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_is_said_in_one_sentence(
    run: Run, lab: Run, tmp_path: Path, command: tuple[str, ...], words: tuple[str, ...]
) -> None:
    out = tmp_path / "machine.json"
    run("sim", "allpairs", "-n", "2", "--json", out)
    machine = json.loads(out.read_text())["machine"]
    (tmp_path / "zero.json").write_text(json.dumps({**machine, "home_bytes_per_s": 0.0}))
    (tmp_path / "odd.json").write_text('{"some": "thing"}')
    done = (lab if command[0] in PAPERS else run)("sim", *command, status=2, cwd=tmp_path)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done
    for word in words:
        assert word in done.stderr, done


def test_broken_logs_are_told_apart(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run("sim", *SMALL, "--event-log", log)
    events = log / "events.jsonl"
    whole = events.read_bytes()
    events.write_bytes(whole[: len(whole) // 2])
    done = run("sim", "trace", log, status=2)
    assert "breaks off" in done.stderr
    assert "had not ended" in done.stderr
    events.write_text("time,task\n1,2\n")
    assert "events.jsonl" in run("sim", "trace", log, status=2).stderr
