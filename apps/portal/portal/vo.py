"""The survey for programs of the Virtual Observatory: Simple Image Access 2.0, DataLink 1.1 and cutouts by SODA 1.0.

A search gives exposures; the link of each leads to its file and to a service that cuts a region out of it. A cutout is a task of
the cluster, so it goes to a node that has the exposure. The survey is public here: no account is needed, and how often an address
may ask for cutouts is limited.

Errors are documents as the standards have them: a VOTable, and where a file is asked for a text that begins with a word of SODA.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from xml.sax.saxutils import escape, quoteattr

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.background import BackgroundTask

from . import regions
from .api import Here
from .faces import CUTOUTS_AT_ONCE, Portal, address_of
from .index import REACH_DEG_MAX, Exposure, separation_deg
from .lists import BANDS
from .regions import Region, Wrong
from .surveys import is_url, name_of
from .work import LOOK_UP_S, kind_of_failure

router = APIRouter(prefix="/vo", tags=["Virtual Observatory"])

VOTABLE = "application/x-votable+xml"
DATALINK = "application/x-votable+xml;content=datalink"
ROWS_MAX = 1000
REGIONS_MAX = 20
LINKS_MAX = 100
CUTOUT_S_MAX = 60.0
# Names of parameters, and bytes of a form that has them.
FIELDS_MAX, FORM_BYTES_MAX = 1000, 100_000
# What a cutout answers where the exposure cannot be read. Nothing is wrong with the portal then, and only what is away may come back.
STATUSES = {"missing": 404, "unreadable": 502, "corrupt": 502, "away": 503}
RETRY_LATER = {"Retry-After": "60"}
# What no document in XML may have.
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
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
    return _NO_XML.sub("?", "\n".join(line for line in lines if line) + "\n")


def fault(path: str, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error of the service at this path, as its clients read it (SODA 1.0 §5.2, SIA 2.0 §4.2, DataLink 1.1 §3.4)."""
    is_of_sender = 400 <= status < 500 and status != 404
    may_pass = status in (429, 503)
    if path.startswith(("/vo/soda", "/vo/files/")):
        word = "ServiceUnavailable" if may_pass else "UsageError" if is_of_sender else "Error"
        word = "AuthorizationError" if status == 403 else word
        return Response(f"{word}: {text}\n", status, headers, "text/plain")
    word = "TransientFault" if may_pass else "UsageFault" if is_of_sender else "DefaultFault"
    return Response(_votable("ERROR", f"{word}: {text}", (), ()), status, headers, VOTABLE)


async def _sent(request: Request) -> list[tuple[str, str]]:
    """What stands in the address, and in a form where one is sent (DALI 1.1 §2.2)."""
    sent = request.query_params.multi_items()
    if request.method == "POST":
        form = await request.form(max_files=0, max_fields=FIELDS_MAX, max_part_size=FORM_BYTES_MAX)
        sent += [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    return sent


Sent = Annotated[list[tuple[str, str]], Depends(_sent)]


def _parameters(sent: Sequence[tuple[str, str]], known: Sequence[str]) -> dict[str, list[str]]:
    """Parameters by their names in capitals, of which case says nothing."""
    found: dict[str, list[str]] = {}
    for name, value in sent:
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


@router.api_route(
    "/sia2/query", methods=["GET", "POST"], summary="Search for exposures (Simple Image Access 2.0)"
)
def search(request: Request, portal: Here, sent: Sent) -> Response:
    """Parameters: POS (`CIRCLE RA DEC RADIUS`, `RANGE RA1 RA2 DEC1 DEC2` or `POLYGON RA DEC RA DEC RA DEC ...`, in degrees), BAND
    (wavelengths in metres) and MAXREC.
    """
    try:
        given = _parameters(sent, ("POS", "BAND", "MAXREC", "FORMAT", "RESPONSEFORMAT"))
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
        return fault(request.url.path, 400, str(error))
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
    # PostgreSQL takes no zero byte in a text.
    if name.startswith(PUBLISHER) and "\0" not in name:
        return portal.index.find_address(name[len(PUBLISHER) :])
    if name.isdecimal() and len(name) < 10:
        return portal.index.find(int(name))
    return None


def _kind_of(exposure: Exposure) -> str:
    """The type of an exposure's file."""
    packed = {".gz": "application/gzip", ".bz2": "application/x-bzip2"}
    return packed.get(Path(exposure.address.partition("?")[0]).suffix, "application/fits")


@router.api_route("/links", methods=["GET", "POST"], summary="What there is of an exposure (DataLink 1.1)")
def links(request: Request, portal: Here, sent: Sent) -> Response:
    try:
        given = _parameters(sent, ("ID", "RESPONSEFORMAT", "MAXREC"))
    except Wrong as error:
        return fault(request.url.path, 400, str(error))
    base = _base(request)
    rows: list[list[Any]] = []
    services = ""
    for number, name in enumerate(given.get("ID", ())[:LINKS_MAX]):
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
        # Each exposure has a service of its own, as the service's ID is that of the exposure.
        ident = f"soda{number or ''}"
        rows.append([name, None, ident, None, "#cutout", "a region of it", "application/fits", None])
        services += _service(ident, name, base)
    status = "OVERFLOW" if len(given.get("ID", ())) > LINKS_MAX else "OK"
    return Response(_votable(status, "", LINK_COLUMNS, rows, services), media_type=DATALINK)


def _service(ident: str, name: str, base: str) -> str:
    """The description of the service that cuts a region out of one exposure."""
    return (
        f'<RESOURCE type="meta" utype="adhoc:service" ID="{ident}">'
        '<PARAM name="standardID" datatype="char" arraysize="*" value="ivo://ivoa.net/std/SODA#sync-1.0"/>'
        f'<PARAM name="accessURL" datatype="char" arraysize="*" value={quoteattr(base + "/vo/soda")}/>'
        '<GROUP name="inputParams">'
        f'<PARAM name="ID" datatype="char" arraysize="*" ucd="meta.id;meta.main" value={quoteattr(name)}/>'
        '<PARAM name="CIRCLE" datatype="double" arraysize="3" xtype="circle" unit="deg" ucd="pos.outline;obs" value=""/>'
        '<PARAM name="POLYGON" datatype="double" arraysize="*" xtype="polygon" unit="deg" ucd="pos.outline;obs" value=""/>'
        '<PARAM name="POS" datatype="char" arraysize="*" ucd="pos.outline;obs" value=""/>'
        "</GROUP></RESOURCE>"
    )


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


def _region(given: Mapping[str, Sequence[str]]) -> Region:
    """The region of a cutout.

    Raises
    ------
    Wrong : there is none, it is no region, the exposure is not named, or another format is asked for.
    """
    found = [_circle(text) for text in given.get("CIRCLE", ())]
    found += [
        regions.polygon(_numbers(text, len(text.split()), "POLYGON")) for text in given.get("POLYGON", ())
    ]
    found += [_position(text) for text in given.get("POS", ())]
    if len(found) != 1 or "ID" not in given:
        raise Wrong("give one ID, and one CIRCLE, POLYGON or POS")
    if "fits" not in given.get("RESPONSEFORMAT", ["fits"])[0].lower():
        raise Wrong(f"a cutout is application/fits, and not {given['RESPONSEFORMAT'][0][:60]!r}")
    return found[0]


@router.api_route("/soda", methods=["GET", "POST"], summary="A region of an exposure, as FITS (SODA 1.0)")
def cutout(request: Request, portal: Here, sent: Sent) -> Response:
    """Parameters: ID, and CIRCLE (`RA DEC RADIUS`), POLYGON (`RA DEC RA DEC RA DEC ...`) or POS (as in a search), in degrees. The image
    is the smallest rectangle of pixels that holds the region.
    """
    path = request.url.path
    try:
        given = _parameters(sent, ("ID", "CIRCLE", "POLYGON", "POS", "RESPONSEFORMAT"))
        twice = [name for name, values in given.items() if len(values) > 1]
        if twice:
            text = (
                f"MultiValuedParamNotSupported: {twice[0]} is given {len(given[twice[0]])} times: give one\n"
            )
            return Response(text, 400, media_type="text/plain")
        region = _region(given)
        one = _find(portal, given["ID"][0])
        if one is None:
            raise Wrong(f"there is no exposure {given['ID'][0][:80]!r}")
    except Wrong as error:
        return fault(path, 400, str(error))
    portal.count(portal.limits.cutouts, address_of(request), "cutouts")
    is_near = separation_deg(region.ra, region.dec, one.ra, one.dec) <= region.radius + 2 * REACH_DEG_MAX
    if not is_near or not region.meets(one.corners):
        return Response(status_code=204)
    # Each cutout that waits for a node holds a thread, and pages need threads, too.
    if not portal.cutting.acquire(blocking=False):
        text = f"{CUTOUTS_AT_ONCE} cutouts are being made: try again in a moment"
        return fault(path, 503, text, {"Retry-After": "2"})
    try:
        return _cut(portal, path, one, region)
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


def _cut(portal: Portal, path: str, one: Exposure, region: Region) -> Response:
    """A region of an exposure, cut by a task of the cluster."""
    made = portal.work.data / CUTOUTS / f"{secrets.token_hex(12)}.fits"
    name = name_of(one.address)
    # A circle reaches around its middle, and other regions to their corners.
    reach, places = (0.0, region.edge) if region.edge else (region.radius, [(region.ra, region.dec)])
    words = ["crop", name, "crop.fits", repr(reach), *(f"{ra % 360!r},{dec!r}" for ra, dec in places)]
    inputs = {name: portal.survey.places([one.address])[one.address]}
    task = portal.work.task("crop", words, inputs, {"crop.fits": str(made)})
    run = portal.work.connections.owner.run([task], name="cutout")
    end = time.monotonic() + CUTOUT_S_MAX
    while not run.wait(LOOK_UP_S, check=False):
        if time.monotonic() > end or portal.is_ending():
            run.cancel()
            why = (
                "the portal ends" if portal.is_ending() else f"no cutout was made within {CUTOUT_S_MAX:.0f} s"
            )
            return fault(path, 503, f"{why}: try again later", RETRY_LATER)
    ended = next(iter(run.tasks()))
    if ended.state != "done":
        kind, why = kind_of_failure(
            ended.reason or "no reason is known", ended.stderr.decode(errors="replace")
        )
        if "lies beside" in why:
            return Response(status_code=204)
        text = f"the exposure {one.address} is {kind}: {portal.survey.shown(why)}"
        return fault(path, STATUSES[kind], text, RETRY_LATER if kind == "away" else None)
    return FileResponse(
        made,
        media_type="application/fits",
        filename=f"cutout-{one.id}.fits",
        background=BackgroundTask(made.unlink, missing_ok=True),
    )
