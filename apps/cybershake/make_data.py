#!/usr/bin/env python3
"""Make the large shared inputs of the seismic hazard workflow, and the earthquakes to be considered.

    make_data.py --out data [--points 1200] [--samples 1024] [--ruptures 20] [--variations 20] [--seed 9]

Written below --out:

    sgt_x.bin, sgt_y.bin     how the site moves after a unit slip at each point of the faults, one direction each
    ruptures/r000.json, ...  the points of a rupture, and its variations
    data.json                options; written last, so it marks the end

A Green's function is a P and an S wave that arrive after the distance to the site, weaker with distance, and a
ringing tail of scattered waves. The same options give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shake import write_values

Floats = NDArray[np.float64]

DT_S = 0.05
P_KM_PER_S, S_KM_PER_S, RUPTURE_KM_PER_S = 6.0, 3.5, 2.8
FAULT_KM = 240.0
POINTS_OF_RUPTURE = (12, 40)


def positions(n_points: int) -> Floats:
    """Of the points, in km from the site: along a fault that passes it at 15 km, bent at its ends."""
    along = np.linspace(-FAULT_KM / 2.0, FAULT_KM / 2.0, n_points)
    return np.stack([along, 15.0 + 0.0012 * along**2], axis=1)


def green_functions(places: Floats, n_samples: int, direction: int, random: np.random.Generator) -> Floats:
    """One row for each point."""
    time = np.arange(n_samples) * DT_S
    distance = np.hypot(*places.T)[:, None]
    cosine = places[:, direction][:, None] / distance

    def wave(arrival: Floats, frequency: float, decay_s: float) -> Floats:
        since = time - arrival
        ringing = np.sin(2.0 * np.pi * frequency * since) * np.exp(-since / decay_s)
        return np.where(since > 0.0, ringing, 0.0)

    p = cosine * wave(distance / P_KM_PER_S, 1.1, 1.2)
    s = np.sqrt(1.0 - cosine**2) * wave(distance / S_KM_PER_S, 0.45, 4.0)
    tail = random.standard_normal((len(places), n_samples)) * wave(distance / S_KM_PER_S, 0.2, 9.0)
    return np.asarray((p + 2.2 * s + 0.4 * tail) / distance)


def make_rupture(
    number: int, places: Floats, n_variations: int, random: np.random.Generator
) -> dict[str, object]:
    n_points = len(places)
    size = int(random.integers(*POINTS_OF_RUPTURE))
    # A rupture is a stretch of the fault, with every fifth point of it: neighbours share points.
    first = int(random.integers(0, max(1, n_points - 5 * size)))
    points = [point for point in range(first, first + 5 * size, 5) if point < n_points]
    along = places[points][:, 0]
    variations = []
    for variation in range(n_variations):
        start = float(random.uniform(along[0], along[-1]))
        slips = random.lognormal(0.0, 0.5, len(points)) * (len(points) / POINTS_OF_RUPTURE[1])
        variations.append(
            {
                "name": f"r{number:03d}-v{variation:03d}",
                "rate_per_year": round(float(10.0 ** random.uniform(-5.0, -3.0)), 9),
                "rise_s": round(float(random.uniform(0.3, 1.5)), 3),
                "delays_s": [round(float(abs(km - start) / RUPTURE_KM_PER_S), 3) for km in along],
                "slips": [round(float(slip), 6) for slip in slips],
            }
        )
    return {"points": points, "variations": variations}


def make(args: argparse.Namespace) -> None:
    random = np.random.default_rng(args.seed)
    folder: Path = args.out / "ruptures"
    folder.mkdir(parents=True, exist_ok=True)
    (args.out / "data.json").unlink(missing_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    places = positions(args.points)
    for direction, name in enumerate(("sgt_x.bin", "sgt_y.bin")):
        greens = green_functions(places, args.samples, direction, random)
        head = {"n_values": greens.size, "n_samples": args.samples, "dt_s": DT_S}
        write_values(args.out / name, head, array("f", greens.astype(np.float32).tobytes()))
    for number in range(args.ruptures):
        rupture = make_rupture(number, places, args.variations, random)
        (folder / f"r{number:03d}.json").write_text(json.dumps(rupture) + "\n", encoding="ascii")
    options = {name: value for name, value in vars(args).items() if name != "out"}
    (args.out / "data.json").write_text(json.dumps(options) + "\n", encoding="ascii")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make Green's functions and ruptures.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--points", type=int, default=1200, help="of the faults")
    parser.add_argument("--samples", type=int, default=1024, help="of each Green's function")
    parser.add_argument("--ruptures", type=int, default=20)
    parser.add_argument("--variations", type=int, default=20, help="of each rupture")
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    if args.points < 5 * POINTS_OF_RUPTURE[1] or min(args.samples, args.ruptures, args.variations) < 1:
        parser.error(f"at least {5 * POINTS_OF_RUPTURE[1]} points, and one of each other thing")
    # Waves that arrive after the end of the record would not be in it.
    if args.samples * DT_S < FAULT_KM / 2.0 / S_KM_PER_S:
        parser.error(f"--samples: at least {int(FAULT_KM / 2.0 / S_KM_PER_S / DT_S) + 1}")
    make(args)
    size = (args.out / "sgt_x.bin").stat().st_size
    print(
        f"  {args.ruptures} ruptures, {args.ruptures * args.variations} events, 2 shared files of {size:,} bytes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
