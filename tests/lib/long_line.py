"""A line between two network namespaces that frames take a while to pass.

    python long_line.py SPACE DEVICE SPACE DEVICE MILLISECONDS

Makes a device of that name in each of the two namespaces, and hands each frame that one of them sends to the other one so much later. It
prints "ready" when both are there, and they are gone when it ends. Many kernels have no `netem`, which would do the same. The rate is
not limited here: a queueing discipline on the devices does that.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
# The largest frame, with room for its head.
FRAME = 65_600


def device(space: str, name: str) -> int:
    """A device in that namespace, whose frames the file that is returned has; this thread stays in the namespace."""
    there = os.open(f"/run/netns/{space}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(there, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), space)
    os.close(there)
    made = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(made, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return made


def relay(ends: tuple[int, int], delay_s: float) -> None:
    to = {ends[0]: ends[1], ends[1]: ends[0]}
    under_way: deque[tuple[float, int, bytes]] = deque()
    poll = select.epoll()
    for end in ends:
        poll.register(end, select.EPOLLIN)
    while True:
        left_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else -1
        ready = poll.poll(left_s)
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, end, frame = under_way.popleft()
            try:
                os.write(end, frame)
            except BlockingIOError:
                pass  # as a switch drops what it has no room for
        for end, _ in ready:
            try:
                while True:
                    under_way.append((time.monotonic() + delay_s, to[end], os.read(end, FRAME)))
            except BlockingIOError:
                pass


def main() -> None:
    _, space, name, other_space, other_name, delay_ms = sys.argv
    ends = device(space, name), device(other_space, other_name)
    print("ready", flush=True)
    relay(ends, float(delay_ms) / 1e3)


if __name__ == "__main__":
    main()
