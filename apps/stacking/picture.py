"""Draw the result of the stacking: an exposure, one cutout, the stack, signal-to-noise against N.

Only Pillow is used; its own scalable font makes the picture the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from cutout import number, radec2xy, read_hdu, read_targets, tan_wcs
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Floats = NDArray[np.float64]
Box = tuple[int, int, int, int]

PANEL = 410
GAP = 30
TOP = 118
LEFT_OF_PLOT = 62
HEIGHT = TOP + PANEL + 84
WIDTH = 4 * PANEL + 4 * GAP + LEFT_OF_PLOT + 10

INK = (28, 32, 40)
SOFT = (105, 112, 122)
RULE = (222, 226, 232)
PAPER = (255, 255, 255)
MEASURED = (20, 92, 170)
LAW = (214, 92, 30)
RING = (255, 176, 60)

M13_RADEC = (250.4226, 36.4602)  # degrees; centre of the real image
EXPOSURES_LOOKED_AT = 60  # to find one that shows the cluster


class PointLike(Protocol):
    @property
    def n(self) -> float: ...
    @property
    def snr(self) -> float: ...
    @property
    def snr_error(self) -> float: ...


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def grey(values: Floats, low: float, high: float) -> Image.Image:
    """Values as a grey picture, north-up convention of FITS: the first row at the bottom."""
    scaled = np.clip((values - low) / (high - low), 0.0, 1.0)
    return Image.fromarray((255 * scaled[::-1]).astype(np.uint8)).convert("RGB")


def noise_units(values: Floats) -> Floats:
    """Pixels in units of the scatter of the frame around the middle."""
    size = values.shape[0]
    offset = np.arange(size) - size // 2
    frame = values[np.hypot(offset[:, None], offset) > size / 4]
    units: Floats = (values - frame.mean()) / frame.std()
    return units


def cutout_panel(values: Floats) -> Image.Image:
    return grey(noise_units(values), -3.0, 7.0).resize((PANEL, PANEL), Image.Resampling.NEAREST)


def exposure_panel(sky: Path) -> tuple[Image.Image, int]:
    """The exposure nearest to the cluster, with the targets circled; and how many there are."""
    targets = read_targets(str(sky / "targets.csv"))
    best, best_distance = None, math.inf
    for path in sorted((sky / "exposures").glob("*.fits"))[:EXPOSURES_LOOKED_AT]:
        image = read_hdu(str(path))
        xy = radec2xy(tan_wcs(image.header, image.name), *M13_RADEC)
        if xy is None:
            continue
        distance = math.hypot(xy[0] - image.width / 2, xy[1] - image.height / 2)
        if distance < best_distance:
            best, best_distance = image, distance
    if best is None:
        return Image.new("RGB", (PANEL, PANEL), RULE), 0
    sky_level, cal = number(best.header, "SKY", best.name), number(best.header, "CAL", best.name)
    pixels = (np.array(best.pixels, np.float64).reshape(best.height, best.width) - sky_level) / cal
    picture = grey(np.arcsinh(pixels / 60.0), math.asinh(-2.0), math.asinh(25.0))
    scale = 2  # drawn at twice the size, so that the rings come out smooth
    picture = picture.resize((scale * PANEL, scale * PANEL), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(picture)
    wcs, zoom, n_inside = tan_wcs(best.header, best.name), scale * PANEL / best.width, 0
    for ra, dec in targets.values():
        xy = radec2xy(wcs, ra, dec)
        if xy is None or not (0 <= xy[0] < best.width and 0 <= xy[1] < best.height):
            continue
        n_inside += 1
        x, y, r = xy[0] * zoom, (best.height - xy[1]) * zoom, 13
        draw.ellipse((x - r, y - r, x + r, y + r), outline=RING, width=2)
    return picture.resize((PANEL, PANEL), Image.Resampling.LANCZOS), n_inside


def corner_marks(draw: ImageDraw.ImageDraw, left: int) -> None:
    """Four ticks that point at the middle of a panel without covering it."""
    x, y = left + PANEL // 2, TOP + PANEL // 2
    for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        draw.line((x + 62 * dx, y + 62 * dy, x + 92 * dx, y + 92 * dy), fill=RING, width=3)


def plot(draw: ImageDraw.ImageDraw, box: Box, points: Sequence[PointLike], snr_one: float) -> None:
    """Signal-to-noise against the number of cutouts, both axes logarithmic."""
    left, top, right, bottom = box
    n_last = max(p.n for p in points)
    x_high = math.log10(n_last) + 0.25
    y_low, y_high = math.log10(0.05), math.log10(max(max(p.snr for p in points), 1.0)) + 0.3

    def at(n: float, snr: float) -> tuple[float, float]:
        x = left + (right - left) * (math.log10(n) + 0.2) / (x_high + 0.2)
        y = bottom - (bottom - top) * (math.log10(max(snr, 1e-9)) - y_low) / (y_high - y_low)
        return x, min(max(y, top), bottom)

    draw_grid(draw, box, at, x_high, y_low, y_high)
    draw.line((*at(1, snr_one), *at(n_last, snr_one * math.sqrt(n_last))), fill=LAW, width=3)
    for p in points:
        x, y = at(p.n, p.snr)
        low, high = at(p.n, p.snr - p.snr_error)[1], at(p.n, p.snr + p.snr_error)[1]
        draw.line((x, low, x, high), fill=MEASURED, width=2)
        if p.snr > 10**y_low:
            draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill=MEASURED)
    draw.rectangle(box, outline=SOFT)

    x, y = left + 18, top + 16
    draw.ellipse((x + 9, y + 5, x + 19, y + 15), fill=MEASURED)
    draw.text((x + 40, y), "measured", fill=INK, font=font(16))
    draw.line((x, y + 36, x + 28, y + 36), fill=LAW, width=3)
    draw.text((x + 40, y + 26), f"{snr_one:.2f} sqrt(N)", fill=INK, font=font(16))


def draw_grid(
    draw: ImageDraw.ImageDraw,
    box: Box,
    at: Callable[[float, float], tuple[float, float]],
    x_high: float,
    y_low: float,
    y_high: float,
) -> None:
    left, top, right, bottom = box
    for power in range(math.floor(x_high) + 1):
        x = at(10.0**power, 1.0)[0]
        draw.line((x, top, x, bottom), fill=RULE)
        draw.text((x, bottom + 8), f"{10**power:,}", fill=SOFT, font=font(15), anchor="mt")
    for power in range(math.ceil(y_low), math.floor(y_high) + 1):
        y = at(1.0, 10.0**power)[1]
        draw.line((left, y, right, y), fill=RULE)
        draw.text((left - 8, y), f"{10.0**power:g}", fill=SOFT, font=font(15), anchor="rm")


def draw(
    path: Path,
    sky: Path,
    single: Floats,
    stacked: Floats,
    points: Sequence[PointLike],
    summary: Mapping[str, object],
) -> None:
    """Write the picture of a finished stacking."""
    canvas = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    pen = ImageDraw.Draw(canvas)
    lefts = [GAP + number * (PANEL + GAP) for number in range(4)]
    lefts[3] += LEFT_OF_PLOT - GAP // 2
    n, snr = int(str(summary["n_cutouts"])), float(str(summary["snr"]))
    snr_one = float(str(summary["snr_one_expected"]))
    exposure, n_inside = exposure_panel(sky)
    panels = [
        ("One exposure of the field of M13", exposure, f"{n_inside} targets circled, none of them visible"),
        ("One target in one exposure", cutout_panel(single), f"expected signal-to-noise {snr_one:.2f}"),
        (f"Stack of {n:,} such cutouts", cutout_panel(stacked), f"measured signal-to-noise {snr:.1f}"),
    ]
    pen.text((GAP, 24), "Stacking: sources that no single image shows", fill=INK, font=font(32))
    for left, (title, picture, note) in zip(lefts, panels, strict=False):
        canvas.paste(picture, (left, TOP))
        pen.text((left, TOP - 12), title, fill=INK, font=font(20), anchor="ls")
        pen.text((left, TOP + PANEL + 10), note, fill=SOFT, font=font(17))
    for left in lefts[1:3]:
        corner_marks(pen, left)
    pen.text(
        (lefts[1], TOP + PANEL + 38),
        "both from -3 to +7 times the scatter of their own pixels",
        fill=SOFT,
        font=font(17),
    )
    left = lefts[3]
    pen.text((left, TOP - 12), "Signal-to-noise against N", fill=INK, font=font(20), anchor="ls")
    plot(pen, (left, TOP, left + PANEL - 20, TOP + PANEL), points, snr_one)
    pen.text(
        (left + (PANEL - 20) / 2, TOP + PANEL + 34),
        "number of cutouts N",
        fill=SOFT,
        font=font(17),
        anchor="mt",
    )
    canvas.save(path, optimize=True)
