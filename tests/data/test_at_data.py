"""`eyas match` and `eyas at-data` as a user calls them: unchanged programs run on data sets, and what they make is one."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from harness import Run, Start, wait_until
from test_data import objects, spoil

# It knows its files by their names only, as the program of figure 5 does.
TRANSMUTE = """#!/bin/sh
[ "$3" = to ] || { echo "usage: transmute ACID BASE to SALT WATER" >&2; exit 9; }
cat "$1" "$2" > "$4" && echo 18 > "$5"
"""
REAGENTS = ("--input", "HCl=/acid/hcl", "--input", "NaOH=/acid/naoh")
PRODUCTS = ("--output", "NaCl=salt", "--output", "HOH=water")
COMMAND = ("--", "transmute", "HCl", "NaOH", "to", "NaCl", "HOH")


@pytest.fixture
def env(run: Run, tmp_path: Path) -> dict[str, str]:
    """A catalog with the data set of figure 5, the program on the path, and a folder for temporary files."""
    (tmp_path / "acid").mkdir()
    (tmp_path / "acid" / "hcl").write_text("36\n")
    (tmp_path / "acid" / "naoh").write_text("40\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "transmute").write_text(TRANSMUTE)
    (tmp_path / "bin" / "transmute").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    env = {
        "EYAS_DATA": f"sqlite:{tmp_path}/catalog.db",
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    run("data", "init", "--dir", "here", env=env)
    run("data", "put", "acid", "--label", "acid", "--tag", "reagents=acidbase", env=env)
    return env


def n_sets(run: Run, env: dict[str, str]) -> int:
    return len(run("data", "find", "-q", env=env).stdout.split())


def test_figure_5_makes_salt_water(run: Run, env: dict[str, str], tmp_path: Path) -> None:
    """`Wozniak06`, figure 5: `KEY` is found by a tag, `transmute` runs on its files, the salt water is found by its tag."""
    key = run("match", "reagents=acidbase", env=env).stdout.strip()
    assert key == "acid"
    tag = ("--tag", "reagents=saltwater")
    made = run("at-data", *REAGENTS, *PRODUCTS, *tag, "--explain", *COMMAND, env=env)
    assert "input /acid@1/hcl as HCl: from the site here" in made.stderr
    label = run("match", "reagents=saltwater", env=env).stdout.strip()
    assert made.stdout.strip() == label
    run("data", "get", label, "salt-water", env=env)
    assert (tmp_path / "salt-water" / "salt").read_text() == "36\n40\n"
    assert (tmp_path / "salt-water" / "water").read_text() == "18\n"
    history = run("data", "history", label, env=env).stdout
    assert "transmute HCl NaOH to NaCl HOH on /acid@1/hcl as HCl, /acid@1/naoh as NaOH" in history
    assert not list((tmp_path / "tmp").iterdir())


def test_match_takes_the_newest_with_all_tags(run: Run, env: dict[str, str]) -> None:
    tags = ("--tag", "reagents=acidbase", "--tag", "year=2026", "--tag", "who=O'Hara \" or 1=1")
    run("data", "put", "acid", "--label", "newer", *tags, env=env)
    newest = run("match", "reagents=acidbase", env=env, status=3)
    assert newest.stdout == "newer\n" and "2 data sets match" in newest.stderr
    both = run("match", "reagents=acidbase", "year=2026", "who=O'Hara \" or 1=1", env=env)
    assert both.stdout == "newer\n" and both.stderr == ""
    run("match", "reagents=acidbase", "year=2026.0", env=env, status=2)
    none = run("match", "reagents=acidbase", "year=2025", env=env, status=2)
    assert none.stdout == "" and "no data set that you may list matches" in none.stderr
    assert "write name=value" in run("match", "reagents", env=env, status=2).stderr


def test_a_whole_set_is_a_directory_and_an_old_version_stays(
    run: Run, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "acid" / "hcl").write_text("37\n")
    run("data", "put", "acid", "--label", "acid", env=env)
    read = ("--", "sh", "-c", "cat in/hcl old; ls in; echo new > in/hcl")
    done = run("at-data", "--input", "in=/acid", "--input", "old=/acid@1/hcl", *read, env=env)
    assert done.stdout == "37\n36\nhcl\nnaoh\n"
    # The program wrote into its own copy.
    assert run("at-data", "--input", "x=/acid/hcl", "--", "cat", "x", env=env).stdout == "37\n"
    # A program of this folder, and standard input.
    (tmp_path / "count.sh").write_text("#!/bin/sh\nwc -l\n")
    (tmp_path / "count.sh").chmod(0o755)
    assert run("at-data", "--", "./count.sh", env=env, stdin="a\nb\n").stdout.strip() == "2"
    # Outputs may be directories, and get a version of a set that is there.
    make = ("--", "sh", "-c", "mkdir d; echo 1 > d/a; echo 2 > d/b")
    run("at-data", "--output", "d=deep/er", "--label", "acid", *make, env=env)
    assert run("data", "ls", "acid@3", env=env).stdout == "deep/er/a\ndeep/er/b\n"
    # A link to what the program made itself counts as what it leads to.
    make = ("--", "sh", "-c", "mkdir -p d/new; echo 1 > d/new/a; ln -s new d/old; ln -s new/a d/latest")
    run("at-data", "--output", "d=d", "--label", "acid", *make, env=env)
    assert run("data", "ls", "acid@4", env=env).stdout == "d/latest\nd/new/a\nd/old/a\n"


def test_nothing_is_made_by_a_program_that_fails(run: Run, env: dict[str, str], tmp_path: Path) -> None:
    for words, status, said in [
        (
            ("--input", "a=/acid/hcl", *PRODUCTS, "--", "transmute", "a"),
            1,
            "`transmute` ended with exit status 9; no data set",
        ),
        ((*PRODUCTS, "--", "sh", "-c", "kill -9 $$"), 1, "`sh` ended with signal 9; no data set was made"),
        (
            (*PRODUCTS, "--", "touch", "NaCl"),
            1,
            "`touch` made no `HOH`, which --output names; no data set was made",
        ),
        (("--output", "l=l", "--", "ln", "-s", "/etc/passwd", "l"), 1, "made `l`, which is a symbolic link"),
        (("--output", "l=l", "--", "mkfifo", "l"), 1, "made `l`, which is neither a file nor a directory"),
        (("--output", "l=m", "--", "sh", "-c", "mkdir l; ln -s /x l/x"), 1, "`m/x` is a symbolic link"),
        (("--output", "l=l", "--", "mkdir", "l"), 1, "there is no file in what is to be put; no data set"),
        (("--output", "x=x", "--copies", "0", "--", "touch", "x"), 2, "0 is not in 1..=100"),
        ((*PRODUCTS, "--", "nosuchprogram"), 2, "cannot run `nosuchprogram`"),
        ((*PRODUCTS, "--site", "moon", *COMMAND), 2, "no site `moon`"),
        (("--input", "a=/acid/gone", "--", "cat", "a"), 2, "`acid@1` has no file `gone`"),
        (("--input", "a=/acid/../acid/hcl", "--", "cat", "a"), 2, "has no file"),
        (("--input", "a=/base/hcl", "--", "cat", "a"), 2, "there is no data set `base`"),
        (("--input", "a=acid/hcl", "--", "cat", "a"), 2, "NAME=/KEY/PATH"),
        (("--input", "../a=/acid/hcl", "--", "cat", "a"), 2, "`../a` is no name of a file"),
        (
            ("--input", "a=/acid/hcl", "--input", "a/b=/acid/naoh", "--", "ls"),
            2,
            "one would lie in the other",
        ),
        (("--output", "a=/etc/passwd", "--", "touch", "a"), 2, "is no name of a file"),
        (("--output", "a=x", "--output", "b=x", "--", "touch", "a", "b"), 2, "--output names `x` twice"),
        (("--tag", "a=b", "--", "true"), 2, "--output"),
        (("--mode", "elsewhere", "--", "true"), 2, "possible values: local, scheduled, remote, late"),
        (("--mode", "remote", "--", "true"), 2, "name one with --input"),
        (("--spool", ".", "--", "true"), 2, "are for jobs: add --mode late"),
    ]:
        done = run("at-data", *words, env=env, status=status)
        assert said in done.stderr, (words, done.stderr)
        assert done.stdout == ""
    assert n_sets(run, env) == 1
    assert not list((tmp_path / "tmp").iterdir())


def test_an_output_beyond_a_link_of_the_program_is_refused(
    run: Run, env: dict[str, str], tmp_path: Path
) -> None:
    """The user's own file is not moved into the data set."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_text("mine")
    made = ("--output", "out/x=x", "--", "ln", "-s", tmp_path / "mine", "out")
    said = run("at-data", *made, env=env, status=1).stderr
    assert "`ln` made `out/x` outside of its folder; no data set was made" in said
    assert (tmp_path / "mine" / "x").read_text() == "mine"


def test_an_interrupt_while_files_are_copied_leaves_nothing(
    run: Run, start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """At odd moments before, in and after the program, which only copies."""
    (tmp_path / "big").write_bytes(os.urandom(60_000_000))
    run("data", "put", "big", "--label", "big", env=env)
    for n in range(12):
        words = ("--input", "in=/big/big", "--output", "out=out", "--", "cp", "in", "out")
        running = start("at-data", *words, env=env)
        time.sleep(0.03 * n)
        running.process.send_signal(signal.SIGTERM)
        done = running.wait(20, None)
        assert done.status in (0, 130, -signal.SIGTERM), done
        if done.status != -signal.SIGTERM:
            assert not list((tmp_path / "tmp").iterdir()), done


def test_a_label_that_may_not_be_written_is_refused_before_the_program_runs(
    run: Run, env: dict[str, str], tmp_path: Path
) -> None:
    run("data", "put", "acid", "--label", "gone", env=env)
    run("data", "rm", "gone", env=env)
    mark = tmp_path / "ran"
    for label, said in [("gone", "has been removed"), ("a b", "is no label")]:
        made = ("at-data", "--output", "x=x", "--label", label, "--", "touch", mark, "x")
        assert said in run(*made, env=env, status=2).stderr
    assert not mark.exists()


def test_a_damaged_copy_is_never_read(run: Run, env: dict[str, str], tmp_path: Path) -> None:
    """With another copy the program gets that one; without one it does not run."""
    run("data", "copies", "acid", "2", env=env)
    run("data", "site", "shelf", tmp_path / "shelf", env=env)
    run("data", "repair", env=env)
    read = ("at-data", "--input", "in=/acid", "--explain", "--", "cat", "in/hcl", "in/naoh")
    for copy in objects(tmp_path / "here"):
        spoil(copy)
    good = run(*read, env=env)
    assert good.stdout == "36\n40\n" and "from the site shelf" in good.stderr
    for copy in objects(tmp_path / "shelf"):
        spoil(copy)
    bad = run(*read, env=env, status=2)
    assert bad.stdout == "" and re.search(r"damaged|no site has a good copy", bad.stderr)


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_interrupted_leaves_nothing(
    run: Run, start: Start, env: dict[str, str], tmp_path: Path, asked: signal.Signals
) -> None:
    mark = tmp_path / "begun"
    # It has a process of its own, which goes into another session.
    words = ("--", "sh", "-c", f"setsid sleep 61 & echo $! > {mark}.new; mv {mark}.new {mark}; exec sleep 60")
    running = start("at-data", *PRODUCTS, *words, env=env)
    wait_until(mark.exists, "the program's begin")
    running.process.send_signal(asked)
    done = running.wait(20, 130)
    assert "ended with signal 15; no data set was made" in done.stderr
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    assert n_sets(run, env) == 1
    assert not list((tmp_path / "tmp").iterdir())


def test_the_folder_of_a_command_that_was_killed_goes_with_the_next(
    run: Run, start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """Folders of commands that run, and those that were left on purpose, stay."""
    mark = tmp_path / "begun"
    words = ("at-data", "--", "sh", "-c", f"touch {mark}-$PPID; exec sleep 60")
    killed, lives = start(*words, env=env), start(*words, env=env)
    for running in (killed, lives):
        wait_until(Path(f"{mark}-{running.pid}").exists, "the program's begin")
    kept = tmp_path / "tmp" / "eyas-at-data-1-2"
    kept.mkdir()
    (kept / "file").touch()
    killed.kill()
    run("at-data", "--", "true", env=env)
    left = sorted(path.name.split("-")[3] for path in (tmp_path / "tmp").iterdir())
    assert left == sorted(["1", str(lives.pid)])


def test_a_stopped_command_that_is_interrupted_and_goes_on_tells_its_program(
    run: Run, start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """A key stops the command and its program; what wakes the command alone must wake the program, too."""
    mark, told = tmp_path / "begun", tmp_path / "told"
    words = (
        "--",
        "sh",
        "-c",
        f"trap 'echo it was > {told}; exit 3' TERM; echo $$ > {mark}.new; mv {mark}.new {mark}; "
        "while :; do sleep 0.05; done",
    )
    running = start("at-data", *PRODUCTS, *words, env=env)
    wait_until(mark.exists, "the program's begin")
    program = int(mark.read_text())
    for pid in (program, running.pid):
        os.kill(pid, signal.SIGSTOP)
    running.signal(signal.SIGINT)
    running.signal(signal.SIGCONT)
    done = running.wait(status=130)
    assert "no data set was made" in done.stderr
    assert told.exists()
    assert n_sets(run, env) == 1
    assert not list((tmp_path / "tmp").iterdir())
    # The label is free for another try.
    run("at-data", *REAGENTS, *PRODUCTS, "--label", "again", *COMMAND, env=env)
    assert n_sets(run, env) == 2


def test_a_copy_on_this_machine_is_read_before_another(
    run: Run, start: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """Sites were read in the order of their names. A store on a loopback address is on no host that has a name."""
    store = start("store", "--dir", tmp_path / "away", "--name", "aaa", "--listen", "127.0.0.1:0")
    store.wait_for_text("where the catalog is")
    run("data", "site", "--join", tmp_path / "away" / "join.json", env=env)
    run("data", "copies", "acid", "2", env=env)
    run("data", "repair", env=env)
    assert "aaa, here" in run("data", "where", "acid", env=env).stdout
    read = run("at-data", "--input", "in=/acid", "--explain", "--", "cat", "in/hcl", env=env)
    assert "from the site here (on this machine)" in read.stderr
    for copy in objects(tmp_path / "here"):
        spoil(copy)
    other = run("at-data", "--input", "in=/acid", "--explain", "--", "cat", "in/hcl", env=env)
    assert "from the site aaa (over the network)" in other.stderr
