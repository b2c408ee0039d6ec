"""A picture of a terminal: what a tmux pane shows, with its colours, as SVG or PNG.

    python3 scripts/screenshot_top.py TARGET FILE.svg
    python3 scripts/screenshot_top.py TARGET FILE.png

TARGET is a tmux pane, such as a session's name:

    tmux new -d -s top -x 120 -y 36 'eyas top'
    python3 scripts/screenshot_top.py top docs/img/top.png

PNG needs rsvg-convert (Debian's librsvg2-bin) or chromium. Blocks, squares and rules are drawn as
shapes and not as letters, so that bars have no gaps whatever the font.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

CELL_W, CELL_H, FONT_PX, MARGIN = 9.0, 19.0, 15.0, 12.0
BACKGROUND, FOREGROUND = "#16191d", "#d8dee4"
BASIC = (
    "#16191d", "#cc5f5f", "#5faf5f", "#d0a95c", "#5f9fd0", "#b07cc6", "#5fb8b8", "#d8dee4",
    "#6b7280", "#e06c6c", "#7fcf7f", "#e8c87a", "#7fb8e8", "#c79bdb", "#7fd4d4", "#ffffff",
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    fg: str | None = None
    bg: str | None = None
    bold: bool = False
    reverse: bool = False


def indexed(n: int) -> str:
    """A colour of the 256 that xterm has."""
    if n < 16:
        return BASIC[n]
    if n < 232:
        levels = (0, 95, 135, 175, 215, 255)
        n -= 16
        red, green, blue = levels[n // 36], levels[n // 6 % 6], levels[n % 6]
    else:
        red = green = blue = 8 + 10 * (n - 232)
    return f"#{red:02x}{green:02x}{blue:02x}"


def restyled(style: Style, codes: list[int]) -> Style:
    """The style after one SGR sequence."""
    rest = list(codes or [0])
    while rest:
        code = rest.pop(0)
        if code == 0:
            style = Style()
        elif code == 1:
            style = replace(style, bold=True)
        elif code == 22:
            style = replace(style, bold=False)
        elif code in (7, 27):
            style = replace(style, reverse=code == 7)
        elif code in (38, 48) and len(rest) >= 2:
            kind = rest.pop(0)
            if kind == 5:
                colour = indexed(rest.pop(0))
            else:
                colour = "#" + "".join(f"{n:02x}" for n in rest[:3])
                del rest[:3]
            style = replace(style, fg=colour) if code == 38 else replace(style, bg=colour)
        elif code == 39:
            style = replace(style, fg=None)
        elif code == 49:
            style = replace(style, bg=None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = replace(style, fg=BASIC[code - 30 if code < 90 else code - 82])
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = replace(style, bg=BASIC[code - 40 if code < 100 else code - 92])
    return style


def cells(text: str) -> list[list[tuple[str, Style]]]:
    """Rows of (character, style)."""
    rows, style = [], Style()
    for line in text.splitlines():
        row = []
        for codes, char in re.findall(r"\x1b\[([\d;]*)m|([^\x1b])", line):
            if char:
                row.append((char, style))
            else:
                style = restyled(style, [int(n or 0) for n in codes.split(";")] if codes else [])
        rows.append(row)
    return rows


def shape(char: str) -> tuple[float, float, float, float] | None:
    """The part of its cell that a block character fills: x, y, width, height."""
    code = ord(char)
    if 0x2581 <= code <= 0x2588:
        share = (code - 0x2580) / 8
        return 0, 1 - share, 1, share
    if 0x2589 <= code <= 0x258F:
        return 0, 0, (0x2590 - code) / 8, 1
    return {"■": (0.08, 0.3, 0.84, 0.42), "─": (0, 0.5, 1, 0.06)}.get(char)


def rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}"/>'


def svg(rows: list[list[tuple[str, Style]]]) -> str:
    width = max((len(row) for row in rows), default=0) * CELL_W + 2 * MARGIN
    height = len(rows) * CELL_H + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" shape-rendering="crispEdges">',
        f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>',
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT_PX}" xml:space="preserve">',
    ]
    for y, row in enumerate(rows):
        top = MARGIN + y * CELL_H
        letters: dict[tuple[str, bool], list[tuple[float, str]]] = {}
        for x, (char, style) in enumerate(row):
            left = MARGIN + x * CELL_W
            fg, bg = style.fg or FOREGROUND, style.bg or BACKGROUND
            if style.reverse:
                fg, bg = bg, fg
            if bg != BACKGROUND:
                parts.append(rect(left, top, CELL_W, CELL_H, bg))
            block = shape(char)
            if block:
                bx, by, bw, bh = block
                parts.append(rect(left + bx * CELL_W, top + by * CELL_H, bw * CELL_W, bh * CELL_H, fg))
            elif char != " ":
                letters.setdefault((fg, style.bold), []).append((left, char))
        for (fg, bold), placed in letters.items():
            weight = ' font-weight="bold"' if bold else ""
            parts.append(f'<g fill="{fg}"{weight}>')
            # A letter each: librsvg does not know lists of positions.
            base = f'y="{top + CELL_H * 0.74:.1f}"'
            parts.extend(f'<text x="{x:.1f}" {base}>{escape(char)}</text>' for x, char in placed)
            parts.append("</g>")
    return "\n".join([*parts, "</g></svg>", ""])


def to_png(source: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "top.svg")
        path.write_text(source, encoding="utf-8")
        if shutil.which("rsvg-convert"):
            subprocess.run(["rsvg-convert", "--zoom", "1.5", "-o", target, path], check=True)
            return
        browser = shutil.which("chromium") or shutil.which("chromium-browser")
        if not browser:
            sys.exit("error: a PNG needs rsvg-convert (librsvg2-bin) or chromium")
        width, height = (int(n) for n in re.findall(r'(?:width|height)="(\d+)"', source)[:2])
        size = f"--window-size={width},{height}"
        options = [
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--screenshot={target.absolute()}",
            size,
        ]
        subprocess.run([browser, *options, path.as_uri()], check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw a tmux pane as SVG or PNG.")
    parser.add_argument("target", help="the pane, such as a session's name")
    parser.add_argument("file", type=Path, help="ends in .svg or .png")
    args = parser.parse_args()
    if args.file.suffix not in (".svg", ".png"):
        parser.error("the file's name has to end in .svg or .png")
    capture = ["tmux", "capture-pane", "-e", "-N", "-p", "-t", args.target]
    text = subprocess.run(capture, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout
    picture = svg(cells(text))
    if args.file.suffix == ".svg":
        args.file.write_text(picture, encoding="utf-8")
    else:
        to_png(picture, args.file)


if __name__ == "__main__":
    main()
