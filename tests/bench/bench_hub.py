"""What a hub costs: one store on a port of its own and one behind a hub, on this machine, used by turns.

    python tests/bench/bench_hub.py [--megabytes 1000] [--rounds 5] [--small 2000] [--dir DIR] [--eyas PATH]

A file is put to each store and got back, and so are many small files. The store behind the hub, the hub and the catalog's side share
this machine's processors, which between machines they would not. All that comes back has to be what was put. DIR is best in memory
(/dev/shm), so that no disk is measured.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAYS = ("direct", "hub")


def wait_for(log: Path, text: str) -> None:
    while text not in log.read_text():
        time.sleep(0.02)


@contextmanager
def started(folder: Path, eyas: Path, *words: str | Path, ready: str) -> Iterator[int]:
    """A service that runs meanwhile, once it has said that it is ready; its process."""
    log = folder / f"{words[-1]}.log".replace("/", "_")
    with log.open("wb") as stderr, subprocess.Popen([eyas, *words], stderr=stderr) as process:
        try:
            wait_for(log, ready)
            yield process.pid
        finally:
            process.terminate()


def processor_s(pid: int) -> float:
    """Seconds of processors that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def digest_of(path: Path) -> str:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as bytes_of:
            whole.update(hashlib.file_digest(bytes_of, "sha256").digest())
    return whole.hexdigest()


def measure(folder: Path, eyas: Path, megabytes: int, n_small: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, by what was done and over which way."""
    data: list[str | Path] = [eyas, "data", "--db", f"sqlite:{folder}/catalog.db"]

    def call(*words: str | Path) -> float:
        begun = time.monotonic()
        subprocess.run([*data, *words], check=True, capture_output=True)
        return time.monotonic() - begun

    large, small = folder / "large", folder / "small"
    with large.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1_000_000))
    small.mkdir()
    for n in range(n_small):
        (small / f"f{n}").write_bytes(os.urandom(10_000))
    call("init", "--dir", folder / "here")
    for way in WAYS:
        call("site", "--join", folder / way / "join.json")
    took: dict[str, list[float]] = {}
    for n in range(rounds):
        for what, source in (("large", large), ("small", small)):
            for way in WAYS if n % 2 else reversed(WAYS):
                label = f"{what}-{way}-{n}"
                took.setdefault(f"put {what} {way}", []).append(
                    call("put", source, "--label", label, "--site", way)
                )
                back = folder / "back"
                took.setdefault(f"get {what} {way}", []).append(call("get", label, back))
                found = back if source.is_dir() else back / source.name
                assert digest_of(found) == digest_of(source), label
                shutil.rmtree(back)
                call("rm", label)
                call("repair")
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description="What a hub costs.")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--small", type=int, default=2000, help="files of 10 KB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--eyas", type=Path, default=Path(sys.prefix) / "bin" / "eyas")
    args = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=args.dir) as made:
        folder, eyas = Path(made), args.eyas
        at = ("--listen", "127.0.0.1:0")
        hub = ("data", "hub", *at, "--dir", folder / "h")
        with started(folder, eyas, *hub, ready="where there is room") as pid:
            direct = ("store", *at, "--name", "direct", "--dir", folder / "direct")
            behind = ("store", "--hub", folder / "h" / "hub.json", "--name", "hub", "--dir", folder / "hub")
            with (
                started(folder, eyas, *direct, ready="where the catalog is"),
                started(folder, eyas, *behind, ready="is connected to its hub"),
            ):
                took = measure(folder, eyas, args.megabytes, args.small, args.rounds)
            hub_s = processor_s(pid)
    print(f"{args.rounds} rounds by turns; load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
    print(f"{'':40}{'direct':>10}{'hub':>10}{'ratio':>8}")
    sizes = {"large": f"a file of {args.megabytes} MB", "small": f"{args.small} files of 10 KB"}
    for what in sizes:
        for verb in ("put", "get"):
            near, far = (took[f"{verb} {what} {way}"] for way in WAYS)
            ratio = statistics.median(b / a for a, b in zip(near, far, strict=True))
            middle = [f"{statistics.median(of):.2f} s" for of in (near, far)]
            print(f"{verb + ' ' + sizes[what]:40}{middle[0]:>10}{middle[1]:>10}{ratio:>8.2f}")
    passed_gb = 2 * args.rounds * (args.megabytes / 1e3 + args.small / 1e5)
    print(f"the hub used a processor for {hub_s / passed_gb:.2f} s for each GB that it passed on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
