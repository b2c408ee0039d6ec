"""Run the tests that others wrote for what eyas stands in for: with theirs and with ours, and print how many pass of each.

    .venv/bin/python scripts/suites.py [futures] [joblib] [fsspec] [dask] [--only NAME...] [--verbose]

All tests are run as they are:

    futures   CPython 3.11's tests of `concurrent.futures` (Debian's `libpython3.11-testsuite`, by the Python of the same package): one
              class of them for each executor, made as the file itself makes them
    joblib    `joblib/test/test_parallel.py` of joblib's wheel, with ours as the default backend and wherever loky is one
    dask      the tests of bags and of arrays of Dask's wheel, with its threads as the scheduler and with `eyas.dask.get`
    fsspec    `fsspec.tests.abstract` of fsspec's wheel: copy, get, put, open and pipe, on paths, and on buckets of an S3 server

Fails if a test fails with ours that passes with one of theirs, and has no reason here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path("/usr/bin/python3.11")

# The outcome of each test: passed, failed, skipped.
Outcomes = dict[str, str]


@dataclass
class Options:
    """What the command line says: words in names of tests, and whether to show what tests print."""

    only: list[str]
    verbose: bool


@dataclass
class Suite:
    """Tests of others. `run` gives the outcomes by whose part it is, ours last; `reasons` are those of tests that fail with ours, by
    their names or what these begin with.
    """

    run: Callable[[Path, Options], dict[str, Outcomes]]
    reasons: dict[str, str] = field(default_factory=dict)
    # What is to be said where it cannot be run.
    missing: Callable[[], str | None] = lambda: None

    def reason(self, test: str) -> str | None:
        return next(
            (why for name, why in self.reasons.items() if test == name or test.startswith(f"{name}[")), None
        )


# ---------------------------------------------------------------- concurrent.futures

# Tests that look at what a pool of threads or of processes consists of, and ours does not.
NOT_OF_FUTURES = {
    "ProcessPoolExecutorTest.test_killed_child": "kills a process of `_processes`",
    "ProcessPoolExecutorTest.test_saturation": "counts `_processes`",
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": "counts `_processes`",
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": "counts `_processes`",
    "ProcessPoolExecutorTest.test_max_tasks_per_child": "is about `max_tasks_per_child`",
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": "is about `max_tasks_per_child`",
    "ProcessPoolExecutorTest.test_max_tasks_early_shutdown": "is about `max_tasks_per_child`",
    "ProcessPoolExecutorTest.test_ressources_gced_in_workers": "needs a context",  # misspelt on purpose
    "ProcessPoolExecutorTest.test_max_workers_too_large": "is of Windows",
}

# Some tests import the executor by its name from `concurrent.futures`, in a process of their own.
SITE = """
import sys
if "eyas._worker" not in sys.orig_argv:
    import concurrent.futures
    from eyas.futures import Executor
    concurrent.futures.Executor = Executor
"""

# The classes are in a module that workers can import, as the file's own are.
CASES = """
import test.test_concurrent_futures as suite
from eyas.futures import Executor

class OurMixin(suite.ExecutorMixin):
    executor_type = Executor

MIXINS = {"ours": OurMixin, "threads": suite.ThreadPoolMixin, "processes": suite.ProcessPoolSpawnMixin}
BASES = [
    "WaitTests", "AsCompletedTests", "ExecutorTest", "ProcessPoolExecutorTest", "InitializerMixin",
    "FailingInitializerMixin", "ExecutorShutdownTest",
]
for which, mixin in MIXINS.items():
    for base in BASES:
        name = f"{which}_{base}"
        globals()[name] = type(name, (getattr(suite, base), mixin, suite.BaseTestCase), {"__module__": "cases"})
"""

RUN = """
import json, sys, unittest
import cases

class Result(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outcomes = {}
    def addSuccess(self, test):
        super().addSuccess(test); self.note(test, "passed")
    def addError(self, test, err):
        super().addError(test, err); self.note(test, "failed")
    def addFailure(self, test, err):
        super().addFailure(test, err); self.note(test, "failed")
    def addSkip(self, test, reason):
        super().addSkip(test, reason); self.note(test, "skipped")
    def note(self, test, outcome):
        self.outcomes[f"{type(test).__name__.partition('_')[2]}.{test._testMethodName}"] = outcome

if __name__ == "__main__":
    which, out, *only = sys.argv[1:]
    tests = unittest.TestSuite()
    for base in cases.BASES:
        if which == "threads" and base == "ProcessPoolExecutorTest":
            continue
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(getattr(cases, f"{which}_{base}")):
            if not only or any(name in f"{base}.{test._testMethodName}" for name in only):
                tests.addTest(test)
    result = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(tests)
    json.dump(result.outcomes, open(out, "w"))
"""


def missing_futures() -> str | None:
    if Path("/usr/lib/python3.11/test/test_concurrent_futures.py").exists():
        return None
    return "CPython's tests are not there: apt-get install libpython3.11-testsuite"


def run_futures(place: Path, options: Options) -> dict[str, Outcomes]:
    import eyas

    subprocess.run([PYTHON, "-m", "venv", "--without-pip", place / "env"], check=True)
    site = place / "env" / "lib" / "python3.11" / "site-packages"
    packages = {str(Path(module.__file__ or "").parent.parent) for module in (eyas, cloudpickle)}
    (site / "eyas.pth").write_text("".join(f"{path}\n" for path in sorted(packages)))
    # Debian has a `sitecustomize` of its own, which comes first.
    (site / "ours_in_futures.py").write_text(SITE)
    (site / "ours_in_futures.pth").write_text("import ours_in_futures\n")
    script = place / "run.py"
    script.write_text(RUN)
    (place / "cases.py").write_text(CASES)
    environment = {**os.environ, "EYAS_STATE": str(place / "state")}
    outcomes: dict[str, Outcomes] = {}
    for which in ("threads", "processes", "ours"):
        out = place / f"{which}.json"
        command = [place / "env" / "bin" / "python", script, which, out, *options.only]
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        if options.verbose or not out.exists():
            print(done.stdout + done.stderr)
        outcomes[which] = json.loads(out.read_text()) if out.exists() else {}
    return outcomes


# ---------------------------------------------------------------- suites of pytest


def pytest_outcomes(
    place: Path, which: str, words: list[str | Path], variables: dict[str, str], options: Options
) -> Outcomes:
    """Runs pytest with these words. An expected failure is a skipped test."""
    out = place / f"{which}.xml"
    only = ["-k", " or ".join(options.only)] if options.only else []
    # Their tests are not run by our settings.
    settings = ["-c", os.devnull, f"--rootdir={place}", "-p", "no:cacheprovider"]
    if not options.verbose:
        # To show an array of a test that failed may end the process: its memory may be gone.
        settings.append("--tb=no")
    command = [sys.executable, "-m", "pytest", "-q", *settings, "--timeout=120", f"--junitxml={out}"]
    environment = {
        **os.environ,
        "EYAS_STATE": str(place / "state"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "tests" / "lib"), str(place)]),
        **variables,
    }
    done = subprocess.run(
        [*command, *words, *only], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    # Some tests failed, or none did.
    has_run = done.returncode in (0, 1)
    if options.verbose or not has_run:
        print(done.stdout + done.stderr)
    found: Outcomes = {}
    for case in ET.parse(out).iter("testcase") if has_run else ():
        kinds = {child.tag for child in case} - {"system-out", "system-err", "properties"}
        group = case.attrib["classname"].rpartition(".")[2]
        name = f"{group}.{case.attrib['name']}" if group else case.attrib["name"]
        found[name] = "skipped" if kinds == {"skipped"} else "failed" if kinds else "passed"
    return found


# Backends of joblib that are not there until they are imported: our name, in all processes that tests start.
SITE_OF_JOBLIB = "import eyas.joblib\n"

NOT_OF_JOBLIB = {
    "test_nested_parallel_warnings[eyas-multiprocessing-True]": "expects a warning; processes may be started below ours",
    "test_nested_parallel_warnings[threading-eyas-True]": "expects a warning; threads may have loops of ours",
    "test_multiple_generator_call_separated_gc": "expects that a second loop fails; with ours both go on",
    "test_auto_memmap_on_arrays_from_generator[eyas]": "expects `numpy.memmap`; ours maps arrays in another way",
    "test_memmapping_leaks[eyas]": "expects `numpy.memmap`; ours maps arrays in another way",
    "test_backend_hinting_and_constraints": "expects `LokyBackend` as the default",
}


def run_joblib(place: Path, options: Options) -> dict[str, Outcomes]:
    words: list[str | Path] = [
        "-p",
        "suite_joblib",
        "--import-mode=importlib",
        "--pyargs",
        "joblib.test.test_parallel",
    ]
    theirs = pytest_outcomes(place, "loky", words, {"JOBLIB_BACKEND": "loky"}, options)
    (place / "sitecustomize.py").write_text(SITE_OF_JOBLIB)
    ours = pytest_outcomes(place, "ours", words, {"JOBLIB_BACKEND": "eyas"}, options)
    found: dict[str, Outcomes] = {"loky": {}, "ours": {}}
    for name, outcome in ours.items():
        name = name.removeprefix(".")
        found["ours"][name] = outcome
        counterpart = theirs.get("." + name.replace("eyas", "loky")) or theirs.get(
            name.replace("eyas", "loky")
        )
        if counterpart is not None:
            found["loky"][name] = counterpart
    return found


def run_fsspec(place: Path, options: Options) -> dict[str, Outcomes]:
    found: dict[str, Outcomes] = {}
    cases = [
        f"{ROOT / 'tests' / 'python' / 'test_fsspec.py'}::Test{of}"
        for of in ("Copy", "Get", "Put", "Open", "Pipe")
    ]
    for which, system in (("LocalFileSystem", "local"), ("ours", "paths"), ("ours at S3", "buckets")):
        found[which] = pytest_outcomes(place, system, [*cases], {"FSSPEC_SYSTEM": system}, options)
    return found


STORES, LOCKS, WARNS = (
    "writes into an object of its own process",
    "has a lock of its own process",
    "expects a warning here",
)
NOT_OF_DASK = {
    "test_bag.test_to_delayed_optimize_graph": "counts calls in its own process",
    "test_array_core.test_store": STORES,
    "test_array_core.test_store_delayed_target": STORES,
    "test_array_core.test_store_regions": STORES,
    "test_array_core.test_store_compute_false": STORES,
    "test_array_core.test_memmap": STORES,
    "test_array_core.test_zarr_sharding_roundtrip": STORES,
    "test_array_core.test_zarr_existing_array": STORES,
    "test_array_core.test_zarr_to_zarr_shards": STORES,
    "test_array_core.test_zarr_regions": STORES,
    "test_array_core.test_store_locks_count_calls": LOCKS,
    "test_array_core.test_from_array_with_lock": LOCKS,
    "test_reductions.test_array_cumreduction_axis": WARNS,
    "test_routines.test_average_raises": WARNS,
}


def run_dask(place: Path, options: Options) -> dict[str, Outcomes]:
    found: dict[str, Outcomes] = {}
    words: list[str | Path] = ["-p", "suite_dask", "--pyargs", "dask.bag", "dask.array"]
    for which in ("threads", "ours"):
        found[which] = pytest_outcomes(place, which, words, {"DASK_SCHEDULER": which}, options)
    return found


SUITES = {
    "futures": Suite(run_futures, NOT_OF_FUTURES, missing_futures),
    "joblib": Suite(run_joblib, NOT_OF_JOBLIB),
    "fsspec": Suite(run_fsspec),
    "dask": Suite(run_dask, NOT_OF_DASK),
}


def judge(suite: Suite, outcomes: dict[str, Outcomes]) -> bool:
    """Prints the counts, and what fails with ours alone; `True`: each of these has a reason."""
    print(f"{'':16} passed failed skipped")
    for which, found in outcomes.items():
        counts = [list(found.values()).count(outcome) for outcome in ("passed", "failed", "skipped")]
        print(f"{which:16} {counts[0]:6} {counts[1]:6} {counts[2]:7}")
    ours = {which: found for which, found in outcomes.items() if which.startswith("ours")}
    theirs = [found for which, found in outcomes.items() if which not in ours]
    is_good = all(ours.values())
    for which, found in ours.items():
        for name, outcome in sorted(found.items()):
            if outcome != "passed" and "passed" in [other.get(name) for other in theirs]:
                reason = suite.reason(name)
                print(f"{which}: {name}: {outcome}{f', as it {reason}' if reason else ''}")
                is_good = is_good and reason is not None
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests of others with theirs and with ours.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; default: all")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="only tests with these words in their names"
    )
    parser.add_argument("--verbose", action="store_true", help="show what the tests print")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    options = Options(arguments.only, arguments.verbose)
    is_good = True
    for name in arguments.suites or SUITES:
        suite = SUITES[name]
        missing = suite.missing()
        if missing is not None:
            print(f"error: {missing}", file=sys.stderr)
            return 2
        print(f"{name}:")
        with tempfile.TemporaryDirectory() as folder:
            is_good = judge(suite, suite.run(Path(folder), options)) and is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
