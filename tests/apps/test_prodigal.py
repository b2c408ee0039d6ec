"""A real program on real data, unmodified: the genes of five bacteria, every byte as from a plain run.

The files are made with the script of docs/guides/real-program.md, so that the page stays true; the pieces
are smaller and fewer than there, so that the test takes seconds.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import ROOT, Run, need_path, need_program
from lists import nothing_is_left

GUIDE = ROOT / "docs" / "guides" / "real-program.md"
LETTERS = 250_000
PIECES_PER_GENOME = 8


def make_pieces(at: Path) -> list[str]:
    """The guide's folder `genomes`; returns the pieces' names without their ending."""
    klebsiella = need_path("/usr/share/doc/kleborate/examples/data", "kleborate-examples")
    coli = need_path("/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz", "bowtie-examples")
    (at / "whole").mkdir()
    (at / "genomes").mkdir()
    for packed in klebsiella.glob("*.fna.xz"):
        (at / "whole" / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    (at / "whole" / coli.stem).write_bytes(gzip.decompress(coli.read_bytes()))
    (script,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert "700_000" in script
    (at / "split.py").write_text(script.replace("700_000", str(LETTERS)))
    whole = sorted(str(path) for path in (at / "whole").iterdir())
    assert len(whole) == 5
    subprocess.run([sys.executable, "split.py", *whole], cwd=at, check=True)
    for path in (at / "genomes").iterdir():
        if int(path.stem.rpartition("-")[2]) > PIECES_PER_GENOME:
            path.unlink()
    return sorted(path.stem for path in (at / "genomes").iterdir())


def test_genes_of_five_bacteria_are_those_of_a_plain_run(run: Run, tmp_path: Path) -> None:
    prodigal = need_program("prodigal")
    pieces = make_pieces(tmp_path)
    assert len(pieces) == 5 * PIECES_PER_GENOME
    # The line of the guide, word by word.
    (line,) = re.findall(r"^eyas map 'genomes.*$", GUIDE.read_text(), re.MULTILINE)
    assert line.count("'") == 4
    words = line.replace("'", "").split()
    done = run(*words[1:], timeout=300)
    assert "40 done, 0 failed, 0 cancelled" in done.stderr
    nothing_is_left(tmp_path)

    (tmp_path / "plain").mkdir()

    def plain(piece: str) -> None:
        command = [
            prodigal,
            "-q",
            "-i",
            f"genomes/{piece}.fna",
            "-a",
            f"plain/{piece}.faa",
            "-o",
            "/dev/null",
        ]
        subprocess.run(command, cwd=tmp_path, check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(plain, pieces))
    assert sorted(path.stem for path in (tmp_path / "genes").iterdir()) == pieces
    for piece in pieces:
        genes = (tmp_path / "genes" / f"{piece}.faa").read_bytes()
        assert genes == (tmp_path / "plain" / f"{piece}.faa").read_bytes()
        assert genes.count(b">") > 50
