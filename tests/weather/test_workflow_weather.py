"""Nodes that die or halt in the middle of a multicast, a scatter and a gather; parts that fail; inputs that change."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Run, wait_until
from lists import failures, write_list
from weather import LEASE, Cluster, kill_now, payload

# Longer than a halted node of these tests is halted, so that only the collective has to notice.
LONG_LEASE = "60s"
NODES = ("N1", "N2", "N3", "N4")
PARTS = 8
Task = dict[str, Any]


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def gated(line: str, gate: Path) -> str:
    return f"while [ ! -e {shlex.quote(str(gate))} ]; do sleep 0.02; done; {line}"


def task(name: str, line: str, inputs: Sequence[str], outputs: Sequence[str]) -> Task:
    """Inputs are `i0`, `i1`, ... in the sandbox, outputs `o0`, `o1`, ..."""
    return {
        "id": name,
        "command": f'echo "{name} $(basename "$(dirname "$(dirname "$PWD")")")" >> $RAN; {line}',
        "inputs": {f"i{n}": url for n, url in enumerate(inputs)},
        "outputs": {f"o{n}": url for n, url in enumerate(outputs)},
    }


def multicast(gate: Path, result: str) -> list[Task]:
    """One file of 8 MB that eight tasks read."""
    made = task("made", gated("yes eyas | head -c 8000000 > o0", gate), [], ["run:big"])
    readers = [task(f"r{n}", "wc -c < i0 > o0", ["run:big"], [f"run:n/{n}"]) for n in range(PARTS)]
    for reader in readers:
        # Not made again at each node instead.
        reader["hints"] = {"multicast": "always"}
    names = [f"run:n/{n}" for n in range(PARTS)]
    return [made, *readers, task("all", "cat i* | sort | uniq -c > o0", names, [result])]


def scatter(gate: Path, result: str) -> list[Task]:
    """One task that writes eight files, each for a task of its own."""
    parts = [f"run:part/{n}" for n in range(PARTS)]
    line = "for n in 0 1 2 3 4 5 6 7; do yes $n | head -c 1000000 > o$n; done"
    made = task("made", gated(line, gate), [], parts)
    readers = [task(f"r{n}", "wc -c < i0 > o0", [parts[n]], [f"run:n/{n}"]) for n in range(PARTS)]
    names = [f"run:n/{n}" for n in range(PARTS)]
    return [made, *readers, task("all", "cat i* | sort | uniq -c > o0", names, [result])]


def gather(gate: Path, result: str) -> list[Task]:
    """Eight tasks that write a file each, all for one task; they end when the gate is there."""
    names = [f"run:n/{n}" for n in range(PARTS)]
    makers = [
        task(f"m{n}", gated(f"yes {n} | head -c 1000000 > o0", gate), [], [names[n]]) for n in range(PARTS)
    ]
    return [
        *makers,
        task("all", "wc -c i* | awk '/i[0-7]/ {print $1}' | sort | uniq -c > o0", names, [result]),
    ]


PATTERNS = {
    "multicast": (multicast, "8000000"),
    "scatter": (scatter, "1000000"),
    "gather": (gather, "1000000"),
}


def collectives(cluster: Cluster) -> list[dict[str, Any]]:
    """What the log says of collectives that are over."""
    said = [entry.get("out") for entry in cluster.entries()]
    return [
        out["end_collective"]["record"] for out in said if isinstance(out, dict) and "end_collective" in out
    ]


@pytest.mark.parametrize("weather", ["killed", "halted"])
@pytest.mark.parametrize(
    ("pattern", "mode"),
    [*((pattern, "auto") for pattern in PATTERNS), ("scatter", "archive-tree"), ("gather", "archive-tree")],
)
def test_a_node_strikes_in_the_middle_of_a_collective(
    cluster: Cluster, tmp_path: Path, pattern: str, mode: str, weather: str
) -> None:
    tasks_of, size = PATTERNS[pattern]
    gate = tmp_path / "gate"
    lease = LONG_LEASE if weather == "halted" else LEASE
    cluster.dispatcher("--lease", lease, "--collectives", mode)
    for name in NODES:
        cluster.executor(name, slots=2)
    tasks = tasks_of(gate, str(cluster.home / "all.out"))
    for each in tasks:
        each["env"] = {"RAN": str(cluster.ran_log)}
    cluster.submit(tasks)
    first = [each["id"] for each in tasks if not each["inputs"]]
    cluster.begun(*first)
    # One that receives; in the gather all make files, so any.
    makers = cluster.ran_log.read_text().split()[1::2]
    victim = next((name for name in NODES if name not in makers), NODES[-1])
    process = cluster.executors[victim].process
    if pattern == "gather":
        # It has to have made files: only then is the gather cut by its end.
        gate.touch()
        wait_until(lambda: '"end_task"' in cluster.events(), "the first maker's end")
        os.kill(process.pid, signal.SIGSTOP)
    else:
        os.kill(process.pid, signal.SIGSTOP)
        gate.touch()
        wait_until(lambda: '"prefetch"' in cluster.events(), "a transfer")
    if weather == "killed":
        kill_now(cluster.executors[victim])
    else:
        assert cluster.state_of(victim) is not None, "the dispatcher answers beside a halted node"
        os.kill(process.pid, signal.SIGCONT)
    cluster.wait()
    assert (cluster.home / "all.out").read_text().split() == [str(PARTS), size]
    wait_until(
        lambda: pattern in {record["kind"] for record in collectives(cluster)}, f"the {pattern}'s record"
    )


def test_a_reduce_that_fails_on_one_part_names_it(run: Run, tmp_path: Path) -> None:
    numbers = [{"id": f"n{n}", "command": f"echo {n} > o", "outputs": {"o": f"run:n/{n}"}} for n in range(9)]
    total = {
        "id": "sum",
        "reduce": 3,
        # Parts hold sums; one part's is that of 3, 4 and 5.
        "command": "cat {inputs} | awk '{s += $1} END {print s; exit s == 12}' > o",
        "inputs": {f"in{n}": f"run:n/{n}" for n in range(9)},
        "outputs": {"o": str(tmp_path / "sum")},
        "retries": 0,
    }
    tasks = write_list(tmp_path / "t.jsonl", *numbers, total)
    done = run("run", tasks, "--nodes", "2", "--dir", tmp_path / "D", status=1)
    reasons = failures(done)
    assert not (tmp_path / "sum").exists()
    own = [name for name, why in reasons.items() if "status 1" in why]
    assert len(own) == 1, f"one part fails by itself\n{done}"
    assert own[0].startswith("sum"), "and has the name of the reduce"


def test_a_lost_file_whose_makers_input_changed_is_not_made_of_other_bytes(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One run uses one version of each input: what would be made again would not be what was lost."""
    gate = tmp_path / "gate"
    source = cluster.file("source", 1000, seed=1)
    made = {
        "id": "made",
        "command": f"echo made >> {shlex.quote(str(cluster.ran_log))}; cp in o",
        "inputs": {"in": str(source)},
        "outputs": {"o": "run:copy"},
    }
    reader = cluster.task("reader", "cat in > out", gate=gate)
    reader["inputs"] = {"in": "run:copy"}
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.submit([made, reader])
    cluster.begun("reader")
    kill_now(cluster.executors["N1"])
    source.write_bytes(payload(1000, 2))
    os.utime(source, (1, 1))
    cluster.executor("N2")
    gate.touch()
    done = cluster.wait(status=1)
    assert "source" in done.stderr
    assert not (cluster.home / "reader.out").exists()
