"""`eyas-lab bench template`: All-Pairs on machines of their own, with real servers, and where its time goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from harness import ROOT, SOURCES, Run, lacking, need_program


@pytest.fixture(autouse=True)
def _needs_namespaces() -> None:
    need_program("ip", "iproute2")
    if os.geteuid() != 0:
        lacking("network namespaces need root")


def test_figure_3_is_measured_and_its_time_is_split(lab: Run, tmp_path: Path) -> None:
    """Every matrix is compared with what the genomes were made for by the benchmark itself."""
    found = tmp_path / "found.json"
    # GridFTP runs as another user, to whom the folders of tests are closed.
    with TemporaryDirectory(dir="/var/tmp") as made:
        os.chmod(made, 0o755)
        done = lab(
            "bench", "template", "--figure", "3", "--quick", "--json", found, "--dir", made, timeout=600
        )
    assert "3a: local, 287 MB" in done.stdout
    table = json.loads(found.read_text())["table"]
    runs = table["details"]["runs"]
    for run in runs:
        times = run["times"]
        parts = [times[name] for name in ("t_setup", "t_x", "t_io", "t_compute", "t_rest")]
        assert sum(parts) == pytest.approx(times["t_c"], abs=1e-6)
        assert min(parts) >= 0 and times["t_io"] > 0, run
        assert times["t_compute"] == 0, run

    def links(access: str, machines: str) -> int:
        [one] = [
            run for run in runs if (run["tuple"]["access"], run["tuple"]["machines"]) == (access, machines)
        ]
        return int(one["times"]["network_bytes"])

    # Six of eight files of 1.4 MB are not where a task of a pair of rows may run; placed, less of them move.
    assert links("placed", "C4") > 1_000_000
    if not any("Left out: gridftp" in note for note in table["notes"]):
        # Each of eight tasks fetches three files from the other machine.
        assert links("gridftp", "C2") > 24 * 1_400_000
        assert links("gridftp", "C1") < 2_000_000
        assert links("placed", "C4") < links("gridftp", "C4")


def test_a_figure_is_asked_for(lab: Run) -> None:
    assert "--figure" in lab("bench", "template", status=2).stderr
    assert "3..=7" in lab("bench", "template", "--figure", "2", status=2).stderr


def test_the_figures_of_the_page_are_drawn_from_its_numbers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    numbers = ROOT / "docs" / "results" / "all-pairs.json"
    command = [sys.executable, "-m", "eyas.figures", "--template", str(tmp_path), str(numbers)]
    env = os.environ | SOURCES
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert done.stdout == "5 figures\n", done
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == [f"miceli-fig-{n}.svg" for n in range(3, 8)]
    assert "C4, r = 2" in (tmp_path / "miceli-fig-4.svg").read_text()
