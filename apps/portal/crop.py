"""Cut the smallest rectangle that holds some positions out of one exposure, with its projection: what SODA gives.

    tasks.py crop e0001.fits.gz crop.fits 0.01 250.42,36.46

0.01 is how far the rectangle reaches beyond the positions, the radius of a circle; RA and Dec in degrees. The pixels stay as they are;
what lies beyond the exposure is left out.
"""

from __future__ import annotations

import argparse
import math
import sys

from cutout import StackingError, radec2xy, read_hdu, tan_wcs, write_fits

# Cards that describe pixels, which `write_fits` writes anew.
OWN_CARDS = ("SIMPLE", "BITPIX", "NAXIS", "NAXIS1", "NAXIS2", "EXTEND", "BSCALE", "BZERO", "CRPIX1", "CRPIX2")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="crop", description="Cut the rectangle around some positions out of one exposure."
    )
    parser.add_argument("exposure")
    parser.add_argument("out")
    parser.add_argument("reach", type=float)
    parser.add_argument("places", nargs="+", metavar="RA,DEC")
    args = parser.parse_args(words)
    try:
        image = read_hdu(args.exposure)
        wcs = tan_wcs(image.header, image.name)
        reach = args.reach / math.sqrt(abs(wcs.cd11 * wcs.cd22 - wcs.cd12 * wcs.cd21))
        found = [radec2xy(wcs, *map(float, place.split(","))) for place in args.places]
        seen = [xy for xy in found if xy is not None]
        if len(seen) < len(found):
            raise StackingError(f"the region lies beside {image.name}, on the other side of the sky")
        x, y = zip(*seen, strict=True)
        left, right = max(math.floor(min(x) - reach), 0), min(math.ceil(max(x) + reach), image.width - 1)
        low, high = max(math.floor(min(y) - reach), 0), min(math.ceil(max(y) + reach), image.height - 1)
        if left > right or low > high:
            raise StackingError(f"the region lies beside {image.name}")
        rows = [
            [
                image.bscale * value + image.bzero
                for value in image.pixels[y * image.width + left :][: right - left + 1]
            ]
            for y in range(low, high + 1)
        ]
        cards = [(key, value, "") for key, value in image.header.items() if key not in OWN_CARDS]
        cards += [("CRPIX1", wcs.crpix1 - left, ""), ("CRPIX2", wcs.crpix2 - low, "")]
        write_fits(args.out, [rows], cards)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
