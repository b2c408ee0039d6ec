"""Lists of objects in every form, and how each line that is wrong is named."""

from __future__ import annotations

import pytest
from portal.lists import PROBLEMS_SHOWN, Asked, ListError, read_list

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
    _, problems = read_list("bad line here\n" * 1000, 10)
    assert len(problems) == PROBLEMS_SHOWN + 1
    assert problems[-1].text == f"{1000 - PROBLEMS_SHOWN} further lines cannot be used"


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
        (b"250 36 r\xff", "byte 8 cannot be read"),
        (b"250\x0036 r", "zero byte"),
        (b"", "no objects"),
        (b"# only a comment\n", "no objects"),
        (b"ra,dec\n250,36\n", "no column 'band'"),
        (VOTABLE.replace("?>", "?>" + BOMB).encode(), "DOCTYPE"),
        (VOTABLE.replace("</TABLE>", "").encode(), "not well-formed"),
        (VOTABLE.replace("TABLEDATA", "BINARY").encode(), "TABLEDATA"),
        (VOTABLE.replace('name="filter"', 'name="other"').encode(), "no column 'band'"),
        (b"250 36 r\n" * 11, "more than 10 objects"),
    ],
)
def test_what_is_no_list_is_one_sentence(data: bytes, said: str) -> None:
    with pytest.raises(ListError, match=said):
        read_list(data, 10)
