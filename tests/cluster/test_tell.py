"""What eyas tells of a run when it is over: explanations, logs, the report, and the replay of its log."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from harness import Run

N_FILES = 6


@pytest.fixture
def ended(run: Run, tmp_path: Path) -> Path:
    """The folder of a run with readers of shared files, a task that fails twice and one that prints."""
    (tmp_path / "in").mkdir()
    for i in range(N_FILES):
        (tmp_path / "in" / f"f{i}.dat").write_bytes(bytes([i]) * 50_000)
    tasks: list[dict[str, object]] = [
        {
            "id": f"sum-{i}",
            "command": "cksum < x > y",
            "inputs": {"x": f"in/f{i % N_FILES}.dat"},
            "outputs": {"y": f"out/{i}.sum"},
        }
        for i in range(40)
    ]
    tasks.append({"id": "talker", "command": ["echo", "so it goes"]})
    tasks.append({"id": "<b>bad</b>", "command": "echo the reason >&2; exit 7", "retries": 1})
    tasks.append({"id": "after-bad", "command": ["true"], "inputs": {"x": "in/absent.dat"}})
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(t) + "\n" for t in tasks))
    folder = tmp_path / "cluster"
    run("run", "tasks.jsonl", "--nodes", "2", "--slots", "2", "--dir", folder, cwd=tmp_path, status=1)
    assert len(list((tmp_path / "out").iterdir())) == 40
    return folder


def test_a_replay_of_the_log_takes_the_same_actions(run: Run, ended: Path) -> None:
    done = run("replay", "--dir", ended)
    numbers = [int(n.replace(",", "")) for n in re.findall(r"[\d,]+", done.stdout)]
    n_events, _, n_actions = numbers
    assert n_events > 40
    # Each of the 43 tasks was assigned and ended, and one had a second attempt.
    assert n_actions >= 2 * 43 + 1


def test_a_replay_notices_a_changed_action(run: Run, ended: Path) -> None:
    log = ended / "dispatcher" / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if '"assign"' in line)
    lines[first] = re.sub(r'"n_queued":\d+', '"n_queued":987654', lines[first])
    log.write_text("".join(lines))
    done = run("replay", "--dir", ended, status=1)
    assert f"line {first + 1}" in done.stderr
    assert "987654" in done.stderr


def test_an_explanation_says_where_why_and_from_where(run: Run, ended: Path) -> None:
    explanation = run("explain", "sum-7", "--dir", ended).stdout
    assert "`sum-7`" in explanation and "done" in explanation
    assert re.search(r"on `node[12]`", explanation)
    assert "Why there" in explanation
    assert "in/f1.dat" in explanation and "48.8 KiB" in explanation


def test_an_explanation_of_a_failure_shows_its_last_words(run: Run, ended: Path) -> None:
    explanation = run("explain", "<b>bad</b>", "--dir", ended).stdout
    assert "failed" in explanation and "status 7" in explanation and "the reason" in explanation
    assert "Attempt 2" in explanation


def test_an_explanation_of_a_missing_input_names_it(run: Run, ended: Path) -> None:
    explanation = run("explain", "after-bad", "--dir", ended).stdout
    assert "in/absent.dat" in explanation
    assert (
        "not found" in explanation.lower()
        or "no such file" in explanation.lower()
        or "does not exist" in explanation.lower()
    )


def test_logs_give_what_was_printed(run: Run, ended: Path) -> None:
    assert run("logs", "talker", "--dir", ended).stdout == "so it goes\n"
    twice = run("logs", "<b>bad</b>", "--dir", ended)
    assert twice.stderr.count("the reason") == 2


def test_an_unknown_task_is_named(run: Run, ended: Path) -> None:
    done = run("explain", "nobody", "--dir", ended, status=2)
    assert "`nobody`" in done.stderr


class Page(HTMLParser):
    """Collects what matters of a page: open tags, sources from elsewhere, text."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elsewhere: list[str] = []
        self.text = ""
        self.n_charts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.n_charts += tag == "svg"
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"src", "href"} and value and not value.startswith("#"):
                self.elsewhere.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.n_charts += tag == "svg"

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_one_page_that_stands_alone(run: Run, ended: Path, tmp_path: Path) -> None:
    page_path = tmp_path / "report.html"
    run("report", "--dir", ended, "--out", page_path)
    html = page_path.read_text()
    page = Page()
    page.feed(html)
    assert page.open == []
    assert page.elsewhere == []
    assert page.n_charts >= 1
    assert "<b>bad</b>" not in html, "a task's id is text, not markup"
    assert "<b>bad</b>" in page.text
    numbers = json.loads(page_path.with_suffix(".json").read_text())
    flat = json.dumps(numbers)
    assert "affinity" in flat


def test_two_runs_side_by_side(run: Run, ended: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    run(
        *("run", "tasks.jsonl", "--nodes", "2", "--slots", "2", "--placement", "first-available"),
        *("--dir", other),
        cwd=tmp_path,
        status=1,
    )
    page_path = tmp_path / "both.html"
    run("report", "--dir", ended, "--compare", other, "--out", page_path)
    text = page_path.read_text()
    assert "first-available" in text and "affinity" in text


def test_no_log_no_report(run: Run, tmp_path: Path) -> None:
    done = run("report", "--dir", tmp_path / "nothing", status=2, cwd=tmp_path)
    assert "nothing" in done.stderr and "event log" in done.stderr
