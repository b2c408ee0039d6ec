#!/usr/bin/env python3
"""Merge what blastp found in the pieces of a database into what it would have found in the whole.

    merge.py MAX_TARGETS OUT PIECE0.tsv PIECE1.tsv ...

Pieces are in the order in which the database was split; their lines are those of `-outfmt "6 std score"`, grouped by
query and subject as blastp writes them. `-max_target_seqs` applies to each piece, so the cap on subjects is
applied again here: for each query the MAX_TARGETS subjects with the best (e-value, score) are kept. Among equals blastp
takes the one that is later in the database, and so does this. It orders by more digits of the e-value than the three
that it prints, so lines that look equal here may stand in another order in an unsplit search.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

N_FIELDS = 13  # std is 12, and the score


class MergeError(Exception):
    """The pieces cannot be merged; its text is one sentence for the user."""


@dataclass
class Subject:
    """All alignments of one query with one sequence of the database, the best first."""

    e_value: float
    score: int
    piece: int
    lines: list[str] = field(default_factory=list)


def read_piece(path: Path, piece: int, queries: dict[str, list[Subject]]) -> None:
    """Add the subjects of one piece to each query's, in the order of the file."""
    last: tuple[str, str] | None = None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != N_FIELDS or not line.endswith("\n"):
                raise MergeError(f'{path}, line {number}: not a whole line of `-outfmt "6 std score"`')
            query, subject = fields[0], fields[1]
            found = queries.setdefault(query, [])
            if (query, subject) != last:
                found.append(Subject(float(fields[10]), int(fields[12]), piece))
                last = (query, subject)
            found[-1].lines.append(line)


def merge(max_targets: int, pieces: list[Path]) -> dict[str, list[Subject]]:
    queries: dict[str, list[Subject]] = {}
    for piece, path in enumerate(pieces):
        read_piece(path, piece, queries)
    for subjects in queries.values():
        # Stable: subjects of one piece stay in the order that blastp gave them.
        subjects.sort(key=lambda subject: (subject.e_value, -subject.score, -subject.piece))
        del subjects[max_targets:]
    return queries


def main() -> int:
    if len(sys.argv) < 4 or not sys.argv[1].isdigit():
        print("usage: merge.py MAX_TARGETS OUT PIECE.tsv ...", file=sys.stderr)
        return 2
    try:
        queries = merge(int(sys.argv[1]), [Path(name) for name in sys.argv[3:]])
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            for subjects in queries.values():
                out.writelines(line for subject in subjects for line in subject.lines)
    except (OSError, ValueError, MergeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
