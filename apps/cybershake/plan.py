#!/usr/bin/env python3
"""Write the seismic hazard workflow, CyberShake's post-processing in its shape, as a task list.

    plan.py --data data --results hazard --out tasks.jsonl [--staging DIR]

| stage | tasks | reads | writes |
|---|---|---|---|
| ExtractSGT | one a rupture | both large files, its rupture | its part of them |
| SeismogramSynthesis | one a variation | the rupture's part | a seismogram |
| PeakValCalc | one a variation | a seismogram | a line of peak values |
| ZipSeis | 1 | all seismograms | seismograms.zip, a result |
| HazardCurve | 1 | all peak values | curve.csv, a result |

Intermediate files have `run:` locations and stay on the nodes. With --staging they go through home storage, in
that folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class PlanError(Exception):
    """The workflow cannot be written; its text is one sentence for the user."""


class Plan:
    """Tasks as lines of a list; a file has one name in all of them."""

    def __init__(self, data: Path, results: Path, staging: Path | None, python: str) -> None:
        self.data, self.results, self.python = data.resolve(), results.resolve(), python
        self.staging = staging.resolve() if staging else None
        self.lines: list[str] = []
        self._written: set[str] = set()

    def _place(self, name: str) -> str:
        if name == "shake.py":
            return str(HERE / name)
        if name not in self._written:
            return str(self.data / name)
        return f"run:{name}" if self.staging is None else str(self.staging / name)

    def task(self, name: str, stage: str, arguments: list[str], inputs: list[str], output: str) -> None:
        is_result = "/" not in output
        if not is_result:
            self._written.add(output)
        record = {
            "id": name,
            "command": [self.python, "shake.py", *arguments],
            "inputs": {each: self._place(each) for each in ["shake.py", *inputs]},
            "outputs": {output: str(self.results / output) if is_result else self._place(output)},
            "label": stage,
        }
        self.lines.append(json.dumps(record))


def write_plan(plan: Plan) -> None:
    ruptures = sorted((plan.data / "ruptures").glob("*.json"))
    if not ruptures:
        raise PlanError(f"there are no ruptures in {plan.data / 'ruptures'}")
    large = ["sgt_x.bin", "sgt_y.bin"]
    seismograms, peaks = [], []
    for path in ruptures:
        rupture, sub = f"ruptures/{path.name}", f"sub/{path.stem}.sub"
        plan.task(
            f"ExtractSGT-{path.stem}", "ExtractSGT", ["extract", *large, rupture, sub], [*large, rupture], sub
        )
        for number, variation in enumerate(json.loads(path.read_text(encoding="ascii"))["variations"]):
            name = variation["name"]
            seismogram, peak = f"seis/{name}.seis", f"peak/{name}.peak"
            arguments = ["synthesize", sub, rupture, str(number), seismogram]
            plan.task(
                f"SeismogramSynthesis-{name}", "SeismogramSynthesis", arguments, [sub, rupture], seismogram
            )
            plan.task(f"PeakValCalc-{name}", "PeakValCalc", ["peak", seismogram, peak], [seismogram], peak)
            seismograms.append(seismogram)
            peaks.append(peak)
    plan.task("ZipSeis", "ZipSeis", ["zip", "seismograms.zip", *seismograms], seismograms, "seismograms.zip")
    plan.task("HazardCurve", "HazardCurve", ["curve", "curve.csv", *peaks], peaks, "curve.csv")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the seismic hazard workflow.")
    parser.add_argument("--data", type=Path, required=True, help="folder that make_data.py wrote")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--out", type=Path, required=True, help="task list to write")
    parser.add_argument("--staging", type=Path, help="intermediate files through this folder of home storage")
    parser.add_argument("--python", default="python3", help="interpreter that the tasks call")
    args = parser.parse_args()
    plan = Plan(args.data, args.results, args.staging, args.python)
    try:
        write_plan(plan)
        args.out.write_text("".join(f"{line}\n" for line in plan.lines), encoding="utf-8")
    except (OSError, ValueError, KeyError, PlanError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"  {len(plan.lines):,} tasks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
