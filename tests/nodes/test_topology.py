"""`eyas topology` on the log of a real run: what nodes and home are said to have sent is what they have sent."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from harness import Run

FILE_BYTES = 2_000_000


def test_the_network_is_read_from_the_log_of_a_run(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for k in range(8):
        (home / f"{k}.bin").write_bytes(bytes([k]) * FILE_BYTES)
    options = ["--self", "--out", "m.csv", "--nodes", "2", "--slots", "1", "--dir", "cluster", "--shell"]
    run("pairs", "home", *options, "--", "cat {a} {b} | wc -c")

    network = json.loads(run("topology", "--dir", "cluster", "--json").stdout)
    [site] = network["sites"]
    # In the order in which they joined.
    assert sorted(site) == ["node1", "node2"]
    assert network["between_sites"] == []
    # Each file leaves home once, and a node needs most of them.
    assert {line["node"] for line in network["home"]} <= {"node1", "node2"}
    assert all(line["n_transfers"] > 0 and line["best_bytes_per_s"] > 1e6 for line in network["home"])
    [pair] = network["pairs"]
    assert [pair["a"], pair["b"]] == site
    assert pair["n_transfers"] > 0
    assert pair["best_bytes_per_s"] >= pair["usual_bytes_per_s"] > 0

    text = run("topology", "--dir", "cluster", "--svg", "network.svg").stdout
    assert text.startswith("The network is one site")
    lines = [line.split()[:3] for line in text.splitlines()]
    assert [site[0], "\u2013", site[1]] in lines
    assert any(line[:2] == ["home", "\u2013"] for line in lines)
    drawing = ElementTree.parse(tmp_path / "network.svg").getroot()
    names = {element.text for element in drawing.iter() if element.tag.endswith("}text")}
    assert {"home", "node1", "node2"} <= names


def test_a_run_without_transfers_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "commands.txt").write_text("true\n")
    run("run", "commands.txt", "--dir", "cluster")
    assert run("topology", "--dir", "cluster").stdout.startswith("No transfer has shown")


def test_a_drawing_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "commands.txt").write_text("true\n")
    run("run", "commands.txt", "--dir", "cluster")
    done = run("topology", "--dir", "cluster", "--svg", "no/such/folder/n.svg", status=4)
    assert "no/such/folder/n.svg" in done.stderr
