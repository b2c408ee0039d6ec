"""The documents: links lead somewhere, and the reference of the command line is what the program says, and so are the guides."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("apps/*/*.md"))]


def anchor(heading: str) -> str:
    """The name that a web view of the page gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def missing_target(page: Path, target: str) -> bool:
    path, _, name = target.partition("#")
    other = page.parent / path if path else page
    if not other.exists():
        return True
    if not name or other.is_dir():
        return False
    text = FENCE.sub("", other.read_text(encoding="utf-8"))
    return name not in {anchor(heading) for heading in HEADING.findall(text)}


def test_the_architecture_names_what_is_there() -> None:
    """Every file, function and type that the page names exists, and every crate has its words."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("crates/**/*.rs")]
    code = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in files)
    names = set(re.findall(r"\b(?:fn|struct|enum|trait|type|mod|const|static) (\w+)", code))
    names |= set(re.findall(r"^ +([A-Z]\w+)\b", code, re.MULTILINE))  # variants
    names |= set(re.findall(r"^ +(?:pub )?(\w+): ", code, re.MULTILINE))  # fields
    missing = []
    for word in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w/]+\.rs", word):
            found = any(path == word or path.endswith("/" + word) for path in files)
        elif re.fullmatch(r"(?:\w+::)+\w+|[a-z]+_[a-z_]+", word):
            found = word.rpartition("::")[2] in names
        else:
            continue
        if not found:
            missing.append(word)
    assert not missing
    crates = {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")}
    assert crates == set(re.findall(r"^\*\*`crates/(\w+)`\*\*", text, re.MULTILINE))


def test_relative_links_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:", target) and missing_target(page, target):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_the_command_line_reference_is_what_the_program_says(eyas_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "docs.py", "--check", "--eyas", eyas_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_what_a_guide_shows_is_what_is_printed(page: Path, eyas_path: Path) -> None:
    """Every command of the page is run; numbers that vary are not compared (scripts/docs.py says which)."""
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "docs.py", "--run", page]
    done = subprocess.run(
        [*command, "--eyas", eyas_path], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("```console\n$ echo a b\na b\n```\n", None),
        ("```console\n$ echo a b\na c\n```\n", "+a b"),
        ("```console\n$ printf 'a 1.5 s\\nb\\nc'\na 20 ms\n...\n```\n", None),
        ("```console\n$ echo 3 tasks\n4 tasks\n```\n", "+3 tasks"),
        ("<!-- numbers vary -->\n```console\n$ echo 3 tasks\n4 tasks\n```\n", None),
        ("```text\nwords\n```\n", "does not say what prints it"),
        ("<!-- prints: echo words -->\n```text\nwords\n```\n", None),
        (
            "<!-- file f -->\n```json\n{}\n```\n\n```console\n$ cat f\n{}\n$ false\n$ echo $?\n1\n```\n",
            "it ended with 1",
        ),
        ("<!-- not run: a reason -->\n```console\n$ echo a\nb\n```\n", None),
    ],
)
def test_a_page_that_is_not_true_is_found(
    shown: str, why: str | None, eyas_path: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{shown}", encoding="utf-8")
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "docs.py", "--run", page]
    done = subprocess.run(
        [*command, "--eyas", eyas_path], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode == 0) == (why is None), done.stdout + done.stderr
    assert why is None or why in done.stderr
