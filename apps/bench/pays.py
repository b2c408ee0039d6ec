#!/usr/bin/env python3
"""From which length of a task and which size of its input eyas pays on one machine, beside the same programs without it.

    pays.py --eyas path/to/eyas [--dir DIR] [--nodes 2] [--rounds 3] [--lengths 0.003,0.01,...] [--sizes 10kB,1MB,10MB] [--json FILE]

A cell is a length and a size. Its tasks run `sh work.sh COUNT IN OUT`: the shell counts for that long, then `cksum` reads the input,
whose sum is the output. Inputs and outputs are files of the local disk, and several tasks read each input. By turns in each round:

    plain      one program after the other, by a shell
    parallel   as many at a time as eyas has slots, by `xargs -P`
    eyas       `eyas run` with so many nodes of one slot, from its start to its end, caches cold

Outputs of all three have to be equal. Programs without eyas read from the local disk here, where eyas gains nothing. So the figures
say what eyas costs; what it gains is the shared storage that is read less often. `rate` is the break-even: from a shared storage
that gives all programs together fewer bytes a second than this, `parallel` would take longer than eyas, which reads each file once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps import StepsError, call, say

WORK = """\
i=0
while [ $i -lt "$1" ]; do i=$((i + 1)); done
cksum < "$2" > "$3"
"""
UNITS = {"kB": 1_000, "MB": 1_000_000, "B": 1}
# Of one cell: the seconds that its programs take together, and bounds on their number.
CELL_S, LEAST, MOST = 1.5, 30, 300
FILES = 20


@dataclass(frozen=True)
class Cell:
    """Tasks of one length (seconds) that read inputs of one size (bytes)."""

    length_s: float
    size: int

    @property
    def n_tasks(self) -> int:
        return round(min(max(CELL_S / self.length_s, LEAST), MOST))


def bytes_of(text: str) -> int:
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return round(float(text[: -len(unit)]) * factor)
    raise StepsError(f"{text} is no size: write 10kB or 1MB")


def counts_per_second(work: Path, folder: Path) -> float:
    """How far the shell counts in a second, beside what its start takes."""
    empty = folder / "empty"
    empty.write_bytes(b"")

    def seconds(count: int) -> float:
        command: list[str | Path] = ["sh", work, str(count), empty, folder / "sum"]
        return min(call(command, "work.sh") for _ in range(3))

    return 1_000_000 / max(seconds(1_000_000) - seconds(0), 1e-6)


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.dir: Path = args.dir
        self.work = self.dir / "work.sh"
        self.work.write_text(WORK, encoding="utf-8")
        self.per_second = counts_per_second(self.work, self.dir)

    def tasks(self, cell: Cell) -> list[tuple[str, Path]]:
        """The count and the input of each task; makes the inputs."""
        folder = self.dir / f"in-{cell.size}"
        chooser = random.Random(cell.size)
        if not folder.exists():
            folder.mkdir()
            for n in range(FILES):
                (folder / f"{n:02}").write_bytes(chooser.randbytes(cell.size))
        files = sorted(folder.iterdir())
        count = str(round(cell.length_s * self.per_second))
        found = [(count, files[n % FILES]) for n in range(cell.n_tasks)]
        chooser.shuffle(found)
        return found

    def without(self, tasks: list[tuple[str, Path]], out: Path, at_once: int) -> float:
        lines = [f"{count}\n{path}\n{out / str(n)}\n" for n, (count, path) in enumerate(tasks)]
        listed = self.dir / "list"
        listed.write_text("".join(lines), encoding="utf-8")
        command = ["xargs", "-a", str(listed), "-n", "3", "-P", str(at_once), "sh", str(self.work)]
        return call(command, "xargs")

    def with_eyas(self, tasks: list[tuple[str, Path]], out: Path) -> float:
        lines = []
        for n, (count, path) in enumerate(tasks):
            task = {
                "command": ["sh", "work.sh", count, "in", "out"],
                "inputs": {"work.sh": str(self.work), "in": str(path)},
                "outputs": {"out": str(out / str(n))},
            }
            lines.append(json.dumps(task) + "\n")
        listed = self.dir / "tasks.jsonl"
        listed.write_text("".join(lines), encoding="utf-8")
        run = self.dir / "run"
        shutil.rmtree(run, ignore_errors=True)
        nodes = ["--nodes", str(self.args.nodes), "--slots", "1"]
        return call([self.args.eyas, "run", listed, "--dir", run, *nodes], "eyas run")

    def measure(self, cell: Cell) -> dict[str, Any]:
        tasks = self.tasks(cell)
        ways: dict[str, list[float]] = {"plain": [], "parallel": [], "eyas": []}
        for _ in range(self.args.rounds):
            sums = []
            for way, seconds in ways.items():
                out = self.dir / f"out-{way}"
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                if way == "eyas":
                    seconds.append(self.with_eyas(tasks, out))
                else:
                    seconds.append(self.without(tasks, out, 1 if way == "plain" else self.args.nodes))
                sums.append([(out / str(n)).read_bytes() for n in range(len(tasks))])
            if sums[0] != sums[1] or sums[0] != sums[2]:
                raise StepsError("the three ways did not write the same")
        found = {way: statistics.median(seconds) for way, seconds in ways.items()}
        more_s = found["eyas"] - found["parallel"]
        spared = (len(tasks) - min(FILES, len(tasks))) * cell.size
        rate = round(spared / more_s) if more_s > 0 else None
        say(
            f"{cell.length_s * 1000:g} ms, {cell.size:,} B: {found['eyas'] / found['plain']:.2f} of plain, "
            f"{found['eyas'] / found['parallel']:.2f} of parallel"
        )
        return {
            "length_s": cell.length_s,
            "size_bytes": cell.size,
            "n_tasks": len(tasks),
            **{f"{way}_s": value for way, value in found.items()},
            # None: eyas is the quicker one also from a local disk.
            "rate": rate,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description="From which task length and input size eyas pays.")
    parser.add_argument("--eyas", required=True, help="the eyas program")
    parser.add_argument("--dir", type=Path, default=Path("bench-pays"), help="folder for everything")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", default="0.003,0.01,0.03,0.1,0.3", help="seconds")
    parser.add_argument("--sizes", default="10kB,1MB,10MB", help="bytes of an input")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    args.dir = args.dir.resolve()
    args.dir.mkdir(parents=True, exist_ok=True)
    try:
        cells = [
            Cell(float(length), bytes_of(size))
            for size in args.sizes.split(",")
            for length in args.lengths.split(",")
        ]
        bench = Bench(args)
        found = {
            "nodes": args.nodes,
            "n_processors": os.cpu_count(),
            "cells": [bench.measure(cell) for cell in cells],
        }
    except StepsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
