"""Lists of exposures, and headers of exposures at web servers, without a cluster."""

from __future__ import annotations

import bz2
import gzip
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from harness import wait_until
from portal import store, surveys, webfiles
from portal.index import Index
from webs import Site, serving


@pytest.fixture
def root(survey: Path, tmp_path: Path) -> Path:
    """One exposure of the survey in all ways of packing, one of the size of SDSS's, and what is none."""
    root = tmp_path / "www"
    root.mkdir()
    source = next(iter(sorted((survey / "m13" / "r").glob("*.fits*"))))
    plain = source.read_bytes()
    plain = gzip.decompress(plain) if plain[:2] == b"\x1f\x8b" else plain
    noise = np.random.default_rng(1).normal(0, 50, 3_000_000).astype(">i2").tobytes()
    files = {
        "plain.fits": plain,
        "packed.fits.gz": gzip.compress(plain),
        "packed.fits.bz2": bz2.compress(plain),
        # Frames of SDSS are so large; a header needs one block of bzip2.
        "large.fits.bz2": bz2.compress(plain + noise),
        "large.fits.gz": gzip.compress(plain + noise, 1),
        "large.fits": plain + noise,
        # The header is in the second and third stream.
        "streams.fits.gz": gzip.compress(plain[:1000])
        + gzip.compress(plain[1000:2000])
        + gzip.compress(plain[2000:]),
        "page.fits": b"<html>" * 1000,
        "empty.fits": b"",
        "cut.fits": plain[:2000],
        "broken.fits.gz": gzip.compress(plain)[:30] + bytes(5000),
        "endless.fits": plain[:80] + b" " * 40_000_000,
    }
    for name, data in files.items():
        (root / name).write_bytes(data)
    return root


@pytest.mark.parametrize("ranges", [True, False])
def test_headers_are_read_without_the_pixels(root: Path, ranges: bool) -> None:
    web = webfiles.Web()
    with serving(Site(root, ranges=ranges)) as site:
        known = None
        for name in (
            "plain.fits",
            "packed.fits.gz",
            "packed.fits.bz2",
            "streams.fits.gz",
            "large.fits",
            "large.fits.gz",
            "large.fits.bz2",
        ):
            header, size = web.header(f"{site.url}/{name}", name)
            assert header["CTYPE1"] == "RA---TAN" and size == (root / name).stat().st_size
            known = known or header
            assert header == known
        if ranges:
            given = Counter[str]()
            for path, _, n_bytes in site.asked:
                given[path] += n_bytes
            assert given["large.fits"] == given["large.fits.gz"] == webfiles.FIRST_BYTES
            # This one's pixels are noise, so its first block is longer than the first part.
            assert (
                given["large.fits.bz2"]
                == 4 * webfiles.FIRST_BYTES_BZIP2
                < (root / "large.fits.bz2").stat().st_size
            )
        for name, kind, said in (
            ("page.fits", "corrupt", "does not start like a FITS file"),
            ("empty.fits", "corrupt", "is empty"),
            ("cut.fits", "corrupt", "ends in the middle of its header"),
            ("broken.fits.gz", "corrupt", "damaged"),
            ("endless.fits", "corrupt", "its header does not end"),
            ("gone.fits", "missing", "the server answered 404"),
        ):
            with pytest.raises(webfiles.Unread) as caught:
                web.header(f"{site.url}/{name}", name)
            assert caught.value.kind == kind and said in caught.value.why, (name, caught.value)
    web.close()


def test_what_may_pass_is_tried_again_and_no_text_has_a_query(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webfiles, "RETRY_S", 0.01)
    web = webfiles.Web()
    with serving(Site(root, query="sig=a-secret")) as site:
        url = site.address("plain.fits")
        assert web.header(url, "plain.fits")[0]["CTYPE1"] == "RA---TAN"
        for status, kind, n in (
            (503, "away", 3),
            (429, "away", 3),
            (403, "unreadable", 1),
            (410, "missing", 1),
        ):
            site.statuses, site.asked = {"plain.fits": status}, []
            with pytest.raises(webfiles.Unread) as caught:
                web.header(url, "plain.fits")
            assert (caught.value.kind, len(site.asked)) == (kind, n) and str(status) in caught.value.why
        site.statuses = {}
        site.moved = {"plain.fits": f"/packed.fits.gz?{site.query}", "page.fits": f"/page.fits?{site.query}"}
        assert web.header(url, "plain.fits")[0]["CTYPE1"] == "RA---TAN"
        for where in (site.address("page.fits"), "file:///etc/passwd?sig=a-secret"):
            site.moved["page.fits"] = where
            with pytest.raises(webfiles.Unread) as caught:
                web.header(site.address("page.fits"), "page.fits")
            assert caught.value.kind == "unreadable" and "a-secret" not in str(caught.value)
    with pytest.raises(webfiles.Unread) as caught:
        web.header(url, "plain.fits")
    assert caught.value.kind == "away" and "a-secret" not in str(caught.value), caught.value
    web.close()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_gives_single_bytes_holds_nobody_for_long(
    root: Path, ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webfiles, "HEADER_S_MAX", 0.5)
    web = webfiles.Web()
    with serving(Site(root, ranges=ranges)) as site:
        site.wait_s = 0.1
        with pytest.raises(webfiles.Unread, match=r"away: the server gives its header too slowly"):
            web.header(f"{site.url}/plain.fits", "plain.fits")
    web.close()


def test_what_shows_that_a_file_is_the_same(root: Path, tmp_path: Path, index: Index) -> None:
    """Absence of a version never stands for an equal one."""
    survey = surveys.Survey(index, tmp_path, 1.4, True)
    path = root / "plain.fits"
    os.utime(path, (10**9, 10**9))
    for ranges in (True, False):
        for etags, dates in ((True, True), (True, False), (False, True)):
            with serving(Site(root, ranges=ranges, etags=etags, dates=dates)) as site:
                address = f"{site.url}/plain.fits"
                before = survey.versions([address])
                assert before is not None and before == survey.versions([address])
                # As large as before, at another time.
                os.utime(path, (10**9 + 5, 10**9 + 5))
                assert survey.versions([address]) not in (before, None)
                if not etags:
                    # Somebody may write it once more within this second.
                    os.utime(path)
                    assert survey.versions([address]) is None
                os.utime(path, (10**9, 10**9))
                both = survey.versions([address, str(path)])
                assert both is not None and both[:1] == before and len(both) == 2
                assert survey.versions([address, f"{site.url}/gone.fits"]) is None
        with serving(Site(root, ranges=ranges, etags=False, dates=False)) as site:
            assert survey.versions([f"{site.url}/plain.fits"]) is None
    assert survey.versions([f"{site.url}/plain.fits"]) is None, "nobody is there"
    assert survey.versions([str(root)]) is None and survey.versions([str(root / "gone.fits")]) is None
    survey.close()


def test_lists(tmp_path: Path) -> None:
    listed = tmp_path / "list"

    def read(text: str) -> list[tuple[str, str, str | None]]:
        listed.write_text(text, encoding="utf-8")
        return [(one.address, one.query, one.band) for one in surveys.read_list(listed).values()]

    assert read(
        "# frames\n\nhttps://h/a.fits\na b/c.fits\n/d/e.fits.gz r\nhttp://h/f.fits g\nhttps://h/a.fits\n"
    ) == [
        ("https://h/a.fits", "", None),
        ("a b/c.fits", "", None),
        ("/d/e.fits.gz", "", "r"),
        ("http://h/f.fits", "", "g"),
    ]
    assert read('run,URL,filter\n1,"https://h/a,b.fits",r\n2,https://h/c.fits,\n') == [
        ("https://h/a,b.fits", "", "r"),
        ("https://h/c.fits", "", None),
    ]
    assert read("\ufeffpath\nx/y.fits\n") == [("x/y.fits", "", None)]
    # Two queries are two exposures, and no address has one.
    first, second = read("http://h/get?id=1&sig=abc\nhttp://h/get?id=2\n")
    assert (
        first[0] != second[0] and first[0].startswith("http://h/get?hidden=") and first[1] == "id=1&sig=abc"
    )
    assert surveys.with_query(*first[:2]) == "http://h/get?id=1&sig=abc"
    for text, said in (
        ("", "has no exposures"),
        ("http://h/a.fits\nhttp://ada:secret@h/b.fits?secret\n", "line 2 of"),
        ("http:///a.fits", "has no host"),
        ("http://h:99999/a.fits", "no port that can be"),
        ("http://h/a.fits#secret", "has a fragment"),
        ("http://h/a b.fits?secret", "none of the bands"),
        ("s3://bucket/a.fits", "exposures at s3:// are not read"),
        ("file:///etc/passwd", "exposures at file:// are not read"),
        ("http://h/a.fits x", "is none of the bands"),
        ("url,band\n,r\n", "line 2 of"),
    ):
        with pytest.raises(surveys.WrongList) as caught:
            read(text)
        assert said in str(caught.value) and "secret" not in str(caught.value), caught.value
    listed.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(surveys.WrongList, match="cannot be read"):
        surveys.read_list(listed)
    assert surveys.name_of("http://h/x/frame-r.fits.bz2") == "frame-r.fits.bz2"
    assert surveys.name_of("http://h/get?hidden=12") == "get" and surveys.name_of("http://h/") == "exposure"
    assert surveys.name_of("http://h/%2e%2e%2f%2e%2e") == "exposure"
    assert surveys.name_of("a/cut.fits") == "exposure-cut.fits" and surveys.name_of("-x") == "exposure--x"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    engine = store.connect(f"sqlite:///{tmp_path}/i.db")
    yield Index(engine)
    engine.dispose()


def test_an_index_follows_its_list_and_names_what_it_leaves_out(
    root: Path, tmp_path: Path, index: Index
) -> None:
    survey = surveys.Survey(index, tmp_path, 1.4, True)
    (tmp_path / "folder.fits").mkdir()
    (tmp_path / "here.fits").write_bytes((root / "plain.fits").read_bytes())
    (tmp_path / "broken.fits.gz").write_bytes((root / "broken.fits.gz").read_bytes())
    listed = tmp_path / "list"

    def fill(lines: list[str]) -> dict[str, tuple[str, str]]:
        listed.write_text("\n".join(lines))
        unread = surveys.fill(survey, surveys.read_list(listed), lambda _: None)
        return {address: (error.kind, error.why) for address, error in unread}

    with serving(Site(root, query="sig=a-secret")) as site:
        lines = [site.address(name) for name in ("plain.fits", "large.fits.bz2", "page.fits", "gone.fits")]
        paths = ["here.fits", str(root / "packed.fits.gz"), "folder.fits", "none.fits", "broken.fits.gz"]
        site.statuses = {"large.fits.gz": 403}
        unread = fill([*lines, *paths, site.address("large.fits.gz"), site.address("large.fits") + " q"][:-1])
        kinds = {address.split("?")[0].rpartition("/")[2]: kind for address, (kind, _) in unread.items()}
        assert kinds == {
            "page.fits": "corrupt",
            "gone.fits": "missing",
            "folder.fits": "unreadable",
            "none.fits": "missing",
            "broken.fits.gz": "corrupt",
            "large.fits.gz": "unreadable",
        }
        assert "a-secret" not in str(unread)
        known = index.addresses()
        assert len(known) == 4 and set(known.values()) == {"r"}
        hidden = next(address for address in known if "plain.fits" in address)
        assert survey.places([hidden, "here.fits"]) == {
            hidden: lines[0],
            "here.fits": str(tmp_path / "here.fits"),
        }
        assert survey.public_url(hidden) is None
        # What is in the index is not read again; what is not is tried again, and what left the list goes.
        site.asked, site.statuses = [], {}
        unread = fill([*lines[1:], *paths[:1], site.address("large.fits.gz")])
        assert sorted({path for path, _, _ in site.asked}) == ["gone.fits", "large.fits.gz", "page.fits"]
        assert len(unread) == 2 and len(index.addresses()) == 3
        assert survey.places([hidden])[hidden] == hidden, "the query went with its exposure"
        assert index.has_urls()
        # The list says another band than the header.
        fill([lines[1] + " g"])
        assert list(index.addresses().values()) == ["g"]
    unread_table = tmp_path / "left-out.csv"
    surveys.write_unread(unread_table, [("a", webfiles.Unread("away", "it, too"))])
    assert unread_table.read_text() == 'address,what,why\na,away,"it, too"\n'
    surveys.write_unread(unread_table, [])
    assert not unread_table.exists()


def test_headers_that_no_database_takes_leave_out_nothing_else(
    root: Path, tmp_path: Path, index: Index
) -> None:
    survey = surveys.Survey(index, tmp_path, 1.4, True)
    plain = (root / "plain.fits").read_bytes()
    names = []
    for number, (keyword, value) in enumerate(
        (
            ("CRVAL2", "999.0"),
            ("CRVAL1", "1E30"),
            ("NAXIS1", "99999999999"),
            ("NAXIS2", "-3"),
            ("CD1_1", "1E300"),
            ("NAXIS1", "'x'"),
        )
    ):
        card = f"{keyword:<8}=".encode()
        at = plain.index(card)
        names.append(f"bad{number}.fits")
        (root / names[-1]).write_bytes(
            plain[:at] + f"{keyword:<8}= {value:>20}".ljust(80).encode() + plain[at + 80 :]
        )
    with serving(Site(root)) as site:
        lines = [f"{site.url}/{name}" for name in [*names, "plain.fits"]]
        # Hosts that can be none.
        lines += [f"http://{'a' * 300}.example/a.fits", "http://xn--/a.fits", "http://a..b/a.fits"]
        (tmp_path / "list").write_text("\n".join(lines))
        unread = surveys.fill(survey, surveys.read_list(tmp_path / "list"), print)
        assert len(unread) == len(lines) - 1, unread
        assert list(index.addresses()) == [f"{site.url}/plain.fits"]
        assert [error.kind for address, error in unread if address.startswith(site.url)] == ["corrupt"] * len(
            names
        )


def test_a_server_that_does_not_answer_is_not_asked_for_all(
    root: Path, tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webfiles, "RETRY_S", 0.01)
    survey = surveys.Survey(index, tmp_path, 1.4, True)
    with serving(Site(root)) as site, serving(Site(root)) as good:
        site.statuses = {"": 503}
        lines = [f"{site.url}/{n}.fits" for n in range(300)] + [f"{good.url}/plain.fits"]
        (tmp_path / "list").write_text("\n".join(lines))
        unread = surveys.fill(survey, surveys.read_list(tmp_path / "list"), lambda _: None)
        assert len(site.asked) < 3 * (surveys.SILENT_AFTER + webfiles.AT_ONCE + 1)
    assert len(unread) == 300 and {error.kind for _, error in unread} == {"away"}
    assert list(index.addresses()) == [f"{good.url}/plain.fits"]
    assert sum("did not answer for 20 exposures" in error.why for _, error in unread) > 200


def test_only_so_many_are_asked_at_once(root: Path, tmp_path: Path, index: Index) -> None:
    survey = surveys.Survey(index, tmp_path, 1.4, True)
    with serving(Site(root)) as site:
        for n in range(60):
            (root / f"{n}.fits").write_bytes((root / "plain.fits").read_bytes())
        (tmp_path / "list").write_text("\n".join(f"{site.url}/{n}.fits" for n in range(60)))
        site.may_answer.clear()
        said: list[Any] = []
        filling = Thread(
            target=lambda: said.append(surveys.fill(survey, surveys.read_list(tmp_path / "list"), print))
        )
        filling.start()
        wait_until(lambda: site.n_now == webfiles.AT_ONCE, "as many requests as there may be")
        site.may_answer.set()
        filling.join(60)
        assert said == [[]] and len(index.addresses()) == 60
        assert site.n_most == webfiles.AT_ONCE
