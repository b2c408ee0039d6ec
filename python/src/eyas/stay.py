"""Programs that stay: a program of Python that a slot starts once and gives task after task, so that its modules are loaded once.

    import sys
    import eyas.stay

    def main(words: list[str]) -> int:
        with open(words[0]) as file:
            print(sum(1 for _ in file))
        return 0

    if __name__ == "__main__":
        sys.exit(eyas.stay.serve(main))

A task has such a program if its variable `EYAS_WARM` is N: the first N words of its command are the program, and end with the program's
path; the words behind them are the task's own. A slot keeps the program for tasks that have the same program and, apart from those whose
names begin with `EYAS_`, the same variables. It ends the program when it gets another task.

    {"command": ["python3", "count.py", "in.txt"], "inputs": ["count.py", "in.txt"], "env": {"EYAS_WARM": "2"}}

A program whose file is an input and has changed is another one. One that has loaded a module whose file has changed begins anew, where
the file is an input or on the disk, and not one of Python's own or of an installed package.
"""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable

from . import _worker

# The descriptor of the task that a program which begins anew has been told.
_TASK_NAME = "EYAS_WARM_TASK"

# The digests of inputs of the task that is done now, by their names.
_digests: dict[str, str] = {}
_loaded_ns = time.time_ns()


def serve(main: Callable[[list[str]], int]) -> int:
    """Do what a slot asks for, until it ends this program. Without a slot, do the one task that the command line says.

    main : is called for each task with the task's own words, and gives its exit status. It runs in the task's sandbox, with the task's
        variables of the names `EYAS_...`, and what it prints is the task's. An exception that it raises is printed, and fails the task
        alone. Where it leaves a file of the sandbox open for writing, this process ends behind it, as any program does, which closes the
        file. Whatever else it changes in this process, further tasks find.

    Gives the exit status for this program: that of the task, where there was no slot.
    """
    env = dict(os.environ)
    number = os.environ.pop("EYAS_WARM_SOCKET", None)
    os.environ.pop("EYAS_WARM_SAYS", None)
    if number is None:
        return _status_of(main, sys.argv[1:]) % _worker.ENDS
    told = os.environ.pop(_TASK_NAME, None)
    modules = _Modules()
    with socket.socket(fileno=int(number)) as connection:
        connection.set_inheritable(False)
        while True:
            said, told = _worker.next_task(connection) if told is None else _kept(int(told)), None
            words, digests = _worker.begin_task(said)
            _digests.clear()
            _digests.update(digests)
            sandbox = os.getcwd()
            if not modules.are_current(sandbox):
                _begin_anew(connection, said, env)
            status = _status_of(main, words)
            os.chdir(sandbox)
            modules.note()
            has_written, is_worn = _left_open(sandbox)
            if has_written:
                # The end of a program writes what is in memory of its files: that of a fork, while the slot waits for the answer.
                fork = os.fork()
                if fork == 0:
                    return status % _worker.ENDS
                ended = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
                status = status % _worker.ENDS or ended % _worker.ENDS
            _answer(connection, status | (_worker.ENDS if has_written or is_worn else 0))


def digest_of(name: str) -> str | None:
    """The digest of an input of the task that is done now, by its name in the sandbox; `None`: nobody knows it, as of inputs that are
    read where they are, and of all inputs where there is no slot. What a program has made of an input is good for all inputs of one
    digest.
    """
    return _digests.get(name)


def _status_of(main: Callable[[list[str]], int], words: list[str]) -> int:
    """The task's exit status; with `ENDS` added where this process can print no more. A fork of it that comes back from `main` ends here."""
    pid = os.getpid()
    try:
        status: object = main(words)
    except SystemExit as end:
        status = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    if status is not None and not isinstance(status, int):
        # As Python itself does with what `sys.exit` is given.
        print(status, file=sys.stderr)
        status = 1
    status = (status or 0) & 255
    for number, stream in (1, sys.stdout), (2, sys.stderr):
        try:
            os.fstat(number)
            stream.flush()
        except ValueError:
            status |= _worker.ENDS  # the task has closed it
        except AttributeError:
            pass  # the task has put something else there
        except OSError:
            # Python's own status where it cannot flush.
            status = (status or 120) | _worker.ENDS
    if os.getpid() != pid:
        # Only the process that was given the task answers.
        raise SystemExit(status % _worker.ENDS)
    return status


class _Modules:
    """The modules that this program has loaded of files which may change, and what these files were then."""

    def __init__(self) -> None:
        self._sandbox = ""
        self._since_ns = _loaded_ns
        self._n_modules = 0
        self._seen: set[str] = set()
        # By the module's name: the path, that in the sandbox if it is there, and what the file was.
        self._marks: dict[str, tuple[str, object]] = {}
        self._own = os.path.dirname(os.__file__) + "/"

    def are_current(self, sandbox: str) -> bool:
        """Whether the files of all modules are still the same for the task in this sandbox. If so, the program finds the other files
        beside its own there.
        """
        before, self._sandbox = self._sandbox, sandbox
        if not before:
            self.note()
        else:
            if any(self._mark_of(path) != mark for path, mark in self._marks.values()):
                return False
            for at, entry in enumerate(sys.path):
                if (entry + "/").startswith(before + "/"):
                    sys.path[at] = sandbox + entry[len(before) :]
                    sys.path_importer_cache.pop(entry, None)
            for name, (path, _) in self._marks.items():
                if not os.path.isabs(path) and name in sys.modules:
                    sys.modules[name].__file__ = os.path.join(sandbox, path)
        self._since_ns = time.time_ns()
        return True

    def note(self) -> None:
        """Looks at the files of modules that are new."""
        if len(sys.modules) == self._n_modules:
            return
        self._n_modules = len(sys.modules)
        for name in [name for name in list(sys.modules) if name not in self._seen]:
            self._seen.add(name)
            path = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
            if not isinstance(path, str) or path.startswith(self._own) or "-packages/" in path:
                continue
            path = path.removeprefix(self._sandbox + "/")
            mark = self._mark_of(path)
            # Modules of an archive have no files.
            if mark is not None:
                self._marks[name] = path, mark

    def _mark_of(self, path: str) -> object:
        """What a file is now. One that was written since the task began is no file that was seen: it may be newer than its module."""
        if path in _digests:
            return _digests[path]
        try:
            stat = os.stat(path)
        except OSError:
            return None
        is_old = stat.st_mtime_ns < self._since_ns
        return (stat.st_size, stat.st_mtime_ns) if is_old else object()


def _kept(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def _begin_anew(connection: socket.socket, said: bytes, env: dict[str, str]) -> None:
    """Starts this program anew in this process, for the task that it has been told."""
    file = os.memfd_create("task", 0)
    _worker.write_all(file, said)
    os.lseek(file, 0, os.SEEK_SET)
    connection.set_inheritable(True)
    env = {name: value for name, value in env.items() if name not in _worker.told}
    with open("/proc/self/cmdline", "rb") as cmdline:
        words = cmdline.read().split(b"\0")[:-1]
    os.execvpe(words[0], words, {**env, _TASK_NAME: str(file)})


def _left_open(sandbox: str) -> tuple[bool, bool]:
    """Whether a task has left a file of its sandbox open for writing, and whether this process has too many descriptors."""
    has_written, numbers = False, os.listdir("/proc/self/fd")
    for number in numbers:
        if number in ("0", "1", "2"):
            continue
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
            if path.startswith(sandbox + "/") and not path.endswith(" (deleted)"):
                has_written |= fcntl.fcntl(int(number), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        except OSError:
            pass  # that of the list itself
    return has_written, len(numbers) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


def _answer(connection: socket.socket, status: int) -> None:
    """Tells the slot how a task has ended. With `ENDS`, the slot ends this process, and no more."""
    os.chdir("/")
    connection.sendall(struct.pack("<i", status))
    if status >= _worker.ENDS:
        connection.recv(1)
        os._exit(0)
