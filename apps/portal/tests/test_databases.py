"""What the portal keeps, and its index, in PostgreSQL as in SQLite."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from harness import need_path, wait_until
from portal import alone, store
from portal.index import Index
from portal.regions import Region
from portals import APP, Server, started
from test_index import exposures_around


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The URL of an empty database of a server of this test's own."""
    programs = need_path("/usr/lib/postgresql/15/bin/initdb", "postgresql").parent
    # It does not run as root, and its sockets need a short path.
    who = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        if who:
            import shutil

            shutil.chown(folder, **who)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        data = f"{folder}/data"
        options: dict[str, object] = {
            "cwd": folder,
            "check": True,
            "timeout": 120,
            "capture_output": True,
            **who,
        }
        subprocess.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "portal"], **options)  # type: ignore[call-overload]
        settings = f"-p {port} -h 127.0.0.1 -k {folder} -F"
        control = [programs / "pg_ctl", "-D", data, "-w", "-l", f"{folder}/log"]
        subprocess.run([*control, "-o", settings, "start"], **{**options, "capture_output": False})  # type: ignore[call-overload]
        try:
            yield f"postgresql+psycopg://portal@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **options)  # type: ignore[call-overload]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/p.db"
    found: str = request.getfixturevalue("postgres")
    return found


def test_the_same_in_both(url: str, survey: Path) -> None:
    import serve

    engine = store.connect(url)
    kept, index = store.Store(engine), Index(engine)
    assert index.fill(serve.rows_of(survey)) == 60
    assert index.count() == dict.fromkeys("ugriz", 12)
    lines = [line.split(",") for line in (survey / "targets.csv").read_text().splitlines()[1:]]
    ra, dec = np.array([(float(line[1]), float(line[2])) for line in lines]).T
    with_sqlite = Index(store.connect("sqlite://"))
    with_sqlite.fill(serve.rows_of(survey))
    found = index.covering("g", ra, dec, 41)
    assert sum(map(len, found)) >= 40
    addresses = [sorted(address for _, address in one) for one in found]
    assert addresses == [
        sorted(address for _, address in one) for one in with_sqlite.covering("g", ra, dec, 41)
    ]
    at = next(number for number, one in enumerate(addresses) if one)
    near = index.near(Region(float(ra[at]), float(dec[at]), 0.05), ["g", "r"], 100)
    assert {one.band for one in near} == {"g", "r"} and set(addresses[at]) <= {one.address for one in near}

    assert kept.add_user("ada", "x") and not kept.add_user("ada", "y")
    kept.set_user("ada", requests_at_once=3)
    ada = kept.user("ada")
    assert ada is not None

    def ask(number: int) -> str:
        try:
            return kept.add_request(ada, f"press {number % 6}", 41, [[1, 1.0, 1.0, "r"]])[0]
        except store.TooMuch:
            return "too much"

    with ThreadPoolExecutor(6) as threads:
        said = list(threads.map(ask, range(24)))
    assert len(set(said) - {"too much"}) == 3, "each press once, and three at once"
    number = kept.going()[0]
    assert kept.set_request(number, state="done", result={"n_found": 1})
    row = kept.request(number)
    assert row is not None and row["result"] == {"n_found": 1} and row["user_name"] == "ada"
    kept.share(number, True)
    shared = kept.request(number)
    assert shared is not None and kept.request_by_share(shared["share"]) is not None
    secret, token = kept.open_session(ada["id"]), kept.add_token(ada["id"], "t")
    assert kept.session(secret) is not None and kept.user_of_token(token) is not None
    assert kept.all_users()[0]["n_requests"] == 3 and "password" not in kept.all_users()[0]
    engine.dispose()


def test_addresses_and_queries_of_a_list(url: str) -> None:
    engine = store.connect(url)
    index = Index(engine)
    index.clear()
    rows = exposures_around([(10.0, 20.0)], 1200, seed=2)
    assert index.fill(rows) == 1200 and not index.has_urls()
    signed = {
        "address": "https://h/100%_x?hidden=01",
        **{key: rows[0][key] for key in rows[0] if key not in ("address", "cell")},
    }
    index.set_queries({signed["address"]: "a=1&b=%25", "https://h/other": "c"})
    index.fill([signed])
    assert index.has_urls() and index.addresses()[signed["address"]] == rows[0]["band"]
    assert index.queries_of([signed["address"], "e1"]) == {signed["address"]: "a=1&b=%25"}
    # Once more, as by an indexing that was stopped between the two.
    index.set_queries({signed["address"]: "d"})
    assert index.queries_of([signed["address"]]) == {signed["address"]: "d"}
    index.remove([f"e{number}" for number in range(1100)] + [signed["address"]])
    assert sorted(index.addresses()) == sorted(f"e{number}" for number in range(1100, 1200))
    assert index.queries_of([signed["address"]]) == {} and not index.has_urls()
    index.clear()
    assert index.addresses() == {} and index.queries_of(["https://h/other"]) == {}
    engine.dispose()


def test_an_identity_is_taken_once(url: str) -> None:
    kept = store.Store(store.connect(url))
    kept.add_user("ida", "x")
    ida = kept.user("ida")
    assert ida is not None
    flows = [kept.open_flow(issuer="i", subject="s", label="l") for _ in range(2)]
    assert kept.add_user_of_identity("Ida", flows[0]) is None, "the name is taken, and the flow goes on"
    made = kept.add_user_of_identity("bo", flows[0])
    assert made is not None and kept.add_user_of_identity("bo2", flows[0]) is None
    assert kept.add_user_of_identity("cy", flows[1]) is None, "the identity has an account"
    assert kept.user("cy") is None
    assert not kept.add_identity(ida["id"], "i", "s", "l") and kept.add_identity(ida["id"], "i", "s2", "l")
    found = kept.user_of_identity("i", "s")
    assert found is not None and found["id"] == made and kept.user_of_identity("j", "s") is None
    number = kept.identities_of(made)[0]["id"]
    assert not kept.remove_identity(ida["id"], number) and not kept.remove_identity(made, number)
    assert kept.remove_identity(ida["id"], kept.identities_of(ida["id"])[0]["id"])
    assert kept.flow(secrets.token_urlsafe(32)) is None


def test_one_administrator_is_always_left(url: str) -> None:
    """Also where two administrators block each other at the same moment."""
    kept = store.Store(store.connect(url))
    for name in ("root1", "root2"):
        assert kept.add_user(name, "x", role="admin")

    def block(name: str) -> bool:
        try:
            return kept.set_user(name, is_blocked=True)
        except store.LastAdministrator:
            return False

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(block, ("root1", "ROOT2"))) == [False, True]
    left = [user["name"] for user in kept.all_users() if user["role"] == "admin" and not user["is_blocked"]]
    assert len(left) == 1
    with pytest.raises(store.LastAdministrator):
        kept.set_user(left[0], role="astronomer")
    assert not kept.set_user("nobody", is_blocked=True)


def test_work_that_was_done_is_found_by_its_digest(url: str) -> None:
    kept = store.Store(store.connect(url))
    kept.add_user("dig", "x")
    user = kept.user("dig")
    assert user is not None
    first, other = (kept.add_request(user, press, 41, [[1, 1.0, 1.0, "r"]])[0] for press in ("a", "b"))
    kept.add_result("digest", first)
    assert kept.result_of("digest") is None, "it goes on"
    kept.set_request(first, state="done")
    found = kept.result_of("digest")
    assert found is not None and found["id"] == first and kept.result_of("other") is None
    kept.set_request(other, state="done")
    kept.add_result("digest", other)
    found = kept.result_of("digest")
    assert found is not None and found["id"] == other


def refused(folder: Path, survey: Path, url: str) -> str:
    """What a second portal says that is given the same database and a folder of its own."""
    command: list[str | Path] = [sys.executable, APP / "serve.py", "--dir", folder, "--survey", survey]
    command += ["--nodes", "0..1", "--reindex", "--db", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 2 and not done.stdout, done
    assert not (folder / "requests").exists() and not (folder / "cluster").exists()
    return done.stderr


def has_portal(what: str, first: Server) -> str:
    process = f"process {first.process.pid}, {first.url}"
    return f"error: {what} has a portal already, {process}: use that one, end it, or name another database with --db\n"


def test_a_file_of_sqlite_has_one_portal(tmp_path: Path, survey: Path) -> None:
    """By whatever name, until its process has ended, in whatever way. Two would carry out each request twice."""
    file = tmp_path / "first" / "portal.db"
    (tmp_path / "link.db").symlink_to(file)
    with started(tmp_path / "first", survey, "--nodes", "0..1") as first:
        for name in (file, tmp_path / "link.db"):
            said = refused(tmp_path / "second", survey, f"sqlite:///{name}")
            assert said == has_portal(f"the database {file}", first)
        assert sum(Index(store.connect(f"sqlite:///{file}")).count().values()) == 60
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        first.process.returncode = 0
    assert alone.own_database(store.connect(f"sqlite:///{file}")) is not None
    assert alone.own_database(store.connect("sqlite://")) is None


def test_a_database_of_postgresql_has_one_portal(postgres: str, tmp_path: Path, survey: Path) -> None:
    """A server that was started anew has no locks: the portal takes its own again, or ends where another one was quicker."""
    with sa.create_engine(postgres, isolation_level="AUTOCOMMIT").connect() as control:
        control.execute(sa.text("CREATE DATABASE sky"))
        url = postgres.rpartition("/")[0] + "/sky"

        def owners() -> list[tuple[int, str]]:
            rows = control.execute(
                sa.text(
                    "SELECT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
                    "WHERE locktype = 'advisory' AND granted"
                )
            )
            return [(pid, name) for pid, name in rows]

        with started(tmp_path / "first", survey, "--nodes", "0..1", "--db", url) as first:
            assert refused(tmp_path / "second", survey, url) == has_portal("the database", first)
            # Another database of the server is another one.
            free = alone.own_database(store.connect(postgres))
            assert isinstance(free, alone.PostgresLock)
            free._connection.close()
            (before,) = owners()
            control.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": before[0]})
            wait_until(lambda: owners() and owners() != [before], "the portal to have its lock again")
            (again,) = owners()
            assert again[0] != before[0] and again[1] == before[1] and first.url in again[1]
            assert refused(tmp_path / "second", survey, url) == has_portal("the database", first)
            # Another one waits for the lock, so it has it at once.
            with sa.create_engine(url).connect() as rival:
                table = rival.execute(sa.text("SELECT CAST('requests' AS regclass)::int4")).scalar_one()
                keys = {"class": alone.LOCK_CLASS, "table": table}
                rival.execute(sa.text("SELECT set_config('application_name', '7 elsewhere http://h', false)"))
                taking = threading.Thread(
                    target=rival.execute, args=(sa.text("SELECT pg_advisory_lock(:class, :table)"), keys)
                )
                taking.start()
                waiting = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
                wait_until(lambda: control.execute(waiting).scalar_one() == 1, "the other one to wait")
                control.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": again[0]})
                taking.join()
                assert first.process.wait(60) == 1
                assert "error: the database has a portal already, process 7 of elsewhere, http://h: " in (
                    first.printed
                )
            first.process.returncode = 0


@pytest.mark.parametrize(
    ("reason", "stderr", "kind", "said"),
    [
        ("cannot read `/s/m13/r/e1.fits`: there is no such file", "", "missing", "no such file"),
        (
            "cannot read `/s/m13/r/e1.fits`: Permission denied (os error 13)",
            "",
            "unreadable",
            "Permission denied",
        ),
        (
            "the program ended with status 1",
            "error: e1.fits is damaged: CRC\n",
            "corrupt",
            "e1.fits is damaged: CRC",
        ),
        ("cannot read `/s/m13/r/e1.fits`: it is a directory", "", "unreadable", "it is a directory"),
        ("cannot read `/s/m13/r/e1.fits`: it is not a regular file", "", "unreadable", "regular file"),
        ("cannot read `/s/m13/r/e1.fits`: its symbolic links form a circle", "", "unreadable", "a circle"),
        ("cannot read `/s/m13/r/e1.fits`: a parent of it is not a directory", "", "missing", "a parent"),
        ("home storage did not answer for 30 s", "", "away", "did not answer"),
        ("the program was ended by signal 9", "Traceback ...", "away", "signal 9"),
    ],
)
def test_why_an_exposure_gave_nothing(reason: str, stderr: str, kind: str, said: str) -> None:
    from portal.work import kind_of_failure

    found = kind_of_failure(reason, stderr)
    assert found[0] == kind and said in found[1]
