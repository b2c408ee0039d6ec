"""The pages: plain HTML that works without a script, and a small script that shows progress live."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import eyas
import numpy as np
import sqlalchemy.exc
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from fastapi.routing import APIRouter
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException as AnyHTTPException

from . import accounts, api, identity_pages, skymap, vo
from .api import Here
from .faces import BODY_BYTES_MAX, COOKIE, Portal, address_of, portal_of, session_of
from .lists import BANDS, Problem
from .pages import HERE, Admin, Form, OwnForm, SignInFirst, Viewer, go_to, inside, page, sign_in_as
from .regions import Region
from .store import ENDS, REQUESTS_SHOWN, Row
from .work import FILES

EXAMPLE_OBJECTS = 20
MAPS_MAX = 4
# How often a watcher looks for news, and how often it says that it is still there.
LOOK_S = 0.1
ALIVE_S = 15.0
# What is read of a body that is refused, before the answer.
DRAINED_BYTES_MAX = 20_000_000

log = logging.getLogger("portal")
router = APIRouter(include_in_schema=False)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # The address of a shared page is a secret.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


# ---------------------------------------------------------------------------------------- around all routes


class Around:
    """Around the application: no body is larger than it may be, and every answer has the headers that protect a page."""

    def __init__(self, app: Any, is_tls: bool) -> None:
        self._app = app
        self._headers = dict(HEADERS)
        if is_tls:
            self._headers["strict-transport-security"] = "max-age=31536000"

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                headers += [(key.encode(), value.encode()) for key, value in self._headers.items()]
                if not path.startswith("/static/") and not any(key == b"cache-control" for key, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        async def rest(limit: int) -> None:
            """Read what still comes, up to a limit: a client that is still sending would else see no answer."""
            n_bytes, more = 0, True
            while more and n_bytes < limit:
                message = await receive()
                n_bytes += len(message.get("body", b""))
                more = message.get("more_body", False)

        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
            await rest(DRAINED_BYTES_MAX)
            return await JSONResponse({"detail": _TooLarge().detail}, 413)(scope, receive, with_headers)
        n_bytes = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > BODY_BYTES_MAX:
                if message.get("more_body", False):
                    await rest(DRAINED_BYTES_MAX)
                raise _TooLarge
            return message

        await self._app(scope, counted, with_headers)


class _TooLarge(HTTPException):
    """A body that goes on beyond the limit."""

    def __init__(self) -> None:
        super().__init__(
            413,
            f"what was sent is larger than {BODY_BYTES_MAX:,} bytes: send it in parts, or without columns",
        )


# ---------------------------------------------------------------------------------------- signing in


@router.get("/")
def first_page(request: Request, portal: Here) -> Response:
    if session_of(request) is not None:
        return go_to("/requests/new")
    return page(request, "first", counts=portal.index.count())


@router.get("/sign-in")
def sign_in_page(request: Request, to: str = "", ended: int = 0) -> Response:
    return page(request, "sign_in", to=inside(to), has_ended=bool(ended), trouble=None, name="")


@router.post("/sign-in")
def sign_in(request: Request, portal: Here, form: Form) -> Response:
    name, to = str(form.get("name", "")), inside(str(form.get("to", "")))
    try:
        user = portal.sign_in(address_of(request), name, str(form.get("password", "")))
    except HTTPException as error:
        answer = page(
            request,
            "sign_in",
            error.status_code,
            to=to,
            has_ended=False,
            trouble=error.detail,
            name=name[:64],
        )
        answer.headers.update(error.headers or {})
        return answer
    return sign_in_as(request, user["id"], to)


@router.get("/sign-up")
def sign_up_page(request: Request) -> Response:
    return page(request, "sign_up", trouble=None, name="")


@router.post("/sign-up")
def sign_up(request: Request, portal: Here, form: Form) -> Response:
    name, password = str(form.get("name", "")), str(form.get("password", ""))
    trouble = portal.sign_up(address_of(request), name, password)
    if trouble:
        return page(request, "sign_up", 422, trouble=trouble, name=name[:64])
    user = portal.store.user(name)
    assert user is not None
    return sign_in_as(request, user["id"], "/requests/new")


@router.post("/sign-out")
def sign_out(request: Request, portal: Here, form: OwnForm) -> Response:
    portal.store.close_session(request.cookies.get(COOKIE, ""))
    answer = go_to("/")
    answer.delete_cookie(COOKIE, path="/")
    return answer


# ---------------------------------------------------------------------------------------- requests


def _example(portal: Portal, band: str = "r") -> str:
    """Objects of the survey's own list that exposures of the band show, or where exposures look; nothing where it has no list."""
    if portal.survey.is_list:
        middles = portal.index.some(EXAMPLE_OBJECTS, list(BANDS))
        return "\n".join(f"{one.ra:.7f} {one.dec:.7f} {one.band}" for one in middles)
    try:
        lines = (portal.survey.folder / "targets.csv").read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return ""
    places = [(float(ra), float(dec)) for _, ra, dec, *_ in (line.split(",") for line in lines)]
    ra, dec = np.array(places).reshape(-1, 2).T
    shown = portal.index.covering(band, ra, dec, 41)
    good = [place for place, covering in zip(places, shown, strict=True) if covering]
    return "\n".join(f"{x:.7f} {y:.7f} {band}" for x, y in good[:EXAMPLE_OBJECTS])


def _new_page(request: Request, status: int = 200, **values: Any) -> HTMLResponse:
    known: dict[str, Any] = {"text": "", "size": 41, "band": "", "problems": []}
    known["press"] = secrets.token_urlsafe(16)
    sizes = portal_of(request).work.sizes
    return page(request, "new", status, sizes=sizes, bands=BANDS, **{**known, **values})


@router.get("/requests/new")
def new_page(request: Request, portal: Here, user: Viewer, example: int = 0) -> Response:
    answer = _new_page(request, text=_example(portal) if example else "")
    # By the back button this very page comes again, so a second press of its button is known as one.
    answer.headers["cache-control"] = "private, no-cache"
    return answer


@router.post("/requests")
def new_request(request: Request, portal: Here, form: OwnForm) -> Response:
    user, values = form
    text, upload = str(values.get("list", "")), values.get("file")
    data: bytes | str = text
    if isinstance(upload, UploadFile) and upload.filename:
        data = upload.file.read()
        text = data.decode("utf-8", "replace") if len(data) < 200_000 else ""
    size, band = str(values.get("size", "41"))[:20], str(values.get("band", ""))[:20]
    asked, problems = portal.read(data, band)
    press = str(values.get("press", ""))[:40] or secrets.token_urlsafe(16)
    if problems:
        return _new_page(request, 422, text=text, size=size, band=band, problems=problems, press=press)
    # The back button brings the form with its press again: with other words in it, it asks for something else.
    words = hashlib.sha256(repr((size, asked)).encode()).hexdigest()[:16]
    try:
        number = portal.ask(user, f"form-{press}-{words}", int(size) if size.isdecimal() else 0, asked)
    except HTTPException as error:
        problems = [Problem(0, str(error.detail))]
        return _new_page(
            request, error.status_code, text=text, size=size, band=band, problems=problems, press=press
        )
    return go_to(f"/requests/{number}")


@router.get("/requests")
def history(request: Request, portal: Here, user: Viewer, before: float | None = None) -> Response:
    rows = portal.store.requests_of(user["id"], REQUESTS_SHOWN + 1, before)
    older = rows[REQUESTS_SHOWN - 1]["created"] if len(rows) > REQUESTS_SHOWN else None
    return page(request, "history", rows=rows[:REQUESTS_SHOWN], older=older, before=before)


def _maps(portal: Portal, row: Row) -> tuple[list[dict[str, Any]], int]:
    """The maps of the fields that have most objects of a request, and how many objects are on none."""
    states: dict[int, tuple[str, str]] = {}
    for state in ("outside", "lost"):
        for one in (row["result"] or {}).get(state, ()):
            states[one["line"]] = (state, one["why"])
    objects = []
    for line, ra, dec, band in row["asked"]:
        state, why = states.get(line, ("found" if row["state"] == "done" else "asked", ""))
        objects.append({"line": line, "ra": ra, "dec": dec, "band": band, "state": state, "why": why})
    maps = []
    groups = skymap.fields_of(objects)[:MAPS_MAX]
    for group in groups:
        bands = sorted({one["band"] for one in group})
        field = Region(group[0]["ra"], group[0]["dec"], skymap.FIELD_DEG / 2)
        near = portal.index.near(field, bands, skymap.OUTLINES_MAX)
        maps.append(skymap.draw(group, near))
    return maps, len(objects) - sum(map(len, groups))


def _request_page(request: Request, portal: Portal, row: Row, base: str, is_shared: bool) -> Response:
    maps, n_elsewhere = _maps(portal, row)
    return page(
        request,
        "request",
        row=row,
        now=portal.status_of(row),
        result=row["result"] or {},
        maps=maps,
        n_elsewhere=n_elsewhere,
        base=base,
        is_shared=is_shared,
        is_own=not is_shared,
        has_ended=row["state"] in ENDS,
    )


@router.get("/requests/{number}")
def request_page(request: Request, portal: Here, user: Viewer, number: str) -> Response:
    return _request_page(request, portal, portal.may_see(user, number), f"/requests/{number}", False)


@router.get("/requests/{number}/files/{name}")
def request_file(portal: Here, user: Viewer, number: str, name: str) -> Response:
    return _file(portal.file(portal.may_see(user, number), name), number, name)


def _file(path: Path, number: str, name: str) -> Response:
    how = "attachment" if name.endswith(".fits") else "inline"
    return FileResponse(
        path, media_type=FILES[name], filename=f"{number}-{name}", content_disposition_type=how
    )


@router.post("/requests/{number}/cancel")
def cancel(portal: Here, form: OwnForm, number: str) -> Response:
    portal.work.cancel(portal.may_see(form[0], number)["id"])
    return go_to(f"/requests/{number}")


@router.post("/requests/{number}/share")
def share(portal: Here, form: OwnForm, number: str) -> Response:
    user, values = form
    row = portal.may_see(user, number)
    portal.store.share(row["id"], str(values.get("shared", "")) == "yes")
    return go_to(f"/requests/{number}")


@router.get("/requests/{number}/events")
async def events(request: Request, portal: Here, user: Viewer, number: str) -> Response:
    """The state of a request whenever it changes, as server-sent events; `end` is the last one."""
    await run_in_threadpool(portal.may_see, user, number)
    portal.may_watch(user)

    async def told() -> AsyncIterator[str]:
        with portal.watched(user["id"]):
            async for one in news():
                yield one

    async def news() -> AsyncIterator[str]:
        seen, said = -1, time.monotonic()
        while True:
            live = portal.work.live(number)
            if live is not None and live.version != seen:
                seen, said = live.version, time.monotonic()
                yield f"data: {json.dumps(live.status)}\n\n"
            elif live is None:
                row = await run_in_threadpool(portal.store.request, number)
                if row is None or row["state"] in ENDS:
                    yield f"event: end\ndata: {json.dumps({'state': row and row['state']})}\n\n"
                    return
            if time.monotonic() - said > ALIVE_S:
                said = time.monotonic()
                # A session may have ended since, or its user may have been blocked.
                if await run_in_threadpool(session_of, request) is None:
                    return
                yield ": still here\n\n"
            if await request.is_disconnected() or portal.is_ending():
                return
            await asyncio.sleep(LOOK_S)

    return StreamingResponse(told(), media_type="text/event-stream")


@router.get("/shared/{secret}")
def shared_page(request: Request, portal: Here, secret: str) -> Response:
    return _request_page(request, portal, portal.may_share(secret), f"/shared/{secret}", True)


@router.get("/shared/{secret}/files/{name}")
def shared_file(portal: Here, secret: str, name: str) -> Response:
    row = portal.may_share(secret)
    return _file(portal.file(row, name), row["id"], name)


# ---------------------------------------------------------------------------------------- account and administration


@router.get("/account")
def account(request: Request, portal: Here, user: Viewer) -> Response:
    return _account_page(request, portal, user)


def _account_page(request: Request, portal: Portal, user: Row, status: int = 200, **more: Any) -> Response:
    known = {"tokens": portal.store.tokens_of(user["id"]), "new_token": None, "trouble": None}
    known["identities"] = portal.store.identities_of(user["id"])
    return page(request, "account", status, **{**known, **more})


@router.post("/account/tokens")
def new_token(request: Request, portal: Here, form: OwnForm) -> Response:
    user, values = form
    made = portal.add_token(user, str(values.get("label", "")).strip() or "program")
    return _account_page(request, portal, user, new_token=made)


@router.post("/account/tokens/{number}/remove")
def remove_token(portal: Here, form: OwnForm, number: int) -> Response:
    if not portal.store.remove_token(form[0]["id"], number):
        raise HTTPException(404, "there is no such token")
    return go_to("/account")


@router.post("/account/password")
def change_password(request: Request, portal: Here, form: OwnForm) -> Response:
    user, values = form
    new = str(values.get("new", ""))
    try:
        portal.sign_in(address_of(request), user["name"], str(values.get("old", "")))
        trouble = accounts.trouble_of_password(new, user["name"])
    except HTTPException as error:
        trouble = "this is not your password" if error.status_code == 403 else str(error.detail)
    if trouble:
        return _account_page(request, portal, user, 422, trouble=trouble)
    with portal.hashing:
        portal.store.set_user(user["name"], password=accounts.hash_of(new))
    # All other sessions of the user end.
    portal.store.close_sessions(user["id"])
    return sign_in_as(request, user["id"], "/account")


@router.get("/admin")
def admin_page(request: Request, portal: Here, user: Admin) -> Response:
    return _admin_page(request, portal)


def _admin_page(request: Request, portal: Portal, **more: Any) -> Response:
    status = portal.work.connections.owner.status()
    return page(
        request,
        "admin",
        **{"new_password": None, **more},
        users=portal.store.all_users(),
        rows=portal.store.requests_of(None, 50),
        nodes=status["executors"],
        warnings=status["warnings"],
        counts=portal.index.count(),
    )


@router.post("/admin/users/{name}")
def change_user(portal: Here, form: OwnForm, name: str) -> Response:
    values = form[1]
    found = _user_for(form[0], portal, name)
    try:
        change = api.UserChange(
            is_blocked="is_blocked" in values,
            weight=int(str(values["weight"])),
            objects_per_day=int(str(values["objects_per_day"])),
            requests_at_once=int(str(values["requests_at_once"])),
        )
    except (KeyError, ValueError):
        raise HTTPException(
            422, "the weight and the limits are whole numbers, the weight at least 1"
        ) from None
    portal.change(found, change.model_dump(exclude_none=True))
    return go_to("/admin")


@router.post("/admin/users/{name}/password")
def new_password(request: Request, portal: Here, form: OwnForm, name: str) -> Response:
    found = _user_for(form[0], portal, name)
    return _admin_page(request, portal, new_password=(found["name"], portal.new_password(found)))


def _user_for(by: Row, portal: Portal, name: str) -> Row:
    """The user of a name, for an administrator; to others the page is not there."""
    if by["role"] != "admin":
        raise HTTPException(404, "there is no such page")
    return api.named(portal, name)


@router.get("/help")
def help_page(request: Request) -> Response:
    return page(request, "help", base=str(request.base_url).rstrip("/"))


# ---------------------------------------------------------------------------------------- the application


def _is_for_programs(request: Request) -> bool:
    return request.url.path.startswith("/api/")


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    if request.url.path.startswith("/vo/"):
        return vo.fault(request.url.path, error.status_code, str(error.detail), error.headers)
    if _is_for_programs(request):
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
    found = await run_in_threadpool(page, request, "error", error.status_code, detail=error.detail)
    found.headers.update(error.headers or {})
    return found


async def _on_lost_cluster(request: Request, error: Exception) -> Response:
    log.warning("%s: %s", request.url.path, error)
    return await _on_error(
        request, HTTPException(503, "the cluster does not answer at the moment: try again later")
    )


async def _on_lost_database(request: Request, error: Exception) -> Response:
    log.error("%s: the database does not answer: %s", request.url.path.partition("/shared/")[0], error)
    # Not as a page of its own, which would ask the database who has signed in.
    sentence = "the portal's database does not answer at the moment: try again later"
    if request.url.path.startswith("/vo/"):
        return vo.fault(request.url.path, 503, sentence)
    if _is_for_programs(request):
        return JSONResponse({"detail": sentence}, 503)
    return PlainTextResponse(sentence, 503)


async def _on_sign_in_first(request: Request, error: Exception) -> Response:
    """To the page for signing in, and from there back to where one wanted to go."""
    from urllib.parse import quote

    to = request.url.path if request.method == "GET" else "/requests/new"
    ended = "&ended=1" if COOKIE in request.cookies else ""
    return go_to(f"/sign-in?to={quote(to)}{ended}")


async def _on_wrong_words(request: Request, error: Exception) -> Response:
    """The words of a request that have another form; what was sent is not repeated, because a password may be in it."""
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(str(part) for part in one['loc'][1:])}: {one['msg']}" for one in error.errors()]
    return await _on_error(request, HTTPException(422, "; ".join(found)[:2000]))


def make_app(portal: Portal) -> Any:
    """The application, for a server of ASGI."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(vo.remove_old_cutouts, portal.work.data)
        await run_in_threadpool(portal.work.begin)
        yield
        portal.work.close()

    # The documentation pages of FastAPI load scripts from another server.
    app = FastAPI(
        title="eyas portal",
        version="1",
        description="Stacks of cutouts of a sky survey.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=life,
    )
    app.state.portal = portal
    app.include_router(router)
    app.include_router(identity_pages.router)
    app.include_router(api.router)
    app.include_router(vo.router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_exception_handler(AnyHTTPException, _on_error)
    app.add_exception_handler(eyas.EyasError, _on_lost_cluster)
    app.add_exception_handler(sqlalchemy.exc.OperationalError, _on_lost_database)
    app.add_exception_handler(SignInFirst, _on_sign_in_first)
    app.add_exception_handler(RequestValidationError, _on_wrong_words)
    return Around(app, portal.is_tls)
