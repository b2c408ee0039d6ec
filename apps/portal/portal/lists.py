"""Lists of objects, as people and programs give them: lines of `ra dec band`, tables with a header as spreadsheets and catalogues
write them, or a VOTable.

Each line is checked by itself, and every line that is wrong is named with what is wrong: nothing is left out silently, and nothing
is guessed that would be another position.
"""

from __future__ import annotations

import base64
import binascii
import csv
import math
import re
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BANDS = ("u", "g", "r", "i", "z")
# More problems than this are counted and not listed.
PROBLEMS_SHOWN = 50
SHOWN_CHARACTERS = 60
# What is read of a line, and of the comment before a table: a list that is larger is none, and would only take time.
LINE_CHARACTERS_MAX = 20_000
COMMENT_LINES_MAX = 2_000
COLUMNS_MAX = 4_000

_SEPARATORS = re.compile(r"[\s,;|]+")
# No pattern may look at a character again and again: a text may have millions, and nothing else of the portal goes on meanwhile.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+")
_NO_NUMBERS = ("nan", "inf", "+inf", "-inf", "infinity")
_SEXAGESIMAL = re.compile(
    r"([+-]?) ?(\d{1,3}) ?([:hd° ]) ?(\d{1,2}) ?(?:[:m' ] ?(\d{1,2}(?:[.,]\d*)?) ?(?:s|\"|'')?|[m'])?",
    re.IGNORECASE,
)
# Signs of papers, as a keyboard has them.
_SIGNS = str.maketrans({"\N{MINUS SIGN}": "-", "\N{PRIME}": "'", "\N{DOUBLE PRIME}": '"'})
# What a column may be called, in small letters and digits alone: `_RAJ2000` and `RA J2000` are the same.
_NAMES = {
    **dict.fromkeys(
        ("ra", "raj2000", "radeg", "rad", "raicrs", "alpha", "alphaj2000", "rightascension"), "ra"
    ),
    **dict.fromkeys(("dec", "decl", "de", "dej2000", "decj2000", "dedeg", "decdeg", "decd"), "dec"),
    **dict.fromkeys(("deicrs", "decicrs", "delta", "deltaj2000", "declination"), "dec"),
    **dict.fromkeys(("band", "filter", "filt", "passband"), "band"),
}
_IN_BRACKETS = re.compile(r"[\[(]([^\[\]()]*)[\])]")
# Units of angles, by how tables spell them. Sexagesimal texts say themselves what they are.
_UNITS = {
    **dict.fromkeys(("", "deg", "degree", "degrees", "°", "d"), "deg"),
    **dict.fromkeys(("h", "hr", "hour", "hours", "hourangle", "15deg"), "hour"),
    **dict.fromkeys(("rad", "radian", "radians"), "rad"),
    **dict.fromkeys(("h:m:s", "d:m:s", "hms", "dms", "hh:mm:ss", "dd:mm:ss", "h m s", "d m s"), "deg"),
}
_IN_DEGREES = {"deg": 1.0, "hour": 15.0, "rad": 180.0 / math.pi}
# How many bytes an element of a VOTable's binary rows takes.
_BYTES_OF = {"boolean": 1, "unsignedByte": 1, "char": 1, "short": 2, "unicodeChar": 2, "int": 4, "float": 4}
_BYTES_OF |= {"long": 8, "double": 8, "floatComplex": 8, "doubleComplex": 16}
_STRUCTS = {"short": ">h", "int": ">i", "float": ">f", "long": ">q", "double": ">d", "unsignedByte": ">B"}


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


@dataclass(frozen=True)
class _Columns:
    """Where a table has RA, Dec and the band, and the units of the first two. `band` is None: no column has it."""

    ra: int
    dec: int
    band: int | None
    ra_unit: str
    dec_unit: str

    @property
    def n_needed(self) -> int:
        return max(at for at in (self.ra, self.dec, self.band) if at is not None) + 1

    def values_of(self, cells: Sequence[str]) -> list[str]:
        return [cells[at] for at in (self.ra, self.dec, self.band) if at is not None]


# Number, cells, and the columns where a header says them.
_Line = tuple[int, Sequence[str], _Columns | None]


def _shown(text: str) -> str:
    """The user's own words in a message, cut short."""
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _angle(text: str, name: str, low: float, high: float, unit: str) -> float:
    """Degrees of a number in its unit, or of `16:41:41.2`, `16 41 41.2` or `16h41m41.2s` (hours for RA, degrees for Dec)."""
    text = " ".join(text.translate(_SIGNS).split())
    if not text:
        raise ValueError(f"{name} is empty")
    found = _SEXAGESIMAL.fullmatch(text)
    if found:
        sign, whole, mark, minutes, seconds = found.groups()
        seconds = (seconds or "0").replace(",", ".")
        if int(minutes) > 59 or float(seconds) >= 60:
            raise ValueError(f"{name} {_shown(text)!r} has more than 59 minutes or seconds")
        if mark in "hH" and name == "Dec":
            raise ValueError(f"Dec {_shown(text)!r} is written in hours, and needs degrees")
        value = int(whole) + int(minutes) / 60 + float(seconds) / 3600
        value = (-value if sign == "-" else value) * (15 if name == "RA" and mark not in "dD°" else 1)
    else:
        if _WITH_COMMA.fullmatch(text):
            text = text.replace(",", ".")
        if not _NUMBER.fullmatch(text) and text.lower() not in _NO_NUMBERS:
            raise ValueError(f"{name} {_shown(text)!r} is not a number")
        value = float(text) * _IN_DEGREES[unit]
    if not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name} {_shown(text)} is not between {low:g} and {high:g} degrees")
    return value


def check(line: int, ra: str, dec: str, band: str, ra_unit: str = "deg", dec_unit: str = "deg") -> Asked:
    """One object of the texts of its three values.

    Raises
    ------
    ValueError : a value is wrong; its text says which and why.
    """
    x = _angle(ra, "RA", 0.0, 360.0, ra_unit) % 360.0
    y = _angle(dec, "Dec", -90.0, 90.0, dec_unit)
    if band.strip().lower() not in BANDS:
        raise ValueError(f"the band {_shown(band.strip())!r} is not one of {', '.join(BANDS)}")
    return Asked(line, x, y, band.strip().lower())


# ---------------------------------------------------------------------------------------- columns


def _meaning(name: str) -> str:
    """`ra`, `dec`, `band` or nothing, of a column's name."""
    return _NAMES.get(re.sub(r"[^a-z0-9]", "", _IN_BRACKETS.sub("", name.lower())), "")


def _unit(text: str, name: str) -> str:
    found = _UNITS.get(text.strip().strip('"').lower())
    if found is None or (found == "hour" and name == "Dec"):
        raise ListError(f"the column of {name} is in {_shown(text)!r}: give it in degrees")
    return found


def _columns(meanings: Sequence[str], units: Sequence[str], where: str, band: str | None) -> _Columns:
    """The columns of a table; of two that mean the same it is the first one."""
    for wanted in ("ra", "dec", *(() if band else ("band",))):
        if wanted not in meanings:
            more = ": add one, or choose a band for all objects" if wanted == "band" else ""
            raise ListError(f"{where} has no column {wanted!r}{more}")
    ra, dec = meanings.index("ra"), meanings.index("dec")
    of_band = meanings.index("band") if "band" in meanings else None
    return _Columns(ra, dec, of_band, _unit(units[ra], "RA"), _unit(units[dec], "Dec"))


# ---------------------------------------------------------------------------------------- text


def _split(line: str, delimiter: str | None) -> list[str]:
    """The cells of one line."""
    if len(line) > LINE_CHARACTERS_MAX:
        raise ValueError(f"the line has more than {LINE_CHARACTERS_MAX:,} characters")
    if delimiter is None:
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error as error:
        raise ValueError(f"the line cannot be parted into columns: {error}") from None


def _delimiter(line: str) -> str | None:
    """What parts the cells of a table, by its header; None: spaces."""
    return next((sign for sign in "\t;|," if sign in line), None)


def _header(line: str) -> tuple[list[str], str | None]:
    """The names of columns if the line has them, and what is between."""
    words = line.lstrip("# ") if line.startswith("#") else line
    for delimiter in dict.fromkeys((_delimiter(words), None)):
        try:
            names = _split(words, delimiter)
        except ValueError:
            continue
        meanings = [_meaning(name) for name in names]
        # In a comment both have to be there: `# RA of my stars` is none.
        if all(one in meanings for one in ("ra", "dec")) or (
            not line.startswith("#") and any(one in meanings for one in ("ra", "dec"))
        ):
            return names, delimiter
    return [], None


def _are_angles(words: list[str]) -> bool:
    """Whether a line's commas are those of numbers: `202,47 47,2 r`."""
    return 2 <= len(words) <= 3 and all(
        _WITH_COMMA.fullmatch(word) or _SEXAGESIMAL.fullmatch(word.translate(_SIGNS)) for word in words[:2]
    )


def _cells_of_line(line: str) -> list[str]:
    """RA, Dec and the band of a line without a header, in whatever way they are parted."""
    if len(line) > LINE_CHARACTERS_MAX:
        raise ValueError(f"the line has more than {LINE_CHARACTERS_MAX:,} characters")
    if (delimiter := next((sign for sign in "\t;|" if sign in line), None)) is not None:
        values = [value for value in _split(line, delimiter) if value]
    elif "," in line and not _are_angles(line.split()):
        values = _split(line, ",")
    else:
        values = line.split()
    if len(values) == 1:
        values = [value for value in _SEPARATORS.split(line.strip()) if value]
    # `13 29 52.7 +47 11 43 r`
    if len(values) in (6, 7):
        values = [" ".join(values[:3]), " ".join(values[3:6]), *values[6:]]
    return values


def _rows_of_text(text: str, band: str | None) -> Iterator[_Line | Problem]:
    """Number and cells of each line, and what a header says of its columns."""
    lines = text.splitlines()
    if lines and re.fullmatch(r"\s*sep=.\s*", lines[0], re.IGNORECASE):
        lines[0] = ""
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    # A catalogue may have a long comment before its table.
    while first < len(lines) and (lines[first].startswith("#") or not lines[first].strip()):
        if first < COMMENT_LINES_MAX and _header(lines[first])[0]:
            break
        first += 1
    names, delimiter = _header(lines[first]) if first < len(lines) else ([], None)
    columns, begin = None, 0
    if names:
        units = [(_IN_BRACKETS.search(name) or ["", ""])[1] for name in names]
        begin = first + 1
        # VizieR writes a line of units and one of dashes below the names.
        for at in range(begin, min(begin + 2, len(lines))):
            cells = [] if len(lines[at]) > LINE_CHARACTERS_MAX else _split(lines[at], delimiter)
            if any(cells) and all(re.fullmatch(r"-*", cell) for cell in cells):
                if at > begin:
                    given = _split(lines[begin], delimiter)
                    units = [unit or own for unit, own in zip(given, units, strict=False)] or units
                begin = at + 1
                break
        units += [""] * (len(names) - len(units))
        columns = _columns([_meaning(name) for name in names], units, f"the header in line {first + 1}", band)
    for number, line in enumerate(lines[begin:], begin + 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            yield number, _split(line, delimiter) if columns else _cells_of_line(line), columns
        except ValueError as error:
            yield Problem(number, str(error))


# ---------------------------------------------------------------------------------------- VOTables


def _rows_of_votable(text: str, band: str | None) -> Iterator[_Line]:
    """The same of the table of a VOTable that has positions. Nothing that a VOTable refers to is opened.

    astropy's reader is not used: it opens what `href` names, and makes room for as many rows as a table says that it has.
    """
    # Entities could make a short file as long as they like; a VOTable needs none.
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ListError("the VOTable declares a DOCTYPE or entities, which are not read: leave them out")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ListError(f"the VOTable is not well-formed XML: {error}") from None
    systems = {}
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        if element.tag == "COOSYS":
            systems[element.get("ID")] = element.get("system", "")
    tables = root.findall(".//TABLE")
    if not tables:
        raise ListError("the VOTable has no TABLE")
    described = [[_meaning_of_field(field) for field in table.findall("FIELD")] for table in tables]
    good = [at for at, meanings in enumerate(described) if "ra" in meanings and "dec" in meanings]
    if len(good) > 1:
        raise ListError(f"the VOTable has {len(good)} tables with positions: give a file of one of them")
    at = good[0] if good else 0
    table, meanings = tables[at], described[at]
    fields = table.findall("FIELD")
    if len(fields) > COLUMNS_MAX:
        raise ListError(f"the VOTable has {len(fields):,} columns: leave out those that are not needed")
    # A table may have positions of several epochs; the main ones count.
    for wanted in ("ra", "dec"):
        both = [
            at
            for at, of in enumerate(meanings)
            if of == wanted and "main" in (fields[at].get("ucd") or "").lower()
        ]
        if both:
            meanings = ["" if of == wanted and at != both[0] else of for at, of in enumerate(meanings)]
    columns = _columns(meanings, [field.get("unit") or "" for field in fields], "the VOTable", band)
    system = systems.get(fields[columns.ra].get("ref"), "")
    if re.search("FK4|galactic|ecl", system, re.IGNORECASE):
        raise ListError(f"the positions of the VOTable are in {_shown(system)!r}: give them in ICRS or J2000")
    data = table.find("./DATA")
    if data is None:
        raise ListError("the table of the VOTable has no DATA")
    rows = data.find("TABLEDATA")
    if rows is not None:
        for number, row in enumerate(rows.iterfind("TR"), 1):
            cells = ["".join(cell.itertext()) for cell in row.findall("TD")]
            yield number, cells, columns
        return
    for kind in ("BINARY2", "BINARY"):
        stream = data.find(f"{kind}/STREAM")
        if stream is not None:
            cells_of_rows = _rows_of_binary(stream, fields, columns, has_nulls=kind == "BINARY2")
            for number, cells in enumerate(cells_of_rows, 1):
                yield number, cells, columns
            return
    raise ListError("the rows of the VOTable are not TABLEDATA, BINARY or BINARY2: save it in such a form")


def _meaning_of_field(field: ElementTree.Element) -> str:
    """By the UCD, old or new, or else by the name."""
    ucd = (field.get("ucd") or "").lower().replace("_", ".")
    for word in ("ra", "dec"):
        if ucd == f"pos.eq.{word}" or ucd.startswith((f"pos.eq.{word};", f"pos.eq.{word}.")):
            return word
    found = _meaning(field.get("name") or "")
    # A column may be called `ra` and be something else, such as its error.
    return "" if ucd and not ucd.startswith("pos.eq") and found in ("ra", "dec") else found


def _n_elements(field: ElementTree.Element) -> int | None:
    """How many elements each cell has; None: each cell says so itself."""
    size = field.get("arraysize") or "1"
    if "*" in size:
        return None
    try:
        found = math.prod(int(part) for part in size.split("x"))
    except ValueError:
        found = -1
    if found < 0:
        raise ListError(f"a column of the VOTable has the arraysize {_shown(size)!r}, which is none")
    return found


def _rows_of_binary(
    stream: ElementTree.Element, fields: Sequence[ElementTree.Element], columns: _Columns, has_nulls: bool
) -> Iterator[list[str]]:
    if stream.get("href"):
        raise ListError("the rows of the VOTable are in another file: save it with its rows inside")
    if (stream.get("encoding") or "base64") != "base64":
        raise ListError("the rows of the VOTable are not written in base64: save it as TABLEDATA")
    try:
        data = base64.b64decode("".join((stream.text or "").split()), validate=True)
    except (binascii.Error, ValueError):
        raise ListError("the rows of the VOTable are no base64") from None
    shapes = [(at, field.get("datatype") or "char", _n_elements(field)) for at, field in enumerate(fields)]
    for _, kind, _ in shapes:
        if kind not in _BYTES_OF and kind != "bit":
            raise ListError(f"a column of the VOTable has the datatype {_shown(kind)!r}, which is none")
    # Many columns without bytes would take time and no room.
    shapes = [shape for shape in shapes if shape[2] != 0]
    wanted = {columns.ra, columns.dec, columns.band}
    at, n_flags = 0, (len(fields) + 7) // 8 if has_nulls else 0
    while at < len(data):
        began, cells = at, [""] * len(fields)
        flags, at = data[at : at + n_flags], at + n_flags
        for number, kind, n in shapes:
            if n is None:
                if at + 4 > len(data):
                    raise ListError("the rows of the VOTable end in the middle of one")
                n, at = int.from_bytes(data[at : at + 4], "big"), at + 4
            n_bytes = (n + 7) // 8 if kind == "bit" else n * _BYTES_OF[kind]
            if at + n_bytes > len(data):
                raise ListError("the rows of the VOTable end in the middle of one")
            is_null = bool(flags) and bool(flags[number // 8] & (128 >> number % 8))
            if number in wanted and not is_null:
                cells[number] = _text_of(kind, data[at : at + n_bytes])
            at += n_bytes
        if at == began:
            raise ListError("the rows of the VOTable have no bytes")
        yield cells


def _text_of(kind: str, data: bytes) -> str:
    if kind in ("char", "unicodeChar"):
        text = data.decode("utf-8" if kind == "char" else "utf-16-be", "replace")
        return text.partition("\0")[0].strip()
    if kind in _STRUCTS and len(data) == _BYTES_OF[kind]:
        return repr(struct.unpack(_STRUCTS[kind], data)[0])
    raise ListError(f"a column of positions or bands in the VOTable is of the datatype {kind!r}")


# ---------------------------------------------------------------------------------------- all forms


def _decode(data: bytes) -> str:
    """The text of a file, as spreadsheets write it: UTF-8, UTF-16 with its mark, or the Western code page of Windows."""
    if data[:2] == b"PK":
        raise ListError("the file is compressed, or a workbook: save the table as CSV")
    if data[:2] == b"\x1f\x8b":
        raise ListError("the file is compressed: give it as plain text")
    if data[:9] == b"SIMPLE  =":
        raise ListError("the file is FITS: save the table as CSV or VOTable")
    kinds = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252")
    for kind in kinds:
        try:
            return data.decode(kind)
        except UnicodeDecodeError as error:
            at = error.start
    raise ListError(f"the list is not text: byte {at} cannot be read; save it as UTF-8")


def _object_of(row: _Line, band: str | None) -> Asked | Problem:
    """The object of a line, or why there is none."""
    number, cells, columns = row
    try:
        values, units = list(cells), ("deg", "deg")
        if columns is not None:
            if len(cells) < columns.n_needed:
                raise ValueError(f"the line has {len(cells)} columns, and needs {columns.n_needed}")
            values, units = columns.values_of(cells), (columns.ra_unit, columns.dec_unit)
        if len(values) == 2 and band is not None:
            values.append(band)
        if len(values) != 3:
            n = len(values)
            raise ValueError(f"{n} value{'s' * (n != 1)} in place of three: RA, Dec and band")
        # A cell without a band is of the band for all.
        return check(number, values[0], values[1], values[2].strip() or band or "", *units)
    except ValueError as error:
        return Problem(number, str(error))


def read_list(data: bytes | str, n_max: int, band: str | None = None) -> tuple[list[Asked], list[Problem]]:
    """The objects of a list, and the lines that cannot be used, at most PROBLEMS_SHOWN and one that counts the rest.

    `n_max` is the largest number of objects. `band` is the one of objects that name none. The form is seen by the content.

    Raises
    ------
    ListError : it is no list at all, or too long.
    """
    text = _decode(data) if isinstance(data, bytes) else data
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # JSON can name halves of characters.
        raise ListError(
            f"the list is not text: it has half a character at place {error.start + 1:,}"
        ) from None
    if "\0" in text:
        raise ListError("the list has a zero byte, so it is not text")
    if band is not None and band not in BANDS:
        raise ListError(f"the band {_shown(band)!r} for all objects is not one of {', '.join(BANDS)}")
    is_xml = text.lstrip("\ufeff \t\r\n")[:100].lower().startswith(("<?xml", "<votable", "<!doctype"))
    asked: list[Asked] = []
    problems: list[Problem] = []
    n_problems = 0
    for row in _rows_of_votable(text, band) if is_xml else _rows_of_text(text, band):
        found = row if isinstance(row, Problem) else _object_of(row, band)
        if isinstance(found, Asked):
            asked.append(found)
            if len(asked) > n_max:
                raise ListError(f"the list has more than {n_max:,} objects: ask for them in parts")
        else:
            n_problems += 1
            if n_problems <= PROBLEMS_SHOWN:
                problems.append(found)
            elif n_problems > n_max:
                raise ListError(
                    f"more than {n_max:,} lines cannot be used; the first is line {problems[0].line}: {problems[0].text}"
                )
    if n_problems > PROBLEMS_SHOWN:
        n_more = n_problems - PROBLEMS_SHOWN
        problems.append(Problem(problems[-1].line, f"{n_more:,} further lines cannot be used"))
    if not asked and not problems:
        raise ListError("the list has no objects: write one on each line, as in `250.42 36.46 r`")
    return asked, problems
