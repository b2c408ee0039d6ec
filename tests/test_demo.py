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
    closing = done.stdout.strip().splitlines()[-5:]
    assert [line.split()[0] for line in closing] == ["Shown", "Compared", "Picture", "Stack", "Report"]
    summary = json.loads((folder / "result" / "summary.json").read_text())
    assert summary, "the stack has numbers"
    assert (folder / "result" / "stack.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((folder / "report.json").read_text())
    assert "affinity" in json.dumps(report)
    compared = closing[1]
    assert "without caches" in compared and "good-cache-compute" in compared and "affinity" in compared, (
        compared
    )
