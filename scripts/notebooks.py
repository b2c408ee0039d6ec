"""Run the notebooks of docs/notebooks, each in a folder of its own, and write what they show; or check that they show what they did.

    .venv/bin/python scripts/notebooks.py [--check] [NOTEBOOK...]

Compared are the words of what cells print and give, as scripts/docs.py compares those of guides: numbers may be others. What is written
has no times, and no text beside HTML.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from docs import agrees, masked

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"
# The bar of a widget has a number that is another one each time, and needs a page that knows it.
WIDGET = "application/vnd.jupyter.widget-view+json"


def kept(outputs: list[Any]) -> list[Any]:
    """The outputs without what differs from run to run, or is shown nowhere."""
    left = []
    for output in outputs:
        data = output.get("data", {})
        if WIDGET in data:
            continue
        if "text/html" in data:
            data.pop("text/plain", None)
        output.pop("execution_count", None)
        if output["output_type"] == "execute_result":
            output["execution_count"] = None
        left.append(output)
    return left


def run(path: Path) -> Any:
    """The notebook with its outputs. Errors: `CellExecutionError`, where a cell raises something."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EYAS_STATE"] = str(Path(folder) / "state")
        work = Path(folder) / "work"
        work.mkdir()
        # Nothing listens at a port.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(Path(folder) / "kernel"))
        client = NotebookClient(
            notebook,
            km=kernel,
            timeout=120,
            resources={"metadata": {"path": str(work)}},
            record_timing=False,
            store_widget_state=False,
        )
        client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = kept(cell.outputs)
            cell.execution_count = None
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    return notebook


def shown(cell: Any) -> str:
    """The words that a cell shows."""
    parts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/html" in data:
            text = unescape(re.sub(r"<[^>]*>", " ", data["text/html"]))
            # The tasks of calls have names of their own each time, and what a cluster is doing at the moment is another number.
            text = re.sub(r"-[0-9a-f]{8}-\d+", "-ID", text)
            parts.append(re.sub(r"\d+", "#", re.sub(r"\d+(\.\d+)? [KMGT]?i?B\b", "# B", text)))
        else:
            parts.append(output.get("text") or data.get("text/plain", ""))
    return "\n".join(parts)


def differences(before: Any, after: Any, folder: Path) -> list[str]:
    found: list[str] = []
    for old, new in zip(before.cells, after.cells):
        old_text, new_text = (masked(shown(cell), folder, False) for cell in (old, new))
        if not agrees(old_text, new_text):
            found += difflib.unified_diff(
                old_text.splitlines(), new_text.splitlines(), "shown", "now", lineterm=""
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the notebooks of docs/notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help="default: all")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where one shows something else"
    )
    options = parser.parse_args()
    is_good = True
    for path in options.notebooks or sorted(NOTEBOOKS.glob("*.ipynb")):
        try:
            after = run(path)
        except CellExecutionError as error:
            print(f"error: {path}: a cell failed: {error}", file=sys.stderr)
            return 1
        if options.check:
            found = differences(nbformat.read(path, as_version=4), after, Path.cwd())
            print(
                "\n".join(
                    [f"{path.name}: {'shows something else' if found else 'shows what it did'}", *found]
                )
            )
            is_good = is_good and not found
        else:
            nbformat.write(after, path)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
