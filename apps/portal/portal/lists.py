"""Lists of objects, as people and programs give them: lines of `ra dec band`, CSV with a header, or a VOTable.

Each line is checked by itself, and every line that is wrong is named with what is wrong: nothing is left out silently.
"""

from __future__ import annotations

import csv
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BANDS = ("u", "g", "r", "i", "z")
# More problems than this are counted and not listed.
PROBLEMS_SHOWN = 50
SHOWN_CHARACTERS = 60

_SEPARATORS = re.compile(r"[\s,;|]+")
_SEXAGESIMAL = re.compile(r"([+-]?)(\d{1,3}):(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?")
_NAMES = {
    "ra": "ra",
    "raj2000": "ra",
    "ra_deg": "ra",
    "dec": "dec",
    "decl": "dec",
    "dej2000": "dec",
    "dec_deg": "dec",
    "band": "band",
    "filter": "band",
}


@dataclass(frozen=True)
class Asked:
    """One object: the line (or row) it was asked for in, RA and Dec in degrees (J2000), and the band."""

    line: int
    ra: float
    dec: float
    band: str


@dataclass(frozen=True)
class Problem:
    """A line that cannot be used, and why."""

    line: int
    text: str


class ListError(Exception):
    """The list as a whole cannot be read; its text is one sentence for the user."""


def _shown(text: str) -> str:
    """The user's own words in a message, cut short."""
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _angle(text: str, name: str, low: float, high: float, hours: bool) -> float:
    """Degrees of a number of degrees, or of `16:41:41.2` (hours for RA, degrees for Dec)."""
    found = _SEXAGESIMAL.fullmatch(text)
    if found:
        sign, whole, minutes, seconds = found.groups()
        if int(minutes) > 59 or float(seconds or 0) >= 60:
            raise ValueError(f"{name} {_shown(text)!r} has more than 59 minutes or seconds")
        value = int(whole) + int(minutes) / 60 + float(seconds or 0) / 3600
        value = (-value if sign == "-" else value) * (15 if hours else 1)
    else:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{name} {_shown(text)!r} is not a number") from None
    if not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name} {_shown(text)} is not between {low:g} and {high:g} degrees")
    return value


def check(line: int, ra: str, dec: str, band: str) -> Asked:
    """One object of the texts of its three values.

    Raises
    ------
    ValueError : a value is wrong; its text says which and why.
    """
    x = _angle(ra.strip(), "RA", 0.0, 360.0, hours=True) % 360.0
    y = _angle(dec.strip(), "Dec", -90.0, 90.0, hours=False)
    if band.strip().lower() not in BANDS:
        raise ValueError(f"the band {_shown(band.strip())!r} is not one of {', '.join(BANDS)}")
    return Asked(line, x, y, band.strip().lower())


def _rows_of_text(text: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Number and values of each line, in the order RA, Dec, band; a header may give another order."""
    order: list[int] | None = None
    is_first = True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if "," in line or '"' in line:
            values = [value.strip() for value in next(csv.reader([line]))]
        else:
            values = [value for value in _SEPARATORS.split(line.strip()) if value]
        if is_first:
            is_first = False
            names = [_NAMES.get(value.lower(), "") for value in values]
            if "ra" in names or "dec" in names:
                missing = [name for name in ("ra", "dec", "band") if name not in names]
                if missing:
                    raise ListError(f"the header in line {number} has no column {missing[0]!r}")
                order = [names.index(name) for name in ("ra", "dec", "band")]
                continue
        if order is not None and len(values) > max(order):
            values = [values[at] for at in order]
        yield number, values


def _rows_of_votable(text: str) -> Iterator[tuple[int, Sequence[str]]]:
    """The same of the first table of a VOTable whose rows are written as TABLEDATA."""
    # Entities could make a short file as long as they like; a VOTable needs none.
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ListError("the VOTable declares a DOCTYPE or entities, which are not read: leave them out")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ListError(f"the VOTable is not well-formed XML: {error}") from None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    table = root.find(".//TABLE")
    if table is None:
        raise ListError("the VOTable has no TABLE")
    names = []
    for field in table.findall("FIELD"):
        ucd = (field.get("ucd") or "").lower()
        by_ucd = "ra" if ucd.startswith("pos.eq.ra") else "dec" if ucd.startswith("pos.eq.dec") else ""
        names.append(by_ucd or _NAMES.get((field.get("name") or "").lower(), ""))
    for name in ("ra", "dec", "band"):
        if name not in names:
            raise ListError(f"the VOTable has no column {name!r}")
    order = [names.index(name) for name in ("ra", "dec", "band")]
    data = table.find("./DATA/TABLEDATA")
    if data is None:
        raise ListError("the rows of the VOTable are not written as TABLEDATA: save it in that form")
    for number, row in enumerate(data.findall("TR"), 1):
        cells = ["".join(cell.itertext()) for cell in row.findall("TD")]
        yield number, [cells[at] if at < len(cells) else "" for at in order]


def read_list(data: bytes | str, n_max: int) -> tuple[list[Asked], list[Problem]]:
    """The objects of a list, and the lines that cannot be used, at most PROBLEMS_SHOWN and one that counts the rest.

    `n_max` is the largest number of objects. The form is seen by the content.

    Raises
    ------
    ListError : it is no list at all, or too long.
    """
    if isinstance(data, bytes):
        if data[:2] == b"\x1f\x8b" or data[:4] == b"PK\x03\x04":
            raise ListError("the file is compressed: give it as plain text")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ListError(f"the list is not text in UTF-8: byte {error.start} cannot be read") from None
    else:
        text = data
    if "\0" in text:
        raise ListError("the list has a zero byte, so it is not text")
    is_xml = text.lstrip()[:100].lower().startswith(("<?xml", "<votable", "<!doctype"))
    asked: list[Asked] = []
    problems: list[Problem] = []
    for number, values in _rows_of_votable(text) if is_xml else _rows_of_text(text):
        try:
            if len(values) != 3:
                raise ValueError(
                    f"{len(values)} value{'s' * (len(values) != 1)} in place of three: RA, Dec and band"
                )
            asked.append(check(number, *values))
        except ValueError as error:
            problems.append(Problem(number, str(error)))
        if len(asked) > n_max:
            raise ListError(f"the list has more than {n_max:,} objects: ask for them in parts")
    if len(problems) > PROBLEMS_SHOWN:
        n_more = len(problems) - PROBLEMS_SHOWN
        problems = problems[:PROBLEMS_SHOWN]
        problems.append(Problem(problems[-1].line, f"{n_more:,} further lines cannot be used"))
    if not asked and not problems:
        raise ListError("the list has no objects: write one on each line, as in `250.42 36.46 r`")
    return asked, problems
