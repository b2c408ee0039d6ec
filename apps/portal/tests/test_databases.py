"""What the portal keeps, and its index, in PostgreSQL as in SQLite."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from harness import need_path
from portal import store
from portal.index import Index


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
    near = index.near(float(ra[0]), float(dec[0]), 0.05, ["g", "r"], 100)
    assert {one.band for one in near} == {"g", "r"} and set(addresses[0]) <= {one.address for one in near}

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
        ("home storage did not answer for 30 s", "", "away", "did not answer"),
        ("the program was ended by signal 9", "Traceback ...", "away", "signal 9"),
    ],
)
def test_why_an_exposure_gave_nothing(reason: str, stderr: str, kind: str, said: str) -> None:
    from portal.work import kind_of_failure

    found = kind_of_failure(reason, stderr)
    assert found[0] == kind and said in found[1]
