"""The last task of a request: add the stacks of single exposures, measure the middle, and draw it, beside one cutout alone.

    tasks.py combine --psf-sigma 1.7 cuts stack.fits stack.png stack.jpg one.png

`cuts` is a folder of what `cut.py` wrote. The measurement and the grey scale are those of apps/stacking. Prints what it found as
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

# Threads of OpenBLAS, one for each processor, would take a seventh of the time of importing numpy, and have nothing to do.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from cutout import StackingError, number, read_hdu, write_fits
from picture import cutout_panel
from stack import measure, pixels_of


def combine(
    folder: Path, psf_sigma: float, fits: Path, png: Path, jpeg: Path, one: Path
) -> dict[str, object]:
    paths = sorted(folder.glob("*.fits"))
    if not paths:
        raise StackingError(f"there are no cutouts in {folder}")
    total, first, weight, n_cutouts, bands = None, None, 0.0, 0, set()
    for path in paths:
        image = read_hdu(str(path))
        plane, alone = pixels_of(image)[:2]
        if total is not None and plane.shape != total.shape:
            raise StackingError(f"{path.name} is not as large as the others")
        total = plane if total is None else total + plane
        first = alone if first is None else first
        bands |= {str(image.header["FILTER"]).strip()} if "FILTER" in image.header else set()
        weight += number(image.header, "WSUM", path.name)
        n_cutouts += int(number(image.header, "NSTACK", path.name))
    assert total is not None and first is not None
    stacked = total / weight
    heights, variances, _ = measure(np.array([stacked, first], np.float64), psf_sigma)
    (height, height_one), (noise, noise_one) = heights.tolist(), np.sqrt(variances).tolist()
    write_fits(
        str(fits),
        [stacked.tolist()],
        [
            ("N", n_cutouts, "cutouts in the mean"),
            ("SNR", round(height / noise, 3), "matched filter, at the centre"),
            ("HEIGHT", height, "of the source at the centre, calibrated units"),
            ("NEXP", len(paths), "stacks of single exposures"),
            ("WSUM", weight, "sum of weights, 1 / noise^2"),
            *([("FILTER", ",".join(sorted(bands)), "of the exposures")] if bands else []),
            ("ORIGIN", "eyas apps/portal", ""),
        ],
    )
    picture = cutout_panel(np.asarray(stacked, np.float64))
    picture.save(png)
    picture.save(jpeg, quality=90)
    cutout_panel(np.asarray(first, np.float64)).save(one)
    return {
        "n_cutouts": n_cutouts,
        "snr": round(height / noise, 2),
        # Where an exposure has nothing but zeros there is no noise, either.
        "snr_one": round(height_one / noise_one, 2) if noise_one else None,
        "height": round(height, 4),
        "width_pixels": int(stacked.shape[1]),
        "height_pixels": int(stacked.shape[0]),
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="combine", description="Add the stacks of single exposures.")
    parser.add_argument("--psf-sigma", type=float, required=True, help="width of the star profile in pixels")
    parser.add_argument("cuts", type=Path)
    parser.add_argument("fits", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("jpeg", type=Path)
    parser.add_argument("one", type=Path)
    args = parser.parse_args(words)
    try:
        found = combine(args.cuts, args.psf_sigma, args.fits, args.png, args.jpeg, args.one)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0
