"""Run every benchmark that `eyas-lab bench` has, one after the other, and keep what they print.

    .venv/bin/python scripts/bench.py [NAME ...]

The output goes to the terminal and to target/bench/NAME.txt.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = Path(sys.prefix) / "bin" / "eyas-lab"
APPS = ("mosaic", "blast", "cybershake")
NAMES = ("dispatch", "decide", "transfer", "cache", "journal", "data", "predict", *APPS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {' '.join(NAMES)} (default: all)")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        print(f"error: there is no benchmark {unknown[0]}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    results = ROOT / "target" / "bench"
    results.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in args.names or NAMES:
        print(f"bench: {name}", flush=True)
        start = time.monotonic()
        command = [str(LAB), "bench", name]
        if name in APPS:
            # They have Python programs, which need what this environment has.
            command = [*command[:2], "app", name, "--apps", str(ROOT / "apps"), "--python", sys.executable]
        with open(results / f"{name}.txt", "w", encoding="utf-8") as file:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                file.write(line)
        if process.wait() != 0:
            failed.append(name)
        print(f"bench: {name} took {time.monotonic() - start:.0f} s", flush=True)
    for name in failed:
        print(f"failed: eyas-lab bench {name}", file=sys.stderr)
    print(f"Results are in {results.relative_to(ROOT)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
