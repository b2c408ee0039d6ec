"""Lists of commands: a line for the shell is a task, staged as far as it declares its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import Run

LIST = """\
# three tasks and a comment

echo here; cat in/a.txt; pwd
sort {in:in/b c.txt} > {out:o/sorted}; pwd > left.behind
awk '{print $1 "{x}"}' {in:o/sorted} > {out:o/marked}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "in").mkdir(parents=True)
    (work / "in" / "a.txt").write_text("A\n")
    (work / "in" / "b c.txt").write_text("2\n1\n")
    (work / "commands.txt").write_text(LIST)
    return work


def test_what_is_declared_is_staged_and_the_rest_runs_in_place(run: Run, folder: Path) -> None:
    done = run("run", "commands.txt", "--nodes", "2", cwd=folder)
    assert done.stdout == f"here\nA\n{folder}\n"
    left = "1 file that 1 task made and that no output names went with the sandboxes: `left.behind`"
    assert [note.partition(";")[0] for note in done.notes] == [left]
    assert "3 tasks in" in done.stderr and "3 done, 0 failed" in done.stderr
    assert (folder / "o" / "sorted").read_text() == "1\n2\n"
    # It waited for the line that writes its input.
    assert (folder / "o" / "marked").read_text() == "1{x}\n2{x}\n"
    # What a sandbox has besides its outputs is gone.
    assert not (folder / "left.behind").exists()
    assert "Task `4`" in run("explain", "4", cwd=folder).stdout


def test_a_failed_line_is_named_and_resumed_alone(run: Run, folder: Path) -> None:
    (folder / "commands.txt").write_text("echo x >> log\ntest -e gate\n")
    assert "failed: task `2`: " in run("run", "commands.txt", cwd=folder, status=1).stderr
    (folder / "gate").touch()
    output = run("run", "commands.txt", "--resume", "--dry-run", cwd=folder).stdout
    assert output.splitlines()[0] == f"cd {folder} || exit; test -e gate"
    assert (
        "1 of 2 tasks are up to date, 1 to run" in run("run", "commands.txt", "--resume", cwd=folder).stderr
    )
    assert (folder / "log").read_text() == "x\n"


def test_commands_from_standard_input_and_as_a_task_list(run: Run, folder: Path) -> None:
    done = run("run", "--commands", "-", "--slots", "2", cwd=folder, stdin="echo a\n\necho b\n")
    assert done.stdout == "a\nb\n"
    made = run("convert", "commands.txt", "--to", "jsonl", cwd=folder).stdout
    assert [json.loads(line)["id"] for line in made.splitlines()] == ["3", "4", "5"]
    (folder / "same.jsonl").write_text(made)
    run("run", "same.jsonl", cwd=folder)
    assert (folder / "o" / "marked").read_text() == "1{x}\n2{x}\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.txt", "echo\necho \\\n", "x.txt, line 2: the line ends in a backslash"),
        ("x.txt", "#!/bin/sh\necho\n", "x.txt, line 1: this is a script"),
        ("x.txt", "cat {in:a\n", "x.txt, line 1: `{in:` is never closed"),
        ("x.sh", "echo\n", "hint: a list of commands, a line for the shell each, is named like commands.txt"),
        ("x.txt", '{"command": "true", "inptus": []}\n', "unknown field `inptus`"),
    ],
)
def test_mistakes_have_their_line(run: Run, folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    assert said in run("run", name, cwd=folder, status=2).stderr
