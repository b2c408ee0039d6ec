#!/usr/bin/env python3
"""Check a mosaic: against a plain run of the same programs, and against the sky and backgrounds that went in.

    check.py --results mosaic [--plain plain] [--data data] [--picture before-and-after.png]

--plain: mosaic.fits and mosaic_area.fits are the same as there, pixel by pixel, the tables of images and corrections
byte by byte, and the planes to their last digit.

--data: the tiles came from make_tiles.py, so each one's background is known.
  * Planes: background minus correction is what each tile has left. A mosaic has no seams when that is one and
    the same plane for all tiles (its level and slope are free: Montage knows differences only).
  * Seams: where two tiles overlap, the step between what they have left, root mean square, without correction
    and with it.
  * Pixels: mosaic minus the known sky, in blocks of 16 x 16 pixels, is one plane within the noise.

Numbers are printed as JSON; the exit status is 1 when a check fails. --picture shows the mosaic without
correction (from --plain, which has the reprojected tiles) beside the one with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits  # type: ignore[import-untyped]
from astropy.wcs import WCS  # type: ignore[import-untyped]
from make_tiles import Floats, Sky, Tile, centre_wcs, star_light, tan_offsets
from plan import read_table

BLOCK_PIXELS = 16
# What may be left of backgrounds that differ by hundreds of counts: planes fitted to noisy overlaps, whose
# errors grow with the distance from the overlaps that they were measured in.
LEFT_MAX_OF_STEPS = 0.02
TABLES = ("images.tbl", "corrections.tbl")
IMAGES = ("mosaic.fits", "mosaic_area.fits")


class CheckError(Exception):
    """The mosaic is not what it should be; its text is one sentence for the user."""


def compare_with_plain(results: Path, plain: Path) -> dict[str, object]:
    n_pixels = 0
    for name in IMAGES:
        ours, theirs = (fits.getdata(folder / name) for folder in (results, plain))
        if ours.shape != theirs.shape:
            raise CheckError(f"{name} has the shape {ours.shape}, in the plain run {theirs.shape}")
        # Blank pixels are NaN in both.
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        if not same.all():
            raise CheckError(f"{name}: {int((~same).sum())} of {same.size} pixels differ from the plain run")
        n_pixels += int(same.size)
    for name in TABLES:
        if (results / name).read_bytes() != (plain / name).read_bytes():
            raise CheckError(f"{name} differs from that of the plain run")
    return {
        "pixels_equal": n_pixels,
        "tables_equal": len(TABLES),
        "planes_equal": compare_planes(results, plain),
    }


def compare_planes(results: Path, plain: Path) -> int:
    """Planes equal to the last digit; of positions the plain run has one more digit before it rounds."""
    ours, theirs = (read_table(folder / "fits.tbl") for folder in (results, plain))
    if len(ours) != len(theirs):
        raise CheckError(f"fits.tbl has {len(ours)} planes, in the plain run {len(theirs)}")
    for our, their in zip(ours, theirs):
        for name, text in their.items():
            digits = len(text.partition(".")[2]) if "e" not in text else None
            same = our[name] == text
            if digits and not same:
                same = abs(float(our[name]) - float(text)) < 1.5 * 10.0**-digits
            if not same:
                pair = f"{their['plus']}, {their['minus']}"
                raise CheckError(
                    f"fits.tbl: {name} of the pair {pair} is {our[name]}, in the plain run {text}"
                )
    return len(ours)


@dataclass(frozen=True)
class Left:
    """One tile in the mosaic: where its pixels are, and what its background was and was corrected by."""

    # Pixels of the mosaic relative to its reference pixel, some of each tile's.
    u: Floats
    v: Floats
    background: Floats
    correction: Floats


def plane_of(u: Floats, v: Floats, values: Floats) -> Floats:
    """The plane a*u + b*v + c of least squares."""
    terms = np.stack([u, v, np.ones_like(u)], axis=1)
    return np.asarray(np.linalg.lstsq(terms, values, rcond=None)[0])


def read_tiles(results: Path, truth: dict[str, Any], region: WCS) -> dict[str, Left]:
    """What is left of each tile on a grid of its pixels."""
    number = {row["fname"]: int(row["cntr"]) for row in read_table(results / "images.tbl")}
    corrections = {
        int(row["id"]): [float(row[name]) for name in "abc"]
        for row in read_table(results / "corrections.tbl")
    }
    size = int(truth["size"])
    middle = (size - 1) / 2.0
    found = {}
    for tile in (Tile(**values) for values in truth["tiles"]):
        if (row := number.get(f"{tile.name}.fits")) is None or row not in corrections:
            raise CheckError(f"the tile {tile.name} has no correction")
        grid = np.linspace(0.0, size - 1.0, 33)
        x, y = (part.ravel() for part in np.meshgrid(grid, grid))
        sky = centre_wcs(tile.ra, tile.dec, tile.rotation_degrees, size).wcs_pix2world(x, y, 0)
        at_x, at_y = region.wcs_world2pix(*sky, 1)
        u, v = at_x - region.wcs.crpix[0], at_y - region.wcs.crpix[1]
        a, b, c = corrections[row]
        background = tile.level + tile.slope_x * (x - middle) + tile.slope_y * (y - middle)
        found[tile.name] = Left(u, v, background, a * u + b * v + c)
    return found


def steps(tiles: dict[str, Left], truth: dict[str, Any], corrected: bool) -> Floats:
    """Differences between two tiles at places that both cover."""
    found = []
    names = list(tiles)
    for at, name in enumerate(names):
        one = tiles[name]
        for other_name in names[at + 1 :]:
            other = tiles[other_name]
            inside = (
                (one.u > other.u.min())
                & (one.u < other.u.max())
                & (one.v > other.v.min())
                & (one.v < other.v.max())
            )
            if not inside.any():
                continue
            values = [tile.background - corrected * tile.correction for tile in (one, other)]
            a, b, c = plane_of(other.u, other.v, values[1])
            found.append(values[0][inside] - (a * one.u[inside] + b * one.v[inside] + c))
    return np.concatenate(found) if found else np.zeros(1)


def check_seams(results: Path, truth: dict[str, Any], region: WCS) -> dict[str, object]:
    tiles = read_tiles(results, truth, region)
    before, after = (steps(tiles, truth, corrected) for corrected in (False, True))
    rms_before, rms_after = (float(np.sqrt(np.mean(part**2))) for part in (before, after))
    u, v, left = (
        np.concatenate(parts)
        for parts in zip(*((tile.u, tile.v, tile.background - tile.correction) for tile in tiles.values()))
    )
    a, b, c = plane_of(u, v, left)
    away = float(np.abs(left - (a * u + b * v + c)).max())
    if rms_after > LEFT_MAX_OF_STEPS * rms_before:
        raise CheckError(
            f"steps at the seams are {rms_after:.2f} counts, {rms_before:.2f} without correction"
        )
    return {
        "seam_rms_uncorrected": round(rms_before, 3),
        "seam_rms": round(rms_after, 3),
        "plane_residual_max": round(away, 3),
    }


def check_pixels(results: Path, truth: dict[str, Any]) -> dict[str, object]:
    with fits.open(results / "mosaic.fits") as file:
        image, wcs = file[0].data.astype(float), WCS(file[0].header)
    height, width = image.shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    east, north = tan_offsets(*wcs.wcs_pix2world(x, y, 0))
    stars = np.array(truth["stars"]).T
    sky = Sky(truth["radius"], *stars)
    light = star_light(sky, east, north)
    rest = image - sky.galaxy(east, north)
    # A reprojected star is a little broader than it was: its pixels say nothing on the background.
    rest[light > 0.05] = np.nan
    blocks = rest[: height // BLOCK_PIXELS * BLOCK_PIXELS, : width // BLOCK_PIXELS * BLOCK_PIXELS]
    blocks = blocks.reshape(height // BLOCK_PIXELS, BLOCK_PIXELS, -1, BLOCK_PIXELS).swapaxes(1, 2)
    blocks = blocks.reshape(*blocks.shape[:2], -1)
    full = np.isfinite(blocks).sum(axis=2) > BLOCK_PIXELS**2 // 2
    values = np.nanmedian(np.where(full[..., None], blocks, 0.0), axis=2)[full]
    v, u = (part.astype(np.float64) for part in np.nonzero(full))
    a, b, c = plane_of(u, v, values)
    off = values - (a * u + b * v + c)
    rms = float(np.sqrt(np.mean(off**2)))
    # Of a median of at least 128 values, with tiles' own planes on top.
    limit = 0.5 * float(truth["noise"])
    if rms > limit:
        raise CheckError(f"the mosaic is off the known sky by {rms:.2f} counts, more than {limit:.2f}")
    return {
        "sky_blocks": int(full.sum()),
        "sky_rms": round(rms, 3),
        "sky_max": round(float(np.abs(off).max()), 3),
    }


def picture(results: Path, plain: Path, data: Path, out: Path) -> None:
    """Uncorrected beside corrected, each stretched by its own values."""
    uncorrected = plain / "uncorrected.fits"
    halves = {"uncorrected.png": uncorrected, "corrected.png": results / "mosaic.fits"}
    add = ["mAdd", "-p", str(plain / "proj"), str(plain / "images.tbl")]
    subprocess.run([*add, str(data / "region.hdr"), str(uncorrected)], check=True, stdout=subprocess.DEVNULL)
    from PIL import Image

    images = []
    for name, mosaic in halves.items():
        view = ["mViewer", "-gray", str(mosaic), "1%", "99.7%", "gaussian-log", "-out", str(plain / name)]
        subprocess.run(view, check=True, stdout=subprocess.DEVNULL)
        images.append(Image.open(plain / name).convert("L"))
    gap = 8
    size = (sum(image.width for image in images) + gap, max(image.height for image in images))
    both = Image.new("L", size, 255)
    for at, image in enumerate(images):
        both.paste(image, (at * (images[0].width + gap), 0))
    both.thumbnail((1200, 1200))
    both.quantize(64).save(out, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check a mosaic.")
    parser.add_argument("--results", type=Path, required=True, help="folder of the mosaic")
    parser.add_argument("--plain", type=Path, help="folder that plain.sh wrote")
    parser.add_argument("--data", type=Path, help="folder that make_tiles.py and plan.py wrote")
    parser.add_argument("--picture", type=Path, help="picture to write; needs --plain and --data")
    args = parser.parse_args()
    found: dict[str, object] = {}
    try:
        if args.plain:
            found |= compare_with_plain(args.results, args.plain)
        if args.data:
            truth = json.loads((args.data / "truth.json").read_text(encoding="utf-8"))
            header = fits.Header.fromtextfile(args.data / "region.hdr")
            found |= check_seams(args.results, truth, WCS(header))
            found |= check_pixels(args.results, truth)
        if args.picture:
            picture(args.results, args.plain, args.data, args.picture)
    except (OSError, CheckError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
