"""The task of the portal: cut positions out of one exposure and stack them.

    tasks.py cut 41 e0001.fits.gz cut.fits 250.42,36.46 250.43,36.47

41 is the side of a cutout in pixels. All that it does with pixels is `cutout.py` of apps/stacking. It takes positions as words, so
that two requests share all their inputs, and prints as JSON how many cutouts the stack has and on which node it was made.
"""

from __future__ import annotations

import json
import os
import sys
from collections import OrderedDict

import eyas.stay
from cutout import Image, StackingError, read_hdu, stack_exposure, write_stacking

# Exposures that were used last stay unpacked, so many bytes of pixels: many ask for the same sky, and to unpack one takes longer than to
# cut a few positions out of it.
KEPT_BYTES_MAX = 64 << 20

_kept: OrderedDict[str, Image] = OrderedDict()


def image_of(exposure: str) -> Image:
    """An exposure of the sandbox. Errors: StackingError."""
    digest = eyas.stay.digest_of(exposure)
    if digest is None:
        return read_hdu(exposure)
    # Another exposure may have the same bytes.
    known = _kept.pop(digest, None)
    image = read_hdu(exposure) if known is None else known._replace(name=os.path.basename(exposure))
    _kept[digest] = image
    while len(_kept) > 1 and sum(n_bytes(one) for one in _kept.values()) > KEPT_BYTES_MAX:
        _kept.popitem(last=False)
    return image


def n_bytes(image: Image) -> int:
    return len(image.pixels) * image.pixels.itemsize


def node() -> str:
    """The node: the machine, and the folder of the executor there, because a machine may have several."""
    sandbox = os.environ.get("EYAS_SANDBOX", "")
    return f"{os.uname().nodename}:{os.path.dirname(sandbox)}"


def main(words: list[str]) -> int:
    size, exposure, out, *places = words
    try:
        positions = [(float(ra), float(dec)) for ra, dec in (place.split(",") for place in places)]
        image = image_of(exposure)
        stack, n_skipped = stack_exposure(image, positions, int(size))
        if stack.n_objects == 0:
            raise StackingError(f"none of the {len(positions)} positions lies inside {exposure}")
        write_stacking(out, stack, image, n_skipped, [])
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"node": node(), "n": stack.n_objects}))
    return 0
