"""A backend for joblib: its parallel loops, and those of scikit-learn, run on a cluster.

import eyas.joblib
from joblib import Parallel, delayed, parallel_config

Parallel(n_jobs=2, backend="eyas")(delayed(abs)(n) for n in range(4))       # a cluster of this process
with parallel_config(backend="eyas", cluster=c, n_jobs=-1):                 # one of your own, all its slots
    search.fit(x, y)
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

try:
    from joblib import cpu_count, register_parallel_backend
    from joblib._parallel_backends import (
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
    )

    if not hasattr(ParallelBackendBase, "submit"):
        raise ImportError("joblib is older than 1.5")
except ImportError as error:
    raise ImportError("joblib is not installed, or is older than 1.5: pip install 'eyas[joblib]'") from error

from . import _worker
from ._loops import Batch, Begin
from .cluster import Client, Cluster
from .futures import Executor

__all__ = ["EyasBackend"]

# What joblib tells every backend, and is about other ones: how arrays are mapped, and how processes are started.
_NOT_OURS = {"verbose", "context", "max_nbytes", "temp_folder", "mmap_mode"}

# Who asks for all slots of a cluster waits no longer than this for its nodes.
_NODES_WAIT_S_MAX = 60.0


class _OwnCluster:
    """The cluster of this process, made at its first use. It has as many slots as a loop has wanted, and ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._slots = 0
        self._pid = 0
        self._key = ""

    def of_slots(self, n_slots: int) -> tuple[Cluster, str]:
        """The cluster, with as many slots at least, and the path of a file with this process's key for `multiprocessing`. A cluster
        that has too few slots goes on with what it has, and a larger one is made.
        """
        with self._lock:
            if self._cluster is None or self._pid != os.getpid() or self._slots < n_slots:
                self._slots = max(n_slots, cpu_count())
                self._cluster = Cluster(nodes=1, slots=self._slots)
                self._pid = os.getpid()
                # Only this user may read it, and no task has it in its words.
                self._key = str(self._cluster.join.parent / "manager-key")
                with open(os.open(self._key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(multiprocessing.current_process().authkey)
            return self._cluster, self._key


_own = _OwnCluster()


def _is_in_call() -> bool:
    """Whether this process runs calls of functions on a node."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == _worker.__name__


def _slots_of(cluster: Client) -> int:
    """How many tasks a cluster runs at once. The nodes of one that has just been started are waited for."""
    n_nodes = 1
    if isinstance(cluster, Cluster):
        n_nodes = max(1, sum(name.startswith("node") for name in cluster.processes()))
    end = time.monotonic() + _NODES_WAIT_S_MAX
    while True:
        slots = [node["slots"] for node in cluster.status()["executors"]]
        if len(slots) >= n_nodes or (slots and time.monotonic() > end):
            return sum(slots)
        if time.monotonic() > end:
            raise RuntimeError(
                f"the cluster has had no node for {_NODES_WAIT_S_MAX:.0f} s: give n_jobs as a number"
            )
        time.sleep(0.01)


class EyasBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the calls of a `joblib.Parallel` as tasks of a cluster.

    Parameters, of `joblib.parallel_config` or of `joblib.Parallel`:

    cluster : an `eyas.Cluster`, or what `eyas.connect` gives; default: a cluster of this process, which later loops use again.
    initializer, initargs : a function that is called with these once in each worker, before its first call.
    inner_max_num_threads : threads of the libraries below a call; default: the processors of this machine, shared by `n_jobs`.

    `n_jobs=-1` is all slots of the cluster that is given, or all processors of this machine. A loop inside a call that asks for this
    backend without a cluster is run by its call alone, whose slot it has. Objects of a `multiprocessing.Manager` may be arguments where no
    cluster is given.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._workers: Executor | None = None

    def _cluster(self, options: dict[str, Any]) -> Client | None:
        cluster = options.get("cluster")
        if cluster is not None and not isinstance(cluster, Client):
            raise TypeError(f"cluster is {cluster!r}: give an eyas.Cluster, or what eyas.connect gives")
        return cluster

    # joblib has no types, and what its base class returns is taken for `None`.
    def effective_n_jobs(self, n_jobs: int | None) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """How many calls run at once where `n_jobs` are asked for."""
        return self._n_jobs(n_jobs, self._cluster(self.backend_kwargs))

    def _n_jobs(self, n_jobs: int | None, cluster: Client | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if cluster is None and _is_in_call():
            return 1
        if cluster is None and multiprocessing.current_process().daemon:
            if n_jobs != 1:
                warnings.warn(
                    "eyas-backed parallel loops cannot be in a daemonic process of multiprocessing, setting n_jobs=1",
                    stacklevel=3,
                )
            return 1
        if n_jobs > 0:
            return n_jobs
        n_slots = cpu_count() if cluster is None else _slots_of(cluster)
        return max(n_slots + 1 + n_jobs, 1)

    def configure(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, n_jobs: int = 1, parallel: Any = None, prefer: Any = None, require: Any = None, **options: Any
    ) -> int:
        """Prepare for a loop, or for all loops of a `with Parallel(...)`. Gives how many calls run at once."""
        options = {
            **self.backend_kwargs,
            **{name: of for name, of in options.items() if name not in _NOT_OURS},
        }
        unknown = sorted(set(options) - {"cluster", "initializer", "initargs"})
        if unknown:
            raise TypeError(
                f"the backend eyas has no option {unknown[0]!r}; it has cluster, initializer, initargs"
            )
        cluster = self._cluster(options)
        n_jobs = self._n_jobs(n_jobs, cluster)
        if n_jobs == 1 and cluster is None:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        n_threads = self.inner_max_num_threads
        if n_threads is None and "OMP_NUM_THREADS" not in os.environ:
            n_threads = max(cpu_count() // n_jobs, 1)
        initializer = options.get("initializer"), tuple(options.get("initargs", ()))
        key = None
        if cluster is None:
            cluster, key = _own.of_slots(n_jobs)
        pickled = cloudpickle.dumps(initializer, protocol=5)
        begin = Begin(self._prepare_worker_env(n_jobs), n_threads, key, pickled)
        self._workers = Executor(n_jobs, initializer=begin, cluster=cluster)
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        """Give a batch of calls to the cluster; `callback` is called with its future when that is done."""
        workers = self._workers
        try:
            future = workers.submit(Batch(func)) if workers is not None else None
        except RuntimeError:
            if self._workers is workers:
                raise
            future = None
        if future is None:
            # The loop was ended meanwhile, by another thread.
            future = Future()
            future.cancel()
        elif callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch, by its future."""
        return out.result()

    def terminate(self) -> None:
        """The end of a loop. The workers stay for the next one."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown(wait=False)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """End all calls, also those that run."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers._state.give_up()
        if ensure_ready:
            self.configure(
                n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self.parallel._backend_kwargs
            )


register_parallel_backend("eyas", EyasBackend)
