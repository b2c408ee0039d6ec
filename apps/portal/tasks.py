#!/usr/bin/env python3
"""The program of all tasks of the portal. A slot keeps it for task after task, so Python starts once, and numpy is loaded once.

    tasks.py cut 41 e0001.fits.gz cut.fits 250.42,36.46
    tasks.py combine --psf-sigma 1.7 cuts stack.fits stack.png stack.jpg one.png
    tasks.py crop e0001.fits.gz crop.fits 0.01 250.42,36.46

The first word names the module whose `main` has the others. `work.py` packs this file and these modules into an archive.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import eyas.stay

MODULES = ("cut", "combine", "crop")


def main(words: list[str]) -> int:
    # Modules are loaded when the first task needs them: numpy takes longer than a cut.
    if not words or words[0] not in MODULES:
        print(f"error: {words[:1]} is none of {', '.join(MODULES)}", file=sys.stderr)
        return 2
    status: int = import_module(words[0]).main(words[1:])
    return status


if __name__ == "__main__":
    # Later tasks have the archive in other sandboxes, by the same name.
    sys.path[0] = os.path.basename(sys.path[0])
    sys.exit(eyas.stay.serve(main))
