"""`make demo` in small: the stacking application on the real engine, from the sky to the report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness import ROOT, Eyas


def test_the_demo_shows_the_source_that_no_image_shows(eyas: Eyas, eyas_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    small = ["--exposures", "24", "--targets", "40", "--nodes", "2", "--home-rate", "200MB"]
    command = [
        sys.executable,
        str(ROOT / "apps/stacking/demo.py"),
        str(eyas_path),
        "--dir",
        str(folder),
        *small,
    ]
    done = subprocess.run(command, env=eyas.env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    closing = lines[-5:]
    assert [line.split()[0] for line in closing] == ["Shown", "Compared", "Verdict", "Stack", "Picture"]
    assert lines[0].startswith("Takes about ") and "MB of disk in " in lines[0]
    assert len(set(lines)) == len(lines), "each thing is printed once"
    assert "affinity" in closing[4] and str(folder / "report.html") in closing[4], (
        "the picture is of our placement"
    )
    assert "affinity: Limited by " in closing[2] or "affinity: Nothing stands out" in closing[2]
    named = int(lines[0].split()[2].replace(",", "")) * 1e6
    # What it really takes, beside what it said; a small one has folders and logs that weigh more.
    taken = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    assert 0.5 * named < taken < 1.5 * named, (taken, named)
    summary = json.loads((folder / "result" / "summary.json").read_text())
    assert summary, "the stack has numbers"
    assert (folder / "result" / "stack.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((folder / "report.json").read_text())
    assert report["placement"] == "affinity" and "verdict" in report
    paper = json.loads((folder / "report-paper.json").read_text())
    assert paper["placement"] == "good-cache-compute" and str(folder / "report-paper.html") in closing[4]
    page = (folder / "report-paper.html").read_text()
    assert "Compared: <b>good-cache-compute</b> with <b>first-available</b>" in page
    compared = closing[1]
    assert "without caches" in compared and "good-cache-compute" in compared and "affinity" in compared, (
        compared
    )
