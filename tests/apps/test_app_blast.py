"""apps/blast: a search that is split over pieces of the database finds what an unsplit one finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from app import App
from harness import Eyas, need_path, need_program

N_PIECES, N_QUERY_FILES = 3, 2
# Small, so that the cap on subjects matters for some query.
MAX_TARGETS = "4"


@pytest.fixture
def blast(eyas: Eyas, tmp_path: Path) -> App:
    need_program("blastp", "ncbi-blast+")
    need_program("fastasplit", "exonerate")
    need_program("prodigal")
    need_path("/usr/share/doc/kleborate/examples/data", "kleborate-examples")
    app = App("blast", eyas, tmp_path)
    size = ["--genomes", "3", "--bases", "200000", "--query-files", str(N_QUERY_FILES), "--queries", "8"]
    app.program("make_data.py", "--out", app.data, *size)
    app.program("plain.sh", app.data, app.plain, MAX_TARGETS)
    return app


def test_a_split_search_finds_what_an_unsplit_one_finds(blast: App) -> None:
    options = ["--pieces", str(N_PIECES), "--max-targets", MAX_TARGETS]
    done = blast.run("kept", blast.plan("kept", *options))
    n_tasks = 1 + N_PIECES + N_PIECES * N_QUERY_FILES + N_QUERY_FILES
    assert f"{n_tasks} done, 0 failed" in done.stderr
    found = blast.checked("kept", "--plain", blast.plain)
    assert found["query_files"] == N_QUERY_FILES and found["lines_equal"] >= 8 * N_QUERY_FILES

    # The same with all files through home; hits can then be looked at.
    staging = blast.folder / "home"
    blast.run(
        "staged", blast.plan("staged", *options, "--staging", staging), "--placement", "first-available"
    )
    blast.checked("staged", "--plain", blast.plain)
    kept, staged = blast.report("kept")["totals"], blast.report("staged")["totals"]
    assert staged["home_out_bytes"] > 5 * kept["home_out_bytes"]
    n_hits = sum(path.read_text().count("\n") for path in (staging / "hits").iterdir())
    assert n_hits > found["lines_equal"], "the cap on subjects had to be applied again"

    # Its stages, with the numbers that Zhang12, table VIII has.
    stages = {row["stage"]: row for row in blast.report("kept")["stages"]}
    assert {name: row["n_tasks"] for name, row in stages.items()} == {
        "fastasplit": 1,
        "makeblastdb": N_PIECES,
        "blastp": N_PIECES * N_QUERY_FILES,
        "merge": N_QUERY_FILES,
    }
    assert stages["fastasplit"]["n_outputs"] == N_PIECES
    assert stages["makeblastdb"]["n_outputs"] == 3 * N_PIECES


def test_the_swift_script_finds_what_an_unsplit_search_finds(blast: App) -> None:
    lines = (blast.data / "proteins.faa").read_text().splitlines()
    residues = sum(len(line) for line in lines if not line.startswith(">"))
    sizes = [f"-pieces={N_PIECES}", f"-targets={MAX_TARGETS}", f"-residues={residues}"]
    done = blast.swift("search.swift", *sizes)
    assert f"{1 + N_PIECES + N_PIECES * N_QUERY_FILES + N_QUERY_FILES} done, 0 failed" in done.stderr
    assert blast.checked("swift/found", "--plain", blast.plain)["query_files"] == N_QUERY_FILES


def test_results_with_a_line_lost_or_changed_are_refused(blast: App) -> None:
    results = blast.folder / "done"
    results.mkdir()
    for path in blast.plain.glob("*.tsv"):
        (results / path.name).write_bytes(path.read_bytes())
    blast.checked("done", "--plain", blast.plain)
    first = results / "q000.tsv"
    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join(lines[:-1]))
    assert "q000.tsv: 1 lines are missing, 0 are extra" in blast.refused("done", "--plain", blast.plain)
    first.write_text("".join(lines[:-1]) + lines[-1].replace("\t", "\t0", 1))
    assert "q000.tsv: 1 lines are missing, 1 are extra" in blast.refused("done", "--plain", blast.plain)


def test_a_piece_that_is_cut_off_is_no_input_of_a_merge(blast: App) -> None:
    piece = blast.folder / "piece.tsv"
    whole = (blast.plain / "q000.tsv").read_text()
    piece.write_text(whole)
    blast.program("merge.py", MAX_TARGETS, blast.folder / "m.tsv", piece)
    piece.write_text(whole[:-5])
    done = blast.program("merge.py", MAX_TARGETS, blast.folder / "m.tsv", piece, status=1)
    assert "not a whole line" in done.stderr
