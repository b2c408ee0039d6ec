"""`eyas map` as the README and its help show it."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path

from harness import Run, Start, wait_until

SCRIPT = """
import gzip, pathlib, sys
data = gzip.open(sys.argv[1]).read()
pathlib.Path(sys.argv[2]).write_bytes(data[::-1])
"""


def sky(folder: Path) -> None:
    (folder / "sky").mkdir()
    for name in ("a", "b c", "-d"):
        with gzip.open(folder / "sky" / f"{name}.fits.gz", "wb") as file:
            file.write(name.encode() * 100)


def test_a_script_of_this_folder_is_taken_along(run: Run, tmp_path: Path) -> None:
    sky(tmp_path)
    (tmp_path / "cutout.py").write_text(SCRIPT)
    command = ["python3", "cutout.py", "{in}", "{out}"]
    done = run(
        "map", "sky/*.fits.gz", "--out", "cut/{stem}.npy", "--nodes", "2", "--", *command, cwd=tmp_path
    )
    assert done.stderr.startswith("note: `cutout.py`, which the command names, is an input of every task\n")
    made = {path.name: path.read_bytes() for path in (tmp_path / "cut").iterdir()}
    assert made == {f"{name}.npy": (name.encode() * 100)[::-1] for name in ("a", "b c", "-d")}


def test_a_script_in_a_shell_line_and_one_that_is_executable(run: Run, tmp_path: Path) -> None:
    sky(tmp_path)
    script = tmp_path / "size.sh"
    script.write_text('#!/bin/sh\nwc -c < "$1"\n')
    script.chmod(0o755)
    line = "./size.sh {in} > {out}"
    run("map", "sky/*.gz", "--out", "n/{stem}", "--shell", "--", line, cwd=tmp_path)
    for path in (tmp_path / "sky").iterdir():
        assert int((tmp_path / "n" / path.name.removesuffix(".fits.gz")).read_text()) == path.stat().st_size


def test_what_is_mapped_over_is_not_taken_twice(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("1")
    done = run("map", "one.txt", "--out", "{stem}.out", "--", "cp", "one.txt", "{out}", cwd=tmp_path)
    assert done.notes == []
    assert (tmp_path / "one.out").read_text() == "1"


def test_likely_mistakes_get_a_hint(run: Run, tmp_path: Path) -> None:
    """Said before anything starts, and done all the same; what is as it should be gets none."""
    (tmp_path / "in").mkdir()
    (tmp_path / "tools").mkdir()
    for i in range(3):
        (tmp_path / "in" / f"{i}.txt").write_text("x\n" * i)
    (tmp_path / "tools" / "count.sh").write_text("wc -l < $1\n")

    def notes(*args: str) -> list[str]:
        return run("map", "in/*.txt", "--slots", "1", *args, status=None).notes

    assert notes("--", "wc", "-l", "{in}") == []
    (said,) = notes("--", "wc", "-l")
    assert "has no {in}" in said
    assert notes("--shell", "--", "wc -l '{in}'") == []
    (said,) = notes("--", "wc", "-l", "{in}", ">", "x")
    assert "without --shell the word `>`" in said
    (said,) = notes("--", "sh", "tools/count.sh", "{in}")
    assert "`--with tools/count.sh`" in said
    (said,) = notes("--", "wc", "~/x", "{in}")
    assert "`~/x` stands for itself" in said


def test_a_name_is_read_back_whatever_quotes_are_around_it(run: Run, tmp_path: Path) -> None:
    names = ["$(touch ran).txt", "`touch ran`.txt", "it's.txt", 'a "b" \\.txt', "a b.txt", "plain.txt"]
    (tmp_path / "in").mkdir()
    for name in names:
        (tmp_path / "in" / name).write_text(name)
    line = 'cat "{in}" \'{in}\' {in}; printf %s "$(basename "{name}")"; ! test -e ran'
    done = run("map", "in/*", "--shell", "--out", "out/{name}", "--", f"({line}) > '{{out}}'", cwd=tmp_path)
    assert done.notes == []
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {n: n * 4 for n in names}
    (tmp_path / "list.txt").write_text('cat "{in:in/$(touch ran).txt}" > "{out:two words}"\n')
    run("run", "list.txt", cwd=tmp_path)
    assert (tmp_path / "two words").read_text() == names[0] and not (tmp_path / "ran").exists()


def test_lists_take_patterns_and_directories_and_hint_at_scripts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for i in range(3):
        (tmp_path / "in" / f"{i}.txt").write_text(f"{i}\n")
    (tmp_path / "in" / "sub" / "deep.txt").write_text("deep\n")
    script = tmp_path / "run.sh"
    script.write_text('#!/bin/sh\ncat "$@"\n')
    script.chmod(0o755)
    listed = tmp_path / "l.jsonl"

    def write(*tasks: dict[str, object]) -> None:
        listed.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))

    write(
        {"id": "glob", "command": "cat *.txt", "inputs": ["in/*.txt"], "stdout": "out/glob"},
        {"id": "all", "command": "cat d/*.txt d/sub/*.txt", "inputs": {"d": "in/"}, "stdout": "out/all"},
        {"id": "has", "command": "./run.sh 0.txt", "inputs": ["run.sh", "in/0.txt"], "stdout": "out/has"},
    )
    assert run("run", listed).notes == []
    assert (tmp_path / "out" / "glob").read_text() == "0\n1\n2\n"
    assert (tmp_path / "out" / "all").read_text() == "0\n1\n2\ndeep\n"
    assert (tmp_path / "out" / "has").read_text() == "0\n"
    write({"id": "lacks", "command": ["./run.sh", "0.txt"], "inputs": ["in/0.txt"]})
    assert (
        "note: task `lacks` names `./run.sh`, which is a file here and none of its own"
        in run("run", listed, status=1).stderr
    )
    (tmp_path / "data:2.txt").write_text("two\n")
    lacking: list[tuple[dict[str, object], str]] = [
        ({"command": "cat data:2.txt"}, "names `data:2.txt`, which is a file here and none of its own"),
        ({"command": ["cat", "data:2.txt"]}, "names `data:2.txt`, which is a file here and none of its own"),
        (
            {"command": "cat in/0.txt", "inputs": ["in/0.txt"]},
            "names `in/0.txt`, which is called `0.txt` in its sandbox: the command has to name it so",
        ),
        ({"command": "cp * x"}, "has the pattern `*` in its command, and no inputs that it could find"),
        ({"command": ["cp", "*", "x"], "inputs": ["in/0.txt"]}, "has the word `*` in a list of words"),
    ]
    for task, expect in lacking:
        write(task)
        assert [note for note in run("run", listed, status=1).notes if expect in note], task
    # What is declared is a file, whatever it is called, and a word is not always one.
    good: list[dict[str, object]] = [
        {"command": "cat data:2.txt", "inputs": ["./data:2.txt"]},
        {"command": "echo run.sh > run.sh", "outputs": {"run.sh": "out/run.sh"}},
        {"command": ["find", ".", "-name", "*.txt"]},
        {"command": "expr 2 \\* 3"},
    ]
    for task in good:
        write(task)
        assert run("run", listed).notes == [], task
    write({"id": "words", "command": ["echo", "x", ">", "y"]})
    assert "task `words` has the word `>` in a list of words" in run("run", listed).stderr
    write({"command": "true", "inputs": ["in/*.dat"]})
    assert "no file matches `in/*.dat`" in run("run", listed, status=2).stderr
    write({"command": "mkdir made", "outputs": ["made/"]})
    run("run", listed)
    assert (tmp_path / "made").is_dir()
    write({"command": "mkdir made", "outputs": {"made/": "made"}})
    refused = run("run", listed, status=2).stderr
    assert "names a directory, not a file" in refused and "a location that ends in `/`, too" in refused


def test_shared_inputs_are_patterns_and_directories(run: Run, tmp_path: Path) -> None:
    (tmp_path / "db" / "deep").mkdir(parents=True)
    for name in ("ref.fa", "ref.fa.bwt", "ref.fa.sa", "db/one", "db/deep/two", "q"):
        (tmp_path / name).write_text(f"{name}\n")
    line = "cat ref.fa* db/one db/deep/two {in} > {out}"
    wanted = "ref.fa\nref.fa.bwt\nref.fa.sa\ndb/one\ndb/deep/two\nq\n"
    run("map", "q", "--with", "ref.fa*", "--with", "db", "--out", "o", "--shell", "--", line, cwd=tmp_path)
    assert (tmp_path / "o").read_text() == wanted
    # A file that the command names and a pattern means is one input.
    done = run("map", "q", "--with", "ref*", "--", "cat", "ref.fa", "{in}", cwd=tmp_path)
    assert (done.stdout, "note" in done.stderr) == ("ref.fa\nq\n", False)
    (tmp_path / "l.txt").write_text("cat {in:ref.fa*} {in:db}/one {in:db}/deep/two {in:q} > {out:p}\n")
    run("run", "l.txt", cwd=tmp_path)
    assert (tmp_path / "p").read_text() == wanted
    done = run("map", "q", "--with", "no*", "--", "cat", "{in}", cwd=tmp_path, status=2)
    assert "no file matches `no*`" in done.stderr


def test_programs_that_take_no_links_work(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 1000)
    for out, command in [("g/{name}.gz", ["gzip", "{in}"]), ("s/{name}.gz", ["--shell", "gzip {in}; true"])]:
        words = command if command[0] != "--shell" else command[1:]
        options = [] if words is command else ["--shell"]
        run("map", "a", "b", "--out", out, *options, "--", *words, cwd=tmp_path)
    for place in ("g", "s"):
        assert gzip.decompress((tmp_path / place / "b.gz").read_bytes()) == b"b" * 1000
    assert (tmp_path / "a").read_text() == "a" * 1000
    assert "takes no file that has several links" in run("explain", "a", cwd=tmp_path).stdout


def test_variables_reach_programs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("# of the site\nFROM_FILE=1 2\nGIVEN=file\n")
    options = ["--env", "GIVEN=a=b", "--env", "OF_HERE", "--env-file", "env"]
    show = 'echo "$GIVEN|$OF_HERE|$FROM_FILE"'
    mapped = run(
        "map", "--range", "0..1", *options, "--shell", "--", show, cwd=tmp_path, env={"OF_HERE": "here"}
    )
    assert mapped.stdout == "a=b|here|1 2\n"
    assert (
        "there is no variable OF_HERE here"
        in run("map", "--range", "0..1", *options, "--", "env", cwd=tmp_path, status=2).stderr
    )
    (tmp_path / "l.txt").write_text(f"{show}\n")
    ran = run("run", "l.txt", *options, cwd=tmp_path, env={"OF_HERE": "x"})
    assert ran.stdout == "a=b|x|1 2\n"
    run("up", "--dir", "C", "--env", "OF_UP=u", "--env", "GIVEN=up", cwd=tmp_path)
    (tmp_path / "l.txt").write_text('echo "$GIVEN|$OF_UP"\n')
    run("submit", "l.txt", "--env", "GIVEN=task", cwd=tmp_path)
    run("submit", "l.txt", cwd=tmp_path)
    run("wait", "--all", cwd=tmp_path)
    printed = [run("logs", "1", "--run", str(n), cwd=tmp_path).stdout for n in (1, 2)]
    assert printed == ["task|u\n", "up|u\n"]
    # A task that has ended is said to have.
    done = run("cancel", "1", "--run", "1", cwd=tmp_path)
    assert done.stdout == "0 tasks cancelled\n" and "of run 1 had ended before: it is done" in done.stderr
    said = json.loads(run("cancel", "1", "--json", cwd=tmp_path).stdout)
    assert said == {"n_cancelled": 0, "had_ended": [{"id": "1", "run": 2, "state": "done"}]}
    run("down", cwd=tmp_path)


def test_what_fits_no_node_is_refused_at_once(run: Run, tmp_path: Path) -> None:
    done = run("map", "--range", "0..1", "--slots", "2", "--cpus", "3", "--", "true", cwd=tmp_path, status=2)
    assert "task `0` needs 3 cpus, and each node has 2 slots\nhint: --slots 3 gives" in done.stderr
    done = run("map", "--range", "0..1", "--memory", "1GiB", "--task-memory", "2GiB", "--", "true", status=2)
    assert "needs 2.0 GiB of memory, and each node has 1.0 GiB" in done.stderr


def test_a_part_of_a_pipe_is_named_once(run: Run, tmp_path: Path) -> None:
    words = ["--shell", "--print", "--", "echo own >&2; false | cat"]
    done = run("map", "--range", "0..1", *words, cwd=tmp_path, status=1)
    assert done.stderr.count("part 1 of the 2 of a pipe") == 1 and "own\n" in done.stderr, done
    assert run("logs", "0", cwd=tmp_path).stderr.count("eyas: part") == 0


def test_a_closed_terminal_ends_the_run_and_that_is_said(start: Start, tmp_path: Path) -> None:
    began = tmp_path / "began"
    running = start(
        "map", "--range", "0..2", "--slots", "1", "--", "sh", "-c", f"touch {began}; sleep 60", cwd=tmp_path
    )
    wait_until(began.exists, "the program", alive=running)
    running.signal(signal.SIGHUP)
    said = running.wait(status=130).stderr
    assert "the terminal was closed (signal HUP)" in said and "--resume" in said, said
    assert "2 cancelled" in said


def test_a_damaged_journal_says_what_can_be_saved_and_how(run: Run, tmp_path: Path) -> None:
    commands = "".join(f"echo {n} > {{out:o/{n}}}\n" for n in range(20))
    (tmp_path / "l.txt").write_text(commands)
    run("up", "--dir", "C", cwd=tmp_path)
    run("submit", "l.txt", cwd=tmp_path)
    run("wait", cwd=tmp_path)
    run("down", cwd=tmp_path)
    (journal, *_) = sorted((tmp_path / "C/dispatcher/journal").glob("*.*"), key=lambda p: -p.stat().st_size)
    damaged = bytearray(journal.read_bytes())
    # Further bytes behind it show that this part had been made durable.
    damaged[len(damaged) // 3] ^= 0xFF
    journal.write_bytes(damaged)
    said = run("up", "--dir", "C", cwd=tmp_path, status=3).stderr
    assert "is damaged at byte" in said and "--resume" in said, said
    folder = tmp_path / "C" / "dispatcher"
    assert f"`eyas submit TASKS --resume {folder}`" in said, said
    run("up", "--dir", "D", cwd=tmp_path)
    again = run("submit", "l.txt", "--resume", folder, "--dry-run", cwd=tmp_path)
    assert "0 of 20" in again.stdout + again.stderr or "nothing" in again.stdout + again.stderr, again
    run("down", cwd=tmp_path)
