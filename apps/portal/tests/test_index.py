"""The index finds exactly the exposures that hold a cutout, as looking at each of them does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cutout import TanWcs, fits_inside, radec2xy
from portal import store
from portal.index import REACH_DEG_MAX, Index, position_of

SCALE = 1 / 3600


def exposures_around(places: list[tuple[float, float]], n: int, seed: int) -> list[dict[str, Any]]:
    """Exposures near these places, turned by any angle."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(n):
        ra, dec = places[number % len(places)]
        dec = float(np.clip(dec + rng.uniform(-0.3, 0.3), -90, 90))
        ra = float((ra + rng.uniform(-0.3, 0.3) / max(np.cos(np.radians(dec)), 0.001)) % 360)
        turn, size = rng.uniform(0, 2 * np.pi), int(rng.integers(100, 500))
        cos, sin = float(SCALE * np.cos(turn)), float(SCALE * np.sin(turn))
        values = {"ra": ra, "dec": dec, "crpix1": size / 2, "crpix2": size / 3, "cd11": -cos, "cd12": sin}
        values |= {"cd21": sin, "cd22": cos, "width": size, "height": size + 20, "size_bytes": 1}
        rows.append({**values, "address": f"e{number}", "band": "gr"[number % 2]})
    return rows


# The poles, where cells meet in another way, RA 0, and a corner of the base cells of HEALPix.
PLACES = [
    (250.4, 36.4),
    (0.01, 0.0),
    (359.95, 41.8),
    (120.0, 89.95),
    (10.0, -89.9),
    (45.0, 41.81),
    (90.0, 0.0),
]


def test_as_looking_at_each_exposure(tmp_path: Path) -> None:
    rows = exposures_around(PLACES, 1400, seed=3)
    index = Index(store.connect(f"sqlite:///{tmp_path}/i.db"))
    assert index.fill([dict(row) for row in rows]) == 1400
    assert index.count() == {"g": 700, "r": 700}
    rng = np.random.default_rng(4)
    ra, dec = [], []
    for number in range(700):
        x, y = PLACES[number % len(PLACES)]
        d = float(np.clip(y + rng.uniform(-0.4, 0.4), -90, 90))
        dec.append(d)
        ra.append(float((x + rng.uniform(-0.4, 0.4) / max(np.cos(np.radians(d)), 0.001)) % 360))
    found = index.covering("r", np.array(ra), np.array(dec), 41)
    n = 0
    for x, y, covering in zip(ra, dec, found, strict=True):
        expected = set()
        for row in rows:
            wcs = TanWcs(
                *(
                    float(row[key])
                    for key in ("ra", "dec", "crpix1", "crpix2", "cd11", "cd12", "cd21", "cd22")
                )
            )
            xy = radec2xy(wcs, x, y) if row["band"] == "r" else None
            if xy is not None and fits_inside(*xy, int(row["width"]), int(row["height"]), 41):
                expected.add(row["address"])
        assert {address for _, address in covering} == expected, (x, y)
        n += len(expected)
    assert n > 500, "there is something to find"


def test_corners_are_where_the_projection_has_them() -> None:
    rng = np.random.default_rng(1)
    wcs = {"ra": 50.2, "dec": -37.4, "crpix1": 100.0, "crpix2": 80.0}
    wcs |= {"cd11": -SCALE, "cd12": SCALE / 9, "cd21": SCALE / 7, "cd22": SCALE}
    for x, y in rng.uniform(0, 200, (20, 2)).tolist():
        again = radec2xy(TanWcs(*wcs.values()), *position_of(wcs, x, y))
        assert again == pytest.approx((x, y), abs=1e-6)


def test_an_exposure_that_is_too_wide_for_the_cells_is_refused(tmp_path: Path) -> None:
    row = exposures_around(PLACES[:1], 1, seed=1)[0]
    row |= {"cd11": 0.01, "cd22": 0.01}
    index = Index(store.connect(f"sqlite:///{tmp_path}/i.db"))
    with pytest.raises(ValueError, match=f"e0 reaches .* and cells allow {REACH_DEG_MAX}"):
        index.fill([row])
    assert index.count() == {}
