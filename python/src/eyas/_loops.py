"""What workers do that run loops of joblib, before their first call and after each one."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Begin:
    """The beginning of a worker.

    Parameters
    ----------
    variables : variables that limit threads. Libraries read them when they are loaded.
    n_threads : the same for a worker that has loaded numpy before, where `threadpoolctl` is installed.
    key : a file of this machine with the key of the client's `multiprocessing.Manager`s.
    initializer : the pickle of a function or `None`, and its arguments.
    """

    def __init__(
        self, variables: Mapping[str, str], n_threads: int | None, key: str | None, initializer: bytes
    ) -> None:
        self.variables = variables
        self.n_threads = n_threads
        self.key = key
        self.initializer = initializer
        self._made: tuple[Callable[..., object] | None, tuple[Any, ...]] | None = None

    def _make(self) -> tuple[Callable[..., object] | None, tuple[Any, ...]]:
        if self._made is None:
            has_numpy = "numpy" in sys.modules
            os.environ.update(self.variables)
            if self.n_threads is not None and has_numpy:
                try:
                    from threadpoolctl import threadpool_limits
                except ImportError:
                    pass
                else:
                    threadpool_limits(self.n_threads)
            if self.key is not None:
                multiprocessing.current_process().authkey = Path(self.key).read_bytes()
            # A loop inside a call may ask for our backend.
            from . import joblib  # noqa: F401

            made: tuple[Callable[..., object] | None, tuple[Any, ...]] = pickle.loads(self.initializer)
            self._made = made
        return self._made

    @property
    def func(self) -> Callable[..., object] | None:
        """The initializer, as a `functools.partial` has it: the worker looks at the names of the client's program through it."""
        return self._make()[0]

    def __call__(self) -> None:
        function, arguments = self._make()
        if function is not None:
            function(*arguments)


class Batch:
    """Calls of a loop that make one task. Processes that a loop of loky inside of it has started end with the task, so loky has to start
    new ones in the next task.
    """

    def __init__(self, calls: Callable[[], Any]) -> None:
        self.calls = calls
        # The task has the name of the first function.
        (first, *_), *_ = getattr(calls, "items", None) or [(calls,)]
        self.__name__ = self.__qualname__ = getattr(first, "__name__", "call")

    def __call__(self) -> Any:
        try:
            return self.calls()
        finally:
            loky = sys.modules.get("joblib.externals.loky.reusable_executor")
            executor = getattr(loky, "_executor", None)
            if executor is not None:
                executor.shutdown(wait=True)
