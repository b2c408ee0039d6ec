"""The survey for programs of the Virtual Observatory: Simple Image Access 2.0, DataLink 1.1 and cutouts by SODA 1.0.

A search gives exposures; the link of each leads to its file and to a service that cuts a circle out of it. A cutout is a task of
the cluster, so it goes to a node that has the exposure. The survey is public here: no account is needed, and how often an address
may ask for cutouts is limited.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.background import BackgroundTask

from . import regions
from .api import Here
from .faces import CUTOUTS_AT_ONCE, Portal, address_of
from .index import Exposure, separation_deg
from .lists import BANDS
from .regions import Region, Wrong
from .surveys import is_url, name_of
from .work import LOOK_UP_S, kind_of_failure

router = APIRouter(prefix="/vo", tags=["Virtual Observatory"])

VOTABLE = "application/x-votable+xml"
DATALINK = "application/x-votable+xml;content=datalink"
ROWS_MAX = 1000
REGIONS_MAX = 20
CUTOUT_S_MAX = 60.0
# What files of cutouts are called, below the portal's folder.
CUTOUTS, _CUTOUT = "cutouts", re.compile(r"[0-9a-f]{24}\.fits")
NOT_GIVEN = "the address of this exposure is a secret of the portal: ask for a cutout"
# The edges of the bands of the Sloan survey, in metres.
EDGES_M = {
    "u": (3.0e-7, 4.0e-7),
    "g": (3.9e-7, 5.5e-7),
    "r": (5.5e-7, 7.0e-7),
    "i": (6.8e-7, 8.4e-7),
    "z": (8.2e-7, 1.1e-6),
}
PUBLISHER = "ivo://eyas.portal/survey?"

# Name, datatype, arraysize, unit, UCD and utype of the columns of ObsCore 1.1 that Simple Image Access asks for.
COLUMNS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("dataproduct_type", "char", "*", "", "meta.code.class", "obscore:ObsDataset.dataProductType"),
    ("calib_level", "int", "", "", "meta.code;obs.calib", "obscore:ObsDataset.calibLevel"),
    ("obs_collection", "char", "*", "", "meta.id", "obscore:DataID.collection"),
    ("obs_id", "char", "*", "", "meta.id", "obscore:DataID.observationID"),
    ("obs_publisher_did", "char", "*", "", "meta.ref.ivoid", "obscore:Curation.publisherDID"),
    ("access_url", "char", "*", "", "meta.ref.url", "obscore:Access.reference"),
    ("access_format", "char", "*", "", "meta.code.mime", "obscore:Access.format"),
    ("access_estsize", "long", "", "kbyte", "phys.size;meta.file", "obscore:Access.size"),
    ("target_name", "char", "*", "", "meta.id;src", "obscore:Target.name"),
    (
        "s_ra",
        "double",
        "",
        "deg",
        "pos.eq.ra",
        "obscore:Char.SpatialAxis.Coverage.Location.Coord.Position2D.Value2.C1",
    ),
    (
        "s_dec",
        "double",
        "",
        "deg",
        "pos.eq.dec",
        "obscore:Char.SpatialAxis.Coverage.Location.Coord.Position2D.Value2.C2",
    ),
    (
        "s_fov",
        "double",
        "",
        "deg",
        "phys.angSize;instr.fov",
        "obscore:Char.SpatialAxis.Coverage.Bounds.Extent.diameter",
    ),
    ("s_region", "char", "*", "", "pos.outline;obs.field", "obscore:Char.SpatialAxis.Coverage.Support.Area"),
    (
        "s_resolution",
        "double",
        "",
        "arcsec",
        "pos.angResolution",
        "obscore:Char.SpatialAxis.Resolution.refval.value",
    ),
    (
        "t_min",
        "double",
        "",
        "d",
        "time.start;obs.exposure",
        "obscore:Char.TimeAxis.Coverage.Bounds.Limits.StartTime",
    ),
    (
        "t_max",
        "double",
        "",
        "d",
        "time.end;obs.exposure",
        "obscore:Char.TimeAxis.Coverage.Bounds.Limits.StopTime",
    ),
    (
        "t_exptime",
        "double",
        "",
        "s",
        "time.duration;obs.exposure",
        "obscore:Char.TimeAxis.Coverage.Support.Extent",
    ),
    ("t_resolution", "double", "", "s", "time.resolution", "obscore:Char.TimeAxis.Resolution.Refval.value"),
    (
        "em_min",
        "double",
        "",
        "m",
        "em.wl;stat.min",
        "obscore:Char.SpectralAxis.Coverage.Bounds.Limits.LoLimit",
    ),
    (
        "em_max",
        "double",
        "",
        "m",
        "em.wl;stat.max",
        "obscore:Char.SpectralAxis.Coverage.Bounds.Limits.HiLimit",
    ),
    (
        "em_res_power",
        "double",
        "",
        "",
        "spect.resolution",
        "obscore:Char.SpectralAxis.Resolution.ResolPower.refVal",
    ),
    ("o_ucd", "char", "*", "", "meta.ucd", "obscore:Char.ObservableAxis.ucd"),
    ("pol_states", "char", "*", "", "meta.code;phys.polarization", "obscore:Char.PolarizationAxis.stateList"),
    ("facility_name", "char", "*", "", "meta.id;instr.tel", "obscore:Provenance.ObsConfig.Facility.name"),
    ("instrument_name", "char", "*", "", "meta.id;instr", "obscore:Provenance.ObsConfig.Instrument.name"),
)
LINK_COLUMNS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("ID", "char", "*", "", "meta.id;meta.main", ""),
    ("access_url", "char", "*", "", "meta.ref.url", ""),
    ("service_def", "char", "*", "", "meta.ref", ""),
    ("error_message", "char", "*", "", "meta.code.error", ""),
    ("semantics", "char", "*", "", "meta.code", ""),
    ("description", "char", "*", "", "meta.note", ""),
    ("content_type", "char", "*", "", "meta.code.mime", ""),
    ("content_length", "long", "", "byte", "phys.size;meta.file", ""),
)


# ---------------------------------------------------------------------------------------- VOTables


def _field(name: str, datatype: str, arraysize: str, unit: str, ucd: str, utype: str) -> str:
    given = {
        "name": name,
        "datatype": datatype,
        "arraysize": arraysize,
        "unit": unit,
        "ucd": ucd,
        "utype": utype,
    }
    # An empty cell of a whole number needs a value that stands for it.
    inner = '<VALUES null="-1"/>' if datatype == "long" else ""
    words = " ".join(f"{key}={quoteattr(value)}" for key, value in given.items() if value)
    return f"<FIELD {words}>{inner}</FIELD>" if inner else f"<FIELD {words}/>"


def _votable(
    status: str, text: str, columns: Sequence[tuple[str, ...]], rows: Sequence[Sequence[Any]], more: str = ""
) -> str:
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append('<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3">')
    lines.append('<RESOURCE type="results">')
    lines.append(f'<INFO name="QUERY_STATUS" value="{status}">{escape(text)}</INFO>')
    if columns:
        lines.append("<TABLE>")
        lines += [_field(*column) for column in columns]
        lines.append("<DATA><TABLEDATA>")
        for row in rows:
            cells = ("" if value is None else escape(str(value)) for value in row)
            lines.append("<TR>" + "".join(f"<TD>{cell}</TD>" for cell in cells) + "</TR>")
        lines.append("</TABLEDATA></DATA></TABLE>")
        if len(rows) and status == "OVERFLOW":
            lines.append('<INFO name="QUERY_STATUS" value="OVERFLOW"/>')
    lines += ["</RESOURCE>", more, "</VOTABLE>"]
    return "\n".join(line for line in lines if line) + "\n"


def _error(text: str) -> Response:
    return Response(_votable("ERROR", text, (), ()), 400, media_type=VOTABLE)


def _parameters(request: Request, known: Sequence[str]) -> dict[str, list[str]]:
    """Parameters by their names in capitals, of which case says nothing."""
    found: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        found.setdefault(name.upper(), []).append(value)
    unknown = [name for name in found if name not in known]
    if unknown:
        raise Wrong(f"there is no parameter {unknown[0][:40]}; there are {', '.join(known)}")
    return found


def _numbers(text: str, n: int, what: str) -> list[float]:
    words = text.split()
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if len(numbers) != n or any(math.isnan(one) for one in numbers):
        raise Wrong(f"{what} has {n} numbers, and {text[:60]!r} has not")
    return numbers


def _circle(text: str, what: str = "CIRCLE") -> Region:
    ra, dec, radius = _numbers(text, 3, what)
    return regions.circle(ra, dec, radius, what)


def _position(text: str) -> Region:
    kind, _, numbers = text.strip().partition(" ")
    match kind.upper():
        case "CIRCLE":
            return _circle(numbers, "POS=CIRCLE")
        case "RANGE":
            ra1, ra2, dec1, dec2 = _numbers(numbers, 4, "POS=RANGE")
            return regions.coordinate_range(ra1, ra2, dec1, dec2)
        case "POLYGON":
            return regions.polygon(_numbers(numbers, len(numbers.split()), "POS=POLYGON"))
    raise Wrong(
        f"POS is `CIRCLE RA DEC RADIUS`, `RANGE RA1 RA2 DEC1 DEC2` or `POLYGON RA DEC RA DEC RA DEC ...`, and not {kind[:20]!r}"
    )


def did_of(exposure: Exposure) -> str:
    return PUBLISHER + exposure.address


def _bands(intervals: Sequence[str]) -> list[str]:
    """The bands that overlap one of these intervals of wavelengths, or all."""
    if not intervals:
        return list(BANDS)
    found: set[str] = set()
    for text in intervals:
        words = text.replace("+Inf", "inf").replace("-Inf", "-inf").split()
        low, high = _numbers(" ".join(words * 2 if len(words) == 1 else words), 2, "BAND")
        found |= {band for band, edges in EDGES_M.items() if edges[0] <= high and edges[1] >= low}
    return sorted(found)


def _kilobytes(size_bytes: int) -> int | None:
    return max(size_bytes // 1000, 1) if size_bytes else None


def _row(exposure: Exposure, base: str) -> list[Any]:
    low, high = EDGES_M[exposure.band]
    radius = max(separation_deg(exposure.ra, exposure.dec, *corner) for corner in exposure.corners)
    region = "POLYGON ICRS " + " ".join(f"{ra:.6f} {dec:.6f}" for ra, dec in exposure.corners)
    return [
        *("image", 2, "eyas survey", exposure.address, did_of(exposure)),
        *(f"{base}/vo/links?ID={exposure.id}", DATALINK, _kilobytes(exposure.size_bytes), None),
        *(f"{exposure.ra:.7f}", f"{exposure.dec:.7f}", f"{2 * radius:.5f}", region, None),
        *(None, None, None, None, low, high, None, "phot.count", None, None, None),
    ]


# ---------------------------------------------------------------------------------------- routes


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


@router.get("/sia2/query", summary="Search for exposures (Simple Image Access 2.0)")
def search(request: Request, portal: Here) -> Response:
    """Parameters: POS (`CIRCLE RA DEC RADIUS`, `RANGE RA1 RA2 DEC1 DEC2` or `POLYGON RA DEC RA DEC RA DEC ...`, in degrees), BAND
    (wavelengths in metres) and MAXREC.
    """
    try:
        given = _parameters(request, ("POS", "BAND", "MAXREC", "FORMAT", "RESPONSEFORMAT"))
        bands = _bands(given.get("BAND", ()))
        wanted = [_position(text) for text in given.get("POS", ())]
        if len(wanted) > REGIONS_MAX:
            raise Wrong(f"there are {len(wanted)} POS, and may be at most {REGIONS_MAX}")
        limit_text = given.get("MAXREC", [str(ROWS_MAX)])[-1]
        if not limit_text.isdecimal():
            raise Wrong("MAXREC is a whole number")
        # A number of more digits is larger, whatever it is.
        limit = min(int(limit_text[-10:]) if len(limit_text) <= 10 else ROWS_MAX, ROWS_MAX)
    except Wrong as error:
        return _error(str(error))
    found: dict[int, Exposure] = {}
    if limit:
        for region in wanted:
            found |= {one.id: one for one in portal.index.near(region, bands, limit + 1)}
        if not wanted:
            found = {one.id: one for one in portal.index.some(limit + 1, bands)}
    rows = [_row(found[number], _base(request)) for number in sorted(found)[:limit]]
    status = "OVERFLOW" if len(found) > limit or (limit == 0 and limit_text == "0") else "OK"
    return Response(_votable(status, "", COLUMNS, rows), media_type=VOTABLE)


@router.get("/sia2/capabilities", summary="What the search can do (VOSI)")
def capabilities(request: Request) -> Response:
    base = _base(request)
    parts = []
    for standard, path in (
        ("ivo://ivoa.net/std/SIA#query-2.0", "/vo/sia2/query"),
        ("ivo://ivoa.net/std/VOSI#capabilities", "/vo/sia2/capabilities"),
        ("ivo://ivoa.net/std/VOSI#availability", "/vo/sia2/availability"),
        ("ivo://ivoa.net/std/DataLink#links-1.1", "/vo/links"),
        ("ivo://ivoa.net/std/SODA#sync-1.0", "/vo/soda"),
    ):
        parts.append(
            f'<capability standardID="{standard}"><interface xsi:type="vs:ParamHTTP" role="std">'
            f'<accessURL use="base">{escape(base + path)}</accessURL></interface></capability>'
        )
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<vosi:capabilities xmlns:vosi="http://www.ivoa.net/xml/VOSICapabilities/v1.0" '
        'xmlns:vs="http://www.ivoa.net/xml/VODataService/v1.1" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">' + "".join(parts) + "</vosi:capabilities>\n"
    )
    return Response(text, media_type="text/xml")


@router.get("/sia2/availability", summary="Whether the search answers (VOSI)")
def availability() -> Response:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<vosi:availability xmlns:vosi="http://www.ivoa.net/xml/VOSIAvailability/v1.0">'
        "<vosi:available>true</vosi:available></vosi:availability>\n"
    )
    return Response(text, media_type="text/xml")


def _find(portal: Portal, name: str) -> Exposure | None:
    """An exposure by its number or its identifier."""
    if name.startswith(PUBLISHER):
        return portal.index.find_address(name[len(PUBLISHER) :])
    if name.isdecimal() and len(name) < 10:
        return portal.index.find(int(name))
    return None


def _kind_of(exposure: Exposure) -> str:
    """The type of an exposure's file."""
    packed = {".gz": "application/gzip", ".bz2": "application/x-bzip2"}
    return packed.get(Path(exposure.address.partition("?")[0]).suffix, "application/fits")


@router.get("/links", summary="What there is of an exposure (DataLink 1.1)")
def links(request: Request, portal: Here) -> Response:
    try:
        names = _parameters(request, ("ID", "RESPONSEFORMAT", "MAXREC")).get("ID", [])[:100]
    except Wrong as error:
        return _error(str(error))
    base = _base(request)
    rows: list[list[Any]] = []
    for name in names:
        one = _find(portal, name)
        if one is None:
            rows.append(
                [name, None, None, "NotFoundFault: there is no such exposure", "#this", None, None, None]
            )
            continue
        what = f"exposure {one.address}"
        if is_url(one.address) and portal.survey.public_url(one.address) is None:
            rows.append(
                [name, None, None, f"AuthorizationFault: {NOT_GIVEN}", "#this", what, _kind_of(one), None]
            )
        else:
            file, size = f"{base}/vo/files/{one.id}", one.size_bytes or None
            rows.append([name, file, None, None, "#this", what, _kind_of(one), size])
        rows.append([name, None, "soda", None, "#cutout", "a circle of it", "application/fits", None])
    service = (
        '<RESOURCE type="meta" utype="adhoc:service" ID="soda">'
        '<PARAM name="standardID" datatype="char" arraysize="*" value="ivo://ivoa.net/std/SODA#sync-1.0"/>'
        f'<PARAM name="accessURL" datatype="char" arraysize="*" value={quoteattr(base + "/vo/soda")}/>'
        '<GROUP name="inputParams">'
        f'<PARAM name="ID" datatype="char" arraysize="*" ucd="meta.id;meta.main" value={quoteattr(names[0] if names else "")}/>'
        '<PARAM name="CIRCLE" datatype="double" arraysize="3" xtype="circle" unit="deg" ucd="pos.outline;obs" value=""/>'
        '<PARAM name="POS" datatype="char" arraysize="*" ucd="pos.outline;obs" value=""/>'
        "</GROUP></RESOURCE>"
    )
    return Response(_votable("OK", "", LINK_COLUMNS, rows, service), media_type=DATALINK)


@router.get("/files/{number}", summary="An exposure as it is")
def file(portal: Here, number: int) -> Response:
    """An exposure at a web server is not passed on from there: the answer says where it is."""
    one = portal.index.find(number)
    if one is None:
        raise HTTPException(404, "there is no such exposure")
    if is_url(one.address):
        url = portal.survey.public_url(one.address)
        if url is None:
            raise HTTPException(403, NOT_GIVEN)
        # Of the list of an administrator, and not of whoever asks.
        return RedirectResponse(url, 307)
    path = portal.survey.path(one.address)
    if not path.is_file():
        raise HTTPException(404, "there is no such exposure")
    return FileResponse(path, media_type=_kind_of(one), filename=one.address.replace("/", "-"))


@router.get("/soda", summary="A circle of an exposure, as FITS (SODA 1.0)")
def cutout(request: Request, portal: Here) -> Response:
    """Parameters: ID, and CIRCLE (`RA DEC RADIUS`) or POS (`CIRCLE RA DEC RADIUS`), in degrees."""
    try:
        given = _parameters(request, ("ID", "CIRCLE", "POS", "RESPONSEFORMAT"))
        names, circles = given.get("ID", []), [_circle(text) for text in given.get("CIRCLE", ())]
        circles += [_position(text) for text in given.get("POS", ())]
        if any(circle.edge for circle in circles):
            raise Wrong("POS is `CIRCLE RA DEC RADIUS` for a cutout")
        if len(names) != 1 or len(circles) != 1:
            raise Wrong("give one ID, and one CIRCLE or POS")
        one = _find(portal, names[0])
        if one is None:
            raise Wrong(f"there is no exposure {names[0][:80]!r}")
    except Wrong as error:
        return Response(f"UsageFault: {error}\n", 400, media_type="text/plain")
    portal.count(portal.limits.cutouts, address_of(request), "cutouts")
    # Each cutout that waits for a node holds a thread, and pages need threads, too.
    if not portal.cutting.acquire(blocking=False):
        raise HTTPException(
            503, f"{CUTOUTS_AT_ONCE} cutouts are being made: try again in a moment", {"Retry-After": "2"}
        )
    try:
        return _cut(portal, one, circles[0])
    finally:
        portal.cutting.release()


def remove_old_cutouts(data: Path) -> int:
    """Remove the cutouts of a portal that ended before it had sent them; gives how many. Whatever has another name stays."""
    try:
        with os.scandir(data / CUTOUTS) as entries:
            old = [
                one.path
                for one in entries
                if _CUTOUT.fullmatch(one.name) and one.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return 0
    for path in old:
        Path(path).unlink(missing_ok=True)
    return len(old)


def _cut(portal: Portal, one: Exposure, circle: Region) -> Response:
    """A circle of an exposure, cut by a task of the cluster."""
    made = portal.work.data / CUTOUTS / f"{secrets.token_hex(12)}.fits"
    name = name_of(one.address)
    words = ["crop", name, "crop.fits", *map(repr, (circle.ra, circle.dec, circle.radius))]
    inputs = {name: portal.survey.places([one.address])[one.address]}
    task = portal.work.task("crop", words, inputs, {"crop.fits": str(made)})
    run = portal.work.connections.owner.run([task], name="cutout")
    end = time.monotonic() + CUTOUT_S_MAX
    while not run.wait(LOOK_UP_S, check=False):
        if time.monotonic() > end or portal.is_ending():
            run.cancel()
            why = "the portal ends" if portal.is_ending() else "the cutout took too long"
            return Response(f"{why}\n", 503, media_type="text/plain")
    ended = next(iter(run.tasks()))
    if ended.state != "done":
        kind, why = kind_of_failure(
            ended.reason or "no reason is known", ended.stderr.decode(errors="replace")
        )
        status = 204 if "lies beside" in why else 500
        text = f"{kind}: {portal.survey.shown(why)}\n"
        return Response(None if status == 204 else text, status, media_type="text/plain")
    return FileResponse(
        made,
        media_type="application/fits",
        filename=f"cutout-{one.id}.fits",
        background=BackgroundTask(made.unlink, missing_ok=True),
    )
