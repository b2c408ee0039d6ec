"""What shells and `man` know of eyas."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import Run


def test_bash_completes_commands_and_options(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "eyas.bash"
    script.write_text(run("completions", "bash").stdout)

    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        ask = (
            f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            f"_eyas eyas '{words[-1]}' '{words[-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        return subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True).stdout.split()

    assert complete("eyas", "sub") == ["submit"]
    assert set(complete("eyas", "ex")) == {"executor", "explain", "export"}
    assert complete("eyas", "stat", "--js") == ["--json"]
    assert "check" in complete("eyas", "home", "ch")
    # Options are offered to who begins one, and not before commands or files.
    verbs = complete("eyas", "")
    assert "run" in verbs and not [word for word in verbs if word.startswith("-")]
    assert complete("eyas", "home", "") and not [w for w in complete("eyas", "home", "") if w.startswith("-")]
    assert complete("eyas", "run", "") == [] and complete("eyas", "run", "tasks.jsonl", "") == [], "files"
    assert "--nodes" in complete("eyas", "run", "-") and "--nodes" in complete(
        "eyas", "run", "t.jsonl", "--no"
    )
    assert complete("eyas", "completions", "") == ["bash", "zsh", "fish"]


def test_other_shells_get_their_scripts(run: Run) -> None:
    assert run("completions", "zsh").stdout.startswith("#compdef eyas")
    assert "complete -c eyas" in run("completions", "fish").stdout
    assert "bash" in run("completions", "tcsh", status=2).stderr


def test_there_is_a_page_for_each_command(run: Run, tmp_path: Path) -> None:
    run("man", "man/man1", cwd=tmp_path)
    pages = {page.stem for page in (tmp_path / "man/man1").iterdir()}
    assert {"eyas", "eyas-run", "eyas-map", "eyas-at-data"} <= pages
    text = (tmp_path / "man/man1/eyas-map.1").read_text()
    assert ".TH EYAS-MAP 1" in text
    assert "One command over many files" in text
    assert "Do not drop files that stay on the nodes" in (tmp_path / "man/man1/eyas-run.1").read_text()
    (tmp_path / "file").write_text("")
    assert "cannot be written" in run("man", "file", cwd=tmp_path, status=4).stderr
