"""Which exposures show a position: an index of the survey in a database, by cells of HEALPix.

An exposure is one row, with the cell of its centre. A cell is at least three times as wide as an exposure reaches from its centre,
so the exposures that may show a position are those in the position's cell and its eight neighbours. What is left is looked at
exactly, through the exposure's projection, with the rule that `cutout.py` has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa
from astropy import units  # type: ignore[import-untyped]
from astropy_healpix import HEALPix  # type: ignore[import-untyped]
from numpy.typing import NDArray

from .lists import BANDS
from .regions import Region
from .store import NUMBER_MAX

if TYPE_CHECKING:
    from cutout import Header

Floats = NDArray[np.float64]

# 27.5 arcminutes to a cell: exposures may reach 9 arcminutes from their centre.
NSIDE = 128
REACH_DEG_MAX = 0.15
# Cells, or exposures, that one statement asks for.
CELLS_AT_ONCE = 5000
# As parameters of a statement.
ADDRESSES_AT_ONCE = 500
# What interpolation looks at beyond a cutout, as `cutout.TAPS // 2`.
MARGIN_PIXELS = 2

metadata = sa.MetaData()
exposures = sa.Table(
    "exposures",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("address", sa.String, nullable=False, unique=True),
    sa.Column("band", sa.String(1), nullable=False),
    sa.Column("cell", sa.Integer, nullable=False),
    sa.Column("ra", sa.Float(53), nullable=False),
    sa.Column("dec", sa.Float(53), nullable=False),
    sa.Column("crpix1", sa.Float(53), nullable=False),
    sa.Column("crpix2", sa.Float(53), nullable=False),
    sa.Column("cd11", sa.Float(53), nullable=False),
    sa.Column("cd12", sa.Float(53), nullable=False),
    sa.Column("cd21", sa.Float(53), nullable=False),
    sa.Column("cd22", sa.Float(53), nullable=False),
    sa.Column("width", sa.Integer, nullable=False),
    sa.Column("height", sa.Integer, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Index("exposures_by_cell", "band", "cell", "id", "ra", "dec"),
)
# What an address does not show: the query of its URL, which may open the file for whoever has it.
queries = sa.Table(
    "exposure_queries",
    metadata,
    sa.Column("address", sa.String, primary_key=True),
    sa.Column("query", sa.String, nullable=False),
)
_WCS = ("ra", "dec", "crpix1", "crpix2", "cd11", "cd12", "cd21", "cd22", "width", "height")
# The index of the table has all that the first one asks for.
_NEAR = "SELECT cell, id, ra, dec FROM exposures WHERE band = :band AND cell IN ({})"
_WHOLE = f"SELECT id, address, {', '.join(_WCS)} FROM exposures WHERE id IN ({{}})"
_CHORD_MAX = 2 * np.sin(np.radians(REACH_DEG_MAX) / 2) * 1.000001


@dataclass(frozen=True)
class Exposure:
    """A file of the survey: its address below the survey's folder or at a web server, where it looks, and how large it is."""

    id: int
    address: str
    band: str
    ra: float
    dec: float
    corners: tuple[tuple[float, float], ...]
    # 0: the server did not say it.
    size_bytes: int


def _healpix() -> HEALPix:
    return HEALPix(nside=NSIDE, order="nested")


def cells_of(ra: Floats, dec: Floats) -> NDArray[np.int64]:
    """The cells of positions in degrees."""
    found = _healpix().lonlat_to_healpix(ra * units.deg, dec * units.deg)
    return np.asarray(found, np.int64)


def _chords(ra: Floats, dec: Floats, ra2: Floats, dec2: Floats) -> Floats:
    """Distances between points of the unit sphere, elementwise."""
    a, d, a2, d2 = (np.radians(one) for one in (ra, dec, ra2, dec2))
    across = np.cos(d) * np.cos(a) - np.cos(d2) * np.cos(a2), np.cos(d) * np.sin(a) - np.cos(d2) * np.sin(a2)
    found: Floats = np.sqrt(across[0] ** 2 + across[1] ** 2 + (np.sin(d) - np.sin(d2)) ** 2)
    return found


def pixels_of(wcs: dict[str, Floats], ra: Floats, dec: Floats) -> tuple[Floats, Floats]:
    """Pixel positions counted from 0 through TAN projections, elementwise; not a number behind the plane.

    Calabretta & Greisen 2002, equations 5 and 54, as `cutout.radec2xy` has them for one position.
    """
    ra0, dec0 = np.radians(wcs["ra"]), np.radians(wcs["dec"])
    turn, height = np.radians(ra) - ra0, np.radians(dec)
    depth = np.sin(height) * np.sin(dec0) + np.cos(height) * np.cos(dec0) * np.cos(turn)
    depth = np.where(depth > 0, depth, np.nan)
    xi = np.degrees(np.cos(height) * np.sin(turn) / depth)
    eta = np.degrees((np.sin(height) * np.cos(dec0) - np.cos(height) * np.sin(dec0) * np.cos(turn)) / depth)
    det = wcs["cd11"] * wcs["cd22"] - wcs["cd12"] * wcs["cd21"]
    x = (wcs["cd22"] * xi - wcs["cd12"] * eta) / det + wcs["crpix1"] - 1
    y = (wcs["cd11"] * eta - wcs["cd21"] * xi) / det + wcs["crpix2"] - 1
    return x, y


def position_of(wcs: dict[str, float], x: float, y: float) -> tuple[float, float]:
    """RA and Dec in degrees of a pixel position counted from 0."""
    u, v = x + 1 - wcs["crpix1"], y + 1 - wcs["crpix2"]
    xi = np.radians(wcs["cd11"] * u + wcs["cd12"] * v)
    eta = np.radians(wcs["cd21"] * u + wcs["cd22"] * v)
    ra0, dec0 = np.radians(wcs["ra"]), np.radians(wcs["dec"])
    down = np.cos(dec0) - eta * np.sin(dec0)
    ra = np.degrees(ra0 + np.arctan2(xi, down)) % 360.0
    dec = np.degrees(np.arctan2(np.sin(dec0) + eta * np.cos(dec0), np.hypot(xi, down)))
    return float(ra), float(dec)


class Index:
    """The exposures of a survey in a database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        metadata.create_all(engine)

    def fill(self, rows: Iterable[dict[str, Any]]) -> int:
        """Add exposures: the columns of `exposures` without `id` and `cell`. Gives how many. All or none.

        Raises
        ------
        ValueError : an exposure reaches further from its centre than cells allow.
        """
        n = 0
        with self._engine.begin() as connection:
            rows = iter(rows)
            while chunk := [row for row, _ in zip(rows, range(20_000), strict=False)]:
                reach = reach_deg(chunk)
                if reach.max() > REACH_DEG_MAX:
                    at = int(reach.argmax())
                    raise ValueError(f"{chunk[at]['address']} {too_wide(float(reach[at]))}")
                cells = cells_of(
                    np.array([row["ra"] for row in chunk]), np.array([row["dec"] for row in chunk])
                )
                for row, cell in zip(chunk, cells.tolist(), strict=True):
                    row["cell"] = cell
                connection.execute(sa.insert(exposures), chunk)
                n += len(chunk)
        return n

    def clear(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.delete(exposures))
            connection.execute(sa.delete(queries))

    def addresses(self) -> dict[str, str]:
        """All addresses, each with its band."""
        with self._engine.connect() as connection:
            return {
                row[0]: row[1] for row in connection.execute(sa.select(exposures.c.address, exposures.c.band))
            }

    def has_urls(self) -> bool:
        """Whether it was made of a list that has exposures at web servers."""
        asked = sa.select(exposures.c.id).where(sa.func.lower(exposures.c.address).like("http%://%")).limit(1)
        with self._engine.connect() as connection:
            return connection.execute(asked).first() is not None

    def remove(self, addresses: Sequence[str]) -> None:
        with self._engine.begin() as connection:
            for start in range(0, len(addresses), ADDRESSES_AT_ONCE):
                part = list(addresses[start : start + ADDRESSES_AT_ONCE])
                connection.execute(sa.delete(exposures).where(exposures.c.address.in_(part)))
                connection.execute(sa.delete(queries).where(queries.c.address.in_(part)))

    def set_queries(self, of: Mapping[str, str]) -> None:
        """The queries of URLs, by their addresses."""
        with self._engine.begin() as connection:
            for address, query in of.items():
                connection.execute(sa.delete(queries).where(queries.c.address == address))
                connection.execute(sa.insert(queries).values(address=address, query=query))

    def queries_of(self, addresses: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        with self._engine.connect() as connection:
            for start in range(0, len(addresses), ADDRESSES_AT_ONCE):
                part = list(addresses[start : start + ADDRESSES_AT_ONCE])
                rows = connection.execute(sa.select(queries).where(queries.c.address.in_(part)))
                found |= {row.address: row.query for row in rows}
        return found

    def count(self) -> dict[str, int]:
        """How many exposures each band has."""
        asked = sa.select(exposures.c.band, sa.func.count()).group_by(exposures.c.band)
        with self._engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(asked)}

    def covering(self, band: str, ra: Floats, dec: Floats, size: int) -> list[list[tuple[int, str]]]:
        """For each position (degrees) the id and address of every exposure of the band that holds its whole cutout.

        size : side of the cutout in pixels; 0 asks only that the position is inside.
        """
        if len(ra) == 0:
            return []
        healpix = _healpix()
        own = cells_of(ra, dec)
        # Cells at which only three others meet have a neighbour less, which is -1.
        with np.errstate(invalid="ignore"):
            around = np.vstack([own[None], np.asarray(healpix.neighbours(own), np.int64)])
        wanted = np.unique(around[around >= 0])
        near = self._rows(_NEAR, wanted.tolist(), {"band": band})
        found: list[list[tuple[int, str]]] = [[] for _ in range(len(ra))]
        if not near:
            return found
        cells, ids, ra2, dec2 = (np.array(column) for column in zip(*near, strict=True))
        order = np.argsort(cells, kind="stable")
        # Pairs of a position and an exposure of one of its nine cells.
        low = np.searchsorted(cells[order], around.ravel(), "left")
        n_each = np.searchsorted(cells[order], around.ravel(), "right") - low
        position = np.repeat(np.tile(np.arange(len(ra)), len(around)), n_each)
        first = np.repeat(low - np.concatenate([[0], np.cumsum(n_each)[:-1]]), n_each)
        exposure = order[np.arange(len(position)) + first]
        # Most are too far away, and their projections are not looked at.
        is_near = _chords(ra[position], dec[position], ra2[exposure], dec2[exposure]) <= _CHORD_MAX
        position, ids = position[is_near], ids[exposure[is_near]]
        rows = {row[0]: row for row in self._rows(_WHOLE, np.unique(ids).tolist(), {})}
        # An exposure may have gone since it was seen above.
        is_there = np.array([number in rows for number in ids.tolist()], bool)
        position, ids = position[is_there], ids[is_there]
        values = np.array([rows[number][2:] for number in ids.tolist()], np.float64).reshape(-1, len(_WCS))
        wcs = {name: values[:, at] for at, name in enumerate(_WCS)}
        x, y = pixels_of(wcs, ra[position], dec[position])
        reach = size // 2 + MARGIN_PIXELS if size else 0
        inside = (x >= reach) & (x < wcs["width"] - 1 - reach)
        inside &= (y >= reach) & (y < wcs["height"] - 1 - reach)
        for at, number in zip(position[inside].tolist(), ids[inside].tolist(), strict=True):
            found[at].append((number, rows[number][1]))
        return found

    def _rows(self, statement: str, numbers: list[int], more: dict[str, str]) -> list[Sequence[Any]]:
        """Rows of a statement about whole numbers that were computed here. As words of the statement thousands of them cost a tenth
        of what they cost as parameters.
        """
        rows: list[Sequence[Any]] = []
        with self._engine.connect() as connection:
            for start in range(0, len(numbers), CELLS_AT_ONCE):
                words = ",".join(str(int(number)) for number in numbers[start : start + CELLS_AT_ONCE])
                rows += connection.execute(sa.text(statement.format(words)), more).fetchall()
        return rows

    def _read(
        self,
        where: sa.ColumnElement[bool],
        limit: int,
        is_wanted: Callable[[Exposure], bool] = lambda _: True,
    ) -> list[Exposure]:
        """The first exposures that a statement finds and that are wanted."""
        found: list[Exposure] = []
        after = -1
        while True:
            asked = sa.select(exposures).where(where & (exposures.c.id > after)).order_by(exposures.c.id)
            with self._engine.connect() as connection:
                rows = connection.execute(asked.limit(limit)).mappings().all()
            for row in rows:
                one = _exposure_of(row)
                if is_wanted(one):
                    found.append(one)
                    if len(found) == limit:
                        return found
            if len(rows) < limit:
                return found
            after = rows[-1]["id"]

    def near(self, region: Region, bands: Sequence[str], limit: int) -> list[Exposure]:
        """The exposures that have a point in common with a region, in the order of their numbers; at most `limit`."""
        cells = _healpix().cone_search_lonlat(
            region.ra * units.deg, region.dec * units.deg, (region.radius + REACH_DEG_MAX) * units.deg
        )
        where = exposures.c.band.in_(bands) & exposures.c.cell.in_(np.asarray(cells).tolist())
        return self._read(where, limit, lambda one: region.meets(one.corners))

    def find(self, number: int) -> Exposure | None:
        if not 0 <= number <= NUMBER_MAX:
            return None
        return next(iter(self._read(exposures.c.id == number, 1)), None)

    def find_address(self, address: str) -> Exposure | None:
        return next(iter(self._read(exposures.c.address == address, 1)), None)

    def some(self, limit: int, bands: Sequence[str]) -> list[Exposure]:
        return self._read(exposures.c.band.in_(bands), limit)


def separation_deg(ra: float, dec: float, ra2: float, dec2: float) -> float:
    """Degrees between two positions (haversine)."""
    a, d, a2, d2 = np.radians([ra, dec, ra2, dec2])
    h = np.sin((d2 - d) / 2) ** 2 + np.cos(d) * np.cos(d2) * np.sin((a2 - a) / 2) ** 2
    return float(np.degrees(2 * np.arcsin(np.sqrt(min(1.0, float(h))))))


def _exposure_of(row: sa.RowMapping) -> Exposure:
    wcs = {name: float(row[name]) for name in _WCS}
    w, h = wcs["width"] - 0.5, wcs["height"] - 0.5
    corners = tuple(position_of(wcs, x, y) for x, y in ((-0.5, -0.5), (w, -0.5), (w, h), (-0.5, h)))
    middle = position_of(wcs, (wcs["width"] - 1) / 2, (wcs["height"] - 1) / 2)
    return Exposure(row["id"], row["address"], row["band"], *middle, corners, row["size_bytes"])


def reach_deg(rows: Sequence[Mapping[str, Any]]) -> Floats:
    """How far each exposure reaches from where its projection touches the sky, in degrees; the farthest corner counts."""
    cd = np.array([[row["cd11"], row["cd12"], row["cd21"], row["cd22"]] for row in rows])
    size = np.array([[row["width"], row["height"]] for row in rows])
    centre = np.array([[row["crpix1"], row["crpix2"]] for row in rows])
    reach = np.zeros(len(rows))
    for right, top in ((0, 0), (0, 1), (1, 0), (1, 1)):
        u, v = (size * (right, top) - centre).T
        reach = np.maximum(reach, np.hypot(cd[:, 0] * u + cd[:, 1] * v, cd[:, 2] * u + cd[:, 3] * v))
    return reach


def too_wide(reach: float) -> str:
    return f"reaches {reach:.3f} degrees from its centre, and cells allow {REACH_DEG_MAX}"


def band_of(header: Mapping[str, Any], band: str | None) -> str:
    """The band of an exposure: the one that is given, or else FILTER of its header.

    Raises
    ------
    StackingError : it is none of u, g, r, i, z.
    """
    from cutout import StackingError

    found = str(header.get("FILTER", "")).strip() if band is None else band
    if found not in BANDS:
        raise StackingError(
            f"no band is named for it, and FILTER of its header is {found[:20]!r} and none of {', '.join(BANDS)}"
        )
    return found


def row_of(path: Path, address: str, band: str | None) -> dict[str, Any]:
    """The row of an exposure, of its header, which says the band where it is None. Needs `apps/stacking` on the import path."""
    from cutout import open_fits, read_header

    with open_fits(str(path)) as file:
        header = read_header(file, path.name)
    return row_of_header(header, path.name, address, band, path.stat().st_size)


def row_of_header(
    header: Header, name: str, address: str, band: str | None, size_bytes: int
) -> dict[str, Any]:
    """The row of an exposure whose header is read already; `name` is its file's, for errors.

    Raises
    ------
    StackingError : the header has no projection that is understood, or no band.
    """
    from cutout import number, tan_wcs

    wcs = tan_wcs(header, name)
    return {
        "address": address,
        "band": band_of(header, band),
        "ra": wcs.crval1,
        "dec": wcs.crval2,
        "crpix1": wcs.crpix1,
        "crpix2": wcs.crpix2,
        "cd11": wcs.cd11,
        "cd12": wcs.cd12,
        "cd21": wcs.cd21,
        "cd22": wcs.cd22,
        "width": int(number(header, "NAXIS1", name)),
        "height": int(number(header, "NAXIS2", name)),
        "size_bytes": size_bytes,
    }
