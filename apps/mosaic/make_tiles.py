#!/usr/bin/env python3
"""Make overlapping images of one sky, each with a background of its own, and write down what went in.

    make_tiles.py --out data [--columns 4] [--rows 4] [--size 512] [--seed 6]

The sky is a spiral galaxy among stars, noiseless and known as a function of position. A tile looks at a
part of it: its own pointing in a grid whose tiles overlap by 22 %, its own rotation within 3 degrees, noise,
and a background (level and slope) that has nothing to do with its neighbours'. That is what sky images are
like (moon, twilight, airglow), and what makes a mosaic without background rectification a chequerboard.

Written below --out:

    raw/t000.fits, ...   float32, TAN projection given by a CD matrix
    truth.json           options, stars and each tile's background; written last, so it marks the end

A CD matrix, because mImgtbl misreads the size of images that have PCi_j and CDELT, astropy's default.
The same options give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from astropy.io import fits  # type: ignore[import-untyped]
from astropy.wcs import WCS  # type: ignore[import-untyped]
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ARCSEC = 1.0 / 3600.0
CENTRE_RA, CENTRE_DEC = 210.80, 54.35  # Messier 101
PIXEL_ARCSEC = 1.0
OVERLAP = 0.22  # of a tile's side
ROTATION_MAX_DEGREES = 3.0
PSF_SIGMA_ARCSEC = 1.7
STAR_REACH_SIGMA = 6.0
STARS_PER_PIXEL = 4e-4
NOISE = 4.0


@dataclass(frozen=True)
class Tile:
    """One image; its background is `level + slope_x * (x - middle) + slope_y * (y - middle)`, pixels from 0."""

    name: str
    ra: float
    dec: float
    rotation_degrees: float
    level: float
    slope_x: float
    slope_y: float


@dataclass(frozen=True)
class Sky:
    """What is there without noise and background. Positions are arcseconds from the centre, east and north."""

    radius: float
    star_east: Floats
    star_north: Floats
    star_peak: Floats

    def galaxy(self, east: Floats, north: Floats) -> Floats:
        """A disc with two arms; surface brightness in counts a pixel."""
        scale = self.radius / 5.0
        radius = np.hypot(east, north / 0.85)
        angle = np.arctan2(north / 0.85, east)
        arms = 1.0 + 0.65 * np.cos(2.0 * (angle - 2.2 * np.log1p(radius / (0.35 * scale))))
        disc = 130.0 * np.exp(-radius / scale) * arms
        return np.asarray(disc + 250.0 * np.exp(-((radius / (0.22 * scale)) ** 2)))


def tan_offsets(ra: Floats, dec: Floats) -> tuple[Floats, Floats]:
    """Arcseconds east and north of the centre, in the plane that touches the sky there."""
    a, d = np.radians(ra - CENTRE_RA), np.radians(dec)
    d0 = np.radians(CENTRE_DEC)
    cosine = np.sin(d0) * np.sin(d) + np.cos(d0) * np.cos(d) * np.cos(a)
    east = np.cos(d) * np.sin(a) / cosine
    north = (np.cos(d0) * np.sin(d) - np.sin(d0) * np.cos(d) * np.cos(a)) / cosine
    return np.degrees(east) / ARCSEC, np.degrees(north) / ARCSEC


def centre_wcs(centre_ra: float, centre_dec: float, rotation_degrees: float, size: int) -> WCS:
    """Projection of a square image that looks at a position, east to the left before it is rotated."""
    turn = np.radians(rotation_degrees)
    step = PIXEL_ARCSEC * ARCSEC
    wcs = WCS(naxis=2)
    wcs.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    wcs.wcs.crval = [centre_ra, centre_dec]
    wcs.wcs.crpix = [(size + 1) / 2.0, (size + 1) / 2.0]
    wcs.wcs.cd = step * np.array([[-np.cos(turn), np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return wcs


def make_sky(width: float, height: float, random: np.random.Generator) -> Sky:
    """A sky somewhat larger than `width` x `height` arcseconds."""
    n_stars = int(STARS_PER_PIXEL * width * height / PIXEL_ARCSEC**2)
    return Sky(
        radius=min(width, height) / 2.0,
        star_east=random.uniform(-0.55, 0.55, n_stars) * width,
        star_north=random.uniform(-0.55, 0.55, n_stars) * height,
        star_peak=60.0 * random.pareto(1.4, n_stars).clip(0.0, 80.0) + 20.0,
    )


def star_light(sky: Sky, east: Floats, north: Floats) -> Floats:
    """Light of all stars at the pixels of one image, given the position of each pixel."""
    image = np.zeros_like(east)
    height, width = east.shape
    # The image is nearly a similarity of the tangent plane: one linear map finds the pixels around a star.
    middle = (height // 2, width // 2)
    by_x = np.array([(grid[middle] - grid[middle[0], middle[1] - 1]) for grid in (east, north)])
    by_y = np.array([(grid[middle] - grid[middle[0] - 1, middle[1]]) for grid in (east, north)])
    inverse = np.linalg.inv(np.stack([by_x, by_y], axis=1))
    offset = np.stack([sky.star_east - east[middle], sky.star_north - north[middle]])
    at_x, at_y = inverse @ offset + np.array([[middle[1]], [middle[0]]])
    reach = int(np.ceil(STAR_REACH_SIGMA * PSF_SIGMA_ARCSEC / PIXEL_ARCSEC)) + 2
    for e, n, peak, x, y in zip(sky.star_east, sky.star_north, sky.star_peak, at_x, at_y):
        if not (-reach < x < width + reach and -reach < y < height + reach):
            continue
        part = (
            slice(max(0, int(y) - reach), max(0, int(y) + reach)),
            slice(max(0, int(x) - reach), max(0, int(x) + reach)),
        )
        square = (east[part] - e) ** 2 + (north[part] - n) ** 2
        image[part] += peak * np.exp(-square / (2.0 * PSF_SIGMA_ARCSEC**2))
    return image


def place_tiles(columns: int, rows: int, size: int, random: np.random.Generator) -> list[Tile]:
    step = size * PIXEL_ARCSEC * (1.0 - OVERLAP)
    field = centre_wcs(CENTRE_RA, CENTRE_DEC, 0.0, 1)
    tiles: list[Tile] = []
    for row in range(rows):
        for column in range(columns):
            x, y = (column - (columns - 1) / 2.0) * step, (row - (rows - 1) / 2.0) * step
            ra, dec = field.wcs_pix2world(x / PIXEL_ARCSEC, y / PIXEL_ARCSEC, 0)
            tiles.append(
                Tile(
                    name=f"t{len(tiles):03d}",
                    ra=float(ra),
                    dec=float(dec),
                    rotation_degrees=float(random.uniform(-1.0, 1.0) * ROTATION_MAX_DEGREES),
                    level=float(random.uniform(100.0, 400.0)),
                    slope_x=float(random.uniform(-0.06, 0.06)),
                    slope_y=float(random.uniform(-0.06, 0.06)),
                )
            )
    return tiles


def image_of(tile: Tile, sky: Sky, size: int, noise: Floats) -> fits.PrimaryHDU:
    wcs = centre_wcs(tile.ra, tile.dec, tile.rotation_degrees, size)
    y, x = np.mgrid[0:size, 0:size].astype(np.float64)
    east, north = tan_offsets(*wcs.wcs_pix2world(x, y, 0))
    middle = (size - 1) / 2.0
    background = tile.level + tile.slope_x * (x - middle) + tile.slope_y * (y - middle)
    values = sky.galaxy(east, north) + star_light(sky, east, north) + background + NOISE * noise
    image = fits.PrimaryHDU(values.astype(np.float32))
    for name, value in zip(("CTYPE1", "CTYPE2", "CUNIT1", "CUNIT2"), ("RA---TAN", "DEC--TAN", "deg", "deg")):
        image.header[name] = value
    for axis in (0, 1):
        image.header[f"CRVAL{axis + 1}"] = wcs.wcs.crval[axis]
        image.header[f"CRPIX{axis + 1}"] = wcs.wcs.crpix[axis]
        for other in (0, 1):
            image.header[f"CD{axis + 1}_{other + 1}"] = wcs.wcs.cd[axis][other]
    image.header["EQUINOX"] = 2000.0
    return image


def make(out: Path, columns: int, rows: int, size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    side = size * PIXEL_ARCSEC
    tiles = place_tiles(columns, rows, size, random)
    sky = make_sky(columns * side, rows * side, random)
    (out / "raw").mkdir(parents=True, exist_ok=True)
    (out / "truth.json").unlink(missing_ok=True)
    for tile in tiles:
        noise = random.standard_normal((size, size))
        image_of(tile, sky, size, noise).writeto(out / "raw" / f"{tile.name}.fits", overwrite=True)
    truth = {
        "seed": seed,
        "columns": columns,
        "rows": rows,
        "size": size,
        "noise": NOISE,
        "radius": sky.radius,
        "stars": [list(map(float, star)) for star in zip(sky.star_east, sky.star_north, sky.star_peak)],
        "tiles": [asdict(tile) for tile in tiles],
    }
    (out / "truth.json").write_text(json.dumps(truth) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make overlapping images with backgrounds of their own.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--size", type=int, default=512, help="side of a tile in pixels")
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args()
    if min(args.columns, args.rows) < 1 or args.size < 32:
        parser.error("at least one column and one row of tiles of 32 pixels or more")
    make(args.out, args.columns, args.rows, args.size, args.seed)
    print(f"  {args.columns * args.rows} tiles of {args.size} x {args.size} pixels in {args.out / 'raw'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
