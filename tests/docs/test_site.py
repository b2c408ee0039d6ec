"""The site of the documents: it is built without a warning, and its pages ask nothing of machines outside."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from harness import ROOT

# What a browser fetches by itself; a link (`a`) is followed by the reader.
FETCHED = {"src", "srcset", "href", "data", "poster", "action"}
OUTSIDE = re.compile(r"(?:https?:)?//")
# An address in a style.
STYLE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^)"']+)""")


class Fetches(HTMLParser):
    """The addresses outside from which a page fetches something, and the classes of its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside = STYLE.findall(text)
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "class":
                self.classes |= set((value or "").split())
            elif tag != "a" and name in FETCHED and OUTSIDE.match(value or ""):
                self.outside.append(f"{tag} {value}")


def build(into: Path, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "website.py", "--out", into]
    command += ["--config", config] if config else []
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_has_every_page(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / (name.with_name("index.html") if name.stem == "README" else name)).exists(), page


def test_no_page_of_the_site_fetches_anything_from_outside(site: Path) -> None:
    outside = {}
    for path in site.rglob("*"):
        if path.suffix == ".html":
            page = Fetches(path.read_text(encoding="utf-8"))
            # For such an element the theme's script would fetch Mermaid.
            found = page.outside + (["a drawing that the browser draws"] if "mermaid" in page.classes else [])
        elif path.suffix in {".css", ".svg"}:
            found = STYLE.findall(path.read_text(encoding="utf-8"))
        else:
            continue
        if found:
            outside[path.relative_to(site)] = found
    assert not outside


def test_the_search_knows_the_pages(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert '"guides/first-run.html"' in index


def test_every_drawing_is_drawn(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        written = page.read_text(encoding="utf-8").count("\n```mermaid\n")
        if written:
            html = (site / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text(encoding="utf-8")
            assert html.count('<div class="drawing"') == written, page


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# A page\n\n[gone](gone.md)\n", "gone.md"),
        ("# A page\n\n[gone](#gone)\n", "#gone"),
        ("# A page\n\n```mermaid\nsequenceDiagram\n    A->>\n```\n", "this drawing has a fault"),
        ("# A page\n\n[here](#a-page)\n", None),
    ],
)
def test_a_fault_of_a_page_ends_the_build(text: str, why: str | None, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(text, encoding="utf-8")
    whole = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    whole = whole.replace("scripts/website.py", str(ROOT / "scripts" / "website.py"))
    config = tmp_path / "mkdocs.yml"
    config.write_text(re.sub(r"^extra_css:\n.*\n", "", whole, flags=re.MULTILINE), encoding="utf-8")
    done = build(tmp_path / "site", config)
    assert (done.returncode == 0) == (why is None), done.stdout + done.stderr
    assert why is None or why in done.stderr
