#!/usr/bin/env python3
"""Write the task list: which objects to stack in which exposure.

    plan.py --sky sky --cuts cuts --out tasks.jsonl [--objects-per-task 8] [--size 41]

Reads the header of every exposure, finds the objects that lie fully inside it and puts them in
groups; each group is one task that reads one exposure. The tasks are then shuffled: neighbours in
the list read unrelated files, so an engine that wants to reuse a file has to find out by itself.

A task is one line of JSON with `id`, `command`, `inputs` and `outputs`. The program and the object
list are inputs as well, so nothing has to be installed where a task runs but Python.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from cutout import (
    StackingError,
    fits_inside,
    number,
    open_fits,
    radec2xy,
    read_header,
    read_targets,
    tan_wcs,
)

HERE = Path(__file__).resolve().parent


def objects_inside(path: Path, targets: dict[str, tuple[float, float]], size: int) -> list[str]:
    """Ids of the objects whose whole cutout lies inside the exposure, in the order of the list."""
    try:
        with open_fits(str(path)) as file:
            header = read_header(file, path.name)
    except (OSError, EOFError) as error:
        raise StackingError(f"{path} cannot be read: {error}") from None
    wcs = tan_wcs(header, path.name)
    width, height = int(number(header, "NAXIS1", path.name)), int(number(header, "NAXIS2", path.name))
    inside = []
    for name, (ra, dec) in targets.items():
        xy = radec2xy(wcs, ra, dec)
        if xy is not None and fits_inside(*xy, width, height, size):
            inside.append(name)
    return inside


def split_evenly(names: list[str], n_max: int) -> list[list[str]]:
    """Groups of at most `n_max`, as few as possible and as equal as possible."""
    n_groups = -(-len(names) // n_max)
    return [names[group::n_groups] for group in range(n_groups)]


def plan(
    sky: Path, cuts: Path, objects_per_task: int, size: int, python: str, seed: int
) -> list[dict[str, object]]:
    """Task records in the order in which they are to be submitted."""
    sky, cuts = sky.resolve(), cuts.resolve()
    targets_path = sky / "targets.csv"
    targets = read_targets(str(targets_path))
    exposures = sorted((sky / "exposures").glob("*.fits*"))
    if not exposures:
        raise StackingError(f"there are no exposures in {sky / 'exposures'}")
    tasks: list[dict[str, object]] = []
    for exposure in exposures:
        stem = exposure.name.split(".")[0]
        for group, names in enumerate(split_evenly(objects_inside(exposure, targets, size), objects_per_task)):
            command = [python, "cutout.py", "--size", str(size), "--objects", ",".join(names)]
            tasks.append(
                {
                    "id": f"{stem}-{group:02d}",
                    "command": [*command, "targets.csv", exposure.name, "cut.fits"],
                    "inputs": {
                        "cutout.py": str(HERE / "cutout.py"),
                        "targets.csv": str(targets_path),
                        exposure.name: str(exposure),
                    },
                    "outputs": {"cut.fits": str(cuts / f"{stem}-{group:02d}.fits")},
                    "label": "cutout",
                }
            )
    random.Random(seed).shuffle(tasks)
    return tasks


def summary(tasks: list[dict[str, object]]) -> str:
    """One line on the size and the locality (tasks per exposure) of a plan."""
    exposures = {str(task["id"]).split("-")[0] for task in tasks}
    n_cutouts = sum(str(task["command"][5]).count(",") + 1 for task in tasks)  # type: ignore[index]
    return (
        f"{len(tasks):,} tasks stack {n_cutouts:,} cutouts out of {len(exposures)} exposures "
        f"(locality {len(tasks) / len(exposures):.1f})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the list of stacking tasks.")
    parser.add_argument("--sky", type=Path, required=True, help="folder that make_sky.py wrote")
    parser.add_argument("--cuts", type=Path, required=True, help="folder in which the tasks' outputs will be")
    parser.add_argument("--out", type=Path, required=True, help="task list to write")
    parser.add_argument("--objects-per-task", type=int, default=8)
    parser.add_argument("--size", type=int, default=41, help="side of a cutout in pixels, odd")
    parser.add_argument("--python", default="python3", help="interpreter that the tasks call")
    parser.add_argument("--seed", type=int, default=13, help="of the order of the tasks")
    args = parser.parse_args()
    if args.objects_per_task < 1:
        parser.error("--objects-per-task starts at 1")
    try:
        tasks = plan(args.sky, args.cuts, args.objects_per_task, args.size, args.python, args.seed)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    args.out.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    print(f"  {summary(tasks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
