#!/usr/bin/env python3
"""Cut objects out of one exposure, calibrate them, centre them on a pixel and stack them.

    cutout.py --objects t003,t017,t140 targets.csv exposure.fits.gz cut.fits

One exposure in, one small FITS file out; every name may be relative. The steps carry the names
of the stacking code profiled in Raicu09, section 6.4:

    open           open the FITS file, plain or packed with gzip or bzip2
    readHDU        read header and pixels
    radec2xy       RA, Dec -> pixel position through the TAN projection and its CD matrix
    getTile        take the square of pixels around the object (`curl` and `convertArray` of the
                   paper are here the slicing of rows and the arithmetic that makes them floats)
    calibration    (pixel - SKY) / CAL, then the level left under the object is taken away
    interpolation  shift by a fraction of a pixel, so that the object sits on the middle of a pixel
    doStacking     weighted sum, weight 1 / noise^2
    writeStacking  write the sum, its weight and how many objects it holds

The output has two planes: 1 the weighted sum (divide by WSUM for the mean), 2 the first object
alone, for looking at what a single exposure shows. The band, the epoch and the date of the exposure
(FILTER, EPOCH, MJD), where it has them, are in the output's header.

Cutouts are shifted, not turned: every exposure has its own rotation, which only smears shapes that
are not round. With --reproject, in place of `interpolation`, each cutout is drawn on a common set of
pixel planes (section 6.1): north up, --pixel arc seconds a pixel, the object in the middle. That needs
numpy, astropy and reproject where the task runs.

--profile FILE writes how many milliseconds each step took (figure 43).

Only the standard library is used. A node then needs nothing but Python, and the program starts in
some 20 ms; importing numpy alone takes 80 ms, longer than the work. For the same reason `dataclasses`
are avoided (14 ms), and `argparse` (17 ms) and `csv` are imported by the functions that need them.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import struct
import sys
import time
import zlib
from array import array
from importlib import import_module
from typing import BinaryIO, NamedTuple

BLOCK_BYTES = 2880
CARD_BYTES = 80
HEADER_BLOCKS_MAX = 1000
TYPECODES = {16: "h", 32: "i", -32: "f", -64: "d"}
TAPS = 4  # pixels that cubic interpolation looks at, per axis
RING_PIXELS = 4  # width of the frame in which background and noise are measured
CARRIED = ("FILTER", "EPOCH", "MJD")

Header = dict[str, "str | int | float | bool"]
Tile = list[list[float]]


class StackingError(Exception):
    """Bad input; its text is one sentence for the user."""


class Profile:
    """How long the steps of the program took, by their names; a step may come several times."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.at = time.perf_counter()

    def lap(self, step: str) -> None:
        """The time since the last lap was that of `step`."""
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self.at
        self.at = now

    def write(self, path: str) -> None:
        """JSON: milliseconds of each step."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump({step: round(1000 * seconds, 4) for step, seconds in self.seconds.items()}, file)


# ---------------------------------------------------------------------------------- FITS, in small


def parse_card(card: str) -> tuple[str, str | int | float | bool] | None:
    """Keyword and value of one 80-character header card, or None for a comment."""
    if card[8:10] != "= ":
        return None
    keyword, text = card[:8].strip(), card[10:].strip()
    if text.startswith("'"):
        end = text.find("'", 1)
        while end >= 0 and text[end + 1 : end + 2] == "'":  # '' stands for one quote
            end = text.find("'", end + 2)
        return keyword, text[1 : end if end >= 0 else None].replace("''", "'").rstrip()
    text = text.split("/", 1)[0].strip()
    if text in ("T", "F"):
        return keyword, text == "T"
    try:
        return keyword, int(text)
    except ValueError:
        pass
    try:
        return keyword, float(text.replace("D", "E"))
    except ValueError:
        return None


def read_header(file: BinaryIO, name: str) -> Header:
    """Header of the first HDU; leaves `file` at the first byte of the data."""
    header: Header = {}
    for n_blocks in range(HEADER_BLOCKS_MAX):
        block = file.read(BLOCK_BYTES)
        if n_blocks == 0 and not block.startswith(b"SIMPLE  ="):
            what = "is empty" if not block else "does not start like a FITS file"
            raise StackingError(f"{name} {what}")
        if len(block) < BLOCK_BYTES:
            raise StackingError(f"{name} ends in the middle of its header")
        text = block.decode("ascii", "replace")
        for start in range(0, BLOCK_BYTES, CARD_BYTES):
            card = text[start : start + CARD_BYTES]
            if card.rstrip() == "END":
                return header
            parsed = parse_card(card)
            if parsed is not None:
                header[parsed[0]] = parsed[1]
    raise StackingError(f"the header of {name} has no end")


def number(header: Header, keyword: str, name: str, default: float | None = None) -> float:
    """A finite numeric header value; `default` where the keyword is absent."""
    value = header.get(keyword, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise StackingError(f"{name} has no usable {keyword} in its header (found {value!r})")
    return value


class Image(NamedTuple):
    """Pixels of the first HDU as they are stored, with the header that explains them."""

    name: str
    header: Header
    width: int
    height: int
    n_planes: int
    pixels: array[float]
    bscale: float
    bzero: float


def open_fits(path: str) -> BinaryIO:
    """`open`: whether it is packed with gzip or bzip2 shows in its first bytes, not in its name."""
    file = open(path, "rb")
    try:
        first = file.read(3)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    if first == b"BZh":
        import bz2

        return bz2.BZ2File(file)  # type: ignore[return-value]
    return gzip.GzipFile(fileobj=file) if first[:2] == b"\x1f\x8b" else file  # type: ignore[return-value]


def read_hdu(path: str, profile: Profile | None = None) -> Image:
    """`open` and `readHDU`: header and all pixels of the first HDU."""
    name, profile = os.path.basename(path), profile or Profile()
    try:
        with open_fits(path) as file:
            profile.lap("open")
            header = read_header(file, name)
            image = read_pixels(file, header, name)
            profile.lap("readHDU")
            return image
    except FileNotFoundError:
        raise StackingError(f"{path} does not exist") from None
    except EOFError:
        raise StackingError(f"{name} is cut short: its packed stream does not end") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise StackingError(f"{name} is damaged: {error}") from None
    except OSError as error:
        raise StackingError(f"{path} cannot be read: {error.strerror or error}") from None


def read_pixels(file: BinaryIO, header: Header, name: str) -> Image:
    bitpix = int(number(header, "BITPIX", name))
    n_axes = int(number(header, "NAXIS", name))
    if bitpix not in TYPECODES or n_axes not in (2, 3):
        raise StackingError(f"{name} is not an image this program reads (BITPIX {bitpix}, NAXIS {n_axes})")
    axes = [int(number(header, f"NAXIS{axis + 1}", name)) for axis in range(n_axes)]
    if min(axes) < 1:
        raise StackingError(f"{name} holds no pixels")
    n_bytes = math.prod(axes) * abs(bitpix) // 8
    data = file.read(n_bytes)
    if len(data) < n_bytes:
        raise StackingError(f"{name} is cut short: {len(data):,} of {n_bytes:,} bytes of pixels are there")
    file.read()  # to the end, where gzip keeps its checksum
    pixels: array[float] = array(TYPECODES[bitpix], data)  # whole numbers for integer types
    if sys.byteorder == "little":
        pixels.byteswap()
    return Image(
        name=name,
        header=header,
        width=axes[0],
        height=axes[1],
        n_planes=axes[2] if n_axes == 3 else 1,
        pixels=pixels,
        bscale=number(header, "BSCALE", name, 1.0),
        bzero=number(header, "BZERO", name, 0.0),
    )


def format_card(keyword: str, value: str | int | float | bool, comment: str = "") -> str:
    if isinstance(value, bool):
        text = f"{'T' if value else 'F':>20}"
    elif isinstance(value, str):
        quoted = value.replace("'", "''")[:66]
        text = f"'{quoted:<8}'".ljust(20)
    elif isinstance(value, int):
        text = f"{value:>20d}"
    else:
        text = f"{value:>20.13G}"
    card = f"{keyword:<8}= {text}"
    if comment:
        card += f" / {comment}"
    return f"{card[:CARD_BYTES]:<{CARD_BYTES}}"


def write_fits(path: str, planes: list[Tile], cards: list[tuple[str, str | int | float | bool, str]]) -> None:
    """One image (or a cube of equal planes) of 32-bit floats, with `cards` in its header."""
    height, width = len(planes[0]), len(planes[0][0])
    axes = [width, height] + ([len(planes)] if len(planes) > 1 else [])
    header = [format_card("SIMPLE", True), format_card("BITPIX", -32), format_card("NAXIS", len(axes))]
    header += [format_card(f"NAXIS{axis + 1}", length) for axis, length in enumerate(axes)]
    header += [format_card(keyword, value, comment) for keyword, value, comment in cards]
    text = ("".join(header) + f"{'END':<{CARD_BYTES}}").encode("ascii", "replace")
    values = [value for plane in planes for row in plane for value in row]
    data = struct.pack(f">{len(values)}f", *values)
    with open(path, "wb") as file:
        file.write(text + b" " * (-len(text) % BLOCK_BYTES))
        file.write(data + b"\0" * (-len(data) % BLOCK_BYTES))


# ------------------------------------------------------------------------------------ coordinates


class TanWcs(NamedTuple):
    """Gnomonic projection with a CD matrix; angles in degrees, pixels counted from 1 as in FITS."""

    crval1: float
    crval2: float
    crpix1: float
    crpix2: float
    cd11: float
    cd12: float
    cd21: float
    cd22: float


def tan_wcs(header: Header, name: str) -> TanWcs:
    """Projection declared by a header; refuses all but TAN with a CD matrix that can be inverted."""
    ctype = (header.get("CTYPE1"), header.get("CTYPE2"))
    if ctype != ("RA---TAN", "DEC--TAN"):
        raise StackingError(f"{name} is not in the TAN projection (CTYPE {ctype[0]!r}, {ctype[1]!r})")
    keywords = ("CRVAL1", "CRVAL2", "CRPIX1", "CRPIX2", "CD1_1", "CD1_2", "CD2_1", "CD2_2")
    wcs = TanWcs(*(number(header, keyword, name) for keyword in keywords))
    if wcs.cd11 * wcs.cd22 == wcs.cd12 * wcs.cd21:
        raise StackingError(f"the CD matrix of {name} is singular")
    return wcs


def radec2xy(wcs: TanWcs, ra: float, dec: float) -> tuple[float, float] | None:
    """Pixel position, counted from 0 at the centre of the first pixel; None if behind the plane.

    `ra` and `dec` in degrees. Calabretta & Greisen 2002, equations 5 and 54.
    """
    ra0, dec0 = math.radians(wcs.crval1), math.radians(wcs.crval2)
    turn, height = math.radians(ra) - ra0, math.radians(dec)
    sin_dec, cos_dec = math.sin(height), math.cos(height)
    sin_dec0, cos_dec0 = math.sin(dec0), math.cos(dec0)
    depth = sin_dec * sin_dec0 + cos_dec * cos_dec0 * math.cos(turn)
    if depth <= 0.0:
        return None
    xi = math.degrees(cos_dec * math.sin(turn) / depth)
    eta = math.degrees((sin_dec * cos_dec0 - cos_dec * sin_dec0 * math.cos(turn)) / depth)
    det = wcs.cd11 * wcs.cd22 - wcs.cd12 * wcs.cd21
    x = (wcs.cd22 * xi - wcs.cd12 * eta) / det + wcs.crpix1 - 1.0
    y = (wcs.cd11 * eta - wcs.cd21 * xi) / det + wcs.crpix2 - 1.0
    return x, y


def fits_inside(x: float, y: float, width: int, height: int, size: int) -> bool:
    """Whether a cutout of `size` pixels around (x, y), with what interpolation needs, is all there."""
    reach = size // 2 + TAPS // 2
    return reach <= x < width - 1 - reach and reach <= y < height - 1 - reach


# ------------------------------------------------------------------------------------- the stacking


def get_tile(image: Image, x: float, y: float, size: int) -> tuple[Tile, float, float]:
    """`getTile`: pixels around (x, y), one more than the cutout before and two after, on each axis.

    Returns them as they are stored, with the fractions of a pixel, in [0, 1), by which the object
    is off the middle.
    """
    x0, y0 = math.floor(x), math.floor(y)
    reach, n = size // 2 + 1, size + TAPS - 1
    starts = range((y0 - reach) * image.width + x0 - reach, image.width * image.height, image.width)
    return [image.pixels[start : start + n].tolist() for start in starts[:n]], x - x0, y - y0


def calibrate(tile: Tile, image: Image, sky: float, cal: float) -> tuple[Tile, float]:
    """`calibration`: flux above the local background, and the noise of one pixel in the same unit.

    SKY is one number for an exposure whose background slopes, so the level of a frame around the
    object is taken away as well. Level and noise are mean and standard deviation of the frame's
    pixels, without those more than 3 standard deviations off; a median finds these, but would itself
    stick to whole counts.
    """
    n = RING_PIXELS
    ring = [value for row in tile[:n] + tile[-n:] for value in row]
    ring += [value for row in tile[n:-n] for value in row[:n] + row[-n:]]
    gain = image.bscale / cal
    offset = (image.bzero - sky) / cal
    ring = [gain * value + offset for value in ring]
    middle = median(ring)
    limit = 3 * 1.4826 * median([abs(value - middle) for value in ring])
    kept = [value for value in ring if abs(value - middle) <= limit]
    level = sum(kept) / len(kept)
    noise = math.sqrt(sum([(value - level) ** 2 for value in kept]) / len(kept))
    offset -= level
    return [[gain * value + offset for value in row] for row in tile], noise


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def cubic_weights(fraction: float) -> tuple[float, float, float, float]:
    """Catmull-Rom weights for a point `fraction` behind the second of four samples; they sum to 1."""
    t = fraction
    return (
        ((2.0 - t) * t - 1.0) * t / 2,
        ((3.0 * t - 5.0) * t * t + 2.0) / 2,
        ((4.0 - 3.0 * t) * t + 1.0) * t / 2,
        (t - 1.0) * t * t / 2,
    )


def interpolate(tile: Tile, fraction_x: float, fraction_y: float) -> Tile:
    """`interpolation`: shift so that the object is on the middle pixel; three rows and columns less.

    Separable cubic convolution. Its weights sum to 1, so flux inside the cutout is conserved.
    """
    a, b, c, d = cubic_weights(fraction_x)
    rows = [
        [a * p + b * q + c * r + d * s for p, q, r, s in zip(row, row[1:], row[2:], row[3:], strict=False)]
        for row in tile
    ]
    a, b, c, d = cubic_weights(fraction_y)
    return [
        [a * p + b * q + c * r + d * s for p, q, r, s in zip(*four, strict=True)]
        for four in zip(rows, rows[1:], rows[2:], rows[3:], strict=False)
    ]


class Stack:
    """`doStacking`: running weighted sum of equally large cutouts."""

    def __init__(self) -> None:
        self.total: Tile = []
        self.first: Tile = []
        self.first_noise = 0.0
        self.weight = 0.0
        self.n_objects = 0

    def add(self, tile: Tile, noise: float) -> None:
        """Add one cutout; `noise` > 0 is the standard deviation of one of its pixels."""
        weight = 1.0 / (noise * noise)
        weighted = [[weight * value for value in row] for row in tile]
        if self.n_objects == 0:
            self.total, self.first, self.first_noise = weighted, tile, noise
        else:
            self.total = [
                [old + new for old, new in zip(*rows, strict=True)]
                for rows in zip(self.total, weighted, strict=True)
            ]
        self.weight += weight
        self.n_objects += 1


def write_stacking(
    path: str,
    stack: Stack,
    image: Image,
    n_skipped: int,
    more: list[tuple[str, str | int | float | bool, str]],
) -> None:
    """`writeStacking`: plane 1 the weighted sum, plane 2 the first object alone."""
    carried = [(key, image.header[key], "of the exposure") for key in CARRIED if key in image.header]
    write_fits(
        path,
        [stack.total, stack.first],
        [
            ("NSTACK", stack.n_objects, "objects in plane 1"),
            ("WSUM", stack.weight, "sum of weights in plane 1"),
            ("NOISE2", stack.first_noise, "noise of a pixel in plane 2"),
            ("NSKIP", n_skipped, "objects not fully inside the exposure"),
            ("EXPOSURE", image.name, ""),
            *carried,
            *more,
        ],
    )


def read_targets(path: str) -> dict[str, tuple[float, float]]:
    """Objects of a CSV file with the columns id, ra, dec (degrees)."""
    import csv

    name = os.path.basename(path)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if not {"id", "ra", "dec"} <= set(reader.fieldnames or ()):
                raise StackingError(f"{name} does not have the columns id, ra and dec")
            targets = {row["id"]: (float(row["ra"]), float(row["dec"])) for row in reader}
    except (ValueError, TypeError) as error:
        raise StackingError(f"{name} has a position that is not a number: {error}") from None
    except OSError as error:
        raise StackingError(f"{path} cannot be read: {error.strerror or error}") from None
    if not targets:
        raise StackingError(f"{name} lists no objects")
    return targets


def stack_exposure(
    image: Image,
    positions: list[tuple[float, float]],
    size: int,
    pixel_arcsec: float | None = None,
    profile: Profile | None = None,
) -> tuple[Stack, int]:
    """Stack all `positions` (RA, Dec in degrees) that lie inside; returns also how many do not.

    With `pixel_arcsec` they are reprojected to pixels of that size, north up, in place of being shifted.
    """
    profile = profile or Profile()
    wcs = tan_wcs(image.header, image.name)
    # The frames of SDSS are calibrated and have no background: their pixels are nanomaggies.
    is_flux = image.header.get("BUNIT") == "nanomaggy"
    sky = number(image.header, "SKY", image.name, 0.0 if is_flux else None)
    cal = number(image.header, "CAL", image.name, 1.0 if is_flux else None)
    if cal <= 0.0:
        raise StackingError(f"{image.name} cannot be calibrated with CAL = {cal}")
    stack, n_skipped = Stack(), 0
    # How many pixels of the exposure the cutout needs around the object, whatever it is turned by.
    cut = size if pixel_arcsec is None else pixels_for(wcs, size, pixel_arcsec)
    for ra, dec in positions:
        xy = radec2xy(wcs, ra, dec)
        is_inside = xy is not None and fits_inside(*xy, image.width, image.height, cut)
        profile.lap("radec2xy")
        if xy is None or not is_inside:
            n_skipped += 1
            continue
        tile, fraction_x, fraction_y = get_tile(image, *xy, cut)
        profile.lap("getTile")
        calibrated, noise = calibrate(tile, image, sky, cal)
        profile.lap("calibration")
        if not noise > 0.0 or not math.isfinite(noise):
            raise StackingError(
                f"{image.name} has no noise around RA {ra}, Dec {dec}: those pixels are not data"
            )
        if pixel_arcsec is None:
            shifted = interpolate(calibrated, fraction_x, fraction_y)
            profile.lap("interpolation")
        else:
            shifted, noise = reproject_tile(calibrated, noise, wcs, (ra, dec), xy, size, pixel_arcsec)
            profile.lap("reprojection")
        stack.add(shifted, noise)
        profile.lap("doStacking")
    return stack, n_skipped


# ------------------------------------------------------------------------------------- reprojection


def pixels_for(wcs: TanWcs, size: int, pixel_arcsec: float) -> int:
    """The side, odd, of a square of the exposure that holds `size` pixels of the common grid, turned in any way."""
    own = 3600.0 * math.sqrt(abs(wcs.cd11 * wcs.cd22 - wcs.cd12 * wcs.cd21))
    return 2 * math.ceil(size * math.sqrt(0.5) * pixel_arcsec / own + 1) + 1


def reproject_tile(
    tile: Tile,
    noise: float,
    wcs: TanWcs,
    radec: tuple[float, float],
    xy: tuple[float, float],
    size: int,
    pixel_arcsec: float,
) -> tuple[Tile, float]:
    """A cutout on the common grid around an object, and the noise of one of its pixels.

    `tile` is what `get_tile` and `calibrate` gave for the pixel position `xy` (from 0) of `radec` (degrees). The grid is TAN
    with the object in the middle of its middle pixel, north up and east left. Drawn by `reproject.reproject_interp`,
    bicubic; flux is conserved: a pixel gets the brightness of its place times its area.
    """
    try:
        import numpy
        from astropy.wcs import WCS  # type: ignore[import-untyped]

        reproject_interp = import_module("reproject").reproject_interp
    except ImportError as error:
        raise StackingError(
            f"--reproject needs numpy, astropy and reproject where the task runs: {error} (pip install reproject)"
        ) from None
    area = (pixel_arcsec / 3600.0) ** 2 / abs(wcs.cd11 * wcs.cd22 - wcs.cd12 * wcs.cd21)
    reach = (len(tile) - TAPS) // 2 + 1
    of_tile, grid = WCS(naxis=2), WCS(naxis=2)
    for one in (of_tile, grid):
        one.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    of_tile.wcs.crval = [wcs.crval1, wcs.crval2]
    of_tile.wcs.cd = [[wcs.cd11, wcs.cd12], [wcs.cd21, wcs.cd22]]
    of_tile.wcs.crpix = [wcs.crpix1 - math.floor(xy[0]) + reach, wcs.crpix2 - math.floor(xy[1]) + reach]
    grid.wcs.crval = list(radec)
    grid.wcs.crpix = [size // 2 + 1, size // 2 + 1]
    grid.wcs.cd = [[-pixel_arcsec / 3600.0, 0.0], [0.0, pixel_arcsec / 3600.0]]
    drawn, covered = reproject_interp(
        (numpy.array(tile), of_tile), grid, shape_out=(size, size), order="bicubic"
    )
    if not numpy.all(covered):
        raise StackingError(f"the exposure does not cover all of the cutout at RA {radec[0]}, Dec {radec[1]}")
    return (drawn * area).tolist(), noise * area


def main() -> int:
    import argparse

    parser = argparse.ArgumentParser(description="Cut objects out of one exposure and stack them.")
    parser.add_argument("--objects", help="ids to stack, separated by commas (default: all that are listed)")
    parser.add_argument("--size", type=int, default=41, help="side of a cutout in pixels, odd (default: 41)")
    parser.add_argument(
        "--reproject", action="store_true", help="draw each cutout north up on a common set of pixel planes"
    )
    parser.add_argument(
        "--pixel", type=float, default=0.396, metavar="ARCSEC", help="pixel of --reproject (default: 0.396)"
    )
    parser.add_argument("--profile", metavar="FILE", help="write the milliseconds of each step, as JSON")
    parser.add_argument("targets", help="CSV file with the columns id, ra, dec")
    parser.add_argument("exposure", help="FITS image, plain or packed with gzip or bzip2")
    parser.add_argument("out", help="FITS file to write")
    args = parser.parse_args()
    try:
        if args.size < 2 * RING_PIXELS + 1 or args.size % 2 == 0:
            raise StackingError(f"--size {args.size} is not an odd number of at least {2 * RING_PIXELS + 1}")
        targets = read_targets(args.targets)
        wanted = args.objects.split(",") if args.objects else list(targets)
        unknown = [one for one in wanted if one not in targets]
        if unknown:
            raise StackingError(f"{os.path.basename(args.targets)} does not list {unknown[0]!r}")
        if not (math.isfinite(args.pixel) and args.pixel > 0):
            raise StackingError(f"--pixel {args.pixel} is not a size in arc seconds above 0")
        pixel = args.pixel if args.reproject else None
        profile = Profile()
        image = read_hdu(args.exposure, profile)
        positions = [targets[one] for one in wanted]
        stack, n_skipped = stack_exposure(image, positions, args.size, pixel, profile)
        if stack.n_objects == 0:
            raise StackingError(f"none of the {len(wanted)} objects lies inside {image.name}")
        more: list[tuple[str, str | int | float | bool, str]] = []
        if len(wanted) == 1:
            more.append(("OBJECT", wanted[0], "the only one"))
        if pixel is not None:
            more.append(("PIXEL", pixel, "arc seconds a pixel, north up"))
        write_stacking(args.out, stack, image, n_skipped, more)
        profile.lap("writeStacking")
        if args.profile:
            profile.write(args.profile)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
