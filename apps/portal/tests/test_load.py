"""The program that measures a portal under load, with a few users: nothing is lost, and equal requests have equal results."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from harness import need_program
from portals import APP


def test_a_small_load(tmp_path: Path) -> None:
    out, figure = tmp_path / "load.json", tmp_path / "demand.svg"
    words = ["--users", "3", "--requests", "24", "--at-once", "3", "--rest", "0", "--exposures", "2"]
    command: list[str | Path] = [
        sys.executable,
        APP / "load.py",
        *words,
        "--nodes",
        "0..2",
        "--out",
        out,
        "--figure",
        figure,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["errors"] == [] and found["same_sky"]["is_right"]
    assert sum(row["n"] for row in found["sizes"].values()) >= 20
    assert 1 <= found["n_nodes_max"] <= 2 and found["as_before"] == 0
    assert found["same_sky"]["home_bytes_of_the_second"] < found["same_sky"]["local_bytes_of_the_second"]
    assert "<svg" in figure.read_text()


def test_the_time_from_the_click_to_the_picture(tmp_path: Path) -> None:
    need_program("chromium")
    out = tmp_path / "clicks.json"
    command: list[str | Path] = [sys.executable, APP / "load.py", "--clicks", "2", "--exposures", "2"]
    done = subprocess.run(
        [*command, "--nodes", "1", "--out", out], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert len(found["api_s"]) == len(found["page_s"]) == 2 and min(found["n_exposures"]) >= 1
    assert "20 objects by the page: " in done.stdout


def test_arrivals_have_their_rate_and_their_bursts() -> None:
    import load

    moments = load.arrivals(20_000, 200, 10.0, random.Random(1))
    assert len(moments) == 20_000 and moments == sorted(moments)
    assert moments[-1] == pytest.approx(2000, rel=0.05)
    at_once = sum(moments[at] == moments[at - 1] for at in range(1, len(moments)))
    assert at_once == 200 * (load.BURST - 1)
