"""The process that runs functions on a node: `python -m eyas._worker CLIENT CALL` runs one, and a slot of eyas gives it further ones
of the same client. Another client's program may have other modules of the same names, so it gets a process of its own.

A slot starts it once (`EYAS_WARM`, crates/engine/runner/src/warm.rs) and tells it over a socket of each call: the path of the
task's sandbox, and CALL. What it answers with is printed to standard output, in ASCII, behind `ANSWER`:

    R and base64 of a pickle            what the function returned, and what it printed
    F and base64 of a pickle            the path at the client of the file with what it returned (see `_returned`); and what it printed
    E and base64 of a pickle            the exception that it raised and its traceback as text, and what it printed
    I and base64 of a pickle            the same of the initializer

For those who read what tasks print, what the function printed is on standard error, too, and answers are not shown. CALL is `+` and base64 of a pickle, or `@NAME`: a file in the sandbox has it.
Little is imported here, because each slot waits for it.
"""

from __future__ import annotations

import base64
import fcntl
import io
import mmap
import os
import pickle
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NoReturn

OBJECT_MAGIC = b"EYASOBJ1"
# What answers begin with; `eyas logs` knows it, too (crates/app/cli/src/printed.rs).
ANSWER = b"\x1eeyas-answer "
# A value that is larger than this is a file of its own, where it can be.
SHARED_BYTES_MIN = 64 << 10
# A file that is smaller than this is read, and not mapped.
MAPPED_BYTES_MIN = 256 << 10
# `mmap` has it since Python 3.13.
_MAP_NORESERVE = 0x4000
# The file in the sandbox with what a function returned.
RESULT = ".eyas-result"
# A result that is larger than this is not printed.
PRINTED_RESULT_BYTES_MAX = 1 << 30
# Objects that calls share are kept unpickled as long as they are no larger together.
KEPT_BYTES_MAX = 1 << 30
# Of what a function prints so much is told.
PRINTED_BYTES_MAX = 16 << 10

_objects: OrderedDict[str, tuple[Any, int]] = OrderedDict()
# What contexts made here, with the digests of their files then; the one that was used last stands last.
_contexts: OrderedDict[str, tuple[Any, list[str]]] = OrderedDict()
# Functions that use modules and builtins only, by their pickles. They are not called themselves.
_functions: OrderedDict[bytes, FunctionType] = OrderedDict()
FUNCTIONS_MAX = 64
# The digests of inputs of this call, as far as its node knows them.
_digests: dict[str, str] = {}
# How many calls were done here.
_n_calls = 0
# Added to the status of a call behind which this process ends.
ENDS = 256
# Added to it where the answer follows, which then has so many bytes at most: one wake-up of the slot in place of two.
SAYS = 512
SAID_BYTES_MAX = 64 << 10
# The variables that the slot has told with calls.
told: set[str] = set()
# The initializers that have run here, by the executor that they are of, with the names that they have set in the program.
_begun: dict[str, dict[str, Any]] = {}


class ResultTooLarge(ValueError):
    """A result is larger than it may be."""


class _Bounded:
    """Pickles into memory, of which it takes no more than so many bytes. It stands for `dumps`, as `pickler` of that module does."""

    def __init__(self, pickler: Any, n_max: int) -> None:
        self._pickler, self._n_left, self._n_max = pickler, n_max, n_max
        self._parts: list[bytes] = []

    def _take(self, n: int) -> None:
        self._n_left -= n
        if self._n_left < 0:
            raise ResultTooLarge(
                f"what the function returned is larger than {self._n_max} bytes, which `result_max` allows: "
                "write it to a file, and return the file's path"
            )

    def write(self, part: Any) -> None:
        self._take(memoryview(part).nbytes)
        self._parts.append(bytes(part))

    def __call__(self, value: Any, protocol: int, buffer_callback: Any) -> bytes:
        def note(buffer: pickle.PickleBuffer) -> Any:
            self._take(buffer.raw().nbytes)
            return buffer_callback(buffer)

        self._pickler(self, protocol, buffer_callback=note).dump(value)
        return b"".join(self._parts)


def write_object(value: Any, dumps: Any) -> list[bytes | memoryview]:
    """The parts of a file with one value: a pickle, and its large buffers behind it, each at a multiple of 64 bytes."""
    buffers: list[pickle.PickleBuffer] = []
    text = dumps(value, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = struct.pack(f"<{len(raw) + 2}Q", len(raw), len(text), *(part.nbytes for part in raw))
    parts: list[bytes | memoryview] = [OBJECT_MAGIC, sizes, text]
    at = len(OBJECT_MAGIC) + len(sizes) + len(text)
    for part in raw:
        parts.append(bytes(-at % 64))
        at += -at % 64 + part.nbytes
        parts.append(part)
    return parts


def map_file(path: str | os.PathLike[str], may_write: bool = False) -> memoryview:
    """The bytes of a file; a small one is read, and a large one mapped. What is written to them does not go to the file.

    Python's own `mmap` would keep the file open, and a process may have no more than a thousand files open. No memory is set aside for
    what might be written, as a file may be larger than all memory.
    """
    with open(path, "rb") as file:
        n_bytes = os.fstat(file.fileno()).st_size
        if n_bytes < MAPPED_BYTES_MIN:
            data = bytearray(n_bytes)
            del data[file.readinto(data) :]
            view = memoryview(data)
        else:
            import ctypes
            import weakref

            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
            libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            access = mmap.PROT_READ | (mmap.PROT_WRITE if may_write else 0)
            address = libc.mmap(None, n_bytes, access, mmap.MAP_PRIVATE | _MAP_NORESERVE, file.fileno(), 0)
            if address in (None, ctypes.c_void_p(-1).value):
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), os.fspath(path))
            mapped = (ctypes.c_char * n_bytes).from_address(address)
            weakref.finalize(mapped, libc.munmap, address, n_bytes).atexit = False
            view = memoryview(mapped).cast("B")
    return view if may_write else view.toreadonly()


def read_object(mapped: memoryview) -> Any:
    """The value in such a file. Its buffers are parts of what is mapped."""
    if mapped[:8] != OBJECT_MAGIC:
        raise ValueError("a file with a value is no object of eyas")
    n, n_text = struct.unpack_from("<2Q", mapped, 8)
    sizes = struct.unpack_from(f"<{n}Q", mapped, 24)
    at = 24 + 8 * n
    text = mapped[at : at + n_text]
    at += n_text
    buffers = []
    for size in sizes:
        at += -at % 64
        buffers.append(pickle.PickleBuffer(mapped[at : at + size]))
        at += size
    return pickle.loads(text, buffers=buffers)


def is_plain_array(value: Any) -> bool:
    """Whether it is an array of numpy without Python objects in it."""
    kind = type(value)
    return (kind.__module__, kind.__name__) == ("numpy", "ndarray") and not value.dtype.hasobject


def function_of(pickled: bytes) -> FunctionType:
    """A function of the client's own program, for one call. To unpickle it takes longer than a copy of one that was unpickled before,
    and the copy has names of its own, as if it had just been unpickled.
    """
    made = _functions.get(pickled)
    if made is None:
        made = pickle.loads(pickled)
        _functions[pickled] = made
        if len(_functions) > FUNCTIONS_MAX:
            _functions.popitem(last=False)
    copy = FunctionType(made.__code__, dict(made.__globals__), made.__name__)
    copy.__qualname__, copy.__module__, copy.__doc__ = made.__qualname__, made.__module__, made.__doc__
    copy.__annotations__ = dict(made.__annotations__)
    return copy


def _shared_object(digest: str, path: str) -> Any:
    """An object that several calls have. What no call can change is unpickled once; of all else a call has one that it may change."""
    if digest in _objects:
        _objects.move_to_end(digest)
        return _objects[digest][0]
    mapped = map_file(path, may_write=True)
    value = read_object(mapped)
    if is_plain_array(value):
        value = read_object(mapped.toreadonly())
        if value.flags.writeable:
            # It was pickled without a buffer. A view of what may not be written to cannot be made writable.
            value.flags.writeable = False
            value = value.view()
    elif type(value) not in (bytes, str):
        return value
    _objects[digest] = value, len(mapped)
    while len(_objects) > 1 and sum(size for _, size in _objects.values()) > KEPT_BYTES_MAX:
        _objects.popitem(last=False)
    return value


def _digest_of(file: str) -> str:
    """A digest of what an input is that its node has not kept. Its size and time say too little: many homes tell no time, and tools keep
    the time of what they copy.
    """
    import hashlib

    digest = hashlib.blake2b(digest_size=32)
    with open(file, "rb") as opened:
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _context(name: str, files: list[str]) -> Any:
    """What a context made here; it is made where it is not there, or where a file of it is another one now."""
    found = [_digests.get(file) or _digest_of(file) for file in files]
    known = _contexts.get(name)
    if known is None or known[1] != found:
        _contexts.pop(name, None)
        with open(name, "rb") as file:
            maker, args, kwargs = _Unpickler(file).load()
        known = maker(*args, **kwargs), found
        _contexts[name] = known
    _contexts.move_to_end(name)
    return known[0]


class _Unpickler(pickle.Unpickler):
    """Files, shared objects, contexts and results of other calls stand in a call as marks.

    results : the pickle of the list of results.
    """

    def __init__(self, file: Any, results: bytes = b"") -> None:
        super().__init__(file)
        self._results = _Unpickler(io.BytesIO(results)).load() if results else []
        # Shared objects by their numbers in the call, which may have one twice.
        self._large: dict[int, Any] = {}

    def persistent_load(self, mark: Any) -> Any:
        kind, name = mark
        if kind == "context":
            return _context(*name)
        if kind == "result":
            return self._results[name]
        if kind == "file":
            return os.path.abspath(name)
        name, number = name
        if number not in self._large:
            self._large[number] = _shared_object(os.path.basename(name), os.path.abspath(name))
        return self._large[number]


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        # What has no name to be imported by, such as a class of `__main__`.
        import cloudpickle  # type: ignore[import-untyped]

        dumped: bytes = cloudpickle.dumps(value, protocol=5)
        return dumped


def _returned(value: Any, printed: bytes, output: str | None, aside: str, n_max: int | None) -> bytes:
    """The answer with what a function returned. A large value goes into a file.

    output : the task's output for it, which is empty where the value is small. Without one, it goes to the file `aside` where that one's
        folder is, so that gigabytes are not printed. The output goes there, too.
    n_max : so many bytes at most.
    """
    try:
        parts = write_object(value, pickle.dumps if n_max is None else _Bounded(pickle.Pickler, n_max))
    except ResultTooLarge:
        raise
    except Exception:
        import cloudpickle

        try:
            parts = write_object(
                value, cloudpickle.dumps if n_max is None else _Bounded(cloudpickle.Pickler, n_max)
            )
        except ResultTooLarge:
            raise
        except Exception as error:
            # Python 3.11 and newer has notes.
            note = getattr(error, "add_note", lambda _: None)
            note(
                f"the function returned a {type(value).__name__}, which cannot be pickled: return what can be"
            )
            raise
    is_large = sum(memoryview(part).nbytes for part in parts) >= SHARED_BYTES_MIN
    if output is not None:
        with open(output, "wb") as out:
            out.writelines(parts if is_large else [])
    elif is_large:
        part_path = f"{aside}.{os.getpid()}"
        try:
            with open(part_path, "wb") as out:
                out.writelines(parts)
            os.rename(part_path, aside)
        except OSError:
            is_large = False  # it is printed
            try:
                os.unlink(part_path)
            except OSError:
                pass  # there is no such folder here
            n_bytes = sum(memoryview(part).nbytes for part in parts)
            if n_bytes > PRINTED_RESULT_BYTES_MAX:
                raise ResultTooLarge(
                    f"what the function returned has {n_bytes} bytes, and this node cannot write it to "
                    f"{os.path.dirname(aside)}: give a `spool` that all nodes share, or return less"
                ) from None
    return _said(b"F", aside, printed) if is_large else _said(b"R", value, printed)


def _said(kind: bytes, value: Any, printed: bytes) -> bytes:
    return ANSWER + kind + base64.b64encode(_dumps((value, printed)))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # the function has closed it, or put something else there


# The file without a name that standard output is while a function runs: its descriptor, device and inode. To make one for each call
# would wait for the disk's own journal.
_print_file: tuple[int, int, int] | None = None


def _open_print_file() -> int:
    global _print_file
    if _print_file is not None:
        fd, *file = _print_file
        try:
            stat = os.fstat(fd)
            # A function may have closed it, and the number may be of another file now.
            if [stat.st_dev, stat.st_ino] == file:
                if stat.st_size:
                    os.ftruncate(fd, 0)
                return fd
        except OSError:
            pass
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_APPEND, 0o600)
    except OSError:
        fd = os.memfd_create("printed")
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    stat = os.fstat(fd)
    _print_file = fd, stat.st_dev, stat.st_ino
    return fd


class _Printed:
    """What a function prints: standard output is a file without a name meanwhile."""

    def __init__(self) -> None:
        self._taken: bytes | None = None
        self._fd = _open_print_file()
        os.dup2(self._fd, 1)

    def take(self) -> bytes:
        """What was printed; of much, its end."""
        if self._taken is not None:
            return self._taken
        _flush()
        try:
            size = os.fstat(self._fd).st_size
            printed = os.pread(self._fd, PRINTED_BYTES_MAX, max(0, size - PRINTED_BYTES_MAX)) if size else b""
            if size > PRINTED_BYTES_MAX:
                os.ftruncate(self._fd, 0)
        except OSError:
            printed = b""  # the function has closed it
        self._taken = printed
        try:
            os.dup2(2, 1)
            write_all(2, printed)
        except OSError:
            pass  # the function has closed standard error
        return printed


def _error(kind: bytes, error: BaseException, printed: bytes) -> bytes:
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        # The same for those who read what tasks print.
        write_all(2, text.encode(errors="replace"))
    except OSError:
        pass  # the function has closed standard error
    for shown in _forms(error):
        try:
            answer = _said(kind, (shown, text), printed)
            pickle.loads(base64.b64decode(answer[len(ANSWER) + 1 :]))
            return answer
        except BaseException:
            continue  # it cannot be pickled, or not be made again
    raise AssertionError("a text can be pickled")


def _forms(error: BaseException) -> Iterator[Any]:
    """What may stand for an exception, the most of it first. The last one can be pickled."""
    yield error
    yield _Rebuilt(error)
    if type(error).__module__ == "builtins":
        # Nothing of it is lost but what somebody has hung on it, or given in place of a text.
        yield _Rebuilt(error, is_bare=True)
    try:
        yield RuntimeError(f"{type(error).__name__}: {error}")
    except Exception:
        yield RuntimeError(f"{type(error).__name__}, whose text cannot be made")


class _Rebuilt:
    """An exception whose class takes other arguments than it hands on: it is made again without its `__init__`.

    is_bare : without those of its attributes that cannot be pickled, and with texts in place of such arguments.
    """

    def __init__(self, error: BaseException, is_bare: bool = False) -> None:
        self._error = error
        self._is_bare = is_bare

    def __reduce__(self) -> Any:
        error = self._error
        args, fields = error.args, error.__dict__
        if self._is_bare:
            args = _bare(args)
            fields = {name: value for name, value in fields.items() if _can_go(value)}
        return _rebuild, (type(error), args, fields)


def _bare(value: Any) -> Any:
    """An argument of an exception, or what stands for it where it cannot be pickled. A group has its exceptions in a list."""
    if isinstance(value, BaseException):
        return next(form for form in _forms(value) if _can_go(form))
    if type(value) in (list, tuple):
        return type(value)(map(_bare, value))
    return value if _can_go(value) else repr(value)


def _can_go(value: Any) -> bool:
    """Whether a value can be pickled, and made again."""
    try:
        pickle.loads(_dumps(value))
        return True
    except BaseException:
        return False


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def _globals_of(function: Any) -> dict[str, Any] | None:
    """The names of the client's own program that a function of it sees. It travels with them, so each call has its own."""
    function = getattr(function, "func", function)  # functools.partial
    function = getattr(function, "__func__", function)
    found = getattr(function, "__globals__", None)
    return found if isinstance(found, dict) and getattr(function, "__module__", "") == "__main__" else None


def _bytes_held() -> int:
    """How much memory this process has."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _holds_too_much(bytes_max: int) -> bool:
    """Whether this process has more memory than it may, also when what nobody needs has gone: first what calls share, and last the
    contexts, the one that was not used for longest first.
    """
    if _bytes_held() <= bytes_max:
        return False
    import ctypes
    import gc

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while _objects or _contexts:
        if _objects:
            _objects.clear()
        else:
            _contexts.popitem(last=False)
        gc.collect()
        if trim is not None:
            trim(0)
        if _bytes_held() <= bytes_max:
            return False
    return True


def _is_worn(bounds: tuple[int | None, int | None]) -> bool:
    """Whether this process has done as many calls, or has as much memory, as it may."""
    calls_max, bytes_max = bounds
    return (calls_max is not None and _n_calls >= calls_max) or (
        bytes_max is not None and _holds_too_much(bytes_max)
    )


def end_fork(error: BaseException | None) -> NoReturn:
    """Ends a process that a function has forked and that has come back from it. The answer is that of the process that was called."""
    status = 0 if error is None else 1
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
    _flush()
    os._exit(status & 255)


def answer_to(word: str) -> tuple[int, bytes]:
    """Does a call. Gives the exit status of its task, and what is printed for the client."""
    global _n_calls
    printed = _Printed()
    kind = b"E"
    bounds: tuple[int | None, int | None] = None, None
    result_max: int | None = None
    sandbox = os.getcwd()
    pid = os.getpid()
    try:
        if word.startswith("@"):
            with open(word[1:], "rb") as file:
                text = file.read()
        else:
            text = base64.b64decode(word[1:])
        version, path, pool, bounds, result_max, dropped, aside, stays, results, call = pickle.loads(text)
        if version != sys.version_info[:2]:
            theirs, ours = (".".join(map(str, of)) for of in (version, sys.version_info[:2]))
            raise RuntimeError(
                f"the client has Python {theirs}, and {sys.executable} on this node is {ours}: use the same"
            )
        sys.path.extend(entry for entry in path if entry not in sys.path)
        for name in dropped:
            _contexts.pop(name, None)
        if pool is not None and pool[0] not in _begun:
            kind = b"I"
            initializer, arguments = pickle.loads(pool[1])
            before = dict(_globals_of(initializer) or ())
            initializer(*arguments)
            after = _globals_of(initializer) or {}
            _begun[pool[0]] = {
                name: value
                for name, value in after.items()
                if name not in before or before[name] is not value
            }
            kind = b"E"
        function, args, kwargs = _Unpickler(io.BytesIO(call), results).load()
        if pool is not None and _begun[pool[0]]:
            for one in (function, *args, *kwargs.values()):
                names = _globals_of(one)
                if names is not None:
                    names.update(_begun[pool[0]])
        value = function(*args, **kwargs)
        if os.getpid() != pid:
            end_fork(None)
        output = os.path.join(sandbox, RESULT) if stays else None
        status, answer = 0, _returned(value, printed.take(), output, aside, result_max)
    except BaseException as error:
        if os.getpid() != pid:
            end_fork(error)
        status, answer = 1, _error(kind, error, printed.take())
    function = args = kwargs = value = None
    _n_calls += 1
    return status + (ENDS if _is_worn(bounds) else 0), answer


def write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _do(word: str, out: int) -> int:
    status, answer = answer_to(word)
    write_all(out, answer)
    return status


def _receive(connection: socket.socket, n: int) -> bytes:
    parts = []
    while n > 0:
        part = connection.recv(n)
        if not part:
            os._exit(0)  # the slot is gone
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def next_task(connection: socket.socket) -> bytes:
    """Waits for a task of the slot. Ends this process where the slot is gone."""
    (n,) = struct.unpack("<I", _receive(connection, 4))
    return _receive(connection, n)


def begin_task(said: bytes) -> tuple[list[str], dict[str, str]]:
    """Takes the sandbox and the variables of a task that `next_task` gave. Gives its own words, and the digests of inputs whose bytes
    are known, by their names.
    """
    sandbox, n_words, *texts = said.decode(errors="surrogateescape").split("\0")[:-1]
    words, behind = texts[: int(n_words)], texts[int(n_words) :]
    os.chdir(sandbox)
    n_variables = behind.index("")
    variables = dict(variable.split("=", 1) for variable in behind[:n_variables])
    for name in told - variables.keys():
        os.environ.pop(name, None)
    told.update(variables)
    os.environ.update(variables)
    for name in ("EYAS_SANDBOX", "TMPDIR", "PWD"):
        os.environ[name] = sandbox
    if "tempfile" in sys.modules:
        setattr(sys.modules["tempfile"], "tempdir", None)  # noqa: B010, it is found again
    return words, dict(zip(behind[n_variables + 1 :: 2], behind[n_variables + 2 :: 2]))


def serve(connection: socket.socket, out: int, says: bool) -> None:
    """Does what a slot asks for, until it closes the socket.

    says : the slot takes short answers together with the exit status, and wakes once for both.
    """
    while True:
        words, digests = begin_task(next_task(connection))
        _digests.clear()
        _digests.update(digests)
        status, answer = answer_to(words[0])
        os.chdir("/")
        if says and len(answer) <= SAID_BYTES_MAX:
            connection.sendall(struct.pack("<iI", status + SAYS, len(answer)) + answer)
        else:
            write_all(out, answer)
            connection.sendall(struct.pack("<i", status))
        if status >= ENDS:
            return


def main() -> int:
    # What functions print must not mix with answers.
    out = os.dup(1)
    os.dup2(2, 1)
    # A function may look for what is beside the client's program, and not beside this one.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    number = os.environ.pop("EYAS_WARM_SOCKET", None)
    says = os.environ.pop("EYAS_WARM_SAYS", None) is not None
    os.environ.pop("EYAS_WARM", None)
    if number is None:
        return _do(sys.argv[2], out) % ENDS
    with socket.socket(fileno=int(number)) as connection:
        connection.set_inheritable(False)
        serve(connection, out, says)
    return 0


if __name__ == "__main__":
    # Pickles name what is here as `eyas._worker`, and not as `__main__`.
    from eyas import _worker

    sys.exit(_worker.main())
