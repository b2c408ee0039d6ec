#!/usr/bin/env python3
"""The task of the portal: cut positions out of one exposure and stack them.

    cut.py --size 41 e0001.fits.gz cut.fits 250.42,36.46 250.43,36.47

All that it does with pixels is `cutout.py` of apps/stacking. It takes positions as words, so that two requests share all their
inputs, and prints as JSON how many cutouts the stack has and on which node it was made.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from cutout import StackingError, read_hdu, stack_exposure, write_stacking


def node() -> str:
    """The node: the machine, and the folder of the executor there, because a machine may have several."""
    sandbox = os.environ.get("EYAS_SANDBOX", "")
    return f"{os.uname().nodename}:{os.path.dirname(sandbox)}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Cut positions out of one exposure and stack them.")
    parser.add_argument("--size", type=int, default=41, help="side of a cutout in pixels, odd")
    parser.add_argument("exposure")
    parser.add_argument("out")
    parser.add_argument("positions", nargs="+", help="RA,Dec in degrees")
    args = parser.parse_args()
    try:
        positions = []
        for text in args.positions:
            ra, dec = (float(value) for value in text.split(","))
            positions.append((ra, dec))
        image = read_hdu(args.exposure)
        stack, n_skipped = stack_exposure(image, positions, args.size)
        if stack.n_objects == 0:
            raise StackingError(f"none of the {len(positions)} positions lies inside {args.exposure}")
        write_stacking(args.out, stack, image, n_skipped, [])
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"node": node(), "n": stack.n_objects}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
