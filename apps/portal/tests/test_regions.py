"""A search finds the exposures that have a point in common with a region, as looking at many points of each does."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from portal import regions, store
from portal.index import Index, pixels_of, separation_deg
from portal.regions import Region, Wrong
from test_index import PLACES, exposures_around


def drawn(rng: np.random.Generator, ra: float, dec: float) -> list[tuple[Region, str, list[float]]]:
    """A circle, a range and a polygon near a place."""
    size = float(rng.uniform(0.02, 0.4))
    wide = min(size / max(math.cos(math.radians(dec)), 0.02), 60.0)
    found: list[tuple[Region, str, list[float]]] = [(Region(ra, dec, size), "circle", [ra, dec, size])]
    ends = [max(ra - wide, 0.0), min(ra + wide, 360.0), max(dec - size, -90.0), min(dec + size, 90.0)]
    found.append((regions.coordinate_range(*ends), "range", ends))
    turns = np.sort(rng.uniform(0, 2 * math.pi, 5))
    around = [
        ((ra + wide * math.cos(t)) % 360, min(max(dec + size * math.sin(t), -90.0), 90.0)) for t in turns
    ]
    numbers = [value for position in around for value in position]
    try:
        found.append((regions.polygon(numbers), "polygon", numbers))
    except Wrong as error:
        assert "cross" in str(error)
    return found


def holds(kind: str, numbers: list[float], region: Region, ra: float, dec: float) -> bool:
    """The definition, for one position. Of a polygon: the turns of its corners around the position."""
    if kind == "circle":
        return separation_deg(ra, dec, numbers[0], numbers[1]) <= numbers[2]
    if kind == "range":
        return numbers[0] <= ra <= numbers[1] and numbers[2] <= dec <= numbers[3]

    def vector(ra: float, dec: float) -> np.ndarray:
        a, d = math.radians(ra), math.radians(dec)
        return np.array([math.cos(d) * math.cos(a), math.cos(d) * math.sin(a), math.sin(d)])

    at = vector(ra, dec)
    if separation_deg(ra, dec, region.ra, region.dec) > 80:
        return False
    around = []
    for corner in region.edge:
        towards = vector(*corner)
        around.append(towards - at * float(at @ towards))
    turn = 0.0
    for one, two in zip(around, [*around[1:], around[0]], strict=True):
        turn += math.atan2(float(np.cross(one, two) @ at), float(one @ two))
    return abs(turn) > math.pi


def test_a_region_finds_what_points_of_exposures_find(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    index = Index(store.connect(f"sqlite:///{tmp_path}/i.db"))
    rows = exposures_around(PLACES, 240, seed=5)
    index.fill(rows)
    n_met = n_apart = 0
    for place in PLACES * 2:
        for region, kind, numbers in drawn(rng, *place):
            found = {one.address for one in index.near(region, ["g", "r"], 1000)}
            # Positions of the region, and which exposures show them.
            shown: set[str] = set()
            reach = region.radius
            u = rng.uniform(-reach, reach, 1500), rng.uniform(-reach, reach, 1500)
            angle, far = np.arctan2(*u), np.radians(np.hypot(*u))
            d0, a0 = math.radians(region.dec), math.radians(region.ra)
            d = np.arcsin(
                np.clip(math.sin(d0) * np.cos(far) + math.cos(d0) * np.sin(far) * np.cos(angle), -1, 1)
            )
            a = a0 + np.arctan2(
                np.sin(angle) * np.sin(far) * math.cos(d0), np.cos(far) - math.sin(d0) * np.sin(d)
            )
            ra, dec = np.degrees(a) % 360, np.degrees(d)
            inside = np.array([holds(kind, numbers, region, *one) for one in zip(ra, dec, strict=True)], bool)
            for row in rows:
                wcs = {
                    name: np.full(int(inside.sum()), float(row[name]))
                    for name in row
                    if name not in ("address", "band")
                }
                x, y = pixels_of(wcs, ra[inside], dec[inside])
                if np.any((x >= 0) & (y >= 0) & (x <= row["width"] - 1) & (y <= row["height"] - 1)):
                    shown.add(row["address"])
            assert shown <= found, f"{kind} {numbers} leaves out {shown - found}"
            n_met += len(shown)
            # What is found and shows none of the points touches the region's edge at most.
            for row in rows:
                if row["address"] in found - shown:
                    far_deg = separation_deg(row["ra"], row["dec"], region.ra, region.dec)
                    assert far_deg <= region.radius + 0.15, f"{kind} {numbers} finds {row}"
            n_apart += len(rows) - len(found)
    assert n_met > 200 and n_apart > 200


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ([1.0, 2.0, 3.0, 4.0], "3 to 100 positions"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "3 to 100 positions"),
        ([0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0], "cross"),
        ([0.0, 0.0, 90.0, 0.0, 0.0, 89.0], "more than 10 degrees"),
        ([0.0, 0.0, 1.0, 0.0, 0.0, math.inf], "in degrees"),
    ],
)
def test_a_polygon_that_cannot_be_searched(numbers: list[float], why: str) -> None:
    with pytest.raises(Wrong, match=why):
        regions.polygon(numbers)


def test_a_range_at_the_pole_and_one_without_an_end() -> None:
    cap = regions.coordinate_range(0, 360, 88, math.inf)
    assert cap.dec > 89.99 and cap.radius == pytest.approx(2, abs=0.01)
    near = [(10.0, 89.0), (12.0, 89.0), (12.0, 89.1)]
    assert cap.meets(near) and cap.meets([(359.9, 88.5), (0.1, 88.5), (0.0, 88.6)])
    assert not cap.meets([(10.0, 87.0), (12.0, 87.0), (11.0, 87.5)])
    for ends in ((10.0, 5.0, 0.0, 1.0), (0.0, 1.0, 5.0, 4.0), (-5.0, 1.0, 0.0, 1.0), (0.0, 361.0, 0.0, 1.0)):
        with pytest.raises(Wrong, match="POS=RANGE is"):
            regions.coordinate_range(*ends)
    with pytest.raises(Wrong, match="more than 10 degrees"):
        regions.coordinate_range(-math.inf, math.inf, 0, 1)
