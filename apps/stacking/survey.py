#!/usr/bin/env python3
"""Make a survey in the shape of the one that Raicu09, section 6, stacked: images of SDSS, in five bands.

    survey.py --out survey [--seed 6] [--files 186] [--objects 31] [--epochs 1] [--variable 0] [--format both]

An image is a field in one band at one epoch: 2048 x 1489 pixels of 16 bits (6 MB, some 2 MB with gzip), 0.396" a pixel, in the
TAN projection given by a CD matrix, with `SKY`, `CAL`, `FILTER` (u, g, r, i, z), `FIELD`, `EPOCH` and `MJD` in its header. Bands
and epochs of a field look at the same sky, each with a pointing, a turn, a background, a sensitivity and a noise of its own.

Each field holds --objects quasars, a quarter of the noise of one image each. With --variable N, the first N of each field are a
hundred times as bright, and their light goes up and down with the epochs, in all bands alike: what lightcurve.py has to find.

Written below --out:

    exposures/f00000-u.fits[.gz]   with more than one epoch f00000-u-00.fits[.gz]; --format fit, gz or both
    catalogue.db                SQLite: the table QsoConcordanceAll of SDSS, with rows that query.sql has to leave out
    survey.json                 what went in; written last, so it marks the end

The same options give the same bytes, whatever the number of processes.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import sqlite3
import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from cutout import BLOCK_BYTES, CARD_BYTES, StackingError, TanWcs, format_card, radec2xy
from make_sky import ARCSEC, PSF_SIGMA_PIXELS, SNR_ONE, add_gaussians
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
BANDS = "ugriz"
WIDTH, HEIGHT = 2048, 1489
PIXEL_DEGREES = 0.396 * ARCSEC
RA0, DEC0, FIELDS_PER_STRIPE = 150.0, 2.0, 64
# Of each band: the background in counts, the noise of a pixel in counts, the brightness of a quasar beside that in r.
BAND_SKY = {"u": 60.0, "g": 90.0, "r": 120.0, "i": 130.0, "z": 80.0}
BAND_NOISE = {"u": 2.2, "g": 2.5, "r": 2.8, "i": 3.0, "z": 2.4}
BAND_COLOUR = {"u": 0.8, "g": 1.0, "r": 1.0, "i": 1.05, "z": 0.9}
N_STARS = 250
MARGIN_PIXELS = 90  # a cutout of 101 pixels, turned, fits inside whatever the pointing of the band
APART_PIXELS = 24
VARIABLE_TIMES = 100.0
VARIABLE_AMPLITUDE = 0.5
DAYS_BETWEEN_EPOCHS, MJD0 = 5.0, 53_000.0
# Of 168,529 rows that the query of figure 42 gave, 14,184 were duplicates (section 6.3).
DUPLICATES = 14_184 / 154_345


@dataclass(frozen=True)
class Options:
    """What decides every byte of a survey."""

    seed: int = 6
    files: int = 186
    objects: int = 31
    epochs: int = 1
    variable: int = 0
    format: str = "both"
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def n_fields(self) -> int:
        return -(-self.files // (len(BANDS) * self.epochs))


@dataclass(frozen=True)
class Image:
    """Which part of the survey one file is."""

    number: int
    field: int
    band: str
    epoch: int

    def stem(self, n_epochs: int) -> str:
        return f"f{self.field:05d}-{self.band}" + (f"-{self.epoch:02d}" if n_epochs > 1 else "")


def images_of(options: Options) -> list[Image]:
    """All images, the bands and epochs of a field beside each other."""
    per_field = len(BANDS) * options.epochs
    return [
        Image(number, number // per_field, BANDS[number % len(BANDS)], number % per_field // len(BANDS))
        for number in range(options.files)
    ]


def centre_of(field: int, options: Options) -> tuple[float, float]:
    """RA and Dec of the middle of a field, in degrees; fields do not overlap."""
    stripe, place = divmod(field, FIELDS_PER_STRIPE)
    dec = DEC0 + stripe * options.height * PIXEL_DEGREES * 1.1
    return RA0 + place * options.width * PIXEL_DEGREES * 1.1 / math.cos(math.radians(dec)), dec


def wcs_of(image: Image, options: Options) -> TanWcs:
    """The projection of an image: some pixels and up to a degree off that of its field."""
    rng = np.random.default_rng([options.seed, 1, image.number])
    ra, dec = centre_of(image.field, options)
    turn, scale = math.radians(rng.uniform(-1, 1)), PIXEL_DEGREES * rng.uniform(0.999, 1.001)
    cos, sin = scale * math.cos(turn), scale * math.sin(turn)
    crpix1 = round((options.width + 1) / 2 + float(rng.uniform(-8, 8)), 4)
    crpix2 = round((options.height + 1) / 2 + float(rng.uniform(-8, 8)), 4)
    return TanWcs(ra, dec, crpix1, crpix2, -cos, sin, sin, cos)


def objects_of(field: int, options: Options) -> list[tuple[float, float]]:
    """RA and Dec of the quasars of a field, in degrees, rounded as the catalogue has them."""
    rng = np.random.default_rng([options.seed, 2, field])
    ra, dec = centre_of(field, options)
    margin = min(MARGIN_PIXELS, options.height // 3)
    chosen: list[tuple[float, float]] = []
    for _ in range(200 * options.objects):
        if len(chosen) == options.objects:
            break
        x = float(rng.uniform(margin, options.width - margin)) - options.width / 2
        y = float(rng.uniform(margin, options.height - margin)) - options.height / 2
        if all(math.hypot(x - a, y - b) >= APART_PIXELS for a, b in chosen):
            chosen.append((x, y))
    if len(chosen) < options.objects:
        raise StackingError(
            f"a field of {options.width} x {options.height} pixels has no room for {options.objects} objects; "
            f"ask for at most {len(chosen)}"
        )
    pixel = PIXEL_DEGREES
    return [
        (round(ra - x * pixel / math.cos(math.radians(dec)), 6), round(dec + y * pixel, 6)) for x, y in chosen
    ]


def light(number: int, epoch: int, options: Options) -> float:
    """The brightness of the object `number` of a field at an epoch, beside that of a quasar that does not vary."""
    if number >= options.variable:
        return 1.0
    phase, period = 0.9 * number, 3.7 + number
    return VARIABLE_TIMES * (1.0 + VARIABLE_AMPLITUDE * math.sin(phase + 2 * math.pi * epoch / period))


def peak_of(band: str, cal: float) -> float:
    """The height of a quasar in units of flux: its matched-filter signal-to-noise in one image is SNR_ONE (make_sky.py)."""
    return SNR_ONE * BAND_NOISE["r"] * BAND_COLOUR[band] / (cal * math.sqrt(math.pi) * PSF_SIGMA_PIXELS)


def expose(image: Image, options: Options) -> tuple[bytes, TanWcs]:
    """The bytes of the FITS file of an image."""
    rng = np.random.default_rng([options.seed, 3, image.number])
    wcs = wcs_of(image, options)
    sky = round(BAND_SKY[image.band] * float(rng.uniform(0.9, 1.1)), 3)
    cal = round(float(rng.uniform(0.8, 1.2)), 5)
    noise = BAND_NOISE[image.band] * float(rng.uniform(0.95, 1.05))
    shape = (options.height, options.width)
    counts: NDArray[np.float32] = rng.standard_normal(shape, dtype=np.float32)
    counts *= np.float32(noise)
    counts += np.float32(sky)
    # The stars of a field are those of its bands and epochs; a power law of brightness.
    stars = np.random.default_rng([options.seed, 4, image.field])
    ra, dec = centre_of(image.field, options)
    places: list[tuple[float, float]] = []
    heights: list[float] = []
    objects = objects_of(image.field, options)
    for u, v, share in stars.uniform(0, 1, (N_STARS, 3)):
        star_ra = ra + (u - 0.5) * options.width * PIXEL_DEGREES / math.cos(math.radians(dec))
        star_dec = dec + (v - 0.5) * options.height * PIXEL_DEGREES
        # Quasars stand on blank sky: one would not choose another place for such a search.
        near = MARGIN_PIXELS / 2 * PIXEL_DEGREES
        if any(abs(star_ra - a) < near and abs(star_dec - d) < near for a, d in objects):
            continue
        xy = radec2xy(wcs, star_ra, star_dec)
        if xy is not None:
            places.append(xy)
            heights.append(cal * 20.0 * (1.0 - 0.998 * share) ** -0.9)
    for number, (object_ra, object_dec) in enumerate(objects):
        xy = radec2xy(wcs, object_ra, object_dec)
        assert xy is not None
        places.append(xy)
        heights.append(cal * peak_of(image.band, 1.0) * light(number, image.epoch, options))
    xs, ys = np.array(places).T
    add_gaussians(counts, xs, ys, np.array(heights))
    np.rint(counts, out=counts)
    pixels = np.clip(counts, 0, 32_767).astype(">i2").tobytes()
    cards: list[tuple[str, str | int | float | bool, str]] = [
        ("SIMPLE", True, ""),
        ("BITPIX", 16, ""),
        ("NAXIS", 2, ""),
        ("NAXIS1", options.width, ""),
        ("NAXIS2", options.height, ""),
        ("CTYPE1", "RA---TAN", ""),
        ("CTYPE2", "DEC--TAN", ""),
        *((key, value, "") for key, value in zip(WCS_KEYS, wcs, strict=True)),
        ("CUNIT1", "deg", ""),
        ("CUNIT2", "deg", ""),
        ("EQUINOX", 2000.0, ""),
        ("SKY", sky, "background, counts"),
        ("CAL", cal, "counts per unit of flux"),
        ("FILTER", image.band, ""),
        ("FIELD", image.field, ""),
        ("EPOCH", image.epoch, ""),
        ("MJD", MJD0 + DAYS_BETWEEN_EPOCHS * image.epoch, ""),
        ("SEED", options.seed, "of the generator"),
    ]
    text = "".join(format_card(*card) for card in cards) + f"{'END':<{CARD_BYTES}}"
    header = text.encode() + b" " * (-len(text) % BLOCK_BYTES)
    return header + pixels + b"\0" * (-len(pixels) % BLOCK_BYTES), wcs


WCS_KEYS = ("CRVAL1", "CRVAL2", "CRPIX1", "CRPIX2", "CD1_1", "CD1_2", "CD2_1", "CD2_2")


def gzipped(data: bytes) -> bytes:
    """A gzip file without a time. Noise has no strings that repeat, so only the coding of bytes is worth its time."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31, 9, zlib.Z_HUFFMAN_ONLY)
    return packer.compress(data) + packer.flush()


def _write(job: tuple[Image, Options, str]) -> tuple[int, int]:
    """Write one image; returns its bytes plain and packed."""
    image, options, folder = job
    data, _ = expose(image, options)
    packed = gzipped(data) if options.format in ("gz", "both") else b""
    path = Path(folder) / f"{image.stem(options.epochs)}.fits"
    if options.format in ("fit", "both"):
        path.write_bytes(data)
    if packed:
        path.with_name(path.name + ".gz").write_bytes(packed)
    return len(data), len(packed)


def write_catalogue(path: Path, options: Options) -> int:
    """The table that query.sql reads; returns how many objects the survey has."""
    rng = np.random.default_rng([options.seed, 5])
    good = [radec for field in range(options.n_fields) for radec in objects_of(field, options)]
    rows = [(ra, dec, 1, 1) for ra, dec in good]
    again = rng.integers(0, len(good), round(DUPLICATES * len(good)))
    rows += [(*good[place], 1, 1) for place in again.tolist()]
    # What the conditions are for: other spectra of the same objects, and rows without a position.
    rows += [(*good[place], 0, 1) for place in range(0, len(good), 7)]
    rows += [(*good[place], 1, 0) for place in range(0, len(good), 11)]
    rows += [(0.0, 0.0, 1, 1)] * (1 + len(good) // 50)
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    with base:
        base.execute(
            "create table QsoConcordanceAll (SpecRa real, SpecDec real, bestMode integer, SpecSciencePrimary integer)"
        )
        order = rng.permutation(len(rows)).tolist()
        base.executemany(
            "insert into QsoConcordanceAll values (?, ?, ?, ?)", [rows[place] for place in order]
        )
    base.close()
    return len(good)


def ask(survey: Path) -> tuple[list[tuple[float, float]], int]:
    """What query.sql (figure 42) gives, without duplicates, in the order of RA and Dec; and how many rows it gave."""
    base = sqlite3.connect(f"file:{survey / 'catalogue.db'}?mode=ro", uri=True)
    try:
        rows = base.execute((HERE / "query.sql").read_text(encoding="utf-8")).fetchall()
    except sqlite3.Error as error:
        raise StackingError(f"{survey / 'catalogue.db'} cannot be asked: {error}") from None
    finally:
        base.close()
    return sorted({(float(ra), float(dec)) for ra, dec in rows}), len(rows)


def write_targets(survey: Path) -> int:
    """targets.csv (id, ra, dec) of what the query gives; returns the rows of the query."""
    found, n_rows = ask(survey)
    with open(survey / "targets.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "ra", "dec"))
        for number, (ra, dec) in enumerate(found):
            writer.writerow((f"q{number:06d}", f"{ra:.6f}", f"{dec:.6f}"))
    return n_rows


def generator() -> str:
    """A digest of what makes a survey: a changed generator makes another one from the same options."""
    sources = (Path(__file__), HERE / "make_sky.py", HERE / "query.sql")
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def is_made(survey: Path, options: Options) -> bool:
    """Whether a survey with these options is there already."""
    try:
        made = json.loads((survey / "survey.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(made.get("options") == asdict(options) and made.get("generator") == generator())


def make(survey: Path, options: Options, n_processes: int) -> dict[str, object]:
    """Make the survey, unless it is there; returns what survey.json holds."""
    truth = survey / "survey.json"
    if is_made(survey, options):
        held: dict[str, object] = json.loads(truth.read_text(encoding="utf-8"))
        return held
    folder = survey / "exposures"
    folder.mkdir(parents=True, exist_ok=True)
    truth.unlink(missing_ok=True)
    for old in folder.glob("f*.fits*"):
        old.unlink()
    jobs = [(image, options, str(folder)) for image in images_of(options)]
    if n_processes == 1:
        sizes = [_write(job) for job in jobs]
    else:
        with ProcessPoolExecutor(n_processes) as pool:
            sizes = list(pool.map(_write, jobs, chunksize=4))
    n_objects = write_catalogue(survey / "catalogue.db", options)
    n_rows = write_targets(survey)
    held = {
        "options": asdict(options),
        "generator": generator(),
        "n_objects": n_objects,
        "n_rows_of_query": n_rows,
        "fit_bytes": sum(plain for plain, _ in sizes) // len(sizes),
        "gz_bytes": sum(packed for _, packed in sizes) // len(sizes),
        "psf_sigma_pixels": PSF_SIGMA_PIXELS,
        "peaks": {band: peak_of(band, 1.0) for band in BANDS},
        # The mean over the bands: what a stack of as many images of each shows.
        "mean_peak": float(np.mean([peak_of(band, 1.0) for band in BANDS])),
        "n_exposures": len(jobs),
        "seed": options.seed,
    }
    truth.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
    return held


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make images in the shape of SDSS with faint quasars in them."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument(
        "--files", type=int, default=186, help="images, five bands of each field (default: 186)"
    )
    parser.add_argument("--objects", type=int, default=31, help="quasars in each field (default: 31)")
    parser.add_argument(
        "--epochs", type=int, default=1, help="how often each field is looked at (default: 1)"
    )
    parser.add_argument("--variable", type=int, default=0, help="bright variable quasars in each field")
    parser.add_argument("--format", choices=("both", "fit", "gz"), default="both")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--height", type=int, default=HEIGHT)
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8))
    args = vars(parser.parse_args())
    out, n_processes = args.pop("out"), args.pop("processes")
    if min(args["files"], args["objects"], args["epochs"], n_processes) < 1 or args["seed"] < 0:
        parser.error("--files, --objects, --epochs and --processes start at 1, --seed at 0")
    if min(args["width"], args["height"]) < 200:
        parser.error("--width and --height start at 200 pixels")
    try:
        held = make(out, Options(**args), n_processes)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"  {args['files']} images of {int(str(held['fit_bytes'])) / 1e6:.1f} MB "
        f"({int(str(held['gz_bytes'])) / 1e6:.1f} MB packed), {held['n_objects']} objects in each band; "
        f"the query gives {held['n_rows_of_query']} rows"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
