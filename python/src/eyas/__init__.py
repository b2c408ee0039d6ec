"""eyas from Python: programs over files and functions over values, as tasks that go to where their files are.

    import eyas

    with eyas.Cluster(nodes=2, slots=2, cache="1GiB") as c:
        run = c.map("wc -c {in}", eyas.glob("sky/*.fits"), out="sizes/{stem}.txt", shell=True)
        run.wait()
        print(run.report())
        print(c.submit(sum, [1, 2, 3]).result())

`eyas.connect("join.json")` gives the same for a cluster that is up. `eyas.futures.Executor` has the interface of the
standard library's `concurrent.futures`. The wheel also holds the program `eyas`, which `find_binary` finds.
"""

from __future__ import annotations

# What `typing` has, without loading it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._find import find_binary
    from ._options import ClusterOptions
    from .cluster import Client, Cluster, connect, glob
    from .errors import ClusterLost, EyasError, TaskFailed, WorkerLost
    from .files import File
    from .runs import Run, Task
    from .users import User

    __version__: str

__all__ = [
    "Client",
    "Cluster",
    "ClusterLost",
    "ClusterOptions",
    "EyasError",
    "File",
    "Run",
    "Task",
    "TaskFailed",
    "User",
    "WorkerLost",
    "__version__",
    "connect",
    "find_binary",
    "glob",
]

# Where names are from that are loaded when they are used: a program that only looks for the binary, and the workers of
# functions, need nothing of them.
_HOMES = {
    "Client": "cluster",
    "Cluster": "cluster",
    "ClusterLost": "errors",
    "ClusterOptions": "_options",
    "EyasError": "errors",
    "File": "files",
    "Run": "runs",
    "Task": "runs",
    "TaskFailed": "errors",
    "User": "users",
    "WorkerLost": "errors",
    "connect": "cluster",
    "find_binary": "_find",
    "glob": "cluster",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            found: object = version("eyas")
        except PackageNotFoundError:  # run from the source tree, nothing installed
            found = "0+source"
    elif name in _HOMES:
        from importlib import import_module

        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
