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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Task:
    """One group of objects to stack out of one exposure."""

    id: str
    exposure: Path
    objects: list[str]

    def record(self, targets: Path, cuts: Path, size: int, python: str) -> dict[str, object]:
        """The task as a line of the task list."""
        command = [python, "cutout.py", "--size", str(size), "--objects", ",".join(self.objects)]
        return {
            "id": self.id,
            "command": [*command, "targets.csv", self.exposure.name, "cut.fits"],
            "inputs": {
                "cutout.py": str(HERE / "cutout.py"),
                "targets.csv": str(targets),
                self.exposure.name: str(self.exposure),
            },
            "outputs": {"cut.fits": str(cuts / f"{self.id}.fits")},
            "label": "cutout",
        }


def plan(sky: Path, objects_per_task: int, size: int, seed: int) -> list[Task]:
    """Tasks in the order in which they are to be submitted."""
    targets = read_targets(str(sky / "targets.csv"))
    exposures = sorted((sky.resolve() / "exposures").glob("*.fits*"))
    if not exposures:
        raise StackingError(f"there are no exposures in {sky / 'exposures'}")
    tasks = []
    for exposure in exposures:
        stem = exposure.name.split(".")[0]
        groups = split_evenly(objects_inside(exposure, targets, size), objects_per_task)
        tasks += [Task(f"{stem}-{group:02d}", exposure, names) for group, names in enumerate(groups)]
    random.Random(seed).shuffle(tasks)
    return tasks


def write_tasks(
    path: Path, tasks: list[Task], sky: Path, cuts: Path, size: int, python: str = "python3"
) -> None:
    """Write the list; all paths in it are absolute, so that it can be submitted from anywhere."""
    targets, cuts = sky.resolve() / "targets.csv", cuts.resolve()
    with open(path, "w", encoding="utf-8") as file:
        for task in tasks:
            file.write(json.dumps(task.record(targets, cuts, size, python)) + "\n")


def summary(tasks: list[Task]) -> str:
    """One line on the size and the locality (tasks per exposure) of a plan."""
    n_exposures = len({task.exposure for task in tasks})
    n_cutouts = sum(len(task.objects) for task in tasks)
    return (
        f"{len(tasks):,} tasks stack {n_cutouts:,} cutouts out of {n_exposures} exposures "
        f"(locality {len(tasks) / n_exposures:.1f})"
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
        tasks = plan(args.sky, args.objects_per_task, args.size, args.seed)
        if not tasks:
            raise StackingError(f"no object lies inside any exposure of {args.sky}")
        write_tasks(args.out, tasks, args.sky, args.cuts, args.size, args.python)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"  {summary(tasks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
