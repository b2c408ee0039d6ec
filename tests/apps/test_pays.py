"""apps/bench/pays.py: the same tasks with eyas, one by one and several at a time, by turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from app import App
from harness import Eyas


@pytest.fixture
def bench(eyas: Eyas, tmp_path: Path) -> App:
    return App("bench", eyas, tmp_path)


def test_tasks_are_run_with_eyas_and_without_it(bench: App, tmp_path: Path) -> None:
    work, figures = tmp_path / "work", tmp_path / "figures.json"
    cell: list[str | Path] = ["--lengths", "0.06", "--sizes", "10kB", "--rounds", "1", "--json", figures]
    bench.program("pays.py", "--eyas", bench.eyas.path, "--dir", work, *cell)
    (found,) = json.loads(figures.read_text())["cells"]
    assert found["n_tasks"] == 30
    assert min(found[f"{way}_s"] for way in ("plain", "parallel", "eyas")) > 0.0
    plain = sorted((work / "out-plain").iterdir())
    assert len(plain) == 30
    for path in plain:
        assert path.read_bytes() == (work / "out-eyas" / path.name).read_bytes()


def test_a_size_without_a_unit_is_named(bench: App, tmp_path: Path) -> None:
    refused = bench.program(
        "pays.py", "--eyas", bench.eyas.path, "--dir", tmp_path, "--sizes", "ten", status=1
    )
    assert "error: ten is no size: write 10kB or 1MB" in refused.stderr
