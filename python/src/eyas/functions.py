"""Calls of functions as tasks: how they are packed, given to the cluster, and how their results come back.

Each client has one `Calls`, with two threads: one gives calls to the cluster, many at a time where many wait, and one hears of the
calls that have ended. A call is a task whose program is `eyas._worker`, which each slot of a node keeps.
"""

from __future__ import annotations

import atexit
import base64
import builtins
import ctypes
import dis
import fcntl
import functools
import hashlib
import io
import json
import logging
import os
import pickle
import queue
import re
import shutil
import sys
import threading
import time
import uuid
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor, Future, wait
from operator import attrgetter
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from . import _ffi, _worker
from ._values import Chunk, call_chunk, parse_bytes
from .errors import ClusterLost, TaskFailed, WorkerLost, raise_ours
from .files import File

# A call that is larger than this is a file, which the cluster does not have to remember.
INLINE_BYTES_MAX = 24 << 10
# A value in an argument that is larger than this is a file of its own, which calls share.
SHARED_BYTES_MIN = _worker.SHARED_BYTES_MIN
# The folder of results that are larger than that.
RESULTS = "results"
# The file of a client's folder that says which runs with a name have their files there. Its client has it locked.
NAMED = "named.json"
# Files of the spool that no call needs any more are kept as long as they are no more and no larger together: the same values may come
# again. So many arrays are compared with the files that they were written to.
RECENT_MAX = 256
RECENT_BYTES_MAX = 1 << 30
# So many characters of a function's name are part of the names of its tasks.
NAME_MAX = 50
# What the cluster's numbers have room for.
RETRIES_MAX = AMOUNT_MAX = 2**32 - 1
CPUS_MAX = 4_000_000
WALLTIME_S_MAX = 100 * 365 * 86_400
# So many contexts at most that were dropped are named to workers, which let them go.
DROPPED_MAX = 16
# So many calls at most are given to the cluster at once.
BATCH_MAX = 2000
# Where the standard library tells of callbacks that raise.
_LOGGER = logging.getLogger("concurrent.futures")
# The calls whose thread this is, as `calls`.
_ours = threading.local()


def _nbytes(value: Any) -> int:
    """A size of what is large by itself: text, bytes, arrays. Of other values it is 0."""
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    try:
        size = getattr(value, "nbytes", 0)
    except Exception:
        return 0
    return size if isinstance(size, int) else 0


def _base_name(location: str) -> str:
    """The last part of a location, without the query of a URL: that may be a key, and names are written down."""
    is_of_web = location.lower().startswith(("http://", "https://"))
    path = location.partition("?")[0].partition("#")[0] if is_of_web else location
    return os.path.basename(path.rstrip("/")) or "file"


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass  # it is not there


class Pool:
    """An executor, to its workers: its initializer runs once in each of them. `on_broken` is called where it raises."""

    def __init__(
        self,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        on_broken: Callable[[BaseException], None],
        calls_max: int | None,
    ) -> None:
        self.on_broken = on_broken
        self.calls_max = calls_max
        self.told = None
        if initializer is not None:
            self.told = uuid.uuid4().hex, cloudpickle.dumps((initializer, initargs), protocol=5)


# What is no file, and not large by itself, whatever it holds.
_NEVER_LARGE = frozenset(
    (int, float, bool, type(None), tuple, dict, list, set, type, FunctionType, BuiltinFunctionType, CodeType)
)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, where code keeps the name of the file that it is from."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is CodeType:
            # cloudpickle leaves it out, and a traceback shows it.
            reduced: Any = self.dispatch_table[CodeType](obj)
            make, fields = reduced
            return make, tuple(obj.co_filename if field == "<dynamic-code>" else field for field in fields)
        return super().reducer_override(obj)


# Where Python keeps what a function's names mean, of which cloudpickle takes these along, too.
_NAMES_OF_MODULES = ("__package__", "__name__", "__path__", "__file__")
# Builtins through which a function may use names that are not in its code.
_REACHES_ALL = frozenset(("eval", "exec", "globals", "vars", "locals", "dir", "compile"))
_MISSING: Any = object()


def _names_used(code: CodeType) -> frozenset[str] | None:
    """The names of the program that code uses; `None`: it may change what they mean."""
    names: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname.endswith("_GLOBAL") or step.opname == "LOAD_NAME":
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                return None
            names.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found = _names_used(inner)
            if found is None:
                return None
            names |= found
    return frozenset(names) if names.isdisjoint(_REACHES_ALL) else None


class _PickledFunctions:
    """Pickles of functions of the program itself, which go with their calls by value. That takes most of the time of a submission, and is
    done once for a function that uses modules and builtins only, as long as these, and the function, are the same.
    """

    def __init__(self) -> None:
        # The function's code, the names that it uses, what these were, and its pickle.
        self._known: weakref.WeakKeyDictionary[
            FunctionType, tuple[CodeType, frozenset[str] | None, tuple[Any, ...] | None, bytes | None]
        ] = weakref.WeakKeyDictionary()

    def pickle_of(self, function: FunctionType) -> bytes | None:
        """`None`: it uses more than that, or does not travel by value."""
        if function.__module__ != "__main__" or function.__closure__ is not None:
            return None
        code = function.__code__
        known = self._known.get(function)
        names = known[1] if known is not None and known[0] is code else _names_used(code)
        uses = self._uses(function, names) if names is not None else None
        if known is not None and known[0] is code and known[2] == uses:
            return known[3]
        pickled = None
        if uses is not None:
            file = io.BytesIO()
            try:
                _Pickler(file, protocol=5).dump(function)
                pickled = file.getvalue() if file.tell() < SHARED_BYTES_MIN else None
            except Exception:
                pass  # whoever pickles the call hears of it
        self._known[function] = code, names, uses, pickled
        return pickled

    def _uses(self, function: FunctionType, names: frozenset[str]) -> tuple[Any, ...] | None:
        """All that the pickle depends on beside the code; `None`: that may change without being seen here."""
        if function.__defaults__ or function.__kwdefaults__ or function.__dict__:
            return None
        if getattr(function, "__type_params__", ()) or cloudpickle.list_registry_pickle_by_value():
            return None
        try:
            hints = tuple(function.__annotations__.items())
        except Exception:
            return None  # Python 3.14 finds what they mean only now
        if not all(type(hint) is str or hint is None or _is_builtin_type(hint) for _, hint in hints):
            return None
        means = function.__globals__
        used = []
        for name in sorted(names):
            value = means.get(name, _MISSING)
            if value is _MISSING:
                if not hasattr(builtins, name):
                    return None
            elif type(value) is not ModuleType or sys.modules.get(value.__name__) is not value:
                return None
            used.append(value)
        told = function.__name__, function.__qualname__, function.__doc__, hints
        # cloudpickle takes along which parts of packages are loaded.
        return (*told, *used, *map(means.get, _NAMES_OF_MODULES), len(sys.modules))


def _is_builtin_type(value: Any) -> bool:
    return type(value) is type and value.__module__ == "builtins"


_functions = _PickledFunctions()


class _Packer(_Pickler):
    """Pickles a call. Files and large values go into `inputs`: names in the sandbox, and locations. Futures go into `futures`; their
    results follow in a pickle of their own.

    files : the folder of files in the sandbox.
    inputs : what the pickle before this one has put there.
    """

    def __init__(
        self, file: io.BytesIO, spool: Spool, files: str = "files", inputs: dict[str, str] | None = None
    ) -> None:
        super().__init__(file, protocol=5)
        self._spool = spool
        self._files = files
        self.inputs: dict[str, str] = dict(inputs or ())
        self._names = {location: name for name, location in self.inputs.items()}
        # Whatever has files that the call needs.
        self.needs: list[_Stored | _Kept | Context] = []
        # Futures with their numbers, by their identities.
        self.futures: dict[int, tuple[int, Future[Any]]] = {}
        # Large values with their numbers, by their identities, which no other value can have while these are here.
        self._large: dict[int, tuple[int, Any]] = {}

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is MethodType and _is_found_by_name(obj):
            # By its object and its name: cloudpickle would take its function along.
            return obj.__reduce__()
        if type(obj) is FunctionType:
            pickled = _functions.pickle_of(obj)
            if pickled is not None:
                return _worker.function_of, (pickled,)
        return super().reducer_override(obj)

    def persistent_id(self, value: Any) -> Any:
        # This is asked of everything in a call, which is mostly what stands first here.
        kind = type(value)
        if kind in _NEVER_LARGE or (kind is str and len(value) < SHARED_BYTES_MIN):
            return None
        if kind is File:
            name = self._names.get(value.location)
            if name is None:
                name = f"{self._files}/{len(self.inputs)}/{_base_name(value.location)}"
                self.inputs[name] = value.location
                self._names[value.location] = name
            return "file", name
        if isinstance(value, Future):
            return "result", self.futures.setdefault(id(value), (len(self.futures), value))[0]
        if kind is Context:
            if value._spool.is_cleared:
                raise ValueError("a context is of a cluster that was closed: make it again with `context`")
            if not value._finalizer.alive:
                raise ValueError("a context was dropped: make it again with `context`")
            self.inputs.update(value._inputs)
            self.needs.append(value)
            return "context", (value._name, value._files)
        if kind is _Stored:
            needed: _Stored | _Kept = value
        elif _nbytes(value) >= SHARED_BYTES_MIN:
            needed = self._spool.keep(value)
        else:
            return None
        self.needs.append(needed)
        name = f"objects/{needed.path.name}"
        self.inputs[name] = str(needed.path)
        # Two equal values are one file, and still two values.
        return "object", (name, self._large.setdefault(id(value), (len(self._large), value))[0])


def _is_found_by_name(method: MethodType) -> bool:
    """Whether its object has the method under its function's name. A lambda, a decorator's inner function and `super().run` are not
    found so, or something else is.
    """
    try:
        found = getattr(method.__self__, method.__name__, None)
    except Exception:
        return False
    return type(found) is MethodType and found == method


def _layout(value: Any) -> tuple[Any, ...] | None:
    """Where an array of plain numbers is in memory, and how: two of one layout and of the same bytes are pickled alike."""
    if not _worker.is_plain_array(value):
        return None
    if not (value.flags.c_contiguous or value.flags.f_contiguous):
        return None
    address = value.__array_interface__["data"][0]
    return address, value.dtype, value.shape, value.strides, value.flags.writeable


class _Written:
    """A file that an array was written to; its bytes stand at the end."""

    def __init__(self, kept: _Kept, n_bytes: int) -> None:
        numpy = sys.modules["numpy"]
        mapped = _worker.map_file(kept.path)
        self.kept = weakref.ref(kept)
        self._bytes = numpy.frombuffer(mapped, dtype="u1", offset=len(mapped) - n_bytes)
        self._compare = ctypes.CDLL(None).memcmp
        self._compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def has(self, address: int) -> bool:
        """Whether the bytes at the address are the same."""
        ours = self._bytes.__array_interface__["data"][0]
        return int(self._compare(address, ours, self._bytes.nbytes)) == 0


class _Kept:
    """A file of the spool. It goes with the last who needs it: a call that has not ended, a context, or the spool, which has the
    last ones.
    """

    __slots__ = ("__weakref__", "digest", "n_bytes", "path")

    def __init__(self, path: Path, digest: str, n_bytes: int) -> None:
        self.path = path
        self.digest = digest
        self.n_bytes = n_bytes
        weakref.finalize(self, _remove, path).atexit = False


class Spool:
    """A folder of values that are too large to be part of a task, by the digests of their pickles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_cleared = False
        self._lock = threading.Lock()
        self._n_made = 0
        # Files that are there, by their digests.
        self._made: weakref.WeakValueDictionary[str, _Kept] = weakref.WeakValueDictionary()
        # Those that were used last, whoever needs them.
        self._recent: OrderedDict[str, _Kept] = OrderedDict()
        self._recent_bytes = 0
        # Files of arrays, by their layouts. To compare an array with its file takes a tenth of the time of a digest.
        self._written: OrderedDict[tuple[Any, ...], _Written] = OrderedDict()
        # How many contexts have each name.
        self._n_contexts: Counter[str] = Counter()
        # Names of contexts that were dropped: as they come, which may be at any moment, and those that workers are told of.
        self.gone: deque[str] = deque()
        self._dropped: deque[str] = deque(maxlen=DROPPED_MAX)

    def has_context(self, name: str) -> None:
        """Note a context of that name, which goes into `gone` when it is dropped."""
        with self._lock:
            self._n_contexts[name] += 1
            if name in self._dropped:
                self._dropped.remove(name)

    def dropped(self) -> tuple[str, ...]:
        """The names of contexts that workers are to let go, the last ones that were dropped."""
        with self._lock:
            while self.gone:
                name = self.gone.popleft()
                self._n_contexts[name] -= 1
                if not self._n_contexts[name]:
                    del self._n_contexts[name]
                    self._dropped.append(name)
            return tuple(self._dropped)

    def keep(self, value: Any) -> _Kept:
        """The file with a value, written where it is not there."""
        layout = _layout(value)
        with self._lock:
            known = self._written.get(layout) if layout is not None else None
        kept = known.kept() if known is not None else None
        if layout is not None and known is not None and kept is not None and known.has(layout[0]):
            with self._lock:
                self._use(kept)
            return kept
        parts = _worker.write_object(value, cloudpickle.dumps)
        kept = self.write(parts)
        last = parts[-1]
        if layout is not None and isinstance(last, memoryview) and last.nbytes == value.nbytes:
            with self._lock:
                self._written[layout] = _Written(kept, last.nbytes)
                while len(self._written) > RECENT_MAX:
                    self._written.popitem(last=False)
        return kept

    def write(self, parts: Iterable[bytes | memoryview]) -> _Kept:
        parts = list(parts)
        digest = hashlib.blake2b(digest_size=20)
        for part in parts:
            digest.update(part)
        name = digest.hexdigest()
        with self._lock:
            kept = self._made.get(name)
            if kept is None:
                # A file that is made again has another name: the one before it may be removed at any moment.
                self._n_made += 1
                path = self.folder / f"{name}-{self._n_made}"
                part_path = path.with_suffix(".part")
                try:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    with open(part_path, "wb") as file:
                        file.writelines(parts)
                    part_path.rename(path)
                except OSError as error:
                    _remove(part_path)
                    why = f"large values of calls cannot be written, {error.strerror}: make room, or give another spool"
                    raise OSError(error.errno, why, str(self.folder)) from None
                kept = _Kept(path, name, sum(memoryview(part).nbytes for part in parts))
                self._made[name] = kept
            self._use(kept)
        return kept

    def _use(self, kept: _Kept) -> None:
        """Note a use of a file, and leave others to those who need them."""
        if self._recent.pop(kept.digest, None) is None:
            self._recent_bytes += kept.n_bytes
        self._recent[kept.digest] = kept
        gone: list[_Kept] = []
        while len(self._recent) > 1 and (
            self._recent_bytes > RECENT_BYTES_MAX or len(self._recent) > RECENT_MAX
        ):
            gone.append(self._recent.popitem(last=False)[1])
            self._recent_bytes -= gone[-1].n_bytes
        if gone:
            # What is mapped stays on the disk.
            left = [layout for layout, written in self._written.items() if written.kept() in gone]
            for layout in left:
                del self._written[layout]

    def clear(self) -> None:
        """Remove what was written."""
        with self._lock:
            self.is_cleared = True
            made = list(self._made.values())
            self._written.clear()
            self._recent.clear()
        for kept in made:
            _remove(kept.path)
        shutil.rmtree(self.folder / RESULTS, ignore_errors=True)
        try:
            self.folder.rmdir()
        except OSError:
            pass  # it was never made


class _Stored:
    """The result of a call in a file that a node made. The file goes with the last who needs it, unless it stays."""

    __slots__ = ("__weakref__", "_lock", "_mapped", "_value", "path")

    def __init__(self, path: Path, stays: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._mapped: memoryview | None = None
        self._value: list[Any] = []
        if not stays:
            weakref.finalize(self, _remove, path).atexit = False

    def hold(self) -> None:
        """Have the file's bytes, as its folder goes."""
        with self._lock:
            if self._mapped is None and not self._value:
                self._mapped = _worker.map_file(self.path, may_write=True)

    def value(self) -> Any:
        """What the call returned; arrays in it may be changed. Errors: ClusterLost, the file is not there."""
        try:
            self.hold()
        except OSError as error:
            raise ClusterLost(
                f"the result of a call cannot be read from {self.path}: {error.strerror}"
            ) from None
        with self._lock:
            if self._mapped is not None:
                self._value.append(_worker.read_object(self._mapped))
                self._mapped = None
            return self._value[0]


class Context:
    """A value that each worker makes once and keeps: what `Client.context` gives. As an argument of a call, or as a name that its
    function uses, it arrives as the value. The workers keep it as long as this is there, or until `drop`.
    """

    __slots__ = ("__weakref__", "_files", "_finalizer", "_inputs", "_name", "_needs", "_spool")

    def __init__(
        self, spool: Spool, maker: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not callable(maker):
            raise TypeError(f"{maker!r} makes no context: give a function, and its arguments behind it")
        packed = io.BytesIO()
        packer = _Packer(packed, spool, f"contexts/{uuid.uuid4().hex[:8]}")
        packer.dump((maker, args, kwargs))
        if packer.futures:
            raise TypeError("a context is made of values and files: give the future's result")
        self._spool = spool
        kept = spool.write([packed.getvalue()])
        self._needs = [*packer.needs, kept]
        self._name = f"contexts/{kept.path.name}"
        self._files = [name for name in packer.inputs if name.startswith("contexts/")]
        self._inputs = {**packer.inputs, self._name: str(kept.path)}
        spool.has_context(self._name)
        # It is called at any moment, so it takes no lock.
        self._finalizer = weakref.finalize(self, spool.gone.append, self._name)
        self._finalizer.atexit = False

    def drop(self) -> None:
        """Have the workers let the value go: each does before its next call. Calls that were submitted with it still have it; no further
        ones may. `del` does the same, when no call needs it any more.
        """
        self._finalizer()

    def __reduce__(self) -> Any:
        raise TypeError("a context is made by workers: it goes with calls, and cannot be pickled otherwise")


class _Packed:
    """A call that has been pickled, and what it waits for.

    Errors: what pickling raises.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        spool: Spool,
        named_after: Callable[..., Any],
    ) -> None:
        # It becomes a part of the name of a file.
        name = str(getattr(named_after, "__name__", ""))[:NAME_MAX]
        self.name = "".join(c if c.isprintable() and c != "/" else "_" for c in name) or "call"
        self.label = _name_of(named_after)
        # Ends the id of its task, so that whoever asks for results knows how many a call that failed has not got.
        self.several = f"x{len(args[1])}" if fn is call_chunk else ""
        self.limits: dict[str, object] = {}
        self._spool = spool
        packed = io.BytesIO()
        packer = _Packer(packed, spool)
        packer.dump((fn, args, kwargs))
        self.text = packed.getvalue()
        self.inputs = packer.inputs
        self.needs = packer.needs
        self.futures = [future for _, future in packer.futures.values()]
        # The pickle of their results.
        self.results = b""

    def add_results(self) -> None:
        """Take the results of the futures, which are done. Errors: theirs."""
        if not self.futures:
            return
        packed = io.BytesIO()
        packer = _Packer(packed, self._spool, inputs=self.inputs)
        packer.dump([_result_of(future) for future in self.futures])
        if packer.futures:
            raise TypeError("the result of a future has a future in it: give that one as the argument")
        self.results = packed.getvalue()
        self.inputs = packer.inputs
        self.needs += packer.needs


class Condition(threading.Condition):
    """A condition that ^C leaves free. The standard library's is entered by a function of Python, and ^C in it, when it has the lock,
    leaves the lock taken for ever: the threads that bring results would wait for it.
    """

    __enter__ = property(attrgetter("_lock.__enter__"))  # pyright: ignore[reportAssignmentType]
    __exit__ = property(attrgetter("_lock.__exit__"))  # pyright: ignore[reportAssignmentType]


class CallFuture(Future):  # type: ignore[type-arg]
    """The result of a call."""

    def __init__(self, calls: Calls, pool: Pool | None) -> None:
        super().__init__()
        self._condition = Condition()
        self._calls: Calls | None = calls
        self._pool = pool
        self._call: dict[str, object] | None = None
        # Whatever has files that the call needs.
        self._needs: list[_Stored | _Kept | Context] = []
        # The name of the function.
        self._label = ""
        self._id: str | None = None
        self._run: int | None = None
        # Whether somebody cancels it. Where it ends in that way, it is no failure.
        self._is_unwanted = False
        # ^C that came while the call was packed.
        self._interrupt: BaseException | None = None
        # Whether it goes on when its client ends.
        self._goes_on = False

    @property
    def task(self) -> str | None:
        """The id of the call's task, for `eyas logs` and `eyas explain`; `None` before it was packed."""
        return self._id

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned. A large result is brought here when it is asked for. Errors: RuntimeError, a callback of a call
        waits for another call: results come on the thread that it holds up.
        """
        self._refuse_to_wait(timeout)
        value = super().result(timeout)
        return value.value() if type(value) is _Stored else value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised; `None`: nothing. Errors: as of `result`."""
        self._refuse_to_wait(timeout)
        return super().exception(timeout)

    def _refuse_to_wait(self, timeout: float | None) -> None:
        calls = self._calls
        if timeout is None and is_callback_of(calls) and not self.done():
            raise RuntimeError(
                f"a callback of a call waits for the call {self._id or self._label or 'behind it'}, which would never end: "
                "submit calls in callbacks, and wait for them elsewhere"
            )

    def _raise_interrupt(self) -> None:
        """To whoever submits the call. A callback that raises it would keep those behind it from being called."""
        error, self._interrupt = self._interrupt, None
        if error is not None:
            raise error

    def _invoke_callbacks(self) -> None:
        if getattr(_ours, "calls", None) is None:
            super()._invoke_callbacks()  # type: ignore[misc]
            return
        # Whatever one raises, `SystemExit` too, the others are called, and the thread goes on.
        for callback in self._done_callbacks:  # type: ignore[attr-defined]
            try:
                callback(self)
            except BaseException:
                _LOGGER.exception("exception calling callback for %r", self)

    def _repr_html_(self) -> str:
        from .notebook import html_of_call

        return html_of_call(self)

    def cancel(self) -> bool:
        """Cancel the call; where it runs already, it is ended. `False`: it had ended, or cannot be cancelled any more."""
        if super().cancel():
            if self._pool is None:
                self._tell_cancelled()
            return True
        calls = self._calls
        # Calls of an executor follow the standard library: what has begun goes on.
        return calls is not None and self._pool is None and calls.cancel_begun(self)

    def _give_up(self) -> None:
        """Mark a call that was given to the cluster as cancelled."""
        with self._condition:
            if self._state == "RUNNING":
                # The standard library cancels only what waits.
                self._state = "PENDING"
        if super().cancel():
            self._tell_cancelled()

    def _tell_cancelled(self) -> None:
        """Tell those who wait with `wait` or `as_completed`, once. In the standard library, the one who would have run it does."""
        with self._condition:
            if self._state == "CANCELLED":
                self.set_running_or_notify_cancel()

    def _settle(self, value: Any, error: BaseException | None) -> None:
        self._calls = None
        self._call = None
        self._needs = []
        try:
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(value)
        except Exception:
            pass  # it was cancelled meanwhile


# Names that are none of a resource, and those that are meant.
_MISNAMED = {"cpu": "cpus", "cores": "cpus", "slots": "cpus", "gpu": "gpus", "mem": "memory", "ram": "memory"}


def _in_parts(name: str, value: object) -> int:
    """Thousandths of cpus or gpus."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= CPUS_MAX:
        parts = round(value * 1000)
        if parts > 0 and abs(parts - value * 1000) < 1e-6:
            return parts
    raise ValueError(f"resources has {value!r} {name}: give a number above 0, to three digits such as 0.125")


def _limits(resources: Mapping[str, Any] | None, retries: int, walltime: float | None) -> dict[str, object]:
    if resources is not None and not isinstance(resources, Mapping):
        raise TypeError(
            f"resources is {resources!r}: give a dictionary such as {{'cpus': 2, 'memory': '2GiB'}}"
        )
    if not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:
        raise ValueError(f"retries is {retries!r}: give a whole number, from 0 to {RETRIES_MAX}")
    if walltime is not None and (
        not isinstance(walltime, (int, float)) or not 1e-9 <= walltime <= WALLTIME_S_MAX
    ):
        raise ValueError(f"walltime is {walltime!r}: give seconds, as a number above 0 and below a century")
    named = dict(resources or ())
    cpu_parts = _in_parts("cpus", named.pop("cpus", 1))
    gpus = named.pop("gpus", None)
    memory = named.pop("memory", None)
    for name, amount in named.items():
        if not isinstance(name, str):
            raise ValueError(f"resources names {name!r}: give a text")
        if name in _MISNAMED:
            raise ValueError(f"resources names {name!r}: write {_MISNAMED[name]!r}")
        if not isinstance(amount, int) or not 1 <= amount <= AMOUNT_MAX:
            raise ValueError(
                f"resources has {amount!r} of {name!r}: give a whole number above 0, to {AMOUNT_MAX}"
            )
    return {
        "cpus": -(-cpu_parts // 1000),
        "cpu_parts": cpu_parts if cpu_parts % 1000 else 0,
        "gpu_parts": 0 if gpus is None else _in_parts("gpus", gpus),
        "resources": named,
        "memory_bytes": None if memory is None else parse_bytes("memory", memory),
        "walltime_ns": None if walltime is None else int(walltime * 1e9),
        "retries": retries,
    }


def _python_path() -> str | None:
    """What a worker has to be told to find this package; `None`: it is installed beside its Python."""
    import sysconfig

    place = Path(__file__).resolve().parent.parent
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    return None if place in installed else str(place)


# What calls need that go on without their client.
_going_on: list[_Stored | _Kept | Context] = []


def _close(calls: weakref.ref[Calls]) -> None:
    left = calls()
    if left is not None:
        left.close()


class Calls:
    """The calls of a client."""

    def __init__(
        self,
        join: Path,
        spool: Path,
        worker_bytes_max: int | None,
        result_bytes_max: int | None = None,
        own: _ffi.Cluster | None = None,
    ) -> None:
        self._join = join
        # The cluster of this process that the calls go to, which is looked after as long as somebody has it.
        self._own = weakref.ref(own) if own is not None else None
        self._spool = Spool(spool)
        self._results = str(spool / RESULTS)
        self._worker_bytes_max = worker_bytes_max
        self._result_bytes_max = result_bytes_max
        # The runs that another client may ask for, and the open file that names them.
        self._named: list[int] = []
        self._named_file: io.TextIOWrapper | None = None
        name = uuid.uuid4()
        self._name = name.hex[:8]
        # What runs are submitted under, of which the thread that hears of ends is told.
        self._listener = name.int & 0xFFFF_FFFF_FFFF_FFFF
        self._n_calls = 0
        self._n_batches = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()
        # Calls that the cluster has, or is to have, by the id of their task.
        self._open: dict[str, CallFuture] = {}
        # Calls that wait for the futures in them.
        self._waiting: set[CallFuture] = set()
        # The run that calls are added to while it goes on.
        self._run: int | None = None
        # The latest run that has ended.
        self._ended_run = -1
        self._gone: BaseException | None = None
        # Names of functions that have returned something large. The next one stays where it is made until somebody asks for it.
        self._large: set[str] = set()
        self._stored: weakref.WeakSet[_Stored] = weakref.WeakSet()
        self._to_give: queue.SimpleQueue[CallFuture | None] = queue.SimpleQueue()
        try:
            # Only the client makes it, so a node that has it shares it.
            os.makedirs(self._results)
        except OSError:
            pass  # values that need it say so
        # What modules are looked for in, of what `sys.path`, and when it was found.
        self._path: tuple[tuple[str, ...], float, list[str]] = (), 0.0, []
        self._env = [("EYAS_WARM", "4")]
        python_path = _python_path()
        if python_path is not None:
            self._env.append(("PYTHONPATH", python_path))
        try:
            self._connection = _ffi.Connection(join, own)
            self._ends = _ffi.Ends(join, self._listener)
        except _ffi.FfiError as error:
            raise_ours(error)
        self._threads = [
            threading.Thread(target=work, name=f"eyas-{name}", daemon=True)
            for name, work in (("gives", self._give), ("hears", self._hear))
        ]
        for thread in self._threads:
            thread.start()
        # A program that ends without `close` leaves no calls whose results nobody can have.
        self._at_exit = functools.partial(_close, weakref.ref(self))
        atexit.register(self._at_exit)

    # ------------------------------------------------------------ from the client

    def context(self, maker: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Context:
        return Context(self._spool, maker, args, kwargs)

    def submit(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        resources: Mapping[str, Any] | None = None,
        retries: int = 0,
        walltime: float | None = None,
        pool: Pool | None = None,
        named_after: Callable[..., Any] | None = None,
    ) -> CallFuture:
        future = CallFuture(self, pool)
        limits = _limits(resources, retries, walltime)
        self.give(future, fn, args, kwargs, limits, named_after)
        return future

    def give(
        self,
        future: CallFuture,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        limits: dict[str, object] | None = None,
        named_after: Callable[..., Any] | None = None,
    ) -> None:
        """Give a call to the cluster when the futures in it are done. Its values are taken as they are now. `named_after`: the function
        whose name its task has, where that is another one.
        """
        if self._gone is not None:
            raise ClusterLost(f"the cluster takes no calls any more: {self._gone}")
        try:
            call = _Packed(fn, args, kwargs, self._spool, named_after or fn)
        except Exception as error:
            # As the standard library does: the future has the error.
            future._settle(None, error)
            return
        call.limits = limits if limits is not None else _limits(None, 0, None)
        waits = call.futures
        if not waits:
            self._finish(future, call)
            future._raise_interrupt()
            return
        with self._lock:
            self._waiting.add(future)
        left = [len(waits)]
        lock = threading.Lock()
        # Futures keep what is called when they are done, so that must keep neither them nor the call.
        both = [(future, call)]
        del call, args, kwargs

        def one_done(_: Any) -> None:
            with lock:
                left[0] -= 1
                if left[0]:
                    return
            _in_turn(self._finish, *both.pop())

        for one in waits:
            one.add_done_callback(one_done)
        future._raise_interrupt()

    def _module_path(self) -> list[str]:
        """Where modules are looked for, as whole paths."""
        entries, now = tuple(sys.path), time.monotonic()
        if self._path[0] != entries or now - self._path[1] > 1.0:
            found = [os.path.abspath(entry) for entry in sys.path if os.path.isdir(entry or ".")]
            self._path = entries, now, found
        return self._path[2]

    def submit_named(
        self,
        name: str,
        given: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]],
        named_after: Callable[..., Any],
        *,
        resources: Mapping[str, Any] | None = None,
        retries: int = 0,
        walltime: float | None = None,
    ) -> list[CallFuture]:
        """Give calls to the cluster all at once, as a run of that name, which goes on without this client. Waits for the futures in
        them. Errors: those of packing, and of these futures; nothing was given then.
        """
        limits = _limits(resources, retries, walltime)
        if self._gone is not None:
            raise ClusterLost(f"the cluster takes no calls any more: {self._gone}")
        batch: list[CallFuture] = []
        for fn, args, kwargs in given:
            call = _Packed(fn, args, kwargs, self._spool, named_after)
            call.limits = limits
            wait(call.futures)
            future = CallFuture(self, None)
            future._goes_on = self._own is None
            self._pack(future, call)
            batch.append(future)
        if not batch:
            return batch
        for future in batch:
            self._begin(future)
        self._remove_forgotten()
        try:
            calls = [future._call for future in batch if future._call is not None]
            ends = self._ends
            run, is_heard = self._connection.submit_calls(name, calls, None, "", self._listener)
            assert run is not None
        except BaseException as error:
            self._fail(batch, error)
            if isinstance(error, _ffi.FfiError):
                raise_ours(error)
            raise
        self._have_run(batch, run, ends if is_heard else None)
        with self._lock:
            self._named.append(run)
            self._note_named()
        return batch

    def _have_run(self, batch: list[CallFuture], run: int, heard_by: _ffi.Ends | None) -> None:
        """The cluster has calls as tasks of a run, of whose ends it tells those who listened when it was given to them."""
        with self._lock:
            for future in batch:
                future._run = run
                future._call = None
            # Others that listen since then may have been too late.
            if self._ends is not heard_by:
                self._ends.follow(run)

    def _cluster(self) -> tuple[str, set[int]]:
        """The cluster's id, and the runs that it knows. Errors: FfiError, it does not answer."""
        status = json.loads(self._connection.status())
        return status["cluster"], {of["run"] for of in status["runs"]}

    def _note_named(self) -> None:
        """Write down which runs have their files in this client's folder."""
        try:
            if self._named_file is None:
                file = open(self._spool.folder / NAMED, "w")
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._named_file = file
            said = {"join": str(self._join), "cluster": self._cluster()[0], "runs": self._named}
            self._named_file.seek(0)
            self._named_file.write(json.dumps(said) + "\n")
            self._named_file.flush()
        except (OSError, _ffi.FfiError):
            pass  # there is no such folder, or nobody who could ask for the runs

    def _remove_forgotten(self) -> None:
        """Remove the folders of clients that are gone, if the cluster has forgotten all runs whose files are there."""
        said: list[tuple[Path, io.TextIOWrapper, dict[str, Any]]] = []
        for path in self._spool.folder.parent.glob(f"*/{NAMED}"):
            try:
                file = open(path, "r+")
            except OSError:
                continue  # another client removes it
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                said.append((path.parent, file, json.load(file)))
            except (OSError, ValueError):
                file.close()  # its client is there, or was killed in the middle
        try:
            # Asked behind the files, so it knows of each run that is in them.
            cluster, known = self._cluster() if said else ("", set())
            for folder, _, of in said:
                is_ours = (of.get("join"), of.get("cluster")) == (str(self._join), cluster)
                if is_ours and known.isdisjoint(of.get("runs", ())):
                    shutil.rmtree(folder, ignore_errors=True)
        except _ffi.FfiError:
            pass  # the submission that follows says so
        finally:
            for _, file, _ in said:
                file.close()

    def _finish(self, future: CallFuture, call: _Packed) -> None:
        """Give a call to the cluster whose futures are done."""
        with self._lock:
            self._waiting.discard(future)
        try:
            self._pack(future, call)
        except BaseException as error:
            future._settle(None, error)
            future._interrupt = error if is_for_caller(error) else None
            return
        with self._lock:
            gone = self._gone
            if gone is None:
                self._to_give.put(future)
        if gone is not None:
            future._settle(None, ClusterLost(f"the cluster takes no calls any more: {gone}"))

    def _pack(self, future: CallFuture, call: _Packed) -> None:
        """Make the task of a call whose futures are done."""
        with self._lock:
            self._n_calls += 1
            future._id = task = f"{call.name}-{self._name}-{self._n_calls}{call.several}"
        call.add_results()
        pool = future._pool
        told = pool.told if pool is not None else None
        bounds = pool.calls_max if pool is not None else None, self._worker_bytes_max
        stays = call.label in self._large
        result = self._result_path(task)
        known = sys.version_info[:2], self._module_path(), told, bounds, self._result_bytes_max
        text = pickle.dumps(
            (*known, self._spool.dropped(), result, stays, call.results, call.text), protocol=5
        )
        if len(text) > INLINE_BYTES_MAX:
            kept = self._spool.write([text])
            call.needs.append(kept)
            call.inputs["call"] = str(kept.path)
            word = "@call"
        else:
            word = "+" + base64.b64encode(text).decode()
        future._needs, future._label = call.needs, call.label
        future._call = {
            "id": task,
            "command": [sys.executable, "-m", "eyas._worker", self._name, word],
            "inputs": list(call.inputs.items()),
            "outputs": [(_worker.RESULT, result)] if stays else [],
            "env": self._env,
            "label": call.label,
            **call.limits,
        }

    def _result_path(self, task: str) -> str:
        # `Path` would take a fifth of the time of a submission.
        return f"{self._results}/{task}"

    def cancel_begun(self, future: CallFuture) -> bool:
        """Cancel a call that the cluster has."""
        task = future._id
        if task is None or future.done():
            return False
        with self._lock:
            run = future._run
            # One that is on its way there is cancelled when it has arrived.
            future._is_unwanted = True
        if run is not None and not self._cancel_task(run, task):
            return False
        with self._lock:
            self._open.pop(task, None)
        future._give_up()
        return True

    def _cancel_task(self, run: int, task: str) -> bool:
        try:
            return self._connection.cancel(run, task) > 0
        except _ffi.FfiError:
            return False

    def close(self) -> None:
        """Cancel what has not ended, and end the threads."""
        if self._pid != os.getpid():
            return
        atexit.unregister(self._at_exit)
        with self._lock:
            self._gone = self._gone or RuntimeError("it was closed")
            left = [*self._waiting, *self._open.values()]
            self._waiting.clear()
            self._open.clear()
        self._to_give.put(None)
        self._threads[0].join()
        runs = {future._run for future in left if future._run is not None and not future._goes_on}
        for future in left:
            if future._goes_on:
                # Its files stay, as nobody lets go of them.
                _going_on.extend(future._needs)
        self._ends.stop()
        if threading.current_thread() is not self._threads[1]:
            self._threads[1].join()
        for run in runs:
            try:
                self._connection.cancel(run, None)
            except _ffi.FfiError:
                break  # the cluster is gone, and the calls with it
        for future in left:
            future._give_up()
        for stored in list(self._stored):
            try:
                stored.hold()
            except OSError:
                pass  # who asks for it hears of it
        # Another client may ask for results of runs that have a name, and these runs may go on.
        if not self._named or self._own is not None:
            self._spool.clear()
        if self._named_file is not None:
            self._named_file.close()

    # ------------------------------------------------------------ the threads

    def _give(self) -> None:
        """The thread that gives calls to the cluster."""
        _ours.calls = self
        while True:
            batch: list[CallFuture] = []
            first = self._to_give.get()
            is_last = first is None
            if first is not None:
                batch.append(first)
            while not is_last and len(batch) < BATCH_MAX:
                try:
                    future = self._to_give.get_nowait()
                except queue.Empty:
                    break
                if future is None:
                    is_last = True
                else:
                    batch.append(future)
            batch = [future for future in batch if self._begin(future)]
            if batch and not is_last:
                try:
                    self._give_batch(batch)
                except ClusterLost as error:
                    self._fail(batch, error)
                except BaseException:
                    self._give_each(batch)
            elif batch:
                for future in batch:
                    future._give_up()
            if is_last:
                return
            # A thread that waits keeps no results.
            first = future = None
            batch.clear()

    def _give_each(self, batch: list[CallFuture]) -> None:
        """Give calls of which one is wrong, so that no other one suffers."""
        for future in batch:
            try:
                self._give_batch([future])
            except BaseException as error:
                self._fail([future], error)

    def _begin(self, future: CallFuture) -> bool:
        """Mark a call as given; `False`: it was cancelled before."""
        with future._condition:
            if future._state == "PENDING":
                future.set_running_or_notify_cancel()
        if future._state != "RUNNING":
            future._tell_cancelled()
            return False
        assert future._id is not None
        with self._lock:
            self._open[future._id] = future
        return True

    def _give_batch(self, batch: list[CallFuture]) -> None:
        calls = [future._call for future in batch if future._call is not None]
        self._n_batches += 1
        token = f"{self._name}-{self._n_batches}"
        ends = self._ends
        try:
            run, is_heard = self._give_calls(calls, token)
        except ClusterLost:
            # A dispatcher that was started again answers to a new connection, and knows the batch by its token.
            run, is_heard = self._give_calls(calls, token)
        self._have_run(batch, run, ends if is_heard else None)
        with self._lock:
            unwanted = [future._id for future in batch if future._is_unwanted]
        for task in unwanted:
            assert task is not None
            self._cancel_task(run, task)

    def _give_calls(self, calls: list[dict[str, object]], token: str) -> tuple[int, bool]:
        """Give calls to the cluster, once for each token. Gives their run, and whether its ends are heard of."""
        submit, into = self._connection.submit_calls, self._run
        try:
            run, is_heard = None, False
            if into is not None:
                run, is_heard = submit("functions", calls, into, token, self._listener)
            if run is None:
                run, is_heard = submit("functions", calls, None, token, self._listener)
                assert run is not None
                with self._lock:
                    self._run = run if run > self._ended_run else None
        except _ffi.FfiError as error:
            raise_ours(error)
        return run, is_heard

    def _fail(self, batch: list[CallFuture], error: BaseException) -> None:
        for future in batch:
            with self._lock:
                self._open.pop(future._id or "", None)
            future._settle(None, error)

    def _hear(self) -> None:
        """The thread that hears of the calls that have ended."""
        _ours.calls = self
        own = self._own
        while True:
            try:
                found = self._ends.next(own() if own is not None else None)
            except _ffi.PartEnded as error:
                self._lose(error)
                return
            except _ffi.FfiError as error:
                if not self._reconnect(error):
                    return
                continue
            if found is None:
                return
            run, ended, is_over = found
            if is_over:
                with self._lock:
                    self._ended_run = max(self._ended_run, run)
                    if self._run == run:
                        self._run = None
            for task in ended:
                with self._lock:
                    future = self._open.pop(task["id"], None)
                if future is not None:
                    self._settle(future, run, task)
                del future
            del found, ended

    def _is_gone(self) -> bool:
        return self._gone is not None

    def _reconnect(self, error: _ffi.FfiError) -> bool:
        """The dispatcher may have been restarted: what it still has to say of the run is asked for again."""
        try:
            if self._is_gone():
                return False
            ends = _ffi.Ends(self._join, self._listener)
            with self._lock:
                if self._is_gone():
                    return False  # it was closed meanwhile, and has stopped the one before this
                self._ends = ends
                for run in {future._run for future in self._open.values()} | {self._run}:
                    if run is not None:
                        ends.follow(run)
            return True
        except _ffi.FfiError:
            self._lose(error)
            return False

    def _lose(self, error: _ffi.FfiError) -> None:
        """The cluster cannot go on: no call that it has will end."""
        with self._lock:
            self._gone = ClusterLost(error.args[0], error.args[1])
            left = list(self._open.values())
            self._open.clear()
        for future in left:
            future._settle(None, self._gone)

    def _settle(self, future: CallFuture, run: int, task: _ffi.EndedTask) -> None:
        if future._is_unwanted and task["state"] == "cancelled":
            future._give_up()
            return
        try:
            value, error = self._outcome(future, run, task)
        except BaseException as broken:
            value, error = None, broken
        future._settle(value, error)

    def _outcome(
        self, future: CallFuture, run: int, task: _ffi.EndedTask
    ) -> tuple[Any, BaseException | None]:
        kind, value, printed = _answer_of(self._connection, run, task)
        if printed and future._pool is not None:
            # As from the processes of the standard library.
            try:
                sys.stdout.write(printed.decode(errors="replace"))
                sys.stdout.flush()
            except (OSError, ValueError, AttributeError):
                pass  # this program has closed it, and wants its results all the same
        if kind == b"R":
            # A large one was printed where the node has no such folder, so none stays there.
            if future._label in self._large:
                # It is empty, as the result was small.
                _remove(Path(self._result_path(task["id"])))
            return value, None
        if kind == b"F":
            self._large.add(future._label)
            stored = _Stored(Path(value), future._goes_on)
            self._stored.add(stored)
            return stored, None
        raised = _raised(value)
        if kind == b"I" and future._pool is not None:
            future._pool.on_broken(raised)
            broken = BrokenExecutor("the initializer of the executor raised an exception in a worker")
            broken.__cause__ = raised
            return None, broken
        return None, raised


def _answer_of(connection: _ffi.Connection, run: int, task: _ffi.EndedTask) -> tuple[bytes, Any, bytes]:
    """The kind of what the worker answered, what it said, and what the function printed. Errors: TaskFailed, there is no answer."""
    if task["state"] == "cancelled":
        raise TaskFailed(task["id"], run, "it was cancelled")
    head, tail, total = task["stdout"]
    said = head + tail
    if total > len(said):
        try:
            said = connection.printed_whole(run, task["id"], task["attempt"])
        except _ffi.FfiError as error:
            raise_ours(error)
    at = len(_worker.ANSWER)
    kind = said[at : at + 1] if said.startswith(_worker.ANSWER) else b""
    if not kind or (task["state"] == "failed" and kind in b"RF"):
        stderr = (task["stderr"][1] or task["stderr"][0]).decode(errors="replace")
        reason = task["reason"] or _no_reason(len(said), total)
        if task["ended_itself"]:
            raise WorkerLost(task["id"], run, reason, stderr)
        raise TaskFailed(task["id"], run, reason, stderr)
    try:
        value, printed = pickle.loads(base64.b64decode(said[at + 1 :]))
    except Exception as error:
        if kind in b"RF":
            # Python 3.11 and newer has notes.
            note = getattr(error, "add_note", lambda _: None)
            note(f"what the function of task {task['id']} returned cannot be unpickled by this program")
            raise
        words = (task["stderr"][1] or task["stderr"][0]).decode(errors="replace").rstrip()
        why = (
            f"what the function raised cannot be unpickled by this program ({type(error).__name__}: {error})"
        )
        return kind, (RuntimeError(f"{words.rpartition(chr(10))[2]}; {why}"), words), b""
    return kind, value, printed


def _no_reason(n_kept: int, n_printed: int) -> str:
    """Why there is no answer, where the cluster does not say it. Of what the task printed, so many bytes are there."""
    if n_kept < n_printed:
        return (
            f"what it returned is lost: {n_kept} of the {n_printed} bytes of its answer were kept, as where a disk of the "
            "cluster is full"
        )
    return "it did not say what it returned"


def _raised(answer: tuple[BaseException, Any]) -> BaseException:
    """What a function raised, with the traceback there as its cause."""
    raised, text = answer
    # As the standard library shows what happened in another process.
    from concurrent.futures.process import _RemoteTraceback

    raised.__cause__ = _RemoteTraceback(text)
    return raised


# Ends the id of a call of several elements.
_SEVERAL = re.compile(r"-[0-9]+x([0-9]+)$")


def results_of(
    connection: _ffi.Connection, run: int, task: _ffi.EndedTask
) -> tuple[list[Any], BaseException | None]:
    """What the function of a task returned for each element of the call, and why it returned nothing, where it did not: what it raised;
    `TaskFailed`, it did not come to that; `OSError`, its result cannot be read any more. Errors: LookupError, the task calls no function.
    """
    if task["state"] == "done" and not task["stdout"][0].startswith(_worker.ANSWER):
        raise LookupError(
            f"run {run} calls no functions, so it has no results: `tasks` gives what its programs printed"
        )
    try:
        kind, value, _ = _answer_of(connection, run, task)
        if kind == b"F":
            value = _Stored(Path(value), stays=True).value()
        elif kind != b"R":
            value = _raised(value)
    except (TaskFailed, OSError) as error:
        kind, value = b"E", error
    if kind in b"RF":
        return value if isinstance(value, Chunk) else [value], None
    several = _SEVERAL.search(task["id"])
    return [value] * int(several[1] if several else 1), value


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__qualname__", None)
    return name.encode(errors="replace").decode() if isinstance(name, str) else type(fn).__name__


def _result_of(future: Future[Any]) -> Any:
    """What a future that is done gives to calls. Errors: those of the future."""
    if not isinstance(future, CallFuture):
        return future.result()
    value = Future.result(future)
    # A large one goes from where it was made to where it is needed, unless its cluster was closed.
    return value.value() if type(value) is _Stored and not value.path.exists() else value


_turns = threading.local()


def _in_turn(do: Callable[..., object], *args: Any) -> None:
    """Do it behind what this thread does already. A call that fails ends those that need it, and thousands may stand in a chain."""
    due = getattr(_turns, "due", None)
    if due is not None:
        due.append((do, args))
        return
    _turns.due = due = deque([(do, args)])
    try:
        while due:
            do, args = due.popleft()
            do(*args)
            del args
    finally:
        del _turns.due


def is_callback_of(calls: Calls | None) -> bool:
    """Whether this thread is the one on which results of these calls come, and so calls callbacks."""
    return calls is not None and getattr(_ours, "calls", None) is calls


def is_for_caller(error: BaseException) -> bool:
    """Whether an error is ^C or the like, in a thread of the program, which hears of it there."""
    return not isinstance(error, Exception) and getattr(_ours, "calls", None) is None


__all__ = ["CallFuture", "Calls", "Context", "Pool"]
