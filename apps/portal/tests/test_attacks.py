"""What somebody may try who wants more than they may have: other people's rights, the portal's time, or its errors."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import eyas
import httpx
import numpy as np
import pytest
from harness import wait_until
from portal import accounts, faces, skymap, store, work
from portal.index import Index
from portal.regions import Region
from portals import APP, Server, started
from starlette.requests import Request
from test_index import exposures_around

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, survey: Path) -> Iterator[Server]:
    """A portal whose cluster has no node and gets none: what waits for one waits."""
    folder = tmp_path_factory.mktemp("attacks")
    words: list[str | Path] = [eyas.find_binary(), "dispatcher", "--dir", folder / "dispatcher"]
    dispatcher = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    join = folder / "dispatcher" / "join.json"
    try:
        wait_until(join.exists, "the dispatcher to be there")
        with started(folder / "data", survey, "--join", str(join), "--accounts-per-hour", "1000") as up:
            yield up
    finally:
        dispatcher.kill()
        dispatcher.wait()


def client_of(server: Server, name: str | None = None, password: str = PASSWORD) -> httpx.Client:
    """Somebody who has signed in with a browser, with a new account where there is no name."""
    client = httpx.Client(base_url=server.url, timeout=60, headers={"Sec-Fetch-Site": "same-origin"})
    path, who = ("/sign-in", name) if name else ("/sign-up", "u" + secrets.token_hex(4))
    assert client.post(path, data={"name": who, "password": password}).status_code == 303
    return client


def key_of(client: httpx.Client) -> str:
    found = re.search(r'name="form_key" value="([^"]+)"', client.get("/account").text)
    assert found
    return found[1]


def all_targets(server: Server) -> str:
    lines = [line.split(",") for line in (server.survey / "targets.csv").read_text().splitlines()[1:]]
    return "\n".join(f"{line[1]} {line[2]} r" for line in lines)


def test_requests_of_a_user_who_is_blocked_are_cancelled(server: Server) -> None:
    """Those that run, and say so; another user's go on. Who is let in again may ask again."""
    admin, names = client_of(server, "admin", server.admin_password), []
    tokens, numbers = [], []
    for _ in range(2):
        names.append("u" + secrets.token_hex(4))
        client = httpx.Client(base_url=server.url, timeout=60)
        client.post("/sign-up", data={"name": names[-1], "password": PASSWORD})
        made = client.post("/api/tokens", json={"name": names[-1], "password": PASSWORD}).json()["token"]
        tokens.append({"Authorization": f"Bearer {made}"})
        for size in (41, 51):
            asked = {"text": all_targets(server), "size": size}
            made = client.post("/api/requests", json=asked, headers=tokens[-1])
            assert made.status_code == 201, made.text
            numbers.append(made.json()["id"])

    def seen(number: str) -> dict[str, Any]:
        found: dict[str, Any] = admin.get(f"/api/requests/{number}").json()
        return found

    def is_cancelled(number: str) -> bool:
        return bool(seen(number)["state"] == "cancelled")

    wait_until(lambda: all(seen(number)["state"] == "running" for number in numbers), "the requests to run")
    form = {"form_key": key_of(admin), "weight": "1", "objects_per_day": "20000", "requests_at_once": "5"}
    blocked = admin.post(f"/admin/users/{names[0]}", data={**form, "is_blocked": "yes"})
    assert blocked.status_code == 303, blocked.text
    for number in numbers[:2]:
        wait_until(partial(is_cancelled, number), "the request to be cancelled")
        assert "an administrator blocked this account" in seen(number)["problem"]
        page = admin.get(f"/requests/{number}").text
        assert "An administrator blocked this account" in page and "This request was cancelled" in page
    assert [seen(number)["state"] for number in numbers[2:]] == ["running", "running"]
    again = httpx.Client(base_url=server.url, timeout=60, headers=tokens[0])
    assert again.get("/api/requests").status_code == 401
    assert admin.post(f"/admin/users/{names[0]}", data=form).status_code == 303
    listed = again.get("/api/requests").json()
    assert [one["state"] for one in listed] == ["cancelled", "cancelled"]
    assert "an administrator blocked this account" in listed[0]["problem"]
    made = again.post("/api/requests", json={"text": all_targets(server)})
    assert made.status_code == 201
    for number, who in ((made.json()["id"], tokens[0]), (numbers[2], tokens[1]), (numbers[3], tokens[1])):
        assert again.post(f"/api/requests/{number}/cancel", headers=who).json() == {"was_going": True}


def test_a_name_in_capitals_is_the_same_name(server: Server) -> None:
    """Else somebody could look like the administrator, and by signing in as such have wrong tries for the other forgotten."""
    client = httpx.Client(base_url=server.url, timeout=60)
    made = client.post("/sign-up", data={"name": "Admin", "password": PASSWORD})
    assert made.status_code == 422 and "the name Admin is taken" in made.text
    name = "u" + secrets.token_hex(4)
    client.post("/sign-up", data={"name": name, "password": PASSWORD})
    again = client.post("/sign-in", data={"name": name.upper(), "password": PASSWORD})
    assert again.status_code == 303, "and it is enough to sign in"


def test_a_user_without_a_password_has_none() -> None:
    assert not accounts.is_password("", "nobody has this password")


def test_numbers_that_are_too_large_for_a_database_are_no_errors(server: Server) -> None:
    client = client_of(server)
    huge = "9" * 30
    assert client.get(f"/vo/files/{huge}").status_code == 404
    form = {"form_key": key_of(client)}
    assert client.post(f"/account/tokens/{huge}/remove", data=form).status_code == 404
    digits = "1" * 5000
    wanted = {**form, "list": "1 1 r", "size": digits}
    assert client.post("/requests", data=wanted).status_code == 422
    assert client.get("/vo/sia2/query", params={"MAXREC": digits}).status_code == 200
    assert client.get("/vo/links", params={"ID": digits}).status_code == 200


def test_zero_bytes_are_refused_before_the_database(server: Server) -> None:
    """PostgreSQL takes none, and says so with an error."""
    client = client_of(server)
    form = {"form_key": key_of(client)}
    assert client.get("/requests/a%00b").status_code == 404
    assert client.get("/shared/a%00b").status_code == 404
    assert client.post("/sign-in", data={"name": "a\0b", "password": "x"}).status_code == 422
    assert client.post("/account/tokens", data={**form, "label": "a\0b"}).status_code == 422
    token = client.post("/api/tokens", json={"name": "a\0b", "password": "x"})
    assert token.status_code == 403
    token = client.post("/api/tokens", json={"name": "ab", "password": "x", "label": "a\0b"})
    assert token.status_code == 422
    surrogate = b'{"name": "\\ud800", "password": "x"}'
    assert client.post("/api/tokens", content=surrogate).status_code == 422


def test_an_administrator_does_not_lock_out_the_last_one(server: Server) -> None:
    client = httpx.Client(base_url=server.url, timeout=60)
    made = client.post("/api/tokens", json={"name": "admin", "password": server.admin_password})
    client.headers["Authorization"] = f"Bearer {made.json()['token']}"
    for change in ({"is_blocked": True}, {"role": "astronomer"}):
        refused = client.patch("/api/users/admin", json=change)
        assert refused.status_code == 422 and "the last administrator" in refused.json()["detail"]
    assert client.get("/api/users").status_code == 200


def test_an_administrator_gives_a_new_password_to_somebody_who_lost_theirs(server: Server) -> None:
    name = "u" + secrets.token_hex(4)
    user = httpx.Client(base_url=server.url, timeout=60)
    user.post("/sign-up", data={"name": name, "password": PASSWORD})
    admin = client_of(server, "admin", server.admin_password)
    page = admin.post(f"/admin/users/{name}/password", data={"form_key": key_of(admin)})
    found = re.search(r'id="new-password">([^<]+)<', page.text)
    assert found and user.get("/account").status_code == 303, "and their sessions have ended"
    assert user.post("/sign-in", data={"name": name, "password": PASSWORD}).status_code == 403
    assert user.post("/sign-in", data={"name": name, "password": found[1]}).status_code == 303
    assert found[1] not in server.printed
    by_user = user.post("/admin/users/admin/password", data={"form_key": key_of(user)})
    assert by_user.status_code == 404


def test_a_user_has_a_limit_of_tokens(tmp_path: Path) -> None:
    kept = store.Store(store.connect(f"sqlite:///{tmp_path}/p.db"))
    kept.add_user("ada", "x")
    ada = kept.user("ada")
    assert ada is not None
    for _ in range(store.TOKENS_MAX):
        kept.add_token(ada["id"], "t")
    with pytest.raises(store.TooMuch, match="remove one"):
        kept.add_token(ada["id"], "t")


def test_cutouts_that_wait_keep_nobody_else_waiting(server: Server) -> None:
    """Each waits in a thread for a node that does not come, and pages are served by threads, too."""
    one = Index(store.connect(f"sqlite:///{server.folder}/portal.db")).find(1)
    assert one is not None
    circle = f"{one.ra} {one.dec} 0.002"

    def ask(_: int) -> int:
        try:
            return httpx.get(
                f"{server.url}/vo/soda", params={"ID": "1", "CIRCLE": circle}, timeout=3
            ).status_code
        except httpx.TimeoutException:
            return 0

    with ThreadPoolExecutor(60) as threads:
        answers = [threads.submit(ask, number) for number in range(60)]
        time.sleep(1)
        assert httpx.get(f"{server.url}/help", timeout=30).status_code == 200
        said = [answer.result() for answer in answers]
    assert said.count(503) >= 40, said


def test_one_user_does_not_watch_a_thousand_times(server: Server) -> None:
    """A request that waits for a node is watched by many pages, of which each costs the portal something ten times a second."""
    client = client_of(server)
    form = {"form_key": key_of(client), "list": all_targets(server), "size": "41"}
    page = client.post("/requests", data=form).headers["location"]
    opened = [client.build_request("GET", f"{page}/events") for _ in range(faces.WATCHED_MAX + 5)]
    with ExitStack() as stack:
        own = stack.enter_context(httpx.Client(cookies=client.cookies, timeout=60, limits=httpx.Limits()))
        said, read = [], []
        for request in opened:
            answer = own.send(request, stream=True)
            stack.callback(answer.close)
            if answer.status_code == 200:
                # An iterator that is dropped closes its stream.
                read.append(answer.iter_text())
                next(read[-1])
            said.append(answer.status_code)
    assert said == [200] * faces.WATCHED_MAX + [429] * 5
    wait_until(lambda: client.get(f"/api{page}?wait=0.01").status_code == 200, "the pages to be closed")


def test_a_request_waits_for_the_database_and_ends(server: Server) -> None:
    client = client_of(server)
    form = {"form_key": key_of(client), "list": all_targets(server), "size": "41"}
    number = client.post("/requests", data=form).headers["location"].rpartition("/")[2]
    with eyas.connect(server.folder.parent / "dispatcher" / "join.json") as cluster:
        wait_until(lambda: cluster.runs(name=f"request-{number}"), "the request to be a run")
        database = sqlite3.connect(server.folder / "portal.db", isolation_level=None)
        database.execute("ALTER TABLE requests RENAME TO away")
        try:
            cluster.runs(name=f"request-{number}")[0].cancel()
            wait_until(
                lambda: f"request {number} waits for the database" in server.printed, "the portal to wait"
            )
        finally:
            database.execute("ALTER TABLE away RENAME TO requests")
            database.close()
    wait_until(lambda: client.get(f"/api/requests/{number}").json()["state"] == "done", "the request to end")


def test_many_users_one_after_the_other_leave_few_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "CONNECTIONS_KEPT", 2)
    n_open = []
    with eyas.Cluster(nodes=1, slots=1, dir=tmp_path / "cluster") as cluster:
        connections = work.Connections(cluster.join, tmp_path / "keys")
        go = tmp_path / "go"
        task = {"id": "waits", "command": f"until test -e {go}; do sleep 0.05; done"}
        run = connections.of("first", 1).run([task])
        for number in range(8):
            connections.of(f"u{number}", 1)
            n_open.append(len(os.listdir("/proc/self/fd")))
        assert n_open[2:] == n_open[2:3] * 6, n_open
        # A request goes on with its connection when that is another user's turn, or is forgotten by another request of the user.
        another = connections.of("u7", 1).run([{"id": "true", "command": "true"}])
        connections.forget("u7")
        go.touch()
        assert run.wait(60) and another.wait(60)
        connections.close()


def test_a_search_of_many_circles_is_refused(server: Server) -> None:
    many = httpx.get(f"{server.url}/vo/sia2/query", params=[("POS", "CIRCLE 1 2 5")] * 2000, timeout=60)
    assert many.status_code == 400 and "at most" in many.text


def test_the_portals_files_are_its_own(server: Server) -> None:
    """They have the digests of passwords, and what people asked for."""
    for name in ("portal.db", "portal.db-wal", "admin-password"):
        path = server.folder / name
        assert not path.exists() or path.stat().st_mode & 0o077 == 0, name


def test_signing_in_ends_the_session_before(server: Server) -> None:
    name = "u" + secrets.token_hex(4)
    client = httpx.Client(base_url=server.url, timeout=60)
    client.post("/sign-up", data={"name": name, "password": PASSWORD})
    before = client.cookies["portal_session"]
    client.post("/sign-in", data={"name": name, "password": PASSWORD})
    old = httpx.Client(base_url=server.url, cookies={"portal_session": before}, timeout=60)
    assert old.get("/account").status_code == 303


def test_a_forwarded_address_counts_only_behind_a_proxy(server: Server) -> None:
    """Whoever may choose their address has as many tries as they like."""
    said = [
        httpx.post(
            f"{server.url}/sign-in",
            data={"name": "n" + secrets.token_hex(4), "password": "x"},
            headers={"X-Forwarded-For": f"10.0.0.{number}", "Forwarded": f"for=10.0.0.{number}"},
            timeout=60,
        ).status_code
        for number in range(33)
    ]
    assert said[-1] == 429 and said[0] == 403


def test_a_search_leaves_nothing_out_in_silence(tmp_path: Path) -> None:
    """Of many exposures in the cells of a position, the few that show it are found; so is a band that comes late."""
    index = Index(store.connect(f"sqlite:///{tmp_path}/i.db"))
    index.fill(exposures_around([(250.4, 36.4)], 3000, seed=3))
    one = index.some(10_000, ["r"])[-1]
    near = index.near(Region(one.ra, one.dec, 0.0001), ["r"], 1000)
    assert one.id in {found.id for found in near} and len(near) < 1000
    assert len(index.some(100, ["r"])) == 100


def test_a_map_of_objects_all_over_the_sky_takes_no_time() -> None:
    rng = np.random.default_rng(1)
    places = zip(rng.uniform(0, 360, 10_000).tolist(), rng.uniform(-90, 90, 10_000).tolist(), strict=True)
    objects = [{"ra": ra, "dec": dec} for ra, dec in places]
    groups = skymap.fields_of(objects)
    assert len(groups) <= skymap.FIELDS_MAX and sum(map(len, groups)) < 10_000


def test_many_fields_of_a_form_are_refused(server: Server) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    said = httpx.post(f"{server.url}/sign-in", content="a&" * 500_000, headers=kind, timeout=60)
    assert said.status_code in (400, 413)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--db", "nonsense"), "the database cannot be used"),
        (("--db", "postgresql+psycopg://ada:a-secret@127.0.0.1:1/p"), "the database cannot be used"),
        (("--db", "oracle://ada:a-secret@127.0.0.1/p"), "the database cannot be used"),
        (("--certificate", "gone.pem", "--key", "gone.pem"), "gone.pem cannot be used"),
        (("--key", "gone.pem"), "--key is given without --certificate"),
        (("--oidc", "gone.toml"), "gone.toml cannot be read"),
        (("--host", "192.0.2.1"), "cannot be listened on"),
        (("--join", "gone.json"), "gone.json"),
        (("--survey", "."), "has no survey.json"),
    ],
)
def test_a_wrong_option_is_one_sentence(
    words: tuple[str, ...], said: str, tmp_path: Path, survey: Path
) -> None:
    command: list[str | Path] = [sys.executable, APP / "serve.py", "--dir", tmp_path / "data"]
    command += ["--survey", survey]
    more = () if "--join" in words else ("--nodes", "1")
    done = subprocess.run(
        [*command, *more, *words], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode in (2, 4) and done.stderr.startswith("error: ") and said in done.stderr, done
    assert "Traceback" not in done.stderr and "a-secret" not in done.stderr


def test_a_request_that_comes_while_its_user_is_blocked_is_refused(tmp_path: Path) -> None:
    """Their key was looked at before they were blocked, and the request is written after it."""
    kept = store.Store(store.connect(f"sqlite:///{tmp_path}/p.db"))
    kept.add_user("ada", "x")
    ada = kept.user("ada")
    assert ada is not None
    kept.set_user("ada", is_blocked=True)
    with pytest.raises(store.Blocked):
        kept.add_request(ada, "press", 41, [[1, 1.0, 1.0, "r"]])
    assert kept.going() == []


def test_behind_a_proxy_the_address_is_what_the_proxy_saw() -> None:
    """Whoever sends a list of addresses through the proxy has the proxy's word behind their own."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(faces.address_of(Request(scope)))

    headers = [(b"x-forwarded-for", b"6.6.6.6, 127.0.0.1, 192.0.2.7"), (b"x-forwarded-proto", b"https")]
    for client in ("127.0.0.1", "198.51.100.9"):
        scope = {
            "type": "http",
            "client": (client, 1),
            "headers": headers,
            "scheme": "http",
            "server": ("p", 80),
        }
        asyncio.run(ProxyHeadersMiddleware(app, trusted_hosts="127.0.0.1")(scope, None, None))  # type: ignore[arg-type]
    assert seen == ["192.0.2.7", "198.51.100.9"], "and no word of somebody who is no proxy"
