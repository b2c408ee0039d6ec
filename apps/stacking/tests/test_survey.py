"""The survey in the paper's shape, light curves, clipping and reprojection: what the application does with bands and epochs."""

from __future__ import annotations

import csv
import gzip
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cutout
import lightcurve
import make_sky
import numpy as np
import plan
import pytest
import stack
import survey as sdss
from astropy.io import fits  # type: ignore[import-untyped]
from astropy.wcs import WCS  # type: ignore[import-untyped]

APP = Path(plan.__file__).parent
SMALL = sdss.Options(seed=3, files=20, objects=6, width=320, height=260)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "exposures").iterdir()}


def call(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(APP / program), *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_same_seed_same_bytes_whatever_the_number_of_processes(tmp_path: Path) -> None:
    for name, seed, n in (("one", 3, 1), ("two", 3, 2), ("other", 4, 1)):
        sdss.make(tmp_path / name, replace(SMALL, seed=seed, files=5), n)
    one, two, other = (files_of(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two and one.keys() == other.keys() and all(one[name] != other[name] for name in one)


def test_an_image_is_as_large_as_the_papers(tmp_path: Path) -> None:
    sdss.make(tmp_path, sdss.Options(files=1, objects=31), 1)
    plain = tmp_path / "exposures" / "f00000-u.fits"
    packed = plain.with_name(plain.name + ".gz")
    assert plain.stat().st_size == pytest.approx(6e6, rel=0.03)
    assert packed.stat().st_size == pytest.approx(2e6, rel=0.1)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    pixels, header = fits.getdata(plain, header=True)
    assert pixels.shape == (1489, 2048) and pixels.dtype == ">i2"
    assert (header["CTYPE1"], header["CTYPE2"], header["FILTER"]) == ("RA---TAN", "DEC--TAN", "u")
    assert {"SKY", "CAL", "CD1_1", "CD2_2", "EPOCH", "MJD"} <= set(header)
    # All objects lie inside, by astropy's projection, with room for a cutout of the evaluation.
    x, y = WCS(header).all_world2pix(np.array(sdss.objects_of(0, sdss.Options(objects=31))), 0).T
    assert len(x) == 31 and min(x.min(), y.min()) > 52 and x.max() < 2048 - 53 and y.max() < 1489 - 53
    # The header says where the background is, and the noise is that of the band.
    assert np.median(pixels) == pytest.approx(header["SKY"], abs=1)
    blank = pixels[np.abs(pixels - header["SKY"]) < 5 * sdss.BAND_NOISE["u"]]
    assert blank.std() == pytest.approx(sdss.BAND_NOISE["u"], rel=0.1)


def test_the_query_gives_each_object_once_and_no_other(tmp_path: Path) -> None:
    truth = sdss.make(tmp_path, SMALL, 1)
    found, n_rows = sdss.ask(tmp_path)
    made = {radec for field in range(SMALL.n_fields) for radec in sdss.objects_of(field, SMALL)}
    assert set(found) == made and len(found) == len(made) == 24
    # As in the paper, a twelfth of the rows are duplicates; the table has further rows that the conditions leave out.
    assert n_rows == len(made) + round(sdss.DUPLICATES * len(made)) == truth["n_rows_of_query"]
    query = (APP / "query.sql").read_text()
    assert "bestMode=1" in query and "SpecSciencePrimary=1" in query and "SpecRa<>0" in query
    listed = cutout.read_targets(str(tmp_path / "targets.csv"))
    assert sorted(listed.values()) == sorted(made)


def test_a_finished_survey_is_not_made_again(tmp_path: Path) -> None:
    sdss.make(tmp_path, SMALL, 1)
    first = tmp_path / "exposures" / "f00000-u.fits"
    before = first.stat().st_mtime_ns
    sdss.make(tmp_path, SMALL, 1)
    assert first.stat().st_mtime_ns == before
    # Without its last file it counts as unfinished; with other options it is another one.
    (tmp_path / "survey.json").unlink()
    sdss.make(tmp_path, SMALL, 1)
    assert first.stat().st_mtime_ns != before
    assert not sdss.is_made(tmp_path, replace(SMALL, objects=7))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ["--objects", "60", "--width", "220", "--height", "220", "--files", "1"],
            1,
            "no room for 60 objects",
        ),
        (["--files", "0"], 2, "start at 1"),
        (["--width", "100"], 2, "200 pixels"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(
    tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    done = call("survey.py", "--out", tmp_path, *words)
    assert done.returncode == status and said in done.stderr and "Traceback" not in done.stderr


# ------------------------------------------------------------------------------- bands, epochs, variable sources


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A survey of one field in five bands at six epochs with two variable objects of four, and the cutouts of all."""
    folder = tmp_path_factory.mktemp("watched")
    options = sdss.Options(
        seed=8, files=30, objects=4, epochs=6, variable=2, format="gz", width=260, height=240
    )
    sdss.make(folder / "sky", options, 1)
    cuts = folder / "cuts"
    cuts.mkdir()
    tasks = plan.plan(folder / "sky", 1, 41, seed=1)
    assert len(tasks) == 120
    targets = cutout.read_targets(str(folder / "sky" / "targets.csv"))
    for task in tasks:
        image = cutout.read_hdu(str(task.exposure))
        stacked, n_skipped = cutout.stack_exposure(image, [targets[task.objects[0]]], 41)
        assert n_skipped == 0
        cutout.write_stacking(
            str(cuts / f"{task.id}.fits"), stacked, image, 0, [("OBJECT", task.objects[0], "")]
        )
    return folder / "sky", cuts


def test_exactly_the_variable_objects_are_found(watched: tuple[Path, Path], tmp_path: Path) -> None:
    sky, cuts = watched
    done = call("lightcurve.py", "--cuts", cuts, "--sky", sky, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "variables.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    targets = {radec: name for name, radec in cutout.read_targets(str(sky / "targets.csv")).items()}
    options = sdss.Options(seed=8, objects=4, width=260, height=240)
    variable = {targets[radec] for radec in sdss.objects_of(0, options)[:2]}
    assert {row["object"] for row in rows if row["varies"] == "yes"} == variable
    assert len(rows) == 4 and [row["object"] for row in rows[:2]] != [] and rows[0]["n"] == "30"
    # The light goes up and down by a half.
    assert all(0.25 < float(row["amplitude"]) < 0.6 for row in rows[:2])


def test_the_fluxes_of_a_light_curve_are_those_that_were_put_in(watched: tuple[Path, Path]) -> None:
    sky, cuts = watched
    options = sdss.Options(seed=8, objects=4, epochs=6, variable=2, width=260, height=240)
    targets = {radec: name for name, radec in cutout.read_targets(str(sky / "targets.csv")).items()}
    points = lightcurve.points_of(cuts, make_sky.PSF_SIGMA_PIXELS)
    assert len(points) == 4 * 5 * 6 and all(one.n == 1 for one in points)
    pulls = []
    for number, radec in enumerate(sdss.objects_of(0, options)):
        for one in points:
            if one.name == targets[radec]:
                put_in = sdss.peak_of(one.band, 1.0) * sdss.light(number, one.epoch, options)
                # Interpolation lowers the top of a bright star a little.
                assert one.flux == pytest.approx(put_in, rel=0.08, abs=6 * one.error)
                pulls.append((one.flux - put_in) / one.error)
    assert np.std(pulls[60:]) < 1.6  # of the faint ones: the error is that of the noise


def test_a_band_or_an_epoch_is_stacked_alone(watched: tuple[Path, Path], tmp_path: Path) -> None:
    sky, cuts = watched
    summary = stack.run(cuts, sky, tmp_path, band="g", epoch=2)
    assert (summary["n_cutouts"], summary["band"], summary["epoch"]) == (4, "g", 2)
    assert stack.run(cuts, sky, tmp_path, band="z")["n_cutouts"] == 24
    # The picture shows the field of M13, which is not here.
    assert (tmp_path / "stack.fits").exists() and not (tmp_path / "stack.png").exists()
    done = call("stack.py", "--cuts", cuts, "--sky", sky, "--out", tmp_path, "--band", "q")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "has FILTER q; there are: g, i, r, u, z" in done.stderr


def test_light_curves_of_stacks_of_many_objects_are_refused(
    watched: tuple[Path, Path], tmp_path: Path
) -> None:
    sky, _ = watched
    exposure = min((sky / "exposures").iterdir())
    done = call("cutout.py", sky / "targets.csv", exposure, tmp_path / "cut.fits")
    assert done.returncode == 0, done.stderr
    done = call("lightcurve.py", "--cuts", tmp_path, "--sky", sky, "--out", tmp_path / "out")
    assert done.returncode == 1 and "does not say of which object and band" in done.stderr
    assert done.stderr.count("\n") == 1


# ------------------------------------------------------------------------------------------------------ clipping


def white(n: int, height: float, seed: int) -> stack.Cutouts:
    """Cutouts of noise 1 with a star in the middle, of different weights."""
    rng = np.random.default_rng(seed)
    grid = np.arange(41) - 20
    profile = np.exp(-0.5 * (grid / 1.7) ** 2)
    noise = rng.uniform(0.7, 1.4, n)
    images = rng.standard_normal((n, 41, 41)) * noise[:, None, None] + height * np.outer(profile, profile)
    weights = 1 / noise**2
    sums = images * weights[:, None, None]
    return stack.Cutouts(sums, weights, np.ones(n, int), images, noise, [""] * n)


def mean_of(cuts: stack.Cutouts) -> stack.Floats:
    mean: stack.Floats = cuts.sums.sum(0) / cuts.weights.sum()
    return mean


def test_clipping_takes_the_track_of_a_satellite_out_and_nothing_else() -> None:
    clean = white(60, 0.5, seed=1)
    dirty = replace(clean, sums=clean.sums.copy())
    for row in range(41):
        dirty.sums[17, row, row] += 300.0 * dirty.weights[17]
    assert np.abs(mean_of(dirty) - mean_of(clean)).max() > 2
    clipped, share = stack.clip(dirty, 5.0)
    # In its place stands the mean of the other 59.
    others = [number for number in range(60) if number != 17]
    along = np.arange(41)
    without = clean.sums[others].sum(0) / clean.weights[others].sum()
    assert np.allclose(mean_of(clipped)[along, along], without[along, along])
    off = ~np.eye(41, dtype=bool)
    assert np.allclose(mean_of(clipped)[off], mean_of(clean)[off])
    assert share == pytest.approx(41 / (60 * 41 * 41))


def test_clipping_noise_alone_takes_what_a_gaussian_has_out_there() -> None:
    cuts = white(400, 0.0, seed=2)
    _, share = stack.clip(cuts, 2.5)
    assert share == pytest.approx(math.erfc(2.5 / math.sqrt(2)), rel=0.05)
    kept, share = stack.clip(cuts, 8.0)
    assert share == 0.0 and np.allclose(kept.sums, cuts.sums)


def test_clipping_everything_is_refused() -> None:
    with pytest.raises(cutout.StackingError, match="leaves no cutout"):
        stack.clip(white(4, 0.0, seed=3), 1e-6)


# --------------------------------------------------------------------------------------------------- reprojection


def double_star(folder: Path, angle: float, scale: float) -> Path:
    """An exposure, turned and scaled, of a star with a companion 6 arc seconds to the north and 3 to the east."""
    size = 161
    header = fits.Header()
    header["CTYPE1"], header["CTYPE2"] = "RA---TAN", "DEC--TAN"
    header["CRVAL1"], header["CRVAL2"] = 150.0, 20.0
    header["CRPIX1"], header["CRPIX2"] = 81.3, 79.6
    cos, sin = scale / 3600 * math.cos(angle), scale / 3600 * math.sin(angle)
    (header["CD1_1"], header["CD1_2"]), (header["CD2_1"], header["CD2_2"]) = (-cos, sin), (sin, cos)
    header["SKY"], header["CAL"] = 100.0, 2.0
    east = 3.0 / 3600 / math.cos(math.radians(20.0))
    stars = np.array([(150.001, 20.002), (150.001 + east, 20.002 + 6.0 / 3600)])
    xs, ys = WCS(header).all_world2pix(stars, 0).T
    row, column = np.mgrid[:size, :size]
    sigma = 1.2 / scale
    pixels = np.random.default_rng(int(angle * 100)).standard_normal((size, size)) + 100.0
    for x, y, flux in zip(xs, ys, (20_000.0, 10_000.0), strict=True):
        shape = np.exp(-0.5 * ((column - x) ** 2 + (row - y) ** 2) / sigma**2)
        pixels += 2.0 * flux * shape / (2 * math.pi * sigma**2)
    path = folder / f"turned-{angle:.2f}.fits"
    fits.PrimaryHDU(np.rint(pixels).astype(np.int16), header).writeto(path)
    return path


def test_reprojected_cutouts_have_north_up_and_the_same_flux_whatever_the_exposure(tmp_path: Path) -> None:
    pytest.importorskip("reproject")
    drawn = []
    for angle, scale in ((0.0, 0.5), (1.1, 0.4), (2.9, 0.5), (4.4, 0.6)):
        image = cutout.read_hdu(str(double_star(tmp_path, angle, scale)))
        stacked, n_skipped = cutout.stack_exposure(image, [(150.001, 20.002)], 41, 0.5)
        assert n_skipped == 0
        drawn.append(np.array(stacked.total) / stacked.weight)
    for north_up in drawn:
        # 6 arc seconds north are 12 pixels up, 3 east are 6 to the left.
        assert divmod(int(np.argmax(north_up)), 41) == (20, 20)
        around = north_up[20 + 12 - 2 : 20 + 12 + 3, 20 - 6 - 2 : 20 - 6 + 3]
        assert divmod(int(np.argmax(around)), 5) == (2, 2)
        assert north_up[14:27, 14:27].sum() == pytest.approx(20_000, rel=0.03)
        assert np.abs(north_up - drawn[0]).max() < 0.04 * drawn[0].max()


def test_a_task_reprojects(tmp_path: Path) -> None:
    pytest.importorskip("reproject")
    exposure, out = double_star(tmp_path, 0.7, 0.5), tmp_path / "cut.fits"
    (tmp_path / "targets.csv").write_text("id,ra,dec\nt,150.001,20.002\n")
    done = call("cutout.py", "--reproject", "--pixel", "0.5", tmp_path / "targets.csv", exposure, out)
    assert done.returncode == 0, done.stderr
    sums, header = fits.getdata(out, header=True)
    assert (header["PIXEL"], header["OBJECT"], header["NSTACK"]) == (0.5, "t", 1)
    assert divmod(int(np.argmax(sums[0])), 41) == (20, 20)
    done = call("cutout.py", "--reproject", "--pixel", "0", tmp_path / "targets.csv", exposure, out)
    assert done.returncode == 1 and "--pixel 0.0 is not a size" in done.stderr


def test_reprojection_without_the_library_names_it(tmp_path: Path) -> None:
    exposure = double_star(tmp_path, 0.0, 0.5)
    (tmp_path / "targets.csv").write_text("id,ra,dec\nt,150.001,20.002\n")
    # -S: no site packages, as on a node that has only Python.
    words = ["--size", "41", "--reproject", str(tmp_path / "targets.csv"), str(exposure), str(tmp_path / "o")]
    command = [sys.executable, "-S", str(APP / "cutout.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "--reproject needs numpy, astropy and reproject" in done.stderr


def test_the_profile_has_the_papers_steps(watched: tuple[Path, Path], tmp_path: Path) -> None:
    sky, _ = watched
    exposure = min((sky / "exposures").iterdir())
    words = ["--profile", tmp_path / "steps.json", sky / "targets.csv", exposure, tmp_path / "cut.fits"]
    done = call("cutout.py", *words)
    assert done.returncode == 0, done.stderr
    steps = json.loads((tmp_path / "steps.json").read_text())
    named = {"open", "readHDU", "radec2xy", "getTile", "calibration", "interpolation", "doStacking"}
    assert steps.keys() == named | {"writeStacking"} and all(ms >= 0 for ms in steps.values())
    assert steps["readHDU"] > 0 and steps["interpolation"] > 0
