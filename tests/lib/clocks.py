"""A clock that a test sets: a library that stands before the C library's and moves the wall clock of one process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import need_program

SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Seconds that the wall clock is ahead: what the file named by EYAS_TEST_CLOCK says now, as decimal text. */
static long ahead_s(void) {
    int before = errno;
    long ahead = 0;
    const char *path = getenv("EYAS_TEST_CLOCK");
    if (path != NULL) {
        long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            char text[32] = {0};
            if (syscall(SYS_read, file, text, sizeof text - 1) > 0) ahead = strtol(text, NULL, 10);
            syscall(SYS_close, file);
        }
    }
    errno = before;
    return ahead;
}

static int is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t clock, struct timespec *at) {
    long result = syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && is_wall(clock)) at->tv_sec += ahead_s();
    return (int)result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The wall clock of whatever is started with `env`. It goes on as the machine's does, from where it is set."""

    def __init__(self, library: Path, at: Path) -> None:
        self._at = at
        self.env = {"LD_PRELOAD": str(library), "EYAS_TEST_CLOCK": str(at)}
        self.set(0)

    def set(self, ahead_s: int) -> None:
        # In one step, as a clock is read at any moment.
        fresh = self._at.with_suffix(".new")
        fresh.write_text(str(ahead_s))
        fresh.rename(self._at)


def build(folder: Path) -> Path:
    """Compiles the library."""
    cc = need_program("cc", "gcc")
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SOURCE)
    subprocess.run([cc, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library
