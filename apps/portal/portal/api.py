"""The interface for programs, under /api: the paper's Web Service (Raicu09, section 6.2). Programs have tokens.

Somebody who has signed in may read what is here in their browser. What changes something takes a token only, so no other page can.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from . import accounts
from .faces import Portal, address_of, is_browsing, portal_of, session_of
from .lists import BANDS, Asked, Problem, check
from .store import REQUESTS_SHOWN, Row
from .work import FILES

router = APIRouter(prefix="/api")

WAIT_S_MAX = 60.0
# How often who waits looks whether there is something new.
LOOK_S = 0.05


def api_user(request: Request, authorization: Annotated[str | None, Header()] = None) -> Row:
    """The user of a token; for reading in a browser that of a session. A program has the cookie of a session for nothing."""
    portal = portal_of(request)
    kind, _, secret = (authorization or "").partition(" ")
    if kind.lower() == "bearer" and secret:
        user = portal.store.user_of_token(secret.strip())
        if user is not None:
            return user
    elif authorization is None and request.method == "GET" and is_browsing(request.headers):
        session = session_of(request)
        if session is not None:
            return session[0]
    raise HTTPException(
        401, "sign in: send a token, as in `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"}
    )


def api_admin(user: Annotated[Row, Depends(api_user)]) -> Row:
    if user["role"] != "admin":
        raise HTTPException(403, "only an administrator may do this")
    return user


User = Annotated[Row, Depends(api_user)]
Admin = Annotated[Row, Depends(api_admin)]
Here = Annotated[Portal, Depends(portal_of)]


class NewToken(BaseModel):
    name: str = Field(max_length=64)
    password: str = Field(max_length=200)
    label: str = Field("program", max_length=64, pattern=r"^[^\x00]*$")


# `true` is no number.
Degrees = Annotated[float, Field(strict=True)]


class Object(BaseModel):
    """A position in degrees (J2000), and a band of u, g, r, i, z. Texts such as `16:41:41.2` are read, too."""

    ra: Degrees | str
    dec: Degrees | str
    band: str | None = Field(default=None, max_length=20)


class NewRequest(BaseModel):
    """What to stack: `objects`, or `text`, which is lines, CSV or a VOTable. `size` is the side of a cutout in pixels, `band` that of
    objects that name none.
    """

    objects: list[Object] | None = None
    text: str | None = None
    size: int = 41
    band: str | None = Field(default=None, max_length=20)


class UserChange(BaseModel):
    is_blocked: bool | None = None
    weight: int | None = Field(default=None, ge=1, le=1000)
    objects_per_day: int | None = Field(default=None, ge=0, le=10**9)
    requests_at_once: int | None = Field(default=None, ge=0, le=1000)
    role: str | None = Field(default=None, pattern="^(astronomer|admin)$")


def refuse(problems: list[Problem]) -> HTTPException:
    return HTTPException(
        422,
        {
            "message": f"{len(problems)} line{'s' * (len(problems) != 1)} cannot be used",
            "problems": [{"line": one.line, "text": one.text} for one in problems],
        },
    )


def shown(row: Row, portal: Portal) -> dict[str, Any]:
    found = portal.status_of(row)
    if row["result"] is not None:
        found["result"] = row["result"]
    return found


@router.post("/tokens", status_code=201, summary="A token of a name and a password")
def make_token(request: Request, portal: Here, wanted: NewToken) -> dict[str, str]:
    user = portal.sign_in(address_of(request), wanted.name, wanted.password)
    return {"token": portal.add_token(user, wanted.label)}


@router.get("/requests", summary="Your requests, the newest first")
def list_requests(
    portal: Here,
    user: User,
    limit: Annotated[int, Query(ge=1, le=REQUESTS_SHOWN)] = REQUESTS_SHOWN,
    before: float | None = None,
) -> list[dict[str, Any]]:
    """At most `limit`. Older ones come with `before`, the `created` of the last one that was given."""
    return [portal.status_of(row) for row in portal.store.requests_of(user["id"], limit, before)]


@router.post("/requests", status_code=201, summary="Ask for a stack")
def new_request(
    portal: Here,
    user: User,
    wanted: NewRequest,
    idempotency_key: Annotated[str | None, Header(max_length=40)] = None,
) -> dict[str, Any]:
    """Gives the request's state at once. The same `Idempotency-Key` gives the same request again."""
    import secrets

    if (wanted.objects is None) == (wanted.text is None):
        raise HTTPException(422, "give either `objects` or `text`")
    if wanted.text is not None:
        asked, problems = portal.read(wanted.text, wanted.band)
    else:
        asked, problems = _check(wanted.objects or [], wanted.band)
    if problems:
        raise refuse(problems)
    press = f"key-{idempotency_key}" if idempotency_key else f"api-{secrets.token_urlsafe(16)}"
    number = portal.ask(user, press, wanted.size, asked)
    return shown(portal.may_see(user, number), portal)


def _check(objects: list[Object], band: str | None) -> tuple[list[Asked], list[Problem]]:
    from .faces import OBJECTS_MAX

    asked, problems = [], []
    if not objects:
        problems.append(Problem(0, "the list has no objects"))
    if len(objects) > OBJECTS_MAX:
        return [], [Problem(0, f"the list has more than {OBJECTS_MAX:,} objects: ask for them in parts")]
    for number, one in enumerate(objects, 1):
        try:
            asked.append(check(number, str(one.ra), str(one.dec), one.band or band or ""))
        except ValueError as error:
            problems.append(Problem(number, str(error)))
    return asked, problems


@router.get("/requests/{number}", summary="The state of a request, and its result when it is there")
async def read_request(
    portal: Here, user: User, number: str, wait: Annotated[float, Query(ge=0, le=WAIT_S_MAX)] = 0.0
) -> dict[str, Any]:
    """With `wait` the answer comes when the request has ended, or after so many seconds."""
    row = await run_in_threadpool(portal.may_see, user, number)
    if wait:
        portal.may_watch(user)
        end = time.monotonic() + wait
        with portal.watched(user["id"]):
            while portal.work.live(number) and time.monotonic() < end and not portal.is_ending():
                await asyncio.sleep(LOOK_S)
        row = await run_in_threadpool(portal.may_see, user, number)
    return shown(row, portal)


@router.post("/requests/{number}/cancel", summary="End a request")
def cancel_request(portal: Here, user: User, number: str) -> dict[str, bool]:
    return {"was_going": portal.work.cancel(portal.may_see(user, number)["id"])}


@router.get(
    "/requests/{number}/files/{name}",
    summary="stack.fits, stack.png or stack.jpg, or one cutout alone, one.png",
)
def read_file(portal: Here, user: User, number: str, name: str) -> FileResponse:
    path = portal.file(portal.may_see(user, number), name)
    return FileResponse(path, media_type=FILES[name], filename=f"{number}-{name}")


@router.get("/survey", summary="What the survey has")
def read_survey(portal: Here) -> dict[str, Any]:
    return {"bands": list(BANDS), "n_exposures": portal.index.count()}


@router.get("/users", summary="All users (administrators)")
def list_users(portal: Here, user: Admin) -> list[dict[str, Any]]:
    return portal.store.all_users()


def named(portal: Portal, name: str) -> Row:
    found = None if accounts.trouble_of_name(name) else portal.store.user(name)
    if found is None:
        raise HTTPException(404, "there is no such user")
    return found


@router.patch("/users/{name}", summary="Change what a user may do (administrators)")
def change_user(portal: Here, user: Admin, name: str, change: UserChange) -> dict[str, Any]:
    values = change.model_dump(exclude_none=True)
    found = named(portal, name)
    if not values:
        raise HTTPException(422, "nothing is named that could be changed")
    portal.change(found, values)
    return {"name": found["name"], **values}


@router.post("/users/{name}/password", summary="A new password for a user who lost theirs (administrators)")
def new_password(portal: Here, user: Admin, name: str) -> dict[str, str]:
    return {"password": portal.new_password(named(portal, name))}
