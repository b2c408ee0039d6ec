"""Calls of functions from Python, beside a process pool of the standard library, Ray and Dask, each in turn in one run.

    .venv/bin/python tests/bench/bench_calls.py [--calls 10000] [--rounds 3] [--context-calls 10000] [--million 1000000]
                                                [--json FILE]

Everybody has two workers on this machine. A row is the median of the rounds, and the ratio is to the pool.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

WORKERS = 2
Submit = Callable[..., Any]


def plus_one(n: int) -> int:
    return n + 1


def last_of(frame: Any, scale: int) -> float:
    return float(frame[-1]) * scale


def use(model: Any, seconds: float) -> int:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return int(model.nbytes)


def make_model(n_bytes: int) -> Any:
    return np.ones(n_bytes // 8)


def last_of_named(frame: Any, scale: int) -> float:
    return last_of(frame, scale)


_frame: Any = None
_model: Any = None


def keep_frame(frame: Any) -> None:
    global _frame
    _frame = frame


def last_of_kept(scale: int) -> float:
    return last_of(_frame, scale)


def keep_model(n_bytes: int) -> None:
    global _model
    _model = make_model(n_bytes)


def use_kept(seconds: float) -> int:
    return use(_model, seconds)


@contextmanager
def pool() -> Iterator[Submit]:
    with ProcessPoolExecutor(WORKERS) as executor:
        list(executor.map(plus_one, range(100)))
        yield executor.submit


@contextmanager
def ours() -> Iterator[Submit]:
    import eyas

    with eyas.Cluster(nodes=1, slots=WORKERS) as cluster:
        for future in [cluster.submit(plus_one, n) for n in range(100)]:
            future.result()
        yield cluster.submit


@contextmanager
def ray() -> Iterator[Submit]:
    # Without this, Ray leaves a token in the user's home.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    remotes: dict[Any, Any] = {}

    class Result:
        def __init__(self, ref: Any) -> None:
            self.ref = ref

        def result(self) -> Any:
            return ray.get(self.ref)

    def submit(fn: Any, *args: Any) -> Result:
        remote = remotes.setdefault(fn, ray.remote(fn))
        return Result(remote.remote(*args))

    try:
        for future in [submit(plus_one, n) for n in range(100)]:
            future.result()
        yield submit
    finally:
        ray.shutdown()


@contextmanager
def dask() -> Iterator[Submit]:
    from distributed import Client, LocalCluster

    start: Any = LocalCluster
    connect: Any = Client
    with (
        start(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as made,
        connect(made) as client,
    ):
        for future in [client.submit(plus_one, n, pure=False) for n in range(100)]:
            future.result()
        yield lambda fn, *args: client.submit(fn, *args, pure=False)


WHO: dict[str, Any] = {"process pool": pool, "eyas": ours, "Ray": ray, "Dask": dask}


def rate(submit: Submit, n: int) -> float:
    """Calls a second, submitted at once."""
    begun = time.perf_counter()
    futures = [submit(plus_one, i) for i in range(n)]
    assert sum(future.result() for future in futures) == n * (n + 1) // 2
    return n / (time.perf_counter() - begun)


def latency_ms(submit: Submit) -> float:
    """From a call to its result, one after the other: the median."""
    times = []
    for n in range(300):
        begun = time.perf_counter()
        submit(plus_one, n).result()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e3


def frame_s(submit: Submit) -> float:
    """100 calls on one array of 45 MB, given to each of them."""
    frame = np.random.default_rng(1).random(45_000_000 // 8)
    begun = time.perf_counter()
    found = [submit(last_of, frame, n) for n in range(100)]
    assert [one.result() for one in found] == [float(frame[-1]) * n for n in range(100)]
    return time.perf_counter() - begun


def frame_by_initializer_s() -> float:
    """The same with an array that each worker of a pool got once, its start included."""
    frame = np.random.default_rng(1).random(45_000_000 // 8)
    begun = time.perf_counter()
    with ProcessPoolExecutor(WORKERS, initializer=keep_frame, initargs=(frame,)) as executor:
        assert list(executor.map(last_of_kept, range(100))) == [float(frame[-1]) * n for n in range(100)]
    return time.perf_counter() - begun


def frame_from_start_s() -> dict[str, float]:
    """The same beside executorlib, whose workers have loaded the array once by its initializer. Both begin with nothing: their workers
    start, and the array is given to each call of ours.
    """
    import eyas
    from executorlib import SingleNodeExecutor  # type: ignore[import-untyped]

    frame = np.random.default_rng(1).random(45_000_000 // 8)
    expect = [float(frame[-1]) * n for n in range(100)]
    begun = time.perf_counter()
    with eyas.Cluster(nodes=1, slots=WORKERS) as cluster:
        assert [one.result() for one in [cluster.submit(last_of, frame, n) for n in range(100)]] == expect
        ours_s = time.perf_counter() - begun
    begun = time.perf_counter()
    start: Any = SingleNodeExecutor
    with start(
        max_workers=WORKERS, block_allocation=True, init_function=lambda: {"frame": frame}
    ) as executor:
        found = [executor.submit(last_of_named, scale=n) for n in range(100)]
        assert [one.result() for one in found] == expect
        theirs_s = time.perf_counter() - begun
    return {"eyas": ours_s, "executorlib": theirs_s}


def array_to_nodes() -> tuple[float, float]:
    """100 calls on four nodes that read one array of 100 MB: seconds, and bytes brought to nodes in copies of the array."""
    import eyas

    frame = np.random.default_rng(2).random(100_000_000 // 8)
    frame.flags.writeable = False
    with eyas.Cluster(nodes=4, slots=1) as cluster:
        begun = time.perf_counter()
        found = [cluster.submit(last_of, frame, n) for n in range(100)]
        assert [one.result() for one in found] == [float(frame[-1]) * n for n in range(100)]
        seconds = time.perf_counter() - begun
        runs = cluster.status()["runs"]
        brought = sum(run["home_bytes"] + run["peer_bytes"] for run in runs)
    return seconds, brought / frame.nbytes


def load_s() -> float:
    """How long workers take to make the value of 200 MB, all at once."""
    with ProcessPoolExecutor(WORKERS) as executor:
        list(executor.map(plus_one, range(100)))
        times = executor.map(timed_load, range(WORKERS))
        return max(times)


def timed_load(_: int) -> float:
    begun = time.perf_counter()
    keep_model(200_000_000)
    return time.perf_counter() - begun


def context_ratio(n: int) -> tuple[float, float]:
    """`n` calls of 10 ms with a value of 200 MB that each worker makes: our time, and a pool's, by the time of computing and of one load.
    Both begin with no workers.
    """
    import eyas

    pure = n * 0.01 / WORKERS + load_s()
    with eyas.Cluster(nodes=1, slots=WORKERS) as cluster:
        begun = time.perf_counter()
        model = cluster.context(make_model, 200_000_000)
        for future in [cluster.submit(use, model, 0.01) for _ in range(n)]:
            future.result()
        our_s = time.perf_counter() - begun
    begun = time.perf_counter()
    with ProcessPoolExecutor(WORKERS, initializer=keep_model, initargs=(200_000_000,)) as executor:
        for future in [executor.submit(use_kept, 0.01) for _ in range(n)]:
            future.result()
    return our_s / pure, (time.perf_counter() - begun) / pure


def many(n: int) -> tuple[float, float]:
    """`n` calls by `map_calls`, 1,000 to a task: calls a second, and by how many MB this process has grown."""
    import eyas

    with eyas.Cluster(nodes=1, slots=WORKERS) as cluster:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.perf_counter()
        assert sum(cluster.map_calls(plus_one, range(n), chunksize=1000)) == n * (n + 1) // 2
        seconds = time.perf_counter() - begun
    return n / seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3


def import_ms() -> float:
    """`import eyas` by itself: what it adds to the start of an interpreter."""

    def of(code: str) -> float:
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - begun)
        return statistics.median(times)

    return (of("import eyas; eyas.Cluster") - of("pass")) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description="Calls of functions, beside a process pool, Ray and Dask.")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--context-calls", type=int, default=10_000, help="calls with a context")
    parser.add_argument("--million", type=int, default=1_000_000, help="calls by map_calls")
    parser.add_argument("--only", nargs="*", default=list(WHO), help="who is measured: " + ", ".join(WHO))
    parser.add_argument("--json", help="the same for programs")
    args = parser.parse_args()
    columns = ("calls/s", "one call, ms", "100 calls on 45 MB, s")
    found: dict[str, dict[str, list[float]]] = {who: {name: [] for name in columns} for who in args.only}
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    # First, as memory that was used before would hide what this needs.
    rows: dict[str, float] = {}
    rows[f"{args.million} calls by map_calls, calls/s"], rows["memory of the client, MB more"] = many(
        args.million
    )
    for _ in range(args.rounds):
        for who in args.only:
            with WHO[who]() as submit:
                found[who]["calls/s"].append(rate(submit, args.calls))
                found[who]["one call, ms"].append(latency_ms(submit))
                found[who]["100 calls on 45 MB, s"].append(frame_s(submit))
    median = {
        who: {name: statistics.median(of) for name, of in columns.items()} for who, columns in found.items()
    }
    print(f"{'':14}" + "".join(f"{name:>24}" for name in columns))
    for who, of in median.items():
        print(f"{who:14}" + "".join(f"{of[name]:>24.4g}" for name in columns))
    rows["pool with the array by its initializer, s"] = frame_by_initializer_s()
    # By turns, as the machine may be busier at one time than at another.
    from_start = [frame_from_start_s() for _ in range(args.rounds)]
    for who in ("eyas", "executorlib"):
        name = f"100 calls on 45 MB with the start of all, {who}, s"
        rows[name] = statistics.median(one[who] for one in from_start)
    rows["100 MB to 100 calls on 4 nodes, s"], rows["copies of it brought to nodes"] = array_to_nodes()
    n = args.context_calls
    name = f"{n} calls of 10 ms with a context, by computing and one load"
    rows[name], rows["the same of a pool"] = context_ratio(n)
    rows["import eyas, ms"] = import_ms()
    for name, value in rows.items():
        print(f"{name:60}{value:>12.4g}")
    print(f"load {os.getloadavg()[0]:.1f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"medians": median, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
