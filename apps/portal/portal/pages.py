"""What all pages have: templates, forms that prove where they come from, and the cookie of a session."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, select_autoescape
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from .faces import BODY_BYTES_MAX, COOKIE, is_same_site, portal_of, session_of
from .store import Row

HERE = Path(__file__).resolve().parent


class SignInFirst(Exception):
    """A page that needs somebody who has signed in."""


def viewer(request: Request) -> Row:
    """Who has signed in."""
    session = session_of(request)
    if session is None:
        raise SignInFirst
    return session[0]


def admin(user: Annotated[Row, Depends(viewer)]) -> Row:
    if user["role"] != "admin":
        raise HTTPException(404, "there is no such page")
    return user


async def foreign_form(request: Request) -> FormData:
    """A form of somebody who has not signed in."""
    if not is_same_site(request.headers):
        raise HTTPException(403, "this form was sent from another site")
    form = await request.form(max_files=1, max_fields=20, max_part_size=BODY_BYTES_MAX)
    # PostgreSQL takes none in a text, and no field needs one; a list may say itself what is wrong with it.
    if any(isinstance(value, str) and "\0" in value for name, value in form.multi_items() if name != "list"):
        raise HTTPException(422, "a field of the form has a zero byte")
    return form


async def own_form(request: Request) -> tuple[Row, FormData]:
    """A form of somebody who has signed in: it has to carry the key of their session."""
    session = await run_in_threadpool(session_of, request)
    if session is None:
        raise SignInFirst
    form = await foreign_form(request)
    if not secrets.compare_digest(str(form.get("form_key", "")).encode(), session[1].encode()):
        raise HTTPException(403, "this form is of another session: open the page again")
    return session[0], form


Viewer = Annotated[Row, Depends(viewer)]
Admin = Annotated[Row, Depends(admin)]
Form = Annotated[FormData, Depends(foreign_form)]
OwnForm = Annotated[tuple[Row, FormData], Depends(own_form)]


# ---------------------------------------------------------------------------------------- templates


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError


templates = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=select_autoescape(("html",)), trim_blocks=True
)
templates.filters["bytes"] = _bytes
templates.filters["time"] = lambda at: time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def page(request: Request, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    session = session_of(request)
    user, form_key = session if session is not None else (None, "")
    text = templates.get_template(f"{template}.html").render(
        user=user, form_key=form_key, path=request.url.path, portal=portal_of(request), **values
    )
    return HTMLResponse(text, status)


def go_to(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303)


def inside(path: str) -> str:
    """A path of this portal to go to after signing in; anything else is the first page."""
    is_inside = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return path if is_inside and path.isprintable() else "/requests/new"


def sign_in_as(request: Request, user: int, to: str) -> Response:
    answer = go_to(to)
    # A session that the browser had before is of no use to anybody any more.
    portal_of(request).store.close_session(request.cookies.get(COOKIE, ""))
    secret = portal_of(request).store.open_session(user)
    is_tls = portal_of(request).is_tls or request.url.scheme == "https"
    answer.set_cookie(COOKIE, secret, httponly=True, samesite="lax", secure=is_tls, path="/")
    return answer
