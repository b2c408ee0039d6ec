"""The same for asyncio: what waits is awaited, and the event loop goes on meanwhile.

    import asyncio, eyas.aio

    async def main():
        async with eyas.aio.Cluster(nodes=2) as c:
            run = await c.map("wc -c {in}", eyas.glob("sky/*.fits"), out="sizes/{stem}.txt", shell=True)
            total = await c.submit(sum, [1, 2, 3])
            await run.wait()

    asyncio.run(main())

`connect("join.json")` gives the same for a cluster that is up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import cluster, runs
from ._values import cancel_soon

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Unpack

    from ._options import ClusterOptions
    from .functions import Context
    from .tables import Table

T = TypeVar("T")

__all__ = ["Call", "Client", "Cluster", "Run", "connect"]

# A wait that is cancelled goes on in its thread for so many seconds at most.
_WAIT_S_MAX = 0.5


class Call(Generic[T]):
    """A call of a function: `await` gives what it returned, or raises what it raised. One that is an argument arrives as its result.

    Where the task that awaits it is cancelled, the call is ended.
    """

    def __init__(self, future: Future[T]) -> None:
        self.future = future

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self.future).__await__()

    def cancel(self) -> bool:
        """End the call; `False`: it has ended."""
        return self.future.cancel()

    def done(self) -> bool:
        """Whether it has ended."""
        return self.future.done()


def _futures_of(value: Any) -> Any:
    """The same with the futures of calls in their place, also in lists, tuples and dictionaries."""
    if isinstance(value, Call):
        return value.future
    if type(value) in (list, tuple):
        return type(value)(_futures_of(one) for one in value)
    if type(value) is dict:
        return {name: _futures_of(one) for name, one in value.items()}
    return value


class Run:
    """Tasks that were given to a cluster together; see `eyas.Run`, which is `sync`."""

    def __init__(self, sync: runs.Run) -> None:
        self.sync = sync

    def __repr__(self) -> str:
        return repr(self.sync)

    @property
    def number(self) -> int:
        """The run's number at its cluster."""
        return self.sync.number

    @property
    def n_tasks(self) -> int:
        """How many tasks it has."""
        return self.sync.n_tasks

    async def wait(self, timeout: float | None = None, *, check: bool = True) -> bool:
        """Wait until all tasks have ended, at most `timeout` seconds; `False`: some have not. Errors as of `eyas.Run.wait`."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while True:
            left = _WAIT_S_MAX if end is None else min(_WAIT_S_MAX, max(0.0, end - loop.time()))
            if await asyncio.to_thread(self.sync.wait, left, check=False):
                break
            if end is not None and loop.time() >= end:
                return False
        return await asyncio.to_thread(self.sync.wait, check=check)

    async def status(self) -> dict[str, Any]:
        """The state of the run, as `eyas.Run.status`."""
        return await asyncio.to_thread(self.sync.status)

    async def tasks(self) -> list[runs.Task]:
        """All tasks in the order in which they were given. Waits for their ends."""
        await self.wait(check=False)
        return await asyncio.to_thread(lambda: list(self.sync.tasks()))

    async def results(self, return_exceptions: bool = False) -> list[Any]:
        """What the calls of a `map` with a name returned. Waits for all; the argument and the errors are those of `eyas.Run.results`."""
        await self.wait(check=False)
        return await asyncio.to_thread(lambda: list(self.sync.results(return_exceptions)))

    async def events(self) -> pyarrow.Table:
        """The run's part of the event log, as `eyas.Run.events`."""
        return await asyncio.to_thread(self.sync.events)

    def _repr_html_(self) -> str:
        return self.sync._repr_html_()

    async def cancel(self) -> int:
        """Cancel what has not ended. Gives how many tasks that were."""
        return await asyncio.to_thread(self.sync.cancel)

    async def explain(self, task: str) -> str:
        """Why a task ran where it ran, or waits."""
        return await asyncio.to_thread(self.sync.explain, task)

    async def report(self, page: str | os.PathLike[str] | None = None) -> str:
        """As `eyas.Run.report`. Waits for the end of the run."""
        await self.wait(check=False)
        return await asyncio.to_thread(self.sync.report, None if page is None else os.fspath(page))


class Client:
    """A connection to a cluster; see `eyas.Client`, which is `sync`."""

    def __init__(self, start: Callable[[], cluster.Client]) -> None:
        self._start = start
        self._sync: cluster.Client | None = None

    @property
    def sync(self) -> cluster.Client:
        """The connection itself, which `async with` opens."""
        if self._sync is None:
            raise RuntimeError("the connection is not open: use it in `async with`")
        return self._sync

    async def __aenter__(self) -> Client:
        self._sync = await asyncio.to_thread(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.sync.close)

    @overload
    def map(
        self,
        command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Table = (),
        *,
        out: str | Iterable[str] = (),
        shell: bool = False,
        name: str | None = None,
        **options: object,
    ) -> Coroutine[Any, Any, Run]: ...

    @overload
    def map(
        self,
        command: Callable[..., T],
        *iterables: Iterable[Any],
        context: object = None,
        chunksize: int = 1,
        name: str | None = None,
        **options: Any,
    ) -> AsyncIterator[T]: ...

    def map(self, command: Any, *files: Any, **options: Any) -> Any:
        """Run a program once for each file, as `eyas.Client.map`: `run = await c.map("wc {in}", files)`. Or call a function once for
        each element, as `map_calls`: `async for found in c.map(predict, chunks, context=model)`.
        """
        if callable(command):
            return self.map_calls(command, *files, **options)
        return self._map_program(command, *files, **options)

    async def _map_program(self, command: Any, *files: Any, **options: Any) -> Run:
        return Run(await asyncio.to_thread(lambda: self.sync.map(command, *files, **options)))

    async def run(
        self,
        tasks: Iterable[Mapping[str, object]] | str | os.PathLike[str] | Table,
        *,
        name: str | None = None,
    ) -> Run:
        """Run a list of tasks, as `eyas.Client.run`."""
        return Run(await asyncio.to_thread(lambda: self.sync.run(tasks, name=name)))

    async def runs(self, name: str | None = None) -> list[Run]:
        """The runs that the cluster knows, as `eyas.Client.runs`."""
        return [Run(run) for run in await asyncio.to_thread(self.sync.runs, name)]

    def submit(self, fn: Callable[..., T], /, *args: Any, **options: Any) -> Call[T]:
        """Call a function as a task, as `eyas.Client.submit`. Gives what is awaited for the result."""
        return Call(self.sync.submit(fn, *_futures_of(args), **_futures_of(options)))

    def context(self, maker: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Context:
        """A value that each worker makes once and keeps, as `eyas.Client.context`."""
        return self.sync.context(maker, *args, **kwargs)

    async def map_calls(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        context: object = None,
        chunksize: int = 1,
        name: str | None = None,
        **options: Any,
    ) -> AsyncIterator[T]:
        """Call a function once for each element, as `eyas.Client.map_calls`; for `async for`."""
        elements = tuple(map(_futures_of, each) for each in iterables)
        last, named = _futures_of(context), _futures_of(options)
        calls = await asyncio.to_thread(self.sync._map_calls, fn, elements, last, chunksize, named, name)
        try:
            while calls:
                result = await Call(calls.popleft())
                for one in [result] if chunksize == 1 else result:
                    yield one
        finally:
            if name is None:
                cancel_soon(calls)

    async def status(self) -> dict[str, Any]:
        """What the cluster is doing: the fields of `eyas status --json`."""
        return await asyncio.to_thread(self.sync.status)


def connect(
    join: str | os.PathLike[str],
    *,
    spool: str | os.PathLike[str] | None = None,
    worker_memory: int | str | None = None,
    result_max: int | str | None = None,
) -> Client:
    """Connect to a cluster that is up, by its join file, for `async with`."""
    return Client(
        lambda: cluster.connect(join, spool=spool, worker_memory=worker_memory, result_max=result_max)
    )


class Cluster(Client):
    """A cluster of this process, which ends with its `async with`. The arguments are those of `eyas.Cluster`."""

    def __init__(
        self,
        nodes: int | str | tuple[int, int] | None = None,
        slots: int | None = None,
        cache: int | str | None = None,
        *,
        worker_memory: int | str | None = None,
        result_max: int | str | None = None,
        spool: str | os.PathLike[str] | None = None,
        **options: Unpack[ClusterOptions],
    ) -> None:
        super().__init__(
            lambda: cluster.Cluster(
                nodes,
                slots,
                cache,
                worker_memory=worker_memory,
                result_max=result_max,
                spool=spool,
                **options,
            )
        )
