"""The report: what it says limited a run, and how its page looks in a browser, on a screen and on a phone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Run, Start, log_entries, need_program, wait_until


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


def test_a_busy_machine_is_known(run: Run, start: Start, tmp_path: Path) -> None:
    """Others use the processors, which are as many as the slots; the nodes say so, and the verdict names it."""
    n = len(os.sched_getaffinity(0))
    busy = "import os\nwhile os.getppid() == {parent}: pass"
    command = [sys.executable, "-c", busy.format(parent=os.getpid())]
    others = [subprocess.Popen(command, start_new_session=True) for _ in range(3 * n)]
    try:
        spin = f"import os\nwhile not os.path.exists({str(tmp_path / 'go-on')!r}): pass"
        tasks = [{"id": f"t{i}", "command": [sys.executable, "-c", spin]} for i in range(2 * n)]
        folder = tmp_path / "d"
        listed = write(tmp_path / "l.jsonl", *tasks)
        going = start("run", listed, "--dir", folder, "--nodes", "1", "--slots", str(n))

        log = folder / "dispatcher" / "events.jsonl"

        def is_seen() -> bool:
            events = [entry.get("in") or {} for entry in log_entries(log)] if log.exists() else []
            used = [event["processors_used"]["used"] for event in events if "processors_used" in event]
            return any(u["used_permille"] >= 900 and u["others_permille"] >= 300 for u in used)

        wait_until(is_seen, "the node to say that others use its processors")
        (tmp_path / "go-on").touch()
        going.wait()
    finally:
        for other in others:
            other.kill()
            other.wait()
    said, report = report_of(run, folder)
    assert "others used " in said and " % of the processors" in said, said
    assert report["totals"]["bound"]["n_processors"] <= n


def test_one_task_is_much_longer(run: Run, tmp_path: Path) -> None:
    tasks = [{"id": "long", "command": ["sleep", "4"]}]
    tasks += [{"id": f"s{i}", "command": ["sleep", "0.1"]} for i in range(6)]
    run("run", write(tmp_path / "l.jsonl", *tasks), "--dir", tmp_path / "d", "--slots", "3")
    said, _ = report_of(run, tmp_path / "d")
    assert re.search(
        r"one long task at the end \(\d+ % of the time: `long` on `node1` ran [45]\.\d+ s\)", said
    ), said


# Runs in the page: looks at the width, then searches and sorts the table, and tells the page around it what it saw.
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
// Charts: those that are shown lie within the page, and all of their texts within them, large enough to be read.
const box = (element) => element.getBoundingClientRect(), faults = [];
const charts = [...document.querySelectorAll("svg.chart")].filter((chart) => box(chart).width > 0);
seen.charts = charts.length; seen.drawn = document.querySelectorAll("svg.chart").length;
for (const chart of charts) {
  const whole = box(chart), what = chart.getAttribute("aria-label");
  if (whole.left < 0 || whole.right > seen.inner) faults.push(what + " is wider than the page");
  for (let up = chart.parentElement; up; up = up.parentElement)
    if (up.scrollWidth > up.clientWidth + 1 && getComputedStyle(up).overflowX !== "visible") faults.push(what + " is cut by " + up.className);
  const texts = [...chart.querySelectorAll("text")];
  for (const text of texts) {
    const part = box(text);
    if (part.left < whole.left - 1 || part.right > whole.right + 1) faults.push(what + ": cut: " + text.textContent);
    if (part.height < 10) faults.push(what + ": too small: " + text.textContent);
    for (const other of texts) {
      const b = box(other);
      if (other !== text && part.left < b.right - 1 && b.left < part.right - 1 && part.top < b.bottom - 3 && b.top < part.bottom - 3)
        faults.push(what + ": " + text.textContent + " lies on " + other.textContent);
    }
  }
  const plot = chart.querySelector("use");
  if (plot && (box(plot).width < 20 || box(plot).right > whole.right + 1)) faults.push(what + ": not plotted");
}
seen.faults = faults;
parent.postMessage(JSON.stringify(seen), "*");
</script>
"""

# A window of a browser without a screen is never narrower than 500 pixels, a frame in its page may be.
AROUND = """<!DOCTYPE html><body><script>
addEventListener("message", (event) => {
  const shown = document.createElement("pre"); shown.id = "seen"; shown.textContent = event.data;
  document.body.append(shown);
});
</script><iframe src="looked.html" style="border:0;width:WIDTHpx;height:800px"></iframe></body>
"""


@pytest.mark.parametrize("width", [1200, 375])
def test_the_page_in_a_browser(eyas: Eyas, run: Run, tmp_path: Path, width: int) -> None:
    """The page itself never scrolls sideways, its charts are whole, and its table of tasks is searched and sorted by its own script."""
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
    around = tmp_path / "around.html"
    around.write_text(AROUND.replace("WIDTH", str(width)), encoding="utf-8")
    # The browser's socket lies in its temporary folder, and its path has to be short.
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
        # Until what the frame says has come.
        options += ["--virtual-time-budget=10000"]
        done = subprocess.run(
            [chromium, *options, "--window-size=1300,900", "--dump-dom", around.as_uri()],
            env={**eyas.env, "TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout)
    assert found, done.stderr
    seen = json.loads(found[1])
    assert seen["wide"] <= seen["inner"] <= width and seen["inner"] > width - 20, seen
    assert seen["charts"] == seen["drawn"] // 2 >= 4 and not seen["faults"], seen["faults"]
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
