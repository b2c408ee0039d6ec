"""The documents: links lead somewhere, and the reference of the command line is what the program says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
