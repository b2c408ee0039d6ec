"""apps/mosaic: Montage's own programs, linked by the files that they write, make the mosaic of a plain run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from app import App, size_of
from harness import ROOT, Eyas, need_program
from lists import failures, write_list

STAGES = (
    "mProject",
    "mImgtbl",
    "mOverlaps",
    "mDiffFit",
    "mConcatFit",
    "mBgModel",
    "mBackground",
    "mAdd",
    "mViewer",
)
N_TILES = 6


@pytest.fixture
def mosaic(eyas: Eyas, tmp_path: Path) -> App:
    need_program("mProject", "montage")
    app = App("mosaic", eyas, tmp_path)
    size = ["--columns", "3", "--rows", "2", "--size", "128"]
    app.program("make_tiles.py", "--out", app.data, *size)
    return app


def test_the_mosaic_is_that_of_a_plain_run_and_has_no_seams(mosaic: App) -> None:
    tasks = mosaic.plan("kept")
    planned = [json.loads(line) for line in tasks.read_text(encoding="utf-8").splitlines()]
    assert tuple(dict.fromkeys(task["label"] for task in planned)) == STAGES
    mosaic.program("plain.sh", mosaic.data, mosaic.plain)

    done = mosaic.run("kept", tasks)
    assert f"{len(planned)} done, 0 failed" in done.stderr
    found = mosaic.checked("kept", "--plain", mosaic.plain, "--data", mosaic.data)
    assert found["pixels_equal"] > 2 * 200 * 300
    assert found["seam_rms_uncorrected"] > 50.0 > 1.0 > found["seam_rms"]

    # The same with all files through home: the base case, and much more for home to do.
    staging = mosaic.folder / "home"
    mosaic.run("staged", mosaic.plan("staged", "--staging", staging), "--placement", "first-available")
    mosaic.checked("staged", "--plain", mosaic.plain)
    kept, staged = mosaic.report("kept")["totals"], mosaic.report("staged")["totals"]
    assert kept["home_out_bytes"] == size_of(mosaic.folder / "kept")
    assert staged["home_out_bytes"] > 3 * kept["home_out_bytes"]
    assert staged["home_in_bytes"] > 5 * kept["home_in_bytes"]

    # Its stages, with the numbers that Zhang12, table VI has.
    stages = {row["stage"]: row for row in mosaic.report("kept")["stages"]}
    assert tuple(stages) == STAGES
    assert stages["mProject"]["n_tasks"] == stages["mBackground"]["n_tasks"] == N_TILES
    assert stages["mProject"]["n_outputs"] == 2 * N_TILES
    assert stages["mConcatFit"]["n_tasks"] == 1
    n_pairs = stages["mDiffFit"]["n_tasks"]
    assert stages["mConcatFit"]["n_inputs"] == n_pairs + 2
    assert stages["mImgtbl"]["input_bytes"] > stages["mProject"]["output_bytes"] / 2


@pytest.mark.parametrize("form", ["wfformat", "pegasus"])
def test_the_workflow_file_of_another_system_gives_the_same_mosaic(mosaic: App, form: str) -> None:
    tasks = mosaic.plan("native", "--no-picture", "--project", "mProjectPP")
    mosaic.program("plain.sh", mosaic.data, mosaic.plain, "mProjectPP")
    folder = mosaic.folder / form
    workflow = folder / ("mosaic.json" if form == "wfformat" else "mosaic.yml")
    mosaic.program("formats.py", tasks, "--to", form, "--out", workflow)
    done = mosaic.run(form, workflow)
    n_tasks = len(tasks.read_text().splitlines())
    assert f"{n_tasks} done, 0 failed" in done.stderr
    for name in ("mosaic.fits", "mosaic_area.fits"):
        assert (folder / name).read_bytes() == (mosaic.plain / name).read_bytes(), name
    assert not (folder / "proj").exists(), "intermediate files stay on the nodes"
    assert tuple(row["stage"] for row in mosaic.report(form)["stages"]) == STAGES[:-1]


def test_the_swift_script_makes_the_mosaic_of_a_plain_run(mosaic: App) -> None:
    # The plan writes what the plain run reads besides the tiles.
    mosaic.plan("unused")
    mosaic.program("plain.sh", mosaic.data, mosaic.plain)
    done = mosaic.swift("mosaic.swift")
    n_pairs = N_TILES * (N_TILES - 1) // 2
    # The list of tiles, the header of the mosaic (2), each tile twice, each pair, and 6 that gather.
    assert f"{3 + 2 * N_TILES + n_pairs + 6} done, 0 failed" in done.stderr
    found = mosaic.checked("swift/mosaic", "--plain", mosaic.plain, "--data", mosaic.data)
    assert found["tables_equal"] == 2 and found["seam_rms"] < 1.0


def test_a_mosaic_with_a_wrong_pixel_or_without_correction_is_refused(mosaic: App) -> None:
    mosaic.plan("done")
    mosaic.program("plain.sh", mosaic.data, mosaic.plain)
    shutil.copytree(mosaic.plain, mosaic.folder / "done")
    mosaic.checked("done", "--plain", mosaic.plain, "--data", mosaic.data)

    image = mosaic.folder / "done" / "mosaic.fits"
    good = image.read_bytes()
    middle = len(good) // 2880 // 2 * 2880
    image.write_bytes(good[:middle] + bytes([good[middle] ^ 0x40]) + good[middle + 1 :])
    assert re.search(r"mosaic.fits: 1 of \d+ pixels differ", mosaic.refused("done", "--plain", mosaic.plain))
    image.write_bytes(good)

    table = mosaic.folder / "done" / "corrections.tbl"
    table.write_text(re.sub(r"\d\.\d{5}e[-+]\d\d", "0.00000e+00", table.read_text()))
    assert "steps at the seams" in mosaic.refused("done", "--data", mosaic.data)


def test_a_stage_that_fails_with_exit_status_0_is_a_failed_task(mosaic: App, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.fits").write_text("no image\n")
    plain = subprocess.run(["mImgtbl", "bad", "x.tbl"], cwd=tmp_path, capture_output=True, text=True)
    assert plain.returncode == 0 and 'stat="OK"' in plain.stdout, "the trap that mcheck is for"

    task = {
        "id": "table",
        "command": ["sh", "mcheck", "mImgtbl", "bad", "x.tbl"],
        "inputs": {"mcheck": str(ROOT / "apps/mosaic/mcheck"), "bad/x.fits": "bad/x.fits"},
        "outputs": {"x.tbl": "out/x.tbl"},
    }
    tasks = write_list(tmp_path / "bad.jsonl", task)
    done = mosaic.eyas.run("run", tasks, "--dir", tmp_path / "d", cwd=tmp_path, status=1)
    assert "ended with exit status 0, but not all images went well" in failures(done)["table"]
    assert not (tmp_path / "out" / "x.tbl").exists()


def test_planes_without_their_pair_and_pairs_without_their_plane(mosaic: App) -> None:
    """Planned pairs that have no pixel in common are left out; unplanned ones that have are an error."""
    mosaic.plan("done")
    mosaic.program("plain.sh", mosaic.data, mosaic.plain)
    plain = mosaic.plain
    rows = [line.split() for line in (plain / "diffs.tbl").read_text().splitlines() if line[0] != "|"]
    fits = mosaic.folder / "fits"
    fits.mkdir()
    for _, _, plus, minus, _ in rows:
        pair = f"{Path(plus).stem}-{Path(minus).stem}"
        images = [plain / "proj" / plus, plain / "proj" / minus]
        fit = fits / f"{pair}.fit"
        mosaic.program("mdifffit", *images, fit, mosaic.data / "region.hdr")
    out = mosaic.folder / "fits.tbl"
    mosaic.program("mconcatfit.py", plain / "diffs.tbl", fits, out)
    ours, theirs = out.read_text(), (plain / "fits.tbl").read_text()
    assert ours.splitlines()[0] == theirs.splitlines()[0], "the table is that of mFitExec"
    assert [word[:3] for word in ours.split()] == [word[:3] for word in theirs.split()]

    first, *_, last = sorted(fits.iterdir())
    first.write_text("none\n")
    (fits / "t000-t999.fit").write_text("none\n")
    mosaic.program("mconcatfit.py", plain / "diffs.tbl", fits, out)
    assert len(out.read_text().splitlines()) == len((plain / "fits.tbl").read_text().splitlines()) - 1
    last.unlink()
    done = mosaic.program("mconcatfit.py", plain / "diffs.tbl", fits, out, status=1)
    assert "which was not planned" in done.stderr

    corners = [plain / "proj" / "t000.fits", plain / "proj" / "t005.fits"]
    mosaic.program("mdifffit", *corners, fits / "far.fit", mosaic.data / "region.hdr")
    assert (fits / "far.fit").read_text() == "none\n"
