#!/usr/bin/env python3
"""Start the portal: a survey, a cluster that grows with demand, one user, and the page.

    serve.py --dir portal-data [--port 0] [--survey DIR|LIST] [--join JOIN.json]

A survey is a folder, or a list of exposures: paths and URLs, one on a line. Without --survey one is made, and without --join a cluster of this process is started, whose nodes come when requests do. The first
user is the administrator, whose password is written to a file that only this user may read.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STACKING = HERE.parent / "stacking"
for folder in (str(STACKING), str(HERE)):
    if folder not in sys.path:
        sys.path.insert(0, folder)

import eyas  # noqa: E402
import sqlalchemy.exc  # noqa: E402
import uvicorn  # noqa: E402
from cutout import StackingError  # noqa: E402
from portal import accounts, alone, oidc, store, surveys, web, work  # noqa: E402
from portal.faces import Limits, Portal  # noqa: E402
from portal.index import Index, row_of  # noqa: E402
from portal.lists import BANDS  # noqa: E402
from portal.work import Connections, Work  # noqa: E402

FIRST_USER = "admin"
# The table of exposures of a list that cannot be read, and how many of them are said at the start.
UNREAD, UNREAD_SHOWN = "exposures-left-out.csv", 20


def rows_of(survey: Path) -> Iterator[dict[str, Any]]:
    """The exposures of a survey's folder, which has them by field and band."""
    made = json.loads((survey / "survey.json").read_text(encoding="utf-8"))
    for field in made["fields"]:
        for band in made["bands"]:
            for path in sorted((survey / field / band).glob("*.fits*")):
                yield row_of(path, path.relative_to(survey).as_posix(), band)


def make_first_user(kept: store.Store, folder: Path) -> Path | None:
    """The administrator, where there is none yet: gives the file that has the password."""
    if kept.user(FIRST_USER) is not None:
        return None
    path = folder / "admin-password"
    password = secrets.token_urlsafe(15)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(password + "\n")
    kept.add_user(FIRST_USER, accounts.hash_of(password), role="admin")
    return path


def own_folder(folder: Path) -> alone.FileLock:
    try:
        return alone.own_folder(folder)
    except OSError as error:
        raise WrongOption(f"the folder {folder} cannot be used: {error.strerror}") from None


def open_database(
    args: argparse.Namespace, url: str
) -> tuple[store.Store, Index, alone.FileLock | alone.PostgresLock | None]:
    folder: Path = args.dir
    try:
        engine = store.connect(args.db or f"sqlite:///{folder / 'portal.db'}")
        # Before anything is written there that another portal reads.
        lock = alone.own_database(engine)
        if lock is not None:
            lock.note(url)
        return store.Store(engine), Index(engine), lock
    except OSError as error:
        raise WrongOption(f"the database cannot be used: {error.strerror}") from None
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        # The URL may have a password, and is not repeated.
        why = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise WrongOption(f"the database cannot be used: {why}") from None


def open_survey(args: argparse.Namespace, index: Index) -> surveys.Survey:
    """The survey, with all of its exposures that can be read in the index."""
    if args.reindex:
        index.clear()
    if args.survey and args.survey.is_file():
        return open_list(args, index)
    folder = find_survey(args)
    try:
        made = json.loads((folder / "survey.json").read_text(encoding="utf-8"))
        survey = surveys.Survey(index, folder, args.psf_sigma or float(made["psf_sigma_pixels"]), False)
        # The index may be of a list that was the survey before.
        first = index.some(1, BANDS)
        is_other = bool(first) and first[0].address.partition("/")[0] not in made["fields"]
        if is_other or index.has_urls():
            index.clear()
        if not index.count():
            index.fill(rows_of(folder))
    except (StackingError, OSError, ValueError, KeyError, TypeError) as error:
        raise WrongOption(f"the survey {folder} cannot be used: {error}") from None
    return survey


def open_list(args: argparse.Namespace, index: Index) -> surveys.Survey:
    psf_sigma = args.psf_sigma or surveys.PSF_SIGMA_PIXELS
    survey = surveys.Survey(index, args.survey.resolve().parent, psf_sigma, True)
    try:
        listed = surveys.read_list(args.survey)
    except surveys.WrongList as error:
        raise WrongOption(str(error)) from None
    unread = surveys.fill(survey, listed, lambda text: print(text, flush=True))
    table = args.dir / UNREAD
    surveys.write_unread(table, unread)
    # First those that were asked for: why a server does not answer is said there.
    for address, why in sorted(unread, key=lambda one: one[1].why == surveys.NOT_ASKED)[:UNREAD_SHOWN]:
        print(f"{address} cannot be read: {why}")
    if unread:
        print(
            f"Left out: {len(unread):,} of {len(listed):,} exposures, which the next start tries again; all are in {table}"
        )
    if not index.count():
        raise WrongOption(f"none of the {len(listed):,} exposures of {args.survey} can be read")
    return survey


def build(
    args: argparse.Namespace, kept: store.Store, index: Index, survey: surveys.Survey, join: Path
) -> Portal:
    folder: Path = args.dir
    connections = Connections(join, folder / "keys")
    worker = Work(kept, index, connections, survey, folder)
    if not worker.sizes:
        raise WrongOption(
            f"stars of {survey.psf_sigma} pixels leave no size of a cutout: give another --psf-sigma"
        )
    limits = Limits(sign_up=accounts.Limit(args.accounts_per_hour, 3600))
    is_tls = bool(args.certificate or args.behind_tls)
    return Portal(kept, index, worker, survey, is_tls=is_tls, may_sign_up=args.sign_up, limits=limits)


def main() -> int:
    parser = argparse.ArgumentParser(description="Start the portal.")
    parser.add_argument("--dir", type=Path, default=Path("portal-data"), help="folder for all that it keeps")
    parser.add_argument(
        "--survey",
        type=Path,
        metavar="DIR|LIST",
        help="folder of a survey as make_survey.py writes it, or a file with a path or URL of an exposure on each line "
        "[default: one is made]",
    )
    parser.add_argument(
        "--psf-sigma",
        type=float,
        metavar="PIXELS",
        help=f"width of a star in exposures [default: that of the survey, of a list {surveys.PSF_SIGMA_PIXELS}]",
    )
    parser.add_argument(
        "--reindex", action="store_true", help="read the headers of all exposures of the survey anew"
    )
    parser.add_argument(
        "--exposures", type=int, default=16, help="of each field and band of a survey that is made"
    )
    parser.add_argument(
        "--db", help="URL of the database [default: SQLite in --dir], such as postgresql+psycopg://HOST/NAME"
    )
    parser.add_argument(
        "--join", type=Path, help="join file of a cluster that is up [default: one is started]"
    )
    parser.add_argument("--nodes", default="0..4", help="nodes of a cluster that is started [default: 0..4]")
    parser.add_argument("--slots", type=int, default=2, help="tasks that a node runs at once [default: 2]")
    parser.add_argument("--cache", default="1GiB", help="cache of each node [default: 1GiB]")
    parser.add_argument(
        "--idle-release", default="5m", help="how long a node without work stays [default: 5m]"
    )
    parser.add_argument(
        "--home-wait", default="30s", help="how long files are waited for that are away [default: 30s]"
    )
    parser.add_argument(
        "--home-rate",
        metavar="BYTES",
        help="what all nodes together take of the survey's storage in a second, such as 20MB",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="[default: one that is free]")
    parser.add_argument("--certificate", help="certificate for TLS, with --key")
    parser.add_argument("--key", help="its key")
    parser.add_argument(
        "--url", help="address by which browsers reach the portal [default: the one it listens on]"
    )
    parser.add_argument(
        "--oidc", type=Path, help="a file in TOML that names a provider of identities to sign in with"
    )
    parser.add_argument("--behind-tls", action="store_true", help="a proxy in front of this speaks TLS")
    parser.add_argument(
        "--sign-up", action=argparse.BooleanOptionalAction, default=True, help="people make accounts"
    )
    parser.add_argument(
        "--accounts-per-hour", type=int, default=20, help="new ones from one address [default: 20]"
    )
    args = parser.parse_args()
    allow_descriptors()
    # What uvicorn would log of each request has addresses of shared pages in it.
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        check_certificate(args.certificate, args.key)
        return serve(args, oidc.read_settings(args.oidc))
    except (WrongOption, alone.NotAlone, oidc.WrongSettings) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except eyas.EyasError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4


def allow_descriptors() -> None:
    """As many open files as the connections of all users take that are kept, where the system permits them: programs begin with 1,024."""
    wanted = 2 * work.CONNECTIONS_KEPT * work.CONNECTION_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What is without end is a negative number here.
    if 0 <= soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


class WrongOption(Exception):
    """What was given to this program cannot be used; its text is one sentence."""


def check_certificate(certificate: str | None, key: str | None) -> None:
    if key and not certificate:
        raise WrongOption("--key is given without --certificate: give both")
    if certificate:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
        except OSError as error:
            # An error of TLS is one of these, too.
            why = error.strerror or str(error)
            raise WrongOption(
                f"the certificate {certificate} with the key {key} cannot be used: {why}"
            ) from None


def find_survey(args: argparse.Namespace) -> Path:
    """The survey's folder, whose survey is made where none is named."""
    survey: Path = args.survey or args.dir / "survey"
    if not (survey / "survey.json").exists():
        if args.survey and not args.survey.exists():
            raise WrongOption(f"there is no survey {args.survey}")
        if args.survey:
            raise WrongOption(f"{args.survey} has no survey.json, so it is no survey of make_survey.py")
        import make_survey

        print("A survey is made (once): exposures in five bands around M13 and NGC 1316 ...", flush=True)
        make_survey.make(survey, 13, args.exposures, 60, min(os.cpu_count() or 1, 8))
    return survey


def listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise WrongOption(f"{host}:{port} cannot be listened on: {error.strerror}") from None


def serve(args: argparse.Namespace, provider: oidc.Settings | None) -> int:
    args.dir = args.dir.resolve()
    if args.psf_sigma is not None and not 0.3 <= args.psf_sigma <= 10:
        raise WrongOption("--psf-sigma is a number of pixels from 0.3 to 10")
    folder_lock = own_folder(args.dir)
    taken = listen(args.host, args.port)
    scheme = "https" if args.certificate else "http"
    host = f"[{args.host}]" if ":" in args.host else args.host
    url = (args.url or f"{scheme}://{host}:{taken.getsockname()[1]}").rstrip("/")
    folder_lock.note(url)
    kept, index, database_lock = open_database(args, url)
    cluster = None
    try:
        survey = open_survey(args, index)
        if args.join is None:
            options = {"home_wait": args.home_wait, "dir": args.dir / "cluster"}
            if args.home_rate:
                options["home_rate"] = args.home_rate
            # Of nodes that stay none is released.
            if ".." in args.nodes:
                options["idle_release"] = args.idle_release
            cluster = eyas.Cluster(args.nodes, args.slots, args.cache, **options)
        portal = build(args, kept, index, survey, args.join or cluster.join)  # type: ignore[union-attr]
        password = make_first_user(portal.store, args.dir)
        if provider is not None:
            if args.url is None and args.host in ("0.0.0.0", "::"):
                raise WrongOption(
                    "--oidc needs --url with --host 0.0.0.0: the provider sends people back to that address"
                )
            portal.provider = oidc.Provider(provider, url + oidc.CALLBACK)
        if password:
            print(f"The first user is {FIRST_USER}; the password is in {password}")
        print(f"The portal is at {url}", flush=True)
        config = uvicorn.Config(
            web.make_app(portal),
            log_level="warning",
            access_log=False,
            server_header=False,
            ssl_certfile=args.certificate,
            ssl_keyfile=args.key,
            proxy_headers=args.behind_tls,
            timeout_graceful_shutdown=3,
            # Programs and proxies end connections that are idle for 5 to 60 seconds. If the server ended one at the same moment, a
            # request that was just sent would have no answer.
            timeout_keep_alive=75,
        )
        # The server ends in good order at both, and then raises the signal again.
        lost: list[str] = []
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"error: {lost[0]}" if lost else 0))

        def end(why: str) -> None:
            lost.append(why)
            os.kill(os.getpid(), signal.SIGTERM)

        if database_lock is not None:
            database_lock.keep(end)
        server = uvicorn.Server(config)
        portal.is_ending = lambda: server.should_exit
        server.run([taken])
    except KeyboardInterrupt:
        pass
    finally:
        if cluster is not None:
            cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
