"""What the portal keeps: people, their sessions and tokens, and requests. SQLite for few users, PostgreSQL for many."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

Row = sa.RowMapping

SESSION_IDLE_S = 12 * 3600.0
# A session is written anew at most so often: each page would else be a write.
SESSION_TOUCH_S = 60.0
# How long somebody may take at a provider.
FLOW_S = 900.0
# Of one user; programs that make a new one at each start would else fill the table.
TOKENS_MAX = 100
# What the database takes as a whole number.
NUMBER_MAX = 2**31 - 1
OBJECTS_PER_DAY = 20_000
REQUESTS_AT_ONCE = 5
REQUESTS_SHOWN = 200

# Where a request is. The last three are ends.
GOING = ("waiting", "running", "stacking")
ENDS = ("done", "failed", "cancelled")

metadata = sa.MetaData()
users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("password", sa.String, nullable=False),
    sa.Column("role", sa.String, nullable=False, default="astronomer"),
    sa.Column("is_blocked", sa.Boolean, nullable=False, default=False),
    sa.Column("weight", sa.Integer, nullable=False, default=1),
    sa.Column("objects_per_day", sa.Integer, nullable=False, default=OBJECTS_PER_DAY),
    sa.Column("requests_at_once", sa.Integer, nullable=False, default=REQUESTS_AT_ONCE),
    sa.Column("created", sa.Float(53), nullable=False),
)
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("user", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("form_key", sa.String, nullable=False),
    sa.Column("used", sa.Float(53), nullable=False),
)
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("user", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("label", sa.String(64), nullable=False),
    sa.Column("created", sa.Float(53), nullable=False),
    sa.Column("used", sa.Float(53), nullable=True),
)
# Whom a provider of identities knows by this subject.
identities = sa.Table(
    "identities",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("issuer", sa.String, nullable=False),
    sa.Column("subject", sa.String(255), nullable=False),
    sa.Column("user", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("label", sa.String(100), nullable=False),
    sa.Column("created", sa.Float(53), nullable=False),
    sa.UniqueConstraint("issuer", "subject"),
)
# Browsers that are on their way to a provider and back, or that came back with an identity which has no account yet.
flows = sa.Table(
    "flows",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("created", sa.Float(53), nullable=False),
    sa.Column("to", sa.String, nullable=False, default=""),
    sa.Column("state", sa.String, nullable=True),
    sa.Column("nonce", sa.String, nullable=True),
    sa.Column("verifier", sa.String, nullable=True),
    # Who asked for their identity to be linked.
    sa.Column("user", sa.ForeignKey("users.id"), nullable=True),
    sa.Column("issuer", sa.String, nullable=True),
    sa.Column("subject", sa.String(255), nullable=True),
    sa.Column("label", sa.String(100), nullable=True),
)
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("user", sa.ForeignKey("users.id"), nullable=False),
    # What one press of a button has, so that a second press makes no second request.
    sa.Column("press", sa.String(64), nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("n_objects", sa.Integer, nullable=False),
    sa.Column("created", sa.Float(53), nullable=False),
    sa.Column("ended", sa.Float(53), nullable=True),
    sa.Column("is_cancel_wanted", sa.Boolean, nullable=False, default=False),
    sa.Column("share", sa.String(64), nullable=True, unique=True),
    sa.Column("problem", sa.String, nullable=True),
    sa.Column("asked", sa.JSON, nullable=False),
    sa.Column("plan", sa.JSON, nullable=True),
    sa.Column("result", sa.JSON, nullable=True),
    sa.UniqueConstraint("user", "press"),
    sa.Index("requests_by_user", "user", "created"),
)


# `Ada` is no other name than `ada`.
users_by_name = sa.Index("users_by_name", sa.func.lower(users.c.name), unique=True)


# The request that has the result of work with this digest.
results = sa.Table(
    "results",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("request", sa.ForeignKey("requests.id"), nullable=False),
)


def _is_named(name: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(users.c.name) == name.lower()


def digest_of(secret: str) -> str:
    """What stands in the database in place of a secret of 256 random bits, which needs no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def connect(url: str) -> sa.Engine:
    """The database of a URL of SQLAlchemy, such as `sqlite:///portal.db` or `postgresql+psycopg://…`. A new file is its user's alone.

    Raises
    ------
    sqlalchemy.exc.SQLAlchemyError : it is no such URL, or nobody answers there.
    """
    engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    if url.startswith("sqlite"):
        file = engine.url.database
        if file and file != ":memory:":
            # What SQLite writes beside the file gets the same mode.
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))

        @sa.event.listens_for(engine, "connect")
        def _set(connection: Any, _: object) -> None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA busy_timeout=10000")

    metadata.create_all(engine)
    return engine


class TooMuch(Exception):
    """A limit of the user's; its text is one sentence for them."""


class Blocked(Exception):
    """The user was blocked since they were looked up."""


class LastAdministrator(Exception):
    """A change after which nobody could administer the portal."""


class Store:
    """All reads and writes of people and requests."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with self.engine.begin() as connection:
            yield connection

    def _one(self, asked: sa.Select[Any]) -> Row | None:
        with self.engine.connect() as connection:
            return connection.execute(asked).mappings().first()

    def _all(self, asked: sa.Select[Any]) -> Sequence[Row]:
        with self.engine.connect() as connection:
            return connection.execute(asked).mappings().all()

    # ------------------------------------------------------------ people

    def add_user(self, name: str, password: str, role: str = "astronomer") -> bool:
        """Whether the name was free, in whatever capitals. `password` is its hash; an empty text: they sign in by a provider alone."""
        values = {"name": name, "password": password, "role": role, "created": time.time()}
        try:
            with self._write() as connection:
                connection.execute(sa.insert(users).values(**values))
        except sa.exc.IntegrityError:
            return False
        return True

    def user(self, name: str) -> Row | None:
        return self._one(sa.select(users).where(_is_named(name)))

    def user_by_id(self, number: int) -> Row | None:
        return self._one(sa.select(users).where(users.c.id == number))

    def all_users(self) -> list[dict[str, Any]]:
        """Each with the numbers of their requests and objects."""
        asked = (
            sa.select(users, sa.func.count(requests.c.id).label("n_requests"))
            .add_columns(sa.func.coalesce(sa.func.sum(requests.c.n_objects), 0).label("n_objects"))
            .outerjoin(requests, requests.c.user == users.c.id)
            .group_by(users.c.id)
            .order_by(users.c.name)
        )
        return [{key: row[key] for key in row if key != "password"} for row in self._all(asked)]

    def set_user(self, name: str, **values: Any) -> bool:
        """Change a user; `False`: there is none of that name.

        Raises
        ------
        LastAdministrator : nobody would be left who may change users.
        """
        is_admin = (users.c.role == "admin") & sa.not_(users.c.is_blocked)
        with self._write() as connection:
            # A lock on them: two administrators do not block each other at the same time.
            connection.execute(sa.update(users).where(is_admin).values(role=users.c.role))
            had_one = connection.execute(sa.select(users.c.id).where(is_admin)).first() is not None
            changed = sa.update(users).where(_is_named(name)).values(**values)
            if not connection.execute(changed).rowcount:
                return False
            if had_one and connection.execute(sa.select(users.c.id).where(is_admin)).first() is None:
                raise LastAdministrator
            return True

    # ------------------------------------------------------------ sessions and tokens

    def open_session(self, user: int) -> str:
        """A new session; gives the secret that goes into the cookie."""
        secret = secrets.token_urlsafe(32)
        values = {"digest": digest_of(secret), "user": user, "form_key": secrets.token_urlsafe(24)}
        with self._write() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.used < time.time() - SESSION_IDLE_S))
            connection.execute(sa.insert(sessions).values(used=time.time(), **values))
        return secret

    def session(self, secret: str) -> tuple[Row, str] | None:
        """The user of a session that has not expired, and what its forms carry."""
        digest = digest_of(secret)
        asked = sa.select(users, sessions.c.form_key, sessions.c.used.label("session_used"))
        asked = asked.join(sessions, sessions.c.user == users.c.id).where(sessions.c.digest == digest)
        row, now = self._one(asked), time.time()
        if row is None or row["is_blocked"] or row["session_used"] < now - SESSION_IDLE_S:
            return None
        if row["session_used"] < now - SESSION_TOUCH_S:
            with self._write() as connection:
                connection.execute(sa.update(sessions).where(sessions.c.digest == digest).values(used=now))
        return row, row["form_key"]

    def close_session(self, secret: str) -> None:
        with self._write() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.digest == digest_of(secret)))

    def close_sessions(self, user: int) -> None:
        with self._write() as connection:
            connection.execute(sa.delete(sessions).where(sessions.c.user == user))

    def add_token(self, user: int, label: str) -> str:
        """A new token; gives its secret.

        Raises
        ------
        TooMuch : the user has as many as they may have.
        """
        secret = "eyas_" + secrets.token_urlsafe(32)
        values = {"digest": digest_of(secret), "user": user, "label": label[:64], "created": time.time()}
        with self._write() as connection:
            # One writer at a time for each user, as in `add_request`.
            connection.execute(sa.update(users).where(users.c.id == user).values(weight=users.c.weight))
            count = sa.select(sa.func.count()).where(tokens.c.user == user)
            if connection.execute(count).scalar_one() >= TOKENS_MAX:
                raise TooMuch(f"you have {TOKENS_MAX} tokens, as many as you may have: remove one")
            connection.execute(sa.insert(tokens).values(**values))
        return secret

    def user_of_token(self, secret: str) -> Row | None:
        asked = sa.select(users).join(tokens, tokens.c.user == users.c.id)
        row = self._one(asked.where(tokens.c.digest == digest_of(secret)))
        return None if row is None or row["is_blocked"] else row

    def tokens_of(self, user: int) -> Sequence[Row]:
        return self._all(sa.select(tokens).where(tokens.c.user == user).order_by(tokens.c.created))

    def remove_token(self, user: int, number: int) -> bool:
        if number > NUMBER_MAX:
            return False
        where = (tokens.c.user == user) & (tokens.c.id == number)
        with self._write() as connection:
            return connection.execute(sa.delete(tokens).where(where)).rowcount > 0

    # ------------------------------------------------------------ identities of a provider

    def open_flow(self, **values: Any) -> str:
        """Something that a browser is about to come back with; gives the secret that goes into its cookie."""
        secret, now = secrets.token_urlsafe(32), time.time()
        with self._write() as connection:
            connection.execute(sa.delete(flows).where(flows.c.created < now - FLOW_S))
            connection.execute(sa.insert(flows).values(digest=digest_of(secret), created=now, **values))
        return secret

    def flow(self, secret: str) -> Row | None:
        """What a browser came back with, while it is young."""
        where = (flows.c.digest == digest_of(secret)) & (flows.c.created > time.time() - FLOW_S)
        return self._one(sa.select(flows).where(where))

    def end_flow(self, secret: str) -> bool:
        """Whether it was there: each is used once."""
        with self._write() as connection:
            return (
                connection.execute(sa.delete(flows).where(flows.c.digest == digest_of(secret))).rowcount > 0
            )

    def user_of_identity(self, issuer: str, subject: str) -> Row | None:
        asked = sa.select(users).join(identities, identities.c.user == users.c.id)
        return self._one(asked.where(identities.c.issuer == issuer, identities.c.subject == subject))

    def add_identity(self, user: int, issuer: str, subject: str, label: str) -> bool:
        """Whether the identity was nobody's."""
        values = {"issuer": issuer, "subject": subject, "user": user, "label": label, "created": time.time()}
        try:
            with self._write() as connection:
                connection.execute(sa.insert(identities).values(**values))
        except sa.exc.IntegrityError:
            return False
        return True

    def add_user_of_identity(self, name: str, secret: str) -> int | None:
        """A user without a password, who has the identity of this flow, which ends; None: the name is taken, or the flow was used."""
        flow = self.flow(secret)
        if flow is None or flow["subject"] is None:
            return None
        now = time.time()
        try:
            with self._write() as connection:
                gone = connection.execute(sa.delete(flows).where(flows.c.digest == flow["digest"]))
                if not gone.rowcount:
                    return None
                made = connection.execute(
                    sa.insert(users)
                    .values(name=name, password="", role="astronomer", created=now)
                    .returning(users.c.id)
                )
                number = int(made.scalar_one())
                values = {name: flow[name] for name in ("issuer", "subject", "label")}
                connection.execute(sa.insert(identities).values(user=number, created=now, **values))
        except sa.exc.IntegrityError:
            return None
        return number

    def identities_of(self, user: int) -> Sequence[Row]:
        return self._all(
            sa.select(identities).where(identities.c.user == user).order_by(identities.c.created)
        )

    def remove_identity(self, user: int, number: int) -> bool:
        """Whether the user has it, and can still sign in without it."""
        if number > NUMBER_MAX:
            return False
        has_password = sa.exists().where(users.c.id == user, users.c.password != "")
        where = (identities.c.user == user) & (identities.c.id == number) & has_password
        with self._write() as connection:
            return connection.execute(sa.delete(identities).where(where)).rowcount > 0

    # ------------------------------------------------------------ requests

    def add_request(self, user: Row, press: str, size: int, asked: list[list[Any]]) -> tuple[str, bool]:
        """A new request, or the one that this press has made already; gives its id and whether it is new.

        Raises
        ------
        TooMuch : the user has as many requests or objects as they may have.
        Blocked : an administrator has just blocked them.
        """
        number, now = secrets.token_urlsafe(9), time.time()
        try:
            with self._write() as connection:
                # One writer at a time for each user, so that two requests cannot both be the last that is allowed.
                connection.execute(sa.update(users).where(users.c.id == user["id"]).values(name=user["name"]))
                # Who blocks a user ends the requests that are there. One that came later would go on.
                is_blocked = sa.select(users.c.is_blocked).where(users.c.id == user["id"])
                if connection.execute(is_blocked).scalar():
                    raise Blocked
                known = connection.execute(
                    sa.select(requests.c.id).where(requests.c.user == user["id"], requests.c.press == press)
                ).scalar()
                if known is not None:
                    return known, False
                own = requests.c.user == user["id"]
                n_going = connection.execute(
                    sa.select(sa.func.count()).where(own, requests.c.state.in_(GOING))
                ).scalar_one()
                if n_going >= user["requests_at_once"]:
                    raise TooMuch(
                        f"you have {n_going} requests that go on, as many as you may have: wait for one, or cancel it"
                    )
                n_today = connection.execute(
                    sa.select(sa.func.coalesce(sa.func.sum(requests.c.n_objects), 0)).where(
                        own, requests.c.created > now - 86_400
                    )
                ).scalar_one()
                if n_today + len(asked) > user["objects_per_day"]:
                    raise TooMuch(
                        f"you asked for {n_today:,} objects within a day, and may ask for {user['objects_per_day']:,}: "
                        f"{len(asked):,} more are too many"
                    )
                values = {"id": number, "user": user["id"], "press": press, "state": "waiting", "size": size}
                values |= {"n_objects": len(asked), "created": now, "asked": asked}
                connection.execute(sa.insert(requests).values(**values))
        except sa.exc.IntegrityError:
            known_row = self._one(
                sa.select(requests.c.id).where(requests.c.user == user["id"], requests.c.press == press)
            )
            if known_row is None:
                raise
            return str(known_row["id"]), False
        return number, True

    def request(self, number: str) -> Row | None:
        asked = sa.select(requests, users.c.name.label("user_name"))
        return self._one(asked.join(users, users.c.id == requests.c.user).where(requests.c.id == number))

    def request_by_share(self, share: str) -> Row | None:
        return self._one(sa.select(requests).where(requests.c.share == share))

    def requests_of(
        self, user: int | None, limit: int = REQUESTS_SHOWN, before: float | None = None
    ) -> Sequence[Row]:
        """The newest requests of a user, or of all, without their lists; `before` that time."""
        columns = [column for column in requests.c if column.name not in ("asked", "plan")]
        asked = sa.select(*columns, users.c.name.label("user_name"))
        asked = (
            asked.join(users, users.c.id == requests.c.user).order_by(requests.c.created.desc()).limit(limit)
        )
        if before is not None:
            asked = asked.where(requests.c.created < before)
        return self._all(asked if user is None else asked.where(requests.c.user == user))

    def going(self, user: int | None = None) -> list[str]:
        """The requests that have not ended, of a user or of all, the oldest first."""
        asked = sa.select(requests.c.id).where(requests.c.state.in_(GOING)).order_by(requests.c.created)
        if user is not None:
            asked = asked.where(requests.c.user == user)
        return [row["id"] for row in self._all(asked)]

    def set_request(self, number: str, **values: Any) -> bool:
        """Change a request that goes on; `False`: it has ended."""
        where = (requests.c.id == number) & requests.c.state.in_(GOING)
        with self._write() as connection:
            return connection.execute(sa.update(requests).where(where).values(**values)).rowcount > 0

    def result_of(self, digest: str) -> Row | None:
        """The request that has done work with this digest, and had all of it."""
        asked = sa.select(requests).join(results, results.c.request == requests.c.id)
        return self._one(asked.where(results.c.digest == digest, requests.c.state == "done"))

    def add_result(self, digest: str, number: str) -> None:
        with self._write() as connection:
            connection.execute(sa.delete(results).where(results.c.digest == digest))
            connection.execute(sa.insert(results).values(digest=digest, request=number))

    def share(self, number: str, is_shared: bool) -> None:
        value = secrets.token_urlsafe(24) if is_shared else None
        where = requests.c.id == number
        if is_shared:
            where &= requests.c.share.is_(None)
        with self._write() as connection:
            connection.execute(sa.update(requests).where(where).values(share=value))
