#!/usr/bin/env python3
"""Light curves of all objects in all bands, and which of them vary (Raicu09, section 6: stacking "can help to identify variable sources").

    lightcurve.py --cuts cuts --sky survey --out result [--threshold 5]

Reads cutouts of one object out of one exposure each, as the tasks of `plan.py --objects-per-task 1` write them. Cutouts of the same
object, band and epoch are stacked; then the height of a star profile in the middle is the object's flux, by the same filter as in
stack.py, and its error is the noise of a pixel through that filter. An object varies when its fluxes are off their means, one for each
band, by more than chance: chi^2 over all bands is --threshold standard deviations above what noise alone gives.

Written below --out:

    lightcurves.csv   object, band, epoch, mjd, flux, error, n (cutouts)
    variables.csv     object, n, chi2, dof, sigmas, amplitude, varies; what varies most stands first
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cutout import StackingError, number, read_hdu
from stack import measure, pixels_of, truth_of


@dataclass(frozen=True)
class Point:
    """The flux of an object in a band at an epoch, with its error, from `n` cutouts; `mjd` in days."""

    name: str
    band: str
    epoch: int
    mjd: float
    flux: float
    error: float
    n: int


@dataclass(frozen=True)
class Verdict:
    """Whether an object varies: `sigmas` is how far chi^2 is above what noise gives; `amplitude` half of the flux's range by its mean."""

    name: str
    n: int
    chi2: float
    dof: int
    sigmas: float
    amplitude: float


def points_of(folder: Path, psf_sigma: float) -> list[Point]:
    """A point for each object, band and epoch of the cutouts in a folder."""
    paths = sorted(folder.glob("*.fits"))
    if not paths:
        raise StackingError(f"there are no cutouts in {folder}")
    groups = defaultdict(list)
    for path in paths:
        image = read_hdu(str(path))
        name, band = image.header.get("OBJECT"), image.header.get("FILTER")
        if not isinstance(name, str) or not isinstance(band, str):
            raise StackingError(
                f"{path.name} does not say of which object and band it is; light curves need cutouts of one object "
                "(plan.py --objects-per-task 1) out of exposures with FILTER, EPOCH and MJD"
            )
        key = (name, band, int(number(image.header, "EPOCH", image.name)))
        groups[key].append((image, number(image.header, "WSUM", image.name)))
    found = []
    for (name, band, epoch), members in sorted(groups.items()):
        shapes = {(image.height, image.width) for image, _ in members}
        if len(shapes) > 1:
            raise StackingError(f"the cutouts of {name} in {band} are not all of one size")
        weight = sum(weight for _, weight in members)
        stacked = sum(pixels_of(image)[0] for image, _ in members) / weight
        heights, _, _ = measure(stacked[None], psf_sigma)
        # Matched filter: the variance of the height is that of a pixel by the sum of the squared profile, pi sigma^2.
        error = 1.0 / math.sqrt(weight * math.pi) / psf_sigma
        days = [number(image.header, "MJD", image.name) for image, _ in members]
        found.append(Point(name, band, epoch, float(np.mean(days)), float(heights[0]), error, len(members)))
    return found


def sigmas_of(chi2: float, dof: int) -> float:
    """How many standard deviations chi^2 of `dof` degrees of freedom is above its expectation (Wilson and Hilferty 1931)."""
    spread = 2.0 / (9.0 * dof)
    return float((chi2 / dof) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)


def verdicts_of(points: Iterable[Point]) -> list[Verdict]:
    """One for each object that was seen at two epochs or more in some band, what varies most first."""
    by_object: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for one in points:
        by_object[one.name][one.band].append(one)
    found = []
    for name, bands in by_object.items():
        chi2, dof, n, swings = 0.0, 0, 0, []
        for seen in bands.values():
            n += len(seen)
            if len(seen) < 2:
                continue
            flux = np.array([one.flux for one in seen])
            weight = 1.0 / np.array([one.error for one in seen]) ** 2
            mean = float(np.average(flux, weights=weight))
            chi2 += float(np.sum(weight * (flux - mean) ** 2))
            dof += len(seen) - 1
            if mean > 0:
                swings.append(float(np.ptp(flux)) / 2 / mean)
        if dof:
            amplitude = float(np.median(swings)) if swings else math.nan
            found.append(Verdict(name, n, chi2, dof, sigmas_of(chi2, dof), amplitude))
    return sorted(found, key=lambda one: (-one.sigmas, one.name))


def run(cuts: Path, sky: Path, out: Path, threshold: float) -> list[Verdict]:
    """Do all of it; returns the verdicts."""
    truth, _ = truth_of(sky)
    points = points_of(cuts, float(str(truth["psf_sigma_pixels"])))
    verdicts = verdicts_of(points)
    if not verdicts:
        raise StackingError(f"no object in {cuts} was seen at two epochs in one band: nothing can vary")
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "lightcurves.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("object", "band", "epoch", "mjd", "flux", "error", "n"))
        for one in points:
            writer.writerow(
                (one.name, one.band, one.epoch, one.mjd, f"{one.flux:.5g}", f"{one.error:.5g}", one.n)
            )
    with open(out / "variables.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("object", "n", "chi2", "dof", "sigmas", "amplitude", "varies"))
        for verdict in verdicts:
            numbers = (
                f"{verdict.chi2:.2f}",
                verdict.dof,
                f"{verdict.sigmas:.2f}",
                f"{verdict.amplitude:.3f}",
            )
            writer.writerow(
                (verdict.name, verdict.n, *numbers, "yes" if verdict.sigmas > threshold else "no")
            )
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure light curves, and find what varies.")
    parser.add_argument("--cuts", type=Path, required=True, help="folder with the tasks' outputs")
    parser.add_argument("--sky", type=Path, required=True, help="folder that survey.py or make_sky.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--threshold", type=float, default=5.0, help="sigmas from which on an object varies (default: 5)"
    )
    args = parser.parse_args()
    try:
        verdicts = run(args.cuts, args.sky, args.out, args.threshold)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    varying = [one for one in verdicts if one.sigmas > args.threshold]
    print(f"  {len(varying)} of {len(verdicts)} objects vary by more than {args.threshold:g} sigmas")
    for one in varying[:10]:
        print(f"    {one.name}: {one.sigmas:.1f} sigmas, amplitude {one.amplitude:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
