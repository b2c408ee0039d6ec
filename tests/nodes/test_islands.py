"""Nodes that reach the dispatcher and home, and not each other; real processes on hosts of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from harness import Eyas, wait_until
from lists import write_list
from spaces import Site, hosts
from test_sites import cluster, joined, on

N_FILES = 6


def test_tasks_that_read_files_of_nodes_which_do_not_reach_each_other_end_well(
    eyas: Eyas, tmp_path: Path
) -> None:
    makers = [
        {"id": f"m{n}", "command": f"seq {n} 60000 > x; sleep 0.2", "outputs": {"x": f"run:x{n}"}}
        for n in range(N_FILES)
    ]
    readers = [
        {
            "id": f"u{n}",
            "command": "cat a b | wc -l > y",
            "inputs": {"a": f"run:x{n}", "b": f"run:x{(n + 1) % N_FILES}"},
            "outputs": {"y": f"{tmp_path}/out/y{n}"},
        }
        for n in range(N_FILES)
    ]
    tasks = write_list(tmp_path / "p.jsonl", *makers, *readers)
    mark = f"is{os.getpid() % 10_000}"
    with hosts(tmp_path, mark, "10.94.9", ["head", "a", "b"]) as there:
        for port in ("ve1", "ve2"):
            words = ["ip", "-n", f"{mark}b", "link", "set", port, "type", "bridge_slave", "isolated", "on"]
            subprocess.run(words, check=True)
        head = on(eyas, tmp_path, there[0])
        with cluster(eyas, tmp_path, {"all": Site("all", f"{mark}b", there)}, "15s") as state:
            join = state / "join.json"
            wait_until(lambda: len(joined(state / "events.jsonl")) == 2, "both nodes are there")
            done = eyas.start("run", "--join", join, tasks, program=head).wait(timeout=180)
            status = eyas.start("status", "--join", join, program=head).wait(timeout=30).stdout
    assert f"{2 * N_FILES} done, 0 failed" in done.stdout + done.stderr, done
    for n in range(N_FILES):
        n_lines = 60001 - n + 60001 - (n + 1) % N_FILES
        assert (tmp_path / "out" / f"y{n}").read_text().split() == [str(n_lines)]
    assert "node `a` cannot reach node `b`" in status or "node `b` cannot reach node `a`" in status, status
