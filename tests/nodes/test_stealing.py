"""Queues per node: tasks wait where their first input is, and idle neighbours steal."""

from __future__ import annotations

import json
from pathlib import Path

from harness import Run, log_entries

N_READERS = 8


def tasks() -> str:
    """One maker, and readers that are long beside a copy of what they read."""
    maker = {"id": "maker", "command": ["sh", "-c", "echo made > made"], "outputs": {"made": "run:made"}}
    readers = [
        {
            "id": f"reader-{i}",
            "command": ["sh", "-c", "sleep 0.3; cat made other"],
            "inputs": {"made": "run:made", "other": "other"},
        }
        for i in range(N_READERS)
    ]
    return "".join(json.dumps(task) + "\n" for task in [maker, *readers])


def where(log: Path) -> tuple[dict[int, int], list[dict[str, object]]]:
    """The executor of each task's last attempt, and why all were put where they were."""
    executors, reasons = {}, []
    for entry in log_entries(log):
        assign = entry.get("out", {})
        if isinstance(assign, dict) and "assign" in assign:
            assignment = assign["assign"]["assignment"]
            executors[assignment["task"]] = assign["assign"]["executor"]
            reasons.append(assignment["why"])
    return executors, reasons


def test_without_stealing_readers_queue_at_the_holder_and_with_it_they_do_not(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "tasks.jsonl").write_text(tasks(), encoding="utf-8")
    (tmp_path / "other").write_text("other\n", encoding="utf-8")
    options = ("--nodes", "2", "--slots", "1", "--collectives", "off")
    bound, steals = tmp_path / "bound", tmp_path / "steals"
    run("run", "tasks.jsonl", *options, "--placement", "first-input", "--dir", bound, cwd=tmp_path)
    executors, reasons = where(bound / "dispatcher" / "events.jsonl")
    assert len(set(executors.values())) == 1, f"all wait for the one that made the file: {executors}"
    assert [why["reason"] for why in reasons] == ["dealt"] + ["first_here"] * N_READERS
    run("run", "tasks.jsonl", *options, "--placement", "first-input-steal", "--dir", steals, cwd=tmp_path)
    executors, reasons = where(steals / "dispatcher" / "events.jsonl")
    assert len(set(executors.values())) == 2, f"the idle node works, too: {executors}"
    assert any(isinstance(why["reason"], dict) and "stolen" in why["reason"] for why in reasons)
    # The last one in the queue is the first to be stolen.
    explanation = run("explain", f"reader-{N_READERS - 1}", "--dir", steals)
    assert "take it from its neighbour" in explanation.stdout
