"""From the task list to the stack, and the demo's own logic with a stand-in for eyas."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import picture
import plan
import pytest
import stack
from astropy.io import fits  # type: ignore[import-untyped]
from PIL import Image

APP = Path(plan.__file__).parent

# Runs a task list the plain way: each task in its own folder, inputs under their declared names.
STAND_IN = """\
import json, pathlib, shutil, subprocess, sys, tempfile
if sys.argv[1] == "report":
    page = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
    page.write_text("<html></html>")
    page.with_suffix(".json").write_text(json.dumps({"verdict": {"sentences": ["Limited by nothing."]}}))
    sys.exit()
for line in open(sys.argv[2]):
    task = json.loads(line)
    with tempfile.TemporaryDirectory() as folder:
        for name, path in task["inputs"].items():
            pathlib.Path(folder, name).symlink_to(path)
        subprocess.run(task["command"], cwd=folder, check=True)
        for name, path in task["outputs"].items():
            shutil.copy(pathlib.Path(folder, name), path)
"""


@pytest.fixture(scope="session")
def eyas_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bin") / "eyas"
    path.write_text(f"#!{sys.executable}\n{STAND_IN}")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def cuts(survey: Path, eyas_stand_in: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of all tasks of the small survey."""
    folder = tmp_path_factory.mktemp("cuts")
    listed = folder.parent / "tasks.jsonl"
    plan.write_tasks(listed, plan.plan(survey, 16, 41, seed=1), survey, folder, 41, sys.executable)
    subprocess.run([str(eyas_stand_in), "run", str(listed)], check=True)
    return folder


def test_every_input_exists_and_no_name_leaves_the_sandbox(survey: Path, tmp_path: Path) -> None:
    listed = tmp_path / "tasks.jsonl"
    plan.write_tasks(listed, plan.plan(survey, 4, 41, seed=1), survey, tmp_path / "cuts", 41)
    tasks = [json.loads(line) for line in listed.read_text().splitlines()]
    outputs = [path for task in tasks for path in task["outputs"].values()]
    assert len({task["id"] for task in tasks}) == len(tasks) == len(set(outputs))
    for task in tasks:
        assert len([name for name in task["inputs"] if name.startswith("e0")]) == 1
        assert {"cutout.py", "targets.csv"} < task["inputs"].keys()
        for name, path in task["inputs"].items():
            assert os.path.isfile(path) and os.path.isabs(path) and "/" not in name
            assert name in task["command"]
        assert task["command"][-1] in task["outputs"]


def test_groups_hold_each_object_once_and_are_even(survey: Path) -> None:
    by_exposure: dict[Path, list[list[str]]] = {}
    for task in plan.plan(survey, 4, 41, seed=1):
        by_exposure.setdefault(task.exposure, []).append(task.objects)
    for groups in by_exposure.values():
        names = [name for group in groups for name in group]
        assert len(set(names)) == len(names)
        sizes = [len(group) for group in groups]
        assert max(sizes) <= 4 and max(sizes) - min(sizes) <= 1


def test_order_is_shuffled_by_the_seed_alone(survey: Path) -> None:
    orders = [[task.id for task in plan.plan(survey, 4, 41, seed)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) != orders[0]


def test_plan_without_exposures_says_so(tmp_path: Path) -> None:
    (tmp_path / "targets.csv").write_text("id,ra,dec\na,1,2\n")
    command = [sys.executable, str(APP / "plan.py"), "--sky", str(tmp_path), "--cuts", "c", "--out", "t"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "there are no exposures in" in done.stderr


def noise_with_sources(n: int, height: float, seed: int) -> stack.Cutouts:
    """`n` cutouts of pure noise 1 with a star of `height` in the middle of each."""
    rng = np.random.default_rng(seed)
    grid = np.arange(41) - 20
    profile = np.exp(-0.5 * (grid / 1.7) ** 2)
    images = rng.standard_normal((n, 41, 41)) + height * np.outer(profile, profile)
    ones = np.ones(n)
    return stack.Cutouts(images, ones, ones.astype(int), images, ones, [""] * n)


def test_measurement_is_unbiased_and_its_error_is_right() -> None:
    cuts = noise_with_sources(2000, 0.5, seed=1)
    heights, variances, n_independent = stack.measure(cuts.sums, 1.7)
    sigma = 1 / (math.sqrt(math.pi) * 1.7)
    assert heights.mean() == pytest.approx(0.5, abs=5 * sigma / math.sqrt(2000))
    assert heights.std() == pytest.approx(sigma, rel=0.08)
    assert math.sqrt(variances.mean()) == pytest.approx(sigma, rel=0.03)
    assert variances.std() / variances.mean() == pytest.approx(math.sqrt(2 / n_independent), rel=0.15)
    assert stack.expected_snr_one(0.5, 1.0, 1, 1.7) == pytest.approx(0.5 / sigma)


def test_growth_follows_the_square_root_for_white_noise_and_not_for_common_noise() -> None:
    cuts = noise_with_sources(4096, 0.1, seed=2)
    exponent, error = stack.fitted_exponent(stack.growth(cuts, 1.7, seed=0))
    assert abs(exponent - 0.5) < 3 * error and error < 0.03
    # The same background in all of them does not average out; the law must be seen to fail.
    common = np.random.default_rng(3).standard_normal((41, 41)) * 0.05
    shared = replace(cuts, sums=cuts.sums + common, singles=cuts.singles + common)
    assert stack.growth(shared, 1.7, seed=0)[-1].snr < 0.6 * stack.growth(cuts, 1.7, seed=0)[-1].snr


def test_the_stack_of_a_small_survey_shows_the_source(survey: Path, cuts: Path, tmp_path: Path) -> None:
    summary = stack.run(cuts, survey, tmp_path)
    expected = float(str(summary["snr_expected"]))
    assert float(str(summary["snr_one_expected"])) < 0.3
    assert expected > 4
    assert abs(float(str(summary["snr"])) - expected) < 3 * float(str(summary["snr_error"]))
    header = fits.getheader(tmp_path / "stack.fits")
    assert header["N"] == summary["n_cutouts"] and header["SNR"] == pytest.approx(summary["snr"], abs=0.01)
    assert header["SEED"] == 5
    with Image.open(tmp_path / "stack.png") as image:
        assert image.size == (picture.WIDTH, picture.HEIGHT)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


def test_stacking_nothing_says_so(survey: Path, tmp_path: Path) -> None:
    options = ["--cuts", str(tmp_path), "--sky", str(survey), "--out", str(tmp_path / "out")]
    command = [sys.executable, str(APP / "stack.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "there are no cutouts" in done.stderr and "Traceback" not in done.stderr


def test_demo_from_end_to_end_twice(eyas_stand_in: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(APP / "demo.py"), str(eyas_stand_in), "--dir", str(tmp_path / "demo")]
    command += ["--exposures", "6", "--targets", "24"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "is there already" in second.stdout and "is there already" not in first.stdout
    last = second.stdout.splitlines()[-5:]
    assert last[2].endswith(": Limited by nothing.")
    assert [line.split()[0] for line in last] == ["Shown", "Compared", "Verdict", "Stack", "Picture"]
    made = [
        "result/stack.png",
        "result/stack.fits",
        "result/summary.json",
        "report.html",
        "report-paper.html",
    ]
    for name in made:
        assert (tmp_path / "demo" / name).is_file()


def test_demo_with_a_failing_engine_says_so(tmp_path: Path) -> None:
    (tmp_path / "eyas").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "eyas").chmod(0o755)
    command = [sys.executable, str(APP / "demo.py"), str(tmp_path / "eyas"), "--dir", str(tmp_path / "demo")]
    command += ["--exposures", "2", "--targets", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "ended with exit code 7" in done.stderr and "Traceback" not in done.stderr
