"""The portal as people and programs meet it: a browser, the API, and clients of the Virtual Observatory, on a real cluster."""

from __future__ import annotations

import gzip
import http.client
import io
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import eyas
import httpx
import numpy as np
import pytest
from astropy.io import fits  # type: ignore[import-untyped]
from harness import need_program, wait_until
from playwright.sync_api import Browser, Page, expect
from portal import store
from portal.index import Index
from portal.work import LAST_USER, LAST_WEIGHT, program_of
from portals import APP, PHONE, Server, check_page, go_by_keyboard, started

PASSWORD = "correct horse battery"
QUICK = ("--nodes", "0..2", "--slots", "2", "--home-wait", "1s", "--accounts-per-hour", "1000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, survey: Path) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("portal") / "data", survey, *QUICK) as up:
        yield up


def new_name() -> str:
    return "u" + secrets.token_hex(4)


def targets(server: Server, band: str = "r", field: str = "m13") -> list[dict[str, Any]]:
    """Sources of the survey that its exposures show in this band, at most 20."""
    lines = [line.split(",") for line in (server.survey / "targets.csv").read_text().splitlines()[1:]]
    places = [(float(ra), float(dec)) for name, ra, dec, _ in lines if name.startswith(field)]
    ra, dec = np.array(places).T
    shown = exposures_of(server).covering(band, ra, dec, 41)
    found = [place for place, covering in zip(places, shown, strict=True) if covering]
    return [{"ra": ra, "dec": dec, "band": band} for ra, dec in found[:20]]


@cache
def index_of(folder: Path) -> Index:
    return Index(store.connect(f"sqlite:///{folder}/portal.db"))


def exposures_of(server: Server) -> Index:
    """The portal's own index."""
    return index_of(server.folder)


class Program:
    """A program that has an account, by its token."""

    def __init__(self, server: Server, name: str | None = None, password: str = PASSWORD) -> None:
        self.name = name or new_name()
        self.client = httpx.Client(base_url=server.url, timeout=60)
        if name is None:
            assert (
                self.client.post("/sign-up", data={"name": self.name, "password": PASSWORD}).status_code
                == 303
            )
            self.client.cookies.clear()
        made = self.client.post("/api/tokens", json={"name": self.name, "password": password})
        assert made.status_code == 201, made.text
        self.client.headers["Authorization"] = f"Bearer {made.json()['token']}"

    def ask(self, objects: list[dict[str, Any]], **more: Any) -> str:
        made = self.client.post("/api/requests", json={"objects": objects, **more})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def end(self, number: str) -> dict[str, Any]:
        def state() -> dict[str, Any]:
            found: dict[str, Any] = self.client.get(f"/api/requests/{number}").json()
            return found

        wait_until(lambda: state()["state"] in ("done", "failed", "cancelled"), f"request {number} to end")
        return state()


# ---------------------------------------------------------------------------------------- in a browser


def sign_up(page: Page, server: Server, name: str) -> None:
    page.goto(server.url)
    page.get_by_role("navigation").get_by_role("link", name="Sign up").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("heading", name="New request")).to_be_visible()


def test_from_signing_up_to_a_picture(server: Server, browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    sign_up(page, server, new_name())
    page.get_by_role("link", name="Fill in 20 objects").click()
    assert len(page.get_by_label("Objects").input_value().splitlines()) == 20
    page.get_by_role("button", name="Stack them").click()
    expect(page.locator("#picture")).to_be_visible()
    # A picture is there before its bytes have come.
    page.locator("#picture").evaluate("image => image.decode()")
    assert page.evaluate("document.getElementById('picture').naturalWidth") == 410
    expect(page.locator("#n-found")).to_have_text("20 of 20")
    # The source is in the stack, and one cutout does not show it.
    page.locator("#one").evaluate("image => image.decode()")
    said = re.search(
        r"The first of them alone: signal-to-noise (-?[\d.]+)", page.locator("main").inner_text()
    )
    snr = (
        page.get_by_text("Signal-to-noise in the middle").locator("xpath=following-sibling::dd").inner_text()
    )
    assert said and float(said[1]) < float(snr) / 3, (said, snr)
    for text in (
        "41 \N{MULTIPLICATION SIGN} 41 pixels",
        "Computers used",
        "Objects not in the survey",
        "Data not in the cache",
        "KB",
    ):
        assert text in page.locator("main").inner_text()
    assert page.locator("svg.sky circle.found").count() == 20
    with page.expect_download() as downloading:
        page.get_by_role("link", name="FITS").click()
    path = tmp_path / "stack.fits"
    downloading.value.save_as(path)
    with fits.open(path) as file:
        assert (
            file[0].data.shape == (41, 41) and file[0].header["SNR"] > 3 and file[0].header["FILTER"] == "r"
        )
        # A star's profile fits best in the middle.
        y, x = np.mgrid[-4:5, -4:5]
        star = np.exp(-(x**2 + y**2) / (2 * 1.7**2))
        places = [(r, c) for r in (8, 20, 32) for c in (8, 20, 32)]
        heights = [float((file[0].data[r - 4 : r + 5, c - 4 : c + 5] * star).sum()) for r, c in places]
        assert heights[4] == max(heights) > 2 * sorted(heights)[-2], heights

    check_page(page)
    # The back button shows the form again, with the list, and a second press of it makes no second request.
    done = page.url
    page.go_back()
    expect(page.get_by_role("button", name="Stack them")).to_be_enabled()
    page.get_by_role("button", name="Stack them").click()
    expect(page.locator("#picture")).to_be_visible()
    assert page.url == done
    # An address for others, in a browser that has not signed in.
    page.get_by_role("button", name="Make an address for others").click()
    shared = page.locator("#share").get_attribute("href")
    other = browser.new_context().new_page()
    other.goto(server.url + str(shared))
    expect(other.locator("#picture")).to_be_visible()
    assert other.get_by_role("button").count() == 0
    page.get_by_role("button", name="Take the address back").click()
    expect(page.get_by_role("button", name="Make an address for others")).to_be_visible()
    answer = other.reload()
    assert answer is not None and answer.status == 404
    page.get_by_role("link", name="History").click()
    assert page.locator("tbody tr").count() == 1
    assert not faults and hosts == {server.url.partition("//")[2]}, (faults, hosts)
    # The session ends, and its owner goes on where they were.
    page.context.clear_cookies()
    page.goto(done)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.locator("input[name=to]").input_value() == done.removeprefix(server.url)


def test_a_bad_list_on_a_phone_in_the_dark_by_keyboard(server: Server, browser: Browser) -> None:
    page = browser.new_page(**PHONE)
    page.goto(f"{server.url}/sign-up")
    name = new_name()

    check_page(page)
    go_by_keyboard(page, "textbox", "Name")
    page.keyboard.type(name)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="New request")).to_be_visible()
    check_page(page)
    go_by_keyboard(page, "textbox", "Objects")
    page.keyboard.type('250.4 36.4 r\n250.4 95 r\n<script>alert("x")</script> 36 q')
    go_by_keyboard(page, "button", "Stack them")
    page.keyboard.press("Enter")
    expect(page.locator("#problems li")).to_have_count(2)
    said = page.locator("#problems").inner_text()
    assert "Line 2: Dec 95 is not between -90 and 90 degrees" in said and "Line 3: " in said
    assert page.get_by_label("Objects").input_value().count("\n") == 2, "what was written is still there"
    check_page(page)
    # A position that the survey does not have: no picture, and the address of what is missing.
    page.get_by_label("Objects").fill("10 10 g")
    page.get_by_role("button", name="Stack them").click()
    expect(page.locator("#outside tbody tr")).to_have_count(1)
    assert "no exposure in g holds the 41 pixels around it" in page.locator("#outside").inner_text()
    check_page(page)
    for path in ("/account", "/requests", "/help"):
        page.goto(server.url + path)
        check_page(page)
    page.close()


def test_the_administrator_sees_all_and_sets_limits(server: Server, browser: Browser) -> None:
    other = Program(server)
    page = browser.new_page()
    page.goto(f"{server.url}/sign-in?to=/admin")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(server.admin_password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Administration")).to_be_visible()
    check_page(page)
    page.get_by_label(f"Objects a day of {other.name}").fill("1")
    page.get_by_role("button", name=f"Change {other.name}").click()
    expect(page.get_by_label(f"Objects a day of {other.name}")).to_have_value("1")
    refused = other.client.post("/api/requests", json={"objects": targets(server)[:2]})
    assert refused.status_code == 429 and "may ask for 1" in refused.json()["detail"]
    page.get_by_label(f"{other.name} is blocked").check()
    page.get_by_role("button", name=f"Change {other.name}").click()
    expect(page.get_by_label(f"{other.name} is blocked")).to_be_checked()
    assert other.client.get("/api/requests").status_code == 401


# ---------------------------------------------------------------------------------------- what goes wrong in the survey


def test_exposures_that_cannot_be_read_are_named(server: Server) -> None:
    """A cut off file, one with damaged bytes, and one that is gone; after them all is as before."""
    program, objects = Program(server), targets(server, "z")
    whole = program.end(program.ask(objects))["result"]
    assert whole["n_exposures"] >= 4 and whole["unread"] == []
    places = np.array([(one["ra"], one["dec"]) for one in objects]).T
    covering = exposures_of(server).covering("z", places[0], places[1], 41)
    addresses = sorted({address for found in covering for _, address in found})
    # A plain file, a compressed one, and any other.
    paths = [server.survey / next(one for one in addresses if one.endswith(end)) for end in (".fits", ".gz")]
    paths.append(next(path for path in map(server.survey.joinpath, addresses) if path not in paths))
    kept = {path: path.read_bytes() for path in paths[:3]}
    try:
        paths[0].write_bytes(kept[paths[0]][:5000])
        squeezed = bytearray(kept[paths[1]])
        squeezed[len(squeezed) // 2 : len(squeezed) // 2 + 40] = bytes(40)
        paths[1].write_bytes(squeezed)
        paths[2].unlink()
        again = program.end(program.ask(objects))["result"]
    finally:
        for path, data in kept.items():
            path.write_bytes(data)
    unread = {one["address"]: one for one in again["unread"]}
    assert set(unread) == {f"m13/z/{path.name}" for path in paths[:3]}
    kinds = [unread[f"m13/z/{path.name}"]["kind"] for path in paths[:3]]
    assert kinds == ["corrupt", "corrupt", "missing"], unread
    assert "bytes of pixels are there" in unread[f"m13/z/{paths[0].name}"]["why"]
    assert str(server.survey) not in str(again), "addresses are those of the survey, not of this machine"
    assert again["n_cutouts"] < whole["n_cutouts"] and again["n_found"] + len(again["lost"]) == len(objects)
    assert program.end(program.ask(objects))["result"]["n_cutouts"] == whole["n_cutouts"]


def test_a_directory_in_place_of_an_exposure_is_unreadable(server: Server) -> None:
    """The storage answers, so it is not away."""
    program, objects = Program(server), targets(server, "g", "ngc1316")[:3]
    places = np.array([(one["ra"], one["dec"]) for one in objects]).T
    address = exposures_of(server).covering("g", places[0], places[1], 41)[0][0][1]
    path, kept = server.survey / address, server.folder / "kept.fits"
    shutil.move(path, kept)
    try:
        path.mkdir()
        unread = program.end(program.ask(objects))["result"]["unread"]
    finally:
        path.rmdir()
        shutil.move(kept, path)
    assert [(one["address"], one["kind"]) for one in unread] == [(address, "unreadable")], unread
    assert "it is a directory" in unread[0]["why"]


def executors(server: Server) -> list[int]:
    """The nodes of the portal's cluster, by their folder."""
    listed = subprocess.run(["ps", "-wweo", "pid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=1) for line in listed.splitlines() if str(server.folder) in line]
    return [int(pid) for pid, words in lines if " executor " in words]


def test_a_killed_node_costs_nothing_but_time(server: Server) -> None:
    program, objects = Program(server), []
    for band in "ugriz":
        objects += targets(server, band) + targets(server, band, "ngc1316")
    before = program.end(program.ask(objects))["result"]
    # In another order the work is another one, and has to be done.
    number = program.ask(objects[::-1])
    wait_until(lambda: executors(server), "a node to be there")
    os.kill(executors(server)[0], signal.SIGKILL)
    after = program.end(number)
    assert after["state"] == "done", after
    assert after["result"]["n_cutouts"] == before["n_cutouts"] and after["result"]["unread"] == []
    assert after["result"]["snr"] == pytest.approx(before["snr"], abs=0.02)
    assert not after["result"]["is_as_before"]


def test_a_cancelled_request_ends(server: Server) -> None:
    program = Program(server)
    number = program.ask(targets(server, "u") * 40)
    assert program.client.post(f"/api/requests/{number}/cancel").json() == {"was_going": True}
    assert program.end(number)["state"] == "cancelled"
    assert program.client.post(f"/api/requests/{number}/cancel").json() == {"was_going": False}


def test_a_portal_that_was_killed_goes_on_with_its_requests(tmp_path: Path, survey: Path) -> None:
    with started(tmp_path / "data", survey, *QUICK) as first:
        program, objects = Program(first), targets(first)
        number = program.ask(objects)
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        # It did not end well, as was asked for.
        first.process.returncode = 0
    with started(tmp_path / "data", survey, *QUICK) as second:
        program.client.base_url = second.url
        ended = program.end(number)
        assert ended["state"] == "done" and ended["result"]["n_found"] == len(objects), ended


def test_cutouts_of_a_portal_that_was_killed_are_removed_and_nothing_else(
    tmp_path: Path, survey: Path
) -> None:
    folder = tmp_path / "data" / "cutouts"
    other = tmp_path / "other.fits"
    other.write_bytes(b"of somebody")
    folder.mkdir(parents=True)
    left = folder / f"{secrets.token_hex(12)}.fits"
    left.write_bytes(b"x" * 2880)
    kept = [folder / name for name in ("notes.txt", "mine.fits", f"{'A' * 24}.fits", f"{'0' * 24}.fits")]
    for path in kept[:3]:
        path.write_bytes(b"of somebody")
    kept[3].symlink_to(other)
    (folder / f"{'1' * 24}.fits").mkdir()
    with started(tmp_path / "data", survey, *QUICK) as up:
        assert httpx.get(up.url, timeout=60).status_code == 200
        assert not left.exists()
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            [path.name for path in kept] + [f"{'1' * 24}.fits"]
        )
        assert other.read_bytes() == b"of somebody"
        # And a cutout that was sent leaves nothing.
        one = targets(up)[0]
        address = exposures_of(up).covering("r", np.array([one["ra"]]), np.array([one["dec"]]), 41)[0][0][0]
        circle = f"{one['ra']} {one['dec']} 0.005"
        made = httpx.get(f"{up.url}/vo/soda", params={"ID": str(address), "CIRCLE": circle}, timeout=90)
        assert made.status_code == 200 and made.content.startswith(b"SIMPLE  =")
        wait_until(lambda: len(list(folder.iterdir())) == 5, "the cutout to be removed")


def test_a_cluster_that_is_there_goes_on_without_the_portal(tmp_path: Path, survey: Path) -> None:
    """The portal ends in the middle of a request, and the next one shows its result; then the cluster goes."""
    import eyas

    with eyas.Cluster(nodes=1, slots=1, dir=tmp_path / "cluster", home_wait="1s") as cluster:
        words = ("--join", str(cluster.join), "--accounts-per-hour", "1000")
        with started(tmp_path / "data", survey, *words) as first:
            program, objects = Program(first), targets(first) * 20
            number = program.ask(objects)
            wait_until(lambda: cluster.runs(name=f"request-{number}"), "the request to be a run")
        with started(tmp_path / "data", survey, *words) as second:
            program.client.base_url = second.url
            assert program.end(number)["result"]["n_found"] == len(objects)
            assert len(cluster.runs(name=f"request-{number}")) == 1, "it was submitted once"
            # The cluster's owner takes the user's key back; the next request has a new one.
            number = program.ask(objects, size=61)
            wait_until(lambda: cluster.runs(name=f"request-{number}"), "the request to be a run")
            cluster.remove_user(program.name)
            assert program.end(number)["state"] in ("failed", "done")
            assert program.end(program.ask(objects[:2]))["state"] == "done"
            cluster.close()
            lost = program.end(program.ask(objects[:1]))
            assert lost["state"] == "failed" and "the cluster did not carry it out" in lost["problem"], lost
            client = httpx.Client(base_url=second.url, timeout=60)
            client.post("/sign-in", data={"name": "admin", "password": second.admin_password})
            page = client.get("/admin")
            assert page.status_code == 503 and "the cluster does not answer" in page.text


# ---------------------------------------------------------------------------------------- who may do what


def outcome(answer: httpx.Response) -> str:
    if answer.status_code == 303:
        return "sign in" if answer.headers["location"].startswith("/sign-in") else "yes"
    return {401: "sign in", 403: "no", 404: "none"}.get(
        answer.status_code, "yes" if answer.status_code < 400 else "?"
    )


# Each route with what a stranger, another user, the owner of the request, and an administrator get.
MATRIX = {
    "GET /": ("yes", "yes", "yes", "yes"),
    "GET /help": ("yes", "yes", "yes", "yes"),
    "GET /sign-in": ("yes", "yes", "yes", "yes"),
    "GET /sign-up": ("yes", "yes", "yes", "yes"),
    "GET /requests": ("sign in", "yes", "yes", "yes"),
    "GET /requests/new": ("sign in", "yes", "yes", "yes"),
    "GET /requests/{number}": ("sign in", "none", "yes", "yes"),
    "GET /requests/{number}/events": ("sign in", "none", "yes", "yes"),
    "GET /requests/{number}/files/{name}": ("sign in", "none", "yes", "yes"),
    "GET /shared/{secret}": ("none", "none", "none", "none"),
    "GET /shared/{secret}/files/{name}": ("none", "none", "none", "none"),
    "GET /account": ("sign in", "yes", "yes", "yes"),
    "GET /admin": ("sign in", "none", "none", "yes"),
    "POST /requests": ("sign in", "no", "no", "no"),
    "POST /requests/{number}/cancel": ("sign in", "no", "no", "no"),
    "POST /requests/{number}/share": ("sign in", "no", "no", "no"),
    "POST /account/tokens": ("sign in", "no", "no", "no"),
    "POST /account/tokens/{number}/remove": ("sign in", "no", "no", "no"),
    "POST /account/password": ("sign in", "no", "no", "no"),
    "POST /admin/users/{name}": ("sign in", "no", "no", "no"),
    "POST /admin/users/{name}/password": ("sign in", "no", "no", "no"),
    "POST /account/identities": ("sign in", "no", "no", "no"),
    "POST /account/identities/{number}/remove": ("sign in", "no", "no", "no"),
    # This portal has no provider, and nobody came back from one.
    "GET /oidc/sign-in": ("none", "none", "none", "none"),
    "GET /oidc/callback": ("no", "no", "no", "no"),
    "GET /oidc/name": ("no", "no", "no", "no"),
    "POST /oidc/name": ("no", "no", "no", "no"),
    "POST /sign-in": ("no", "no", "no", "no"),
    "POST /sign-up": ("?", "?", "?", "?"),
    "POST /sign-out": ("sign in", "no", "no", "no"),
    "GET /api/openapi.json": ("yes", "yes", "yes", "yes"),
    "GET /api/survey": ("yes", "yes", "yes", "yes"),
    "GET /api/requests": ("sign in", "yes", "yes", "yes"),
    "GET /api/requests/{number}": ("sign in", "none", "yes", "yes"),
    "GET /api/requests/{number}/files/{name}": ("sign in", "none", "yes", "yes"),
    "GET /api/users": ("sign in", "no", "no", "yes"),
    # In a browser a session is enough to read, and never to change anything.
    "POST /api/requests": ("sign in", "sign in", "sign in", "sign in"),
    "POST /api/requests/{number}/cancel": ("sign in", "sign in", "sign in", "sign in"),
    "PATCH /api/users/{name}": ("sign in", "sign in", "sign in", "sign in"),
    "POST /api/users/{name}/password": ("sign in", "sign in", "sign in", "sign in"),
    "POST /api/tokens": ("?", "?", "?", "?"),
    "GET /vo/sia2/query": ("yes", "yes", "yes", "yes"),
    "GET /vo/sia2/capabilities": ("yes", "yes", "yes", "yes"),
    "GET /vo/sia2/availability": ("yes", "yes", "yes", "yes"),
    "GET /vo/links": ("yes", "yes", "yes", "yes"),
    "GET /vo/files/{number}": ("none", "none", "none", "none"),
    "GET /vo/soda": ("?", "?", "?", "?"),
    "POST /vo/sia2/query": ("yes", "yes", "yes", "yes"),
    "POST /vo/links": ("yes", "yes", "yes", "yes"),
    "POST /vo/soda": ("?", "?", "?", "?"),
}

# What another user, the owner of the request, and an administrator get of each route of the API by a token.
BY_TOKEN = {
    "GET /api/openapi.json": ("yes", "yes", "yes"),
    "GET /api/survey": ("yes", "yes", "yes"),
    "GET /api/requests": ("yes", "yes", "yes"),
    "GET /api/requests/{number}": ("none", "yes", "yes"),
    "GET /api/requests/{number}/files/{name}": ("none", "yes", "yes"),
    "GET /api/users": ("no", "no", "yes"),
    "POST /api/requests/{number}/cancel": ("none", "yes", "yes"),
    # What is sent here has no body, which is looked at behind who sends it.
    "POST /api/requests": ("?", "?", "?"),
    "PATCH /api/users/{name}": ("no", "no", "?"),
    "POST /api/users/{name}/password": ("no", "no", "yes"),
    "POST /api/tokens": ("?", "?", "?"),
}


def routes() -> set[str]:
    """All routes of the portal, from the application itself."""
    from portal import api, identity_pages, vo, web

    found = {"GET /api/openapi.json"}
    for router in (web.router, identity_pages.router, api.router, vo.router):
        for route in router.routes:
            found |= {f"{method} {route.path}" for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    return found


def test_every_route_for_every_role(server: Server) -> None:
    """With sessions, and without the key that each form carries: what another site could make a browser send."""
    assert routes() == set(MATRIX), "each route stands in the matrix"
    owner, other = Program(server), Program(server)
    number = owner.ask(targets(server)[:2])
    owner.end(number)
    people = []
    for name, password in (
        (None, ""),
        (other.name, PASSWORD),
        (owner.name, PASSWORD),
        ("admin", server.admin_password),
    ):
        client = httpx.Client(base_url=server.url, timeout=60)
        if name is not None:
            assert client.post("/sign-in", data={"name": name, "password": password}).status_code == 303
        people.append(client)

    def path_of(route: str, name: str = "admin") -> str:
        path = route.partition(" ")[2]
        path = path.replace("{number}", number if "requests" in path else "999999")
        return path.replace("{name}", "stack.fits" if "files" in path else name).replace("{secret}", "x")

    seen = {}
    for route in MATRIX:
        method, path = route.partition(" ")[0], path_of(route)
        # A form of a browser says where it comes from.
        answers = [
            client.request(method, path, headers={"Sec-Fetch-Site": "same-origin"}) for client in people
        ]
        seen[route] = tuple(outcome(answer) for answer in answers)
        for answer in answers:
            assert answer.status_code < 500, (route, answer.text)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert seen == MATRIX
    # The owner's form with the key works; from another site, or with another's key, it does not.
    keys = [
        re.search(r'name="form_key" value="([^"]+)"', client.get("/account").text) for client in people[1:]
    ]
    assert all(keys)
    others, own = (str(key and key[1]) for key in keys[:2])
    share = f"/requests/{number}/share"
    assert people[2].post(share, data={"form_key": others, "shared": "yes"}).status_code == 403
    foreign = people[2].post(
        share, data={"form_key": own, "shared": "yes"}, headers={"Origin": "https://elsewhere.example"}
    )
    assert foreign.status_code == 403
    assert people[1].post(share, data={"form_key": others, "shared": "yes"}).status_code == 404, (
        "another's request"
    )
    assert people[2].post(share, data={"form_key": own, "shared": "yes"}).status_code == 303
    by_other = people[1].post("/admin/users/admin", data={"form_key": others, "weight": "1"})
    assert by_other.status_code == 404
    # With a session a program, and a page of another site, is a stranger to the API; so is a page with a token that is none.
    is_page = {"Sec-Fetch-Site": "same-origin"}
    strangers: list[dict[str, str]] = [{}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
    strangers.append({**is_page, "Authorization": "Bearer eyas_none"})
    programs = [other, owner, Program(server, "admin", server.admin_password)]
    by_token = {}
    for route in MATRIX:
        method, path = route.partition(" ")[0], path_of(route, other.name)
        if path.startswith("/api/"):
            for headers in strangers:
                answers = [client.request(method, path, headers=headers) for client in people]
                assert {outcome(answer) for answer in answers} == {MATRIX[route][0]}, (route, headers)
            by_token[route] = tuple(outcome(program.client.request(method, path)) for program in programs)
        elif method == "GET":
            # Pages know no tokens.
            answers = [program.client.get(path, headers=is_page) for program in programs]
            assert {outcome(answer) for answer in answers} == {MATRIX[route][0]}, route
    assert by_token == BY_TOKEN


def test_a_session_reads_the_api_in_a_browser_alone(server: Server, browser: Browser) -> None:
    """Typed as an address, or read by a page; what a program sends with the same cookie is refused."""
    page = browser.new_context().new_page()
    asked = "fetch('/api/requests').then(answer => answer.status)"
    page.goto(f"{server.url}/help")
    assert page.evaluate(asked) == 401
    sign_up(page, server, new_name())
    assert page.evaluate(asked) == 200
    by_program = page.request.get(f"{server.url}/api/requests")
    assert by_program.status == 401 and "send a token" in by_program.text()
    answer = page.goto(f"{server.url}/api/requests")
    assert answer is not None and answer.json() == []
    page.close()


def test_cookies_passwords_and_words_that_are_code(server: Server) -> None:
    client = httpx.Client(base_url=server.url, timeout=60)
    name = new_name()
    for word, said in (("short", "needs at least 10"), (f"{name} secret", "contains the name")):
        refused = client.post("/sign-up", data={"name": name, "password": word})
        assert refused.status_code == 422 and said in refused.text and word not in refused.text
    made = client.post("/sign-up", data={"name": name, "password": PASSWORD})
    cookie = made.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie, (
        "there is no TLS here"
    )
    assert client.post("/sign-up", data={"name": name, "password": PASSWORD}).status_code == 422
    for word in ("' OR '1'='1", "admin'--", '"; DROP TABLE users; --'):
        assert client.post("/sign-in", data={"name": word, "password": word}).status_code == 403
        assert client.get(f"/requests/{word}").status_code == 404
    marked = "<img src=x onerror=alert(1)>"
    page = client.post("/sign-in", data={"name": marked, "password": "x"}).text
    assert marked not in page and "&lt;img" in page
    # Only paths of this portal are gone to.
    for to in (
        "https://elsewhere.example",
        "//elsewhere.example",
        "/\\elsewhere.example",
        "javascript:alert(1)",
    ):
        answer = client.post("/sign-in", data={"name": name, "password": PASSWORD, "to": to})
        assert answer.headers["location"] == "/requests/new"
    program = Program(server)
    number = program.ask(targets(server)[:1])
    program.end(number)
    for path in (
        "../../portal.db",
        "..%2f..%2fportal.db",
        "%2e%2e/%2e%2e/admin-password",
        "stack.fits%00",
        "cuts",
    ):
        assert program.client.get(f"/api/requests/{number}/files/{path}").status_code == 404, path
    # Ten guesses, and then even the right one has to wait.
    guesses = [
        client.post("/sign-in", data={"name": name, "password": f"guess {n}"}).status_code for n in range(12)
    ]
    assert (
        guesses[-1] == 429
        and client.post("/sign-in", data={"name": name, "password": PASSWORD}).status_code == 429
    )
    logged = server.printed
    assert PASSWORD not in logged and "guess 1" not in logged and server.admin_password not in logged
    kept = (server.folder / "portal.db").read_bytes() + (server.folder / "portal.db-wal").read_bytes()
    assert PASSWORD.encode() not in kept and program.client.headers["Authorization"][7:].encode() not in kept


def test_too_large_and_strange_uploads(server: Server) -> None:
    client = httpx.Client(base_url=server.url, timeout=60)
    client.post("/sign-up", data={"name": new_name(), "password": PASSWORD})
    key = re.search(r'name="form_key" value="([^"]+)"', client.get("/account").text)
    form = {"form_key": str(key and key[1]), "size": "41"}

    def sent(data: bytes, name: str = "list.csv") -> httpx.Response:
        return client.post(
            "/requests", data={**form, "press": secrets.token_hex(8)}, files={"file": (name, data)}
        )

    assert sent(b"250 36 r\n" * 1_000_000).status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 65536

    assert client.post("/api/requests", content=endless()).status_code in (401, 413)
    assert (
        client.post(
            "/requests", content=endless(), headers={"Content-Type": "application/x-www-form-urlencoded"}
        ).status_code
        == 413
    )
    bomb = gzip.compress(bytes(10_000_000))
    assert "compressed" in sent(bomb).text
    for data in (os.urandom(1000), b"\0" * 1000, b"<VOTABLE>" * 10_000):
        assert sent(data, "../../../etc/cron.d/x").status_code == 422
    assert sent(b"250 36 r\n" * 10_001).status_code == 422
    # The back button brings a form again: as it was it is the request that it has made, and with another list another one.
    press = {**form, "press": secrets.token_hex(8)}
    made = [
        client.post("/requests", data={**press, "list": f"250.{n} 36 r"}).headers["location"]
        for n in (1, 2, 1)
    ]
    assert made[0] == made[2] != made[1], made
    strange = client.post("/requests", data={**form, "list": "250 36 r", "size": "99999"})
    assert strange.status_code == 422 and "not one of" in strange.text


def test_tls_makes_cookies_secure(tmp_path: Path, survey: Path) -> None:
    need_program("openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60
    )
    words = ("--certificate", str(certificate), "--key", str(key), "--no-sign-up", *QUICK)
    with started(tmp_path / "data", survey, *words) as up:
        assert up.url.startswith("https://")
        import ssl

        client = httpx.Client(base_url=up.url, verify=ssl.create_default_context(cafile=str(certificate)))
        refused = client.post("/sign-up", data={"name": new_name(), "password": PASSWORD})
        assert refused.status_code == 422 and "ask its administrator" in refused.text
        made = client.post("/sign-in", data={"name": "admin", "password": up.admin_password})
        assert made.status_code == 303 and "Secure" in made.headers["set-cookie"]
        assert "max-age" in made.headers["strict-transport-security"]
        assert (up.folder / "admin-password").stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------------------------------- programs


def test_the_api_for_programs(server: Server) -> None:
    program, objects = Program(server), targets(server)
    described = program.client.get("/api/openapi.json").json()
    assert {"/api/requests", "/api/requests/{number}", "/vo/soda"} <= set(described["paths"])
    bad = program.client.post(
        "/api/requests", json={"objects": [*objects[:1], {"ra": 1, "dec": 2, "band": "x"}]}
    )
    assert bad.status_code == 422 and bad.json()["detail"]["problems"][0]["line"] == 2
    assert program.client.post("/api/requests", json={}).status_code == 422
    for strange in ({"ra": True, "dec": 2, "band": "r"}, {"ra": [1], "dec": 2, "band": "r"}):
        assert program.client.post("/api/requests", json={"objects": [strange]}).status_code == 422
    # A stack of this survey is too small in it to be measured.
    small = program.client.post("/api/requests", json={"objects": objects[:3], "size": 31})
    assert small.status_code == 422 and "is 31, and not one of 41, 51," in small.json()["detail"]
    twice = [
        program.client.post(
            "/api/requests", json={"objects": objects[:3]}, headers={"Idempotency-Key": "once"}
        )
        for _ in range(2)
    ]
    assert twice[0].json()["id"] == twice[1].json()["id"]
    for other in ({"objects": objects[:2]}, {"objects": objects[:3], "size": 61}):
        answer = program.client.post("/api/requests", json=other, headers={"Idempotency-Key": "once"})
        assert answer.status_code == 422 and "has made another request" in answer.json()["detail"]
    text = "ra,dec,band\n" + "".join(f"{one['ra']},{one['dec']},r\n" for one in objects[:3])
    by_text = program.client.post("/api/requests", json={"text": text, "size": 61}).json()["id"]
    assert program.end(by_text)["result"]["width_pixels"] == 61
    assert len(program.client.get("/api/requests").json()) == 2
    got = program.client.get(f"/api/requests/{by_text}/files/stack.jpg")
    assert got.headers["content-type"] == "image/jpeg" and got.content[:3] == b"\xff\xd8\xff"
    assert Program(server).client.get(f"/api/requests/{by_text}").status_code == 404


def test_an_idle_connection_is_ended_by_the_program_and_not_by_the_portal(server: Server) -> None:
    """Programs end one after five seconds. What they send on it at that moment has to have an answer."""
    kept = http.client.HTTPConnection(server.url.partition("//")[2], timeout=60)
    kept.request("GET", "/api/requests")
    assert kept.getresponse().read()
    used = kept.sock
    time.sleep(6)
    kept.request("GET", "/api/requests")
    assert kept.getresponse().status == 401 and kept.sock is used
    kept.close()


def test_requests_of_many_at_once(server: Server) -> None:
    objects = targets(server)
    people = [Program(server) for _ in range(4)]
    ended: list[dict[str, Any]] = []

    def ask(program: Program, begin: int) -> None:
        """Each in another order, because equal work is done once."""
        own = objects[begin:] + objects[:begin]
        ended.extend(program.end(number) for number in [program.ask(own) for _ in range(2)])

    threads = [threading.Thread(target=ask, args=(program, 1 + at)) for at, program in enumerate(people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 8 and {one["state"] for one in ended} == {"done"}
    assert len({one["result"]["n_cutouts"] for one in ended}) == 1
    assert np.ptp([one["result"]["snr"] for one in ended]) < 0.02
    # Each user is one of the cluster's, which shares itself among them.
    keys = {path.stem for path in (server.folder / "keys").glob("*/*.json")}
    assert {program.name for program in people} <= keys
    # What was begun is ended before others begin: the last tasks of all people are one user's, who comes first.
    owner = eyas.connect(next((server.folder / "cluster").rglob("join.json")))
    last = next(user for user in owner.users() if user.name == LAST_USER)
    assert last.weight == LAST_WEIGHT and last.used_slot_s > 0
    owner.close()


def test_the_program_of_tasks_has_its_modules_compiled(tmp_path: Path) -> None:
    """And as sources, for a node whose Python is another one. A portal with the same sources has the same program."""
    program = program_of(tmp_path / "program")
    before = program.stat()
    assert program_of(tmp_path / "program") == program and program.stat().st_mtime_ns == before.st_mtime_ns
    assert list(program.parent.iterdir()) == [program]

    def printed(spoilt: str) -> str:
        """What a crop of no file prints, where the files of this kind are no good."""
        other = tmp_path / f"without{spoilt}.pyz"
        with zipfile.ZipFile(program) as archive, zipfile.ZipFile(other, "w") as made:
            for name in archive.namelist():
                bad = b"raise SystemExit('it was read')" if spoilt == ".py" else b"of another version"
                made.writestr(name, bad if name.endswith(spoilt) else archive.read(name))
        command: list[str | Path] = [sys.executable, other, "crop", "none.fits", "out.fits", "1", "2", "3"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done
        return done.stderr

    assert printed(".py") == printed(".pyc") == "error: none.fits does not exist\n"


def test_equal_work_is_done_once(server: Server) -> None:
    """Another user's equal request has the same files, byte by byte; after an exposure has changed, it is done anew."""
    objects = targets(server, "i")[:4]
    first, other = Program(server), Program(server)
    number = first.ask(objects)
    done = first.end(number)["result"]
    again = other.ask(objects)
    found = other.end(again)["result"]
    assert not done["is_as_before"] and found["is_as_before"] and found["n_computers"] == 0
    for name in ("stack.fits", "stack.png", "stack.jpg"):
        files = [
            program.client.get(f"/api/requests/{of}/files/{name}").content
            for program, of in ((first, number), (other, again))
        ]
        assert files[0] == files[1] and len(files[0]) > 500
    assert other.client.get(f"/api/requests/{number}").status_code == 404, "the request itself is not theirs"
    same = {
        name: (done[name], found[name]) for name in ("n_cutouts", "snr", "n_found", "n_exposures", "files")
    }
    assert all(one == two for one, two in same.values()), same
    place = np.array([(objects[0]["ra"], objects[0]["dec"])]).T
    address = exposures_of(server).covering("i", place[0], place[1], 41)[0][0][1]
    exposure = server.survey / address
    os.utime(exposure, (1, 1))
    later = other.end(other.ask(objects))["result"]
    assert not later["is_as_before"] and later["snr"] == done["snr"]
    # Another file in its place, of the same size and date.
    os.replace(shutil.copy2(exposure, exposure.with_name("new")), exposure)
    assert not other.end(other.ask(objects))["result"]["is_as_before"]


def test_clients_of_the_virtual_observatory(server: Server, tmp_path: Path) -> None:
    import pyvo  # type: ignore[import-untyped]

    one = targets(server)[0]
    service = pyvo.dal.SIA2Service(f"{server.url}/vo/sia2")
    found = service.search(pos=(one["ra"], one["dec"], 0.001))
    assert len(found) > 0 and {str(row["dataproduct_type"]) for row in found} == {"image"}
    red = service.search(pos=(one["ra"], one["dec"], 0.001), band=(6.0e-7, 6.2e-7))
    assert 0 < len(red) < len(found) and all("/r/" in row["obs_id"] for row in red)
    assert len(service.search(pos=(10.0, 10.0, 0.1))) == 0
    ra, dec = one["ra"], one["dec"]
    for pos in (
        (ra - 0.001, ra + 0.001, dec - 0.001, dec + 0.001),
        (ra - 0.002, dec - 0.001, ra + 0.002, dec - 0.001, ra, dec + 0.002),
    ):
        assert {str(row["obs_id"]) for row in service.search(pos=pos)} >= {
            str(row["obs_id"]) for row in found
        }
    assert len(service.search(pos=(10.0, 11.0, 10.0, 11.0))) == 0
    cut = next(red.iter_datalinks())
    semantics = [str(row["semantics"]) for row in cut]
    assert semantics == ["#this", "#cutout"]
    whole = httpx.get(str(cut[0]["access_url"])).content
    whole = gzip.decompress(whole) if whole[:2] == b"\x1f\x8b" else whole
    soda = cut.get_first_proc()
    data = soda.process(circle=(one["ra"], one["dec"], 0.005)).read()
    with fits.open(io.BytesIO(data)) as small, fits.open(io.BytesIO(whole)) as large:
        from astropy.wcs import WCS  # type: ignore[import-untyped]

        height, width = small[0].data.shape
        assert 0 < height <= 40 and 0 < width <= 40
        x, y = WCS(small[0].header).world_to_pixel_values(one["ra"], one["dec"])
        x2, y2 = WCS(large[0].header).world_to_pixel_values(one["ra"], one["dec"])
        assert (
            small[0].data[round(float(y)), round(float(x))]
            == large[0].data[round(float(y2)), round(float(x2))]
        )
    bad = httpx.get(f"{server.url}/vo/sia2/query", params={"POS": "CIRCLE 1 2"})
    assert bad.status_code == 400 and 'value="ERROR"' in bad.text
    nothing = httpx.get(f"{server.url}/vo/soda", params={"ID": "999999", "CIRCLE": "1 2 0.1"})
    assert nothing.status_code == 400 and nothing.text.startswith("UsageError: there is no exposure")
    for beside in (f"{one['ra']} {-one['dec']} 0.1", f"{(one['ra'] + 180) % 360} {-one['dec']} 0.1"):
        answer = httpx.get(
            f"{server.url}/vo/soda", params={"ID": str(red[0]["obs_publisher_did"]), "CIRCLE": beside}
        )
        assert answer.status_code == 204 and not answer.content, answer.text
    stilts = need_program("stilts")
    both = "&".join(f"ID={row['obs_publisher_did']}" for row in (red[0], found[0]))
    # Each of several exposures is cut by its own service.
    for link in pyvo.dal.adhoc.DatalinkResults.from_result_url(f"{server.url}/vo/links?{both}").iter_procs():
        asked = pyvo.dal.adhoc.DatalinkQuery.from_resource(
            link, link._results.get_adhocservice_by_id(link.service_def)
        )
        assert asked["ID"] == link.id
    strange = httpx.get(f"{server.url}/vo/links", params={"ID": "\0<&"})
    assert "NotFoundFault" in strange.text and "\0" not in strange.text
    for name, url, task in (
        ("query.xml", f"{server.url}/vo/sia2/query?POS=CIRCLE+{one['ra']}+{one['dec']}+0.1", "votlint"),
        ("links.xml", str(red[0]["access_url"]), "datalinklint"),
        ("both.xml", f"{server.url}/vo/links?{both}", "datalinklint"),
    ):
        path = tmp_path / name
        path.write_bytes(httpx.get(url).content)
        words = [f"votable={path}"] if task == "votlint" else [str(path)]
        done = subprocess.run(
            [stilts, task, *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0 and "ERROR" not in done.stdout and "WARNING" not in done.stdout, (
            done.stdout
        )


def test_cutouts_of_regions_of_all_kinds(server: Server) -> None:
    """Each is the smallest rectangle of pixels that holds the region; by an address or by a form."""
    one = targets(server)[0]
    ra, dec, step = one["ra"], one["dec"], 0.004
    wide = step / np.cos(np.radians(dec))
    query = {"POS": f"CIRCLE {ra} {dec} 0.001", "BAND": "6e-7 6.2e-7"}
    tables = [
        httpx.get(f"{server.url}/vo/sia2/query", params=query),
        httpx.post(f"{server.url}/vo/sia2/query", data=query),
    ]
    assert tables[0].text == tables[1].text and "POLYGON ICRS" in tables[0].text
    number = exposures_of(server).covering("r", np.array([ra]), np.array([dec]), 41)[0][0][0]
    corners = (
        f"{ra - wide} {dec - step} {ra + wide} {dec - step} {ra + wide} {dec + step} {ra - wide} {dec + step}"
    )
    from astropy.wcs import WCS

    shapes = []
    for region in (
        {"CIRCLE": f"{ra} {dec} {step}"},
        {"POS": f"CIRCLE {ra} {dec} {step}"},
        {"POLYGON": corners},
        {"POS": f"POLYGON {corners}"},
        {"POS": f"RANGE {ra - wide} {ra + wide} {dec - step} {dec + step}"},
    ):
        made = httpx.post(f"{server.url}/vo/soda", data={"ID": str(number), **region}, timeout=90)
        assert made.status_code == 200, made.text
        with fits.open(io.BytesIO(made.content)) as file:
            height, width = file[0].data.shape
            x, y = WCS(file[0].header).world_to_pixel_values(
                [ra - wide, ra + wide, ra], [dec, dec, dec - step]
            )
            assert min(*x, *y) > -0.5 and max(x) < width - 0.5 and max(y) < height - 0.5
            shapes.append((height, width))
    # 8 / 1000 of a degree are 28.8 pixels here. Exposures are turned, so a square takes up to the length of its diagonal.
    assert all(29 <= side <= 32 for side in shapes[0]) and all(29 <= side <= 43 for side in shapes[2]), shapes
    assert (
        shapes[0] == shapes[1]
        and shapes[2] == shapes[3]
        and np.abs(np.subtract(shapes[4], shapes[3])).max() <= 1
    )
    for wrong, said in (
        ({"ID": str(number)}, "UsageError: give one ID, and one CIRCLE, POLYGON or POS"),
        ({"CIRCLE": "1 2 3"}, "UsageError: give one ID"),
        ({"ID": str(number), "CIRCLE": "1 2"}, "UsageError: CIRCLE has 3 numbers"),
        ({"ID": str(number), "CIRCLE": "1 2 3", "POLYGON": corners}, "UsageError: give one ID"),
        ({"ID": str(number), "POLYGON": "1 2 3 4"}, "UsageError: POS=POLYGON has 3 to 100"),
        (
            {"ID": str(number), "CIRCLE": ["1 2 3", "1 2 4"]},
            "MultiValuedParamNotSupported: CIRCLE is given 2 times",
        ),
        ({"ID": ["1", "2"], "CIRCLE": "1 2 3"}, "MultiValuedParamNotSupported: ID is given 2 times"),
        ({"ID": str(number), "BAND": "1 2", "CIRCLE": "1 2 3"}, "UsageError: there is no parameter BAND"),
        (
            {"ID": str(number), "CIRCLE": "1 2 3", "RESPONSEFORMAT": "image/png"},
            "UsageError: a cutout is application/fits",
        ),
        ({"ID": "ivo://eyas.portal/survey?\0", "CIRCLE": "1 2 3"}, "UsageError: there is no exposure"),
    ):
        refused = httpx.post(f"{server.url}/vo/soda", data=wrong)
        assert refused.status_code == 400 and refused.text.startswith(said), refused.text
        assert refused.headers["content-type"].startswith("text/plain") and refused.text.count("\n") == 1


def test_cutouts_of_exposures_that_cannot_be_read(server: Server) -> None:
    """One sentence, and a status that says whether to try again, as pyvo tells them its users."""
    import pyvo
    from astropy import units  # type: ignore[import-untyped]

    one = targets(server, "u")[0]
    service = pyvo.dal.SIA2Service(f"{server.url}/vo/sia2")
    row = service.search(pos=(one["ra"], one["dec"], 0.001), band=(3.1e-7, 3.2e-7))[0]
    address, region = str(row["obs_id"]), (one["ra"], one["dec"], 0.005) * units.deg
    path, kept = server.survey / address, server.folder / "kept.fits"

    def refused(status: int) -> str:
        with pytest.raises(pyvo.dal.DALServiceError) as caught:
            row.processed(circle=region)
        said = str(caught.value.reason).partition(" for http")[0]
        assert caught.value.code == status and said.count("\n") == 1 and str(server.survey) not in said, said
        return said

    assert row.processed(circle=region).read().startswith(b"SIMPLE  =")
    shutil.move(path, kept)
    try:
        assert refused(404).startswith(f"Error: the exposure {address} is missing: ")
        path.write_bytes(kept.read_bytes()[:5000])
        assert refused(502).startswith(f"Error: the exposure {address} is corrupt: ")
        path.unlink()
        path.mkdir()
        assert refused(502).startswith(f"Error: the exposure {address} is unreadable: ")
        path.rmdir()
    finally:
        shutil.move(kept, path)
    assert row.processed(circle=region).read().startswith(b"SIMPLE  =")


def test_a_folder_has_one_portal(tmp_path: Path, survey: Path) -> None:
    """Until its process has ended, in whatever way."""
    folder = tmp_path / "data"
    (tmp_path / "other-name").symlink_to(folder)

    def refused(by: Path) -> str:
        command: list[Any] = [
            sys.executable,
            APP / "serve.py",
            "--dir",
            by,
            "--survey",
            survey,
            *QUICK,
            "--reindex",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 2 and not done.stdout, done
        return done.stderr

    with started(folder, survey, *QUICK) as first:
        said = (
            f"has a portal already, process {first.process.pid}, {first.url}: use that one, end it, or name"
        )
        for by in (folder, tmp_path / "other-name"):
            text = refused(by)
            assert text.startswith("error: the folder ") and said in text and text.count("\n") == 1, text
        assert sum(httpx.get(f"{first.url}/api/survey").json()["n_exposures"].values()) == 60
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        first.process.returncode = 0
    with started(folder, survey, *QUICK) as second:
        assert f"process {second.process.pid}, {second.url}:" in refused(folder)


def test_the_python_client(server: Server, tmp_path: Path) -> None:
    """The program of the guide."""
    program, objects = Program(server), targets(server)[:5]
    listed = tmp_path / "objects.txt"
    listed.write_text("".join(f"{one['ra']} {one['dec']} r\n" for one in objects))
    client = Path(__file__).resolve().parent.parent / "client.py"
    token = program.client.headers["Authorization"].removeprefix("Bearer ")
    done = subprocess.run(
        [sys.executable, client, server.url, listed, "--out", tmp_path / "out.fits"],
        env={**os.environ, "PORTAL_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "5 of 5 objects" in done.stdout
    assert fits.getdata(tmp_path / "out.fits").shape == (41, 41)
