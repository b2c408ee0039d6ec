"""Run all tests and end with how many ran: everything in Python, then the Rust workspace.

    .venv/bin/python scripts/test.py [--rust | --python | --long] [--lanes N] [--times FILE] [-- OPTIONS OF PYTEST]

On a developer's machine a test whose program is absent is skipped, and named at the end with the
way to get it. With CI=true nothing may be skipped: then such a test fails (see tests/lib/harness.py),
and so does this program if any test was skipped or ignored in another way. The exception is an
`#[ignore = "not a test: ..."]`.

What is marked `long` (pytest) is left out, and is all that runs with --long.

Python tests run side by side in lanes, and those that are marked `alone` after them, one by one: tests of limits of time, which
need a quiet machine (docs/decisions/0096-tests-side-by-side.md). --times writes a page of where the time went (scripts/times.py).

Where second_tries.toml knows the reason of each failure in Python, these tests are run once more, alone: what then passes is
named at the end with its reason and does not fail the whole (docs/decisions/0048-a-second-try.md). What fails twice fails.

Rust is compiled, with the lowest priority, while the Python tests run: many of these wait. Its tests come after them
(docs/decisions/0085-what-a-test-run-does-at-once.md).

Plain `cargo test` and not nextest: on 2 busy cores, building nextest was a quarter done after 7 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import stalls
import times
import tries
from wheel import target_dir

ROOT = Path(__file__).resolve().parent.parent

# An ignored test with its reason, and the line with which each test binary of Rust ends.
RUST_IGNORED = re.compile(r"^test (.+) \.\.\. ignored(?:, (.*))?$")
RUST_RESULT = re.compile(
    r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;(?:.* finished in ([\d.]+)s)?"
)
# What cargo says before it starts such a program.
RUST_PROGRAM = re.compile(r"^ +(?:Running (?:unittests )?(\S+) \(.*/(\S+)-[0-9a-f]{16}\)|Doc-tests (\S+))$")

# The reason of an ignored one that is a tool in a test's clothes, such as one that prints a new golden file.
NOT_A_TEST = ": not a test"
RUST_FAILED = re.compile(r"^test (.+) \.\.\. FAILED$")

# Most tests wait: for a lease, a batch system, a server.
LANES_PER_PROCESSOR = 2


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
    # Of each of them in Python: what it said first, and when it ran.
    failures: dict[str, tries.Failure] = field(default_factory=dict)
    # What failed in the whole and passed alone, with the reason.
    passed_alone: dict[str, str] = field(default_factory=dict)
    # Of each test in Python: its file, its name, how long it took with what it set up, and whether it ran alone.
    times: list[tuple[str, str, float, bool]] = field(default_factory=list)
    # Of each program of tests in Rust: its name, its number of tests, and how long it took.
    programs: list[tuple[str, int, float]] = field(default_factory=list)
    # When the machine stood still, a line each.
    stalls: list[str] = field(default_factory=list)

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
        if match := RUST_PROGRAM.match(line):
            source, program, documented = match.groups()
            name = f"{program} {source}" if program else f"{documented} in its documentation"
            tally.programs.append((name, 0, 0.0))
        elif match := RUST_RESULT.match(line):
            passed, failed, ignored = (int(number) for number in match.groups()[:3])
            if tally.programs and match[4]:
                tally.programs[-1] = (tally.programs[-1][0], passed + failed, float(match[4]))
            tally.n_passed += passed
            tally.n_failed += failed
            tally.n_skipped += ignored
        elif match := RUST_FAILED.match(line):
            tally.failed.append(match[1])
        elif match := RUST_IGNORED.match(line):
            tally.skipped.append(f"{match[1]}: {match[2] or 'no reason given'}")


def count_python(junit: str, tally: Tally, is_alone: bool = True) -> None:
    for case in ElementTree.fromstring(junit).iter("testcase"):
        test = case.get("name", "")
        tally.times.append((case.get("classname", ""), test, float(case.get("time", "0")), is_alone))
        if (skip := case.find("skipped")) is not None:
            tally.n_skipped += 1
            tally.skipped.append(f"{test}: {skip.get('message')}")
        elif (
            failure := next((found for found in case if found.tag in ("failure", "error")), None)
        ) is not None:
            tally.n_failed += 1
            # A test may fail twice: by itself, and in clearing up behind it, which may come of the first.
            name = f"{case.get('classname')}.{test}"
            said, at = failure.get("message", ""), None
            # When it began stands with the last of its failures.
            if (began := case.find("properties/property[@name='began']")) is not None:
                start = float(began.get("value", "0"))
                at = (start, start + float(case.get("time", "0")))
            if (earlier := tally.failures.get(name)) is not None:
                said, at = earlier.said, at or earlier.at
            else:
                tally.failed.append(name)
            tally.failures[name] = tries.Failure(name, said, at)
        else:
            tally.n_passed += 1


# Documentation tests are part of it. One failing binary does not hide the results of the others.
RUST = ["cargo", "test", "--locked", "--release", "--workspace", "--no-fail-fast"]


@contextmanager
def rust_is_compiled() -> Iterator[None]:
    """Compiles the tests in Rust while something else runs, and waits for it. What does not compile is said by `run_rust`."""
    # `nice` alone counts only among the processes of one session where the kernel groups them by session, and many tests start one.
    script = 'echo 19 > /proc/self/autogroup; exec nice -n 19 "$@"'
    command = ["sh", "-c", script, "sh", *RUST, "--no-run", *times.cargo_options()]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as compiling:
        try:
            yield
        except BaseException:
            os.killpg(compiling.pid, signal.SIGTERM)
            raise
    times.keep_cargo_report("cargo test --no-run", target_dir())


def run_rust() -> Tally:
    tally = Tally("Rust")
    start = time.monotonic()
    # The names of programs are said to standard error.
    process = subprocess.Popen(
        RUST, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        count_rust([line], tally)
    tally.exit_status = process.wait()
    tally.seconds = time.monotonic() - start
    return tally


def run_pytest(name: str, options: list[str], is_alone: bool = True) -> Tally:
    tally = Tally(name)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "pytest.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={junit}", *options]
        tally.exit_status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if junit.exists():
            count_python(junit.read_text(encoding="utf-8"), tally, is_alone)
    tally.seconds = time.monotonic() - start
    return tally


def any_is_alone() -> bool:
    """Whether a test is marked `alone`: to look for them with pytest takes as long as to collect all tests."""
    files = (file for folder in ("tests", "apps", "python") for file in (ROOT / folder).rglob("test_*.py"))
    return any("mark.alone" in file.read_text(encoding="utf-8") for file in files)


def run_python(n_lanes: int, options: list[str]) -> Tally:
    tally = Tally("Python")
    for which, n in (("not alone", n_lanes), ("alone", 1)):
        if which == "alone" and not any_is_alone():
            continue
        part = ["-m", f"not long and {which}", "--dist", "loadscope", *options]
        with stalls.Meter() as meter:
            ran = run_pytest("part", [*part, "-n", str(n)], is_alone=which == "alone")
        tally.stalls += meter.lines()
        add(tally, tried_again(ran, part, meter))
    return tally


def tried_again(tally: Tally, options: list[str], meter: stalls.Meter) -> Tally:
    """The same, after a second try of what failed, if each failure has a reason in the table."""
    known = tries.known(tally.failures.values(), meter, tries.reasons())
    if tally.exit_status != 1 or not tally.failed or len(known) < len(tally.failed):
        return tally
    print(f"\n{len(tally.failed)} failed, each for a known reason; each is run once more, alone", flush=True)
    again = ["--last-failed", "--last-failed-no-failures=none", "-n", "1"]
    second = run_pytest("again", [*options, *again])
    if second.exit_status == 0 and second.n_passed == len(tally.failed):
        tally.passed_alone, tally.failed, tally.failures = known, [], {}
        tally.n_passed += second.n_passed
        tally.n_failed = tally.exit_status = 0
    tally.seconds += second.seconds
    return tally


def add(tally: Tally, part: Tally) -> None:
    tally.n_passed += part.n_passed
    tally.n_failed += part.n_failed
    tally.n_skipped += part.n_skipped
    tally.seconds += part.seconds
    # A part in which none of the chosen tests is, which pytest ends with 5.
    if part.exit_status != 5:
        tally.exit_status = tally.exit_status or part.exit_status
    tally.skipped += part.skipped
    tally.failed += part.failed
    tally.failures |= part.failures
    tally.passed_alone |= part.passed_alone
    tally.times += part.times
    tally.programs += part.programs


def note_times(tallies: list[Tally], n_lanes: int, to: Path) -> None:
    noted = {
        "lanes": n_lanes,
        "lines": [" ".join(tally.line().split()) for tally in tallies],
        "python": [of for tally in tallies for of in tally.times],
        "rust": [of for tally in tallies for of in tally.programs],
    }
    to.mkdir(parents=True, exist_ok=True)
    (to / "tests.json").write_text(json.dumps(noted), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run all tests.")
    parser.add_argument("--rust", action="store_true", help="the Rust tests alone")
    parser.add_argument("--python", action="store_true", help="the Python tests alone")
    parser.add_argument("--long", action="store_true", help="what is marked long, and nothing else")
    default = LANES_PER_PROCESSOR * (os.cpu_count() or 1)
    parser.add_argument(
        "--lanes", type=int, default=default, help=f"Python tests at once [default: {default}]"
    )
    parser.add_argument("--times", type=Path, metavar="FILE", help="write where the time went to this file")
    parser.add_argument("pytest", nargs="*", help="folders of tests/, and options for pytest after --")
    args = parser.parse_args()
    folders = [word for word in args.pytest if (ROOT / "tests" / word).is_dir()]
    args.pytest = [f"tests/{word}" if word in folders else word for word in args.pytest]
    args.python |= bool(folders)
    both = args.rust == args.python
    if args.times and not times.folder:
        # Removed when this program ends.
        noted = tempfile.TemporaryDirectory()
        times.folder = Path(noted.name)
    tallies = []
    if args.long:
        # Standard output is shown as it comes: who waits for hours wants to see seeds.
        tallies.append(run_pytest("Python", ["-m", "long", "-s", *args.pytest]))
    elif both:
        with rust_is_compiled():
            python = run_python(args.lanes, args.pytest)
        tallies += [run_rust(), python]
    else:
        tallies.append(run_rust() if args.rust else run_python(args.lanes, args.pytest))

    print()
    for tally in tallies:
        for text in tally.skipped:
            print(f"skipped  {text}")
        for text, why in tally.passed_alone.items():
            print(f"failed in the whole, passed alone  {text}: {why}")
        for text in tally.failed:
            failure = tally.failures.get(text)
            ran = [time.strftime("%H:%M:%S", time.gmtime(at)) for at in (failure and failure.at) or ()]
            print(f"failed   {text}  {' to '.join(ran)}")
        for text in tally.stalls:
            print(text)
    for tally in tallies:
        print(tally.line())
    if times.folder:
        note_times(tallies, args.lanes, times.folder)
        if args.times:
            times.write_page(times.folder, args.times)
    troubles = [tally.trouble(os.environ.get("CI") == "true") for tally in tallies]
    for trouble in filter(None, troubles):
        print(f"error: {trouble}", file=sys.stderr)
    if any(troubles):
        return 1
    print(f"All {sum(tally.n_passed for tally in tallies):,} tests passed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
