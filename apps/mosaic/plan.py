#!/usr/bin/env python3
"""Write the workflow that makes a mosaic: all stages of Zhang12, table II, as a task list.

    plan.py --data data --results mosaic --out tasks.jsonl [--staging DIR] [--project mProjectPP]

Reads the headers of DATA/raw/*.fits (with mImgtbl) and writes two files beside that folder that all later
stages use: `region.hdr`, what the mosaic covers (mMakeHdr), and `images.lst`, the order of the tiles, because
mImgtbl would take that of the directory.

Which tiles overlap, mOverlaps knows only when all are reprojected. So that all tasks can be written
now, the pairs are found from the corners of the raw tiles: reprojection maps straight lines to straight lines, so
a reprojected image is the rectangle around its tile's corners, and two of them overlap or do not. Some pairs may
turn out to have no pixel in common; a pair that mOverlaps finds and this did not is an error of mConcatFit.

Intermediate files have `run:` locations and stay on the nodes. With --staging they go through home storage, in
that folder: the base case of Zhang12. Results are mosaic.fits, mosaic_area.fits, mosaic.png and the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Reprojected images are larger than the rectangle around the corners by a pixel or two.
MARGIN_PIXELS = 3.0
RESULTS = ("mosaic.fits", "mosaic_area.fits", "mosaic.png", "images.tbl", "fits.tbl", "corrections.tbl")


class PlanError(Exception):
    """The workflow cannot be written; its text is one sentence for the user."""


@dataclass
class Task:
    """One program with its files, all under the names that they have in its sandbox."""

    id: str
    stage: str
    command: list[str]
    inputs: list[str]
    outputs: list[str]


@dataclass(frozen=True)
class Rectangle:
    """Of pixels of the mosaic."""

    x_min: float
    x_max: float
    y_min: float
    y_max: float

    def meets(self, other: Rectangle) -> bool:
        apart_x = self.x_max < other.x_min or other.x_max < self.x_min
        return not (apart_x or self.y_max < other.y_min or other.y_max < self.y_min)


@dataclass(frozen=True)
class Region:
    """A TAN projection as Montage's header templates have it: one scale for each axis and a rotation."""

    values: dict[str, float] = field(repr=False)

    @staticmethod
    def read(path: Path) -> Region:
        found = re.findall(r"^(\w+)\s*=\s*([-+.\dEe]+)\s*$", path.read_text(encoding="ascii"), re.MULTILINE)
        return Region({name: float(value) for name, value in found})

    def pixel(self, ra: float, dec: float) -> tuple[float, float]:
        """Where a position (degrees) falls, in pixels from 1."""
        v = self.values
        a, d, d0 = math.radians(ra - v["CRVAL1"]), math.radians(dec), math.radians(v["CRVAL2"])
        cosine = math.sin(d0) * math.sin(d) + math.cos(d0) * math.cos(d) * math.cos(a)
        east = math.degrees(math.cos(d) * math.sin(a) / cosine)
        north = math.degrees((math.cos(d0) * math.sin(d) - math.sin(d0) * math.cos(d) * math.cos(a)) / cosine)
        turn = math.radians(v.get("CROTA2", 0.0))
        x = (east * math.cos(turn) + north * math.sin(turn)) / v["CDELT1"] + v["CRPIX1"]
        y = (north * math.cos(turn) - east * math.sin(turn)) / v["CDELT2"] + v["CRPIX2"]
        return x, y


def montage(*command: str | Path) -> None:
    """Run a program of Montage now."""
    arguments = ["sh", str(HERE / "mcheck"), *map(str, command)]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PlanError(f"sh cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        hint = "" if "not found" not in done.stderr else "\nhint: apt-get install montage"
        raise PlanError(done.stderr.strip().removeprefix("error: ") + hint)


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of one of Montage's tables, whose columns are where the bars of its head are."""
    lines = [line for line in path.read_text(encoding="ascii").splitlines() if not line.startswith("\\")]
    bars = [at for at, letter in enumerate(lines[0]) if letter == "|"]
    names = [name.strip() for name in lines[0].strip("|").split("|")]
    rows = [line for line in lines if not line.startswith("|")]
    columns = list(zip(names, bars, bars[1:]))
    return [{name: line[left : right + 1].strip() for name, left, right in columns} for line in rows]


def describe(data: Path) -> tuple[list[str], Region]:
    """Names of the tiles; `region.hdr` and `images.lst` are written beside them."""
    names = sorted(path.name for path in (data / "raw").glob("*.fits"))
    if not names:
        raise PlanError(f"there are no images in {data / 'raw'}")
    if len({Path(name).stem for name in names}) < len(names) or any(" " in name for name in names):
        raise PlanError(f"images in {data / 'raw'} need names without spaces that differ before `.fits`")
    width = max(map(len, names))
    rows = [f"|{text:<{width + 2}}|" for text in ("fname", "char")] + [f"  {name}" for name in names]
    (data / "images.lst").write_text("\n".join(rows) + "\n", encoding="ascii")
    table = data / "raw.tbl"
    montage("-n", str(len(names)), "mImgtbl", "-c", "-t", data / "images.lst", data / "raw", table)
    montage("-n", str(len(names)), "mMakeHdr", table, data / "region.hdr")
    return names, Region.read(data / "region.hdr")


def rectangles(data: Path, region: Region) -> dict[str, Rectangle]:
    """For each tile, what it covers once it is reprojected."""
    found = {}
    for row in read_table(data / "raw.tbl"):
        corners = [region.pixel(float(row[f"ra{n}"]), float(row[f"dec{n}"])) for n in (1, 2, 3, 4)]
        x, y = zip(*corners)
        margin = MARGIN_PIXELS
        found[Path(row["fname"]).name] = Rectangle(
            min(x) - margin, max(x) + margin, min(y) - margin, max(y) + margin
        )
    return found


def area(image: str) -> str:
    return image.removesuffix(".fits") + "_area.fits"


def overlapping(names: list[str], covers: dict[str, Rectangle]) -> Iterator[tuple[str, str]]:
    for at, plus in enumerate(names):
        for minus in names[at + 1 :]:
            if covers[plus].meets(covers[minus]):
                yield plus, minus


def tasks_of(
    names: list[str], pairs: list[tuple[str, str]], project: str, python: str, has_picture: bool
) -> list[Task]:
    """All tasks; a file has one name in all of them."""
    check = ["sh", "mcheck"]
    n = str(len(names))
    tasks = []
    for name in names:
        out = f"proj/{name}"
        command = [*check, project, f"raw/{name}", out, "region.hdr"]
        inputs = ["mcheck", f"raw/{name}", "region.hdr"]
        tasks.append(Task(f"mProject-{Path(name).stem}", "mProject", command, inputs, [out, area(out)]))
    tasks.append(
        Task(
            "mImgtbl",
            "mImgtbl",
            [*check, "-n", n, "mImgtbl", "-t", "images.lst", "proj", "images.tbl"],
            ["mcheck", "images.lst", *(f"proj/{name}" for name in names)],
            ["images.tbl"],
        )
    )
    command = [*check, "mOverlaps", "images.tbl", "diffs.tbl"]
    tasks.append(Task("mOverlaps", "mOverlaps", command, ["mcheck", "images.tbl"], ["diffs.tbl"]))
    fits = []
    for plus, minus in pairs:
        pair = f"{Path(plus).stem}-{Path(minus).stem}"
        fit = f"fit/{pair}.fit"
        images = [f"proj/{plus}", f"proj/{minus}"]
        command = ["sh", "mdifffit", *images, fit, "region.hdr"]
        inputs = ["mdifffit", "mcheck", "region.hdr", *images, *map(area, images)]
        tasks.append(Task(f"mDiffFit-{pair}", "mDiffFit", command, inputs, [fit]))
        fits.append(fit)
    command = [python, "mconcatfit.py", "diffs.tbl", "fit", "fits.tbl"]
    tasks.append(
        Task("mConcatFit", "mConcatFit", command, ["mconcatfit.py", "diffs.tbl", *fits], ["fits.tbl"])
    )
    command = [*check, "mBgModel", "images.tbl", "fits.tbl", "corrections.tbl"]
    inputs = ["mcheck", "images.tbl", "fits.tbl"]
    tasks.append(Task("mBgModel", "mBgModel", command, inputs, ["corrections.tbl"]))
    for name in names:
        out = f"corr/{name}"
        tables = ["images.tbl", "corrections.tbl"]
        command = ["sh", "mbackground", f"proj/{name}", out, *tables]
        inputs = ["mbackground", "mcheck", f"proj/{name}", area(f"proj/{name}"), *tables]
        tasks.append(Task(f"mBackground-{Path(name).stem}", "mBackground", command, inputs, [out, area(out)]))
    corrected = [image for name in names for image in (f"corr/{name}", area(f"corr/{name}"))]
    command = [*check, "mAdd", "-p", "corr", "images.tbl", "region.hdr", "mosaic.fits"]
    inputs = ["mcheck", "images.tbl", "region.hdr", *corrected]
    tasks.append(Task("mAdd", "mAdd", command, inputs, ["mosaic.fits", "mosaic_area.fits"]))
    if not has_picture:
        return tasks
    command = [*check, "mViewer", "-gray", "mosaic.fits", "1%", "99.7%", "gaussian-log", "-out", "mosaic.png"]
    tasks.append(Task("mViewer", "mViewer", command, ["mcheck", "mosaic.fits"], ["mosaic.png"]))
    return tasks


@dataclass(frozen=True)
class Places:
    """Where files are, by the name that tasks know them under."""

    data: Path
    results: Path
    staging: Path | None

    def of(self, name: str, is_written: bool) -> str:
        if name in RESULTS:
            return str(self.results / name)
        if is_written:
            return f"run:{name}" if self.staging is None else str(self.staging / name)
        return str((HERE if (HERE / name).exists() else self.data) / name)


def record(task: Task, places: Places, written: set[str]) -> dict[str, object]:
    """The task as a line of the task list."""
    return {
        "id": task.id,
        "command": task.command,
        "inputs": {name: places.of(name, name in written) for name in task.inputs},
        "outputs": {name: places.of(name, True) for name in task.outputs},
        "label": task.stage,
    }


def write_tasks(path: Path, tasks: list[Task], places: Places) -> None:
    """Write the list; all paths in it are absolute, so that it can be submitted from anywhere."""
    written = {name for task in tasks for name in task.outputs}
    with open(path, "w", encoding="utf-8") as file:
        for task in tasks:
            file.write(json.dumps(record(task, places, written)) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the workflow that makes a mosaic.")
    parser.add_argument("--data", type=Path, required=True, help="folder with raw/")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--out", type=Path, required=True, help="task list to write")
    parser.add_argument("--staging", type=Path, help="intermediate files through this folder of home storage")
    parser.add_argument("--project", default="mProject", choices=["mProject", "mProjectPP"])
    parser.add_argument("--no-picture", action="store_true", help="leave mViewer out")
    parser.add_argument("--python", default="python3", help="interpreter that the tasks call")
    args = parser.parse_args()
    try:
        names, region = describe(args.data)
        pairs = list(overlapping(names, rectangles(args.data, region)))
        tasks = tasks_of(names, pairs, args.project, args.python, not args.no_picture)
        staging = args.staging.resolve() if args.staging else None
        write_tasks(args.out, tasks, Places(args.data.resolve(), args.results.resolve(), staging))
    except (OSError, PlanError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"  {len(tasks):,} tasks: {len(names)} tiles, {len(pairs)} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
