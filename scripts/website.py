"""Build the site of the documents, and fail on whatever it warns of.

    .venv/bin/python scripts/website.py [--out DIR] [--config FILE]

mkdocs.yml names this file as a hook, so `mkdocs serve` shows the same. The hook

- draws ```mermaid blocks while the site is built, so that no page needs a script from outside;
- names headings as the code host does, so that one link leads to the same place in both;
- takes in the pages of OUTSIDE, which lie beside docs/ in the repository;
- shows as plain text what a link to any other file of the repository says.
"""

from __future__ import annotations

import argparse
import html
import os
import posixpath
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import merman  # type: ignore[import-untyped]
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
log = get_plugin_logger("site")
# Pages of the repository that the site has beside those of docs/, and their names there.
OUTSIDE = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    **{
        path.relative_to(ROOT).as_posix(): f"apps/{path.parent.name}.md"
        for path in sorted(ROOT.glob("apps/*/README.md"))
    },
}
# The page of the site that says what the README says.
STARTS = {"README.md": "index.md"}
# The entry of mkdocs.yml below which each command gets one.
COMMANDS = "The command line"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]+)\)")


def anchor(heading: str, separator: str = "-") -> str:
    """The name that the code host gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def drawing(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    """A drawing in Mermaid's language as SVG. Its letters are measured for a narrower font than readers have."""
    try:
        svg = merman.Merman().render_svg(source, None)
    except Exception as error:
        # A warning ends the build. An exception would only leave the text in place of the drawing.
        log.warning("this drawing has a fault: %s\n%s", error, source)
        return ""
    # Each drawing of a page has names of its own.
    name = f"drawing-{zlib.crc32(source.encode()):x}"
    svg = re.sub(r"\bmerman\b", name, svg)
    svg = re.sub(r"font-size:(\d+)px", lambda size: f"font-size:{float(size[1]) * 0.82:.1f}px", svg)
    return f'<div class="drawing" role="img" aria-label="{html.escape(first_line(source))}">{svg}</div>'


def first_line(source: str) -> str:
    return source.strip().partition("\n")[0]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs["toc"]["slugify"] = anchor
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [
        {"name": "mermaid", "class": "drawing", "format": drawing}
    ]
    commands = sorted((ROOT / "docs" / "reference" / "cli").glob("*.md"))
    for part in config.nav or []:
        for page in part.get("Reference", []):
            if page == {COMMANDS: "reference/cli.md"}:
                page[COMMANDS] = [
                    {"All commands": "reference/cli.md"},
                    *({f"eyas {path.stem}": f"reference/cli/{path.name}"} for path in commands),
                ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    if Path(config.docs_dir) != ROOT / "docs":
        return files
    for source, name in OUTSIDE.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between docs/ and the rest of the repository lead to pages of the site, or are no links there."""
    at = {name: source for source, name in OUTSIDE.items()}
    source = at.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(match: re.Match[str]) -> str:
        text, target = match[2], match[3]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, mark, name = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        inside = OUTSIDE.get(wanted) or STARTS.get(wanted)
        if inside is None and wanted.startswith("docs/"):
            inside = wanted.removeprefix("docs/")
            if files.get_file_from_path(inside) is None and (ROOT / wanted / "README.md").exists():
                inside += "/README.md"
        if inside is None or (ROOT / "docs" / inside).is_dir():
            return text
        start = posixpath.dirname(page.file.src_uri)
        return f"{match[1]}[{text}]({posixpath.relpath(inside, start or '.')}{mark}{name})"

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(moved, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(moved, markdown[end:])])


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the site of the documents.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "target" / "site", help="the folder to build it in"
    )
    parser.add_argument("--config", type=Path, default=ROOT / "mkdocs.yml", help="what to build")
    args = parser.parse_args()
    # The theme advertises its successor otherwise.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    command += ["--config-file", str(args.config), "--site-dir", str(args.out.absolute())]
    done = subprocess.run(
        command, cwd=args.config.parent, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    for line in done.stderr.splitlines():
        # With --quiet, mkdocs would not count the warnings that --strict makes errors.
        if not line.startswith("INFO "):
            print(line, file=sys.stderr)
    if done.returncode == 0:
        print(f"{args.out / 'index.html'} is the site's first page")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
