"""What pages and the API share: who asks, what they may see, and what a new request needs."""

from __future__ import annotations

import ipaddress
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request

from . import accounts
from .index import Index
from .lists import Asked, ListError, Problem, read_list
from .oidc import Provider
from .store import Blocked, LastAdministrator, Row, Store, TooMuch
from .surveys import Survey
from .work import BLOCKED, FILES, Work

COOKIE = "portal_session"
OBJECTS_MAX = 10_000
BODY_BYTES_MAX = 8_000_000
CUTOUTS_AT_ONCE = 8
# Pages of one user that show progress, and programs that wait: each looks for news again and again.
WATCHED_MAX = 30
# What stands in addresses of pages and in the database, such as the number of a request.
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Limits:
    """How often somebody may do what costs something or guesses a secret."""

    sign_in_by_address: accounts.Limit = field(default_factory=lambda: accounts.Limit(30, 300))
    sign_in_by_name: accounts.Limit = field(default_factory=lambda: accounts.Limit(10, 300))
    sign_up: accounts.Limit = field(default_factory=lambda: accounts.Limit(20, 3600))
    requests: accounts.Limit = field(default_factory=lambda: accounts.Limit(60, 60))
    providers: accounts.Limit = field(default_factory=lambda: accounts.Limit(300, 300))
    cutouts: accounts.Limit = field(default_factory=lambda: accounts.Limit(120, 60))


@dataclass
class Portal:
    """One portal: what its routes need."""

    store: Store
    index: Index
    work: Work
    survey: Survey
    is_tls: bool = False
    may_sign_up: bool = True
    limits: Limits = field(default_factory=Limits)
    # Where people sign in besides.
    provider: Provider | None = None
    hashing: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(4))
    cutting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(CUTOUTS_AT_ONCE))
    # How many answers each user waits for that come when there is news.
    watching: Counter[int] = field(default_factory=Counter)
    # Whether the server is about to end: what waits for something then waits no longer.
    is_ending: Callable[[], bool] = lambda: False

    @staticmethod
    def count(limit: accounts.Limit, key: str, what: str) -> None:
        """Count one event.

        Raises
        ------
        HTTPException : 429 where there are too many.
        """
        wait_s = limit.wait_s(key)
        if wait_s:
            raise HTTPException(
                429, f"too many {what}: wait {wait_s:.0f} s", {"Retry-After": f"{wait_s:.0f}"}
            )

    # ------------------------------------------------------------ signing in

    def sign_in(self, address: str, name: str, password: str) -> Row:
        """The user of a name and password.

        Raises
        ------
        HTTPException : 429 after too many tries, 403 where they do not belong together.
        """
        wait_s = max(
            self.limits.sign_in_by_address.wait_s(address),
            self.limits.sign_in_by_name.wait_s(name.lower()),
        )
        if wait_s:
            raise HTTPException(429, f"too many tries: wait {wait_s:.0f} s", {"Retry-After": f"{wait_s:.0f}"})
        # A name that nobody can have is not looked up.
        user = None if accounts.trouble_of_name(name) else self.store.user(name)
        # Each hash takes 64 MiB.
        with self.hashing:
            is_right = accounts.is_password(None if user is None else user["password"], password)
        if user is None or not is_right or user["is_blocked"]:
            raise HTTPException(403, "this name and password do not belong together")
        # Many may sign in from one address; what counts are wrong tries.
        self.limits.sign_in_by_name.forget(name.lower())
        self.limits.sign_in_by_address.give_back(address)
        return user

    def sign_up(self, address: str, name: str, password: str) -> str | None:
        """Make an account; gives what is wrong, or None."""
        if not self.may_sign_up:
            return "this portal makes no accounts by itself: ask its administrator"
        trouble = accounts.trouble_of_name(name) or accounts.trouble_of_password(password, name)
        if trouble:
            return trouble
        self.count(self.limits.sign_up, address, "new accounts")
        with self.hashing:
            hashed = accounts.hash_of(password)
        return None if self.store.add_user(name, hashed) else f"the name {name} is taken"

    # ------------------------------------------------------------ requests

    def may_see(self, user: Row, number: str) -> Row:
        """A request that the user may see; for another's there is the same answer as for one that is not there."""
        row = self.store.request(number) if _WORD.fullmatch(number) else None
        if row is None or (row["user"] != user["id"] and user["role"] != "admin"):
            raise HTTPException(404, "there is no such request")
        return row

    def ask(self, user: Row, press: str, size: int, asked: list[Asked]) -> str:
        """Begin a request; gives its id.

        Raises
        ------
        HTTPException : 422 for a wrong size and for a press that has made another request, 429 where the user's limits are reached.
        """
        sizes = self.work.sizes
        if size not in sizes:
            raise HTTPException(
                422, f"the side of a cutout is {size}, and not one of {', '.join(map(str, sizes))}"
            )
        self.count(self.limits.requests, str(user["id"]), "requests")
        listed = [[one.line, one.ra, one.dec, one.band] for one in asked]
        try:
            number, is_new = self.store.add_request(user, press, size, listed)
        except TooMuch as error:
            raise HTTPException(429, str(error)) from None
        except Blocked:
            raise HTTPException(403, "this account is blocked") from None
        if is_new:
            self.work.start(number)
        else:
            known = self.store.request(number)
            if known is None or (known["size"], known["asked"]) != (size, listed):
                raise HTTPException(
                    422, "this Idempotency-Key has made another request: send a new key with other objects"
                )
        return number

    def may_share(self, secret: str) -> Row:
        """The request that was shared with everybody who has this secret."""
        row = self.store.request_by_share(secret) if _WORD.fullmatch(secret) else None
        if row is None:
            raise HTTPException(404, "there is no such page")
        return row

    def add_token(self, user: Row, label: str) -> str:
        try:
            return self.store.add_token(user["id"], label)
        except TooMuch as error:
            raise HTTPException(429, str(error)) from None

    def change(self, user: Row, values: dict[str, Any]) -> None:
        """Change what a user may do, here and in the cluster."""
        try:
            self.store.set_user(user["name"], **values)
        except LastAdministrator:
            raise HTTPException(
                422, f"{user['name']} is the last administrator: make another user one first"
            ) from None
        if values.get("is_blocked"):
            self.store.close_sessions(user["id"])
            self.work.cancel_all_of(user["id"], BLOCKED)
        # Last, because the cluster may not answer.
        if "weight" in values:
            self.work.connections.set_weight(user["name"], values["weight"])

    def new_password(self, user: Row) -> str:
        """A new password of a user who has lost theirs; their sessions end."""
        password = secrets.token_urlsafe(12)
        with self.hashing:
            self.store.set_user(user["name"], password=accounts.hash_of(password))
        self.store.close_sessions(user["id"])
        return password

    def read(self, data: bytes | str, band: str | None) -> tuple[list[Asked], list[Problem]]:
        """The objects of a list and its problems, of which one may be about the whole list (line 0). `band`: of objects without one."""
        try:
            return read_list(data, OBJECTS_MAX, band or None)
        except ListError as error:
            return [], [Problem(0, str(error))]

    @contextmanager
    def watched(self, user: int) -> Iterator[None]:
        """While something is waited for. Of the loop of events, so nobody else counts at the same time."""
        self.watching[user] += 1
        try:
            yield
        finally:
            self.watching[user] -= 1

    def may_watch(self, user: Row) -> None:
        if self.watching[user["id"]] >= WATCHED_MAX:
            raise HTTPException(
                429, f"you wait for {WATCHED_MAX} answers: close one of your pages", {"Retry-After": "10"}
            )

    def status_of(self, row: Row) -> dict[str, Any]:
        """The state of a request, while it goes on with what is known live."""
        live = self.work.live(row["id"])
        found = {
            "id": row["id"],
            "state": row["state"],
            "n_objects": row["n_objects"],
            "size": row["size"],
            "created": row["created"],
            "ended": row["ended"],
            "problem": row["problem"],
        }
        if live is not None and row["ended"] is None:
            found |= live.status
        return found

    def file(self, row: Row, name: str) -> Path:
        """A file of a request's result. Only the names of FILES are any."""
        path = self.work.folder(row["id"]) / name
        if name not in FILES or row["state"] != "done" or not path.is_file():
            raise HTTPException(404, "there is no such file")
        return path


def address_of(request: Request) -> str:
    """Whose tries are counted together: an address, or the /64 of one of IPv6."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network(f"{host}/64", strict=False))
    return host


def portal_of(request: Request) -> Portal:
    portal: Portal = request.app.state.portal
    return portal


def session_of(request: Request) -> tuple[Row, str] | None:
    secret = request.cookies.get(COOKIE)
    return portal_of(request).store.session(secret) if secret else None


def is_browsing(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of this portal asks, or a person by the address. Programs say nothing of the kind."""
    return headers.get("sec-fetch-site") in ("same-origin", "none")


def is_same_site(headers: Mapping[str, str]) -> bool:
    """Whether a form comes from a page of this portal, as far as the browser says."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or origin.partition("://")[2] == headers.get("host")
