#!/usr/bin/env python3
"""The programs of the seismic hazard workflow: how a site shakes in each earthquake that could happen.

    shake.py extract  SGT_X SGT_Y RUPTURE.json OUT.sub
    shake.py synthesize  IN.sub RUPTURE.json VARIATION OUT.seis
    shake.py peak  IN.seis OUT.peak
    shake.py zip  OUT.zip FILE ...
    shake.py curve  OUT.csv FILE.peak ...

The shape, the stages and the sizes relative to each other are those of CyberShake's post-processing; the kernel is
small, but it is a computation. A file of Green's functions (CyberShake: strain Green tensors) says how the site
moves after a unit slip at each point of the faults, in one horizontal direction. A rupture is a set of such
points. A variation of it says when and how much each point slips; the seismogram is the sum of delayed and scaled
Green's functions, convolved with the shape of the slip in time. Its peak values are the largest accelerations of
damped oscillators of several periods, which stand for buildings; the curve says how likely each is to be exceeded.

Standard library alone, because an import of numpy takes longer than most of these tasks. All numbers in files are
little-endian; a file is a JSON line and then float32 values.
"""

from __future__ import annotations

import json
import math
import sys
import zipfile
from array import array
from pathlib import Path
from typing import Any

PERIODS_S = (0.5, 1.0, 2.0, 3.0, 5.0)
DAMPING = 0.05  # of critical, as building codes have it
LEVELS = tuple(round(0.005 * 1.5**step, 6) for step in range(16))
# Time that a zip file gives all its members, so that the same files give the same bytes.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)


class ShakeError(Exception):
    """The input is not what it should be; its text is one sentence for the user."""


def write_values(path: Path, head: dict[str, Any], values: array[float]) -> None:
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    with open(path, "wb") as file:
        file.write((json.dumps(head) + "\n").encode())
        values.tofile(file)


def read_values(path: Path, first: int = 0, count: int | None = None) -> tuple[dict[str, Any], array[float]]:
    """The head and `count` values from `first` on, or all."""
    with open(path, "rb") as file:
        try:
            head = json.loads(file.readline())
            n_values = int(head["n_values"])
        except (ValueError, KeyError, TypeError):
            raise ShakeError(f"{path} does not begin with a line of JSON that says `n_values`") from None
        wanted = n_values - first if count is None else count
        values = array("f")
        file.seek(first * values.itemsize, 1)
        try:
            values.fromfile(file, wanted)
        except EOFError:
            raise ShakeError(f"{path} is cut off: it has fewer than {first + wanted} values") from None
    if sys.byteorder == "big":
        values.byteswap()
    return head, values


def extract(sgt_x: Path, sgt_y: Path, rupture: Path, out: Path) -> None:
    """The Green's functions of one rupture's points, both directions of a point one after the other."""
    points = json.loads(rupture.read_text(encoding="ascii"))["points"]
    head, _ = read_values(sgt_x, 0, 0)
    n_samples = int(head["n_samples"])
    values = array("f")
    for point in points:
        for path in (sgt_x, sgt_y):
            values.extend(read_values(path, point * n_samples, n_samples)[1])
    head = {"n_values": len(values), "n_samples": n_samples, "dt_s": head["dt_s"], "points": points}
    write_values(out, head, values)


def slip_shape(rise_s: float, dt_s: float) -> list[float]:
    """A triangle of unit sum: how the slip of one point is spread over its rise time."""
    half = max(1, round(rise_s / dt_s / 2.0))
    weights = [half - abs(half - at) for at in range(1, 2 * half)]
    total = sum(weights)
    return [weight / total for weight in weights]


def synthesize(sub: Path, rupture: Path, variation: int, out: Path) -> None:
    """The seismogram of one variation of a rupture, both directions."""
    head, greens = read_values(sub)
    described = json.loads(rupture.read_text(encoding="ascii"))
    if head["points"] != described["points"]:
        raise ShakeError(f"{sub} has the points of another rupture than {rupture}")
    event = described["variations"][variation]
    n_samples, dt_s = int(head["n_samples"]), float(head["dt_s"])
    shape = slip_shape(float(event["rise_s"]), dt_s)
    seismogram = array("f")
    for direction in (0, 1):
        total = [0.0] * n_samples
        for at, (delay_s, slip) in enumerate(zip(event["delays_s"], event["slips"])):
            first = (2 * at + direction) * n_samples
            delay = round(delay_s / dt_s)
            green = greens[first : first + n_samples - delay]
            total[delay:] = [sum_ + slip * value for sum_, value in zip(total[delay:], green)]
        smooth = [0.0] * n_samples
        for delay, weight in enumerate(shape):
            smooth[delay:] = [sum_ + weight * value for sum_, value in zip(smooth[delay:], total)]
        seismogram.extend(smooth)
    head = {"n_values": len(seismogram), "n_samples": n_samples, "dt_s": dt_s, "event": event["name"]}
    write_values(out, {**head, "rate_per_year": event["rate_per_year"]}, seismogram)


def peak_response(ground: array[float], dt_s: float, period_s: float) -> float:
    """Largest acceleration of a damped oscillator on this ground, by Newmark's average acceleration method.

    Unconditionally stable and second order in `dt_s`; the unit is that of the ground's acceleration.
    """
    omega = 2.0 * math.pi / period_s
    damping, stiffness = 2.0 * DAMPING * omega, omega * omega
    mass = 1.0 + 0.5 * dt_s * damping + 0.25 * dt_s * dt_s * stiffness
    position = speed = acceleration = largest = 0.0
    for pushed in ground:
        position += dt_s * speed + 0.25 * dt_s * dt_s * acceleration
        speed += 0.5 * dt_s * acceleration
        acceleration = (-pushed - damping * speed - stiffness * position) / mass
        speed += 0.5 * dt_s * acceleration
        position += 0.25 * dt_s * dt_s * acceleration
        largest = max(largest, abs(position))
    return stiffness * largest


def peak(seismogram: Path, out: Path) -> None:
    """Peak values of one seismogram, the geometric mean of both directions, for each period."""
    head, values = read_values(seismogram)
    n_samples, dt_s = int(head["n_samples"]), float(head["dt_s"])
    peaks = {}
    for period_s in PERIODS_S:
        x, y = (peak_response(values[first : first + n_samples], dt_s, period_s) for first in (0, n_samples))
        peaks[str(period_s)] = round(math.sqrt(x * y), 9)
    result = {"event": head["event"], "rate_per_year": head["rate_per_year"], "peaks": peaks}
    out.write_text(json.dumps(result) + "\n", encoding="ascii")


def zip_files(out: Path, files: list[Path]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            archive.writestr(zipfile.ZipInfo(path.name, ZIP_TIME), path.read_bytes())


def curve(out: Path, files: list[Path]) -> None:
    """For each level and period: the chance that a year brings an event that exceeds it."""
    events = [json.loads(path.read_text(encoding="ascii")) for path in sorted(files)]
    lines = ["level," + ",".join(f"{period_s}s" for period_s in PERIODS_S)]
    for level in LEVELS:
        chances = []
        for period_s in PERIODS_S:
            rates = (event["rate_per_year"] for event in events if event["peaks"][str(period_s)] > level)
            chances.append(1.0 - math.exp(-math.fsum(rates)))
        lines.append(f"{level:g}," + ",".join(f"{chance:.6g}" for chance in chances))
    out.write_text("\n".join(lines) + "\n", encoding="ascii")


def run(arguments: list[str]) -> bool:
    """Do what the command line says; False when it says nothing that there is."""
    match arguments:
        case ["extract", sgt_x, sgt_y, rupture, out]:
            extract(Path(sgt_x), Path(sgt_y), Path(rupture), Path(out))
        case ["synthesize", sub, rupture, variation, out] if variation.isdigit():
            synthesize(Path(sub), Path(rupture), int(variation), Path(out))
        case ["peak", seismogram, out]:
            peak(Path(seismogram), Path(out))
        case ["zip", out, *files] if files:
            zip_files(Path(out), [Path(name) for name in files])
        case ["curve", out, *files] if files:
            curve(Path(out), [Path(name) for name in files])
        case _:
            return False
    return True


def main() -> int:
    try:
        if not run(sys.argv[1:]):
            print(__doc__, file=sys.stderr)
            return 2
    except (OSError, KeyError, IndexError, ValueError, ShakeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
