"""A scheduler for Dask: its graphs run on a cluster of eyas.

import dask, eyas.dask

dask.config.set(scheduler=eyas.dask.get)                 # a cluster of this process, made when it is needed
with eyas.futures.Executor(cluster=c) as executor:
    bag.compute(scheduler=executor)                      # a cluster of your own
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask.config
from dask._task_spec import convert_legacy_graph, fuse_linear_task_spec
from dask.core import flatten
from dask.local import get_async
from dask.optimization import cull
from dask.utils import ensure_dict

from .cluster import Client, Cluster
from .errors import EyasError
from .futures import Executor

__all__ = ["get"]

# Each task has a folder of its own for temporary files. A shuffle on disk needs one that all tasks have in common: this one, where the
# user names none.
_COMMON = Path(tempfile.gettempdir()) / f"eyas-dask-{uuid.uuid4().hex}"
dask.config.update_defaults({"temporary_directory": str(_COMMON)})
# What the files of a shuffle on disk are called in graphs of bags and of dataframes.
_ON_DISK = ("partd-", "zpartd-")

_lock = threading.Lock()
_own: Executor | None = None


def _own_executor() -> Executor:
    """The executor of this process, made at its first use. It ends with the interpreter."""
    global _own
    with _lock:
        if _own is None:
            _own = Executor()
        return _own


def _prepare_folder(graph: Mapping[Any, Any], client: Client | None) -> None:
    """Makes the folder of a shuffle on disk. Errors: nodes elsewhere would not see it, and the shuffle would lose what tasks write."""
    if dask.config.get("temporary_directory", None) != str(_COMMON):
        return
    names = (key[0] if isinstance(key, tuple) else key for key in graph)
    if not any(isinstance(name, str) and name.startswith(_ON_DISK) for name in names):
        return
    is_here = client is None or (isinstance(client, Cluster) and "node1" in client.processes())
    if not is_here:
        raise EyasError(
            "the graph has a shuffle on disk, and nodes may be on machines that have no folder in common",
            "use shuffle='tasks', or set temporary_directory of Dask to a folder that all nodes share",
        )
    with _lock:
        if not _COMMON.exists():
            _COMMON.mkdir(mode=0o700)
            atexit.register(shutil.rmtree, _COMMON, ignore_errors=True)


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

    The errors are those of the tasks; `EyasError`: the graph has a shuffle on disk, and the nodes may have no folder in common. It is tested with Dask's own tests for schedulers (`dask.utils_test.GetFunctionTestMixin`).
    """
    if "cluster" in options:
        # Dask hands options on that nobody knows, and leaves them out then.
        raise TypeError("get has no cluster: give executor=eyas.futures.Executor(cluster=c)")
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(f"executor is {executor!r}: give executor=eyas.futures.Executor(cluster=c)")
    executor = executor or _own_executor()
    options.pop("num_workers", None)
    options.pop("pool", None)
    graph = ensure_dict(getattr(dsk, "__dask_graph__", lambda: dsk)())
    _prepare_folder(graph, executor._state.client)
    if optimize:
        wanted = list(flatten([keys]))  # type: ignore[no-untyped-call]
        graph, _ = cull(convert_legacy_graph(graph), wanted)  # type: ignore[no-untyped-call]
        # A task of the cluster takes milliseconds, so a chain is one.
        graph = fuse_linear_task_spec(graph, wanted)  # type: ignore[no-untyped-call]
    return get_async(executor.submit, executor._max_workers, graph, keys, **options)  # type: ignore[no-untyped-call]
