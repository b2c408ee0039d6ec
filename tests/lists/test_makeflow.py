"""Makeflow's own rules for quotes, escapes and variables: Debian's makeflow is the judge where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import Run

# The lines before a rule, or of the rule if they begin with `@`, and its command; what that prints goes to a file. `W` shows the
# words that a program gets.
W = "printf '<%s>'"
CASES: list[tuple[str, str]] = [
    ("", rf"{W} a\\b 'a\\b' " + r'"a\\b"'),
    ("", rf"{W} a\\\\b 'a\\\\b' " + r'"a\\\\b"'),
    ("", rf"{W} \"a b\" \'c d\'"),
    ("", rf"{W} a\ b a\	b"),
    ("", rf"{W} 'a" + '"' + "b' " + '"' + "c d" + '"'),
    ("", rf"{W} " + r'"a\tb" "a\nb" "a\rb"'),
    ("", rf"{W} a\tb 'a\tb'"),
    ("", rf"{W} " + '" lead" "trail " "  two  "'),
    ("", rf"{W} a    b   c"),
    ("", f"{W} a\\\n  b 'c\\\n d' " + '"e\\\n f"'),
    ("", f"{W} a \\\n\t\tb \\\n\tc"),
    ("", f"{W} a # a comment \\"),
    ("", "sed 's/\\\\./_/g' in.txt"),
    ("", "sed -e 's/\\\\(a\\\\)/[\\\\1]/' in.txt"),
    ("", "awk '{print \\$2}' in.txt"),
    ("", 'awk "{print \\$2}" in.txt'),
    ("", f"A=1; {W} \"\\$A\" \\$A '\\$A'"),
    ("", f'{W} "\\$(echo x y)" \\$(echo x y) `echo z`'),
    ("", f"{W} \\${{HOME:+set}}"),
    ("X=one\n", f'{W} $X $(X) ${{X}} "$X" "$(X)-a" $(X)b'),
    ("X=one two\n", f"{W} $X " + '"$X"'),
    ('X="one two"\n', f"{W} $X"),
    ("X='one two'\n", f"{W} $X"),
    ("X=a\\\\b\n", f'{W} $X "$X"'),
    ("X=a\\\\\\\\b\n", f'{W} $X "$X"'),
    ("X=a\\tb\n", f'{W} $X "$X"'),
    ("X='a\\tb'\n", f"{W} $X"),
    ("X=a\\$HOME\n", f"{W} \"$X\" | sed 's/[/][^>]*/home/'"),
    ("X=  lead and trail  \n", f'{W} "$X"'),
    ("X=a \\\n b\n", f'{W} "$X"'),
    ("X=a # a comment\n\n", f'{W} "$X"'),
    ("X=a\\#b\n", f'{W} "$X"'),
    ("X=a\nY=$X b\nX=c\n", f'{W} "$Y"'),
    ("X=a\nX+=b\n", f'{W} "$X"'),
    ("X=1\nexport X\n", f'{W} "\\$X"'),
    ("export X=1\n", f'{W} "\\$X"'),
    ('export X="a b"\n', f'{W} "\\$X"'),
    ("export X='a b'\n", f'{W} "\\$X"'),
    ("export X=a\\\\b\n", f'{W} "\\$X"'),
    ("", "LOCAL echo a"),
    ("", "(echo a && echo b || echo c)"),
    ("", 'echo "a\\\\tb" "c\\\\nd"'),
    ("", f"{W} '#a' \"#b\""),
    ("", "cat < in.txt"),
    ("", "(echo a; echo b) | sort -r"),
    ("", "test a = b || echo c"),
    ("", "if true; then echo yes; fi"),
    ("", "for i in 1 2 3; do echo \\$i; done"),
    ("", "echo a 2>&1"),
    ("", f"{W} * | grep -c in.txt"),
    ("", f"{W} a;b=1; {W} \\$b"),
    ("", f"{W} a=b c:d @e -f"),
    ("@X=rule\n", f'{W} "$X"'),
    ("@X=rule\n", f'{W} "$X" "\\$PWD" | sed s,/.*,dir,'),
]
INPUT = "a.b.c\nd e f\n"


def text_of(cases: list[tuple[str, str]]) -> str:
    """One file with a rule for each case. Names of variables are the case's own."""
    text = ""
    for n, (before, command) in enumerate(cases):
        named = [part.replace("X", f"X{n}").replace("Y", f"Y{n}") for part in (before, command)]
        own = named[0] if before.startswith("@") else ""
        comment = " # a comment" in named[1]
        command = named[1] if comment else f"{named[1]} > o{n}"
        if comment:
            command = command.replace(" # a comment", f" > o{n} # a comment")
        text += f"{'' if own else named[0]}o{n}: in.txt\n{own}\t{command}\n"
    return text


def judge(folder: Path) -> None:
    """Runs `w.makeflow` with makeflow."""
    environment = {**os.environ, "OMPI_MCA_ess_singleton_isolated": "1"}
    for name in [name for name in environment if name.startswith("EYAS_")]:
        del environment[name]
    words = ["makeflow", "-T", "local", "-j", "4", "w.makeflow"]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_bytes().decode() for path in folder.glob("o[0-9]*")}


@pytest.mark.skipif(shutil.which("makeflow") is None, reason="makeflow is not installed")
def test_commands_and_values_mean_what_they_mean_to_makeflow(run: Run, tmp_path: Path) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w.makeflow").write_text(text_of(CASES))
        (tmp_path / name / "in.txt").write_text(INPUT)
    judge(tmp_path / "theirs")
    run("run", "w.makeflow", "--slots", "2", cwd=tmp_path / "ours")
    theirs, ours = contents(tmp_path / "theirs"), contents(tmp_path / "ours")
    assert len(theirs) == len(CASES)
    wrong = [
        (case, theirs[f"o{n}"], ours[f"o{n}"])
        for n, case in enumerate(CASES)
        if theirs[f"o{n}"] != ours[f"o{n}"]
    ]
    assert not wrong, wrong


def test_names_in_jx_have_values_from_outside(run: Run, tmp_path: Path) -> None:
    (tmp_path / "w.jx").write_text("""{
  "define": {"N": 1, "GREETING": "hello"},
  "rules": [{"command": "echo " + GREETING + " " + N + " > o" + i, "outputs": ["o" + i]} for i in range(N)]
}
""")
    (tmp_path / "args.jx").write_text('{"N": 1 + 1, "OTHER": "unused"}\n')
    run("run", "w.jx", "--jx-args", "args.jx", "--jx-define", 'GREETING="N is "+N', cwd=tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.glob("o?")} == {
        "o0": "N is 2 2\n",
        "o1": "N is 2 2\n",
    }
    (tmp_path / "args.jx").write_text("[1]\n")
    done = run("run", "w.jx", "--jx-args", "args.jx", status=2, cwd=tmp_path)
    assert "--jx-args `args.jx`: it is a list, and an object of names and values is wanted" in done.stderr
    done = run("run", "w.jx", "--jx-define", "N", status=2, cwd=tmp_path)
    assert "--jx-define `N`: it is not NAME=EXPRESSION" in done.stderr
