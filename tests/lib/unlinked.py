"""A machine whose file systems give each file one name only: `unlinked.py PROGRAM ARGUMENT...`.

The kernel refuses hard links to the program and to all that it starts, as it does on such a file system (a FAT disk, some network file
systems).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

# `link` and `linkat`, by machine; the newer machines have only the second one.
LINKS = {"x86_64": (86, 265), "aarch64": (37,)}
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOWED, REFUSED = 0x7FFF0000, 0x00050000 | errno.EPERM


def refuse_links() -> None:
    """From now on this process, and all that it starts, cannot make hard links. Errors: OSError, the kernel has no such filters."""
    calls = LINKS[platform.machine()]
    steps = [(LOAD_NUMBER, 0, 0, 0)]
    steps += [(IF_EQUAL, len(calls) - n, 0, call) for n, call in enumerate(calls)]
    steps += [(RETURN, 0, 0, ALLOWED), (RETURN, 0, 0, REFUSED)]
    program = b"".join(struct.pack("=HBBI", *step) for step in steps)
    kept = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(kept)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, head, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


def write_program(path: Path, program: Path) -> Path:
    """Make a program that is `program` on such a machine."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "{program}" "$@"\n')
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    refuse_links()
    os.execv(sys.argv[1], sys.argv[1:])
