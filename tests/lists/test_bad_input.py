"""Bad input: what is wrong is named in a sentence, and nothing else suffers from it.

What can be seen before anything starts refuses the whole list (exit status 2). What only shows while
tasks run fails those tasks and no others (exit status 1).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, Finished, Run, Start, lacking, need_program, wait_until
from lists import Json, failures, no_run_was_made, nothing_is_left, write_list

GOOD: Json = {"id": "good", "command": "echo fine > o", "outputs": {"o": "good.txt"}}


def refuses(run: Run, at: Path, *tasks: Json | str, words: tuple[str, ...]) -> Finished:
    """The list is refused with these words; the good task in it has not run either."""
    done = run("run", write_list(at / "tasks.jsonl", GOOD, *tasks), status=2, cwd=at)
    for word in words:
        assert word in done.stderr, f"expected {word!r}\n{done}"
    assert done.stdout == ""
    no_run_was_made(at)
    assert not (at / "good.txt").exists()
    return done


def test_an_unknown_field_is_named_with_its_place_and_the_nearest_one(run: Run, tmp_path: Path) -> None:
    refuses(
        run,
        tmp_path,
        '{"command": ["true"], "inptus": ["a"]}',
        words=("tasks.jsonl, line 2, column", "unknown field `inptus`", "hint: did you mean `inputs`?"),
    )


def test_a_circle_is_refused_with_the_tasks_on_it(run: Run, tmp_path: Path) -> None:
    refuses(
        run,
        tmp_path,
        {"id": "hen", "command": "cat egg > hen", "inputs": ["egg"], "outputs": ["hen"]},
        {"id": "egg", "command": "cat hen > egg", "inputs": ["hen"], "outputs": ["egg"]},
        words=(
            "wait for each other in a circle",
            "`hen` (line 2)",
            "`egg` (line 3)",
            "hint: break the circle",
        ),
    )


def test_two_tasks_that_write_one_output_are_both_named(run: Run, tmp_path: Path) -> None:
    refuses(
        run,
        tmp_path,
        {"id": "first", "command": "echo > x", "outputs": {"x": "same.txt"}},
        {"id": "second", "command": "echo > x", "outputs": {"x": "same.txt"}},
        words=(
            "line 3",
            f"writes `{tmp_path}/same.txt`",
            "task `first` on line 2",
            "hint: every output has one",
        ),
    )


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("memory", "2x", "`2x` is not a size: the unit `x` is unknown"),
        ("memory", "2G", "write GB or GiB"),
        ("memory", 0, "`memory`"),
        ("walltime", "soon", "`soon` is not a duration: a number is missing\nhint: write seconds"),
        ("cpus", 0, "`cpus`"),
        ("cpus", -1, "`cpus`"),
        ("retries", 1.5, "`retries`"),
        ("inputs", {"../up": "good.txt"}, "the name `../up` leads out with `..`"),
        ("inputs", {"/etc/passwd": "good.txt"}, "`/etc/passwd`"),
        ("outputs", {"a/../../b": "b"}, "`a/../../b`"),
        ("inputs", ["ftp://host/file"], "`ftp`"),
        ("env", {"A=B": "1"}, "`A=B`"),
        ("label", None, "`label`"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_its_place(
    run: Run, tmp_path: Path, field: str, value: Json, words: str
) -> None:
    refuses(run, tmp_path, {"command": ["true"], field: value}, words=("tasks.jsonl, line 2, column", words))


def test_broken_json_on_line_4711_starts_nothing(run: Run, tmp_path: Path) -> None:
    lines = [f'{{"command": "echo > o", "outputs": {{"o": "out-{i}"}}}}' for i in range(1, 10_001)]
    lines[4711 - 1] = '{"command": ["touch", "x",}'
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines) + "\n")
    done = run("run", "tasks.jsonl", status=2)
    assert done.stderr == "error: tasks.jsonl, line 4711, column 27: broken JSON: expected value\n"
    no_run_was_made(tmp_path)
    assert not list(tmp_path.glob("out-*"))


def test_a_list_that_is_no_list_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "image").write_bytes(bytes(range(256)))
    for name, words in [
        ("nowhere.jsonl", "cannot read the task list `nowhere.jsonl`: no such file or directory"),
        ("folder", "cannot read the task list `folder`: it is a directory"),
        ("image", "image, line 1"),
    ]:
        done = run("run", name, status=2)
        assert words in done.stderr, done
    no_run_was_made(tmp_path)


def test_names_of_policies_and_sizes_of_the_cluster_are_checked_first(run: Run, tmp_path: Path) -> None:
    write_list(tmp_path / "tasks.jsonl", GOOD)
    for option, value, words in [
        ("--placement", "nearest", "no placement policy `nearest`; known are first-available, max-cache-hit"),
        ("--eviction", "mru", "no eviction policy `mru`; choose one of `fifo`, `lfu`, `lru`, `random`"),
        ("--cache", "2G", "write GB or GiB"),
        ("--cache", "-1", "--cache"),
        ("--nodes", "0", "--nodes"),
        ("--slots", "many", "--slots"),
        ("--home-local", "nowhere", "`nowhere` is not a directory"),
        ("--lease", "later", "`later` is not a duration"),
    ]:
        done = run("run", "tasks.jsonl", f"{option}={value}", status=2)
        assert words in done.stderr, done
    assert not (tmp_path / "good.txt").exists()


def test_an_empty_glob_says_where_it_looked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sky").mkdir()
    (tmp_path / "sky" / "notes.txt").touch()
    for pattern, words in [
        ("sky/*.fits", f"no file matches `sky/*.fits`: looked in `{tmp_path}/sky/`"),
        (
            "ski/*.fits",
            f"no file matches `ski/*.fits`: cannot look in `{tmp_path}/ski/`: no such file or directory",
        ),
        ("sky", "`sky` is a directory\nhint: write 'sky/*'"),
        ("sky/m13.fits", "cannot find `sky/m13.fits`: no such file or directory"),
    ]:
        done = run("map", pattern, "--out", "out/{name}", "--", "cp", "{in}", "{out}", status=2)
        assert words in done.stderr, done
    empty = run("map", "-", "--", "cat", "{in}", stdin="", status=2)
    assert empty.stderr == "error: there are no input files\nhint: name files, or use a range\n"
    no_run_was_made(tmp_path)


def test_a_map_whose_outputs_are_one_is_refused(run: Run, tmp_path: Path) -> None:
    for name in ("m13.fits", "m13.fits.gz"):
        (tmp_path / name).touch()
    done = run("map", "m13*", "--out", "cut/{stem}.npy", "--", "cp", "{in}", "{out}", status=2)
    for word in (
        "m13.npy`",
        f"`{tmp_path}/m13.fits`",
        f"`{tmp_path}/m13.fits.gz`",
        "hint: use {name} or {index}",
    ):
        assert word in done.stderr, done
    done = run("map", "--range", "0..9", "--out", "same", "--", "touch", "{out}", status=2)
    assert "tasks 0 and 1 write one output `same`" in done.stderr
    done = run("map", "m13*", "--out", "{nam}", "--", "cp", "{in}", "{out}", status=2)
    assert "unknown hole `{nam}`" in done.stderr and "{index} {stem} {name}" in done.stderr
    no_run_was_made(tmp_path)


def test_a_command_that_was_meant_for_the_shell_is_noticed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    done = run("map", "a.txt", "--out", "b.txt", "--", "cat {in} > {out}", status=2)
    assert done.stderr == (
        "error: there is no program `cat {in} > {out}`\n"
        "hint: leave out the quotes around the whole command, or add --shell\n"
    )
    done = run("map", "a.txt", "--", "cp", "{in}", "{out}", status=2)
    assert "unknown hole `{out}`\nhint: say where outputs go, like --out" in done.stderr, done
    (tmp_path / "t.csv").write_text("id\n7\n")
    done = run("map", "t.csv", "--", "echo", "{id}", status=2)
    assert "from each row of the table" in done.stderr and "--csv `t.csv`" in done.stderr, done
    no_run_was_made(tmp_path)


def test_two_submissions_that_write_one_output_are_both_named(run: Run, start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run("up", "--nodes", "1", "--slots", "1")
    waits = f"until test -e '{gate}'; do sleep 0.02; done; echo 1 > o"
    first = write_list(tmp_path / "1.jsonl", {"id": "first", "command": waits, "outputs": {"o": "same.txt"}})
    second = write_list(
        tmp_path / "2.jsonl", {"id": "second", "command": "echo 2 > o", "outputs": {"o": "same.txt"}}
    )
    run("submit", first)
    done = run("submit", second, status=2)
    assert f"tasks `first` and `second` both write `{tmp_path}/same.txt`" in done.stderr, done
    # The refused client is gone; the cluster and the accepted run are not.
    gate.touch()
    run("wait", status=0)
    assert (tmp_path / "same.txt").read_text() == "1\n"
    run("submit", second)
    run("wait", status=0)
    assert (tmp_path / "same.txt").read_text() == "2\n"
    run("down")


# ------------------------------------------------------------------ inputs that are not what they should be


@pytest.fixture
def neighbours(tmp_path: Path) -> list[Json]:
    (tmp_path / "shared.txt").write_text("shared\n")
    return [
        {
            "id": f"ok-{i}",
            "command": "cat shared.txt > o",
            "inputs": ["shared.txt"],
            "outputs": {"o": f"ok-{i}.txt"},
        }
        for i in range(3)
    ]


def fails_alone(run: Run, at: Path, neighbours: list[Json], bad: Json, *options: str) -> str:
    """The bad task fails and its neighbours do not; returns why."""
    done = run(
        "run", write_list(at / "tasks.jsonl", neighbours[0], bad, *neighbours[1:]), *options, status=1, cwd=at
    )
    reasons = failures(done)
    assert list(reasons) == [bad["id"]], done
    for i in range(3):
        assert (at / f"ok-{i}.txt").read_text() == "shared\n"
    nothing_is_left(at)
    return reasons[str(bad["id"])]


def test_a_missing_input_is_named(run: Run, tmp_path: Path, neighbours: list[Json]) -> None:
    why = fails_alone(
        run, tmp_path, neighbours, {"id": "bad", "command": "cat m", "inputs": {"m": "tiles/7.fits"}}
    )
    assert why == f"cannot read `{tmp_path}/tiles/7.fits`: there is no such file"


def test_a_directory_is_no_input(run: Run, tmp_path: Path, neighbours: list[Json]) -> None:
    (tmp_path / "tiles").mkdir()
    why = fails_alone(run, tmp_path, neighbours, {"id": "bad", "command": "ls tiles", "inputs": ["tiles"]})
    assert why == f"cannot read `{tmp_path}/tiles`: it is a directory"


def test_a_dangling_link_is_no_input(run: Run, tmp_path: Path, neighbours: list[Json]) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    why = fails_alone(run, tmp_path, neighbours, {"id": "bad", "command": "cat link", "inputs": ["link"]})
    assert why == f"cannot read `{tmp_path}/link`: it is a symbolic link to `nowhere`, which is not there"


def test_a_task_whose_input_was_never_made_names_the_one_that_failed(
    run: Run, tmp_path: Path, neighbours: list[Json]
) -> None:
    write_list(
        tmp_path / "tasks.jsonl",
        {"id": "makes", "command": "exit 3", "outputs": {"m": "made.txt"}},
        {"id": "uses", "command": "cat made.txt", "inputs": ["made.txt"]},
        *neighbours,
    )
    done = run("run", "tasks.jsonl", status=1)
    reasons = failures(done)
    assert reasons["makes"] == "the program ended with status 3"
    assert reasons["uses"] == "task `makes`, which makes one of its inputs, failed"
    assert (tmp_path / "ok-2.txt").read_text() == "shared\n"
    nothing_is_left(tmp_path)


@pytest.fixture
def ordinary(eyas_path: Path) -> Iterator[tuple[Run, Path]]:
    """eyas as a user who may not read everything, and a folder of that user's."""
    # Not under pytest's own folder, which other users cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="eyas-ordinary-"))
    program = eyas_path
    if os.geteuid() == 0:
        setpriv = need_program("setpriv", "util-linux")
        shutil.copy(eyas_path, folder / "eyas-real")
        program = folder / "eyas"
        program.write_text(
            f'#!/bin/sh\nexec {setpriv} --reuid=65534 --regid=65534 --clear-groups {folder}/eyas-real "$@"\n'
        )
        program.chmod(0o755)
    eyas = Eyas(program, folder / ".eyas-test", uuid.uuid4().hex)
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534)
    yield eyas.run, folder
    eyas.end()
    shutil.rmtree(folder)


def test_a_home_folder_that_may_not_be_entered_has_no_options(ordinary: tuple[Run, Path]) -> None:
    run, at = ordinary
    closed = at / "closed"
    (closed / "eyas").mkdir(parents=True)
    (closed / "eyas" / "eyas.toml").write_text("nonsense")
    closed.chmod(0)
    # `su` leaves such variables behind.
    env = {"HOME": str(closed), "XDG_CONFIG_HOME": str(closed)}
    assert run("map", "--range", "0..1", "--", "echo", "hi", cwd=at, env=env).stdout == "hi\n"
    closed.chmod(0o755)
    (closed / "eyas" / "eyas.toml").chmod(0)
    assert "eyas.toml`: Permission denied" in run("config", "check", status=2, cwd=at, env=env).stderr


def test_variables_that_are_empty_are_not_set_and_a_removed_folder_is_said(
    run: Run, eyas_path: Path, tmp_path: Path
) -> None:
    empty = dict.fromkeys(["EYAS_STATE", "EYAS_JOIN", "EYAS_DATA", "EYAS_HOMES"], "")
    assert run("map", "--range", "0..1", "--", "echo", "hi", env=empty).stdout == "hi\n"
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && exec "$2" map --range 0..1 -- echo hi'
    words = ["sh", "-c", script, "sh", str(gone), str(eyas_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the folder in which this command was started has been removed\n")


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (["run", "l.jsonl"], '{"command":["true"]}\n'.encode("utf-16"), "hint: `iconv -f UTF-16"),
        (["run", "s.sh"], b"#!/bin/sh\necho hi\n", "hint: a script is one task"),
        (["run", "t.csv"], b"x,y\n1,2\n", "hint: each row of a table is a task of `eyas map --csv FILE"),
        (["map", "--csv", "t.csv", "--", "echo", "{x}"], b"x;y\n1;2\n", "hint: columns are separated by"),
        (["run"], b"", "hint: `-` is a list on standard input"),
        (["map", "l", "--", "cp", "{in}", "{out}", "--out", "o"], b"", "`--out` stands behind `--`"),
    ],
)
def test_what_beginners_write_is_understood_and_refused(
    run: Run, tmp_path: Path, words: list[str], text: bytes, said: str
) -> None:
    for name in ("l", "l.jsonl", "s.sh", "t.csv"):
        (tmp_path / name).write_bytes(text)
    assert said in run(*words, status=2).stderr


def test_an_unreadable_input_is_named(ordinary: tuple[Run, Path]) -> None:
    run, at = ordinary
    (at / "secret.txt").write_text("secret\n")
    (at / "secret.txt").chmod(0)
    (at / "open.txt").write_text("open\n")
    write_list(
        at / "tasks.jsonl",
        {"id": "bad", "command": "cat secret.txt", "inputs": ["secret.txt"]},
        {"id": "ok", "command": "cat open.txt > o", "inputs": ["open.txt"], "outputs": {"o": "done.txt"}},
        # What a task may not change stays as it is: the task gets a copy of its own.
        {
            "id": "writes",
            "command": "echo more >> open.txt; cp open.txt o",
            "inputs": ["open.txt"],
            "outputs": {"o": "more.txt"},
        },
    )
    reasons = failures(run("run", "tasks.jsonl", status=1, cwd=at))
    assert sorted(reasons) == ["bad"]
    assert f"`{at}/secret.txt`" in reasons["bad"] and "permission denied" in reasons["bad"].lower()
    assert (at / "more.txt").read_text() == "open\nmore\n"
    assert (at / "done.txt").read_text() == "open\n" == (at / "open.txt").read_text()
    nothing_is_left(at)


def test_an_output_where_nothing_may_be_written_is_named(ordinary: tuple[Run, Path]) -> None:
    run, at = ordinary
    (at / "closed").mkdir(mode=0o555)
    write_list(
        at / "tasks.jsonl",
        {"id": "bad", "command": "echo 1 > o", "outputs": {"o": "closed/o"}},
        {"id": "ok", "command": "echo 2 > o", "outputs": {"o": "done.txt"}},
    )
    done = run("run", "tasks.jsonl", status=2, cwd=at)
    assert f"the output `{at}/closed/o` can never be written" in done.stderr
    assert f"the folder `{at}/closed` may not be written" in done.stderr
    assert not (at / "done.txt").exists()
    nothing_is_left(at)


def test_an_output_over_another_users_file_where_only_owners_may_replace_is_named(
    ordinary: tuple[Run, Path],
) -> None:
    run, at = ordinary
    if os.geteuid() != 0:
        lacking("needs root, for a file of another user")
    (at / "shared").mkdir()
    (at / "shared" / "theirs").write_text("theirs")
    (at / "shared" / "own").write_text("own")
    os.chown(at / "shared" / "own", 65534, 65534)
    (at / "shared").chmod(0o1777)
    write_list(at / "tasks.jsonl", {"command": "echo 1 > o", "outputs": {"o": "shared/theirs"}})
    done = run("run", "tasks.jsonl", status=2, cwd=at)
    assert f"the output `{at}/shared/theirs` can never be written: it belongs to another user" in done.stderr
    write_list(at / "tasks.jsonl", {"command": "echo 1 > o", "outputs": {"o": "shared/own"}})
    run("run", "tasks.jsonl", cwd=at)
    assert (at / "shared" / "own").read_text() == "1\n"
    nothing_is_left(at)


@pytest.mark.parametrize("how", ["printf changed > '{}'", "tr 1 2 < large.dat > '{}'"])
def test_an_input_that_changes_during_the_run_is_never_used_in_two_versions(
    run: Run, tmp_path: Path, neighbours: list[Json], how: str
) -> None:
    """To another size, and to other bytes of the same size. Read from home by each task: it is larger than the cache."""
    large = tmp_path / "large.dat"
    large.write_bytes(b"1" * (2 << 20))
    write_list(tmp_path / "tasks.jsonl", *reads_before_and_after(how.format(large)), *neighbours)
    done = run("run", "tasks.jsonl", "--cache", "1MiB", status=1)
    reasons = failures(done)
    assert list(reasons) == ["after"], done
    assert f"`{large}`" in reasons["after"] and "changed since this run first read it" in reasons["after"]
    assert (tmp_path / "a.dat").read_bytes() == b"1" * (2 << 20)
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "ok-2.txt").read_text() == "shared\n"
    nothing_is_left(tmp_path)


def test_an_input_that_is_only_touched_during_the_run_has_not_changed(run: Run, tmp_path: Path) -> None:
    """A task that runs twice writes its result twice: equal bytes with a new time stamp are the same bytes."""
    large = tmp_path / "large.dat"
    large.write_bytes(b"1" * (2 << 20))
    again = f"cp large.dat '{large}.new' && mv '{large}.new' '{large}'"
    write_list(tmp_path / "tasks.jsonl", *reads_before_and_after(again))
    before = large.stat().st_mtime_ns
    run("run", "tasks.jsonl", "--cache", "1MiB")
    assert large.stat().st_mtime_ns != before
    assert (tmp_path / "b").stat().st_size == 4 << 20


def reads_before_and_after(change: str) -> list[Json]:
    """A task that reads `large.dat` and then changes it at home, and one that reads it after that."""
    return [
        {
            "id": "before",
            "command": f"cp large.dat a; {change}",
            "inputs": ["large.dat"],
            "outputs": {"a": "a.dat"},
        },
        {
            "id": "after",
            "command": "cat large.dat a.dat > b",
            "inputs": ["large.dat", "a.dat"],
            "outputs": ["b"],
        },
    ]


# ------------------------------------------------------------------ odd names, odd sizes

ODD_NAMES = [
    "a b.txt",
    " leading and trailing ",
    "it's.txt",
    'say "hi".txt',
    "new\nline.txt",
    "tab\tbell\a.txt",
    "ünïcode-☃-名前.txt",
    "-rf",
    "--help",
    "$(touch pwned).txt",
    "`touch pwned`;touch pwned",
    "back\\slash.txt",
    "*?[a].txt",
    "{stem}{0}.txt",
    "..dots..",
    ".hidden",
    "%20%.txt",
    "a#b?c=d&e",
    "x" * 250,
]


def test_odd_names_reach_programs_as_they_are(run: Run, tmp_path: Path) -> None:
    given = tmp_path / "in"
    given.mkdir()
    tasks: list[Json] = []
    for i, name in enumerate(ODD_NAMES):
        (given / name).write_text(f"content {i}\n")
        # The program gets the name as an argument of its own; no shell reads it.
        copy = ["cp", "--", name, f"{name[:240]}.out"]
        tasks.append({"command": copy, "inputs": [f"in/{name}"], "outputs": {copy[-1]: f"out/{i}"}})
    run("run", write_list(tmp_path / "tasks.jsonl", *tasks))
    for i in range(len(ODD_NAMES)):
        assert (tmp_path / "out" / str(i)).read_text() == f"content {i}\n"
    assert not (tmp_path / "pwned").exists()
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("how", ["argv", "shell"])
def test_a_map_over_odd_names_gives_each_its_own_output(run: Run, tmp_path: Path, how: str) -> None:
    given = tmp_path / "in"
    given.mkdir()
    for i, name in enumerate(ODD_NAMES):
        (given / name).write_text(f"content {i}\n")
    command = ["cp", "{in}", "{out}"] if how == "argv" else ["cat {in} > {out}"]
    options = [] if how == "argv" else ["--shell"]
    names = "\0".join(f"in/{name}" for name in ODD_NAMES)
    run("map", "-", "-0", "--out", "out/{index}", *options, "--", *command, stdin=names)
    for i in range(len(ODD_NAMES)):
        assert (tmp_path / "out" / str(i)).read_text() == f"content {i}\n"
    assert not list(tmp_path.rglob("pwned"))
    nothing_is_left(tmp_path)


def test_a_name_in_a_message_stays_on_its_line(run: Run, tmp_path: Path) -> None:
    write_list(
        tmp_path / "tasks.jsonl", {"id": "a", "command": ["true"], "inputs": {"x": "no\nsuch\x1b[31m"}}
    )
    done = run("run", "tasks.jsonl", status=1)
    assert "\x1b" not in done.stderr and "no\\nsuch" in done.stderr, done


def test_a_name_that_is_not_utf8_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with open(os.fsencode(tmp_path) + b"/in/caf\xe9.txt", "w"):
        pass
    by_pattern = run("map", "in/*", "--", "cat", "{in}", status=2)
    by_list = run("map", "-", "-0", "--", "cat", "{in}", stdin=b"in/caf\xe9.txt\0", status=2)
    for done in (by_pattern, by_list):
        assert "UTF-8" in done.stderr and "caf" in done.stderr, done
    no_run_was_made(tmp_path)


def test_a_name_on_standard_input_that_is_not_utf8_stands_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in (b"a", b"caf\xe9", b"b"):
        (tmp_path / "in" / os.fsdecode(name)).write_text("x")
    for end, options in ((b"\0", ["-0"]), (b"\n", [])):
        listed = end.join([b"in/a", b"in/caf\xe9", b"in/b", b""])
        words = ("map", "-", *options, "--out", "out/{name}", "--", "cp", "{in}", "{out}")
        done = run(*words, stdin=listed)
        assert "left out `in/caf\\xe9`: its name is not UTF-8" in done.stderr
        assert sorted(os.listdir(tmp_path / "out")) == ["a", "b"]
        shutil.rmtree(tmp_path / "out")
    (tmp_path / "list").write_bytes(b"in/a\nin/caf\xe9\n")
    words = ("pairs", "@list", "in/b", "--out", "r.csv", "--shell", "--", "cat {a} {b} > m; echo 1")
    assert "left out `in/caf\\xe9`: its name is not UTF-8" in run(*words).stderr
    done = run("map", "-", "--", "cat", "{in}", stdin="in/a\n".encode("utf-16"), status=2)
    assert "UTF-16" in done.stderr


def test_empty_files_are_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(20):
        (tmp_path / "in" / f"{i}").touch()
    run("map", "in/*", "--out", "out/{name}", "--nodes", "2", "--", "cp", "{in}", "{out}")
    assert sorted(os.listdir(tmp_path / "out")) == sorted(str(i) for i in range(20))
    assert all((tmp_path / "out" / str(i)).stat().st_size == 0 for i in range(20))
    nothing_is_left(tmp_path)


def test_exit_statuses_are_the_documented_ones(run: Run, tmp_path: Path) -> None:
    said = " ".join(run("--help").stdout.split())
    for words in (
        "0 all tasks ended well",
        "1 some did not",
        "2 the input is wrong",
        "3 no cluster",
        "130 interr",
    ):
        assert words in said, said
    write_list(tmp_path / "good.jsonl", GOOD)
    write_list(tmp_path / "bad.jsonl", {"command": ["false"]})
    run("run", "good.jsonl", status=0)
    run("run", "bad.jsonl", status=1)
    run("run", "none.jsonl", status=2)
    run("frobnicate", status=2)
    gone = run("submit", "good.jsonl", status=3)
    assert gone.stderr.startswith("error: no cluster is up\nhint: start one with `eyas up`"), gone
    write_list(tmp_path / "none.jsonl")
    assert "there are no tasks" in run("run", "none.jsonl", status=0).stderr


def test_a_killed_cluster_is_told_and_hides_no_ended_run(run: Run, eyas: Eyas, tmp_path: Path) -> None:
    write_list(tmp_path / "tasks.jsonl", {"id": "says", "command": "echo hello"})
    run("run", "tasks.jsonl")
    run("up", "--nodes", "1", "--slots", "1", "--lease", "1s")
    (dispatcher,) = [pid for pid, command in eyas.left_behind() if " dispatcher " in command]
    os.kill(dispatcher, signal.SIGKILL)
    wait_until(lambda: dispatcher not in dict(eyas.left_behind()), "the end of the dispatcher")
    refusal = run("status", status=3)
    assert refusal.stderr.startswith(
        "error: no cluster is up; the last one was ended without a word\nhint: `eyas up`"
    )
    assert run("logs", "says").stdout == "hello\n"
    # The executor has nobody to work for and ends by itself, once its lease has passed.
    wait_until(lambda: not list(eyas.left_behind()), "the end of the executor")


def test_a_reader_that_has_seen_enough_ends_nothing_but_the_printing(
    run: Run, eyas: Eyas, tmp_path: Path
) -> None:
    run("up", "--nodes", "1", "--slots", "1")
    for _ in range(3):
        pipe = subprocess.Popen(
            [eyas.path, "status"], env=eyas.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert pipe.stdout is not None and pipe.stderr is not None
        pipe.stdout.close()
        said = pipe.stderr.read().decode()
        pipe.wait()
        assert "panicked" not in said, said
    run("status")
    wait_until(lambda: "connected" in run("status").stdout, "the node")
    run("down")
