"""One portal for each folder and each database: locks that end with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

# How long the text is that says who has a file.
TEXT_BYTES = 2000
# The class of the portal's advisory locks of PostgreSQL ("eyas"). The rest of a lock's name is the table of requests, so two schemas of
# one database may have a portal each.
LOCK_CLASS = 0x65796173
# What PostgreSQL keeps of a connection's name, and how often a portal looks whether it still has its lock.
NAME_BYTES, LOOK_S = 63, 2.0

_NAME = sa.text("SELECT set_config('application_name', :name, false)")
_TAKE = sa.text(
    "SELECT pg_try_advisory_lock(:class, CAST(CAST('requests' AS regclass) AS int4)), pg_backend_pid()"
)
_WHO = sa.text(
    "SELECT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid = CAST(:class AS oid) AND objid = CAST(CAST('requests' AS regclass) AS oid) AND objsubid = 2"
)


class NotAlone(Exception):
    """Another portal is there; its text is one sentence."""


def _sentence(what: str, text: str, instead: str) -> str:
    """`text` is what the other portal wrote: its process, machine and address."""
    number, host, url = [*text.split(), "", "", ""][:3]
    of = "" if host in ("", socket.gethostname()) else f" of {host}"
    process = f"process {number}{of}" if number else "whose process is not known"
    at = f", {url}" if url else ""
    return f"{what} has a portal already, {process}{at}: use that one, end it, or {instead}"


class FileLock:
    """A lock of the file system. The system takes it back when the process ends."""

    def __init__(self, path: Path, what: str, instead: str) -> None:
        """
        Raises
        ------
        NotAlone : another portal has it; `what` is what it has then, and `instead` what else may be done.
        OSError : the file cannot be used.
        """
        # Open until the process ends. A lock of this kind is no child's, whatever the child has open.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            text = os.pread(self._file, TEXT_BYTES, 0).decode(errors="replace")
            os.close(self._file)
            raise NotAlone(_sentence(what, text, instead)) from None
        self.note("")

    def note(self, url: str) -> None:
        """The portal's address, for whoever tries to be the next one."""
        text = f"{os.getpid()} {socket.gethostname()} {url}"
        # In one piece, over all that stood there.
        os.pwrite(self._file, text.ljust(TEXT_BYTES).encode()[:TEXT_BYTES], 0)

    def keep(self, lost: Callable[[str], None]) -> None:
        """Nothing takes it from a process that lives."""


class PostgresLock:
    """An advisory lock, which PostgreSQL takes back when its connection ends."""

    def __init__(self, url: sa.URL) -> None:
        """
        Raises
        ------
        NotAlone : another portal has it.
        sqlalchemy.exc.SQLAlchemyError : the database does not answer.
        """
        self._engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        self._own = self._name = f"{os.getpid()} {socket.gethostname()[:20]}"
        # The process of PostgreSQL that had the lock for this portal.
        self._server: int | None = None
        self._connection = self._take()

    def _take(self) -> sa.Connection:
        connection = self._engine.connect()
        try:
            connection.execute(_NAME, {"name": self._name})
            is_taken, server = connection.execute(_TAKE, {"class": LOCK_CLASS}).one()
            if not is_taken:
                holder, text = connection.execute(_WHO, {"class": LOCK_CLASS}).first() or (None, "")
                # PostgreSQL may not know yet that the connection before has ended.
                if holder is None or holder != self._server:
                    raise NotAlone(_sentence("the database", text or "", "name another database with --db"))
                raise sa.exc.InvalidRequestError("the lock is that of a connection which has ended")
        except BaseException:
            connection.close()
            raise
        self._server = server
        return connection

    def note(self, url: str) -> None:
        """The portal's address, for whoever tries to be the next one."""
        name = f"{self._own} {url}"
        # Half an address is none.
        self._name = name if len(name.encode()) <= NAME_BYTES else self._own
        self._connection.execute(_NAME, {"name": self._name})

    def keep(self, lost: Callable[[str], None]) -> None:
        """Take the lock again whenever the connection has ended, as where PostgreSQL was started anew. Where another portal was quicker,
        `lost` is called with a sentence, once.
        """

        def look() -> None:
            while True:
                time.sleep(LOOK_S)
                try:
                    self._look()
                except NotAlone as error:
                    return lost(str(error))
                except sa.exc.SQLAlchemyError:
                    # It does not answer, so nobody else has it either.
                    continue

        threading.Thread(target=look, daemon=True, name="database lock").start()

    def _look(self) -> None:
        try:
            self._connection.execute(sa.text("SELECT 1"))
        except sa.exc.SQLAlchemyError:
            self._connection.close()
            self._connection = self._take()


def own_folder(folder: Path) -> FileLock:
    """Make this process the only portal of a folder, which is made where there is none. For what is raised, see `FileLock`."""
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "portal.lock", f"the folder {folder}", "name another folder with --dir")


def own_database(engine: sa.Engine) -> FileLock | PostgresLock | None:
    """Make this process the only portal of a database, whose tables are there. None: the database is in this process's memory.

    Raises
    ------
    NotAlone : another portal has it.
    OSError : the lock's file, beside the file of SQLite, cannot be used.
    sqlalchemy.exc.SQLAlchemyError : the database does not answer.
    """
    if engine.dialect.name == "postgresql":
        return PostgresLock(engine.url)
    with engine.connect() as connection:
        # Its path as SQLite has it, whatever the URL looked like.
        file = connection.exec_driver_sql(
            "SELECT file FROM pragma_database_list WHERE name = 'main'"
        ).scalar()
    if not file:
        return None
    path = Path(file).resolve()
    return FileLock(
        path.with_name(path.name + ".lock"), f"the database {path}", "name another database with --db"
    )
