"""`eyas map` as the README and its help show it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from harness import Run

SCRIPT = """
import gzip, pathlib, sys
data = gzip.open(sys.argv[1]).read()
pathlib.Path(sys.argv[2]).write_bytes(data[::-1])
"""


def sky(folder: Path) -> None:
    (folder / "sky").mkdir()
    for name in ("a", "b c", "-d"):
        with gzip.open(folder / "sky" / f"{name}.fits.gz", "wb") as file:
            file.write(name.encode() * 100)


def test_a_script_of_this_folder_is_taken_along(run: Run, tmp_path: Path) -> None:
    sky(tmp_path)
    (tmp_path / "cutout.py").write_text(SCRIPT)
    command = ["python3", "cutout.py", "{in}", "{out}"]
    done = run(
        "map", "sky/*.fits.gz", "--out", "cut/{stem}.npy", "--nodes", "2", "--", *command, cwd=tmp_path
    )
    assert done.stderr.startswith("note: `cutout.py`, which the command names, is an input of every task\n")
    made = {path.name: path.read_bytes() for path in (tmp_path / "cut").iterdir()}
    assert made == {f"{name}.npy": (name.encode() * 100)[::-1] for name in ("a", "b c", "-d")}


def test_a_script_in_a_shell_line_and_one_that_is_executable(run: Run, tmp_path: Path) -> None:
    sky(tmp_path)
    script = tmp_path / "size.sh"
    script.write_text('#!/bin/sh\nwc -c < "$1"\n')
    script.chmod(0o755)
    line = "./size.sh {in} > {out}"
    run("map", "sky/*.gz", "--out", "n/{stem}", "--shell", "--", line, cwd=tmp_path)
    for path in (tmp_path / "sky").iterdir():
        assert int((tmp_path / "n" / path.name.removesuffix(".fits.gz")).read_text()) == path.stat().st_size


def test_what_is_mapped_over_is_not_taken_twice(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("1")
    done = run("map", "one.txt", "--out", "{stem}.out", "--", "cp", "one.txt", "{out}", cwd=tmp_path)
    assert done.notes == []
    assert (tmp_path / "one.out").read_text() == "1"


def test_likely_mistakes_get_a_hint(run: Run, tmp_path: Path) -> None:
    """Said before anything starts, and done all the same; what is as it should be gets none."""
    (tmp_path / "in").mkdir()
    (tmp_path / "tools").mkdir()
    for i in range(3):
        (tmp_path / "in" / f"{i}.txt").write_text("x\n" * i)
    (tmp_path / "tools" / "count.sh").write_text("wc -l < $1\n")

    def notes(*args: str) -> list[str]:
        return run("map", "in/*.txt", "--slots", "1", *args, status=None).notes

    assert notes("--", "wc", "-l", "{in}") == []
    (said,) = notes("--", "wc", "-l")
    assert "has no {in}" in said
    (said,) = notes("--shell", "--", "wc -l '{in}'")
    assert "{in} stands in quotes" in said
    (said,) = notes("--", "wc", "-l", "{in}", ">", "x")
    assert "without --shell the word `>`" in said
    (said,) = notes("--", "sh", "tools/count.sh", "{in}")
    assert "`--with tools/count.sh`" in said
    (said,) = notes("--", "wc", "~/x", "{in}")
    assert "`~/x` stands for itself" in said


def test_lists_take_patterns_and_directories_and_hint_at_scripts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for i in range(3):
        (tmp_path / "in" / f"{i}.txt").write_text(f"{i}\n")
    (tmp_path / "in" / "sub" / "deep.txt").write_text("deep\n")
    script = tmp_path / "run.sh"
    script.write_text('#!/bin/sh\ncat "$@"\n')
    script.chmod(0o755)
    listed = tmp_path / "l.jsonl"

    def write(*tasks: dict[str, object]) -> None:
        listed.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))

    write(
        {"id": "glob", "command": "cat *.txt", "inputs": ["in/*.txt"], "stdout": "out/glob"},
        {"id": "all", "command": "cat d/*.txt d/sub/*.txt", "inputs": {"d": "in/"}, "stdout": "out/all"},
        {"id": "has", "command": "./run.sh 0.txt", "inputs": ["run.sh", "in/0.txt"], "stdout": "out/has"},
    )
    assert run("run", listed).notes == []
    assert (tmp_path / "out" / "glob").read_text() == "0\n1\n2\n"
    assert (tmp_path / "out" / "all").read_text() == "0\n1\n2\ndeep\n"
    assert (tmp_path / "out" / "has").read_text() == "0\n"
    write({"id": "lacks", "command": ["./run.sh", "0.txt"], "inputs": ["in/0.txt"]})
    assert (
        "note: task `lacks` starts `./run.sh`, which is a file here and not among"
        in run("run", listed, status=1).stderr
    )
    write({"id": "words", "command": ["echo", "x", ">", "y"]})
    assert "task `words` has the word `>` in a list of words" in run("run", listed).stderr
    write({"command": "true", "inputs": ["in/*.dat"]})
    assert "no file matches `in/*.dat`" in run("run", listed, status=2).stderr
    write({"command": "mkdir made", "outputs": ["made/"]})
    run("run", listed)
    assert (tmp_path / "made").is_dir()
    write({"command": "mkdir made", "outputs": {"made/": "made"}})
    refused = run("run", listed, status=2).stderr
    assert "names a directory, not a file" in refused and "a location that ends in `/`, too" in refused
