"""The report: what it says limited a run, and how its page looks in a browser, on a screen and on a phone."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Run, need_program


def write(path: Path, *tasks: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks), encoding="utf-8")
    return path


def report_of(run: Run, folder: Path) -> tuple[str, dict[str, Any]]:
    """What the command says, and the report as JSON."""
    page = folder.with_suffix(".html")
    said = run("report", "--dir", folder, "--out", page).stderr
    return said, json.loads(page.with_suffix(".json").read_text())


def test_home_is_the_limit(run: Run, tmp_path: Path) -> None:
    """Eight files that are read once, from a home that gives a megabyte a second."""
    tasks = []
    for i in range(8):
        (tmp_path / f"f{i}").write_bytes(bytes([i]) * 500_000)
        tasks.append({"id": f"t{i}", "command": ["cksum", f"f{i}"], "inputs": [f"f{i}"]})
    listed = write(tmp_path / "reads.jsonl", *tasks)
    folder = tmp_path / "slow"
    run("run", listed, "--dir", folder, "--nodes", "2", "--slots", "1", "--home-rate", "1MB/s")
    said, report = report_of(run, folder)
    assert re.search(r"Limited by home \(\d+ % of the time, at [\d.,]+ of 977 KiB/s", said), said
    assert report["home_limit_bytes_per_s"] == 1e6
    assert "limit of home: " in (tmp_path / "slow.html").read_text()


def test_one_task_is_much_longer(run: Run, tmp_path: Path) -> None:
    tasks = [{"id": "long", "command": ["sleep", "4"]}]
    tasks += [{"id": f"s{i}", "command": ["sleep", "0.1"]} for i in range(6)]
    run("run", write(tmp_path / "l.jsonl", *tasks), "--dir", tmp_path / "d", "--slots", "3")
    said, _ = report_of(run, tmp_path / "d")
    assert re.search(
        r"one long task at the end \(\d+ % of the time: `long` on `node1` ran [45]\.\d+ s\)", said
    ), said


# Runs in the page: looks at the width, then searches and sorts the table, and leaves what it saw in the document.
LOOK = """<script>
const seen = {}, root = document.documentElement;
seen.inner = root.clientWidth; seen.wide = root.scrollWidth;
const names = () => [...document.querySelectorAll("#tasks table tr")].slice(1).map((tr) => tr.cells[0].textContent);
seen.all = names().length;
const input = document.querySelector("#tasks input");
input.value = "FAILED"; input.dispatchEvent(new Event("input"));
seen.failed = names();
input.value = ""; input.dispatchEvent(new Event("input"));
const button = document.querySelector("#tasks th button");
button.click(); seen.first = names().slice(0, 3);
button.click(); seen.last = names().slice(0, 2);
document.querySelector("#tasks > button").click(); seen.more = names().length;
const shown = document.createElement("pre"); shown.id = "seen"; shown.textContent = JSON.stringify(seen);
document.body.append(shown);
</script>
"""


@pytest.mark.parametrize("size", ["1200,900", "390,800"])
def test_the_page_in_a_browser(eyas: Eyas, run: Run, tmp_path: Path, size: str) -> None:
    """The page itself never scrolls sideways; its table of tasks is searched and sorted by its own script."""
    chromium = need_program("chromium")
    (tmp_path / "in").write_bytes(bytes(100_000))
    command = "cat in > out; [ $EYAS_TASK != t13 ] || { echo no such column >&2; exit 3; }"
    name = "a-node-with-quite-a-long-name-" * 3
    tasks = [
        {"id": f"t{i}", "command": command, "inputs": ["in"], "outputs": {"out": f"{name}{i}"}}
        for i in range(80)
    ]
    listed = write(tmp_path / "l.jsonl", *tasks)
    run("run", listed, "--dir", tmp_path / "d", "--nodes", "2", "--slots", "2", status=1)
    said, _ = report_of(run, tmp_path / "d")
    assert "1 of 80 tasks failed." in said
    page = tmp_path / "d.html"
    looked = tmp_path / "looked.html"
    looked.write_text(page.read_text().replace("</body>", LOOK + "</body>"), encoding="utf-8")
    # The browser's socket lies in its temporary folder, and its path has to be short.
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
        done = subprocess.run(
            [chromium, *options, f"--window-size={size}", "--dump-dom", looked.as_uri()],
            env={**eyas.env, "TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout)
    assert found, done.stderr
    seen = json.loads(found[1])
    assert seen["wide"] <= seen["inner"], seen
    assert seen["all"] == 50 and seen["more"] == 80
    assert seen["failed"] == ["t13"]
    assert seen["first"] == ["t0", "t1", "t2"] and seen["last"] == ["t79", "t78"], "sorted as people count"


def test_a_run_of_very_many_tasks_makes_a_page_of_bounded_size(run: Run, tmp_path: Path) -> None:
    """10,000 tasks on 100 nodes, simulated: the page has the longest tasks and the first nodes, and says how to get all."""
    folder = tmp_path / "sim"
    options = ["--compute", "100ms", "--machine", "this-machine", "--nodes", "100"]
    run("sim", "allpairs", "-n", "100", *options, "--event-log", folder, timeout=300)
    _, report = report_of(run, folder)
    assert report["totals"]["n_tasks"] == 10_000 and len(report["tasks"]) == 2_000
    page = (tmp_path / "sim.html").read_text()
    assert "2,000 of 10,000 tasks" in page and "eyas tasks --tsv" in page
    assert re.search(r"The first 64 of \d+ slots", page)
    assert len(page) < 1_000_000
