#!/usr/bin/env python3
"""Check a split search: every query file has the same lines as in an unsplit search.

    check.py --results found --plain plain

Lines are compared as sets: subjects whose printed e-values are equal may be in another order (see merge.py).
Numbers are printed as JSON; the exit status is 1 when a line is missing, extra or different.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path


class CheckError(Exception):
    """The results are not what they should be; its text is one sentence for the user."""


def compare(results: Path, plain: Path) -> dict[str, int]:
    names = sorted(path.name for path in plain.glob("*.tsv"))
    if not names:
        raise CheckError(f"there are no results in {plain}")
    n_lines = 0
    for name in names:
        ours, theirs = (
            Counter((folder / name).read_text(encoding="utf-8").splitlines()) for folder in (results, plain)
        )
        if ours != theirs:
            extra, missing = (ours - theirs).total(), (theirs - ours).total()
            example = next(iter((ours - theirs) | (theirs - ours)))
            raise CheckError(f"{name}: {missing} lines are missing, {extra} are extra, one is {example!r}")
        n_lines += ours.total()
    return {"query_files": len(names), "lines_equal": n_lines}


def main() -> int:
    parser = argparse.ArgumentParser(description="Check a split search against an unsplit one.")
    parser.add_argument("--results", type=Path, required=True, help="folder of the merged results")
    parser.add_argument("--plain", type=Path, required=True, help="folder that plain.sh wrote")
    args = parser.parse_args()
    try:
        print(json.dumps(compare(args.results, args.plain)))
    except (OSError, CheckError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
