"""What calls and clusters take as values."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "PIB": 2**50}


def parse_bytes(name: str, size: str | int) -> int:
    """A number of bytes, from a number or a text such as `2GiB`.

    Raises
    ------
    ValueError : `name` is no size.
    """
    text = str(size).strip()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(number) :].strip().upper()
    try:
        n_bytes = size if isinstance(size, int) else int(float(number) * _UNITS[unit])
        if 0 <= n_bytes < 2**63:
            return n_bytes
    except (KeyError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} is {size!r}: write it as 2GiB, 512MiB or a number of bytes")


def chunks_of(elements: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """The elements, `size` at a time."""
    left = iter(elements)
    while chunk := tuple(itertools.islice(left, size)):
        yield chunk


class Chunk(list[T]):
    """The results of several elements that were one call."""


def call_chunk(
    fn: Callable[..., T],
    chunk: tuple[tuple[Any, ...], ...],
    last: tuple[Any, ...] = (),
    named: Mapping[str, Any] | None = None,
) -> Chunk[T]:
    """Call a function for each of these arguments; all calls have the `last` and the `named` ones besides."""
    given = named or {}
    return Chunk(fn(*args, *last, **given) for args in chunk)


def in_order(calls: deque[Future[Any]], chunksize: int, go_on: bool) -> Iterator[Any]:
    """The results of calls of so many elements each. Those that were taken are kept no longer. Unless they `go_on`, calls whose results
    nobody takes are cancelled.
    """
    try:
        while calls:
            result = calls[0].result()
            calls.popleft()
            if chunksize == 1:
                yield result
            else:
                yield from result
    finally:
        if not go_on:
            cancel_soon(calls)


def cancel_soon(calls: Iterable[Future[Any]]) -> None:
    """Cancel calls without a wait for it: each is a question to the cluster, and they may be thousands."""
    left = list(calls)
    if not left:
        return

    def cancel() -> None:
        for call in left:
            call.cancel()

    try:
        threading.Thread(target=cancel, name="eyas-cancels", daemon=True).start()
    except RuntimeError:
        pass  # the interpreter ends, and the calls with it
