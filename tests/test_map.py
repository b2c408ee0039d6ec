"""`eyas map` as the README and its help show it."""

from __future__ import annotations

import gzip
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
    assert "note:" not in done.stderr
    assert (tmp_path / "one.out").read_text() == "1"
