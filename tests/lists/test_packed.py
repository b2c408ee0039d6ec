"""A directory that the command packs is a file like any other. (One that it does not pack: test_directories.py.)"""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import Run
from lists import write_list

PACK = "tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf"
MAKE = "mkdir results && echo one > results/b && echo two > results/a"


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
