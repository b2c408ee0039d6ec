"""apps/cybershake: many small tasks that share two large files give what a plain run gives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from app import App
from harness import ROOT, Eyas

N_RUPTURES, N_VARIATIONS = 4, 5


@pytest.fixture
def cybershake(eyas: Eyas, tmp_path: Path) -> App:
    app = App("cybershake", eyas, tmp_path)
    size = ["--points", "400", "--samples", "700"]
    events = ["--ruptures", str(N_RUPTURES), "--variations", str(N_VARIATIONS)]
    app.program("make_data.py", "--out", app.data, *size, *events)
    return app


def test_seismograms_and_the_curve_are_those_of_a_plain_run(cybershake: App) -> None:
    cybershake.program("plain.sh", cybershake.data, cybershake.plain)
    done = cybershake.run("kept", cybershake.plan("kept"))
    n_events = N_RUPTURES * N_VARIATIONS
    assert f"{N_RUPTURES + 2 * n_events + 2} done, 0 failed" in done.stderr
    found = cybershake.checked("kept", "--plain", cybershake.plain, "--data", cybershake.data)
    assert found["files_equal"] == 2 and found["seismograms"] == n_events

    report = cybershake.report("kept")
    stages = {row["stage"]: row for row in report["stages"]}
    assert list(stages) == ["ExtractSGT", "SeismogramSynthesis", "PeakValCalc", "ZipSeis", "HazardCurve"]
    assert stages["SeismogramSynthesis"]["n_tasks"] == stages["PeakValCalc"]["n_tasks"] == n_events
    # Each large file goes out of home once a node at most, however many tasks read it.
    shared = sum((cybershake.data / name).stat().st_size for name in ("sgt_x.bin", "sgt_y.bin"))
    assert report["totals"]["home_in_bytes"] < 2 * shared + 200_000


def test_the_swift_script_gives_what_a_plain_run_gives(cybershake: App) -> None:
    cybershake.program("plain.sh", cybershake.data, cybershake.plain)
    done = cybershake.swift("hazard.swift", f"-variations={N_VARIATIONS}")
    assert f"{N_RUPTURES + 2 * N_RUPTURES * N_VARIATIONS + 2} done, 0 failed" in done.stderr
    found = cybershake.checked("swift/hazard", "--plain", cybershake.plain, "--data", cybershake.data)
    assert found["files_equal"] == 2


def test_a_curve_that_is_off_is_refused(cybershake: App) -> None:
    cybershake.program("plain.sh", cybershake.data, cybershake.plain)
    cybershake.checked("plain", "--data", cybershake.data)
    curve = cybershake.plain / "curve.csv"
    lines = curve.read_text().splitlines()
    level, _, *others = lines[1].split(",")
    lines[1] = ",".join([level, "0.5", *others])
    curve.write_text("\n".join(lines) + "\n")
    assert "is not in [" in cybershake.refused("plain", "--data", cybershake.data)


def test_inputs_that_do_not_belong_together_are_refused(cybershake: App, tmp_path: Path) -> None:
    data, sub = cybershake.data, tmp_path / "a.sub"
    large = [data / "sgt_x.bin", data / "sgt_y.bin"]
    ruptures = [data / "ruptures" / f"r00{number}.json" for number in (0, 1)]
    cybershake.program("shake.py", "extract", *large, ruptures[0], sub)
    out = tmp_path / "a.seis"
    cybershake.program("shake.py", "synthesize", sub, ruptures[0], "0", out)
    wrong = cybershake.program("shake.py", "synthesize", sub, ruptures[1], "0", out, status=1)
    assert "another rupture" in wrong.stderr
    sub.write_bytes(sub.read_bytes()[:-4])
    cut = cybershake.program("shake.py", "synthesize", sub, ruptures[0], "0", out, status=1)
    assert "is cut off" in cut.stderr


def test_the_steps_of_the_paper_are_measured_side_by_side(eyas: Eyas, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    small = ["--scale", "small", "--steps", "staging,auto", "--home-rate", "20MB"]
    places: list[str | Path] = ["--apps", ROOT / "apps", "--python", sys.executable, "--json", figures]
    done = eyas.lab("bench", "app", "cybershake", *small, *places)
    rows = {row["what"]: row for row in json.loads(figures.read_text())["table"]["rows"]}
    assert rows["auto: through home"]["ratio"] < 0.7, done
    assert rows["auto: between nodes"]["value"] > 0.0, done
    assert rows["auto: PeakValCalc"]["value"] >= 0.0

    nowhere = eyas.lab("bench", "app", "cybershake", "--apps", tmp_path / "none", status=2)
    assert "hint: run this in a checkout" in nowhere.stderr
