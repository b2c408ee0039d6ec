"""`--home-rate` is for all nodes together, and goes to those who read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness import Run, log_entries
from lists import write_list

N_NODES = 4
FILE_BYTES = 3_000_000


def ended(events: Path) -> Iterator[tuple[int, int]]:
    """Of each attempt that ended: when it began to wait for its inputs, and how long it waited, in ns."""
    for entry in log_entries(events):
        event = entry.get("in")
        if isinstance(event, dict) and "attempt_ended" in event:
            report = event["attempt_ended"]["report"]
            yield report["times"]["received"], report["inputs"][0]["wait_ns"]


def test_a_lone_reader_has_the_rate_and_several_share_it(run: Run, tmp_path: Path) -> None:
    names = ["alone", *(f"r{i}" for i in range(N_NODES))]
    for name in names:
        (tmp_path / f"{name}.dat").write_bytes(os.urandom(FILE_BYTES))
    first = {
        "id": "alone",
        "command": "wc -c < alone.dat > n",
        "inputs": ["alone.dat"],
        "outputs": {"n": "n"},
    }
    others = [
        {
            "id": n,
            "command": f"cat n {n}.dat | wc -c > o",
            "inputs": [f"{n}.dat", "n"],
            "outputs": {"o": f"{n}.n"},
        }
        for n in names[1:]
    ]
    write_list(tmp_path / "tasks.jsonl", first, *others)
    options = ("--nodes", str(N_NODES), "--slots", "1", "--home-rate", "2MB", "--dir", "c")
    run("run", "tasks.jsonl", *options, cwd=tmp_path)
    waits = sorted(ended(tmp_path / "c" / "dispatcher" / "events.jsonl"))
    assert len(waits) == 1 + N_NODES
    alone, several = waits[0][1], [wait for _, wait in waits[1:]]
    # An equal split would give the lone one no more than each of the four.
    assert alone * 2 < max(several), waits
    # And together they keep to it: all bytes of the four, less what a token bucket lets through at once.
    span_ns = max(began + wait for began, wait in waits[1:]) - min(began for began, _ in waits[1:])
    assert span_ns > N_NODES * FILE_BYTES / 2_000_000 * 1e9 * 0.9, waits
