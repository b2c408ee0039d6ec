"""A map of the sky around what was asked for, as SVG: exposures as outlines, objects as dots. No script and no other server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .index import Exposure

SIDE = 420
MARGIN = 34
# Objects further apart than this are in different maps.
FIELD_DEG = 2.0
OUTLINES_MAX = 120
# Objects all over the sky have thousands of fields, and each is compared with all.
FIELDS_MAX = 64
DOTS_MAX = 2000


def fields_of(objects: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Groups of objects that lie near the first one of their group, the largest group first; of at most FIELDS_MAX groups, so an
    object may be in none.
    """
    groups: list[list[dict[str, Any]]] = []
    for one in objects:
        for group in groups:
            scale = math.cos(math.radians(group[0]["dec"]))
            turn = (one["ra"] - group[0]["ra"] + 180) % 360 - 180
            if abs(turn) * scale < FIELD_DEG and abs(one["dec"] - group[0]["dec"]) < FIELD_DEG:
                group.append(one)
                break
        else:
            if len(groups) < FIELDS_MAX:
                groups.append([one])
    return sorted(groups, key=len, reverse=True)


def draw(objects: Sequence[dict[str, Any]], exposures: Sequence[Exposure]) -> dict[str, Any]:
    """What the template draws: east is left, north is up.

    objects : of one field, each with `ra`, `dec`, `line`, `state` (`found`, `outside` or `lost`) and `why`.
    """
    ra0, dec0 = objects[0]["ra"], objects[0]["dec"]
    scale = max(math.cos(math.radians(dec0)), 0.01)

    def flat(ra: float, dec: float) -> tuple[float, float]:
        return -((ra - ra0 + 180) % 360 - 180) * scale, dec - dec0

    dots = [(*flat(one["ra"], one["dec"]), one) for one in objects[:DOTS_MAX]]
    shapes = [[flat(*corner) for corner in one.corners] for one in exposures[:OUTLINES_MAX]]
    xs = [x for x, _, _ in dots] + [x for shape in shapes for x, _ in shape]
    ys = [y for _, y, _ in dots] + [y for shape in shapes for _, y in shape]
    half = max(max(xs) - min(xs), max(ys) - min(ys), 0.02) / 2
    middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    zoom = (SIDE / 2 - MARGIN) / half

    def at(x: float, y: float) -> tuple[float, float]:
        return round(SIDE / 2 + (x - middle_x) * zoom, 1), round(SIDE / 2 - (y - middle_y) * zoom, 1)

    arcmin = next((n for n in (1, 2, 5, 10, 20, 60, 120) if n / 60 * zoom > 60), 240)
    return {
        "side": SIDE,
        "outlines": [" ".join("{},{}".format(*at(*corner)) for corner in shape) for shape in shapes],
        "dots": [{"x": at(x, y)[0], "y": at(x, y)[1], **one} for x, y, one in dots],
        "bar": round(arcmin / 60 * zoom, 1),
        "bar_text": f"{arcmin} arcmin" if arcmin < 60 else f"{arcmin // 60}°",
        "centre": f"RA {ra0:.3f}°, Dec {dec0:+.3f}°",
        "n_left_out": max(0, len(objects) - DOTS_MAX),
    }
