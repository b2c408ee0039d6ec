"""The pages on the way to a provider of identities and back.

A browser goes there with a state, a nonce and the digest of a verifier, which the database keeps under the digest of a cookie. What
comes back counts only together with this cookie, once, and for some minutes. An identity that is nobody's becomes a new account
under a name that its owner chooses, or it is linked with the account of whoever went there from the page *Account* with their
password.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import HTTPException, Request
from fastapi.responses import Response
from fastapi.routing import APIRouter

from . import accounts, oidc
from .api import Here
from .faces import Portal, address_of, portal_of, session_of
from .pages import Form, OwnForm, go_to, inside, page, sign_in_as
from .store import FLOW_S, Row

COOKIE = "portal_flow"

log = logging.getLogger("portal")
router = APIRouter(include_in_schema=False)


@contextmanager
def provider_of(portal: Portal) -> Iterator[oidc.Provider]:
    """The provider, while something is asked of it; its errors are said as those of the portal."""
    provider = portal.provider
    if provider is None:
        raise HTTPException(404, "this portal has no other way to sign in")
    if not provider.waiting.acquire(blocking=False):
        raise HTTPException(503, "too many people sign in at the moment: try again", {"Retry-After": "5"})
    label = provider.settings.label
    try:
        yield provider
    except oidc.Away as error:
        log.warning("%s: %s", provider.settings.issuer, error)
        sentence = (
            f"{label} does not answer as it should: try again later, or sign in with a name and a password"
        )
        raise HTTPException(503, sentence) from None
    except oidc.Refused as error:
        log.warning("%s: refused: %s", provider.settings.issuer, error)
        raise HTTPException(403, f"what {label} sent does not prove who you are: sign in again") from None
    finally:
        provider.waiting.release()


def _leave(request: Request, to: str, user: int | None) -> tuple[str, str]:
    """The provider's address, and the secret of the cookie of whoever goes there."""
    portal = portal_of(request)
    portal.count(portal.limits.providers, address_of(request), "tries")
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    with provider_of(portal) as provider:
        address = provider.address(state, nonce, verifier)
    return address, portal.store.open_flow(to=to, state=state, nonce=nonce, verifier=verifier, user=user)


def _with_cookie(request: Request, answer: Response, secret: str) -> Response:
    is_tls = portal_of(request).is_tls or request.url.scheme == "https"
    # The provider sends the browser back by a link, with which Lax cookies go.
    answer.set_cookie(
        COOKIE, secret, max_age=int(FLOW_S), httponly=True, samesite="lax", secure=is_tls, path="/oidc"
    )
    return answer


@router.get("/oidc/sign-in")
def sign_in(request: Request, to: str = "") -> Response:
    address, secret = _leave(request, inside(to), None)
    return _with_cookie(request, go_to(address), secret)


@router.post("/account/identities")
def link(request: Request, portal: Here, form: OwnForm) -> Response:
    """Begin to link an identity: by a password, because a session alone may be of a browser that was left open."""
    user, values = form
    portal.sign_in(address_of(request), user["name"], str(values.get("password", "")))
    address, secret = _leave(request, "/account", user["id"])
    assert portal.provider is not None
    # A form may lead to no other site, so the page that it leads to goes on by itself.
    answer = page(request, "leaving", address=address, label=portal.provider.settings.label)
    return _with_cookie(request, answer, secret)


@router.post("/account/identities/{number}/remove")
def unlink(portal: Here, form: OwnForm, number: int) -> Response:
    if not portal.store.remove_identity(form[0]["id"], number):
        raise HTTPException(404, "there is no such identity, or you have no password to sign in with")
    return go_to("/account")


@router.get("/oidc/callback")
def come_back(
    request: Request,
    portal: Here,
    state: str = "",
    code: str = "",
    iss: str | None = None,
    error: str | None = None,
) -> Response:
    secret = request.cookies.get(COOKIE, "")
    flow = portal.store.flow(secret)
    not_begun = HTTPException(403, "this answer is not of a sign-in that this browser began: sign in again")
    if flow is None or flow["state"] is None:
        raise not_begun
    if not secrets.compare_digest(flow["state"].encode(), state.encode()) or not portal.store.end_flow(
        secret
    ):
        raise not_begun
    if error is not None or not code:
        raise HTTPException(403, "you did not sign in: sign in again, or with a name and a password")
    with provider_of(portal) as provider:
        found = provider.identity(code, iss, flow["nonce"], flow["verifier"])
    if flow["user"] is not None:
        answer = _linked(request, portal, flow, found)
    else:
        answer = _known(request, portal, flow, found)
    return answer


def _linked(request: Request, portal: Portal, flow: Row, found: oidc.Identity) -> Response:
    session = session_of(request)
    if session is None or session[0]["id"] != flow["user"]:
        raise HTTPException(403, "you are not signed in any more as who began this: begin again")
    if not portal.store.add_identity(flow["user"], found.issuer, found.subject, found.label):
        raise HTTPException(409, "this identity belongs to an account already")
    return _without_cookie(go_to("/account"))


def _known(request: Request, portal: Portal, flow: Row, found: oidc.Identity) -> Response:
    user = portal.store.user_of_identity(found.issuer, found.subject)
    if user is not None:
        if user["is_blocked"]:
            raise HTTPException(403, "this account may not sign in: ask the administrator")
        return _without_cookie(sign_in_as(request, user["id"], flow["to"]))
    if not portal.may_sign_up:
        raise HTTPException(
            403,
            "there is no account with this identity, and this portal makes none by itself: "
            "who has an account links them on the page Account; others ask the administrator",
        )
    values = {"issuer": found.issuer, "subject": found.subject, "label": found.label}
    return _with_cookie(request, go_to("/oidc/name"), portal.store.open_flow(to=flow["to"], **values))


def _without_cookie(answer: Response) -> Response:
    answer.delete_cookie(COOKIE, path="/oidc")
    return answer


def _pending(request: Request, portal: Portal) -> Row:
    flow = portal.store.flow(request.cookies.get(COOKIE, ""))
    if flow is None or flow["subject"] is None or portal.provider is None:
        raise HTTPException(403, "this sign-in is over: sign in again")
    return flow


def _name_page(request: Request, portal: Portal, status: int = 200, **values: Any) -> Response:
    assert portal.provider is not None
    return page(request, "name", status, label=portal.provider.settings.label, **values)


@router.get("/oidc/name")
def name_page(request: Request, portal: Here) -> Response:
    """A name for a new account: what the provider calls somebody is a proposal, if nobody has it."""
    proposed = re.sub(r"[^A-Za-z0-9._-]", "", _pending(request, portal)["label"].partition("@")[0])[:32]
    if accounts.trouble_of_name(proposed) or portal.store.user(proposed) is not None:
        proposed = ""
    return _name_page(request, portal, name=proposed, trouble=None)


@router.post("/oidc/name")
def choose_name(request: Request, portal: Here, form: Form) -> Response:
    flow, name = _pending(request, portal), str(form.get("name", ""))
    trouble = accounts.trouble_of_name(name)
    if trouble is None and not portal.may_sign_up:
        trouble = "this portal makes no accounts by itself: ask its administrator"
    if trouble is None:
        portal.count(portal.limits.sign_up, address_of(request), "new accounts")
        user = portal.store.add_user_of_identity(name, request.cookies.get(COOKIE, ""))
        if user is not None:
            return _without_cookie(sign_in_as(request, user, flow["to"]))
        trouble = f"the name {name} is taken"
    return _name_page(request, portal, 422, name=name[:64], trouble=trouble)
