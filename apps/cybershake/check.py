#!/usr/bin/env python3
"""Check the seismic hazard workflow: against a plain run, and against another way to compute it.

    check.py --results hazard [--plain plain] [--data data]

--plain: both results are the same bytes.

--data: each seismogram is computed again with numpy, by convolution in one step; each curve is computed again
from those seismograms with the exact solution of the oscillator for ground acceleration that is linear between
samples (Nigam and Jennings), where the workflow uses Newmark's method. Numbers are printed as JSON; the exit
status is 1 when a check fails.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from shake import DAMPING, LEVELS, PERIODS_S, slip_shape

Floats = NDArray[np.float64]
RESULTS = ("seismograms.zip", "curve.csv")
SEISMOGRAM_TOLERANCE = 1e-5  # of the largest value: inputs and outputs are float32
CURVE_DIGITS = 1e-5  # six of them are written
# Newmark's method lengthens a period of 0.5 s, 10 samples, by 3 %: a peak value moves by some per cent.
PEAK_TOLERANCE = 0.15


class CheckError(Exception):
    """The results are not what they should be; its text is one sentence for the user."""


def read_array(data: bytes) -> tuple[dict[str, Any], Floats]:
    head, _, values = data.partition(b"\n")
    return json.loads(head), np.frombuffer(values, "<f4").astype(np.float64)


def seismogram(greens: list[Floats], rupture: dict[str, Any], event: dict[str, Any], dt_s: float) -> Floats:
    n_samples = greens[0].shape[1]
    shape = np.array(slip_shape(event["rise_s"], dt_s))
    rows = []
    for green in greens:
        total = np.zeros(n_samples)
        for point, delay_s, slip in zip(rupture["points"], event["delays_s"], event["slips"]):
            source = np.zeros(n_samples)
            source[round(delay_s / dt_s)] = slip
            total += np.convolve(np.convolve(source, shape)[:n_samples], green[point])[:n_samples]
        rows.append(total)
    return np.concatenate(rows)


def exact_peaks(ground: Floats, dt_s: float, period_s: float) -> Floats:
    """Largest pseudo-acceleration for each row of ground acceleration."""
    omega = 2.0 * np.pi / period_s
    system = np.array([[0.0, 1.0], [-omega * omega, -2.0 * DAMPING * omega]])
    # exp of the system extended by the push and its slope gives the exact step for linear pushes.
    extended = np.zeros((4, 4))
    extended[:2, :2] = system
    extended[1, 2] = -1.0
    extended[2, 3] = 1.0
    power, step = np.eye(4), np.eye(4)
    for order in range(1, 30):
        power = power @ extended * (dt_s / order)
        step += power
    before = np.zeros(len(ground))
    state = np.zeros((2, len(ground)))
    largest = np.zeros(len(ground))
    for pushed in ground.T:
        slope = (pushed - before) / dt_s
        state = step[:2, :2] @ state + np.outer(step[:2, 2], before) + np.outer(step[:2, 3], slope)
        before = pushed
        largest = np.maximum(largest, np.abs(state[0]))
    return np.asarray(omega * omega * largest)


def check_numbers(results: Path, data: Path) -> dict[str, object]:
    heads = [read_array((data / name).read_bytes()) for name in ("sgt_x.bin", "sgt_y.bin")]
    dt_s, n_samples = float(heads[0][0]["dt_s"]), int(heads[0][0]["n_samples"])
    greens = [values.reshape(-1, n_samples) for _, values in heads]
    rates, rows, worst = [], [], 0.0
    with zipfile.ZipFile(io.BytesIO((results / "seismograms.zip").read_bytes())) as archive:
        names = set(archive.namelist())
        for path in sorted((data / "ruptures").glob("*.json")):
            rupture = json.loads(path.read_text(encoding="ascii"))
            for event in rupture["variations"]:
                name = f"{event['name']}.seis"
                if name not in names:
                    raise CheckError(f"seismograms.zip lacks {name}")
                names.discard(name)
                _, found = read_array(archive.read(name))
                expected = seismogram(greens, rupture, event, dt_s)
                off = float(np.abs(found - expected).max() / np.abs(expected).max())
                worst = max(worst, off)
                if off > SEISMOGRAM_TOLERANCE:
                    raise CheckError(f"{name} is off by {off:.1e} of its largest value")
                rates.append(event["rate_per_year"])
                rows.append(expected.reshape(2, n_samples))
    if names:
        raise CheckError(f"seismograms.zip has {len(names)} seismograms too many, one is {min(names)}")
    ground, rate = np.array(rows), np.array(rates)
    table = np.loadtxt(results / "curve.csv", delimiter=",", skiprows=1)
    for column, period_s in enumerate(PERIODS_S, 1):
        both = [exact_peaks(ground[:, direction], dt_s, period_s) for direction in (0, 1)]
        peaks = np.sqrt(both[0] * both[1])
        for level, chance in zip(LEVELS, table[:, column]):
            # The curve lies between those of somewhat larger and somewhat smaller peaks.
            low, high = (
                1.0 - np.exp(-rate[peaks * factor > level].sum())
                for factor in (1.0 - PEAK_TOLERANCE, 1.0 + PEAK_TOLERANCE)
            )
            if not low * (1.0 - CURVE_DIGITS) <= chance <= high * (1.0 + CURVE_DIGITS):
                raise CheckError(f"{period_s} s, level {level}: {chance} is not in [{low:.6g}, {high:.6g}]")
    return {
        "seismograms": len(rows),
        "seismogram_error_max": float(f"{worst:.2e}"),
        "curve_values": table.size,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the seismic hazard workflow.")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--plain", type=Path, help="folder that plain.sh wrote")
    parser.add_argument("--data", type=Path, help="folder that make_data.py wrote")
    args = parser.parse_args()
    found: dict[str, object] = {}
    try:
        if args.plain:
            for name in RESULTS:
                if (args.results / name).read_bytes() != (args.plain / name).read_bytes():
                    raise CheckError(f"{name} differs from that of the plain run")
            found["files_equal"] = len(RESULTS)
        if args.data:
            found |= check_numbers(args.results, args.data)
    except (OSError, CheckError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
