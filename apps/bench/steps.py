#!/usr/bin/env python3
"""Run one application step by step as Zhang12, figure 10, does, and say what each step changes.

    steps.py mosaic|blast|cybershake --eyas path/to/eyas [--dir DIR] [--nodes 4] [--home-rate 5MB]
             [--scale full|short|small] [--rounds 1] [--steps staging,cache,...] [--json FILE]

| step | intermediate files | placement | gathers |
|---|---|---|---|
| staging | through home, no caches | first free slot | |
| cache | stay on the nodes | first free slot | each file fetched by its task |
| aware | stay on the nodes | by data | each file fetched by its task |
| cogather | stay on the nodes | by data | collective, once all files are there |
| asgather | stay on the nodes | by data | asynchronous, each file when it appears |
| auto | stay on the nodes | by data | whichever is predicted to be quicker |
| bound | stay on the nodes | at the node of the first input | as auto |
| steal | stay on the nodes | the same, and idle nodes steal from their neighbours | as auto |

The last two are those of Zhang12, section V-I and figure 11, and run only when --steps names them.

Each step runs the same programs on the same data from cold caches, in turn within one round. Home storage is limited to
--home-rate for all nodes together: that stands in for a shared file system. The default is so low that the mosaic's first step
waits for files for about as large a share of its time as in Zhang12, figure 1 (74 %). Results have to be those of the plain run (mosaic: pixel
by pixel) in every step.

The plain run is one program after the other on local disk, without a limit; it is run in each round, too. `short` has as many tasks
of the mosaic as `full`, each of which takes milliseconds: there, what eyas adds to each task shows.

A stage's time is by how much it moves the end: its last task's end minus that of the stages before it. So the times of all stages
add up to the whole, also where stages overlap.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

APPS = Path(__file__).resolve().parent.parent


class StepsError(Exception):
    """The measurement cannot go on; its text is one sentence for the user."""


@dataclass(frozen=True)
class Step:
    """How the workflow is run."""

    name: str
    is_staged: bool
    options: tuple[str, ...]


@dataclass(frozen=True)
class App:
    """What is run: how data are made at each scale it has, with which options, and which stages the paper calls parallel."""

    maker: str
    scales: dict[str, list[str]]
    plan: dict[str, list[str]]
    plain: dict[str, list[str]]
    # Without those that add or draw the result, as in Zhang12, figure 10.
    not_parallel: frozenset[str]


STEPS = (
    Step("staging", True, ("--placement", "first-available")),
    Step("cache", False, ("--placement", "first-available", "--collectives", "off")),
    Step("aware", False, ("--collectives", "off")),
    Step("cogather", False, ("--collectives", "collective-gather")),
    Step("asgather", False, ("--collectives", "async-gather")),
    Step("auto", False, ()),
    Step("bound", False, ("--placement", "first-input")),
    Step("steal", False, ("--placement", "first-input-steal")),
)
ON_REQUEST = frozenset({"bound", "steal"})
APP = {
    "mosaic": App(
        "make_tiles.py",
        {
            "full": ["--columns", "6", "--rows", "6", "--size", "256"],
            "short": ["--columns", "6", "--rows", "6", "--size", "96"],
            "small": ["--columns", "3", "--rows", "2", "--size", "96"],
        },
        {"short": ["--project", "mProjectPP"], "small": ["--project", "mProjectPP"]},
        {"short": ["mProjectPP"], "small": ["mProjectPP"]},
        frozenset({"mAdd", "mViewer"}),
    ),
    "blast": App(
        "make_data.py",
        {
            "full": ["--query-files", "12", "--queries", "8"],
            "small": ["--genomes", "2", "--bases", "100000", "--query-files", "2", "--queries", "4"],
        },
        {"full": ["--pieces", "8"], "small": ["--pieces", "2"]},
        {},
        frozenset(),
    ),
    "cybershake": App(
        "make_data.py",
        {
            "full": [],
            "small": ["--points", "300", "--samples", "700", "--ruptures", "2", "--variations", "2"],
        },
        {},
        {},
        frozenset(),
    ),
}


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def call(command: Sequence[str | Path], what: str) -> float:
    """Run a program to its end; returns the seconds that it took."""
    start = time.monotonic()
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    except OSError as error:
        raise StepsError(f"{command[0]} cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise StepsError(f"{what} failed\n  " + "\n  ".join(said[-8:]))
    return time.monotonic() - start


def stage_seconds(stages: list[dict[str, Any]]) -> dict[str, float]:
    """By how much each stage moves the end."""
    front, found = 0, {}
    for row in stages:
        ended = max(front, int(row["ended_ns"]))
        found[str(row["stage"])] = (ended - front) / 1e9
        front = ended
    return found


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.app = APP[args.app]
        self.home = APPS / args.app
        self.dir: Path = args.dir
        self.data = self.dir / "data"

    def program(self, name: str, *options: str | Path) -> float:
        interpreter = sys.executable if name.endswith(".py") else "sh"
        return call([interpreter, self.home / name, *options], name)

    def prepare(self) -> float:
        """Data and the plain run; returns the seconds of the latter."""
        say(f"{self.args.app}: data and the plain run")
        self.program(self.app.maker, "--out", self.data, *self.app.scales[self.args.scale])
        self.plan("plan", [])
        return self.plain()

    def plain(self) -> float:
        shutil.rmtree(self.dir / "plain", ignore_errors=True)
        options = self.app.plain.get(self.args.scale, [])
        return self.program("plain.sh", self.data, self.dir / "plain", *options)

    def plan(self, name: str, options: Sequence[str | Path]) -> Path:
        tasks = self.dir / f"{name}.jsonl"
        places: list[str | Path] = ["--data", self.data, "--results", self.dir / name, "--out", tasks]
        scale = self.app.plan.get(self.args.scale, [])
        self.program("plan.py", *places, "--python", sys.executable, *scale, *options)
        return tasks

    def run(self, step: Step) -> dict[str, Any]:
        """One run from cold caches, its results checked; its figures."""
        name, run = step.name, self.dir / f"run-{step.name}"
        staging = self.dir / f"home-{name}"
        for old in (run, staging, self.dir / name):
            shutil.rmtree(old, ignore_errors=True)
        tasks = self.plan(name, ["--staging", staging] if step.is_staged else [])
        command: list[str | Path] = [self.args.eyas, "run", tasks, "--dir", run, "--slots", "1"]
        command += ["--nodes", str(self.args.nodes), "--home-rate", self.args.home_rate]
        seconds = call([*command, *step.options], f"the step {name}")
        self.program("check.py", "--results", self.dir / name, "--plain", self.dir / "plain")
        page = self.dir / f"{name}.html"
        call([self.args.eyas, "report", "--dir", run, "--out", page], "eyas report")
        report = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
        totals = report["totals"]
        times = stage_seconds(report["stages"])
        parallel = sum(value for stage, value in times.items() if stage not in self.app.not_parallel)
        say(f"{name}: {seconds:.1f} s")
        for old in (run, staging):
            shutil.rmtree(old, ignore_errors=True)
        return {
            "makespan_s": totals["makespan_ns"] / 1e9,
            "parallel_s": parallel,
            "home_bytes": totals["home_in_bytes"] + totals["home_out_bytes"],
            "peer_bytes": totals["cache_remote_bytes"],
            "stage_s": times,
            "stages": report["stages"],
        }


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds; the table of stages is of the last one."""
    figures = ("makespan_s", "parallel_s", "home_bytes", "peer_bytes")
    found: dict[str, Any] = {name: statistics.median(run[name] for run in runs) for name in figures}
    stages = runs[0]["stage_s"]
    found["stage_s"] = {name: statistics.median(run["stage_s"][name] for run in runs) for name in stages}
    return {**found, "stages": runs[-1]["stages"]}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(args)
    wanted = [step for name in args.steps.split(",") for step in STEPS if step.name == name]
    plain = [bench.prepare()]
    runs: dict[str, list[dict[str, Any]]] = {step.name: [] for step in wanted}
    for round_ in range(args.rounds):
        if round_ > 0:
            plain.append(bench.plain())
        for step in wanted:
            runs[step.name].append(bench.run(step))
    settings = {name: getattr(args, name) for name in ("app", "nodes", "home_rate", "scale", "rounds")}
    steps = [{"step": name, **middle(found)} for name, found in runs.items()]
    stages = list(steps[0]["stage_s"])
    return {**settings, "plain_s": statistics.median(plain), "stages": stages, "steps": steps}


def megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.1f}"


def show(found: dict[str, Any]) -> str:
    """Tables for people: stages as Zhang12, table VI, and steps as figure 10."""
    steps = found["steps"]
    lines = [f"{found['app']}, {found['nodes']} nodes, home limited to {found['home_rate']} a second", ""]
    lines += ["| stage | tasks | in | out | MB in | MB out |", "|---|---|---|---|---|---|"]
    for row in steps[-1]["stages"]:
        counts = " | ".join(f"{row[name]:,}" for name in ("n_tasks", "n_inputs", "n_outputs"))
        sizes = " | ".join(megabytes(row[name]) for name in ("input_bytes", "output_bytes"))
        lines.append(f"| {row['stage']} | {counts} | {sizes} |")
    names = [step["step"] for step in steps]
    base = steps[0]
    lines += [
        "",
        f"| seconds (ratio to {base['step']}) | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]

    def cells(values: list[float]) -> str:
        first = values[0]
        return " | ".join(
            f"{value:.2f} ({value / first:.2f})" if first > 0 else f"{value:.2f}" for value in values
        )

    for stage in found["stages"]:
        lines.append(f"| {stage} | {cells([step['stage_s'][stage] for step in steps])} |")
    lines.append(f"| parallel stages | {cells([step['parallel_s'] for step in steps])} |")
    lines.append(f"| all | {cells([step['makespan_s'] for step in steps])} |")
    for name, what in (("home_bytes", "MB through home"), ("peer_bytes", "MB between nodes")):
        lines.append(f"| {what} | " + " | ".join(megabytes(step[name]) for step in steps) + " |")
    lines += ["", f"The plain run, one program after the other on local disk, took {found['plain_s']:.1f} s."]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run one application step by step.")
    parser.add_argument("app", choices=sorted(APP))
    parser.add_argument("--eyas", required=True, help="the eyas program")
    parser.add_argument("--dir", type=Path, default=Path("bench-app"), help="folder for everything")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--home-rate", default="5MB", help="bytes a second from and to home (default: 5MB)")
    parser.add_argument("--scale", choices=["full", "short", "small"], default="full")
    parser.add_argument("--rounds", type=int, default=1)
    usual = ",".join(step.name for step in STEPS if step.name not in ON_REQUEST)
    parser.add_argument("--steps", default=usual, help=f"in this order (default: {usual})")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    if unknown := set(args.steps.split(",")) - {step.name for step in STEPS}:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    if args.scale not in APP[args.app].scales:
        parser.error(f"{args.app} has no scale {args.scale}")
    if args.rounds < 1:
        parser.error("--rounds starts at 1")
    args.dir = args.dir.resolve()
    args.dir.mkdir(parents=True, exist_ok=True)
    try:
        found = measure(args)
    except StepsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(show(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
