"""Gpus, licences and parts of cpus: with real processes, on nodes that say what they have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Run, log_entries, wait_until

# A program notes when it began, with what, and when it ended; the notes of all tasks are in one folder.
NOTE = """
import os, sys, time
folder, name, seconds = sys.argv[1:4]
began = time.monotonic_ns()
time.sleep(float(seconds))
gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
same = gpus == os.environ.get("ROCR_VISIBLE_DEVICES")
with open(f"{folder}/{name}", "w") as note:
    note.write(f"{began} {time.monotonic_ns()} {gpus if same else 'different'}")
"""


class Notes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "notes"
        self.folder.mkdir()
        self.program = folder / "note.py"
        self.program.write_text(NOTE)

    def task(self, name: str, seconds: float = 0.3, **fields: object) -> str:
        command = ["python3", str(self.program), str(self.folder), name, str(seconds)]
        return json.dumps({"id": name, "command": command, **fields}) + "\n"

    def read(self) -> dict[str, tuple[int, int, str]]:
        notes = {}
        for note in self.folder.iterdir():
            began, ended, *gpus = note.read_text().split(" ")
            notes[note.name] = (int(began), int(ended), gpus[0] if gpus else "")
        return notes

    def most_at_once(self, *names: str) -> int:
        """The largest number of these programs that ran at one moment."""
        times = [
            (began, ended) for name, (began, ended, _) in self.read().items() if not names or name in names
        ]
        return max(sum(began <= at < ended for began, ended in times) for at, _ in times)


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster that the test brings up; it is ended afterwards."""
    yield tmp_path / "cluster"
    run("down", "--join", tmp_path / "cluster" / "dispatcher" / "join.json", status=None)


def tasks_of(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(lines))
    return path


def entries(folder: Path) -> list[dict[str, Any]]:
    return log_entries(folder / "dispatcher" / "events.jsonl")


def status(run: Run, join: Path) -> Any:
    return json.loads(run("status", "--join", join, "--json").stdout)


def test_no_two_programs_share_a_gpu(run: Run, tmp_path: Path, notes: Notes) -> None:
    """A node of two gpus and many slots runs two of four tasks at a time, each with a gpu of its own."""
    lines = [notes.task(f"g{i}", gpus=1) for i in range(4)]
    run("run", tasks_of(tmp_path, *lines, notes.task("none")), "--slots", "8", "--gpus", "2")
    found = notes.read()
    assert {gpus for name, (_, _, gpus) in found.items() if name != "none"} == {"0", "1"}
    assert found["none"][2] == ""
    for gpu in "01":
        on_it = [name for name, (_, _, gpus) in found.items() if gpus == gpu]
        assert notes.most_at_once(*on_it) == 1
    assert notes.most_at_once(*(f"g{i}" for i in range(4))) <= 2


def test_a_task_of_two_gpus_has_both(run: Run, tmp_path: Path, notes: Notes) -> None:
    lines = [notes.task("both", gpus=2), notes.task("one", gpus=1)]
    run("run", tasks_of(tmp_path, *lines), "--slots", "8", "--gpus", "2")
    assert notes.read()["both"][2] == "0,1"
    assert notes.most_at_once() == 1


def test_parts_of_a_gpu_are_told_the_same_one(run: Run, tmp_path: Path, notes: Notes) -> None:
    lines = [notes.task(f"q{i}", 1.5, gpus=0.25) for i in range(5)]
    run("run", tasks_of(tmp_path, *lines), "--slots", "8", "--gpus", "1")
    assert {gpus for _, _, gpus in notes.read().values()} == {"0"}
    assert notes.most_at_once() <= 4


def test_the_names_of_gpus_are_those_that_the_batch_system_gave(
    run: Run, tmp_path: Path, notes: Notes
) -> None:
    """Two nodes of one machine share them out."""
    given = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    lines = [notes.task(f"g{i}", 1, gpus=1) for i in range(4)]
    run("run", tasks_of(tmp_path, *lines), "--nodes", "2", "--slots", "2", "--gpus", "auto", env=given)
    found = notes.read()
    assert {gpus for _, _, gpus in found.values()} == {"GPU-a", "GPU-b"}
    for gpu in ("GPU-a", "GPU-b"):
        assert notes.most_at_once(*(name for name, (_, _, gpus) in found.items() if gpus == gpu)) == 1


def test_licences_are_counted_over_two_nodes(run: Run, tmp_path: Path, notes: Notes) -> None:
    lines = [notes.task(f"l{i}", resources={"licence.vcs": 1}) for i in range(6)]
    lines += [notes.task(f"b{i}", resources={"board": 1}) for i in range(4)]
    options = ("--nodes", "2", "--slots", "4", "--cluster-resource", "licence.vcs=2", "--resource", "board=1")
    run("run", tasks_of(tmp_path, *lines), *options)
    assert notes.most_at_once(*(f"l{i}" for i in range(6))) <= 2
    assert notes.most_at_once(*(f"b{i}" for i in range(4))) <= 2
    assert len(notes.read()) == 10


def test_halves_of_a_cpu_run_twice_as_many_at_once(run: Run, tmp_path: Path, notes: Notes) -> None:
    lines = [notes.task(f"h{i}", 2, cpus=0.5) for i in range(6)]
    run("run", tasks_of(tmp_path, *lines), "--slots", "2")
    assert 2 < notes.most_at_once() <= 4


def test_a_map_gives_its_tasks_gpus_and_resources(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "gpu-{index}"
    options = (
        "--slots",
        "4",
        "--gpus",
        "1",
        "--resource",
        "board=1",
        "--task-gpus",
        "0.5",
        "--task-resource",
        "board=1",
    )
    run(
        "map",
        "--range",
        "0..2",
        "--shell",
        "--out",
        str(out),
        *options,
        "--",
        "echo $CUDA_VISIBLE_DEVICES > {out}",
    )
    assert [(tmp_path / f"gpu-{i}").read_text() for i in range(2)] == ["0\n", "0\n"]
    listed = run("map", "--range", "0..2", "--cpus", "0.5", *options, "--to-list", "-", "--", "true").stdout
    fields = json.loads(listed.splitlines()[0])
    assert (fields["cpus"], fields["gpus"], fields["resources"]) == (0.5, 0.5, {"board": 1})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpus": 4}, "needs 4 gpus, and each node has 2"),
        ({"resources": {"board": 3}}, "needs 3 of `board`, and each node has 2"),
        ({"resources": {"vcs": 2}}, "needs 2 of `vcs`, and the whole cluster has 1"),
        ({"resources": {"unheard": 1}}, "needs 1 of `unheard`, and each node has 0"),
    ],
)
def test_what_no_node_of_a_runs_own_cluster_has_is_refused_before_anything_runs(
    run: Run, tmp_path: Path, notes: Notes, fields: dict[str, Any], said: str
) -> None:
    tasks = tasks_of(tmp_path, notes.task("fits"), notes.task("big", **fields))
    has = ("--gpus", "2", "--resource", "board=2", "--cluster-resource", "vcs=1")
    done = run("run", tasks, *has, status=2)
    assert f"task `big` {said}" in done.stderr
    assert notes.read() == {}


def test_what_fits_no_node_of_a_cluster_is_refused_when_it_is_submitted(
    run: Run, tmp_path: Path, notes: Notes, folder: Path
) -> None:
    """The cluster says how large its nodes are, and those that may still come."""
    run("up", "--nodes", "1..2", "--slots", "2", "--dir", folder)
    join = folder / "dispatcher" / "join.json"
    wait_until(
        lambda: status(run, join)["executors"] and not status(run, join)["provisioner"]["n_pending"],
        "all nodes that are on their way",
    )
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"cpus": 3}, "the task asks for 3 cpus, the largest executor has 2 slots"),
        ({"gpus": 1}, "the task needs 1 gpu; no node has a gpu"),
        ({"resources": {"board": 1}}, "the task needs 1 of `board`; neither a node nor the cluster has it"),
    ]
    for fields, said in wrong:
        tasks = tasks_of(tmp_path, notes.task("fits"), notes.task("big", **fields))
        for verb in ("submit", "run"):
            done = run(verb, tasks, "--join", join, status=2)
            assert f"task `big` fits no node: {said}" in done.stderr
    assert notes.read() == {}
    assert status(run, join)["runs"] == []
    tasks = tasks_of(tmp_path, notes.task("two", cpus=2))
    assert "1 done" in run("run", tasks, "--join", join).stderr


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"gpus": 1.5}, "`gpus` above 1 is no whole number"),
        ({"gpus": 0}, "a number above 0"),
        ({"cpus": -1}, "a number above 0"),
        ({"resources": {"gpus": 1}}, "it has its own field or option"),
        ({"resources": {"a b": 1}}, "a name is made of letters"),
        ({"resources": {"a": 0.5}}, "a whole number"),
    ],
)
def test_what_a_task_cannot_need_is_named(
    run: Run, tmp_path: Path, notes: Notes, fields: dict[str, object], complaint: str
) -> None:
    done = run("run", tasks_of(tmp_path, notes.task("t", 0.3, **fields)), status=2)
    assert complaint in done.stderr


def test_status_shows_what_is_there_and_what_is_held(
    run: Run, folder: Path, tmp_path: Path, notes: Notes
) -> None:
    join = folder / "dispatcher" / "join.json"
    up = ("up", "--dir", folder, "--slots", "4", "--gpus", "2", "--cluster-resource", "licence.vcs=3")
    run(*up)
    gate = tmp_path / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    lines = [
        json.dumps({"id": "held", "command": command, "gpus": 0.5, "resources": {"licence.vcs": 2}}) + "\n"
    ]
    lines += [notes.task("waits", resources={"licence.vcs": 2})]
    run("submit", "--join", join, tasks_of(tmp_path, *lines))
    wait_until(lambda: status(run, join)["executors"][0]["status"]["running"], "the task to run")
    (node,) = status(run, join)["executors"]
    assert node["equipment"] == {"gpus": 2, "resources": {}}
    assert node["held"]["gpu_parts"] == 500
    assert status(run, join)["resources"] == [{"name": "licence.vcs", "n": 3, "n_held": 2}]
    shown = run("status", "--join", join).stdout
    assert "gpus 0.5/2" in shown
    assert "licence.vcs 2/3" in shown
    why = run("explain", "--join", join, "waits").stdout
    assert "licence.vcs" in why
    gate.touch()
    run("wait", "--join", join)
    assert len(notes.read()) == 1
    arrays = [
        entry["in"]["array_added"]["array"]
        for entry in entries(folder)
        if "array_added" in entry.get("in", {})
    ]
    assert {"licence.vcs": 2} in [array["needs"]["resources"] for array in arrays]
