"""The cutout program: coordinates, calibration, interpolation, FITS in and out, bad input."""

from __future__ import annotations

import bz2
import gzip
import random
import subprocess
import sys
from pathlib import Path

import cutout
import numpy as np
import pytest
from astropy.io import fits  # type: ignore[import-untyped]
from astropy.wcs import WCS  # type: ignore[import-untyped]

SCRIPT = Path(cutout.__file__)


def make_header(
    size: int, angle: float = 0.0, scale: float = 1 / 3600, radec: tuple[float, float] = (250.4, 36.5)
) -> fits.Header:
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    header = fits.Header()
    header["CTYPE1"], header["CTYPE2"] = "RA---TAN", "DEC--TAN"
    header["CRVAL1"], header["CRVAL2"] = radec
    header["CRPIX1"] = header["CRPIX2"] = (size + 1) / 2
    header["CD1_1"], header["CD1_2"], header["CD2_1"], header["CD2_2"] = -cos, sin, sin, cos
    header["SKY"], header["CAL"] = 1000.0, 2.0
    return header


def write_exposure(path: Path, pixels: np.ndarray, header: fits.Header) -> Path:
    fits.PrimaryHDU(pixels, header).writeto(path)
    return path


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("dec", [-89.0, -36.5, 0.0, 36.5, 89.5])
def test_radec2xy_agrees_with_astropy(dec: float) -> None:
    rng = random.Random(7)
    for _ in range(40):
        radec = (rng.uniform(0, 360), dec)
        header = make_header(800, rng.uniform(0, 6.28), rng.uniform(0.1, 3) / 3600, radec)
        wcs = WCS(header)
        mine = cutout.tan_wcs(dict(header), "test")
        for _ in range(5):
            xy = np.array([rng.uniform(-100, 900), rng.uniform(-100, 900)])
            ra, dec_there = (float(value) for value in wcs.all_pix2world([xy], 0)[0])
            found = cutout.radec2xy(mine, ra, dec_there)
            assert found is not None and np.abs(np.array(found) - xy).max() < 1e-6


def test_radec2xy_knows_the_far_side_of_the_sky() -> None:
    wcs = cutout.tan_wcs(dict(make_header(100)), "test")
    assert cutout.radec2xy(wcs, 250.4 - 180, -36.5) is None


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.9])
def test_weights_of_the_interpolation_sum_to_one(fraction: float) -> None:
    assert sum(cutout.cubic_weights(fraction)) == pytest.approx(1.0, abs=1e-12)
    # Exact for straight lines: a slope moves without changing its shape.
    assert np.dot(cutout.cubic_weights(fraction), [-1, 0, 1, 2]) == pytest.approx(fraction, abs=1e-12)


def gaussian_tile(size: int, fraction_x: float, fraction_y: float) -> list[list[float]]:
    """What getTile would return for a star off the middle pixel by the fractions."""
    grid = np.arange(size + 3) - (size // 2 + 1)
    along_x, along_y = (
        np.exp(-0.5 * ((grid - fraction) / 1.7) ** 2) for fraction in (fraction_x, fraction_y)
    )
    return [[float(a * b) for b in along_x] for a in along_y]


@pytest.mark.parametrize("fractions", [(0.0, 0.0), (0.5, 0.5), (0.3, 0.8), (0.99, 0.01)])
def test_shifting_conserves_flux_and_centres_the_object(fractions: tuple[float, float]) -> None:
    shifted = np.array(cutout.interpolate(gaussian_tile(41, *fractions), *fractions))
    assert shifted.shape == (41, 41)
    assert shifted.sum() == pytest.approx(2 * np.pi * 1.7**2, rel=1e-4)
    grid = np.arange(41) - 20
    assert (shifted.sum(0) * grid).sum() / shifted.sum() == pytest.approx(0.0, abs=1e-3)
    assert (shifted.sum(1) * grid).sum() / shifted.sum() == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("name", ["e.fits", "e.fits.gz"])
@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "float32", "float64"])
def test_calibration_removes_the_background_and_the_scale(tmp_path: Path, name: str, dtype: str) -> None:
    """A star of flux 500 on a sloping background comes out with that flux and nothing around it."""
    size, angle = 200, 0.7
    header = make_header(size, angle)
    x, y = 97.3, 120.6
    column, row = np.meshgrid(np.arange(size), np.arange(size))
    star = 500 / (2 * np.pi * 1.7**2) * np.exp(-((column - x) ** 2 + (row - y) ** 2) / (2 * 1.7**2))
    noise = np.random.default_rng(1).normal(0.0, 0.5, (size, size))
    counts = 1000 + 12 + 0.02 * column - 0.03 * row + 2.0 * (star + noise)
    write_exposure(tmp_path / name, np.rint(counts).astype(dtype), header)
    ra, dec = WCS(header).all_pix2world([[x, y]], 0)[0]
    (tmp_path / "targets.csv").write_text(f"id,ra,dec\nstar,{ra:.9f},{dec:.9f}\n")

    done = run(tmp_path / "targets.csv", tmp_path / name, tmp_path / "cut.fits")
    assert done.returncode == 0, done.stderr
    planes, out = fits.getdata(tmp_path / "cut.fits", header=True)
    assert (out["NSTACK"], out["NSKIP"], out["EXPOSURE"]) == (1, 0, name)
    mean = planes[0] / out["WSUM"]
    assert np.allclose(mean, planes[1], rtol=1e-4, atol=1e-4)
    assert mean[5:-5, 5:-5].sum() == pytest.approx(500, abs=4 * 0.55 * 31)
    assert mean[20, 20] == mean.max()
    corner = np.concatenate([mean[:8].ravel(), mean[-8:].ravel()])
    assert abs(corner.mean()) < 0.1
    assert out["WSUM"] ** -0.5 == pytest.approx(np.hypot(0.5, 0.2), rel=0.2)


def test_several_objects_are_summed_with_their_weights(survey: Path, tmp_path: Path) -> None:
    exposure = survey / "exposures" / "e0001.fits.gz"
    targets = cutout.read_targets(str(survey / "targets.csv"))
    image = cutout.read_hdu(str(exposure))
    together, n_skipped = cutout.stack_exposure(image, list(targets.values()), 41)
    assert together.n_objects + n_skipped == len(targets) and together.n_objects >= 2
    alone = [cutout.stack_exposure(image, [position], 41)[0] for position in targets.values()]
    alone = [stack for stack in alone if stack.n_objects]
    assert together.weight == pytest.approx(sum(stack.weight for stack in alone))
    assert np.allclose(together.total, sum(np.array(stack.total) for stack in alone))
    assert together.first == alone[0].first


def test_a_frame_of_sdss_is_read_as_it_comes(tmp_path: Path) -> None:
    """Packed with bzip2, in nanomaggies without a background, with tables behind the image."""
    size = 120
    pixels = np.random.default_rng(3).normal(0.0, 0.02, (size, size)).astype(">f4")
    pixels[60, 60] += 5.0
    header = make_header(size)
    header["CRPIX1"] = header["CRPIX2"] = 61
    del header["SKY"], header["CAL"]
    path, packed = tmp_path / "frame.fits", tmp_path / "frame-r-002505-3-0038.fits.bz2"
    table = fits.BinTableHDU.from_columns([fits.Column("ALLSKY", "E", array=np.ones(9))])
    hdus = fits.HDUList([fits.PrimaryHDU(pixels, header), fits.ImageHDU(np.ones(size, "f4")), table])
    for unit in ("", "nanomaggy"):
        hdus[0].header["BUNIT"] = unit
        hdus.writeto(path, overwrite=True)
        packed.write_bytes(bz2.compress(path.read_bytes()))
        (tmp_path / "targets.csv").write_text("id,ra,dec\nt,250.4,36.5\n")
        done = run("--size", "21", tmp_path / "targets.csv", packed, tmp_path / "cut.fits")
        if not unit:
            assert done.returncode == 1 and "has no usable SKY" in done.stderr, "its unit is not known"
    assert done.returncode == 0, done.stderr
    with fits.open(tmp_path / "cut.fits") as file:
        mean = file[0].data[0] / file[0].header["WSUM"]
    assert abs(mean[10, 10] - 5.0) < 0.3 and abs(np.delete(mean.ravel(), 220)).max() < 1.0
    packed.write_bytes(packed.read_bytes()[:-100])
    cut = run("--size", "21", tmp_path / "targets.csv", packed, tmp_path / "cut.fits")
    assert cut.returncode == 1 and "is cut short" in cut.stderr, cut.stderr


def test_own_header_reader_agrees_with_astropy(survey: Path) -> None:
    path = survey / "exposures" / "e0000.fits"
    theirs, mine = fits.getheader(path), cutout.read_hdu(str(path))
    assert mine.header == {card.keyword: card.value for card in theirs.cards if card.keyword in mine.header}
    assert {"SKY", "CAL", "CD1_1", "OBJECT"} <= mine.header.keys()
    pixels = np.array(mine.pixels).reshape(mine.height, mine.width)
    assert np.array_equal(pixels, fits.getdata(path))


def test_awkward_header_cards() -> None:
    assert cutout.parse_card("OBSERVER= 'O''Hara / x'   / who".ljust(80)) == ("OBSERVER", "O'Hara / x")
    assert cutout.parse_card("GAIN    =             1.25D+02 / e/adu".ljust(80)) == ("GAIN", 125.0)
    assert cutout.parse_card("COMMENT = not a value".ljust(80)) is None
    assert cutout.parse_card("HISTORY made by hand".ljust(80)) is None


def damaged(kind: str, good: bytes) -> bytes:
    if kind == "empty":
        return b""
    if kind == "not FITS":
        return b"<html>not found</html>" * 500
    if kind == "header cut":
        return good[:1000]
    if kind == "pixels cut":
        return good[: len(good) // 2]
    packed = gzip.compress(good, mtime=0)
    if kind == "gzip cut":
        return packed[: len(packed) // 2]
    middle = len(packed) // 2
    return (
        packed[:middle] + bytes(byte ^ 0x5A for byte in packed[middle : middle + 40]) + packed[middle + 40 :]
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "is empty"),
        ("not FITS", "does not start like a FITS file"),
        ("header cut", "ends in the middle of its header"),
        ("pixels cut", "is cut short"),
        ("gzip cut", "is cut short"),
        ("gzip damaged", "is damaged"),
    ],
)
def test_a_damaged_exposure_is_one_clear_sentence(
    survey: Path, tmp_path: Path, kind: str, words: str
) -> None:
    bad = tmp_path / "bad.fits"
    bad.write_bytes(damaged(kind, (survey / "exposures" / "e0000.fits").read_bytes()))
    done = run(survey / "targets.csv", bad, tmp_path / "cut.fits")
    assert done.returncode == 1
    assert done.stderr.startswith("error: bad.fits ") and words in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "cut.fits").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"CTYPE1": "RA---SIN"}, "not in the TAN projection"),
        ({"CD1_1": 0.0, "CD1_2": 0.0}, "singular"),
        ({"SKY": None}, "no usable SKY"),
        ({"CAL": 0.0}, "CAL = 0"),
    ],
)
def test_a_header_that_cannot_be_used_is_one_clear_sentence(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    header = make_header(100)
    for keyword, value in change.items():
        if value is None:
            del header[keyword]
        else:
            header[keyword] = value
    exposure = write_exposure(tmp_path / "e.fits", np.zeros((100, 100), np.int16), header)
    (tmp_path / "targets.csv").write_text("id,ra,dec\na,250.4,36.5\n")
    done = run(tmp_path / "targets.csv", exposure, tmp_path / "cut.fits")
    assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("listed", "options", "words"),
    [
        ("id,ra,dec\na,250.4,36.5\n", ["--objects", "zz"], "does not list 'zz'"),
        ("id,ra,dec\na,10.0,36.5\n", [], "none of the 1 objects lies inside"),
        ("id,ra,dec\na,east,36.5\n", [], "not a number"),
        ("name,x,y\na,1,2\n", [], "columns id, ra and dec"),
        ("id,ra,dec\n", [], "lists no objects"),
        ("id,ra,dec\na,250.4,36.5\n", [], "no noise around"),
        ("id,ra,dec\na,250.4,36.5\n", ["--size", "40"], "odd number"),
    ],
)
def test_bad_targets_and_options(tmp_path: Path, listed: str, options: list[str], words: str) -> None:
    exposure = write_exposure(tmp_path / "e.fits", np.zeros((100, 100), np.int16), make_header(100))
    (tmp_path / "targets.csv").write_text(listed)
    done = run(*options, tmp_path / "targets.csv", exposure, tmp_path / "cut.fits")
    assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1


def test_missing_files_are_named(survey: Path, tmp_path: Path) -> None:
    done = run(survey / "targets.csv", tmp_path / "none.fits", tmp_path / "cut.fits")
    assert done.returncode == 1 and done.stderr == f"error: {tmp_path / 'none.fits'} does not exist\n"
    done = run(tmp_path / "none.csv", survey / "exposures" / "e0000.fits", tmp_path / "cut.fits")
    assert done.returncode == 1 and "none.csv cannot be read" in done.stderr
