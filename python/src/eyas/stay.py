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

A program whose file is an input and has changed is another one.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable

from . import _worker

# The digests of inputs of the task that is done now, by their names.
_digests: dict[str, str] = {}


def serve(main: Callable[[list[str]], int]) -> int:
    """Do what a slot asks for, until it ends this program. Without a slot, do the one task that the command line says.

    main : is called for each task with the task's own words, and gives its exit status. It runs in the task's sandbox, with the task's
        variables of the names `EYAS_...`, and what it prints is the task's. An exception that it raises is printed, and fails the task
        alone. Whatever else it changes in this process, further tasks find.

    Gives the exit status for this program: that of the task, where there was no slot.
    """
    number = os.environ.pop("EYAS_WARM_SOCKET", None)
    if number is None:
        return _status_of(main, sys.argv[1:])
    with socket.socket(fileno=int(number)) as connection:
        connection.set_inheritable(False)
        while True:
            words, digests = _worker.next_task(connection)
            _digests.clear()
            _digests.update(digests)
            status = _status_of(main, words)
            os.chdir("/")
            connection.sendall(struct.pack("<i", status))


def digest_of(name: str) -> str | None:
    """The digest of an input of the task that is done now, by its name in the sandbox; `None`: nobody knows it, as of inputs that are
    read where they are, and of all inputs where there is no slot. What a program has made of an input is good for all inputs of one
    digest.
    """
    return _digests.get(name)


def _status_of(main: Callable[[list[str]], int], words: list[str]) -> int:
    try:
        status: object = main(words)
    except SystemExit as end:
        status = end.code
    except Exception:
        import traceback

        traceback.print_exc()
        status = 1
    if status is not None and not isinstance(status, int):
        # As Python itself does with what `sys.exit` is given.
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return (status or 0) & 255
