#!/usr/bin/env python3
"""The portal's index of the survey: how long 1,000 positions take among 1,000,000 exposures.

    bench_portal.py [--exposures 1000000] [--positions 1000] [--db URL] [--out RESULT.json]

The exposures are of 512 x 512 pixels of 1", in five bands, anywhere on the sky. Positions are near the centres of some, all in one
band. Without --db the database is a new file of SQLite; PostgreSQL is `postgresql+psycopg://...`, an empty database. Prints the
median of nine looks after one that does not count, and the processor time, which a busy machine does not change as much.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "apps" / "portal"), str(ROOT / "apps" / "stacking")]

import numpy as np  # noqa: E402
from portal import store  # noqa: E402
from portal.index import Index  # noqa: E402

SCALE = 1 / 3600
LOOKS = 9


def rows(n: int, seed: int) -> Iterator[dict[str, Any]]:
    """Exposures anywhere on the sky, evenly by area."""
    rng = np.random.default_rng(seed)
    ra = rng.uniform(0, 360, n)
    dec = np.degrees(np.arcsin(rng.uniform(-1, 1, n)))
    turn = rng.uniform(0, 2 * np.pi, n)
    cos, sin = SCALE * np.cos(turn), SCALE * np.sin(turn)
    values = zip(ra.tolist(), dec.tolist(), cos.tolist(), sin.tolist(), strict=True)
    for number, (x, y, c, s) in enumerate(values):
        wcs = {
            "ra": x,
            "dec": y,
            "crpix1": 256.5,
            "crpix2": 256.5,
            "cd11": -c,
            "cd12": s,
            "cd21": s,
            "cd22": c,
        }
        size = {"width": 512, "height": 512, "size_bytes": 529_920}
        yield {"address": f"e{number:07d}.fits", "band": "ugriz"[number % 5], **wcs, **size}


def measure(url: str, n_exposures: int, n_positions: int) -> dict[str, Any]:
    index = Index(store.connect(url))
    began = time.perf_counter()
    index.fill(rows(n_exposures, seed=1))
    filled_s = time.perf_counter() - began
    rng = np.random.default_rng(2)
    near = [one for one in rows(n_exposures, seed=1) if one["band"] == "r"]
    picked = [near[at] for at in rng.permutation(len(near))[:n_positions].tolist()]
    ra = np.array([one["ra"] for one in picked])
    dec = np.clip(np.array([one["dec"] for one in picked]) + rng.uniform(-0.05, 0.05, len(picked)), -90, 90)
    seconds, processor_s, n_found = [], [], 0
    for _ in range(LOOKS + 1):
        began, before = time.perf_counter(), time.process_time()
        found = index.covering("r", ra, dec, 41)
        seconds.append(time.perf_counter() - began)
        processor_s.append(time.process_time() - before)
        n_found = sum(map(len, found))
    return {
        "n_exposures": n_exposures,
        "n_positions": len(picked),
        "n_found": n_found,
        "filled_s": round(filled_s, 1),
        "median_ms": round(1000 * statistics.median(seconds[1:]), 1),
        "fastest_ms": round(1000 * min(seconds[1:]), 1),
        "processor_ms": round(1000 * statistics.median(processor_s[1:]), 1),
        "slowest_ms": round(1000 * max(seconds[1:]), 1),
        "first_ms": round(1000 * seconds[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Look up positions in the portal's index of a survey.")
    parser.add_argument("--exposures", type=int, default=1_000_000)
    parser.add_argument("--positions", type=int, default=1_000)
    parser.add_argument("--db", help="URL of an empty database [default: a new file of SQLite]")
    parser.add_argument("--out", type=Path, help="write the numbers to this file, as JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args.db or f"sqlite:///{folder}/index.db", args.exposures, args.positions)
    print(
        f"{found['n_positions']:,} positions among {found['n_exposures']:,} exposures: {found['median_ms']} ms "
        f"(median of {LOOKS}; {found['fastest_ms']} to {found['slowest_ms']}, the first {found['first_ms']}), of which "
        f"{found['processor_ms']} ms of this process's processor; {found['n_found']:,} found; "
        f"filled in {found['filled_s']} s"
    )
    if args.out:
        args.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
