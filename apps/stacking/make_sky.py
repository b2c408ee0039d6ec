#!/usr/bin/env python3
"""Make a sky survey to stack: exposures around M13 with sources too faint for any one of them.

    make_sky.py --out sky [--seed 13] [--exposures 240] [--targets 180] [--size 768]

The middle of the sky is real: the 5' x 5' image of the globular cluster M13 that astropy ships, at
its own coordinates and scale (1" a pixel). Around it, where that image ends, stars are drawn at
random, thinning out with distance. Every exposure looks at this sky with its own pointing,
rotation, photometric scale, background (level and slope) and noise, and is written as 16-bit FITS,
every second one gzipped, with a TAN projection given by a CD matrix.

Into every exposure the same population of faint sources is added, each some 0.25 times the noise
(matched filter, one exposure). They stand on blank sky, as one would choose for such a search: no
pixel of the noiseless sky in the square around them is above a tenth of the noise or so.

Written below --out:

    exposures/e0000.fits, e0001.fits.gz, ...
    targets.csv    id, ra, dec of the sources: what the astronomer knows
    sky.json       what went in (seed, source brightness, noise); written last, so it marks the end

The same options give the same bytes, whatever the number of processes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

M13_FILE = "io/fits/hdu/compressed/tests/data/m13.fits"  # inside the astropy package
M13_LEVEL = 112.0  # the image's own background; what is above it is light of the cluster
ARCSEC = 1.0 / 3600.0
SKY_PIXELS = 1600
TAPER_PIXELS = 24
N_FIELD_STARS = 500
PSF_SIGMA_PIXELS = 1.7  # FWHM 4.0", close to that of the M13 image
NOISE = 60.0  # of one pixel, calibrated units, median over the exposures
SNR_ONE = 0.25  # of one source of mean brightness in one exposure of median noise
BLANK_LEVEL = 8.0  # no brighter pixel around a target
BLANK_REACH_PIXELS = 22
TARGET_RADIUS_PIXELS = 700.0
TARGET_SEPARATION_PIXELS = 22
GZIP_LEVEL = 2


@dataclass(frozen=True)
class Sky:
    """What the sky looks like without noise, and where the targets are on it."""

    seed: int
    size: int
    pixels: NDArray[np.float32]
    sky_from_plane: Floats
    basis: Floats
    targets: Floats  # (n, 2) RA, Dec in degrees
    peaks: Floats  # (n,) height of each source, calibrated units


# --------------------------------------------------------------------------------------- projection
#
# A gnomonic projection is linear in homogeneous coordinates: direction = xi * east + eta * north +
# centre. Going from one exposure's pixels to those of the sky is therefore one 3 x 3 matrix.


def tangent_basis(ra: float, dec: float) -> Floats:
    """Columns east, north, centre: unit vectors at a point of the sky given in degrees."""
    a, d = np.radians(ra), np.radians(dec)
    east = (-np.sin(a), np.cos(a), 0.0)
    north = (-np.sin(d) * np.cos(a), -np.sin(d) * np.sin(a), np.cos(d))
    centre = (np.cos(d) * np.cos(a), np.cos(d) * np.sin(a), np.sin(d))
    return np.array([east, north, centre]).T


def plane_from_pixel(cd: Floats, crpix: Floats) -> Floats:
    """Homogeneous matrix from pixels, counted from 0, to the tangent plane in radians."""
    matrix = np.eye(3)
    matrix[:2, :2] = np.radians(cd)
    matrix[:2, 2] = -np.radians(cd) @ (crpix - 1.0)
    return matrix


def radec_from_direction(direction: Floats) -> tuple[float, float]:
    x, y, z = direction
    return float(np.degrees(np.arctan2(y, x)) % 360.0), float(np.degrees(np.arctan2(z, np.hypot(x, y))))


# ---------------------------------------------------------------------------------------------- sky


def m13_image() -> tuple[Floats, dict[str, float]]:
    """The shipped image above its background, and the header values of its projection."""
    spec = find_spec("astropy")
    if spec is None or spec.origin is None:
        sys.exit("error: astropy is not installed; it ships the M13 image that this program starts from")
    from astropy.io import fits  # type: ignore[import-untyped]

    path = Path(spec.origin).parent / M13_FILE
    if not path.exists():
        sys.exit(f"error: this astropy does not have {M13_FILE}")
    pixels, header = fits.getdata(path, header=True)
    keys = ("CRVAL1", "CRVAL2", "CDELT1", "CDELT2", "CRPIX1", "CRPIX2")
    return pixels.astype(np.float64) - M13_LEVEL, {key: float(header[key]) for key in keys}


def add_gaussians(image: NDArray[np.float32], xs: Floats, ys: Floats, peaks: Floats) -> None:
    """Add round stars at positions in pixels; what falls off the edge is lost."""
    reach = int(np.ceil(5 * PSF_SIGMA_PIXELS))
    height, width = image.shape
    for x, y, peak in zip(xs, ys, peaks, strict=True):
        left, right = max(int(x) - reach, 0), min(int(x) + reach + 2, width)
        low, high = max(int(y) - reach, 0), min(int(y) + reach + 2, height)
        if left >= right or low >= high:
            continue
        along_x = np.exp(-0.5 * ((np.arange(left, right) - x) / PSF_SIGMA_PIXELS) ** 2)
        along_y = np.exp(-0.5 * ((np.arange(low, high) - y) / PSF_SIGMA_PIXELS) ** 2)
        image[low:high, left:right] += (peak * np.outer(along_y, along_x)).astype(np.float32)


def draw_sky(real: Floats, rng: np.random.Generator) -> NDArray[np.float32]:
    """Real cluster in the middle, faded out at its rim, random stars around it."""
    sky = np.zeros((SKY_PIXELS, SKY_PIXELS), np.float32)
    side = real.shape[0]
    start = (SKY_PIXELS - side) // 2
    ramp = np.minimum(np.arange(side), np.arange(side)[::-1]) + 0.5
    fade = 0.5 - 0.5 * np.cos(np.pi * np.minimum(ramp / TAPER_PIXELS, 1.0))
    sky[start : start + side, start : start + side] = real * np.outer(fade, fade)

    # Density falls as 1 / r beyond the real image; brightness follows a power law of slope -1.8.
    radius = rng.uniform(side * 0.55, SKY_PIXELS * 0.7, N_FIELD_STARS)
    angle = rng.uniform(0.0, 2 * np.pi, N_FIELD_STARS)
    xs = SKY_PIXELS / 2 + radius * np.cos(angle)
    ys = SKY_PIXELS / 2 + radius * np.sin(angle)
    faint, bright, slope = 60.0, 3500.0, -0.8
    share = rng.uniform(0.0, 1.0, N_FIELD_STARS)
    peaks = (faint**slope + share * (bright**slope - faint**slope)) ** (1 / slope)
    outside = np.maximum(abs(xs - SKY_PIXELS / 2), abs(ys - SKY_PIXELS / 2)) > side / 2
    add_gaussians(sky, xs[outside], ys[outside], peaks[outside])
    return sky


def blank_pixels(sky: NDArray[np.float32]) -> NDArray[np.bool_]:
    """True where the square of BLANK_REACH_PIXELS around a pixel is inside the sky and blank."""
    reach = BLANK_REACH_PIXELS
    count = np.zeros((SKY_PIXELS + 1, SKY_PIXELS + 1), np.int32)
    count[1:, 1:] = (np.abs(sky) > BLANK_LEVEL).cumsum(0).cumsum(1)
    n = 2 * reach + 1
    in_square = count[n:, n:] - count[:-n, n:] - count[n:, :-n] + count[:-n, :-n]
    blank = np.zeros(sky.shape, np.bool_)
    blank[reach:-reach, reach:-reach] = in_square == 0
    return blank


def choose_targets(sky: NDArray[np.float32], n_targets: int, rng: np.random.Generator) -> Floats:
    """Positions (n, 2) in sky pixels on blank sky, apart from each other and inside the survey."""
    offset = np.arange(SKY_PIXELS) - SKY_PIXELS / 2
    free = blank_pixels(sky) & (np.hypot(offset[:, None], offset) < TARGET_RADIUS_PIXELS)
    candidates = np.argwhere(free)
    apart = TARGET_SEPARATION_PIXELS
    chosen: list[tuple[int, int]] = []
    for row, column in candidates[rng.permutation(len(candidates))].tolist():
        if len(chosen) == n_targets:
            break
        if free[row, column]:
            chosen.append((column, row))
            free[row - apart : row + apart + 1, column - apart : column + apart + 1] = False
    if len(chosen) < n_targets:
        sys.exit(f"error: there is blank sky for {len(chosen)} targets, not for {n_targets}")
    # Nothing in the sky knows about pixels: move each off the middle of its own.
    return np.array(chosen) + rng.uniform(-0.5, 0.5, (n_targets, 2))


def mean_peak() -> float:
    """Height of a source whose matched-filter signal-to-noise in one exposure is SNR_ONE."""
    return SNR_ONE * NOISE / (math.sqrt(math.pi) * PSF_SIGMA_PIXELS)


def build_sky(
    seed: int, size: int, n_targets: int, image: tuple[Floats, dict[str, float]] | None = None
) -> Sky:
    """The sky around M13, or around another square image that is given as `m13_image` gives that one."""
    rng = np.random.default_rng([seed, 0])
    real, header = image or m13_image()
    pixels = draw_sky(real, rng)
    cd = np.diag([header["CDELT1"], header["CDELT2"]])
    offset = (SKY_PIXELS - real.shape[0]) // 2
    crpix = np.array([header["CRPIX1"], header["CRPIX2"]]) + offset
    basis = tangent_basis(header["CRVAL1"], header["CRVAL2"])
    plane_from_sky = plane_from_pixel(cd, crpix)
    xy = choose_targets(pixels, n_targets, rng)
    directions = basis @ plane_from_sky @ np.vstack([xy.T, np.ones(n_targets)])
    targets = np.array([radec_from_direction(direction) for direction in directions.T])
    peaks = mean_peak() * rng.uniform(0.7, 1.3, n_targets)
    # The written positions are rounded; the sources are where the list says that they are.
    targets = np.round(targets, 7)
    sky_from_plane = np.asarray(np.linalg.inv(plane_from_sky), np.float64)
    return Sky(seed, size, pixels, sky_from_plane, basis, targets, peaks)


# ---------------------------------------------------------------------------------------- exposures


@dataclass(frozen=True)
class Pointing:
    """Where one exposure looks and how it distorts what it sees; noise in calibrated units."""

    index: int
    crval: tuple[float, float]
    crpix: tuple[float, float]
    cd: tuple[tuple[float, float], tuple[float, float]]
    sky: float
    cal: float
    slope: tuple[float, float]
    noise: float


def draw_pointing(sky: Sky, index: int, rng: np.random.Generator) -> Pointing:
    room = SKY_PIXELS / 2 - sky.size / np.sqrt(2.0) * 1.01 - 2.0
    xy = SKY_PIXELS / 2 + rng.uniform(-room, room, 2)
    direction = sky.basis @ np.linalg.inv(sky.sky_from_plane) @ np.array([*xy, 1.0])
    angle = rng.uniform(0.0, 2 * np.pi)
    scale = ARCSEC * rng.uniform(0.99, 1.01)
    cos, sin = float(scale * np.cos(angle)), float(scale * np.sin(angle))
    centre = (sky.size + 1) / 2
    return Pointing(
        index=index,
        crval=radec_from_direction(direction),
        crpix=(centre + float(rng.uniform(-3, 3)), centre + float(rng.uniform(-3, 3))),
        cd=((-cos, sin), (sin, cos)),
        sky=round(float(rng.uniform(200.0, 1500.0)), 3),
        cal=round(float(rng.uniform(0.6, 1.4)), 5),
        slope=(float(rng.uniform(-40, 40)), float(rng.uniform(-40, 40))),
        noise=NOISE * float(rng.uniform(0.85, 1.15)),
    )


def sample(image: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bilinear values of `image` at (x, y); positions are inside by construction."""
    column, row = x.astype(np.int32), y.astype(np.int32)
    right, up = x - column, y - row
    flat = image.ravel()
    at = row * np.int32(image.shape[1]) + column
    low = flat[at] * (1 - right) + flat[at + 1] * right
    at += np.int32(image.shape[1])
    high = flat[at] * (1 - right) + flat[at + 1] * right
    values: NDArray[np.float32] = low * (1 - up) + high * up
    return values


def expose(sky: Sky, index: int) -> tuple[Pointing, NDArray[np.int16]]:
    """Exposure number `index`: always the same for the same sky."""
    rng = np.random.default_rng([sky.seed, 1, index])
    look = draw_pointing(sky, index, rng)
    basis = tangent_basis(*look.crval)
    plane_from_exposure = plane_from_pixel(np.array(look.cd), np.array(look.crpix))
    to_sky = sky.sky_from_plane @ sky.basis.T @ basis @ plane_from_exposure
    to_sky /= to_sky[2, 2]

    grid = np.arange(sky.size, dtype=np.float64)
    depth = to_sky[2, 0] * grid + to_sky[2, 1] * grid[:, None] + 1.0
    x = (to_sky[0, 0] * grid + to_sky[0, 1] * grid[:, None] + to_sky[0, 2]) / depth
    y = (to_sky[1, 0] * grid + to_sky[1, 1] * grid[:, None] + to_sky[1, 2]) / depth
    signal = sample(sky.pixels, x.astype(np.float32), y.astype(np.float32))

    a, d = np.radians(sky.targets).T
    directions = np.array([np.cos(d) * np.cos(a), np.cos(d) * np.sin(a), np.sin(d)])
    seen = np.linalg.inv(plane_from_exposure) @ basis.T @ directions
    xs, ys = seen[0] / seen[2], seen[1] / seen[2]
    inside = (xs > -10) & (xs < sky.size + 9) & (ys > -10) & (ys < sky.size + 9)
    add_gaussians(signal, xs[inside], ys[inside], sky.peaks[inside])

    shot = np.float32(look.noise**2) + np.float32(2.0) * np.maximum(signal, 0)
    signal += np.sqrt(shot) * rng.standard_normal(signal.shape, dtype=np.float32)
    tilt = grid / sky.size - 0.5
    background = look.sky + look.slope[0] * tilt + look.slope[1] * tilt[:, None]
    counts = np.rint(background + look.cal * signal)
    return look, np.clip(counts, -32768, 32767).astype(np.int16)


def exposure_name(index: int) -> str:
    """Every second exposure is compressed."""
    return f"e{index:04d}.fits" + (".gz" if index % 2 else "")


def write_exposure(
    path: Path,
    look: Pointing,
    counts: NDArray[np.int16],
    seed: int,
    cards: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Write one exposure, with `cards` in its header besides; returns its size in bytes."""
    from astropy.io import fits

    header = fits.Header()
    header["OBJECT"] = "M13 field"
    header["CTYPE1"], header["CTYPE2"] = "RA---TAN", "DEC--TAN"
    header["CRVAL1"], header["CRVAL2"] = look.crval
    header["CRPIX1"], header["CRPIX2"] = look.crpix
    header["CUNIT1"] = header["CUNIT2"] = "deg"
    (header["CD1_1"], header["CD1_2"]), (header["CD2_1"], header["CD2_2"]) = look.cd
    header["EQUINOX"] = 2000.0
    header["SKY"] = (look.sky, "background at the centre, counts")
    header["CAL"] = (look.cal, "counts per unit of flux")
    header["SEED"] = (seed, "of the generator")
    header["EXPNO"] = (look.index, "number of the exposure")
    header.update(cards)
    buffer = io.BytesIO()
    fits.PrimaryHDU(counts, header).writeto(buffer)
    data = buffer.getvalue()
    if path.suffix == ".gz":
        data = gzip.compress(data, GZIP_LEVEL, mtime=0)
    path.write_bytes(data)
    return len(data)


# --------------------------------------------------------------------------------------------- main

_sky: Sky | None = None  # of a worker process; made once there instead of travelling with each call


def _start_worker(sky: Sky) -> None:
    global _sky
    _sky = sky


def _work(job: tuple[int, str]) -> int:
    index, folder = job
    assert _sky is not None
    look, counts = expose(_sky, index)
    return write_exposure(Path(folder) / exposure_name(index), look, counts, _sky.seed)


def write_all(sky: Sky, folder: Path, n_exposures: int, n_processes: int) -> Iterator[int]:
    """Write the exposures in order; yields the size of each in bytes."""
    jobs = [(index, str(folder)) for index in range(n_exposures)]
    if n_processes == 1:
        _start_worker(sky)
        yield from map(_work, jobs)
        return
    with ProcessPoolExecutor(n_processes, initializer=_start_worker, initargs=(sky,)) as pool:
        yield from pool.map(_work, jobs, chunksize=4)


def make(out: Path, seed: int, n_exposures: int, n_targets: int, size: int, n_processes: int) -> None:
    start = time.monotonic()
    folder = out / "exposures"
    folder.mkdir(parents=True, exist_ok=True)
    (out / "sky.json").unlink(missing_ok=True)
    for old in folder.glob("e*.fits*"):
        old.unlink()
    sky = build_sky(seed, size, n_targets)
    with open(out / "targets.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "ra", "dec"))
        for number, (ra, dec) in enumerate(sky.targets):
            writer.writerow((f"t{number:03d}", f"{ra:.7f}", f"{dec:.7f}"))
    n_bytes, shown = 0, start
    for n_done, length in enumerate(write_all(sky, folder, n_exposures, n_processes), 1):
        n_bytes += length
        is_last = n_done == n_exposures
        # On a terminal one line that changes, elsewhere the last one alone.
        if is_last or (sys.stdout.isatty() and time.monotonic() - shown > 0.5):
            shown = time.monotonic()
            line = f"  {n_done}/{n_exposures} exposures, {n_bytes / 1e6:.0f} MB, {shown - start:.0f} s"
            begin = "\r" if sys.stdout.isatty() else ""
            print(begin + line, end="\n" if is_last else "", flush=True)
    truth = {
        "seed": seed,
        "n_exposures": n_exposures,
        "n_targets": n_targets,
        "size_pixels": size,
        "psf_sigma_pixels": PSF_SIGMA_PIXELS,
        "mean_peak": float(np.mean(sky.peaks)),
        "noise_median": NOISE,
        "exposure_bytes": n_bytes,
        # A changed generator makes another sky from the same options.
        "generator": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16],
        "sky_image": M13_FILE,
    }
    (out / "sky.json").write_text(json.dumps(truth, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make exposures around M13 with faint sources in them.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--exposures", type=int, default=240)
    parser.add_argument("--targets", type=int, default=180)
    parser.add_argument("--size", type=int, default=768, help="side of an exposure in pixels (128 to 1000)")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8))
    args = parser.parse_args()
    if not 128 <= args.size <= 1000:
        parser.error("--size has to be between 128 and 1000")
    if min(args.exposures, args.targets, args.processes) < 1 or args.seed < 0:
        parser.error("--exposures, --targets and --processes start at 1, --seed at 0")
    make(args.out, args.seed, args.exposures, args.targets, args.size, args.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
