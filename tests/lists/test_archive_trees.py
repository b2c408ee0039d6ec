"""Files of a scatter and of a gather go along a tree of real nodes, and arrive whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import Run, log_entries

N_NODES = 6
N_FILES = 24


def test_parts_go_down_a_tree_and_results_up_one(run: Run, tmp_path: Path) -> None:
    parts = {f"p{i}": f"run:p{i}" for i in range(N_FILES)}
    found = {f"f{i}": f"run:f{i}" for i in range(N_FILES)}
    scatter = f"for i in $(seq 0 {N_FILES - 1}); do yes $i | head -c 100000 > p$i; done"
    # A tree of four has levels over more than four nodes, so every node takes part, also where one of them begins late.
    marks = tmp_path / "marks"
    marks.mkdir()

    def together(name: str) -> str:
        return f"touch {marks}/{name}; until [ $(ls {marks} | grep -c ^{name[0]}) -ge {N_NODES} ]; do sleep 0.02; done"

    here = {f"h{i}": f"run:h{i}" for i in range(N_NODES)}
    tasks: list[dict[str, Any]] = [
        {"id": f"h{i}", "command": f"{together(f'h{i}')}; echo > h{i}", "outputs": {f"h{i}": f"run:h{i}"}}
        for i in range(N_NODES)
    ]
    tasks.append({"id": "split", "command": scatter, "inputs": here, "outputs": parts})
    for i in range(N_FILES):
        tasks.append(
            {
                "id": f"r{i}",
                "command": f"{together(f'r{i}')}; tr -d '\\n' < p{i} > f{i}",
                "inputs": {f"p{i}": f"run:p{i}"},
                "outputs": {f"f{i}": f"run:f{i}"},
                "label": "read",
            }
        )
    count = "for f in f?*; do echo $f $(head -c 4 $f); done | sort > all"
    tasks.append({"id": "all", "command": count, "inputs": found, "outputs": {"all": str(tmp_path / "all")}})
    listed = tmp_path / "tasks.jsonl"
    listed.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    kept = tmp_path / "kept"
    nodes = ["--nodes", str(N_NODES), "--slots", "1"]
    run("run", listed, *nodes, "--collectives", "archive-tree", "--dir", kept)
    expected = sorted(f"f{i} {(str(i) * 4)[:4]}" for i in range(N_FILES))
    assert (tmp_path / "all").read_text().splitlines() == expected
    said = [
        entry.get("out") for log in kept.glob("dispatcher*/**/events.jsonl") for entry in log_entries(log)
    ]
    records = [o["end_collective"]["record"] for o in said if isinstance(o, dict) and "end_collective" in o]
    assert {record["kind"] for record in records} == {"scatter", "gather"}
    for record in records:
        assert record["way"] == {"archive-tree": {"arity": 4}}
        assert record["n_arrived"] == record["n_wanted"], "nothing was given up"
    # What a node is asked for and does not read itself, it passes on.
    asked = [o["prefetch"] for o in said if isinstance(o, dict) and "prefetch" in o]
    assert any(p.get("awaits") for p in asked), "a node was asked for what it was about to receive"
