"""Runs: work that was given to a cluster, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _ffi
from .errors import TaskFailed, raise_ours

if TYPE_CHECKING:
    import pyarrow

    from .cluster import Client
    from .notebook import Progress


@dataclass(frozen=True)
class Task:
    """A task that has ended.

    `state` is `done`, `failed` or `cancelled`, `reason` says why it failed, `n_attempts` counts the attempts that printed
    something. `stdout` and `stderr` are what the last of them printed; of much output the middle is left out.
    """

    id: str
    state: str
    reason: str | None
    n_attempts: int
    stdout: bytes
    stderr: bytes


def _joined(stream: tuple[bytes, bytes, int]) -> bytes:
    head, tail, total = stream
    n_left_out = total - len(head) - len(tail)
    return head + (b"\n[... %d bytes ...]\n" % n_left_out if n_left_out else b"") + tail


def _task_of(ended: _ffi.EndedTask) -> Task:
    return Task(
        ended["id"],
        ended["state"],
        ended["reason"],
        ended["n_attempts"],
        _joined(ended["stdout"]),
        _joined(ended["stderr"]),
    )


class Run:
    """Tasks that were given to a cluster together. `number` is the run's number there, `n_tasks` how many tasks it has."""

    def __init__(self, client: Client, number: int, n_tasks: int) -> None:
        self._client = client
        self.number = number
        self.n_tasks = n_tasks
        self._ended: tuple[dict[str, Any], list[str]] | None = None
        self._progress: Progress | None = None

    def __repr__(self) -> str:
        state = "open" if self._ended is None else "ended"
        return f"<eyas.Run {self.number}, {self.n_tasks} tasks, {state}>"

    def _repr_html_(self) -> str:
        from .notebook import html_of_run

        return html_of_run(self)

    def progress(self) -> Progress:
        """Show how far the run is, until it has ended: as a bar in a notebook with anywidget (`pip install 'eyas[notebook]'`), else as a
        line on standard error. Does not wait.
        """
        from .notebook import Progress

        if self._progress is None:
            self._progress = Progress(self)
        return self._progress

    def wait(
        self,
        timeout: float | None = None,
        *,
        check: bool = True,
        progress: Callable[[dict[str, Any]], object] | None = None,
    ) -> bool:
        """Wait until all tasks have ended, at most `timeout` seconds; `False`: some have not.

        `progress` is called with the state of the run (the fields of `eyas status --json`) whenever it has changed.
        ^C ends the wait, and the run goes on; where the run is on a cluster of a `with` block, it ends with that.

        Raises
        ------
        TaskFailed : a task failed or was cancelled, unless `check` is `False`.
        ClusterLost : the cluster went away.
        """
        if self._ended is None:

            def shown(text: str) -> None:
                if progress is not None:
                    progress(json.loads(text))

            try:
                connection = self._client._connection()
                found = connection.wait(self.number, self._client._own, timeout, progress and shown)
            except _ffi.FfiError as error:
                raise_ours(error)
            if found is None:
                return False
            self._ended = json.loads(found[0]), found[1]
            if progress is not None:
                progress(self._ended[0])
        if self._progress is not None:
            self._progress.finish()
        if check:
            self._check()
        return True

    def _check(self) -> None:
        status = self.status()
        n_failed, n_cancelled = status["n_failed"], status["n_cancelled"]
        if n_failed:
            try:
                first = self._client._connection().failed(self.number)[0]
            except _ffi.FfiError as error:
                raise_ours(error)
            stderr = first["stderr"][1] or first["stderr"][0]
            reason = first["reason"] or "no reason is known"
            raise TaskFailed(
                first["id"], self.number, reason, stderr.decode(errors="replace"), n_failed + n_cancelled - 1
            )
        if n_cancelled:
            raise TaskFailed("(any)", self.number, f"{n_cancelled} tasks were cancelled")

    def status(self) -> dict[str, Any]:
        """The state of the run: the fields of a run in `eyas status --json` (docs/reference/json.md)."""
        if self._ended is not None:
            return self._ended[0]
        try:
            found = self._client._connection().run_status(self.number)
        except _ffi.FfiError as error:
            raise_ours(error)
        if found is None:
            raise LookupError(f"the cluster has forgotten run {self.number}")
        status: dict[str, Any] = json.loads(found)
        return status

    @overload
    def tasks(self) -> Iterator[Task]: ...

    @overload
    def tasks(self, as_: Literal["arrow"]) -> pyarrow.Table: ...

    def tasks(self, as_: Literal["arrow"] | None = None) -> Iterator[Task] | pyarrow.Table:
        """All tasks in the order in which they were given. Waits for their ends.

        as_ : `"arrow"` gives a table of PyArrow with a column for each field of `Task`.
        """
        if as_ is None:
            return self._tasks()
        if as_ != "arrow":
            raise ValueError(f"as_ is {as_!r}: give 'arrow', or leave it out")
        from . import tables

        return tables.of_tasks(self._tasks())

    def events(self) -> pyarrow.Table:
        """The run's part of the event log, as a table of PyArrow: what its dispatcher heard and did, in that order.

        Columns: `t` (UTC), `direction` (`in`, `out` or `lost`), `name`, `executor`, `task`, and `fields` (JSON); docs/reference/event-log.md
        says what they mean.

        Raises
        ------
        LookupError : the log is on another machine.
        """
        from . import tables

        folder = self._dispatcher_dir()
        if folder is None:
            raise LookupError("the event log is on the dispatcher's machine: read it there")
        return tables.events_of(folder, self.number)

    def _dispatcher_dir(self) -> Path | None:
        """The folder of the run's dispatcher, where it is on this machine."""
        try:
            folder = Path(json.loads(self._client.join.read_text(encoding="utf-8"))["dir"])
        except OSError as error:
            raise LookupError(f"the cluster is gone: its join file cannot be read ({error})") from None
        return folder if (folder / "events.jsonl").is_file() else None

    def results(self, return_exceptions: bool = False) -> Iterator[Any]:
        """What the calls of a `map` with a name returned, in the order of its elements. Waits for all of them.

        return_exceptions : where an element has no result, give what would be raised there, and go on with the next element. Where
            several elements were one call (`chunksize`), all of them have the exception of the call.

        Raises, at the element : what the function raised there; TaskFailed; OSError, its result cannot be read any more. The results
        behind it are given with `return_exceptions` only.
        LookupError : the run is none of functions.
        """
        from .functions import results_of

        connection = self._client._connection()
        for task in self._ended_tasks():
            values, error = results_of(connection, self.number, task)
            if error is not None and not return_exceptions:
                raise error
            yield from values

    def _tasks(self) -> Iterator[Task]:
        return map(_task_of, self._ended_tasks())

    def _ended_tasks(self) -> Iterator[_ffi.EndedTask]:
        self.wait(check=False)
        start: int | None = 0
        while start is not None:
            try:
                found, start = self._client._connection().tasks(self.number, start)
            except _ffi.FfiError as error:
                raise_ours(error)
            yield from found

    def cancel(self) -> int:
        """Cancel what has not ended. Gives how many tasks that were."""
        try:
            return self._client._connection().cancel(self.number, None)
        except _ffi.FfiError as error:
            raise_ours(error)

    def explain(self, task: str) -> str:
        """Why a task ran where it ran, or waits: what `eyas explain` says."""
        try:
            return self._client._connection().explain(self.number, task)
        except _ffi.FfiError as error:
            raise_ours(error)

    def report(self, page: str | Path | None = None) -> str:
        """The lines that `eyas run` ends with. `page` is where the page of `eyas report` is written. Waits for the end of the run."""
        self.wait(check=False)
        assert self._ended is not None
        if page is not None:
            try:
                found = self._client._connection().report(self.number)
            except _ffi.FfiError as error:
                raise_ours(error)
            if found is None:
                raise LookupError(
                    "the log of the run is on the dispatcher's machine: run `eyas report` there"
                )
            Path(page).write_text(found[0], encoding="utf-8")
        return "\n".join(self._ended[1])
