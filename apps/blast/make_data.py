#!/usr/bin/env python3
"""Real proteins to search: genes of Klebsiella and E. coli, found by prodigal in genomes that Debian ships.

    make_data.py --out data [--genomes 5] [--bases 0] [--query-files 8] [--queries 16] [--seed 12]

The genomes are those of the packages kleborate-examples (four) and bowtie-examples (one), read where they are
installed. --bases takes only the beginning of each, for a quick run. Queries are proteins drawn from the database, as
Zhang12 draws them from nr: relatives in the other genomes are what there is to find.

Written below --out:

    proteins.faa        the database, 25,181 proteins of the 5 whole genomes
    queries/q000.faa    --queries proteins each
    data.json           options and counts; written last, so it marks the end
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KLEBSIELLA = Path("/usr/share/doc/kleborate/examples/data")
E_COLI = Path("/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz")
GENOMES = [
    KLEBSIELLA / f"{name}.fna.xz" for name in ("Klebs_HS11286", "MGH78578", "NTUH-K2044", "Klebs_Kp1084")
]
GENOMES.append(E_COLI)
UNPACK: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.decompress, ".gz": gzip.decompress}


class DataError(Exception):
    """The data cannot be made; its text is one sentence for the user."""


def read_genome(path: Path, n_bases: int) -> str:
    """FASTA of one genome, or of the beginning of its first sequence."""
    package = "bowtie-examples" if path == E_COLI else "kleborate-examples"
    try:
        data = UNPACK[path.suffix](path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}\nhint: apt-get install {package}") from None
    text = data.decode("ascii")
    if not n_bases:
        return text
    head, _, rest = text.partition("\n")
    bases = rest.split(">", 1)[0].replace("\n", "")[:n_bases]
    return f"{head}\n{bases}\n"


def find_proteins(path: Path, n_bases: int, number: int) -> list[str]:
    """Proteins of one genome, each a FASTA record whose name begins with the genome's number."""
    with tempfile.TemporaryDirectory() as folder:
        genome, proteins = Path(folder) / "genome.fna", Path(folder) / "proteins.faa"
        genome.write_text(read_genome(path, n_bases), encoding="ascii")
        command = ["prodigal", "-q", "-i", str(genome), "-a", str(proteins), "-o", os.devnull]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise DataError("there is no program prodigal\nhint: apt-get install prodigal") from None
        text = proteins.read_text(encoding="ascii") if proteins.exists() else ""
    records = [f">g{number}_{record}" for record in text.split(">")[1:]]
    if done.returncode != 0 or not records:
        raise DataError(f"prodigal found no genes in {path}: {done.stderr.strip()[:200]}")
    return records


def make(args: argparse.Namespace) -> dict[str, int]:
    queries: Path = args.out / "queries"
    queries.mkdir(parents=True, exist_ok=True)
    (args.out / "data.json").unlink(missing_ok=True)
    for old in queries.glob("*.faa"):
        old.unlink()
    genomes = list(enumerate(GENOMES[: args.genomes]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda genome: find_proteins(genome[1], args.bases, genome[0]), genomes)
        proteins = [record for records in found for record in records]
    n_wanted = args.query_files * args.queries
    if n_wanted > len(proteins):
        raise DataError(f"{n_wanted} queries wanted, and there are {len(proteins)} proteins")
    (args.out / "proteins.faa").write_text("".join(proteins), encoding="ascii")
    chosen = random.Random(args.seed).sample(proteins, n_wanted)
    for number in range(args.query_files):
        part = chosen[number * args.queries : (number + 1) * args.queries]
        (queries / f"q{number:03d}.faa").write_text("".join(part), encoding="ascii")
    return {"proteins": len(proteins), "queries": n_wanted, "query_files": args.query_files}


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a protein database and queries from real genomes.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--genomes", type=int, default=len(GENOMES), choices=range(1, len(GENOMES) + 1))
    parser.add_argument("--bases", type=int, default=0, help="of each genome, 0: all (default)")
    parser.add_argument("--query-files", type=int, default=8)
    parser.add_argument("--queries", type=int, default=16, help="in each file")
    parser.add_argument("--seed", type=int, default=12, help="of the choice of queries")
    args = parser.parse_args()
    if args.bases and args.bases < 20_000:
        parser.error("--bases: prodigal needs 20,000 to learn what a gene looks like")
    if min(args.query_files, args.queries) < 1:
        parser.error("at least one query file with one query")
    try:
        made = make(args)
        options = {name: getattr(args, name) for name in ("genomes", "bases", "queries", "seed")}
        (args.out / "data.json").write_text(json.dumps({**options, **made}) + "\n", encoding="utf-8")
    except (OSError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"  {made['proteins']:,} proteins, {made['queries']} of them as queries in {args.out / 'queries'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
