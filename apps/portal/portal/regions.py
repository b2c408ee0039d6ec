"""Regions of the sky that a search names: circles, ranges of coordinates and polygons (SIA 2.0 §2.1.1, DALI 1.1 §3.3).

Regions reach over a few degrees, so what is inside is decided in the plane that touches the sky in their middle (TAN). There the
great circles between the corners of polygons and of exposures are straight lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RADIUS_DEG_MAX = 5.0
POINTS_MAX = 100
# Edges of equal declination are no great circles: so many degrees of right ascension of them are taken for straight at most.
STEP_DEG = 1.0


class Wrong(Exception):
    """A parameter that cannot be used; its text is one sentence for the user."""


@dataclass(frozen=True)
class Region:
    """A region of the sky. All in degrees.

    ra, dec, radius : the smallest known circle that holds the region.
    edge : the corners of the region; none where it is the circle itself.
    """

    ra: float
    dec: float
    radius: float
    edge: tuple[tuple[float, float], ...] = ()

    def meets(self, corners: Sequence[tuple[float, float]]) -> bool:
        """Whether the region has a point in common with the polygon of these corners, which lies near it."""
        if not self.edge:
            middle = np.zeros(2)
            ours = _tangent(self.ra, self.dec, corners)
            return _is_inside(middle, ours) or _distance(middle, ours) <= math.tan(math.radians(self.radius))
        a, b = _tangent(self.ra, self.dec, self.edge), _tangent(self.ra, self.dec, corners)
        return _is_inside(a[0], b) or _is_inside(b[0], a) or bool(_crossings(a, b).any())


def circle(ra: float, dec: float, radius: float, what: str) -> Region:
    """`what` names the parameter in errors, which are `Wrong`."""
    if not (0 <= ra <= 360 and -90 <= dec <= 90 and 0 < radius <= RADIUS_DEG_MAX):
        raise Wrong(f"{what} is a position in degrees and a radius of at most {RADIUS_DEG_MAX:g} degrees")
    return Region(ra, dec, radius)


def coordinate_range(ra1: float, ra2: float, dec1: float, dec2: float) -> Region:
    """All positions from `ra1` to `ra2` and from `dec1` to `dec2`; an infinite end is the end of the sky."""
    ra1, ra2 = 0.0 if ra1 == -math.inf else ra1, 360.0 if ra2 == math.inf else ra2
    dec1, dec2 = -90.0 if dec1 == -math.inf else dec1, 90.0 if dec2 == math.inf else dec2
    if not (0 <= ra1 <= ra2 <= 360 and -90 <= dec1 <= dec2 <= 90):
        raise Wrong(
            "POS=RANGE is the least and the largest right ascension (0 to 360 degrees), then the least and the largest declination; "
            "a range over right ascension 0 is given as two"
        )
    n = max(1, math.ceil((ra2 - ra1) / STEP_DEG))
    along = [ra1 + (ra2 - ra1) * at / n for at in range(n + 1)]
    edge = [(ra, dec1) for ra in along] + [(ra, dec2) for ra in reversed(along)]
    return _around(edge, "POS=RANGE")


def polygon(numbers: Sequence[float]) -> Region:
    """The polygon of these corners, `ra dec ra dec ...`. It is the side of its edge that is smaller."""
    if len(numbers) < 6 or len(numbers) % 2 or len(numbers) > 2 * POINTS_MAX:
        raise Wrong(f"POS=POLYGON has 3 to {POINTS_MAX} positions, each of two numbers")
    edge = list(zip(numbers[::2], numbers[1::2], strict=True))
    if any(not (0 <= ra <= 360 and -90 <= dec <= 90) for ra, dec in edge):
        raise Wrong("POS=POLYGON has positions in degrees, 0 to 360 and -90 to 90")
    found = _around(edge, "POS=POLYGON")
    flat = _tangent(found.ra, found.dec, found.edge)
    crossings = _crossings(flat, flat)
    n = len(flat)
    # Each edge meets itself and its two neighbours.
    for other in (-1, 0, 1):
        crossings[np.arange(n), (np.arange(n) + other) % n] = False
    if crossings.any():
        raise Wrong("the edges of POS=POLYGON cross each other")
    return found


def _around(edge: list[tuple[float, float]], what: str) -> Region:
    vectors = _vectors(edge)
    middle = vectors.mean(axis=0)
    length = float(np.linalg.norm(middle))
    radius = math.inf
    if length > 1e-9:
        middle /= length
        radius = float(np.degrees(np.arccos(np.clip(vectors @ middle, -1, 1)).max()))
    if radius > RADIUS_DEG_MAX:
        raise Wrong(f"{what} reaches over more than {2 * RADIUS_DEG_MAX:g} degrees: ask for parts of it")
    ra, dec = np.degrees([math.atan2(middle[1], middle[0]), math.asin(float(np.clip(middle[2], -1, 1)))])
    return Region(float(ra) % 360, float(dec), radius, tuple(edge))


def _vectors(positions: Sequence[tuple[float, float]]) -> Floats:
    ra, dec = np.radians(np.array(positions, np.float64)).T
    return np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=1)


def _tangent(ra: float, dec: float, positions: Sequence[tuple[float, float]]) -> Floats:
    """Positions in the plane that touches the sky at `ra`, `dec`, in units of the sky's radius: n x 2."""
    a, d = math.radians(ra), math.radians(dec)
    east = np.array([-math.sin(a), math.cos(a), 0.0])
    north = np.array([-math.sin(d) * math.cos(a), -math.sin(d) * math.sin(a), math.cos(d)])
    towards = np.array([math.cos(d) * math.cos(a), math.cos(d) * math.sin(a), math.sin(d)])
    vectors = _vectors(positions)
    flat: Floats = np.stack([vectors @ east, vectors @ north], axis=1) / (vectors @ towards)[:, None]
    return flat


def _is_inside(point: Floats, polygon: Floats) -> bool:
    """By the number of edges to the right of the point."""
    (x1, y1), (x2, y2) = polygon.T, np.roll(polygon, -1, axis=0).T
    spans = (y1 > point[1]) != (y2 > point[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        at = x1 + (point[1] - y1) / (y2 - y1) * (x2 - x1)
    return bool(np.count_nonzero(spans & (at > point[0])) % 2)


def _distance(point: Floats, polygon: Floats) -> float:
    """From a point to the nearest edge."""
    along = np.roll(polygon, -1, axis=0) - polygon
    length2 = np.maximum((along**2).sum(axis=1), 1e-30)
    at = np.clip(((point - polygon) * along).sum(axis=1) / length2, 0, 1)
    return float(np.hypot(*(polygon + at[:, None] * along - point).T).min())


def _crossings(a: Floats, b: Floats) -> NDArray[np.bool_]:
    """Which edges of `a` and of `b` have a point in common: len(a) x len(b)."""
    a2, b2 = np.roll(a, -1, axis=0), np.roll(b, -1, axis=0)

    def side(start: Floats, end: Floats, point: Floats) -> Floats:
        along, to = end - start, point - start
        return np.asarray(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0], np.float64)

    p, p2, q, q2 = a[:, None], a2[:, None], b[None], b2[None]
    apart = (np.maximum(p, p2) < np.minimum(q, q2)) | (np.maximum(q, q2) < np.minimum(p, p2))
    opposite = (side(p, p2, q) * side(p, p2, q2) <= 0) & (side(q, q2, p) * side(q, q2, p2) <= 0)
    return np.asarray(opposite & ~apart.any(axis=-1), np.bool_)
