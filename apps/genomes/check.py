#!/usr/bin/env python3
"""Check a matrix of genomes: it is what a plain double loop finds, and the species are apart.

    check.py --matrix shared.csv --data data

The double loop runs `compare.py` for each pair in this order, without eyas. Values must be equal to the last digit. The species are
apart if any two genomes of *Klebsiella* share more than any of them shares with *E. coli*. What was found is printed as JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def compared(a: Path, b: Path) -> float:
    command = [sys.executable, str(HERE / "compare.py"), str(a), str(b)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(printed.split()[-2])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--matrix", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    with args.matrix.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    genomes = sorted((args.data / "genomes").iterdir())
    names = [path.name for path in genomes]
    if [Path(name).name for name in head[1:]] != names or [Path(row[0]).name for row in rows] != names:
        print(f"error: the matrix has not the genomes {', '.join(names)}", file=sys.stderr)
        return 1
    values = {
        (a, b): float(cell or "nan")
        for a, row in zip(names, rows, strict=True)
        for b, cell in zip(names, row[1:], strict=True)
    }
    for a in genomes:
        for b in genomes:
            expected = compared(a, b)
            if values[a.name, b.name] != expected:
                said = values[a.name, b.name]
                print(f"error: {a.name} and {b.name}: the matrix has {said}, the loop {expected}", file=sys.stderr)
                return 1
    within = [v for (a, b), v in values.items() if a < b and not (a + b).count("E_coli")]
    across = [v for (a, b), v in values.items() if a < b and (a + b).count("E_coli")]
    if min(within) <= max(across):
        print(f"error: the species are not apart: {min(within)} within, {max(across)} across", file=sys.stderr)
        return 1
    print(json.dumps({"pairs_equal": len(values), "within_min": min(within), "across_max": max(across)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
