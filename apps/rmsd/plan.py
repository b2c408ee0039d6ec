#!/usr/bin/env python3
"""Write the batch of the post-processing as a task list: one execution of rmsd.py for each trajectory.

    plan.py --data data --results found --out tasks.jsonl [--every 40] [--python python3]

Inputs are files of data sets, `data:adk-000/traj.dcd` and so on, so that eyas takes each from a site that has it, and runs the task on
the machine of that site where it can. --data is the folder that make_data.py wrote; its folders have the names of the data sets.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = ("adk.psf", "traj.dcd")


class PlanError(Exception):
    """The batch cannot be written; its text is one sentence for the user."""


def plan(args: argparse.Namespace) -> list[dict[str, object]]:
    labels = sorted(path.name for path in args.data.glob("adk-*"))
    if not labels:
        raise PlanError(f"there are no trajectories in {args.data}")
    results = args.results.resolve()
    options = ["--out", "rmsd.npz", "--every", str(args.every)]
    return [
        {
            "id": label,
            "command": [args.python, "rmsd.py", *FILES, *options],
            "inputs": {"rmsd.py": str(HERE / "rmsd.py"), **{name: f"data:{label}/{name}" for name in FILES}},
            "outputs": {"rmsd.npz": str(results / f"{label}.npz")},
        }
        for label in labels
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write one task for each trajectory.")
    parser.add_argument("--data", type=Path, required=True, help="folder that make_data.py wrote")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--out", type=Path, required=True, help="task list to write")
    parser.add_argument("--every", type=int, default=40, help="of rmsd.py")
    parser.add_argument("--python", default="python3", help="interpreter that the tasks call")
    args = parser.parse_args()
    try:
        tasks = plan(args)
        args.out.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    except (OSError, PlanError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"  {len(tasks):,} tasks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
