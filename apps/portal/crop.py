"""Cut the square around a circle out of one exposure, with its projection: what SODA gives.

    tasks.py crop e0001.fits.gz crop.fits 250.42 36.46 0.01

RA, Dec and radius in degrees. The pixels stay as they are; what lies beyond the exposure is left out.
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
        prog="crop", description="Cut the square around a circle out of one exposure."
    )
    parser.add_argument("exposure")
    parser.add_argument("out")
    parser.add_argument("ra", type=float)
    parser.add_argument("dec", type=float)
    parser.add_argument("radius", type=float)
    args = parser.parse_args(words)
    try:
        image = read_hdu(args.exposure)
        wcs = tan_wcs(image.header, image.name)
        xy = radec2xy(wcs, args.ra, args.dec)
        reach = args.radius / math.sqrt(abs(wcs.cd11 * wcs.cd22 - wcs.cd12 * wcs.cd21))
        if xy is None:
            raise StackingError(f"the circle lies beside {image.name}, on the other side of the sky")
        left, right = max(math.floor(xy[0] - reach), 0), min(math.ceil(xy[0] + reach), image.width - 1)
        low, high = max(math.floor(xy[1] - reach), 0), min(math.ceil(xy[1] + reach), image.height - 1)
        if left > right or low > high:
            raise StackingError(f"the circle lies beside {image.name}")
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
