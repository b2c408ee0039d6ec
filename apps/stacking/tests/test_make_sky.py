"""The generator: same bytes for the same seed, real sky in the middle, honest coordinates."""

from __future__ import annotations

import hashlib
from pathlib import Path

import make_sky
import numpy as np
import pytest
from astropy.io import fits  # type: ignore[import-untyped]
from astropy.wcs import WCS  # type: ignore[import-untyped]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_same_seed_same_bytes_whatever_the_number_of_processes(tmp_path: Path) -> None:
    make_sky.make(tmp_path / "one", seed=3, n_exposures=4, n_targets=20, size=256, n_processes=1)
    make_sky.make(tmp_path / "two", seed=3, n_exposures=4, n_targets=20, size=256, n_processes=2)
    make_sky.make(tmp_path / "other", seed=4, n_exposures=4, n_targets=20, size=256, n_processes=1)
    one, two, other = (digests(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    assert one.keys() == other.keys() and all(one[name] != other[name] for name in one)


def test_half_of_the_exposures_are_gzip_and_all_have_a_cd_matrix(survey: Path) -> None:
    paths = sorted((survey / "exposures").iterdir())
    assert [path.name for path in paths[:2]] == ["e0000.fits", "e0001.fits.gz"]
    assert sum(path.suffix == ".gz" for path in paths) * 2 == len(paths)
    for path in paths:
        header = fits.getheader(path)
        assert (header["CTYPE1"], header["CTYPE2"]) == ("RA---TAN", "DEC--TAN")
        assert "CD1_1" in header and "CDELT1" not in header and "PC1_1" not in header
        assert path.read_bytes()[:2] == (b"\x1f\x8b" if path.suffix == ".gz" else b"SI")


def test_exposures_differ_in_pointing_scale_background_and_noise(survey: Path) -> None:
    headers = [fits.getheader(path) for path in sorted((survey / "exposures").iterdir())]
    for keyword in ("CRVAL1", "CRVAL2", "CD1_1", "SKY", "CAL"):
        assert len({header[keyword] for header in headers}) == len(headers)


def test_the_middle_of_the_sky_is_the_real_m13_image() -> None:
    real, _ = make_sky.m13_image()
    sky = make_sky.build_sky(seed=5, size=384, n_targets=10)
    start = (make_sky.SKY_PIXELS - real.shape[0]) // 2
    rim = make_sky.TAPER_PIXELS
    inner = sky.pixels[start : start + real.shape[0], start : start + real.shape[0]][rim:-rim, rim:-rim]
    assert np.array_equal(inner, real[rim:-rim, rim:-rim].astype(np.float32))


def test_stars_are_where_their_coordinates_say() -> None:
    """The brightest pixel of the sky appears where astropy's WCS of the exposure puts it."""
    sky = make_sky.build_sky(seed=5, size=640, n_targets=10)
    row, column = np.unravel_index(np.argmax(sky.pixels), sky.pixels.shape)
    direction = sky.basis @ np.linalg.inv(sky.sky_from_plane) @ np.array([column, row, 1.0])
    radec = make_sky.radec_from_direction(direction)
    n_seen = 0
    for index in range(8):
        look, counts = make_sky.expose(sky, index)
        wcs = WCS(naxis=2)
        wcs.wcs.ctype = ["RA---TAN", "DEC--TAN"]
        wcs.wcs.crval, wcs.wcs.crpix, wcs.wcs.cd = look.crval, look.crpix, look.cd
        x, y = (float(value) for value in wcs.all_world2pix([radec], 0)[0])
        if not (10 < x < 630 and 10 < y < 630):
            continue
        n_seen += 1
        left, low = round(x) - 8, round(y) - 8
        peak = np.unravel_index(np.argmax(counts[low : low + 17, left : left + 17]), (17, 17))
        assert abs(peak[1] + left - x) < 1.5 and abs(peak[0] + low - y) < 1.5
    assert n_seen >= 4


def test_targets_stand_on_blank_sky() -> None:
    sky = make_sky.build_sky(seed=5, size=384, n_targets=40)
    a, d = np.radians(sky.targets).T
    directions = np.array([np.cos(d) * np.cos(a), np.cos(d) * np.sin(a), np.sin(d)])
    seen = sky.sky_from_plane @ sky.basis.T @ directions
    reach = make_sky.BLANK_REACH_PIXELS
    for x, y in np.rint(seen[:2] / seen[2]).astype(int).T:
        around = sky.pixels[y - reach : y + reach + 1, x - reach : x + reach + 1]
        assert np.abs(around).max() <= make_sky.BLANK_LEVEL


def test_too_many_targets_are_refused() -> None:
    with pytest.raises(SystemExit, match="blank sky for"):
        make_sky.build_sky(seed=5, size=384, n_targets=30000)
