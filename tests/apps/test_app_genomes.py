"""apps/genomes: all pairs of real genomes are those of a plain double loop."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from app import App
from harness import Eyas, need_path


@pytest.fixture
def genomes(eyas: Eyas, tmp_path: Path) -> App:
    need_path("/usr/share/doc/kleborate/examples/data", "kleborate-examples")
    need_path("/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz", "bowtie-examples")
    app = App("genomes", eyas, tmp_path)
    app.program("make_data.py", "--out", app.data, "--bases", "100000")
    return app


def test_all_pairs_of_genomes_are_those_of_a_double_loop(genomes: App) -> None:
    matrix = genomes.folder / "shared.csv"
    program = str(genomes.home / "compare.py")
    options = ["--self", "--symmetric", "--nodes", "2", "--slots", "1", "--with", program]
    command = ["--", sys.executable, "compare.py", "{a}", "{b}"]
    genomes.eyas.run("pairs", genomes.data / "genomes", "--out", matrix, *options, *command)
    found = json.loads(genomes.program("check.py", "--matrix", matrix, "--data", genomes.data).stdout)
    assert found["pairs_equal"] == 25

    lines = matrix.read_text().splitlines()
    cells = lines[2].split(",")
    cells[3] = str(float(cells[3]) + 1)
    matrix.write_text("\n".join([*lines[:2], ",".join(cells), *lines[3:]]) + "\n")
    refused = genomes.program("check.py", "--matrix", matrix, "--data", genomes.data, status=1).stderr
    assert "the matrix has" in refused
