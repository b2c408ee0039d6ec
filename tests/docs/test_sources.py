"""`scripts/sources.py`: numbers in the text of results, and the age of their pages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from programs import load

DECISION = "# 0001: One\n\n## Decision\n\nNodes are {how}.\n\n### Alternatives\n\n- None.\n"
PAGE = """# A page

## Times

It takes 12 s, 40 % less than the paper's 20 s (§5.1, figure 3), with 1,000 tasks; GZ takes 7 to 9 s.

| what | time |
|---|---|
| all | 12 s |
| GZ | 7 s, 9 s |
"""
NUMBERS = {
    "Times": {
        "paper: Raicu09 §5.1": ["20 s"],
        "computed: 1 - 12 / 20": ["40 %"],
        "file: page.json runs/0/tasks": ["1,000"],
    }
}


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("sources", monkeypatch)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one page of results, a file of numbers and a decision."""
    for folder in ("docs/results", "docs/decisions"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/results/page.md").write_text(PAGE)
    (tmp_path / "docs/results/page.json").write_text(json.dumps({"runs": [{"tasks": 1000}]}))
    (tmp_path / "docs/results.md").write_text("| [page](results/page.md) | abc1234 |\n")
    (tmp_path / "docs/decisions/0001-one.md").write_text(DECISION.format(how="equal"))
    return tmp_path


def faults(sources: ModuleType, tree: Path, page: str = PAGE, **changes: list[str]) -> str:
    entries = {"Times": NUMBERS["Times"] | {name.replace("_", " "): said for name, said in changes.items()}}
    return "\n".join(sources.number_faults("page.md", page, entries, tree))


def test_numbers_with_a_source_pass(sources: ModuleType, tree: Path) -> None:
    assert faults(sources, tree) == ""


def test_a_number_from_nowhere_is_named(sources: ModuleType, tree: Path) -> None:
    assert "13 s is in no table there" in faults(sources, tree, PAGE.replace("takes 12 s", "takes 13 s"))
    # A number of a table with another unit is another number.
    assert "9 % is in no table" in faults(sources, tree, PAGE.replace("7 to 9 s", "9 %"))
    # The table changed and the text did not.
    assert "12 s is in no table" in faults(sources, tree, PAGE.replace("| all | 12 s |", "| all | 15 s |"))


def test_what_a_source_says_is_looked_up(sources: ModuleType, tree: Path) -> None:
    (tree / "docs/results/page.json").write_text(json.dumps({"runs": [{"tasks": 1200}]}))
    assert "says 1200 and not 1000" in faults(sources, tree)
    (tree / "docs/results/page.json").write_text("{}")
    assert "has no number at runs/0/tasks" in faults(sources, tree)


@pytest.mark.parametrize(
    ("source", "said", "fault"),
    [
        ("computed: 1 - 12 / 15", "20 %", "15 is in no table"),
        ("computed: 12 / 20", "50 %", "says 0.6 and not 50 %"),
        ("computed: open(1)", "1 s", "not a number"),
        ("paper: Raicu09", "1 s", "not a kind of source"),
        ("paper: Somebody §1", "1 s", "not a kind of source"),
        ("setting: crates/none.rs", "1 s", "no file crates/none.rs"),
        ("unfiled: ", "1 s", "not a kind of source"),
        ("unfiled: timed by hand", "5 s", "no text has 5 s"),
    ],
)
def test_a_source_that_is_none_is_a_fault(
    sources: ModuleType, tree: Path, source: str, said: str, fault: str
) -> None:
    page = PAGE.replace("GZ takes", "GZ takes 1 s, 20 % or 50 %;")
    entries = {"Times": NUMBERS["Times"] | {source: [said]}}
    assert fault in "\n".join(sources.number_faults("page.md", page, entries, tree))


def test_an_entry_for_a_section_that_is_gone_is_a_fault(sources: ModuleType, tree: Path) -> None:
    page = PAGE.replace("## Times", "## Durations")
    assert "there is no section “Times”" in faults(sources, tree, page)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("77 to 78 % and 0.5 s", ["77 %", "78 %", "0.5 s"]),
        ("35, 27 and 6 %", ["35 %", "27 %", "6 %"]),
        ("253 hours in place of 361, 3 % longer", ["253", "361", "3 %"]),
        ("figures 36 to 40, §5.1.6 and decision 0013 of 2026-11-28", []),
        ("1,440 s, -35 %, 24 MB:100 ms", ["1440 s", "35 %", "24 MB", "100 ms"]),
    ],
)
def test_numbers_are_read_with_their_units(sources: ModuleType, text: str, numbers: list[str]) -> None:
    assert [str(number) for number in sources.numbers_in(text)] == numbers


def about(sources: ModuleType, tree: Path, **more: object) -> dict[str, object]:
    known = sources.digest((tree / "docs/decisions/0001-one.md").read_text())
    base = {"command": "make page", "commit": "abc1234", "depends": ["0001"], "decisions": {"0001": known}}
    return base | more


def test_a_page_is_too_old_when_a_decision_changed(sources: ModuleType, tree: Path) -> None:
    page = about(sources, tree)
    assert sources.age_faults("page.md", page, tree) == []
    record = tree / "docs/decisions/0001-one.md"
    record.write_text("**Status:** new\n" + DECISION.format(how="equal").replace("are equal", "are\nequal"))
    assert sources.age_faults("page.md", page, tree) == []
    record.write_text(DECISION.format(how="unequal"))
    (fault,) = sources.age_faults("page.md", page, tree)
    assert "decision 0001 changed after it" in fault and "make page" in fault
    now = sources.digest(record.read_text())
    judged = page | {"unchanged": {"0001": f"{now} all nodes of this page are equal"}}
    assert sources.age_faults("page.md", judged, tree) == []
    assert "gives no reason" in str(sources.age_faults("page.md", page | {"unchanged": {"0001": now}}, tree))


def test_a_page_depends_on_decisions_that_are_linked(sources: ModuleType, tree: Path) -> None:
    (tree / "docs/decisions/0002-two.md").write_text(
        DECISION.format(how="many") + "[page](../results/page.md)"
    )
    assert "decision 0002 was made after it" in str(sources.age_faults("page.md", about(sources, tree), tree))
    (tree / "docs/decisions/0002-two.md").write_text(DECISION.format(how="many"))
    assert sources.age_faults("page.md", about(sources, tree), tree) == []
    (tree / "docs/results/page.md").write_text(PAGE + "\n[why](../decisions/0002-two.md)\n")
    assert "decision 0002 was made after it" in str(sources.age_faults("page.md", about(sources, tree), tree))


def test_the_list_of_pages_names_the_commit(sources: ModuleType, tree: Path) -> None:
    (fault,) = sources.age_faults("page.md", about(sources, tree, commit="def5678"), tree)
    assert "docs/results.md does not say that page.md is of def5678" in fault


def test_a_stamp_is_of_the_commit(sources: ModuleType, tree: Path) -> None:
    toml = '[pages."page.md"]\ncommand = "make page"\ncommit = "old"\ndepends = ["0001"]\n\n[pages."page.md".decisions]\n'
    (tree / "docs/results/sources.toml").write_text(toml + '0001 = "old"\n\n[pages."page.md".unchanged]\n')
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *words], cwd=tree, check=True)
    was = sources.digest((tree / "docs/decisions/0001-one.md").read_text())
    (tree / "docs/decisions/0001-one.md").write_text(DECISION.format(how="unequal"))
    sources.stamp("page.md", "HEAD", tree)
    text = (tree / "docs/results/sources.toml").read_text()
    assert f'0001 = "{was}"\n\n[pages."page.md".unchanged]' in text and 'commit = "HEAD"' in text


def test_every_page_is_as_its_sources_say(sources: ModuleType) -> None:
    assert sources.check(sources.ROOT) == []
