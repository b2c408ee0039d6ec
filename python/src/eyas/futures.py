"""`Executor`: the interface of the standard library's `concurrent.futures`, on a cluster.

from eyas.futures import Executor

with Executor(max_workers=4) as executor:
    print(list(executor.map(pow, range(8), range(8))))
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import BrokenExecutor, Future
from typing import TYPE_CHECKING, Any, TypeVar

from ._values import call_chunk, chunks_of
from .cluster import Client, Cluster
from .functions import CallFuture, Calls, Condition, Pool, _name_of, is_callback_of, is_for_caller

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")

__all__ = ["BrokenExecutor", "Executor"]

# The standard library's.
_LOGGER = logging.getLogger("concurrent.futures")

# Calls that take less than this are short.
_SHORT_S = 0.05

# The cluster is given so many short calls as take this long.
_AHEAD_S = 0.1

# And no more than these.
_GIVEN_MAX = 2000

# Who gives up waits no longer than this for calls that cannot be cancelled.
_GIVE_UP_S_MAX = 5.0

_AFTER_SHUTDOWN = "cannot schedule new futures after shutdown"
_AFTER_EXIT = "cannot schedule new futures after interpreter shutdown"
_BROKEN = "an initializer of this executor raised an exception: it runs no more calls"


def _kind_of(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[object, str]:
    """What calls have in common that take about as long: their function."""
    if fn is call_chunk:
        fn = args[0]
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__module__", None), _name_of(fn)


class _Waiting:
    """A call that has not been given to the cluster, as there is enough to do."""

    __slots__ = ("args", "fn", "future", "kind", "kwargs")

    def __init__(
        self, future: CallFuture, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.future = future
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.kind = _kind_of(fn, args)


class _State:
    """What an executor consists of. It outlives its executor until its last call has ended."""

    def __init__(self, client: Client | None, max_workers: int, pool: Pool) -> None:
        self.client = client
        # The process that has the client. What it has given goes on without its forks.
        self.pid = os.getpid()
        self.is_own = client is None
        self.max_workers = max_workers
        self.pool = pool
        self.changed = Condition()
        self.waiting: deque[_Waiting] = deque()
        # The identities of those that the cluster has: one step adds each and one takes it out, whenever ^C comes.
        self.with_cluster: set[int] = set()
        # The same, without keeping results that nobody else keeps.
        self.given: weakref.WeakSet[CallFuture] = weakref.WeakSet()
        # How long calls of each function took lately, from when they were given, shared by those that were there.
        self.mean_s: dict[tuple[object, str], float] = {}
        self.is_shut_down = False
        self.is_ended = False
        self.why_broken: str | None = None
        pool.on_broken = self.on_broken

    def given_max(self, kind: tuple[object, str]) -> int:
        """How many calls the cluster has at most where one of this function is the next. One that was given cannot be cancelled any more,
        as in the standard library, so there is one more than run at once, and where calls are so short that slots would wait for the
        next one, so many more as are done in a moment.
        """
        if not self.is_own:
            return self.max_workers  # the cluster may have more slots
        mean_s = self.mean_s.get(kind, _SHORT_S)
        if mean_s >= _SHORT_S:
            return self.max_workers + 1
        n_ahead = int(self.max_workers * _AHEAD_S / max(mean_s, 1e-6))
        return max(4 * self.max_workers + 4, min(_GIVEN_MAX, n_ahead))

    def calls(self) -> Calls:
        if self.client is None:
            self.client = Cluster(nodes=1, slots=self.max_workers)
            self.pid = os.getpid()
        return self.client._functions()

    @property
    def is_of_a_fork(self) -> bool:
        """Whether another process gave its calls, which this one would wait for without end."""
        return self.client is not None and self.pid != os.getpid()

    @property
    def n_given(self) -> int:
        """How many calls the cluster has."""
        return len(self.with_cluster)

    def submit(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallFuture:
        with self.changed:
            if self.why_broken is not None:
                raise BrokenExecutor(self.why_broken)
            if self.is_shut_down:
                raise RuntimeError(_AFTER_SHUTDOWN)
            if _is_exiting:
                raise RuntimeError(_AFTER_EXIT)
            future = CallFuture(self.calls(), self.pool)
            self.waiting.append(_Waiting(future, fn, args, kwargs))
        self.go_on()
        return future

    def go_on(self) -> None:
        """Give as many calls to the cluster as there is room for."""
        while True:
            call: _Waiting | None = None
            try:
                with self.changed:
                    if not self.waiting:
                        break
                    call = self.waiting[0]
                    if not call.future.cancelled() and self.n_given >= self.given_max(call.kind):
                        break
                    self.waiting.popleft()
                    if not call.future.set_running_or_notify_cancel():
                        continue
                    began, n_given = time.monotonic(), self.n_given + 1
                    call.future.add_done_callback(functools.partial(self.on_done, began, n_given, call.kind))
                    self.with_cluster.add(id(call.future))
                    self.given.add(call.future)
                self.calls().give(call.future, call.fn, call.args, call.kwargs)
            except BaseException as error:
                if call is not None and not (self.waiting and self.waiting[0] is call):
                    call.future._settle(None, error)
                if is_for_caller(error):
                    raise
            del call
        with self.changed:
            self.changed.notify_all()

    def on_done(self, began: float, n_given: int, kind: tuple[object, str], future: Future[Any]) -> None:
        took_s = (time.monotonic() - began) * min(1.0, self.max_workers / n_given)
        with self.changed:
            self.with_cluster.discard(id(future))
            self.given.discard(future)  # type: ignore[arg-type]
            mean_s = self.mean_s.get(kind, _SHORT_S)
            self.mean_s[kind] = mean_s + (took_s - mean_s) / 4
        self.go_on()

    def on_broken(self, error: BaseException) -> None:
        with self.changed:
            if self.why_broken is None:
                _LOGGER.critical("Exception in initializer:", exc_info=error)
            self.why_broken = _BROKEN
            left = list(self.waiting)
            self.waiting.clear()
        for call in left:
            if call.future.set_running_or_notify_cancel():
                call.future._settle(None, BrokenExecutor(_BROKEN))

    def shut_down(self, cancel_futures: bool) -> None:
        if self.is_of_a_fork:
            return
        with self.changed:
            self.is_shut_down = True
            left = list(self.waiting) if cancel_futures else []
            if cancel_futures:
                self.waiting.clear()
            self.changed.notify_all()
        for call in left:
            call.future.cancel()
            call.future.set_running_or_notify_cancel()

    def end(self) -> None:
        """Wait for the calls that were submitted, and end the cluster."""
        if self.is_of_a_fork:
            return
        with self.changed:
            self.changed.wait_for(lambda: not self.waiting and not self.n_given)
            if self.is_ended:
                return
            self.is_ended = True
            client, self.client = self.client, None
        _states.discard(self)
        if self.is_own and client is not None:
            client.close()

    def give_up(self) -> None:
        """Cancel all calls, also those that run, and end the cluster where it is the executor's own."""
        if self.is_of_a_fork:
            return
        self.shut_down(True)
        with self.changed:
            self.is_ended = True
            client, self.client = self.client, None
            given = list(self.given)
        _states.discard(self)
        if client is None:
            return
        if self.is_own:
            client.close()
            return
        try:
            calls = client._functions()
        except RuntimeError:
            return  # it was closed, and the calls with it
        end = time.monotonic() + _GIVE_UP_S_MAX
        for future in given:
            # One that is on its way to the cluster can be cancelled in a moment.
            while not future.done() and not calls.cancel_begun(future):
                if time.monotonic() > end:
                    return
                time.sleep(0.001)

    def end_later(self) -> None:
        """The same without waiting."""
        self.shut_down(False)
        thread = threading.Thread(target=self.end, name="eyas-ends", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, and waits itself
            self.end()


_states: set[_State] = set()
_is_exiting = False


def _at_exit() -> None:
    """As in the standard library, the interpreter ends when all calls have ended."""
    global _is_exiting
    _is_exiting = True
    for state in list(_states):
        state.shut_down(False)
        state.end()


# Before the threads of the interpreter are waited for; `atexit` comes after that.
getattr(threading, "_register_atexit", lambda _: None)(_at_exit)


class Executor(futures.Executor):
    """Calls functions on a cluster.

    Parameters
    ----------
    max_workers : how many calls run at once; default: as many as there are processors.
    mp_context : is not used; it stands where `ProcessPoolExecutor` has it.
    initializer, initargs : a function that is called with these once in each worker, before its first call.
    max_tasks_per_child : so many calls, then a worker is replaced by a new one; default: it stays.
    cluster : the cluster to use; default: one of the executor's own, with one node, which ends with the executor.

    As in the standard library, a call that has begun cannot be cancelled. As nowhere there, a worker that dies fails its call alone,
    with `eyas.WorkerLost`.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        cluster: Client | None = None,
    ) -> None:
        if cluster is not None and not isinstance(cluster, Client):
            raise TypeError(f"cluster is {cluster!r}: give an eyas.Cluster, or what eyas.connect gives")
        if max_workers is None:
            max_workers = os.cpu_count() or 1
        elif not isinstance(max_workers, int):
            raise TypeError(f"max_workers is {max_workers!r}: give a whole number")
        elif max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        # As in the standard library.
        if max_tasks_per_child is not None and not isinstance(max_tasks_per_child, int):
            raise TypeError("max_tasks_per_child must be an integer")
        if max_tasks_per_child is not None and max_tasks_per_child <= 0:
            raise ValueError("max_tasks_per_child must be >= 1")
        self._max_workers = max_workers
        pool = Pool(initializer, initargs, lambda error: None, max_tasks_per_child)
        self._state = _State(cluster, max_workers, pool)
        _states.add(self._state)
        weakref.finalize(self, _State.end_later, self._state).atexit = False

    @property
    def _broken(self) -> str | bool:
        return self._state.why_broken or False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function. Gives a future of what it returns."""
        return self._state.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Any,
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Any:
        """Call a function for each element, as the built-in `map` does.

        `chunksize` elements make one call. Errors: as in the standard library.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **more)
        chunks = chunks_of(zip(*iterables), chunksize)
        results = super().map(call_chunk, itertools.repeat(fn), chunks, timeout=timeout, **more)
        return itertools.chain.from_iterable(results)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Wait for the calls that were submitted. After ^C they are ended."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._state.give_up()
        else:
            self.shutdown(wait=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. `wait` for those that were submitted; `cancel_futures`: for those that have begun only. A callback of a
        future does not wait: it would hold up what it waits for.
        """
        self._state.shut_down(cancel_futures)
        client = self._state.client
        if wait and not (client is not None and is_callback_of(client._calls)):
            try:
                self._state.end()
            except KeyboardInterrupt:
                self._state.give_up()
                raise
        else:
            self._state.end_later()
