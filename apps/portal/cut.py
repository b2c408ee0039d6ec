#!/usr/bin/env python3
"""The task of the portal: cut positions out of one exposure and stack them.

    cut.py 41 e0001.fits.gz cut.fits 250.42,36.46 250.43,36.47

41 is the side of a cutout in pixels. All that it does with pixels is `cutout.py` of apps/stacking. It takes positions as words, so
that two requests share all their inputs, and prints as JSON how many cutouts the stack has and on which node it was made. Only the
portal calls it, so it reads its words without argparse, whose import takes a quarter of the program's time.
"""

from __future__ import annotations

import json
import os
import sys

from cutout import StackingError, read_hdu, stack_exposure, write_stacking


def node() -> str:
    """The node: the machine, and the folder of the executor there, because a machine may have several."""
    sandbox = os.environ.get("EYAS_SANDBOX", "")
    return f"{os.uname().nodename}:{os.path.dirname(sandbox)}"


def main() -> int:
    size, exposure, out, *words = sys.argv[1:]
    try:
        positions = [(float(ra), float(dec)) for ra, dec in (word.split(",") for word in words)]
        image = read_hdu(exposure)
        stack, n_skipped = stack_exposure(image, positions, int(size))
        if stack.n_objects == 0:
            raise StackingError(f"none of the {len(positions)} positions lies inside {exposure}")
        write_stacking(out, stack, image, n_skipped, [])
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"node": node(), "n": stack.n_objects}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
