"""Swift scripts: run, converted, drawn, and refused with their lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import Run

# Two stages, with names for the results only: the parts stay on the nodes.
SCRIPT = """type file;
app (file o) double(file i) { awk "{print 2 * $1}" @i stdout=@o; }
app (file o, file log) add(file parts[]) {
  awk "{s += $1} END {print s; print NR > \\"/dev/stderr\\"}" filenames(parts) stdout=@o stderr=@log;
}
file numbers[] <filesys_mapper; location="in", suffix=".txt">;
file parts[];
foreach number, i in numbers {
  parts[i] = double(number);
}
tracef("%i numbers for %s\\n", length(numbers), arg("who", "nobody"));
file sum <single_file_mapper; file=strcat("out/", arg("name", "sum"), ".txt")>;
file log <"out/log.txt">;
(sum, log) = add(parts);
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text(f"{number}\n")
    path = tmp_path / "sum.swift"
    path.write_text(SCRIPT)
    return path


def test_a_script_runs_and_what_it_names_comes_home(run: Run, script: Path, tmp_path: Path) -> None:
    done = run("run", script, "--nodes", "2", "--slots", "1", "--", "-who=me", "-name=all")
    assert "4 done, 0 failed" in done.stderr and "3 numbers for me\n" in done.stderr
    assert (tmp_path / "out/all.txt").read_text() == "6\n"
    assert (tmp_path / "out/log.txt").read_text() == "3\n"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name[0] == "_") == []


def test_a_script_of_another_folder_takes_inputs_and_gives_results_elsewhere(
    run: Run, script: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "scripts" / script.name
    moved.parent.mkdir()
    script.rename(moved)
    run("run", moved, "--inputs", tmp_path, "--out", tmp_path / "results")
    assert (tmp_path / "results/out/sum.txt").read_text() == "6\n"


def test_a_script_is_converted_and_drawn(run: Run, script: Path, tmp_path: Path) -> None:
    done = run("convert", script, "--to", "jsonl", "--", "-who=x")
    tasks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [task["id"] for task in tasks] == ["double_0", "double_1", "double_2", "add_0"]
    assert {task["label"] for task in tasks} == {"double", "add"}
    assert set(tasks[0]["outputs"].values()) == {"run:_concurrent/parts-0.0"}
    run("graph", script, "-o", tmp_path / "sum.svg", "--", "-who=x")
    assert "add" in (tmp_path / "sum.svg").read_text()


def test_a_script_without_tasks_only_prints(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "hello.swift"
    path.write_text('foreach i in [1:2] { trace("hello", i); }\n')
    assert "hello, 1\nhello, 2\n" in run("run", path).stderr


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        (
            "type file;\nint i = 1\n",
            "bad.swift, line 3, column 1: the end of the script stands where `;` is expected",
        ),
        ("trace(1);\nnosuch(2);\n", "bad.swift, line 2, column 1: `nosuch` is no procedure of the script"),
        ("int i = 1;\n i = 2;\n", "bad.swift, line 2, column 2: `i` is assigned here and on line 1"),
        ('file f <"no.txt">;\nint i = readData(f);\n', "bad.swift, line 2, column 9"),
        (
            'app (file o) t(file i) { cp @i @o; }\nfile i <"no.txt">;\nfile o <"o"> = t(i);\n',
            "line 3: `no.txt`",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_place(run: Run, tmp_path: Path, text: str, expect: str) -> None:
    path = tmp_path / "bad.swift"
    path.write_text(text)
    done = run("run", path, status=2)
    assert expect in done.stderr and "panicked" not in done.stderr


def test_a_mappers_program_runs_only_when_it_may(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.sh").write_text('#!/bin/sh\ntouch ran\nshift\necho "[0] $1.a"\necho "[1] $1.b"\n')
    (tmp_path / "m.sh").chmod(0o755)
    path = tmp_path / "ext.swift"
    path.write_text(
        'app (file o[]) t() { touch filenames(o); }\nfile f[] <ext; exec="m.sh", stem="x">;\nf = t();\n'
    )
    refused = run("convert", path, "--to", "jsonl", status=2)
    assert "line 2, column 11" in refused.stderr and "--run-mappers" in refused.stderr
    assert not (tmp_path / "ran").exists()
    run("run", path, "--run-mappers")
    assert (tmp_path / "x.a").exists() and (tmp_path / "x.b").exists()


def test_arguments_are_for_scripts_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"command": "true"}\n')
    assert "are for Swift scripts" in run("run", path, "--", "-n=1", status=2).stderr
