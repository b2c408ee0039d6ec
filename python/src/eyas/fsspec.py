"""`eyas://`: files at home, and of data sets, as a file system of fsspec: for pandas, PyArrow, Dask, zarr and others.

    import fsspec, pandas

    pandas.read_csv("eyas://s3://bucket/table.csv")
    with fsspec.open("eyas://data:survey/notes.txt", "wt") as file:
        file.write("seen twice")
    fsspec.filesystem("eyas").glob("/data/**/*.fits")

Behind `eyas://` stands what the command line has for a file: a path, a URL of a home, or `data:LABEL/PATH`.

    python -m eyas.fsspec get|put|stat|list|remove URL

does the work of a home of commands (docs/reference/homes.md) for the file systems that fsspec has and eyas has not.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import IO, Any

try:
    from fsspec import AbstractFileSystem, url_to_fs
    from fsspec.callbacks import DEFAULT_CALLBACK
    from fsspec.core import OpenFile
    from fsspec.spec import AbstractBufferedFile
    from fsspec.utils import isfilelike
except ImportError as error:
    raise ImportError("fsspec is not installed: pip install 'eyas[fsspec]'") from error

from . import _ffi
from .cluster import _prepare

__all__ = ["EyasFile", "EyasFileSystem"]

# What begins a pattern in a name.
_MAGIC = re.compile(r"[*?\[]")
# The host of a URL, or the label of a data set: nothing is above it.
_ROOT = re.compile(r"[^/]+://[^/]*")


def _is_local(path: str) -> bool:
    return path.startswith("/")


class EyasFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files at home, as `eyas ls`, `cat`, `cp`, `rm`, `mkdir` and `mv` have them.

    Names are paths, or URLs as `eyas ls` prints them. A file appears when all its bytes are there. What a home cannot do raises
    `NotImplementedError`, with a sentence that says so.

    A home that is no file system lists all that is below a directory, so that `ls` of a directory with very many files below it takes
    long there; and it shows no directories without files.
    """

    protocol = "eyas"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _prepare()
        self._homes = _ffi.Homes()

    # ------------------------------------------------------------ names

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """The name of a file, without a `/` at its end. What may be a pattern is left as it is from there on."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path).removeprefix("eyas://")
        magic = _MAGIC.search(text)
        if magic is None:
            return cls._canonical(text)
        above, slash, pattern = text[: magic.start()].rpartition("/")
        if not slash:
            return os.path.join(os.getcwd(), text)
        if above.endswith((":/", ":")) or not above:
            return text
        return f"{cls._canonical(above).rstrip('/')}/{pattern}{text[magic.start() :]}"

    @classmethod
    def _canonical(cls, text: str) -> str:
        _prepare()
        word = os.path.expanduser(text) or "."
        bare = word.rstrip("/") or "/"
        try:
            name = _ffi.location_of(bare)
        except ValueError:
            # A data set has a `/` behind its label in any case.
            name = _ffi.location_of(f"{bare}/")
        return name.rstrip("/") or "/"

    @classmethod
    def _parent(cls, path: str) -> str:
        name: str = cls._strip_protocol(path)
        if _ROOT.fullmatch(name):
            return name
        return name.rpartition("/")[0] or "/"

    def unstrip_protocol(self, name: str) -> str:
        return f"eyas://{self._strip_protocol(name)}"

    @staticmethod
    def _directory(path: str) -> str:
        return path.rstrip("/") + "/"

    # ------------------------------------------------------------ looking

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """`name`, `size` in bytes, `type`; of files also `version`, `is_strong` (other bytes have another version), and where they are known
        `mtime` in seconds since 1970 and `mode`.
        """
        name = self._strip_protocol(path)
        if _is_local(name):
            return self._local_info(name)
        try:
            return self._file_info(name, self._homes.stat(name))
        except (FileNotFoundError, IsADirectoryError, ValueError) as error:
            absent = error
        try:
            is_directory = self._found_below(name) or self._has_directory(name)
        except NotImplementedError:
            # A home that lists nothing, as a web server, has files alone.
            raise absent from None
        if is_directory:
            return {"name": name, "size": 0, "type": "directory"}
        raise FileNotFoundError(f"there is nothing at {name}")

    @staticmethod
    def _file_info(name: str, looked: _ffi.Looked) -> dict[str, Any]:
        size, version, is_strong, modified_ns, mode = looked
        found: dict[str, Any] = {"name": name, "size": size, "type": "file", "version": version}
        found["is_strong"] = is_strong
        if modified_ns is not None:
            found["mtime"] = modified_ns / 1e9
        if mode is not None:
            found["mode"] = mode
        return found

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is something. Where its home cannot say that, it raises: what is not seen may be there."""
        name = self._strip_protocol(path)
        try:
            if _is_local(name):
                os.stat(name)
            else:
                self.info(name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False
        return True

    def _local_info(self, name: str) -> dict[str, Any]:
        if os.path.isdir(name):
            return {"name": name, "size": 0, "type": "directory", "mtime": os.stat(name).st_mtime}
        return self._file_info(name, self._homes.stat(name))

    def _found_below(self, name: str) -> list[str]:
        """All files below a directory of a home that is no path."""
        try:
            found, left_out = self._homes.below(self._directory(name))
        except (FileNotFoundError, IsADirectoryError):
            return []
        for why in left_out:
            warnings.warn(f"{name} has what cannot be had: {why}", stacklevel=3)
        return found

    def _has_directory(self, name: str) -> bool:
        """Whether a directory of a home that is no path is there without files."""
        makes_directories, _ = self._homes.can(name)
        if not makes_directories:
            return False
        try:
            self._homes.below(self._directory(name))
        except (FileNotFoundError, IsADirectoryError):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """What is in a directory, each as `info` has it, or with `detail=False` its name."""
        name = self._strip_protocol(path)
        if not _is_local(name):
            found = self.find(name, maxdepth=1, withdirs=True, detail=detail)
            names = [one for one in found if one != name]
            if not names:
                return self._of_nothing(name, detail)
            return [found[one] for one in names] if detail else names
        if not os.path.isdir(name):
            infos = [self._local_info(name)]
        else:
            infos = list(self._local_infos(name))
        return infos if detail else [info["name"] for info in infos]

    def _local_infos(self, directory: str) -> Iterator[dict[str, Any]]:
        """Of all that is in a directory. What cannot be had is left out with a warning."""
        for path in sorted(entry.path for entry in os.scandir(directory)):
            try:
                path.encode()
                yield self._local_info(path)
            except UnicodeEncodeError:
                warnings.warn(f"left out {path!r}: its name is not UTF-8", stacklevel=4)
            except FileNotFoundError:
                # Anything else has gone meanwhile.
                if os.path.islink(path):
                    warnings.warn(f"left out {path}: it is a symbolic link that leads nowhere", stacklevel=4)
            except OSError as error:
                warnings.warn(f"left out {path}: {error}", stacklevel=4)

    def _of_nothing(self, name: str, detail: bool) -> list[Any]:
        """What `ls` gives of a file, and of a directory with nothing in it."""
        info = self.info(name)
        if info["type"] == "directory":
            return []
        return [info] if detail else [name]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        """All files below a directory; `withdirs`: directories, too, and itself."""
        name = self._strip_protocol(path)
        if _is_local(name):
            return super().find(name, maxdepth=maxdepth, withdirs=withdirs, detail=detail)
        above = self._directory(name)
        files: list[str] = []
        directories: set[str] = set()
        for file in self._found_below(name):
            parts = file[len(above) :].split("/")
            directories.update(
                above + "/".join(parts[:depth])
                for depth in range(1, min(len(parts) - 1, maxdepth or len(parts)) + 1)
            )
            if maxdepth is None or len(parts) <= maxdepth:
                files.append(file)
        if not files and not directories:
            try:
                info = self.info(name)
            except FileNotFoundError:
                return {} if detail else []
            if info["type"] == "directory" and not withdirs:
                return {} if detail else []
            return {name: info} if detail else [name]
        directories = directories | {name} if withdirs else set()
        if not detail:
            return sorted([*files, *directories])
        found: dict[str, dict[str, Any]] = {
            one: {"name": one, "size": 0, "type": "directory"} for one in directories
        }
        for file, looked in zip(files, self._homes.stats(files)):
            if looked is not None:
                found[file] = self._file_info(file, looked)
        return dict(sorted(found.items()))

    def modified(self, path: str) -> datetime.datetime:
        """When a file was changed. Raises `NotImplementedError` where the home does not say it."""
        info = self.info(path)
        if "mtime" not in info:
            raise NotImplementedError(f"the home of {info['name']} does not say when it was changed")
        utc = datetime.timezone(datetime.timedelta(0))
        return datetime.datetime.fromtimestamp(info["mtime"], tz=utc)

    def ukey(self, path: str) -> str:
        """A text that is another one when the file is another one: its version, as the home has it."""
        return str(self.info(path)["version"])

    # ------------------------------------------------------------ bytes

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes of a file from `start` on, before `end`; both may be negative, as in a slice."""
        name = self._strip_protocol(path)
        if start is None and end is None:
            return self._homes.read(name, None, None, None)
        info = self.info(name)
        begin, behind, _step = slice(start, end).indices(info["size"])
        return self._read_part(name, begin, behind, info["version"])

    def _read_part(self, name: str, begin: int, behind: int, version: str) -> bytes:
        """A part of a file, which has to have that version."""
        if begin >= behind:
            return b""
        if not self._reads_ranges(name):
            return self._homes.read(name, None, None, version)[begin:behind]
        return self._homes.read(name, begin, behind, version)

    def _reads_ranges(self, name: str) -> bool:
        return self._homes.can(name)[1]

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        """Make a file of bytes; `mode="create"` refuses where there is one."""
        name = self._strip_protocol(path)
        if mode == "create" and self.exists(name):
            raise FileExistsError(f"{name} is there already")
        self._homes.write(name, bytes(value))

    def open(self, path: str, mode: str = "rb", *args: Any, **options: Any) -> Any:
        """A file, as the built-in `open` gives it. A `with` block that ends with an exception writes nothing."""
        if "b" in mode:
            return super().open(path, mode, *args, **options)
        text = {key: options.pop(key) for key in ("encoding", "errors", "newline") if key in options}
        file: Any = super().open(path, mode.replace("t", "") + "b", *args, **options)
        return _Text(file, **text)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **options: Any,
    ) -> EyasFile:
        name = self._strip_protocol(path)
        if mode == "xb" and self.exists(name):
            raise FileExistsError(f"{name} is there already")
        if mode == "rb":
            info = self.info(name)
            if info["type"] == "directory":
                raise IsADirectoryError(f"{name} is a directory")
            options.setdefault("size", info["size"])
            options.setdefault("version", info["version"])
            if not info["is_strong"] or not self._reads_ranges(name):
                # Nothing would show that parts belong together, or each part would be read by reading all of it.
                options["cache_type"] = "all"
        return EyasFile(self, name, mode, block_size, autocommit, cache_options=cache_options, **options)

    def get_file(
        self,
        rpath: str,
        lpath: Any = None,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **options: Any,
    ) -> None:
        """Copy a file to a path here."""
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **options)
            return
        name, here = self._strip_protocol(rpath), os.path.abspath(lpath)
        if self.isdir(name):
            os.makedirs(here, exist_ok=True)
            return
        self._copy(name, here, callback)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **_: Any,
    ) -> None:
        """Copy a file from a path here."""
        name, here = self._strip_protocol(rpath), os.path.abspath(lpath)
        if mode == "create" and self.exists(name):
            raise FileExistsError(f"{name} is there already")
        if os.path.isdir(here):
            self.makedirs(name, exist_ok=True)
            return
        self._copy(here, name, callback)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file, or make a directory as another one."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
            return
        self._copy(source, target, DEFAULT_CALLBACK)

    def _copy(self, source: str, target: str, callback: Any) -> None:
        n_bytes = self._homes.copy(source, target)
        callback.set_size(n_bytes)
        callback.absolute_update(n_bytes)

    # ------------------------------------------------------------ names and directories

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a directory. Where names with a `/` in them need none, nothing is done."""
        name = self._strip_protocol(path)
        if self.exists(name):
            raise FileExistsError(f"{name} is there already")
        if not create_parents and not self.isdir(self._parent(name)):
            raise FileNotFoundError(f"there is no directory {self._parent(name)}")
        self._make_directory(name)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        name = self._strip_protocol(path)
        if not exist_ok and self.exists(name):
            raise FileExistsError(f"{name} is there already")
        self._make_directory(name)

    def _make_directory(self, name: str) -> None:
        if self._homes.can(name)[0]:
            self._homes.make_directory(self._directory(name))

    def rmdir(self, path: str) -> None:
        """Remove a directory that has nothing in it."""
        name = self._strip_protocol(path)
        if self.ls(name, detail=False):
            raise OSError(f"the directory {name} is not empty")
        if self._homes.can(name)[0]:
            self._homes.remove_directory(self._directory(name))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        self._homes.remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and with `recursive` directories with all that is below them."""
        for name in self.expand_path(path):
            if not self.isdir(name):
                self.rm_file(name)
            elif not recursive:
                raise IsADirectoryError(
                    f"{name} is a directory: recursive=True removes it with all that is below it"
                )
            elif name == "/" or _ROOT.fullmatch(name):
                raise ValueError(f"{name} is all of a home; nothing was removed: name what is below it")
            elif maxdepth is None and self._homes.can(name)[0]:
                self._homes.remove_directory(self._directory(name))
            else:
                for file in self.find(name, maxdepth=maxdepth):
                    self.rm_file(file)

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **_: Any
    ) -> None:
        """Move files. A file gets its new name at once where its home can do that; else it is copied and removed.

        A file that is moved to its own name stays as it is. Between homes a move replaces nothing.

        Raises
        ------
        ValueError : a directory would be moved below itself; nothing was moved.
        """
        named = _Copies(skip_instance_cache=True)
        named.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise")
        copies = [(source, target) for source, target in named.found if source != target]
        directories = {source: target for source, target in copies if self.isdir(source)}
        for source, target in directories.items():
            if target.startswith(f"{source}/"):
                raise ValueError(f"the directory {source} cannot be moved below itself, to {target}")
        if not named.found:
            raise IsADirectoryError(
                f"{path1} is a directory: recursive=True moves it with all that is below it"
            )
        for target in directories.values():
            self._make_directory(target)
        for source, target in copies:
            if source not in directories:
                self._homes.move(source, target)
        # What has come meanwhile stays.
        for source in reversed(directories):
            if self.isdir(source) and not self.ls(source, detail=False):
                self.rmdir(source)


class _Copies(EyasFileSystem):
    """Finds out what a copy would copy, and to where."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.found: list[tuple[str, str]] = []

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        self.found.append((self._strip_protocol(path1), self._strip_protocol(path2)))


class EyasFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of `EyasFileSystem`. What is written is kept in a temporary file, and appears at home when the file is closed.

    A `with` block that ends with an exception writes nothing. All parts that are read are of the file that was opened.
    """

    fs: EyasFileSystem
    path: str
    mode: str

    def _initiate_upload(self) -> None:
        fd, self._part = tempfile.mkstemp(prefix="eyas-")
        os.close(fd)
        if self.mode == "ab" and self.fs.exists(self.path):
            self.fs.get_file(self.path, self._part)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs._read_part(self.path, start, min(end, self.size), self.kwargs["version"])

    def _upload_chunk(self, final: bool = False) -> None:
        try:
            with open(self._part, "ab") as part:
                part.write(self.buffer.getbuffer())
        except BaseException:
            # A part of these bytes may be there already.
            self.discard()
            self.closed = True
            raise
        if final and self.autocommit:
            self.commit()

    def commit(self) -> None:
        """Make what was written the file."""
        try:
            self.fs.put_file(self._part, self.path)
        finally:
            self.discard()

    def discard(self) -> None:
        """Forget what was written."""
        if self._part is not None:
            os.unlink(self._part)
            self._part = None

    _part: Any = None

    def __exit__(self, *args: Any) -> None:
        if args[0] is not None:
            self._give_up()
        self.close()

    def close(self) -> None:
        """Make what was written the file, unless a `with fsspec.open(...)` that this is the end of was left by an exception."""
        if not self.closed and self.writable() and _block_raised(self):
            self._give_up()
        super().close()

    def _give_up(self) -> None:
        if self.writable():
            self.discard()
            self.closed = True


def _block_raised(file: EyasFile) -> bool:
    """Whether `file` is closed at the end of a `with fsspec.open(...)` that an exception has left. fsspec's own object hears of the
    exception there, and closes its files without a word of it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is OpenFile.__exit__.__code__:
            opened, args = frame.f_locals["self"], frame.f_locals.get("args")
            if args and any(one is file for one in opened.fobjects):
                return args[0] is not None
        frame = frame.f_back
    return False


class _Text(io.TextIOWrapper):
    """The text of such a file."""

    def __exit__(self, *args: Any) -> None:
        if args[0] is not None:
            file: Any = self.buffer
            file.__exit__(*args)
        super().__exit__(*args)


# ---------------------------------------------------------------- a home of commands


def _get(url: str, out: IO[bytes]) -> None:
    system, path = url_to_fs(url)
    with system.open(path, "rb") as file:
        shutil.copyfileobj(file, out, 1 << 20)


def _put(url: str, body: IO[bytes]) -> None:
    system, path = url_to_fs(url)
    system.makedirs(system._parent(path), exist_ok=True)
    with system.open(path, "wb") as file:
        shutil.copyfileobj(body, file, 1 << 20)


def _version(info: Mapping[str, Any]) -> str:
    """A text that is another one when the file is another one, as far as its file system says it, and the same in all processes.

    `ukey` of fsspec is not the same in all.
    """
    plain = (str, bytes, int, float, tuple, datetime.datetime)
    said = sorted(
        (key, value) for key, value in info.items() if isinstance(value, plain) and "access" not in key
    )
    return hashlib.blake2b(
        repr([(key, value) for key, value in said if key != "atime"]).encode(), digest_size=20
    ).hexdigest()


def _stat(url: str, out: IO[bytes]) -> None:
    system, path = url_to_fs(url)
    try:
        info = system.info(path)
    except FileNotFoundError:
        return
    if info["type"] == "file" and info["size"] is not None:
        out.write(f"{info['size']} {_version(info)}\n".encode())


def _found_in(system: AbstractFileSystem, path: str) -> list[str]:
    """All files below a directory. fsspec's own way to find them leaves out directories that cannot be listed, and says nothing."""
    from fsspec.asyn import AsyncFileSystem

    if isinstance(system, AsyncFileSystem):
        is_usual = type(system)._find is AsyncFileSystem._find
    else:
        is_usual = type(system).find is AbstractFileSystem.find
    if not is_usual:
        return list(system.find(path))
    found, left = [], [path]
    while left:
        directory = left.pop()
        try:
            listed = system.ls(directory, detail=True)
        except FileNotFoundError:
            if directory == path:
                raise
            continue  # it has gone meanwhile
        for info in listed:
            name = info["name"]
            if info["type"] != "directory":
                found.append(name)
            elif name.rstrip("/") != directory.rstrip("/"):
                left.append(name)
    return sorted(found)


def _list(url: str, out: IO[bytes]) -> None:
    system, path = url_to_fs(url)
    above = path.strip("/") + "/" if path.strip("/") else ""
    for name in _found_in(system, path):
        bare = name.lstrip("/")
        if not bare.startswith(above):
            continue
        below = bare[len(above) :]
        try:
            line = below.encode()
        except UnicodeEncodeError:
            print(f"left out: {below!r}: its name is not UTF-8", file=sys.stderr)
            continue
        if b"\n" in line:
            print(f"left out: {below!r}: its name has a line break", file=sys.stderr)
        else:
            out.write(line + b"\n")


def _remove(url: str, _: IO[bytes]) -> None:
    system, path = url_to_fs(url)
    system.rm_file(path)


def main(words: Iterable[str]) -> int:
    """One command of a home (docs/reference/homes.md): the program `python -m eyas.fsspec`. Gives its exit status."""
    works: dict[str, tuple[Callable[[str, IO[bytes]], None], IO[bytes]]] = {
        "get": (_get, sys.stdout.buffer),
        "put": (_put, sys.stdin.buffer),
        "stat": (_stat, sys.stdout.buffer),
        "list": (_list, sys.stdout.buffer),
        "remove": (_remove, sys.stdout.buffer),
    }
    words = list(words)
    if len(words) != 2 or words[0] not in works:
        print(f"error: write python -m eyas.fsspec {'|'.join(works)} URL", file=sys.stderr)
        return 2
    work, stream = works[words[0]]
    try:
        work(words[1], stream)
        sys.stdout.flush()
    except FileNotFoundError:
        print(f"{words[1]}: no such file", file=sys.stderr)
        return 1
    except Exception as error:
        print(f"{words[1]}: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
