"""A survey at web servers: requests on a real cluster, exposures that change or go, servers that stop, and secrets that stay secrets."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from astropy.io import fits  # type: ignore[import-untyped]
from harness import wait_until
from portals import APP, Server, started
from test_portal import QUICK, Program, exposures_of, new_name, targets
from webs import Site, serving

SECRET = "Signature=b5f2-a-secret-of-the-archive"
BANDS = "ugri"


def as_frame(exposure: bytes) -> bytes:
    """An exposure in the form of a frame of SDSS: calibrated, in nanomaggies, as floats."""
    with fits.open(io.BytesIO(exposure)) as file:
        header = file[0].header
        pixels = (file[0].data.astype(np.float64) - header["SKY"]) / header["CAL"]
        frame = fits.PrimaryHDU(pixels.astype(">f4"))
        for key in (
            "CTYPE1",
            "CTYPE2",
            "CRVAL1",
            "CRVAL2",
            "CRPIX1",
            "CRPIX2",
            "CD1_1",
            "CD1_2",
            "CD2_1",
            "CD2_2",
            "FILTER",
        ):
            frame.header[key] = header[key]
        frame.header["BUNIT"] = "nanomaggy"
        out = io.BytesIO()
        # Frames have tables behind the image.
        table = fits.BinTableHDU.from_columns([fits.Column("ALLSKY", "E", array=np.zeros(9))])
        fits.HDUList([frame, table]).writeto(out)
    return out.getvalue()


@pytest.fixture(scope="module")
def root(survey: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The survey's exposures of M13 as a server has them, a third of them as frames of SDSS are."""
    root = tmp_path_factory.mktemp("web") / "www"
    for band in BANDS:
        folder = root / "m13" / band
        folder.mkdir(parents=True)
        for number, path in enumerate(sorted((survey / "m13" / band).iterdir())):
            data = path.read_bytes()
            if number % 3 == 0:
                plain = gzip.decompress(data) if path.suffix == ".gz" else data
                (folder / f"{path.name.partition('.')[0]}.fits.bz2").write_bytes(
                    bz2.compress(as_frame(plain))
                )
            else:
                (folder / path.name).write_bytes(data)
    for path in root.glob("*/*/*"):
        os.utime(path, (10**9, 10**9))
    return root


def names_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob("*/*/*"))


def write_list(path: Path, site: Site, more: list[str] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([site.address(name) for name in names_of(site.root)] + (more or [])) + "\n")
    return path


@pytest.fixture(scope="module")
def site(root: Path) -> Iterator[Site]:
    with serving(Site(root)) as up:
        yield up


@pytest.fixture(scope="module")
def server(site: Site, survey: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("web-portal")
    (site.root / "page.fits").write_bytes(b"<html>\n" * 1000)
    listed = write_list(folder / "list.txt", site, [f"{site.url}/gone.fits", f"{site.url}/page.fits"])
    with started(folder / "data", listed, *QUICK, "--psf-sigma", "1.7") as up:
        # Where the tests look for the list of objects.
        up.survey = survey
        yield up


def place_of(server: Server, objects: list[dict[str, Any]]) -> list[str]:
    """The addresses of exposures that show these objects."""
    places = np.array([(one["ra"], one["dec"]) for one in objects]).T
    found = exposures_of(server).covering(objects[0]["band"], places[0], places[1], 41)
    return sorted({address for covering in found for _, address in covering})


def when_it_answers(program: Program, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The result once nodes have found that a server is back: until then one transfer in 15 s looks."""
    found: dict[str, Any] = {}

    def is_whole() -> bool:
        found.update(program.end(program.ask(objects))["result"])
        time.sleep(1)
        return bool(found["unread"] == [])

    wait_until(is_whole, "the server to be there for the nodes")
    return found


def once_known(program: Program, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of an equal request, once the portal has asked the servers again and keeps the one before."""
    found: dict[str, Any] = {}

    def is_known() -> bool:
        found.update(program.end(program.ask(objects))["result"])
        return bool(found["is_as_before"])

    wait_until(is_known, "the result to be known")
    return found


def test_a_result_is_there_before_the_server_is_asked_again(server: Server, site: Site) -> None:
    """Who waits by the API, or with the page open, does not wait for that."""
    program, objects = Program(server), targets(server, "u")[:5]
    number = program.ask(objects)
    try:

        def state() -> object:
            return program.client.get(f"/api/requests/{number}").json()["state"]

        wait_until(lambda: state() != "waiting", "the request to run")
        site.held = server.process.pid
        ended = program.client.get(f"/api/requests/{number}?wait=50").json()
        assert ended["state"] == "done" and ended["result"]["unread"] == []
    finally:
        site.held = 0
    # The portal still waited for the server then: where it gives up, it keeps no result for others.
    asked = "select count(*) from results where request = ?"
    wait_until(lambda: row_of(server.folder, asked, number) == 1, "the result to be kept")


def cuts_of(log: Path, begin: int) -> list[tuple[int, dict[str, Any]]]:
    """The nodes of tasks that have cut, and what they say of their exposures, by the event log from that byte on."""
    found = []
    for line in log.read_bytes()[begin:].splitlines(keepends=True):
        if b'"attempt_ended"' in line and line.endswith(b"\n"):
            ended = json.loads(line)["in"]["attempt_ended"]
            # Such a task reads the program and one exposure.
            if len(ended["report"]["inputs"]) == 2:
                found.append((ended["executor"], ended["report"]["inputs"][1]))
    return found


def test_as_from_a_folder(server: Server, site: Site, survey: Path, tmp_path: Path) -> None:
    """The same pictures, and each exposure is asked for about once, whatever its packing."""
    program, objects = Program(server), targets(server)
    assert set(exposures_of(server).addresses()) == {site.address(name) for name in names_of(site.root)}
    before, log = len(site.asked), next((server.folder / "cluster").rglob("events.jsonl"))
    begin = len(log.read_bytes())
    number = program.ask(objects)
    done = program.end(number)["result"]
    assert done["unread"] == [] and done["n_found"] == len(objects) and done["n_exposures"] >= 4
    stack = program.client.get(f"/api/requests/{number}/files/stack.fits").content
    whole = [one for one in site.asked[before:] if one[1] != "bytes=0-0"]
    assert len(whole) <= 2 * done["n_exposures"], "the nodes have copies"
    with started(tmp_path / "data", survey, *QUICK) as by_folder:
        other = Program(by_folder)
        number = other.ask(objects)
        expected = other.end(number)["result"]
        keys = ("n_cutouts", "n_found", "n_exposures")
        assert {key: done[key] for key in keys} == {key: expected[key] for key in keys}
        assert done["snr"] == pytest.approx(expected["snr"], abs=0.02)
        again = other.client.get(f"/api/requests/{number}/files/stack.fits").content
        # Exposures are added in the order of their names, which is another one here.
        assert np.allclose(
            fits.getdata(io.BytesIO(stack)), fits.getdata(io.BytesIO(again)), rtol=1e-3, atol=1e-4
        )
    # Another order of the objects is other work: it is done with the copies that the nodes have. A node that has none takes one of the
    # other node, or, where that does not answer, of the server: but never what it has read before.
    asked = len(site.asked)
    warm = program.end(program.ask(objects[::-1]))["result"]
    assert not warm["is_as_before"] and warm["local_bytes"] + warm["peer_bytes"] > 0
    n_cuts = done["n_exposures"]
    wait_until(lambda: len(cuts_of(log, begin)) >= 2 * n_cuts, "the log to have both requests")
    cuts = cuts_of(log, begin)
    read = [(node, one["object"]) for node, one in cuts if one["outcome"] in ("miss", "direct")]
    assert len(set(read)) == len(read), cuts
    given = {path for path, part, n_bytes in site.asked[asked:] if part != "bytes=0-0" and n_bytes}
    sizes = {one["size_bytes"] for _, one in cuts[n_cuts:] if one["outcome"] in ("miss", "direct")}
    assert {(site.root / path).stat().st_size for path in given} <= sizes, (given, cuts)


def test_what_cannot_be_indexed_is_named_and_the_rest_is_there(server: Server, site: Site) -> None:
    table = (server.folder / "exposures-left-out.csv").read_text().splitlines()
    assert table == [
        "address,what,why",
        f"{site.url}/gone.fits,missing,the server answered 404",
        f"{site.url}/page.fits,corrupt,page.fits does not start like a FITS file",
    ]
    assert f"{site.url}/gone.fits cannot be read: missing: the server answered 404" in server.printed
    assert f"Left out: 2 of {len(names_of(site.root)) + 2} exposures" in server.printed
    shown = httpx.get(f"{server.url}/api/survey").json()
    assert shown["n_exposures"] == dict.fromkeys(BANDS, 6)


def test_an_exposure_that_is_replaced_is_other_work(server: Server, site: Site) -> None:
    program, objects = Program(server), targets(server, "g")
    first = program.end(program.ask(objects))["result"]
    again = once_known(program, objects)
    assert not first["is_as_before"] and again["snr"] == first["snr"]
    name = place_of(server, objects)[0].removeprefix(site.url + "/")
    path, kept = site.root / name, (site.root / name).read_bytes()
    with fits.open(
        io.BytesIO(
            kept if name.endswith(".fits") else (gzip if name.endswith(".gz") else bz2).decompress(kept)
        )
    ) as file:
        file[0].data = (
            np.full_like(file[0].data, 5) + np.arange(file[0].data.shape[1], dtype=file[0].data.dtype) % 3
        )
        out = io.BytesIO()
        file.writeto(out)
    packed = (
        out.getvalue()
        if name.endswith(".fits")
        else (gzip if name.endswith(".gz") else bz2).compress(out.getvalue())
    )
    try:
        # Another file under the name, with an old date.
        path.with_name("new").write_bytes(packed)
        os.utime(path.with_name("new"), (10**9 + 60, 10**9 + 60))
        os.replace(path.with_name("new"), path)
        other = program.end(program.ask(objects))["result"]
    finally:
        path.write_bytes(kept)
        os.utime(path, (10**9 + 120, 10**9 + 120))
    assert not other["is_as_before"] and other["unread"] == [] and other["snr"] != first["snr"], (
        first,
        other,
    )
    last = program.end(program.ask(objects))["result"]
    assert not last["is_as_before"] and last["snr"] == first["snr"]


def test_what_goes_wrong_at_the_server_has_its_name(server: Server, site: Site) -> None:
    """404, 403, bytes that are no exposure, and a server that has no time for one."""
    program, objects = Program(server), targets(server, "i")
    whole = program.end(program.ask(objects))["result"]
    names = [address.removeprefix(site.url + "/") for address in place_of(server, objects)]
    assert len(names) >= 5
    kept = (site.root / names[2]).read_bytes()
    site.statuses = {names[0]: 404, names[1]: 403, names[3]: 503}
    try:
        (site.root / names[2]).write_bytes(b"<html>\n" * 1000)
        number = program.ask(objects)
        again = program.end(number)["result"]
        page = program.client.get(f"/api/requests/{number}").text
    finally:
        site.statuses = {}
        (site.root / names[2]).write_bytes(kept)
        os.utime(site.root / names[2], (10**9 + 60, 10**9 + 60))
    unread = {one["address"]: one for one in again["unread"]}
    kinds = [unread[site.address(name)]["kind"] for name in names[:4]]
    assert kinds == ["missing", "unreadable", "corrupt", "away"] and len(unread) == 4, unread
    assert "404" in unread[site.address(names[0])]["why"] and "403" in unread[site.address(names[1])]["why"]
    assert again["n_cutouts"] < whole["n_cutouts"] and site.address(names[3]) in page
    last = when_it_answers(program, objects)
    assert last["n_cutouts"] == whole["n_cutouts"] and not last["is_as_before"]


def test_links_of_the_virtual_observatory_lead_to_the_server(server: Server, site: Site) -> None:
    import pyvo  # type: ignore[import-untyped]

    one = targets(server)[0]
    service = pyvo.dal.SIA2Service(f"{server.url}/vo/sia2")
    found = service.search(pos=(one["ra"], one["dec"], 0.001), band=(6.0e-7, 6.2e-7))
    assert len(found) > 0
    row = found[0]
    assert str(row["obs_id"]).startswith(site.url)
    links = next(found.iter_datalinks())
    assert [str(link["semantics"]) for link in links] == ["#this", "#cutout"]
    answer = httpx.get(str(links[0]["access_url"]))
    assert answer.status_code == 307 and answer.headers["location"] == str(row["obs_id"])
    data = httpx.get(answer.headers["location"]).content
    assert int(links[0]["content_length"]) == len(data)
    cut = links.get_first_proc().process(circle=(one["ra"], one["dec"], 0.005)).read()
    with fits.open(io.BytesIO(cut)) as file:
        assert 0 < file[0].data.shape[0] <= 40
    # Only addresses of the list are ever read.
    asked = len(site.asked)
    for name in (f"{site.url}/secret", f"ivo://eyas.portal/survey?{site.url}/secret", "../x"):
        answer = httpx.get(f"{server.url}/vo/soda", params={"ID": name, "CIRCLE": "1 2 0.1"})
        assert answer.status_code == 400 and "there is no exposure" in answer.text
        assert "NotFoundFault" in httpx.get(f"{server.url}/vo/links", params={"ID": name}).text
        assert httpx.get(f"{server.url}/vo/files/{name}").status_code in (404, 422)
    assert len(site.asked) == asked


def test_cutouts_of_exposures_whose_server_refuses(server: Server, site: Site) -> None:
    one = targets(server)[0]
    address = place_of(server, [one])[0]
    name = address.removeprefix(site.url + "/")
    exposure = exposures_of(server).find_address(address)
    assert exposure is not None
    asked = {"ID": str(exposure.id), "CIRCLE": f"{one['ra']} {one['dec']} 0.005"}

    def cut() -> httpx.Response:
        return httpx.get(f"{server.url}/vo/soda", params=asked, timeout=90)

    for status, expected, said in (
        (410, 404, "Error: the exposure {} is missing: "),
        (403, 502, "Error: the exposure {} is unreadable: "),
        (503, 503, "ServiceUnavailable: the exposure {} is away: "),
    ):
        site.statuses = {name: status}
        try:
            refused = cut()
        finally:
            site.statuses = {}
        assert refused.status_code == expected and refused.text.startswith(said.format(address)), refused.text
        assert str(status) in refused.text and refused.text.count("\n") == 1
        assert ("retry-after" in refused.headers) == (expected == 503)
    wait_until(lambda: cut().status_code == 200, "the server to be there for the nodes")


def test_an_example_is_where_exposures_look(server: Server) -> None:
    client = httpx.Client(base_url=server.url, timeout=60)
    client.post("/sign-up", data={"name": new_name(), "password": "correct horse battery"})
    page = client.get("/requests/new?example=1").text
    found = re.search(r"<textarea[^>]*>([^<]*)</textarea>", page)
    assert found and len(found[1].splitlines()) == 20
    program = Program(server)
    number = program.client.post("/api/requests", json={"text": found[1]}).json()["id"]
    ended = program.end(number)
    assert ended["state"] == "done" and ended["result"]["n_found"] == 20, ended


def test_a_server_that_stops_is_away_and_comes_back(root: Path, survey: Path, tmp_path: Path) -> None:
    """Without parts, ETags and dates: nothing shows that an exposure is the same, so all work is done anew."""
    site = Site(root, ranges=False, etags=False, dates=False)
    with serving(site):
        port = int(site.url.rpartition(":")[2])
        listed = write_list(tmp_path / "list.txt", site)
        with started(tmp_path / "data", listed, *QUICK, "--psf-sigma", "1.7") as up:
            up.survey = survey
            program, objects = Program(up), targets(up, "u")
            first = program.end(program.ask(objects))["result"]
            again = program.end(program.ask(objects))["result"]
            assert first["unread"] == [] and first["n_cutouts"] == again["n_cutouts"] > 0
            assert not first["is_as_before"] and not again["is_as_before"]
            site.stop()
            lost = program.end(program.ask(objects))
            assert lost["state"] == "done" and lost["result"]["n_found"] == 0
            kinds = {one["kind"] for one in lost["result"]["unread"]}
            assert kinds == {"away"} and len(lost["result"]["unread"]) == first["n_exposures"], lost
            assert all(one["address"].startswith(site.url) for one in lost["result"]["unread"])
            with serving(site, port):
                assert when_it_answers(program, objects)["n_cutouts"] == first["n_cutouts"]


def test_the_query_of_a_signed_url_is_nowhere_to_be_seen(root: Path, survey: Path, tmp_path: Path) -> None:
    with serving(Site(root, query=SECRET)) as site:
        listed = write_list(tmp_path / "list.txt", site, [site.address("gone.fits")])
        with started(tmp_path / "data", listed, *QUICK, "--psf-sigma", "1.7") as up:
            up.survey = survey
            program, objects = Program(up), targets(up, "r")
            number = program.ask(objects)
            done = program.end(number)["result"]
            assert done["unread"] == [] and done["n_found"] == len(objects)
            once_known(program, objects)
            name = place_of(up, objects)[0]
            path = name.partition("?")[0].removeprefix(site.url + "/")
            assert re.fullmatch(re.escape(f"{site.url}/{path}") + r"\?hidden=[0-9a-f]{16}", name)
            site.statuses = {path: 404}
            lost_number = program.ask(objects)
            lost = program.end(lost_number)["result"]
            assert [(one["address"], one["kind"]) for one in lost["unread"]] == [(name, "missing")]
            site.statuses = {}
            texts = [program.client.get(f"/api/requests/{n}").text for n in (number, lost_number)]
            client = httpx.Client(base_url=up.url, timeout=60)
            client.post("/sign-in", data={"name": program.name, "password": "correct horse battery"})
            texts += [client.get(f"/requests/{n}").text for n in (number, lost_number)]
            assert "404" in texts[-1] and path in texts[-1]
            one = objects[0]
            texts.append(httpx.get(f"{up.url}/vo/sia2/query?POS=CIRCLE+{one['ra']}+{one['dec']}+0.1").text)
            exposure = exposures_of(up).find_address(name)
            assert exposure is not None
            links = httpx.get(f"{up.url}/vo/links", params={"ID": str(exposure.id)}).text
            assert "AuthorizationFault" in links and "#cutout" in links
            refused = httpx.get(f"{up.url}/vo/files/{exposure.id}")
            assert refused.status_code == 403 and "location" not in refused.headers
            circle = {"ID": str(exposure.id), "CIRCLE": f"{exposure.ra} {exposure.dec} 0.005"}
            made = httpx.get(f"{up.url}/vo/soda", params=circle, timeout=90)
            assert made.status_code == 200 and made.content.startswith(b"SIMPLE  =")
            site.statuses = {path: 403}
            broken = httpx.get(f"{up.url}/vo/soda", params=circle, timeout=90)
            texts += [links, refused.text, broken.text, up.printed]
            assert SECRET not in "".join(texts)
            files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
        files = sorted({*files, *(path for path in (tmp_path / "data").rglob("*") if path.is_file())})
        having = {path.name for path in files if path.exists() and SECRET.encode() in path.read_bytes()}
        # The portal has to know it, in a file that is its user's alone.
        assert having <= {"portal.db", "portal.db-wal"}, having
        assert (tmp_path / "data" / "portal.db").stat().st_mode & 0o077 == 0


def test_an_indexing_that_was_killed_goes_on(root: Path, survey: Path, tmp_path: Path) -> None:
    """With the default survey before and after it in the same folder, whose index is another one."""
    www = tmp_path / "www"
    for number in range(400):
        (www / f"{number:03d}").mkdir(parents=True)
        os.link(
            root / "m13" / "r" / sorted(os.listdir(root / "m13" / "r"))[1], www / f"{number:03d}" / "a.fits"
        )
    with serving(Site(www)) as site:
        listed = tmp_path / "list.txt"
        listed.write_text("".join(f"{site.url}/{number:03d}/a.fits\n" for number in range(400)))
        folder = tmp_path / "data"
        folder.mkdir()
        command: list[Any] = [sys.executable, APP / "serve.py", "--dir", folder, "--survey", listed, *QUICK]
        # The last ones wait until the portal is killed.
        site.statuses = {}
        gate = site.gate_after(300)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(gate.is_set, "300 headers to be read")
        wait_until(lambda: n_rows(folder) >= 200, "rows to be kept")
        # Another one would read the same headers, and write the same index.
        other = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert other.returncode == 2 and f"process {process.pid}, http://127.0.0.1:" in other.stderr, other
        process.send_signal(signal.SIGKILL)
        process.wait()
        site.open_gate()
        kept = n_rows(folder)
        assert 200 <= kept < 400
        site.asked = []
        with started(folder, listed, *QUICK) as up:
            assert httpx.get(f"{up.url}/api/survey").json()["n_exposures"] == {"r": 400}
            # Some were asked for by the portal that was killed, too.
            assert len({path for path, _, _ in site.asked}) == 400 - kept
    # A survey in a folder, with the same data: the index is made anew.
    with started(folder, survey, *QUICK) as up:
        assert sum(httpx.get(f"{up.url}/api/survey").json()["n_exposures"].values()) == 60


def row_of(folder: Path, statement: str, *words: str) -> int:
    """What a statement finds in the portal's database; 0 where it is not there yet."""
    try:
        with sqlite3.connect(f"file:{folder}/portal.db?mode=ro", uri=True) as base:
            return int(base.execute(statement, words).fetchone()[0])
    except sqlite3.Error:
        return 0


def n_rows(folder: Path) -> int:
    return row_of(folder, "select count(*) from exposures")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("ftp://h/a.fits\n", "line 1 of"),
        ("gone.fits\n", "none of the 1 exposures"),
        ("# nothing\n", "has no exposures"),
    ],
)
def test_a_wrong_list_is_one_sentence(lines: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(lines)
    command: list[Any] = [sys.executable, APP / "serve.py", "--dir", tmp_path / "data", "--nodes", "1"]
    done = subprocess.run(
        [*command, "--survey", tmp_path / "list"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2 and done.stderr.startswith("error: ") and said in done.stderr, done
    assert "Traceback" not in done.stderr


def test_a_list_of_paths(tmp_path: Path, survey: Path) -> None:
    """Beside the list or anywhere. Afterwards a survey in a folder has an index of its own, with the same data."""
    shutil.copytree(survey / "m13" / "r", tmp_path / "r")
    names = sorted(os.listdir(tmp_path / "r"))
    listed = tmp_path / "list.csv"
    listed.write_text(
        "path,band\n" + "".join(f"r/{name},r\n" for name in names[:3]) + f"{tmp_path}/r/{names[3]},\n"
    )
    with started(tmp_path / "data", listed, *QUICK, "--psf-sigma", "1.7") as up:
        up.survey = survey
        program = Program(up)
        done = program.end(program.ask(targets(up)))["result"]
        assert done["n_exposures"] == 4 and done["unread"] == []
        assert set(exposures_of(up).addresses()) == {
            *(f"r/{name}" for name in names[:3]),
            f"{tmp_path}/r/{names[3]}",
        }
    with started(tmp_path / "data", survey, *QUICK) as up:
        assert sum(httpx.get(f"{up.url}/api/survey").json()["n_exposures"].values()) == 60
