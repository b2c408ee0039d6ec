"""Clusters: one of this process, or a connection to one that is up."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _ffi
from ._find import find_binary
from ._options import given
from ._values import call_chunk, chunks_of, in_order, parse_bytes
from .errors import EyasError, raise_ours
from .files import File
from .runs import Run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import ClusterOptions
    from .functions import Calls, Context
    from .tables import Table
    from .users import User

T = TypeVar("T")
Self = TypeVar("Self", bound="Client")
Option = "str | int | float | bool | os.PathLike[str] | Iterable[object] | None"

_prepared = threading.Lock()
_is_prepared = False


def _prepare() -> None:
    global _is_prepared
    with _prepared:
        if not _is_prepared:
            try:
                _ffi.prepare(find_binary())
            except _ffi.FfiError as error:
                raise_ours(error)
            _is_prepared = True


def _words(options: Mapping[str, object]) -> list[str]:
    """Options of the command line: `home_wait="5m"` is `--home-wait 5m`, and a list is an option that is given more than once."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (str, int, float, os.PathLike)):
            words.append(f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
        elif isinstance(value, Mapping):
            words += [f"{option}={key}={_several(name, of)}" for key, of in value.items()]
        elif isinstance(value, Iterable):
            words += [f"{option}={one}" for one in value]
        else:
            raise TypeError(
                f"{name} is a {type(value).__name__}: give a text, a number, a path or a list of these"
            )
    return words


def _several(name: str, value: object) -> str:
    """Values of a parameter: one as it is, several with commas between them."""
    if isinstance(value, (str, os.PathLike)) or not isinstance(value, Iterable):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    values = [os.fspath(one) if isinstance(one, os.PathLike) else str(one) for one in value]
    with_comma = next((one for one in values if "," in one), None)
    if with_comma is not None:
        raise EyasError(f"{name} has the value {with_comma!r} with a comma, which parts values", "use csv=")
    return ",".join(values)


# What `submit` takes beside the arguments of the function.
_LIMITS = ("resources", "retries", "walltime")
# Options of `eyas map` that say what the tasks are. The others are about a cluster, or about a command line.
_MAP_OPTIONS = frozenset(
    "out shell param csv tsv files range keep_new with container env env_file no_replace cpus task_gpus task_resource"
    " task_memory walltime retries priority label".split()
)


def _refuse_others(options: Mapping[str, object]) -> None:
    for name in options:
        if name.strip("_") not in _MAP_OPTIONS:
            known = ", ".join(sorted(_MAP_OPTIONS))
            raise EyasError(
                f"map has no argument {name!r}; it has {known}",
                "options about the cluster are arguments of eyas.Cluster",
            )


def _line_of(task: Mapping[str, object]) -> str:
    """A line of a task list."""
    import json

    if not isinstance(task, Mapping):
        raise EyasError(f"a task is {task!r}, and not a dictionary", 'write {"command": "sort in > out"}')
    return json.dumps(dict(task), default=_plain) + "\n"


def _plain(value: object) -> object:
    """What a task list may have beside plain JSON."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, File):
        return value.location
    raise TypeError(
        f"a task has {value!r}, a {type(value).__name__}: a task list has texts, numbers and paths"
    )


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a fork: what is below clients is its parent's. Were it dropped here, its connections and its cluster would end there."""
    import ctypes

    for client in list(_clients):
        for held in client._held():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))


os.register_at_fork(after_in_child=_leave_to_parent)


def glob(pattern: str | os.PathLike[str]) -> list[str]:
    """The files that a pattern means, in their order: a path, a pattern, a folder (all files in it), or `@LIST`.

    The rules are those of the command line, so URLs of homes (`s3://bucket/*.fits`) are looked up, too.

    Raises
    ------
    EyasError : there are none.
    """
    _prepare()
    try:
        return _ffi.files_of(os.fspath(pattern))
    except _ffi.FfiError as error:
        raise_ours(error)


class Client:
    """A connection to a cluster. Several threads may use it."""

    _own: _ffi.Cluster | None = None

    def __init__(
        self,
        join: str | os.PathLike[str],
        *,
        spool: str | os.PathLike[str] | None = None,
        worker_memory: int | str | None = None,
        result_max: int | str | None = None,
    ) -> None:
        """Connect to the cluster with that join file.

        spool : a folder that all nodes can read, for large arguments of functions; default: `eyas-calls` beside the join file.
        worker_memory : bytes, or a text such as `"2GiB"`: a worker that has more memory than this after a call is replaced by a new
            one; default: it stays.
        result_max : bytes, or such a text: a function that returns more fails, before more than that is copied; default: there is no
            bound, but for 1 GiB on nodes that cannot write to `spool`.

        Raises
        ------
        ClusterLost : nobody answers there.
        """
        _prepare()
        self._join = Path(join).absolute()
        folder = Path(spool).absolute() if spool is not None else self._join.parent / "eyas-calls"
        # A client removes what is its own.
        self._spool = folder / uuid.uuid4().hex[:8]
        self._worker_bytes_max = (
            None if worker_memory is None else parse_bytes("worker_memory", worker_memory)
        )
        self._result_bytes_max = None if result_max is None else parse_bytes("result_max", result_max)
        self._lock = threading.Lock()
        self._calls: Calls | None = None
        self._is_closed = False
        self._pid = os.getpid()
        try:
            self._connected: _ffi.Connection | None = _ffi.Connection(self._join, self._own)
        except _ffi.FfiError as error:
            raise_ours(error)
        _clients.add(self)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a cluster does not go with calls: connect to it there, by the path that is its `join`"
        )

    def _held(self) -> list[object]:
        """What is below this client, and of this process alone."""
        calls = self._calls
        held = [self._own, self._connected, *([] if calls is None else [calls._connection, calls._ends])]
        return [one for one in held if one is not None]

    def _repr_html_(self) -> str:
        from .notebook import html_of_cluster

        return html_of_cluster(self)

    def _connection(self) -> _ffi.Connection:
        if self._pid != os.getpid():
            raise RuntimeError(
                "this process is a fork of the one that connected: connect again by its join file"
            )
        if self._connected is None:
            raise RuntimeError("the connection to the cluster was closed")
        return self._connected

    @property
    def join(self) -> Path:
        """The path of the cluster's join file, for `eyas.connect` and `--join`."""
        return self._join

    def status(self) -> dict[str, Any]:
        """What the cluster is doing: the fields of `eyas status --json`."""
        import json

        try:
            found: dict[str, Any] = json.loads(self._connection().status())
        except _ffi.FfiError as error:
            raise_ours(error)
        return found

    # ------------------------------------------------------------ programs

    @overload
    def map(
        self,
        command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        files: str | os.PathLike[str] | File | Iterable[str | os.PathLike[str] | File] | Table = (),
        *,
        out: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        shell: bool = False,
        name: str | None = None,
        **options: object,
    ) -> Run: ...

    @overload
    def map(
        self,
        command: Callable[..., T],
        *iterables: Iterable[Any],
        context: object = None,
        chunksize: int = 1,
        name: str | None = None,
        **options: Any,
    ) -> Iterator[T]: ...

    def map(self, command: Any, *files: Any, **options: Any) -> Any:
        """Run a program once for each file, as `eyas map` does; or call a function once for each element, as `map_calls` does.

            run = c.map("wc -c {in}", eyas.glob("sky/*.fits"), out="sizes/{stem}.txt", shell=True)
            for found in c.map(predict, chunks, context=model): ...

        Parameters of a program; those of a function are those of `map_calls`
        ---------------------------------------------------------------------
        command : the program and its words, with `{in}`, `{out}`, `{stem}`, `{name}`, ...; a text is split as a shell splits it,
            and with `shell` it goes to the shell as it is. Words of a list may be paths.
        files : paths, URLs or patterns; each file makes one task. Or a table of pandas, Polars or PyArrow: each row makes one task, its
            columns are holes such as `{sample}`, and those that `files_=["reads"]` names are files.
        out : templates of the outputs' locations.
        name : the name of the run, by which `runs` finds it; default: the command.
        options : options of `eyas map` that say what the tasks are, such as `retries=2`, `env=["PATH"]`, `range="0..100"`,
            `with_=["model.bin"]`, `param={"x": [1, 2]}`.

        Raises
        ------
        EyasError : an option, a template or a file is wrong; nothing was started.
        """
        if callable(command):
            return self.map_calls(command, *files, **options)
        return self._map_program(command, *files, **options)

    def _map_program(
        self,
        command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        files: str | os.PathLike[str] | File | Iterable[str | os.PathLike[str] | File] | Table = (),
        *,
        out: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        shell: bool = False,
        name: str | None = None,
        **options: object,
    ) -> Run:
        from . import tables

        if tables.is_table(files):
            with tables.as_csv(files) as path:
                more: dict[str, Any] = {**options, "csv": path}
                try:
                    return self._map_program(command, out=out, shell=shell, name=name, **more)
                except EyasError as error:
                    if os.fspath(path) not in error.message:
                        raise
                    # Nobody knows the file. Its first line has the names of the columns.
                    raise EyasError(error.message.replace(os.fspath(path), "the table"), error.hint) from None
        if isinstance(command, str):
            try:
                words = [command] if shell else shlex.split(command)
            except ValueError as error:
                raise EyasError(f"the command {command!r} cannot be split into words: {error}") from None
        else:
            try:
                one_or_several = [command] if isinstance(command, os.PathLike) else command
                words = [os.fsdecode(word) for word in one_or_several]
            except TypeError:
                raise TypeError(
                    f"the command is {command!r}: give a text, a list of texts and paths, or a function"
                ) from None
        one_or_more = [files] if isinstance(files, (str, os.PathLike, File)) else files
        names = [name.location if isinstance(name, File) else os.fspath(name) for name in one_or_more]
        outs = [os.fsdecode(one) for one in ([out] if isinstance(out, (str, bytes, os.PathLike)) else out)]
        _refuse_others(options)
        if not "".join(words).strip():
            raise EyasError("the command is empty: name a program")
        said = _words({"out": outs, "shell": shell, **options})
        try:
            number, n_tasks = self._connection().submit_map(name or " ".join(words), said, names, words)
        except _ffi.FfiError as error:
            raise_ours(error)
        return Run(self, number, n_tasks)

    def run(
        self,
        tasks: Iterable[Mapping[str, object]] | str | os.PathLike[str] | Table,
        *,
        name: str | None = None,
    ) -> Run:
        """Run a list of tasks, as `eyas run` does.

        tasks : mappings with the fields of a task list (docs/reference/task-list.md), such as
            `{"id": "a", "command": "sort in > out", "inputs": ["in"], "outputs": {"out": "sorted"}}`; or a table, whose columns are
            these fields; or the path of what `eyas run` takes: a list of tasks or commands, or a workflow.
        name : the name of the run, by which `runs` finds it; default: the path.

        Raises
        ------
        EyasError : a task is wrong; nothing was started.
        """
        from . import tables

        if tables.is_table(tasks):
            tasks = tables.as_tasks(tasks)
        if isinstance(tasks, Mapping):
            raise EyasError("a list of tasks is needed, and this is one task: write [task]")
        try:
            if isinstance(tasks, (str, os.PathLike)):
                number, n_tasks = self._connection().submit_file(name or os.fspath(tasks), tasks)
            else:
                if not isinstance(tasks, Iterable):
                    raise TypeError(
                        f"the tasks are {tasks!r}: give a list of dictionaries, a table or the path of a list"
                    )
                lines, origin = "".join(map(_line_of, tasks)), "tasks of Python"
                number, n_tasks = self._connection().submit_list(name or origin, lines, origin)
        except _ffi.FfiError as error:
            raise_ours(error)
        return Run(self, number, n_tasks)

    def warm(
        self,
        files: str | os.PathLike[str] | File | Iterable[str | os.PathLike[str] | File],
        *,
        nodes: str | Iterable[str] = (),
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Bring files to the nodes before tasks read them, as `eyas warm` does, and wait until they are there.

        Parameters
        ----------
        files : paths, URLs or patterns; of a directory all files below.
        nodes : names of the nodes that get them; default: all that are there.
        timeout : seconds to wait at most.

        Returns
        -------
        How the push ended: the fields of `eyas warm --json`. Not everything fits everywhere: compare `n_there` with `n_wanted`.

        Raises
        ------
        EyasError : a place is wrong; nothing was started. TimeoutError : it goes on.
        """
        one_or_more = [files] if isinstance(files, (str, os.PathLike, File)) else files
        places = [place.location if isinstance(place, File) else os.fspath(place) for place in one_or_more]
        if not places:
            raise EyasError("no file is named: nothing can be pushed")
        names = [nodes] if isinstance(nodes, str) else list(nodes)
        self._check_nodes(names)
        try:
            number = self._connection().push(f"warm {places[0]}", places, names)
        except _ffi.FfiError as error:
            raise_ours(error)
        run = Run(self, number, 0)
        if not run.wait(timeout, check=False):
            raise TimeoutError(f"the push goes on as run {number}: not all files are there after {timeout} s")
        found = next((of for of in self.status()["runs"] if of["run"] == number), None)
        if found is None or found["push"] is None:
            raise EyasError(
                "the cluster does not know any more how the push ended",
                "push again: what is there is not sent",
            )
        pushed: dict[str, Any] = found["push"]
        return pushed

    def _check_nodes(self, names: list[str]) -> None:
        """A push to a node that nobody knows would wait for ever."""
        there = [node["name"] for node in self.status()["executors"]] if names else []
        # Of a cluster that has just been started not all nodes may be there.
        own = dict(self._own.processes()) if self._own is not None else {}
        for name in names:
            if name not in there and name not in own:
                raise EyasError(
                    f"the cluster has no node {name!r}; it has {', '.join(there) or 'none'}",
                    "`status` has the names of all nodes",
                )

    def runs(self, name: str | None = None) -> list[Run]:
        """The runs that the cluster knows, or those of a name, the newest last: also those that another program has started."""
        known = [of for of in self.status()["runs"] if name is None or of["name"] == name]
        return [Run(self, of["run"], of["n_tasks"]) for of in sorted(known, key=lambda of: int(of["run"]))]

    # ------------------------------------------------------------ users

    def users(self) -> list[User]:
        """All users of the cluster with what they may do and what they have of it, its owner first, as `eyas user list`."""
        from .users import users_of

        try:
            return users_of(self._connection().users())
        except _ffi.FfiError as error:
            raise_ours(error)

    def add_user(
        self,
        name: str,
        out: str | os.PathLike[str] | None = None,
        *,
        rights: str | Iterable[str] | None = None,
        weight: int | None = None,
    ) -> Path:
        """Let a user in, as `eyas user add` does. Gives the path of the join file that is their key.

        Parameters
        ----------
        name : letters, digits and . _ - @ +
        out : the file to write; default: `NAME.json`. It must not exist.
        rights : some of `"submit"`, `"see"`, `"cancel"`, `"operate"`, or `"none"`; default: `"submit"`.
        weight : the user's part of the cluster while others want it, too; default: 1.

        Raises
        ------
        EyasError : the name is wrong or known, the file is there, or this is not the connection of the cluster's owner.
        """
        from .users import rights_in_words, within_weights

        path = Path(f"{name}.json" if out is None else out).absolute()
        try:
            self._connection().add_user(name, path, rights_in_words(rights), within_weights(weight))
        except _ffi.FfiError as error:
            raise_ours(error)
        return path

    def set_user(
        self, name: str, *, rights: str | Iterable[str] | None = None, weight: int | None = None
    ) -> User:
        """Change what a user may do, or their part of the cluster, as `eyas user set` does. What is not named stays.

        Raises
        ------
        EyasError : there is no such user, or a value is wrong.
        """
        from .users import rights_in_words, users_of, within_weights

        if rights is None and weight is None:
            raise EyasError("nothing is named that could be changed: give rights or a weight")
        try:
            said = self._connection().set_user(name, rights_in_words(rights), within_weights(weight))
        except _ffi.FfiError as error:
            raise_ours(error)
        return next(user for user in users_of(said) if user.name == name)

    def remove_user(self, name: str) -> None:
        """Take a user's key back, as `eyas user remove` does: their connections are closed, and what they have submitted goes on.

        Raises
        ------
        EyasError : there is no such user.
        """
        try:
            self._connection().remove_user(name)
        except _ffi.FfiError as error:
            raise_ours(error)

    # ------------------------------------------------------------ functions

    def _functions(self) -> Calls:
        self._connection()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the cluster was closed")
            if self._calls is None:
                from .functions import Calls

                self._calls = Calls(
                    self._join, self._spool, self._worker_bytes_max, self._result_bytes_max, self._own
                )
            return self._calls

    def submit(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        resources: Mapping[str, Any] | None = None,
        retries: int = 0,
        walltime: float | None = None,
        **kwargs: Any,
    ) -> Future[T]:
        """Call a function as a task. Gives a future of what it returns.

        Parameters
        ----------
        args, kwargs : values; a `File` arrives as the path of a local copy, a future as its result, a `Context` as its value.
        resources : what the call holds while it runs: `cpus`, `gpus` (parts of one, too: 0.5), `memory` (`"2GiB"`), and
            named resources of the cluster such as `{"licence": 1}`.
        retries : further attempts after an exception.
        walltime : seconds after which the call is ended.

        The future's errors: what the function raised, with the traceback there as its cause; `WorkerLost`, where the process that ran
        it ended; `TaskFailed` for the rest. A call that is cancelled while it runs is ended.
        """
        return self._functions().submit(
            fn, args, kwargs, resources=resources, retries=retries, walltime=walltime
        )

    def context(self, maker: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Context:
        """A value that each worker makes once and keeps: a model, an index, a connection.

        maker, args, kwargs : what makes it. A `File` among the arguments arrives as the path of a local copy, which is there while it is
            made. Where the file has changed, the value is made anew.

        The context is an argument of calls, or a name that their functions use, and arrives as the value. A call whose context cannot be
        made raises what the maker raised; the next call tries again. Workers let the value go when the context is dropped, by `drop` or `del`,
        and, where `worker_memory` bounds them, when nothing else is left to let go.
        """
        return self._functions().context(maker, args, kwargs)

    def map_calls(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        context: object = None,
        chunksize: int = 1,
        name: str | None = None,
        **options: Any,
    ) -> Iterator[T]:
        """Call a function once for each element, as the built-in `map` does; gives the results in order. A loop over them that is left
        before its end, by `break` or an error, cancels the other calls, unless they have a name.

        context : one further argument of all calls, behind those of the iterables: a `Context` arrives as its value, and so does
            anything else.
        chunksize : so many elements are one task, for functions that take less than a millisecond.
        name : the calls are a run of that name, which goes on where this client ends or is killed, unless the cluster ends with it.
            `connect(...).runs(name)[-1].results()` gives their results to any client. It is given as a whole, so futures among the
            arguments are waited for. Large values and results stay in `spool` until the cluster has forgotten the run (`eyas forget`,
            `--keep-runs`) and another map with a name is given.
        options : those of `submit`.
        """
        calls = self._map_calls(fn, iterables, context, chunksize, options, name)
        return in_order(calls, chunksize, go_on=name is not None)

    def _map_calls(
        self,
        fn: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        context: object,
        chunksize: int,
        options: Mapping[str, Any],
        name: str | None = None,
    ) -> deque[Future[Any]]:
        if not isinstance(chunksize, int) or chunksize < 1:
            raise ValueError(f"chunksize is {chunksize!r}: give a whole number above 0")
        if not iterables:
            raise TypeError("map_calls has nothing to call the function with: give it an iterable")
        if name is not None and not (isinstance(name, str) and name):
            raise TypeError(f"name is {name!r}: give a text, by which the run is found")
        last = () if context is None else (context,)
        if chunksize == 1 and name is None:
            return deque(self.submit(fn, *args, *last, **options) for args in zip(*iterables))
        calls = self._functions()
        limits = {name: options[name] for name in _LIMITS if name in options}
        named = {name: value for name, value in options.items() if name not in _LIMITS}
        chunks = chunks_of(zip(*iterables), chunksize)
        if name is None:
            return deque(
                calls.submit(call_chunk, (fn, chunk, last, named), {}, named_after=fn, **limits)
                for chunk in chunks
            )
        each: Iterator[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
        if chunksize == 1:
            each = ((fn, (*args, *last), named) for (args,) in chunks)
        else:
            each = ((call_chunk, (fn, chunk, last, named), {}) for chunk in chunks)
        return deque(calls.submit_named(name, each, fn, **limits))

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """End the connection. Calls whose results nobody has are cancelled; runs of programs, and of calls with a name, go on."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()
        self._connected = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    join: str | os.PathLike[str],
    *,
    spool: str | os.PathLike[str] | None = None,
    worker_memory: int | str | None = None,
    result_max: int | str | None = None,
) -> Client:
    """Connect to a cluster that is up, by its join file (see `Client`)."""
    return Client(join, spool=spool, worker_memory=worker_memory, result_max=result_max)


class Cluster(Client):
    """A cluster of this process. It ends with the `with` block, with `close`, or with the process."""

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
        """Start a cluster.

            with eyas.Cluster(provider="slurm", nodes=(0, 20), walltime="1h", partition="long") as c: ...

        Parameters
        ----------
        nodes : how many nodes; the fewest and the most, `(0, 20)` or `"0..20"`, where they come and go with the work; default: 1, or all
            hosts that `provider` names.
        slots : how many tasks a node runs at once; default: its processors.
        cache : the size of each node's cache, such as `"2GiB"`.
        worker_memory, result_max, spool : as of `connect`. The default of `spool` is a folder of this cluster, of nodes elsewhere one in the user's
            folder for state, which they have to share.
        options : `provider` says where the nodes come from; default: they are processes of this machine. `eyas.ClusterOptions` names
            this and all others, such as `placement="max-cache-hit"`, `dir="folder"`.

        Raises
        ------
        EyasError : an option is wrong.
        ClusterLost : the cluster could not be started.
        """
        _prepare()
        said: dict[str, object] = {"nodes": nodes, "slots": slots, "cache": cache, **options}
        try:
            self._own = _ffi.Cluster.start(given(said), sys.executable)
        except _ffi.FfiError as error:
            raise_ours(error)
        try:
            super().__init__(
                self._own.join(), spool=spool, worker_memory=worker_memory, result_max=result_max
            )
            if spool is None:
                self._spool = self._own.spool()
        except BaseException:
            self._own.end()
            raise

    def __repr__(self) -> str:
        return (
            f"<eyas.Cluster in {os.fspath(self._own.dir())}>" if self._own is not None else "<eyas.Cluster>"
        )

    def processes(self) -> dict[str, int]:
        """The processes of the cluster: the name of each part, and its process id."""
        assert self._own is not None
        return dict(self._own.processes())

    def close(self) -> None:
        """End the cluster and all that runs on it. Warns of nodes elsewhere that may be left."""
        super().close()
        assert self._own is not None
        if self._pid != os.getpid():
            return
        try:
            left = self._own.end()
        except _ffi.FfiError as error:
            raise_ours(error)
        for sentence in left:
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)
