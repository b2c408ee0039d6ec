#!/usr/bin/env python3
"""Write a task list of eyas as a workflow file that other systems read.

    formats.py tasks.jsonl --to wfformat --out mosaic.json
    formats.py tasks.jsonl --to pegasus --out mosaic.yml

`wfformat` is WfCommons WfFormat 1.5: tasks with commands, parents and children, files with sizes where they are
known. It has no place for where files are, so those that no task writes are copied beside it; and its results are what no
task reads (so plan a mosaic with --no-picture, whose task reads it).

`pegasus` is the abstract workflow of Pegasus 5 with its replica and transformation catalogs inside. Results are what
has a place at home in the list.

Both name a file as the tasks do; commands are lists of strings, so tasks that are lines for a shell are refused.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


class FormatError(Exception):
    """The workflow cannot be written; its text is one sentence for the user."""


@dataclass(frozen=True)
class Task:
    id: str
    stage: str
    command: list[str]
    inputs: dict[str, str]
    outputs: dict[str, str]


def read_tasks(path: Path) -> list[Task]:
    tasks = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        values = json.loads(line)
        if not isinstance(values["command"], list):
            raise FormatError(f"{path}, line {number}: a line for a shell has no place in these formats")
        task_id = values.get("id", str(number))
        stage = values.get("label") or Path(values["command"][0]).name
        tasks.append(Task(task_id, stage, values["command"], values["inputs"], values["outputs"]))
    return tasks


def links(tasks: list[Task]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Parents and children of each task."""
    writer = {name: task.id for task in tasks for name in task.outputs}
    parents: dict[str, set[str]] = {task.id: set() for task in tasks}
    children: dict[str, set[str]] = {task.id: set() for task in tasks}
    for task in tasks:
        for name in task.inputs:
            if name in writer:
                parents[task.id].add(writer[name])
                children[writer[name]].add(task.id)
    return parents, children


def is_result(location: str) -> bool:
    return not location.startswith("run:")


def wfformat(tasks: list[Task], name: str) -> str:
    parents, children = links(tasks)
    places = {
        name: place
        for task in tasks
        for files in (task.inputs, task.outputs)
        for name, place in files.items()
    }
    files = []
    for file, place in places.items():
        path = Path(place)
        files.append({"id": file, "sizeInBytes": path.stat().st_size if path.is_file() else 0})
    workflow = {
        "name": name,
        "description": "A mosaic of overlapping sky images, by Montage",
        "createdAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "name": task.stage,
                        "id": task.id,
                        "parents": sorted(parents[task.id]),
                        "children": sorted(children[task.id]),
                        "inputFiles": list(task.inputs),
                        "outputFiles": list(task.outputs),
                    }
                    for task in tasks
                ],
                "files": files,
            },
            "execution": {
                "makespanInSeconds": 0,
                "executedAt": datetime.now(UTC).isoformat(timespec="seconds"),
                "tasks": [
                    {
                        "id": task.id,
                        "runtimeInSeconds": 0,
                        "command": {"program": task.command[0], "arguments": task.command[1:]},
                    }
                    for task in tasks
                ],
                "machines": [],
            },
        },
    }
    return json.dumps(workflow, indent=1) + "\n"


def quoted(text: str) -> str:
    """A scalar of YAML; JSON's strings are some."""
    return json.dumps(text)


def bring_inputs(tasks: list[Task], folder: Path) -> None:
    """Copies what no task writes to where its name says, from the workflow's folder on."""
    written = {file for task in tasks for file in task.outputs}
    for task in tasks:
        for file, place in task.inputs.items():
            target = folder / file
            if file not in written and not (target.exists() and target.samefile(place)):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(place, target)


def pegasus(tasks: list[Task], name: str) -> str:
    _, children = links(tasks)
    written = {file for task in tasks for file in task.outputs}
    outside = {file: place for task in tasks for file, place in task.inputs.items() if file not in written}
    programs = {task.stage: task.command[0] for task in tasks}
    if any(programs[task.stage] != task.command[0] for task in tasks):
        raise FormatError("tasks of one stage run different programs")
    lines = ["x-pegasus: {apiLang: python, createdBy: formats.py}", 'pegasus: "5.0"', f"name: {quoted(name)}"]
    lines += ["replicaCatalog:", "  replicas:"]
    for file, place in outside.items():
        lines += [f"  - lfn: {quoted(file)}", "    pfns:"]
        lines += ["    - site: local", f"      pfn: {quoted(place)}"]
    lines += ["transformationCatalog:", "  transformations:"]
    for stage, program in programs.items():
        lines += [f"  - name: {quoted(stage)}", "    sites:", "    - name: local"]
        lines += [f"      pfn: {quoted(shutil.which(program) or program)}", "      type: installed"]
    lines += ["jobs:"]
    for task in tasks:
        lines += ["- type: job", f"  name: {quoted(task.stage)}", f"  id: {quoted(task.id)}", "  arguments:"]
        # They are joined with blanks and split as a shell would.
        lines += [f"  - {quoted(shlex.quote(argument))}" for argument in task.command[1:]]
        lines += ["  uses:"]
        lines += [f"  - lfn: {quoted(file)}\n    type: input" for file in task.inputs]
        for file, place in task.outputs.items():
            stage_out = "true" if is_result(place) else "false"
            lines += [f"  - lfn: {quoted(file)}", "    type: output"]
            lines += [f"    stageOut: {stage_out}", "    registerReplica: false"]
    lines += ["jobDependencies:"]
    for task in tasks:
        if children[task.id]:
            lines += [f"- id: {quoted(task.id)}", "  children:"]
            lines += [f"  - {quoted(child)}" for child in sorted(children[task.id])]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a task list as a workflow file of another system.")
    parser.add_argument("tasks", type=Path, help="task list")
    parser.add_argument("--to", required=True, choices=["wfformat", "pegasus"])
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    try:
        tasks = read_tasks(args.tasks)
        write = wfformat if args.to == "wfformat" else pegasus
        args.out.parent.mkdir(parents=True, exist_ok=True)
        if args.to == "wfformat":
            bring_inputs(tasks, args.out.parent)
        args.out.write_text(write(tasks, args.out.stem), encoding="utf-8")
    except (OSError, ValueError, KeyError, FormatError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
