"""A program that makes a directory: what is said about it, and that a packed one is a file like any other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from harness import Run
from lists import failures, write_list

PACK = "tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf"
MAKE = "mkdir results && echo one > results/b && echo two > results/a"


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ({"results/": "out/results/"}, "the location `out/results/` names a directory, not a file"),
        ({"results/": "out/results.tar"}, "the name `results/` names a directory, not a file"),
        (["out/results/"], "the location `out/results/` names a directory, not a file"),
        ({"results": "run:results/"}, "the location `run:results/` names a directory, not a file"),
    ],
    ids=["both", "name", "list", "stays"],
)
def test_a_directory_as_output_is_refused_with_a_line_that_packs_it(
    run: Run, tmp_path: Path, outputs: object, why: str
) -> None:
    write_list(tmp_path / "l.jsonl", {"command": MAKE, "outputs": outputs})
    refused = run("run", "l.jsonl", status=2).stderr
    assert why in refused
    assert f"let the command pack them: `... && {PACK} results.tar results`" in refused


def test_a_map_into_directories_is_refused_in_the_same_way(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    refused = run("map", "--out", "out/{stem}/", "a.txt", "--", "cp", "{}", "{out}", status=2).stderr
    assert "the location `out/a/` names a directory, not a file" in refused
    assert f"`... && {PACK} results.tar results`" in refused


def test_a_directory_where_a_file_was_declared_fails_with_what_helps(run: Run, tmp_path: Path) -> None:
    write_list(tmp_path / "l.jsonl", {"id": "a", "command": MAKE, "outputs": {"results": "out/results"}})
    why = failures(run("run", "l.jsonl", status=1))["a"]
    assert "is a directory, and an output is one file: let the command pack it, as with tar" in why
    assert not (tmp_path / "out" / "results").exists()


def pack_and_read(folder: Path, make: str) -> None:
    """One task packs a directory, the other one reads a file in it. Each leaves a line beside eyas when it runs."""
    ran = f"echo {{}} >> {folder}/ran; "
    make = f"{make} && {PACK} results.tar results"
    read = "tar -xf results.tar && cat results/a results/b > both"
    write_list(
        folder / "l.jsonl",
        {"id": "make", "command": ran.format("make") + make, "outputs": ["out/results.tar"]},
        {
            "id": "read",
            "command": ran.format("read") + read,
            "inputs": ["out/results.tar"],
            "outputs": ["out/both"],
        },
    )


def test_what_is_packed_is_a_file_like_any_other(run: Run, tmp_path: Path) -> None:
    """It goes home whole, a task that is done does not run again, and equal files are equal bytes."""
    archive, ran = tmp_path / "out" / "results.tar", tmp_path / "ran"
    pack_and_read(tmp_path, MAKE)
    run("run", "l.jsonl")
    assert ran.read_text().split() == ["make", "read"]
    assert (tmp_path / "out" / "both").read_text() == "two\none\n"
    first = archive.read_bytes()
    run("run", "l.jsonl", "--resume")
    assert ran.read_text().split() == ["make", "read"]
    refused = run("run", "l.jsonl", "--no-replace", status=2).stderr
    assert "would replace 2 existing files" in refused

    # Another command makes the same files, in another order and at another time.
    pack_and_read(tmp_path, "mkdir results && echo two > results/a && sleep 1.1 && echo one > results/b")
    run("run", "l.jsonl", "--resume")
    assert ran.read_text().split() == ["make", "read", "make", "read"]
    assert archive.read_bytes() == first
    pack_and_read(tmp_path, "mkdir results && echo two > results/a && echo three > results/b")
    run("run", "l.jsonl", "--resume")
    assert archive.read_bytes() != first
    assert (tmp_path / "out" / "both").read_text() == "two\nthree\n"
    subprocess.run(["tar", "-xf", archive], cwd=tmp_path, check=True)
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["a", "b"]
