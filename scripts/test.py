"""Run all tests and end with how many ran: everything in Python, then the Rust workspace.

    .venv/bin/python scripts/test.py [--rust | --python | --long] [-- OPTIONS OF PYTEST]

On a developer's machine a test whose program is absent is skipped, and named at the end with the
way to get it. With CI=true nothing may be skipped: then such a test fails (see tests/harness.py),
and so does this program if any test was skipped or ignored in another way. The exception is an
`#[ignore = "not a test: ..."]`.

What is marked `long` (pytest) is left out, and is all that runs with --long.

A few failures in Python are run once more, alone: what then passes is named at the end and does not
fail the whole, because real batch systems and servers on two busy cores have a bad moment now and
then (docs/decisions/0048-a-second-try.md). What fails twice fails.

Rust is compiled, with the lowest priority, while the Python tests run: many of these wait. Its tests come after them
(docs/decisions/0085-what-a-test-run-does-at-once.md).

Plain `cargo test` and not nextest: on 2 busy cores, building nextest was a quarter done after 7 minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# An ignored test with its reason, and the line with which each test binary of Rust ends.
RUST_IGNORED = re.compile(r"^test (.+) \.\.\. ignored(?:, (.*))?$")
RUST_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")

# The reason of an ignored one that is a tool in a test's clothes, such as one that prints a new golden file.
NOT_A_TEST = ": not a test"
RUST_FAILED = re.compile(r"^test (.+) \.\.\. FAILED$")

# So many failures may come of a busy machine; more are a fault, and no second try is made.
MOST_SECOND_TRIES = 3


@dataclass
class Tally:
    """Tests of one language: how many ended how."""

    name: str
    n_passed: int = 0
    n_failed: int = 0
    n_skipped: int = 0
    seconds: float = 0.0
    exit_status: int = 0
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    # What failed in the whole and passed alone.
    passed_alone: list[str] = field(default_factory=list)

    def line(self) -> str:
        counts = f"{self.n_passed:6,} passed {self.n_failed:4,} failed {self.n_skipped:4,} skipped"
        return f"{self.name:8}{counts}   {self.seconds:5.0f} s"

    def trouble(self, nothing_may_be_skipped: bool) -> str | None:
        """Why these tests do not count as passed; None where they do."""
        if self.exit_status != 0:
            return f"{self.name}: ended with exit status {self.exit_status}"
        if self.n_failed:
            return f"{self.name}: {self.n_failed} failed"
        if self.n_passed == 0:
            return f"{self.name}: no test ran"
        lost = [text for text in self.skipped if NOT_A_TEST not in text]
        if lost and nothing_may_be_skipped:
            return f"{self.name}: {len(lost)} skipped, which CI does not allow"
        return None


def count_rust(lines: list[str], tally: Tally) -> None:
    for line in lines:
        if match := RUST_RESULT.match(line):
            passed, failed, ignored = (int(number) for number in match.groups())
            tally.n_passed += passed
            tally.n_failed += failed
            tally.n_skipped += ignored
        elif match := RUST_FAILED.match(line):
            tally.failed.append(match[1])
        elif match := RUST_IGNORED.match(line):
            tally.skipped.append(f"{match[1]}: {match[2] or 'no reason given'}")


def count_python(junit: str, tally: Tally) -> None:
    for case in ElementTree.fromstring(junit).iter("testcase"):
        if (skip := case.find("skipped")) is not None:
            tally.n_skipped += 1
            tally.skipped.append(f"{case.get('name')}: {skip.get('message')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            tally.n_failed += 1
            # A test may fail twice: by itself, and in clearing up behind it.
            name = f"{case.get('classname')}.{case.get('name')}"
            tally.failed.extend([name] if name not in tally.failed else [])
        else:
            tally.n_passed += 1


# Documentation tests are part of it. One failing binary does not hide the results of the others.
RUST = ["cargo", "test", "--locked", "--release", "--workspace", "--no-fail-fast"]


@contextmanager
def rust_is_compiled() -> Iterator[None]:
    """Compiles the tests in Rust while something else runs, and waits for it. What does not compile is said by `run_rust`."""
    command = ["nice", "-n", "19", *RUST, "--no-run"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as compiling:
        try:
            yield
        except BaseException:
            compiling.terminate()
            raise


def run_rust() -> Tally:
    tally = Tally("Rust")
    start = time.monotonic()
    process = subprocess.Popen(RUST, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        count_rust([line], tally)
    tally.exit_status = process.wait()
    tally.seconds = time.monotonic() - start
    return tally


def run_pytest(name: str, options: list[str]) -> Tally:
    tally = Tally(name)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "pytest.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={junit}", *options]
        tally.exit_status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if junit.exists():
            count_python(junit.read_text(encoding="utf-8"), tally)
    tally.seconds = time.monotonic() - start
    return tally


def run_python(options: list[str]) -> Tally:
    tally = run_pytest("Python", options)
    if tally.exit_status != 1 or not 0 < len(tally.failed) <= MOST_SECOND_TRIES:
        return tally
    print(f"\n{len(tally.failed)} failed; each is run once more, alone", flush=True)
    second = run_pytest("again", [*options, "--last-failed", "--last-failed-no-failures=none"])
    if second.exit_status == 0 and second.n_passed == len(tally.failed):
        tally.passed_alone, tally.failed = tally.failed, []
        tally.n_passed += second.n_passed
        tally.n_failed = tally.exit_status = 0
    tally.seconds += second.seconds
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description="Run all tests.")
    parser.add_argument("--rust", action="store_true", help="the Rust tests alone")
    parser.add_argument("--python", action="store_true", help="the Python tests alone")
    parser.add_argument("--long", action="store_true", help="what is marked long, and nothing else")
    parser.add_argument("pytest", nargs="*", help="options for pytest, after --")
    args = parser.parse_args()
    both = args.rust == args.python
    tallies = []
    if args.long:
        # Standard output is shown as it comes: who waits for hours wants to see seeds.
        tallies.append(run_pytest("Python", ["-m", "long", "-s", *args.pytest]))
    elif both:
        with rust_is_compiled():
            python = run_python(args.pytest)
        tallies += [run_rust(), python]
    else:
        tallies.append(run_rust() if args.rust else run_python(args.pytest))

    print()
    for tally in tallies:
        for text in tally.skipped:
            print(f"skipped  {text}")
        for text in tally.passed_alone:
            print(f"failed in the whole, passed alone  {text}")
        for text in tally.failed:
            print(f"failed   {text}")
    for tally in tallies:
        print(tally.line())
    troubles = [tally.trouble(os.environ.get("CI") == "true") for tally in tallies]
    for trouble in filter(None, troubles):
        print(f"error: {trouble}", file=sys.stderr)
    if any(troubles):
        return 1
    print(f"All {sum(tally.n_passed for tally in tallies):,} tests passed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
