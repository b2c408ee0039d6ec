#!/usr/bin/env python3
"""Write the workflow of a split BLAST search: all stages of Zhang12, table III, as a task list.

    plan.py --data data --results found --out tasks.jsonl [--pieces 6] [--max-targets 500] [--staging DIR]

fastasplit cuts the database into pieces, makeblastdb (the formatdb of today) formats each, blastp searches each
piece for each query file, and merge.py puts together what was found for one query file. Results are
found/q000.tsv, ...

An e-value depends on the size of the database, so every blastp is told that of the whole (-dbsize).

Intermediate files have `run:` locations and stay on the nodes. With --staging they go through home storage, in
that folder: the base case of Zhang12.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Formatted as version 4 a piece of a database is 3 files, as in Zhang12, table VIII.
SUFFIXES = ("phr", "pin", "psq")


class PlanError(Exception):
    """The workflow cannot be written; its text is one sentence for the user."""


def database_size(path: Path) -> tuple[int, int]:
    """Sequences and residues."""
    n_sequences = n_residues = 0
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith(">"):
                n_sequences += 1
            else:
                n_residues += len(line.strip())
    return n_sequences, n_residues


def plan(args: argparse.Namespace) -> list[dict[str, object]]:
    data, results = args.data.resolve(), args.results.resolve()
    queries = sorted(path.name for path in (data / "queries").glob("*.faa"))
    if not queries:
        raise PlanError(f"there are no queries in {data / 'queries'}")
    n_sequences, n_residues = database_size(data / "proteins.faa")
    if n_sequences < args.pieces:
        raise PlanError(f"{n_sequences} proteins cannot be split into {args.pieces} pieces")

    def made(*names: str) -> dict[str, str]:
        """Intermediate files: name in the sandbox and location."""
        folder = "run:" if args.staging is None else f"{args.staging.resolve()}/"
        return {name: folder + name for name in names}

    pieces = [f"pieces/proteins.faa_chunk_{number:07d}" for number in range(args.pieces)]
    tasks: list[dict[str, object]] = [
        {
            "id": "fastasplit",
            "command": ["fastasplit", "-f", "proteins.faa", "-o", "pieces", "-c", str(args.pieces)],
            "inputs": {"proteins.faa": str(data / "proteins.faa")},
            "outputs": made(*pieces),
            "label": "fastasplit",
        }
    ]
    databases = [f"db/{number:03d}" for number in range(args.pieces)]
    for piece, database in zip(pieces, databases):
        options = ["-in", piece, "-dbtype", "prot", "-blastdb_version", "4", "-out", database]
        tasks.append(
            {
                "id": f"makeblastdb-{Path(database).name}",
                "command": ["makeblastdb", *options],
                "inputs": made(piece),
                "outputs": made(*(f"{database}.{suffix}" for suffix in SUFFIXES)),
                "label": "makeblastdb",
            }
        )
    search = ["-evalue", "10", "-outfmt", "6 std score", "-dbsize", str(n_residues)]
    search += ["-max_target_seqs", str(args.max_targets)]
    for query in queries:
        found = []
        for database in databases:
            name = f"{Path(query).stem}-{Path(database).name}"
            found.append(f"hits/{name}.tsv")
            files = made(*(f"{database}.{suffix}" for suffix in SUFFIXES))
            tasks.append(
                {
                    "id": f"blastp-{name}",
                    "command": ["blastp", "-db", database, "-query", query, *search, "-out", found[-1]],
                    "inputs": {query: str(data / "queries" / query), **files},
                    "outputs": made(found[-1]),
                    "label": "blastp",
                }
            )
        out = f"{Path(query).stem}.tsv"
        tasks.append(
            {
                "id": f"merge-{Path(query).stem}",
                "command": [args.python, "merge.py", str(args.max_targets), out, *found],
                "inputs": {"merge.py": str(HERE / "merge.py"), **made(*found)},
                "outputs": {out: str(results / out)},
                "label": "merge",
            }
        )
    return tasks


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the workflow of a split BLAST search.")
    parser.add_argument("--data", type=Path, required=True, help="folder that make_data.py wrote")
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--out", type=Path, required=True, help="task list to write")
    parser.add_argument("--pieces", type=int, default=6, help="of the database")
    parser.add_argument("--max-targets", type=int, default=500, help="subjects reported for a query")
    parser.add_argument("--staging", type=Path, help="intermediate files through this folder of home storage")
    parser.add_argument("--python", default="python3", help="interpreter that the tasks call")
    args = parser.parse_args()
    if min(args.pieces, args.max_targets) < 1:
        parser.error("--pieces and --max-targets start at 1")
    try:
        tasks = plan(args)
        args.out.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    except (OSError, PlanError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"  {len(tasks):,} tasks over {args.pieces} pieces")
    return 0


if __name__ == "__main__":
    sys.exit(main())
