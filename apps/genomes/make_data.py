#!/usr/bin/env python3
"""The genomes to compare: five bacterial genomes that Debian ships, unpacked.

    make_data.py --out data [--bases 0]

Four are of *Klebsiella* (package kleborate-examples), one is of *E. coli* (bowtie-examples). --bases takes only the beginning of the
first sequence of each, for a quick run.

Written below --out: genomes/NAME.fna, one for each genome.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

KLEBSIELLA = Path("/usr/share/doc/kleborate/examples/data")
NAMES = ("Klebs_HS11286", "MGH78578", "NTUH-K2044", "Klebs_Kp1084")
GENOMES = {name: KLEBSIELLA / f"{name}.fna.xz" for name in NAMES}
GENOMES["E_coli_NC_008253"] = Path("/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz")
UNPACK: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.decompress, ".gz": gzip.decompress}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bases", type=int, default=0)
    args = parser.parse_args()
    folder = args.out / "genomes"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in GENOMES.items():
        try:
            text = UNPACK[path.suffix](path.read_bytes()).decode("ascii")
        except OSError as error:
            package = "bowtie-examples" if path.suffix == ".gz" else "kleborate-examples"
            print(f"error: {path} cannot be read: {error.strerror}", file=sys.stderr)
            print(f"hint: apt-get install {package}", file=sys.stderr)
            return 2
        if args.bases:
            head, _, rest = text.partition("\n")
            text = f"{head}\n{rest.split('>', 1)[0].replace(chr(10), '')[: args.bases]}\n"
        (folder / f"{name}.fna").write_text(text, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
