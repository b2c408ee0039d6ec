"""`eyas map` over more than files: combinations, parameters, tables; and what it does instead of running them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "q/a.fa": "A\n",
        "q/b c.fa": "BC\n",
        "db/a.fa": "x\n",
        "db/y.fa": "y\n",
    }.items():
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "work"


def made(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_every_combination_of_files_and_parameters(run: Run, folder: Path) -> None:
    line = "cat {1} {2} > {out}; echo {e} {//} >> {out}"
    out = "o/{1/.}-{2/.}-{e}"
    run("map", "q/*", ":::", "db/*", "--param", "e=1,-2", "--out", out, "--shell", "--", line, cwd=folder)
    expect = {
        f"{q}-{d}-{e}": f"{Q}\n{D}\n{e} q\n"
        for q, Q in (("a", "A"), ("b c", "BC"))
        for d, D in (("a", "x"), ("y", "y"))
        for e in ("1", "-2")
    }
    assert made(folder / "o") == expect
    pairs = run("map", ":::", "q/*", ":::+", "db/*", "--", "cat", "{1}", "{2}", cwd=folder)
    assert pairs.stdout == "A\nx\nBC\ny\n"
    words = run("map", "--param", "n=3..6", "--", "echo", "{}", cwd=folder)
    assert words.stdout == "3\n4\n5\n"


def test_rows_of_a_table(run: Run, folder: Path) -> None:
    (folder / "s.csv").write_text('sample,reads,note\ns1,q/a.fa,"x, ""y"""\ns2,q/b c.fa,$(z)\n')
    line = "cat {reads} > {out}; echo {note} >> {out}"
    args = ["--files", "reads", "--out", "o/{sample}.{reads/.}", "--shell", "--", line]
    run("map", "--csv", "s.csv", *args, cwd=folder)
    expect = {"s1.a": 'A\nx, "y"\n', "s2.b c": "BC\n$(z)\n"}
    assert made(folder / "o") == expect
    # The same through standard input, with tabs, and by the task's id.
    table = "sample\treads\tnote\ns1\tq/a.fa\t-\n"
    assert run("map", "--tsv", "-", *args, cwd=folder, stdin=table).status == 0
    assert made(folder / "o")["s1.a"] == "A\n-\n"
    assert "Task `s1`" in run("explain", "s1", cwd=folder).stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["q/*", ":::", "-"], "`-` stands among the first files only"),
        (["q/*", ":::"], "there are no files behind `:::`"),
        ([":::+", "q/*"], "there are none"),
        (["q/*", ":::+", "db/a.fa"], "1 files go along with 2 one by one"),
        (["one", "two"], "words are values of a parameter"),
        (["--param", "e"], "write it as NAME=A,B,C"),
        (["--param", "in=1,2"], "{in} is a hole of its own"),
        (["q/*", "--files", "x"], "--csv FILE or --tsv FILE is the table"),
        (["--csv", "none.csv"], "cannot read the table `none.csv`: no such file"),
        (["--csv", "bad.csv"], "bad.csv, line 3: the row has 1 fields, the header has 2"),
        (["--csv", "bad.csv", "--range", "0..3"], "bad.csv, line 3"),
        (["--param", "a=1", "--range", "0..3"], "a map is over a range or over other sources"),
    ],
)
def test_mistakes_are_named_and_nothing_starts(run: Run, folder: Path, args: list[str], said: str) -> None:
    (folder / "bad.csv").write_text("a,b\n1,2\n3\n")
    refused = run("map", *args, "--", "echo", "x", cwd=folder, status=2)
    assert said in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--csv", "t.csv", "--out", "results/{sample}/"], "the task for `row1`: `sample` is empty"),
        (["--csv", "t.csv", "--out", "results/{sample}"], "`results/{sample}` would be a whole folder"),
        (
            ["--param", "sample=a,,b", "--out", "results/{sample}/"],
            "the task for `sample=`: `sample` is empty",
        ),
        (["--param", "sample=a,,b", "--keep-new=results/{sample}"], "`sample` is empty"),
    ],
)
def test_an_empty_text_never_makes_the_folder_of_all_results_an_output(
    run: Run, folder: Path, words: list[str], said: str
) -> None:
    (folder / "results").mkdir()
    (folder / "results" / "old").write_text("precious")
    (folder / "t.csv").write_text("sample,v\n,1\n")
    refused = run("map", *words, "--shell", "--", "mkdir -p m; echo > m/r", cwd=folder, status=2)
    assert said in refused.stderr
    assert made(folder / "results") == {"old": "precious"}
    # A part that holds more is a name.
    words = ["map", "--csv", "t.csv", "--out", "results/s{sample}", "--shell", "--", "echo {v} > {out}"]
    run(*words, cwd=folder)
    assert made(folder / "results") == {"old": "precious", "s": "1\n"}


@pytest.mark.parametrize("how", ["words", "list", "table"])
def test_files_that_are_called_like_locations_are_files(run: Run, folder: Path, how: str) -> None:
    names = ["data:2.txt", "http:q", "run:1.txt", "file:w", "a\\nb"]
    (folder / "d").mkdir()
    for name in names:
        (folder / "d" / name).write_text(f"{name}\n")
    words, hole = {
        "words": (names, "{name}"),
        "list": (["-"], "{name}"),
        "table": (["--csv", "-", "--files", "f"], "{f/}"),
    }[how]
    stdin = "\n".join(["f", *names] if how == "table" else names)
    source = "{f}" if how == "table" else "{in}"
    run("map", *words, "--out", f"../o/{hole}", "--", "cp", source, "{out}", cwd=folder / "d", stdin=stdin)
    assert made(folder / "o") == made(folder / "d")


def test_two_names_of_which_one_is_the_other_escaped_are_two_tasks(run: Run, folder: Path) -> None:
    (folder / "d").mkdir()
    for name in ("a\nb", "a\\nb"):
        (folder / "d" / name).write_text(name)
    run("map", "d/*", "--out", "o/{name}", "--", "cp", "{in}", "{out}", cwd=folder)
    assert made(folder / "o") == made(folder / "d")


def test_names_as_long_as_a_file_may_have(run: Run, folder: Path) -> None:
    names = ["n" * 252, "n" * 255, "n" * 251 + ".txt", "é" * 127]
    for at in ("a", "b"):
        (folder / at).mkdir()
        for name in names:
            (folder / at / name).write_text(f"{at}\n")
    run("map", "a/*", "--out", "o/{name}", "--", "cp", "{in}", "{out}", cwd=folder)
    assert made(folder / "o") == made(folder / "a")
    # Both inputs have one name, and the output has it, too; programs still see its ending.
    long = names[2]
    line = "cat {in} {in2} > {out}; echo {in2} {out} >> {out}"
    run("map", f"a/{long}", ":::", f"b/{long}", "--out", f"p/{long}", "--shell", "--", line, cwd=folder)
    first, second, inside = (folder / "p" / long).read_text().splitlines()
    assert (first, second) == ("a", "b")
    assert all(len(name) == 255 and name.endswith(".txt") for name in inside.split()), inside
    # Over a range.
    words = ["map", "--range", "0..1", "--with", f"a/{names[1]}", "--out", "q/" + names[1], "--shell"]
    run(*words, "--", "echo > {out}", cwd=folder)
    assert (folder / "q" / names[1]).exists()


def test_a_dry_run_prints_the_commands_and_a_list_does_the_same(run: Run, folder: Path) -> None:
    args = ["q/*", "--out", "o/{/.}.out", "--", "cp", "{}", "{out}"]
    lines = run("map", "--dry-run", *args, cwd=folder).stdout.splitlines()
    assert lines[:3] == ["cp a.fa a.out", "cp 'b c.fa' 'b c.out'", "2 of 2 tasks would run, 0 up to date"]
    done = run("map", "--to-list", "l.jsonl", *args, cwd=folder)
    assert (done.stdout, done.stderr) == ("", "2 tasks written to `l.jsonl`; `eyas run` runs them\n")
    assert not (folder / "o").exists()
    assert run("map", "--to-list", "-", *args, cwd=folder).stdout == (folder / "l.jsonl").read_text()
    assert [json.loads(line)["id"] for line in (folder / "l.jsonl").open()] == ["q/a.fa", "q/b c.fa"]
    lines = run("run", "l.jsonl", "--dry-run", cwd=folder).stdout.splitlines()
    assert lines[:2] == ["cp a.fa a.out", "cp 'b c.fa' 'b c.out'"]
    run("run", "l.jsonl", cwd=folder)
    assert made(folder / "o") == {"a.out": "A\n", "b c.out": "BC\n"}


def test_a_map_is_resumed_by_what_it_did_and_not_by_times(run: Run, folder: Path) -> None:
    def resume(*args: str, command: str = "cat {} >> {out}; echo {/} >> '{{log}}'") -> str:
        command = command.replace("'{{log}}'", str(folder / "log"))
        whole = ["map", "q/*", "--out", "o/{/.}", "--shell", *args, "--", command]
        return run(*whole, cwd=folder).stderr

    def ran() -> list[str]:
        log = folder / "log"
        names = sorted(log.read_text().splitlines()) if log.exists() else []
        log.unlink(missing_ok=True)
        return names

    assert "no earlier run of this map is known here" in resume("--resume")
    assert ran() == ["a.fa", "b c.fa"]
    assert "all 2 tasks are up to date: nothing to do" in resume("--resume")
    assert ran() == []
    (folder / "q" / "new.fa").write_text("N\n")
    (folder / "q" / "a.fa").write_text("changed\n")
    resume("--resume", "--to-list", "rest.jsonl")
    assert [json.loads(line)["id"] for line in (folder / "rest.jsonl").open()] == ["q/a.fa", "q/new.fa"]
    assert "1 of 3 tasks are up to date, 2 to run" in resume("--resume")
    assert ran() == ["a.fa", "new.fa"]
    assert (folder / "o" / "a").read_text() == "changed\n"
    resume()
    assert ran() == ["a.fa", "b c.fa", "new.fa"]
