#!/usr/bin/env python3
"""How alike two genomes are: the percentage of k-mers that they share.

    compare.py A.fna B.fna [-k 21]

A k-mer is a word of k bases; a word and its reverse complement count as one, because a genome has two strands. The number that is
printed is 100 times the number of k-mers that are in both genomes, by the number of those that are in either (their Jaccard index). It
is 100 for a genome with itself, and the order of the genomes does not matter. Words with a base other than A, C, G and T are left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

CODES = np.full(256, 4, dtype=np.uint8)
for code, base in enumerate("ACGT"):
    CODES[ord(base)] = CODES[ord(base.lower())] = code


def k_mers(path: Path, k: int) -> np.ndarray:
    """The k-mers of a FASTA file, each once, as sorted numbers of 2 k bits. k is at most 31."""
    found = []
    for record in path.read_bytes().split(b">")[1:]:
        _, _, bases = record.partition(b"\n")
        codes = CODES[np.frombuffer(bases.replace(b"\n", b"").replace(b"\r", b""), dtype=np.uint8)]
        n = len(codes) - k + 1
        if n <= 0:
            continue
        forward, backward = np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64)
        is_word = np.ones(n, dtype=bool)
        for i in range(k):
            here = codes[i : i + n]
            is_word &= here < 4
            base = (here & 3).astype(np.uint64)
            forward = (forward << np.uint64(2)) | base
            backward |= (np.uint64(3) - base) << np.uint64(2 * i)
        found.append(np.minimum(forward, backward)[is_word])
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.uint64)


def shared_percent(a: Path, b: Path, k: int) -> float:
    first, second = k_mers(a, k), k_mers(b, k)
    n_shared = len(np.intersect1d(first, second, assume_unique=True))
    n_all = len(first) + len(second) - n_shared
    if n_all == 0:
        raise SystemExit(f"neither {a} nor {b} has a word of {k} bases")
    return 100 * n_shared / n_all


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("genomes", type=Path, nargs=2)
    parser.add_argument("-k", type=int, default=21, choices=range(1, 32), metavar="K")
    args = parser.parse_args()
    a, b = args.genomes
    print(f"shared k-mers: {shared_percent(a, b, args.k)!r} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
