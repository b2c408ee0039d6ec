#!/usr/bin/env python3
"""Make a survey for the portal: exposures in five bands around M13 and NGC 1316, with faint sources in them.

    make_survey.py --out survey [--seed 13] [--exposures 16] [--targets 60]

The sky is that of `make_sky.py` of apps/stacking: a real image in the middle, at its own coordinates. There are two fields, the
globular cluster M13 in the north and the galaxy NGC 1316 in the south. Each has its own sources, at the same places in all bands
and of another brightness in each. Written below --out:

    m13/r/e0000.fits, ...  exposures, by field and band; the band also stands in the header, as FILTER
    targets.csv            id, ra, dec, band: sources to ask for
    survey.json            what went in; written last, so it marks the end
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "stacking"))

import make_sky  # noqa: E402

Floats = NDArray[np.float64]

# Light in each band, of that in r.
BANDS = {"u": 0.35, "g": 0.8, "r": 1.0, "i": 0.95, "z": 0.7}
FIELDS = ("m13", "ngc1316")
# Sources are brighter than those of `make demo`, because a request asks for tens of them and not for thousands.
BRIGHTNESS = 8.0
SIZE_PIXELS = 512
NGC1316_FILE = "tests/data/comp.fits"  # beside astropy.io.fits
NGC1316_REACH_PIXELS = 50


def ngc1316_image() -> tuple[Floats, dict[str, float]]:
    """The middle of the image of NGC 1316 that astropy ships, above its background, at 1 arcsecond a pixel, and its projection.

    Its own pixels are 7 arcseconds wide; between them values are interpolated. Its projection is orthographic (SIN) and is used as
    gnomonic (TAN): over 6 arcminutes the two differ by less than 0.003 arcseconds.
    """
    import astropy.io.fits  # type: ignore[import-untyped]

    path = Path(astropy.io.fits.__file__).parent / NGC1316_FILE
    with astropy.io.fits.open(path) as file:
        pixels, header = file[1].data.astype(np.float64), file[1].header
    x, y, reach = int(header["CRPIX1"]) - 1, int(header["CRPIX2"]) - 1, NGC1316_REACH_PIXELS
    middle = pixels[y - reach : y + reach + 1, x - reach : x + reach + 1] - np.median(pixels)
    zoom = round(abs(header["CDELT1"]) * 3600)
    at = np.arange((2 * reach) * zoom + 1) / zoom
    low = np.minimum(at.astype(int), 2 * reach - 1)
    part = at - low
    rows = middle[low] * (1 - part)[:, None] + middle[low + 1] * part[:, None]
    square = rows[:, low] * (1 - part) + rows[:, low + 1] * part
    values = {"CRVAL1": float(header["CRVAL1"]), "CRVAL2": float(header["CRVAL2"])}
    values |= {key: float(header[key]) / zoom for key in ("CDELT1", "CDELT2")}
    return square, {**values, "CRPIX1": reach * zoom + 1.0, "CRPIX2": reach * zoom + 1.0}


_skies: dict[str, make_sky.Sky] = {}  # of a worker process


def _start_worker(skies: dict[str, make_sky.Sky]) -> None:
    _skies.update(skies)


def _expose(job: tuple[str, str, int, str]) -> None:
    field, band, index, folder = job
    sky = _skies[field]
    light = BANDS[band]
    dimmed = replace(sky, pixels=sky.pixels * np.float32(light), peaks=sky.peaks * light)
    # Each band has pointings and noise of its own.
    number = index + 1000 * list(BANDS).index(band)
    look, counts = make_sky.expose(dimmed, number)
    cards = {"OBJECT": f"{field} field", "FILTER": band}
    make_sky.write_exposure(Path(folder) / make_sky.exposure_name(index), look, counts, sky.seed, cards)


def make(out: Path, seed: int, n_exposures: int, n_targets: int, n_processes: int) -> None:
    """Write the survey. `n_exposures` are those of each field and band, `n_targets` the sources of each field."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    images = {"m13": make_sky.m13_image(), "ngc1316": ngc1316_image()}
    skies = {}
    for number, field in enumerate(FIELDS):
        sky = make_sky.build_sky(seed + number, SIZE_PIXELS, n_targets, images[field])
        skies[field] = replace(sky, peaks=sky.peaks * BRIGHTNESS)
    jobs = []
    for field in FIELDS:
        for band in BANDS:
            folder = out / field / band
            folder.mkdir(parents=True)
            jobs += [(field, band, index, str(folder)) for index in range(n_exposures)]
    with ProcessPoolExecutor(n_processes, initializer=_start_worker, initargs=(skies,)) as pool:
        for _ in pool.map(_expose, jobs, chunksize=4):
            pass
    with open(out / "targets.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "ra", "dec", "band"))
        for field, sky in skies.items():
            for number, (ra, dec) in enumerate(sky.targets):
                writer.writerow((f"{field}-{number:03d}", f"{ra:.7f}", f"{dec:.7f}", "r"))
    made = {
        "seed": seed,
        "n_exposures": n_exposures,
        "n_targets": n_targets,
        "fields": list(FIELDS),
        "bands": list(BANDS),
        "psf_sigma_pixels": make_sky.PSF_SIGMA_PIXELS,
    }
    (out / "survey.json").write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a survey in five bands around M13 and NGC 1316.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; what is in it goes")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--exposures", type=int, default=16, help="of each field and band")
    parser.add_argument("--targets", type=int, default=60, help="of each field")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8))
    args = parser.parse_args()
    if min(args.exposures, args.targets, args.processes) < 1 or args.seed < 0:
        parser.error("--exposures, --targets and --processes start at 1, --seed at 0")
    make(args.out, args.seed, args.exposures, args.targets, args.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
