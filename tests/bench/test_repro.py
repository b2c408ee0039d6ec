"""`eyas-lab repro`: the paper's evaluation, simulated. The quick part of it, whole: what it writes and that it is the same again."""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness import SOURCES, Run

# Nothing but figures needs it, and it is not there in every environment.
FIGURE_BYTES_MAX = 100_000
CLOCK = "## Measured with a clock"


def test_the_quick_part_writes_a_page_that_is_the_same_again(lab: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    done = lab("repro", "--quick", "--out", out, timeout=500, cwd=tmp_path, env=SOURCES)
    assert "data-diffusion.md" in done.stdout
    page = (out / "data-diffusion.md").read_text(encoding="utf-8")
    results = (out / "results.json").read_bytes()
    experiments = json.loads(results)["experiments"]

    # What the paper says stands there, also of what was not run; so does the command of each row.
    for said in ("5,011 s", "20,491 s", "86 %", "`eyas-lab repro --only mi-gcc-1gb`", "were not run"):
        assert said in page
    fa, gcc = (experiments[name] for name in ("mi-fa", "mi-gcc-4gb"))
    assert fa["n_done"] == gcc["n_done"] == 250_000
    # Without caches the shared file system bounds everything: 2.5 TB at 4.4 Gb/s take 4,545 s.
    assert fa["makespan_s"] > 4_545
    assert gcc["makespan_s"] < 1_500
    # The page's numbers are those of the results.
    row = re.search(r"^\| GCC, 4 GB \|.*`eyas-lab repro --only mi-gcc-4gb` \|$", page, re.MULTILINE)
    assert row and f"{gcc['makespan_s']:,.0f} s" in row[0]

    # The micro-benchmarks: shared storage is saturated, caches grow with the nodes, a wrapper costs small files most.
    cells = {(m["config"], m["writes"], m["file_bytes"], m["nodes"]): m for m in json.loads(results)["micro"]}
    large = {config: cells[config, False, 10**8, 64]["mbit_per_s"] for config in ("fa", "fca100", "mcu100")}
    assert large["fa"] < 3_421 < large["fca100"] < large["mcu100"]
    wrapped, plain = (cells[config, False, 1, 64]["tasks_per_s"] for config in ("fa-wrapper", "fa"))
    assert wrapped < 22 and plain > 8 * wrapped
    assert "61.7 Gb/s" in page and f"{large['mcu100']:,.0f}" in page
    assert "were not run" in (out / "collectives.md").read_text(encoding="utf-8")

    for path in (out / "figures").glob("*.svg"):
        assert path.stat().st_size < FIGURE_BYTES_MAX, path.name
        assert f"figures/{path.name}" in page

    # One experiment again into the same folder: the rest stays, and this one is what it was, to the byte.
    lab("repro", "--only", "mi-gcc-1gb", "--out", out, timeout=200, cwd=tmp_path, env=SOURCES)
    assert (out / "results.json").read_bytes() == results
    again = (out / "data-diffusion.md").read_text(encoding="utf-8")
    assert again.split(CLOCK)[0] == page.split(CLOCK)[0]


def test_an_unknown_experiment_is_refused_with_those_that_there_are(lab: Run, tmp_path: Path) -> None:
    done = lab("repro", "--only", "mi,montage", "--out", tmp_path / "out", status=2, cwd=tmp_path)
    for word in ("`montage`", "allpairs", "stacking", "scheduler"):
        assert word in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_else_in_it_is_not_overwritten(lab: Run, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("[1, 2]", encoding="utf-8")
    done = lab("repro", "--only", "mi-fa", "--out", tmp_path, status=2, cwd=tmp_path)
    assert "results.json" in done.stderr
    assert (tmp_path / "results.json").read_text(encoding="utf-8") == "[1, 2]"
