"""`python -m eyas ARGS` becomes the program `eyas ARGS`."""

from __future__ import annotations

import os
import sys

from eyas import find_binary


def main() -> int:
    try:
        binary = find_binary()
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 127  # what a shell answers for a command that is not there
    # The program takes this process's place, so signals and the exit status are its own.
    os.execv(binary, ["eyas", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
