"""Run CPython 3.11's own tests of `concurrent.futures` with its executors and with ours, and print how many pass of each.

    .venv/bin/python scripts/futures.py [--only NAME...] [--verbose]

The tests are those of Debian's package `libpython3.11-testsuite`, as they are, run by the Python of the same package: one class of them
for each executor, made as the file itself makes them. Fails if a test fails with ours that passes with a thread pool or with a process
pool (spawn), and has no reason in `NOT_OURS`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path("/usr/bin/python3.11")

# Tests that look at what a pool of threads or of processes consists of, and ours does not.
NOT_OURS = {
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run CPython's tests of concurrent.futures with our executor."
    )
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="NAME", help="only tests with these words in their names"
    )
    parser.add_argument("--verbose", action="store_true", help="show what the tests print")
    options = parser.parse_args()
    if not Path("/usr/lib/python3.11/test/test_concurrent_futures.py").exists():
        print(
            "error: CPython's tests are not there: apt-get install libpython3.11-testsuite", file=sys.stderr
        )
        return 2
    import eyas

    outcomes: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
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
        for which in ("threads", "processes", "ours"):
            out = place / f"{which}.json"
            command = [place / "env" / "bin" / "python", script, which, out, *options.only]
            done = subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True, check=False
            )
            if options.verbose or not out.exists():
                print(done.stdout + done.stderr)
            outcomes[which] = json.loads(out.read_text()) if out.exists() else {}
    ours = outcomes["ours"]
    print(f"{'':12} passed failed skipped")
    for which, found in outcomes.items():
        counts = [list(found.values()).count(outcome) for outcome in ("passed", "failed", "skipped")]
        print(f"{which:12} {counts[0]:6} {counts[1]:6} {counts[2]:7}")
    worse = []
    for name, outcome in sorted(ours.items()):
        others = [outcomes[which].get(name) for which in ("threads", "processes")]
        if outcome != "passed" and "passed" in others:
            print(f"{name}: {outcome}{f', as it {NOT_OURS[name]}' if name in NOT_OURS else ''}")
            worse += [name] if name not in NOT_OURS else []
    return 1 if worse or not ours else 0


if __name__ == "__main__":
    sys.exit(main())
