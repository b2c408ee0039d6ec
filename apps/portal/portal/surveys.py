"""Where exposures of the survey lie: in a folder, or at the paths and URLs of a list, which are those of an administrator.

An exposure has an address, which pages, logs and tasks show. It is its path below the folder, or its line of the list. In the address of
a URL with a query, such as a signed one, `?hidden=` and a digest stand in place of the query, which is in the index alone.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa
from cutout import StackingError
from eyas.fsspec import EyasFileSystem

from .index import REACH_DEG_MAX, Index, reach_deg, row_of, row_of_header, too_wide
from .lists import BANDS
from .webfiles import AT_ONCE, Unread, Web, without_queries

# How wide a star of frames of SDSS is: 1.3" of seeing, of 0.396" a pixel.
PSF_SIGMA_PIXELS = 1.4
# What an index of PostgreSQL takes.
ADDRESS_BYTES_MAX = 2000
SIDE_PIXELS_MAX = 1_000_000
# Rows that an indexing that is stopped loses at most, and how often it says how far it is.
ROWS_AT_ONCE, SAY_S = 200, 10.0
# After so many exposures in a row for which a server did not answer, it is asked for no more of them.
SILENT_AFTER = 20
NOT_ASKED = f"it was not asked for, as its server did not answer for {SILENT_AFTER} exposures before it"
# What is waited for until equal work counts as unknown.
VERSIONS_S_MAX = 60.0
HIDDEN = "?hidden="
ADDRESS_COLUMNS = ("url", "address", "path", "access_url", "location")
BAND_COLUMNS = ("band", "filter")
# Names in a sandbox that the tasks give to what they write.
_OWN_NAMES = ("cut.fits", "crop.fits")


class WrongList(Exception):
    """A list of exposures that cannot be used; its text is one sentence."""


@dataclass(frozen=True)
class Listed:
    """An exposure of a list. `band`: None where its header says it."""

    address: str
    query: str
    band: str | None


def is_url(address: str) -> bool:
    return address[:8].lower().startswith(("http://", "https://"))


def name_of(address: str) -> str:
    """What an exposure is called in the sandbox of a task."""
    if not is_url(address):
        name = Path(address).name
    else:
        name = PurePosixPath(unquote(urlsplit(address).path)).name
        name = re.sub(r"[^A-Za-z0-9._+-]", "_", name)[:100].strip(".") or "exposure"
    return f"exposure-{name}" if name in _OWN_NAMES or name.startswith("-") else name


def read_line(text: str, band: str | None) -> Listed:
    """An exposure of a list.

    Raises
    ------
    ValueError : it is no path and no URL of the web; the text is a sentence without a secret.
    """
    if band is not None and band not in BANDS:
        # What stands behind a URL may be a part of it, and is not repeated.
        raise ValueError(f"the word behind the path or URL is none of the bands {', '.join(BANDS)}")
    if len(text.encode()) > ADDRESS_BYTES_MAX:
        raise ValueError(f"it has more than {ADDRESS_BYTES_MAX:,} bytes")
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    if scheme is None:
        if not text.isprintable():
            raise ValueError("the path has a character that cannot be shown")
        return Listed(text, "", band)
    if not is_url(text):
        raise ValueError(f"exposures at {scheme[1]}:// are not read: give http, https or a path")
    if not text.isprintable() or " " in text:
        raise ValueError("the URL has a space, or a character that cannot be shown")
    try:
        parts = urlsplit(text)
        is_right = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_right = False
    if not is_right:
        raise ValueError("the URL has no host, or no port that can be")
    if "@" in parts.netloc:
        raise ValueError("the URL has a name or a password in it, which is read by nobody: leave them out")
    if "#" in text:
        raise ValueError("the URL has a fragment, which servers never see: write %23 for a `#` in a name")
    place, _, query = text.partition("?")
    if not query:
        return Listed(place, "", band)
    # The digest of all of it: the query alone might be guessed.
    return Listed(f"{place}{HIDDEN}{hashlib.sha256(text.encode()).hexdigest()[:16]}", query, band)


def _cells(lines: Iterator[str]) -> Iterator[tuple[int, str, str | None]]:
    """The number of each line, its path or URL, and its band."""
    first = next(((number, line) for number, line in enumerate(lines, 1) if not _is_blank(line)), None)
    if first is None:
        return
    names = [cell.strip().lower() for cell in next(csv.reader([first[1]]))]
    at = next((names.index(name) for name in ADDRESS_COLUMNS if name in names), None)
    if at is None:
        for number, line in _after(first, lines):
            if not _is_blank(line):
                words = line.strip().rsplit(maxsplit=1)
                # A path may have spaces. A URL has none.
                if len(words) == 2 and (is_url(words[0]) or words[1] in BANDS):
                    yield number, *words  # type: ignore[misc]
                else:
                    yield number, line.strip(), None
        return
    of_band = next((names.index(name) for name in BAND_COLUMNS if name in names), None)
    for number, line in enumerate(lines, first[0] + 1):
        if not _is_blank(line):
            cells = [cell.strip() for cell in next(csv.reader([line]))]
            address = cells[at] if at < len(cells) else ""
            yield (
                number,
                address,
                (cells[of_band] or None) if of_band is not None and of_band < len(cells) else None,
            )


def _after(first: tuple[int, str], lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    yield first
    yield from enumerate(lines, first[0] + 1)


def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def read_list(path: Path) -> dict[str, Listed]:
    """The exposures of a list, by their addresses.

    Raises
    ------
    WrongList : it cannot be read, or a line of it is wrong.
    """
    found: dict[str, Listed] = {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, text, band in _cells(iter(file)):
                try:
                    if not text:
                        raise ValueError("there is no path and no URL")
                    one = read_line(text, band)
                except ValueError as error:
                    raise WrongList(f"line {number} of {path} cannot be used: {error}") from None
                found[one.address] = one
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8 with one exposure a line"
        raise WrongList(f"the list {path} cannot be read: {why}") from None
    if not found:
        raise WrongList(f"the list {path} has no exposures")
    return found


class Survey:
    """The exposures of a survey, where they are. `folder` is that of the survey, or of the list, whose paths may be relative."""

    def __init__(self, index: Index, folder: Path, psf_sigma: float, is_list: bool) -> None:
        self.index, self.folder, self.psf_sigma, self.is_list = index, folder.resolve(), psf_sigma, is_list
        self._lock = threading.Lock()
        self._asking: ThreadPoolExecutor | None = None
        self._is_closed = False

    def path(self, address: str) -> Path:
        """The path of an exposure that is no URL."""
        return self.folder / address

    def places(self, addresses: Sequence[str]) -> dict[str, str]:
        """What tasks name as their inputs: paths, and URLs with their queries, which eyas keeps out of all that it shows or writes."""
        hidden = [address for address in addresses if is_url(address) and HIDDEN in address]
        known = self.index.queries_of(hidden) if hidden else {}
        found = {}
        for address in addresses:
            if address in known:
                found[address] = with_query(address, known[address])
            else:
                found[address] = address if is_url(address) else str(self.path(address))
        return found

    def public_url(self, address: str) -> str | None:
        """The URL of an exposure that whoever asks may be sent to; None: it is signed, or no URL."""
        return address if is_url(address) and HIDDEN not in address else None

    def versions(self, addresses: Sequence[str]) -> list[str] | None:
        """The version of each exposure, which is another one when its file is another one. None: one is not there, or nothing would show
        that it changes.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the survey is closed")
            if self._asking is None:
                self._asking = ThreadPoolExecutor(AT_ONCE, "version")
            threads = self._asking
        asked = {
            threads.submit(_version_of, place): address for address, place in self.places(addresses).items()
        }
        found: dict[str, str] = {}
        try:
            for one in as_completed(asked, timeout=VERSIONS_S_MAX):
                version = one.result()
                if version is None:
                    return None
                found[asked[one]] = version
        except TimeoutError:
            return None
        finally:
            for one in asked:
                one.cancel()
        return [found[address] for address in addresses]

    def close(self) -> None:
        """Ask for versions no more."""
        with self._lock:
            self._is_closed = True
            if self._asking is not None:
                self._asking.shutdown(wait=False, cancel_futures=True)

    def shown(self, text: str) -> str:
        """A text of the cluster for people: with addresses of the survey and not of this machine, and without queries."""
        return without_queries(text.replace(f"{self.folder}/", ""))


def _version_of(place: str) -> str | None:
    """The version of a file, by which nodes know it, too. None: there is none, or a file with other bytes may have it as well."""
    try:
        found = EyasFileSystem().info(place)
    except (OSError, ValueError):
        return None
    return str(found["version"]) if found.get("is_strong") else None


def with_query(address: str, query: str) -> str:
    return f"{address.partition(HIDDEN)[0]}?{query}"


# ---------------------------------------------------------------------------------------- the index of a list


def fill(
    survey: Survey, listed: Mapping[str, Listed], say: Callable[[str], object]
) -> list[tuple[str, Unread]]:
    """Bring the index to what a list has, and give what cannot be read, with why. What the index has already is not read again, so one
    that was stopped goes on. `say` gets sentences on how far it is.
    """
    index = survey.index
    known = index.addresses()
    gone = [
        address
        for address, band in known.items()
        if address not in listed or listed[address].band not in (None, band)
    ]
    index.remove(gone)
    for address in gone:
        del known[address]
    todo = [one for one in listed.values() if one.address not in known]
    if not todo:
        return []
    unread: list[tuple[str, Unread]] = []
    rows: list[dict[str, Any]] = []
    reader = _Reader(survey)
    began = said = time.monotonic()
    n_read, left = 0, iter(todo)
    say(f"The headers of {len(todo):,} exposures are read (once) ...")
    threads = ThreadPoolExecutor(AT_ONCE, "header")
    try:
        going: dict[Future[dict[str, Any]], Listed] = {}
        while True:
            for one in left:
                going[threads.submit(reader.row, one)] = one
                if len(going) >= 4 * AT_ONCE:
                    break
            if not going:
                break
            for ended in wait(going, SAY_S, FIRST_COMPLETED).done:
                one = going.pop(ended)
                n_read += 1
                try:
                    rows.append(ended.result())
                except Unread as error:
                    unread.append((one.address, error))
            if len(rows) >= ROWS_AT_ONCE or time.monotonic() - said > SAY_S:
                _keep(index, rows, listed)
                rows = []
            if time.monotonic() - said > SAY_S:
                said = time.monotonic()
                left_s = (said - began) / max(n_read, 1) * (len(todo) - n_read)
                say(f"{n_read:,} of {len(todo):,} headers are read; the rest takes some {left_s:,.0f} s")
    finally:
        reader.stop()
        threads.shutdown(wait=False, cancel_futures=True)
        _keep(index, rows, listed)
    return sorted(unread, key=lambda one: one[0])


def _keep(index: Index, rows: list[dict[str, Any]], listed: Mapping[str, Listed]) -> None:
    queries = {row["address"]: listed[row["address"]].query for row in rows if listed[row["address"]].query}
    # First, because an exposure in the index needs it.
    index.set_queries(queries)
    try:
        index.fill(rows)
    except sa.exc.IntegrityError:
        # Another portal with this database reads the same list.
        known = index.addresses()
        index.fill([row for row in rows if row["address"] not in known])


class _Reader:
    """Reads headers for an index. Threads share it."""

    def __init__(self, survey: Survey) -> None:
        self._survey, self._web = survey, Web()
        self._silent: Counter[str] = Counter()
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        self._web.close()

    def row(self, one: Listed) -> dict[str, Any]:
        """The row of the index of an exposure.

        Raises
        ------
        Unread : it cannot be read, or is nothing for the index.
        """
        if self._is_stopped:
            raise Unread("away", "the indexing was stopped")
        try:
            row = self._of_url(one) if is_url(one.address) else self._of_path(one)
            reach = float(reach_deg([row])[0])
        except StackingError as error:
            raise Unread("corrupt", str(error)) from None
        except (ValueError, OSError, RuntimeError) as error:
            # A host that can be no name, say. The rest of the list is read all the same.
            raise Unread("unreadable", f"{type(error).__name__}: {without_queries(str(error))}") from None
        # What no database and no cell could take would have others left out with it.
        if not (abs(row["dec"]) <= 90 and abs(row["ra"]) <= 720):
            raise Unread(
                "corrupt", f"its centre, RA {row['ra']} and Dec {row['dec']}, is no place of the sky"
            )
        if not (1 <= row["width"] <= SIDE_PIXELS_MAX and 1 <= row["height"] <= SIDE_PIXELS_MAX):
            raise Unread("corrupt", f"its image has {row['width']} x {row['height']} pixels")
        if not reach <= REACH_DEG_MAX:
            raise Unread("corrupt", f"it {too_wide(reach)}")
        return row

    def _of_url(self, one: Listed) -> dict[str, Any]:
        server = urlsplit(one.address).netloc
        if self._silent[server] >= SILENT_AFTER:
            raise Unread("away", NOT_ASKED)
        name = name_of(one.address)
        url = with_query(one.address, one.query) if one.query else one.address
        try:
            header, size = self._web.header(url, name)
        except Unread as error:
            self._silent[server] = self._silent[server] + 1 if error.may_pass else 0
            raise
        self._silent[server] = 0
        return row_of_header(header, name, one.address, one.band, size or 0)

    def _of_path(self, one: Listed) -> dict[str, Any]:
        path = self._survey.path(one.address)
        try:
            return row_of(path, one.address, one.band)
        except FileNotFoundError:
            raise Unread("missing", "there is no such file") from None
        except (zlib.error, EOFError) as error:
            raise Unread("corrupt", f"its packed stream is damaged: {error}") from None
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None)
            why = getattr(error, "strerror", None) or str(error)
            # What gzip and bzip2 say of damaged bytes has no number.
            if number is None:
                raise Unread("corrupt", why) from None
            is_refused = number in (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
            kind = "missing" if number == errno.ENOTDIR else "unreadable" if is_refused else "away"
            raise Unread(kind, why) from None


def write_unread(path: Path, unread: Sequence[tuple[str, Unread]]) -> None:
    """A table of what cannot be read, which is not there where there is nothing of it."""
    if not unread:
        path.unlink(missing_ok=True)
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("address", "what", "why"))
        writer.writerows((address, error.kind, error.why) for address, error in unread)
