"""Headers of exposures at web servers, for the index. Whole exposures are read by nodes.

Only URLs of the administrator's list come here. A query of a URL may open the file for whoever has it, so no text that leaves this
module has one.
"""

from __future__ import annotations

import bz2
import io
import re
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import httpx2
from cutout import BLOCK_BYTES, CARD_BYTES, HEADER_BLOCKS_MAX, Header, StackingError, read_header

# Answers that are waited for at once, whoever asks: servers are others' property.
AT_ONCE = 16
CONNECT_S, READ_S = 10.0, 20.0
# For one header: a server may give single bytes, each in time.
HEADER_S_MAX = 120.0
TRIES = 3
RETRY_S, RETRY_S_MAX = 1.0, 30.0
# The first part that is asked for. A block of bzip2 has to be there as a whole before any of it can be unpacked; one of a frame of SDSS
# takes 200 to 300 KB.
FIRST_BYTES, FIRST_BYTES_BZIP2 = 64 << 10, 384 << 10
PACKED_BYTES_MAX = 16 << 20
HEADER_BYTES_MAX = HEADER_BLOCKS_MAX * BLOCK_BYTES

_QUERY = re.compile(r"(https?://[^\s?`'\"<>]*)\?[^\s`'\"<>]*", re.IGNORECASE)


class Unread(Exception):
    """An exposure that cannot be used: `missing`, `unreadable`, `corrupt` or `away`, and a sentence without a secret."""

    def __init__(self, kind: str, why: str, may_pass: bool = False, retry_s: float | None = None) -> None:
        super().__init__(f"{kind}: {why}")
        self.kind, self.why, self.may_pass, self.retry_s = kind, why, may_pass, retry_s


def without_queries(text: str) -> str:
    """A text in which URLs have `?...` in place of their queries."""
    return _QUERY.sub(r"\1?...", text)


def kind_of_status(status: int) -> str:
    """What an answer that is no success says of the file, as homes of eyas have it."""
    if status in (404, 410):
        return "missing"
    # The server says that it cannot at the moment.
    if status in (408, 425, 429) or (status >= 500 and status not in (501, 505)):
        return "away"
    return "unreadable"


def unpacked_start(data: bytes) -> bytes:
    """What the first bytes of a file give when they are unpacked, as far as a header may reach.

    Raises
    ------
    StackingError : they are damaged.
    """
    unpackers: tuple[Callable[[], Any], bytes]
    if data[:3] == b"BZh":
        unpackers = (bz2.BZ2Decompressor, b"BZh")
    elif data[:2] == b"\x1f\x8b":
        unpackers = (lambda: zlib.decompressobj(31), b"\x1f\x8b")
    else:
        return data[:HEADER_BYTES_MAX]
    found = b""
    try:
        # Some programs pack a file as many streams, one behind another.
        while data.startswith(unpackers[1]) and len(found) < HEADER_BYTES_MAX:
            unpacker = unpackers[0]()
            found += unpacker.decompress(data, HEADER_BYTES_MAX - len(found))
            data = unpacker.unused_data
    except (OSError, EOFError, zlib.error) as error:
        raise StackingError(f"its packed stream is damaged: {error}") from None
    return found


def has_header(start: bytes) -> bool:
    """Whether these bytes have a whole header, or show that they are no FITS file."""
    if len(start) >= BLOCK_BYTES and not start.startswith(b"SIMPLE  ="):
        return True
    whole = len(start) - len(start) % BLOCK_BYTES
    return any(start[at : at + CARD_BYTES].rstrip() == b"END" for at in range(0, whole, CARD_BYTES))


def _range_of(answer: httpx2.Response) -> tuple[int, int | None] | None:
    """The first byte of a part, and the size of the whole file where it is said; None: the answer is no part."""
    found = re.fullmatch(
        r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", answer.headers.get("content-range", "").strip()
    )
    if answer.status_code != 206 or not found:
        return None
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _length_of(answer: httpx2.Response) -> int | None:
    text = answer.headers.get("content-length", "")
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None


class Web:
    """A client of the survey's servers. Threads may share it."""

    def __init__(self) -> None:
        self._is_closed = threading.Event()
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE),
            follow_redirects=True,
            max_redirects=10,
            # A server must not pack what it sends in another way than the file is packed.
            headers={"Accept-Encoding": "identity", "User-Agent": "eyas-portal"},
        )

    def close(self) -> None:
        self._is_closed.set()
        self._client.close()

    def header(self, url: str, name: str) -> tuple[Header, int | None]:
        """The header of an exposure, and the size of its file in bytes where the server says it. Tries again what may pass.

        Raises
        ------
        Unread : it cannot be read.
        """
        for number in range(TRIES):
            try:
                return self._header(url, name)
            except Unread as error:
                if not error.may_pass or number == TRIES - 1:
                    raise
                if self._is_closed.wait(min(error.retry_s or RETRY_S * 3**number, RETRY_S_MAX)):
                    raise
        raise AssertionError

    def _header(self, url: str, name: str) -> tuple[Header, int | None]:
        try:
            start, size = self._start(url)
            return read_header(io.BytesIO(unpacked_start(start)), name), size
        except StackingError as error:
            raise Unread("corrupt", str(error)) from None
        except httpx2.TimeoutException:
            raise Unread("away", "the server did not answer in time", True) from None
        except httpx2.TooManyRedirects:
            raise Unread("unreadable", "the server sends whoever asks from place to place") from None
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
            raise Unread("unreadable", "the server sends whoever asks to what is no URL of the web") from None
        except httpx2.HTTPError as error:
            why = without_queries(str(error)) or type(error).__name__
            raise Unread("away", f"the connection failed: {why}", True) from None

    def _start(self, url: str) -> tuple[bytes, int | None]:
        """The first bytes of a file, with its whole header. A server that gives no parts sends the file until the header is there."""
        have, size = bytearray(), None
        until = FIRST_BYTES_BZIP2 if url.partition("?")[0].endswith(".bz2") else FIRST_BYTES
        end = time.monotonic() + HEADER_S_MAX
        seen: tuple[str, ...] | None = None
        while until <= PACKED_BYTES_MAX:
            wanted = {"Range": f"bytes={len(have)}-{until - 1}"}
            with self._client.stream("GET", url, headers=wanted) as answer:
                if answer.status_code == 416:
                    # There is nothing behind what came.
                    return bytes(have), len(have)
                part = _range_of(answer)
                if part is None and answer.status_code != 200:
                    raise _refused(answer)
                if part is None:
                    return self._whole(answer, until, end)
                now = tuple(answer.headers.get(key, "") for key in ("etag", "last-modified"))
                if part[0] != len(have) or (seen is not None and (now, part[1]) != (seen, size)):
                    raise Unread("away", "it changed while it was read", True)
                seen, size, before = now, part[1], len(have)
                for chunk in answer.iter_raw():
                    have += chunk
                    _in_time(end)
                    if len(have) >= until:
                        break
            if len(have) == size or len(have) == before or has_header(unpacked_start(bytes(have))):
                return bytes(have), size
            until *= 4
        raise StackingError(f"its header does not end within {PACKED_BYTES_MAX:,} bytes of the file")

    @staticmethod
    def _whole(answer: httpx2.Response, until: int, end: float) -> tuple[bytes, int | None]:
        have, size = bytearray(), _length_of(answer)
        for chunk in answer.iter_raw():
            have += chunk
            _in_time(end)
            if len(have) >= until:
                if has_header(unpacked_start(bytes(have))):
                    return bytes(have), size
                until *= 4
                if until > PACKED_BYTES_MAX:
                    raise StackingError(f"its header does not end within {len(have):,} bytes of the file")
        return bytes(have), len(have) if size is None else size


def _in_time(end: float) -> None:
    if time.monotonic() > end:
        raise Unread("away", f"the server gives its header too slowly, for {HEADER_S_MAX:.0f} s")


def _refused(answer: httpx2.Response) -> Unread:
    kind = kind_of_status(answer.status_code)
    text = answer.headers.get("retry-after", "")
    wait_s = float(text) if re.fullmatch(r"\d{1,6}", text) else None
    return Unread(kind, f"the server answered {answer.status_code}", kind == "away", wait_s)
