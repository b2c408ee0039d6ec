"""eyas bench: what a machine gives, for people and as JSON, and what is wrong with what was asked."""

from __future__ import annotations

import json
from pathlib import Path

from harness import Run, Start, wait_until


def test_a_machine_and_its_home_are_measured(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    figures = json.loads(run("bench", "--home", home, "--dir", tmp_path, "--json").stdout)
    assert figures["home"]["path"] == str(home)
    assert figures["disk"]["path"] == str(tmp_path)
    for folder in (figures["disk"], figures["home"]):
        assert min(value for name, value in folder.items() if name.endswith("_s")) > 0
    assert figures["programs"]["per_s"] > 0
    assert figures["network"] is None
    assert any("takes longer to open at home than to read" in one for one in figures["advice"])
    assert list(home.iterdir()) == []


def test_the_way_to_another_machine_is_measured(run: Run, start: Start, tmp_path: Path) -> None:
    serving = start("bench", "--serve", "127.0.0.1:0")
    wait_until(
        lambda: "THIS_MACHINE:" in serving.stderr, "the line that says where it answers", alive=serving
    )
    port = serving.stderr.split("THIS_MACHINE:")[1].split(";")[0]
    done = run("bench", "--to", f"127.0.0.1:{port}", "--dir", tmp_path)
    assert f"to 127.0.0.1:{port}: answers in" in done.stdout
    assert "4 at once" in done.stdout
    assert "advice: " in done.stdout


def test_what_cannot_be_measured_is_named(run: Run, tmp_path: Path) -> None:
    nowhere = run("bench", "--home", tmp_path / "absent", status=2)
    assert "absent" in nowhere.stderr
    assert "hint: " in nowhere.stderr
    nobody = run("bench", "--to", "127.0.0.1:1", status=3)
    assert "cannot measure the network to `127.0.0.1:1`" in nobody.stderr
    assert "eyas bench --serve" in nobody.stderr
    assert "hint: " in run("bench", "--serve", "nowhere", status=2).stderr
