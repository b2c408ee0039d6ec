"""A scheduler for Dask: its graphs run on a cluster of eyas.

import dask, eyas.dask

dask.config.set(scheduler=eyas.dask.get)                 # a cluster of this process, made when it is needed
with eyas.futures.Executor(cluster=c) as executor:
    bag.compute(scheduler=executor)                      # a cluster of your own
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from dask._task_spec import convert_legacy_graph, fuse_linear_task_spec
from dask.core import flatten
from dask.local import get_async
from dask.optimization import cull
from dask.utils import ensure_dict

from .futures import Executor

__all__ = ["get"]

_lock = threading.Lock()
_own: Executor | None = None


def _own_executor() -> Executor:
    """The executor of this process, made at its first use. It ends with the interpreter."""
    global _own
    with _lock:
        if _own is None:
            _own = Executor()
        return _own


def get(
    dsk: Mapping[Any, Any],
    keys: Any,
    *,
    executor: Executor | None = None,
    optimize: bool = True,
    **options: Any,
) -> Any:
    """The results of `keys` in a Dask graph, nested as `keys` are.

    Parameters
    ----------
    executor : where tasks run; without it on a cluster of this process with a slot for each of its processors.
    optimize : leave out what no key needs, and make one task of a chain of tasks.
    options : those of `dask.local.get_async`, such as `callbacks`, `chunksize` and `rerun_exceptions_locally`.

    The errors are those of the tasks. It is tested with Dask's own tests for schedulers (`dask.utils_test.GetFunctionTestMixin`).
    """
    executor = executor or _own_executor()
    options.pop("num_workers", None)
    options.pop("pool", None)
    graph = ensure_dict(getattr(dsk, "__dask_graph__", lambda: dsk)())
    if optimize:
        wanted = list(flatten([keys]))  # type: ignore[no-untyped-call]
        graph, _ = cull(convert_legacy_graph(graph), wanted)  # type: ignore[no-untyped-call]
        # A task of the cluster takes milliseconds, so a chain is one.
        graph = fuse_linear_task_spec(graph, wanted)  # type: ignore[no-untyped-call]
    return get_async(executor.submit, executor._max_workers, graph, keys, **options)  # type: ignore[no-untyped-call]
