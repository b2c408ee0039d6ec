"""Lists of objects in every form, and how each line that is wrong is named."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from astropy.table import MaskedColumn, Table  # type: ignore[import-untyped]
from portal.lists import PROBLEMS_SHOWN, Asked, ListError, check, read_list

VOTABLE = """<?xml version="1.0"?>
<VOTABLE version="1.4" xmlns="http://www.ivoa.net/xml/VOTable/v1.3"><RESOURCE><TABLE>
<FIELD name="name" datatype="char" arraysize="*"/><FIELD name="x" ucd="pos.eq.ra;meta.main" datatype="double"/>
<FIELD name="y" ucd="pos.eq.dec;meta.main" datatype="double"/><FIELD name="filter" datatype="char" arraysize="1"/>
<DATA><TABLEDATA><TR><TD>a</TD><TD>250.5</TD><TD>36.5</TD><TD>r</TD></TR>
<TR><TD>b</TD><TD>nan</TD><TD>36.5</TD><TD>r</TD></TR></TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>"""


def test_the_forms_of_a_line_are_one_object() -> None:
    text = (
        "# a comment\n250.5 -36.5 r\n\n250.5,-36.5,R\n250.5\t-36.5\tr\n16:42:00 -36:30:00 r\n250.5;-36.5;r\n"
    )
    asked, problems = read_list(text, 10)
    assert problems == []
    assert [one.line for one in asked] == [2, 4, 5, 6, 7]
    assert {(round(one.ra, 9), round(one.dec, 9), one.band) for one in asked} == {(250.5, -36.5, "r")}


def test_a_csv_header_gives_the_order() -> None:
    text = 'id,band,dec,ra\n"a, b",z,-37.5,50.25\n'
    assert read_list(text.encode("utf-8-sig"), 10) == ([Asked(2, 50.25, -37.5, "z")], [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("250 36", "2 values in place of three"),
        ("250 36 r 5", "4 values in place of three"),
        ("x 36 r", "RA 'x' is not a number"),
        ("361 36 r", "RA 361 is not between 0 and 360 degrees"),
        ("-1 36 r", "RA -1 is not between 0 and 360 degrees"),
        ("250 90.5 r", "Dec 90.5 is not between -90 and 90 degrees"),
        ("250 nan r", "Dec nan is not between"),
        ("inf 36 r", "RA inf is not between"),
        ("16:61:00 36 r", "has more than 59 minutes or seconds"),
        ("250 36 y", "the band 'y' is not one of u, g, r, i, z"),
        ("250 36 " + "q" * 5000, "…"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_wrong(line: str, said: str) -> None:
    asked, problems = read_list(f"250 36 r\n{line}\n250 36 g\n", 10)
    assert [one.line for one in asked] == [1, 3]
    assert [one.line for one in problems] == [2] and said in problems[0].text
    assert len(problems[0].text) < 200


def test_many_wrong_lines_are_counted() -> None:
    _, problems = read_list("bad line here\n" * 1000, 1000)
    assert len(problems) == PROBLEMS_SHOWN + 1
    assert problems[-1].text == f"{1000 - PROBLEMS_SHOWN} further lines cannot be used"
    with pytest.raises(
        ListError, match="more than 100 lines cannot be used; the first is line 1: RA 'bad' is not a number"
    ):
        read_list("bad line here\n" * 1000, 100)


def test_a_votable_is_read_by_its_ucds() -> None:
    asked, problems = read_list(VOTABLE, 10)
    assert asked == [Asked(1, 250.5, 36.5, "r")]
    assert [(one.line, "RA nan" in one.text) for one in problems] == [(2, True)]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b"PK\x03\x04", "compressed"),
        (b"250 36 r\x81", "byte 8 cannot be read"),
        (b"PK\x03\x04", "workbook"),
        (b"SIMPLE  =                    T", "is FITS"),
        (b"250\x0036 r", "zero byte"),
        (b"", "no objects"),
        (b"# only a comment\n", "no objects"),
        (b"ra,dec\n250,36\n", "no column 'band'"),
        (VOTABLE.replace("?>", "?>" + BOMB).encode(), "DOCTYPE"),
        (VOTABLE.replace("</TABLE>", "").encode(), "not well-formed"),
        (VOTABLE.replace("TABLEDATA", "BINARY").encode(), "TABLEDATA"),
        (VOTABLE.replace('name="filter"', 'name="other"').encode(), "no column 'band'"),
        (b"250 36 r\n" * 11, "more than 10 objects"),
        (VOTABLE.replace('name="x"', 'name="\ud800"'), "half a character at place 172"),
    ],
)
def test_what_is_no_list_is_one_sentence(data: bytes | str, said: str) -> None:
    with pytest.raises(ListError, match=said):
        read_list(data, 10)


M51 = (202.46958333, 47.19527778, "r")


@pytest.mark.parametrize(
    "data",
    [
        # Excel in Europe: semicolons, decimal commas, CRLF, and a mark at the begin; or the code page of Windows, with accents.
        "RA;DEC;Band\r\n202,46958333;47,19527778;r\r\n".encode("utf-8-sig"),
        "sep=;\r\nNom;RA;DEC;Band\r\nÉtoile \N{GREEK SMALL LETTER ALPHA};202,46958333;47,19527778;r\r\n".encode(),
        "Nom;RA;DEC;Band\r\nÉtoile;202,46958333;47,19527778;r\r\n".encode("cp1252"),
        "Name\tRA\tDec\tBand\r\nM51\t202.46958333\t47.19527778\tr\r\n".encode("utf-16"),
        b'"M 51, the Whirlpool";"13:29:52.7";"+47:11:43";"r"'.join([b"name;ra;dec;band\n", b"\n"]),
        # VizieR: comments, units and dashes; sexagesimal with spaces.
        b"#RESOURCE=yCat\n#Column RAJ2000\n_RAJ2000\t_DEJ2000\tFilter\ndeg\tdeg\t\n----\t----\t-\n202.46958333\t47.19527778\tr\n",
        b'RAJ2000;DEJ2000;Band\n"h:m:s";"d:m:s";\n---;---;-\n13 29 52.7;+47 11 43;r\n',
        # TOPCAT: a header that is a comment; names with units.
        b"# name   RA_d        DEC_d       band\n  M51    202.46958333 47.19527778 r\n",
        b"RA (deg),Dec [deg],filter\n202.46958333,47.19527778,r\n",
        b"ra [hourangle],dec,band\n13.497972222,47.19527778,r\n",
        b"RA [rad],dec [rad],band\n3.5337608648,0.8237129890,r\n",
        # Lines without a header, as papers print them.
        b"13 29 52.7 +47 11 43 r",
        b"13h29m52.7s +47d11m43s r",
        "13:29:52,7 +47°11\N{PRIME}43\N{DOUBLE PRIME} r".encode(),
        b"202,46958333 47,19527778 r",
        b"202,46958333;47,19527778;r",
        b"202d28m10.5s, 47.19527778, r",
    ],
)
def test_what_other_programs_write_is_the_same_place(data: bytes) -> None:
    asked, problems = read_list(data, 10)
    assert problems == [] and len(asked) == 1
    assert (asked[0].ra, asked[0].dec) == pytest.approx(M51[:2], abs=2e-7) and asked[0].band == "r"


def test_southern_declinations_keep_their_sign() -> None:
    text = "0 10 0 -0 30 0 r\n0:10:0 \N{MINUS SIGN}00:30:00 r\n00h10m -0d30m r\n2,5;\N{MINUS SIGN}0,5;r\n"
    asked, problems = read_list(text, 10)
    assert problems == [] and {(one.ra, one.dec) for one in asked} == {(2.5, -0.5)}


def test_a_catalogue_without_bands_gets_the_one_that_is_chosen() -> None:
    catalogue = b"name,RAJ2000,DEJ2000\na,250.5,36.5\nb,250.6,36.6\n"
    with pytest.raises(ListError, match="no column 'band': add one, or choose a band for all objects"):
        read_list(catalogue, 10)
    assert [one.band for one in read_list(catalogue, 10, "g")[0]] == ["g", "g"]
    assert read_list("250.5 36.5\n13 29 52.7 +47 11 43\n250.5 36.5 z", 10, "i")[0][0].band == "i"
    assert [one.band for one in read_list("ra,dec,band\n1,2,\n1,2,u\n", 10, "i")[0]] == ["i", "u"]
    with pytest.raises(ListError, match="the band 'q' for all objects"):
        read_list(catalogue, 10, "q")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ra,dec,band\n250,36\n", "the line has 2 columns, and needs 3"),
        ("ra,dec,band\n,36,r\n", "RA is empty"),
        ("ra,dec,band\n2_5,36,r\n", "RA '2_5' is not a number"),
        ("10 5h30m0s r\n", "Dec '5h30m0s' is written in hours"),
        ('1,2,r\n1,"' + "x" * 200_000 + "\n", "has more than 20,000 characters"),
    ],
)
def test_a_line_that_is_no_object_is_named(text: str, said: str) -> None:
    _, problems = read_list(text, 10)
    assert len(problems) == 1 and said in problems[0].text


def table_of(**more: Any) -> Table:
    """Two objects, of which the second has no declination, behind columns of other kinds."""
    table = Table()
    table["name"] = ["a", "Sonnenblumengalaxie"]
    table["flags"] = np.array([[1, 2, 3], [4, 5, 6]], np.int16)
    table["is_star"] = [True, False]
    table["RAJ2000"] = np.array([202.46958333, 198.95554167])
    table["RAJ2000"].unit = "deg"
    table["DEJ2000"] = MaskedColumn(np.array([47.19527778, 42.02930556]), mask=[False, True])
    table["band"] = ["r", "g"]
    for name, value in more.items():
        table[name] = value
    return table


def written(table: Table, kind: str) -> bytes:
    data = io.BytesIO()
    table.write(data, format="votable", tabledata_format=kind)
    return data.getvalue()


@pytest.mark.parametrize("kind", ["tabledata", "binary", "binary2"])
def test_a_votable_in_each_form_of_rows(kind: str) -> None:
    asked, problems = read_list(written(table_of(), kind), 10)
    assert [(one.line, one.ra, one.dec, one.band) for one in asked] == [(1, *M51)]
    assert [one.line for one in problems] == [2]


def test_a_votable_says_its_units_and_its_system() -> None:
    hours = table_of(RAJ2000=np.array([13.497972222, 13.0]))
    hours["RAJ2000"].unit = "hourangle"
    assert read_list(written(hours, "binary2"), 10)[0][0].ra == pytest.approx(M51[0], abs=1e-7)
    with pytest.raises(ListError, match="the column of RA is in 'pix': give it in degrees"):
        read_list(VOTABLE.replace('ucd="pos.eq.ra;meta.main"', 'ucd="pos.eq.ra" unit="pix"'), 10)
    old = VOTABLE.replace("<TABLE>", '<COOSYS ID="old" system="eq_FK4"/><TABLE>')
    with pytest.raises(ListError, match="in 'eq_FK4': give them in ICRS"):
        read_list(old.replace('name="x"', 'name="x" ref="old"'), 10)


def test_a_votable_of_several_tables() -> None:
    """One has positions; two would leave one out, and nobody would know which."""
    other = '<TABLE><FIELD name="note" datatype="char"/><DATA><TABLEDATA/></DATA></TABLE>'
    assert read_list(VOTABLE.replace("<TABLE>", other + "<TABLE>"), 10)[0] == [Asked(1, 250.5, 36.5, "r")]
    own = re.findall("<TABLE>.*</TABLE>", VOTABLE, re.DOTALL)[0]
    with pytest.raises(ListError, match="2 tables with positions"):
        read_list(VOTABLE.replace(own, own + own), 10)
    # The error of a position is none, whatever it is called; of two positions the main one counts.
    field = '<FIELD name="RA" ucd="stat.error;pos.eq.ra" datatype="double"/>'
    assert read_list(VOTABLE.replace('<FIELD name="name" datatype="char" arraysize="*"/>', field), 10)[0]
    old = VOTABLE.replace("pos.eq.ra;meta.main", "POS_EQ_RA_MAIN").replace(
        "pos.eq.dec;meta.main", "POS_EQ_DEC_MAIN"
    )
    assert read_list(old, 10)[0] == [Asked(1, 250.5, 36.5, "r")]


STREAM = "<BINARY><STREAM{}>{}</STREAM></BINARY>"


@pytest.mark.parametrize(
    ("field", "stream", "said"),
    [
        ("", STREAM.format(' href="file:///etc/passwd"', ""), "in another file"),
        ("", STREAM.format("", "?"), "no base64"),
        ("", STREAM.format("", "AAAA"), "end in the middle"),
        (
            '<FIELD name="n" datatype="double" arraysize="99999999999"/>',
            STREAM.format("", "AAAA"),
            "in the middle",
        ),
        ('<FIELD name="n" datatype="double" arraysize="-5"/>', STREAM.format("", "AAAA"), "arraysize '-5'"),
        ('<FIELD name="n" datatype="wide"/>', STREAM.format("", "AAAA"), "datatype 'wide'"),
        ('<FIELD arraysize="0"/>' * 5000, STREAM.format("", "AAAA"), "has 5,004 columns"),
        ("", "<FITS><STREAM/></FITS>", "not TABLEDATA, BINARY or BINARY2"),
    ],
)
def test_a_votable_that_would_open_or_fill_something(field: str, stream: str, said: str) -> None:
    rows = re.findall("<TABLEDATA>.*</TABLEDATA>", VOTABLE, re.DOTALL)[0]
    text = VOTABLE.replace(rows, stream).replace("<FIELD", field + "<FIELD", 1)
    with pytest.raises(ListError, match=said):
        read_list(text.replace("<TABLE>", '<TABLE nrows="99999999999">'), 10)


@pytest.mark.parametrize("word", ["1" * 500_000 + "x", "+" + "1" * 500_000 + "e", "." + "1" * 500_000 + "x"])
def test_long_words_take_no_time(word: str) -> None:
    """Each would take more than an hour if a pattern looked at its characters again and again."""
    with pytest.raises(ValueError, match="…' is not a number"):
        check(1, word, "1", "r")
    assert read_list(VOTABLE.replace('name="x"', f'name="{"(" * 500_000}"'), 10)[0]
