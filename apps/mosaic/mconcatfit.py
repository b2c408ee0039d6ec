#!/usr/bin/env python3
"""Put all fitted planes into one table, as Montage's mConcatFit does, which Debian's package lacks.

    mconcatfit.py DIFFS.tbl FITS_DIR OUT.tbl

DIFFS.tbl is what mOverlaps wrote; FITS_DIR has what mdifffit wrote for each pair, `<plus>-<minus>.fit`. The
table is the one that mFitExec writes, but for the last digit of some positions: mFitplane prints them rounded.
A pair of DIFFS.tbl without its file is an error: the workflow was planned with too few pairs. Files of other
pairs are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Name, width and format of each column, as mFitExec has them.
COLUMNS = [
    ("a", 17, ".5e"), ("b", 17, ".5e"), ("c", 17, ".5e"),
    ("crpix1", 15, ".2f"), ("crpix2", 15, ".2f"),
    ("xmin", 11, "d"), ("xmax", 11, "d"), ("ymin", 11, "d"), ("ymax", 11, "d"),
    ("xcenter", 14, ".2f"), ("ycenter", 14, ".2f"), ("npixel", 14, ".0f"), ("rms", 17, ".5e"),
    ("boxx", 17, ".1f"), ("boxy", 17, ".1f"), ("boxwidth", 17, ".1f"), ("boxheight", 17, ".1f"),
    ("boxang", 17, ".1f"),
]  # fmt: skip


class ConcatError(Exception):
    """The table cannot be made; its text is one sentence for the user."""


def read_pairs(path: Path) -> list[tuple[int, int, str, str]]:
    """Numbers and file names of the two images of each pair."""
    pairs = []
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith(("|", "\\")):
            continue
        plus, minus, plus_name, minus_name, _ = line.split()
        pairs.append((int(plus), int(minus), plus_name, minus_name))
    return pairs


def read_fit(path: Path) -> dict[str, float] | None:
    """The values that mFitplane printed; None for a pair with nothing in common."""
    text = path.read_text(encoding="ascii").strip()
    if text == "none":
        return None
    if not (text.startswith('[struct stat="OK"') and text.endswith("]")):
        raise ConcatError(f"{path} is not what mFitplane prints: {text!r}")
    fields = dict(part.strip().split("=", 1) for part in text[1:-1].split(","))
    try:
        return {name: float(fields[name]) for name, _, _ in COLUMNS}
    except (KeyError, ValueError) as error:
        raise ConcatError(f"{path} lacks a value: {error}") from None


def row(plus: int, minus: int, fit: dict[str, float]) -> str:
    cells = [f"{plus:10d}{minus:10d}"]
    for name, width, form in COLUMNS:
        value = int(fit[name]) if form == "d" else fit[name]
        cells.append(f"{value:{width}{form}}")
    return "".join(cells) + " "


def concat(diffs: Path, fits: Path, out: Path) -> int:
    head = "".join(f"|{name:>{width}}" for name, width in [("plus", 9), ("minus", 9)])
    head += "".join(f"|{name:>{width - 1}}" for name, width, _ in COLUMNS) + "|"
    lines = [head]
    for plus, minus, plus_name, minus_name in read_pairs(diffs):
        path = fits / f"{Path(plus_name).stem}-{Path(minus_name).stem}.fit"
        if not path.exists():
            raise ConcatError(f"mOverlaps found the pair {plus_name}, {minus_name}, which was not planned")
        if (fit := read_fit(path)) is not None:
            lines.append(row(plus, minus, fit))
    out.write_text("\n".join(lines) + "\n", encoding="ascii")
    return len(lines) - 1


def main() -> int:
    if len(sys.argv) != 4:
        print("usage: mconcatfit.py DIFFS.tbl FITS_DIR OUT.tbl", file=sys.stderr)
        return 2
    try:
        n_fits = concat(*map(Path, sys.argv[1:]))
    except (OSError, ValueError, ConcatError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{n_fits} planes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
