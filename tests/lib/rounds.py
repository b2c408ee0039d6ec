"""A merge sort that finds out as it goes how many rounds it takes: each round is a task that adds the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROUND = """
import json, os, subprocess, sys

eyas, result, gates, level, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
tasks = []
left = (n + 1) // 2
for k in range(left):
    pair = [i for i in (2 * k, 2 * k + 1) if i < n]
    last = left == 1
    tasks.append({
        "id": f"merge-{level}-{k}",
        "command": "sort -n part-* > out",
        "inputs": {f"part-{i}": f"run:{level}/{i}" for i in pair},
        "outputs": {"out": result if last else f"run:{level + 1}/{k}"},
    })
if left > 1:
    tasks.append({
        "id": f"round-{level + 1}",
        "command": ["python3", "round.py", eyas, result, gates, str(level + 1), str(left)],
        "inputs": {"round.py": os.environ["ROUND"],
                   **{f"in/{i}": f"run:{level + 1}/{i}" for i in range(left)}},
        "env": {"ROUND": os.environ["ROUND"]},
        "dynamic": True,
    })
with open("more.jsonl", "w") as out:
    out.writelines(json.dumps(task) + "\\n" for task in tasks)
open(f"{gates}/begun-{level}", "w").close()
sys.exit(subprocess.call([eyas, "submit", "more.jsonl"]))
"""


class MergeSort:
    """Its first tasks sort 12 lists of 10 numbers; what merges them is added."""

    # 12 sorts; 6, 3, 2 and 1 merges; and 4 rounds.
    n_tasks = 28

    def __init__(self, eyas: Path, folder: Path, result: Path) -> None:
        self.result, self.gates = result, folder / "gates"
        self.gates.mkdir()
        program = folder / "round.py"
        program.write_text(ROUND)
        n = 12
        self.numbers = [(i * 7919) % 1009 for i in range(n * 10)]
        self.tasks: list[dict[str, Any]] = []
        for i in range(n):
            own = " ".join(str(number) for number in self.numbers[i * 10 : i * 10 + 10])
            self.tasks.append(
                {
                    "id": f"sort-{i}",
                    "command": f"printf '%s\\n' {own} | sort -n > out",
                    "outputs": {"out": f"run:0/{i}"},
                }
            )
        command = ["python3", "round.py", str(eyas), str(result), str(self.gates), "0", str(n)]
        self.tasks.append(
            {
                "id": "round-0",
                "command": command,
                "inputs": {"round.py": str(program), **{f"in/{i}": f"run:0/{i}" for i in range(n)}},
                "env": {"ROUND": str(program)},
                "dynamic": True,
            }
        )

    def gate(self, level: int) -> Path:
        """There when the round has begun."""
        return self.gates / f"begun-{level}"

    def check(self) -> None:
        assert self.result.read_text().split() == [str(x) for x in sorted(self.numbers)]
