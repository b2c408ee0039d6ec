"""Which failed tests may be run once more, and why: the table in second_tries.toml, beside this file.

A test that fails, and for which no entry holds, fails the run (docs/decisions/0048-a-second-try.md).
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import stalls

TABLE = Path(__file__).resolve().with_name("second_tries.toml")
MEASURED = {"stood still": stalls.Meter.stood_still, "busy": stalls.Meter.was_busy}
# A failure before or behind the test itself; an entry may be about these only.
PHASE = re.compile(r'failed on (?:setup|teardown) with "')


@dataclass(frozen=True)
class Failure:
    """A test that failed: its name, how its message begins, and when it ran, in seconds since 1970, where that is known."""

    name: str
    said: str
    at: tuple[float, float] | None


@dataclass(frozen=True)
class Reason:
    """An entry of the table; its keys are described there."""

    why: str
    tests: tuple[str, ...] = ("*",)
    says: tuple[re.Pattern[str], ...] | None = None
    measured: str | None = None
    at_most: int | None = None

    def holds(self, failure: Failure, meter: stalls.Meter) -> bool:
        if not any(fnmatchcase(failure.name, pattern) for pattern in self.tests):
            return False
        bare = PHASE.sub("", failure.said, count=1)
        if self.says is not None and not any(p.match(failure.said) or p.match(bare) for p in self.says):
            return False
        if self.measured is None:
            return True
        return failure.at is not None and MEASURED[self.measured](meter, *failure.at)


def reasons(table: Path = TABLE) -> list[Reason]:
    """The entries of a table. Errors: ValueError in a sentence, for an entry that excuses everything or has an unknown word."""
    found = []
    for entry in tomllib.loads(table.read_text(encoding="utf-8"))["reason"]:
        about = f"the reason `{entry.get('why')}` in {table.name}"
        if unknown := entry.keys() - {"why", "tests", "says", "measured", "at_most"}:
            raise ValueError(f"{about} has the unknown key `{min(unknown)}`")
        if not entry.get("says") and entry.get("measured") not in MEASURED:
            raise ValueError(
                f"{about} excuses any failure: give it `says`, or `measured` of {', '.join(MEASURED)}"
            )
        says = entry.get("says")
        found.append(
            Reason(
                why=entry["why"],
                tests=tuple(entry.get("tests", ["*"])),
                says=None if says is None else tuple(re.compile(pattern, re.DOTALL) for pattern in says),
                measured=entry.get("measured"),
                at_most=entry.get("at_most"),
            )
        )
    return found


def known(failures: Iterable[Failure], meter: stalls.Meter, table: Iterable[Reason]) -> dict[str, str]:
    """The names of those that have a reason, with it. Of a reason that more tests have than it may, none counts."""
    table = list(table)
    first = {
        failure.name: reason
        for failure in failures
        if (reason := next((r for r in table if r.holds(failure, meter)), None)) is not None
    }
    n = Counter(first.values())
    return {
        name: reason.why
        for name, reason in first.items()
        if reason.at_most is None or n[reason] <= reason.at_most
    }
