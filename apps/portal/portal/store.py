"""What the portal keeps: people, their sessions and tokens, and requests. SQLite for few users, PostgreSQL for many."""

from __future__ import annotations

import hashlib
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
OBJECTS_PER_DAY = 20_000
REQUESTS_AT_ONCE = 5

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


def digest_of(secret: str) -> str:
    """What stands in the database in place of a secret of 256 random bits, which needs no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def connect(url: str) -> sa.Engine:
    """The database of a URL of SQLAlchemy, such as `sqlite:///portal.db` or `postgresql+psycopg://…`."""
    engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    if url.startswith("sqlite"):

        @sa.event.listens_for(engine, "connect")
        def _set(connection: Any, _: object) -> None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA busy_timeout=10000")

    metadata.create_all(engine)
    return engine


class TooMuch(Exception):
    """A limit of the user's; its text is one sentence for them."""


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
        """Whether the name was free. `password` is its hash."""
        values = {"name": name, "password": password, "role": role, "created": time.time()}
        try:
            with self._write() as connection:
                connection.execute(sa.insert(users).values(**values))
        except sa.exc.IntegrityError:
            return False
        return True

    def user(self, name: str) -> Row | None:
        return self._one(sa.select(users).where(users.c.name == name))

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
        with self._write() as connection:
            return (
                connection.execute(sa.update(users).where(users.c.name == name).values(**values)).rowcount > 0
            )

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
        secret = "eyas_" + secrets.token_urlsafe(32)
        values = {"digest": digest_of(secret), "user": user, "label": label[:64], "created": time.time()}
        with self._write() as connection:
            connection.execute(sa.insert(tokens).values(**values))
        return secret

    def user_of_token(self, secret: str) -> Row | None:
        asked = sa.select(users).join(tokens, tokens.c.user == users.c.id)
        row = self._one(asked.where(tokens.c.digest == digest_of(secret)))
        return None if row is None or row["is_blocked"] else row

    def tokens_of(self, user: int) -> Sequence[Row]:
        return self._all(sa.select(tokens).where(tokens.c.user == user).order_by(tokens.c.created))

    def remove_token(self, user: int, number: int) -> bool:
        where = (tokens.c.user == user) & (tokens.c.id == number)
        with self._write() as connection:
            return connection.execute(sa.delete(tokens).where(where)).rowcount > 0

    # ------------------------------------------------------------ requests

    def add_request(self, user: Row, press: str, size: int, asked: list[list[Any]]) -> tuple[str, bool]:
        """A new request, or the one that this press has made already; gives its id and whether it is new.

        Raises
        ------
        TooMuch : the user has as many requests or objects as they may have.
        """
        number, now = secrets.token_urlsafe(9), time.time()
        try:
            with self._write() as connection:
                # One writer at a time for each user, so that two requests cannot both be the last that is allowed.
                connection.execute(sa.update(users).where(users.c.id == user["id"]).values(name=user["name"]))
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

    def requests_of(self, user: int | None, limit: int = 200) -> Sequence[Row]:
        """The newest requests of a user, or of all, without their lists."""
        columns = [column for column in requests.c if column.name not in ("asked", "plan")]
        asked = sa.select(*columns, users.c.name.label("user_name"))
        asked = (
            asked.join(users, users.c.id == requests.c.user).order_by(requests.c.created.desc()).limit(limit)
        )
        return self._all(asked if user is None else asked.where(requests.c.user == user))

    def going(self) -> list[str]:
        asked = sa.select(requests.c.id).where(requests.c.state.in_(GOING)).order_by(requests.c.created)
        return [row["id"] for row in self._all(asked)]

    def set_request(self, number: str, **values: Any) -> bool:
        """Change a request that goes on; `False`: it has ended."""
        where = (requests.c.id == number) & requests.c.state.in_(GOING)
        with self._write() as connection:
            return connection.execute(sa.update(requests).where(where).values(**values)).rowcount > 0

    def share(self, number: str, is_shared: bool) -> None:
        value = secrets.token_urlsafe(24) if is_shared else None
        where = requests.c.id == number
        if is_shared:
            where &= requests.c.share.is_(None)
        with self._write() as connection:
            connection.execute(sa.update(requests).where(where).values(share=value))
