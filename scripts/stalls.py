"""Whether the machine stood still, was busy or had a full disk while tests ran.

`scripts/test.py` measures once a second how long three things take that every test needs: a block that is written to the disk for
good, a program that is started, and a sleep. Where one of them takes a second or more, the machine stood still for that long: a
neighbour used its disk or its processors. No test can tell that from a fault. A full disk is weather, too: eyas waits for room.

It also counts for how long the processors had nothing to do. Which failures are excused by what, second_tries.toml says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# A thing that takes so long, in seconds, shows that the machine stood still.
SLOW_S = 1.0
# A test that lost so many seconds in this way may have failed of it: the shortest waits of tests are as long.
EXCUSE_S = 5.0
EVERY_S = 1.0
# A machine whose processors were idle for less than this part of the time was busy.
IDLE_PART = 0.25
# Less room than this, in bytes, is a full disk.
ROOM_MIN = 10**9
FULL = "waiting for room on the disk"


def write_a_block() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())


def start_a_program() -> None:
    subprocess.run(["/bin/true"], check=True)


def room() -> int:
    """The bytes that are free where tests have their files."""
    return shutil.disk_usage(tempfile.gettempdir()).free


def sleep_a_little() -> None:
    time.sleep(0.05)


def processors() -> tuple[int, int]:
    """Ticks of all processors since the machine began: in all, and of these idle.

    What neighbours on the host take is not idle, and neither is a processor that waits for a disk.
    """
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    # user nice system idle iowait irq softirq steal
    ticks = [int(word) for word in line.split()[1:9]]
    return sum(ticks), ticks[3]


PROBES: Mapping[str, Callable[[], None]] = {
    "writing a block to the disk": write_a_block,
    "starting a program": start_a_program,
    "a sleep of 0.05 s": sleep_a_little,
}


@dataclass(frozen=True)
class Stall:
    """Something took long, from one time to another, both in seconds since 1970."""

    began: float
    ended: float
    what: str


class Meter:
    """Looks for stalls in a thread of its own, from `with` on to its end."""

    def __init__(
        self,
        probes: Mapping[str, Callable[[], None]] = PROBES,
        clock: Callable[[], float] = time.time,
        room: Callable[[], int] = room,
        processors: Callable[[], tuple[int, int]] = processors,
    ) -> None:
        self.stalls: list[Stall] = []
        # When the processors were looked at, their ticks, and those that were idle.
        self.ticks: list[tuple[float, int, int]] = []
        self.room_least = room()
        self._probes = probes
        self._clock = clock
        self._room = room
        self._processors = processors
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # It ends with this program in any case.
        self._thread.join(EXCUSE_S)

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        self.ticks.append((self._clock(), *self._processors()))
        room = self._room()
        self.room_least = min(self.room_least, room)
        if room < ROOM_MIN:
            now = self._clock()
            self.stalls.append(Stall(now, now + EVERY_S, FULL))
            return
        for what, probe in self._probes.items():
            began = self._clock()
            probe()
            ended = self._clock()
            if ended - began >= SLOW_S:
                self.stalls.append(Stall(began, ended, what))

    def lost_s(self, began: float, ended: float) -> float:
        """So many seconds the machine stood still between two times."""
        return sum(max(0.0, min(ended, stall.ended) - max(began, stall.began)) for stall in self.stalls)

    def stood_still(self, began: float, ended: float) -> bool:
        return self.lost_s(began, ended) >= EXCUSE_S

    def idle_part(self, began: float, ended: float) -> float | None:
        """The part of the processors' time that was idle between two times; None where that was not looked at."""
        if not self.ticks:
            return None
        # Looks are a second apart: those just outside count.
        _, all_before, idle_before = max(
            (look for look in self.ticks if look[0] <= began), default=self.ticks[0]
        )
        _, all_after, idle_after = min(
            (look for look in self.ticks if look[0] >= ended), default=self.ticks[-1]
        )
        n = all_after - all_before
        return (idle_after - idle_before) / n if n > 0 else None

    def was_busy(self, began: float, ended: float) -> bool:
        idle = self.idle_part(began, ended)
        return idle is not None and idle < IDLE_PART

    def lines(self) -> list[str]:
        """What is said of it: the room on the disk, what was idle, and one line for each kind of stall."""
        said = [f"the disk had {self.room_least / 1e9:.1f} GB of room at least"]
        if self.ticks and (idle := self.idle_part(self.ticks[0][0], self.ticks[-1][0])) is not None:
            said[0] += f", and the processors were idle for {idle:.0%} of the time"
        for what in [*self._probes, FULL]:
            long = [stall.ended - stall.began for stall in self.stalls if stall.what == what]
            if long:
                times = "once" if len(long) == 1 else f"{len(long)} times"
                said.append(
                    f"the machine stood still: {what} took a second or more {times}, {max(long):.1f} s at most"
                )
        return said
