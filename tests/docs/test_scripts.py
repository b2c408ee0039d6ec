"""The programs behind `make`: what they read out of other programs' output, and what they say of a bare machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pytest
from harness import ROOT, Eyas, lacking
from programs import load

CARGO_OUTPUT = """\
     Running unittests src/lib.rs (target/release/deps/eyas_text-0123456789abcdef)
running 3 tests
test golden::print ... ignored, not a test: prints the trace
test slow ... ignored
test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests eyas_text
test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
"""

# Of cargo's report: `c` could begin when `b` had ended, and `b` when there was enough of `a`.
UNITS = """const UNIT_DATA = [
  {"i": 0, "name": "a", "version": "1.0.0", "target": "", "start": 0.0, "duration": 2.5,
   "unblocked_units": [], "unblocked_rmeta_units": [1]},
  {"i": 1, "name": "b", "version": "0.1.0", "target": " bin \\"b\\"", "start": 1.5, "duration": 3.0,
   "unblocked_units": [2], "unblocked_rmeta_units": []},
  {"i": 2, "name": "c", "version": "0.1.0", "target": "", "start": 4.5, "duration": 0.5,
   "unblocked_units": [], "unblocked_rmeta_units": []}
];
const CONCURRENCY_DATA = [
];
"""

JUNIT = """<testsuites><testsuite><testcase name="a"/><testcase name="b"><skipped message="needs x"/></testcase>
<testcase name="c"><failure/></testcase><testcase name="d"><error/></testcase></testsuite></testsuites>"""

HELP = """\
Runs many programs over many files.

Usage: eyas COMMAND

Work:
  map     One command over all files
          whose names match

Look:
  bench   Benchmarks
  help    This text

Options:
  -h, --help
"""


def test_tests_are_counted_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load("test", monkeypatch)
    rust, python = program.Tally("Rust"), program.Tally("Python")
    program.count_rust(CARGO_OUTPUT.splitlines(keepends=True), rust)
    program.count_python(JUNIT, python)
    assert (rust.n_passed, rust.n_failed, rust.n_skipped) == (41, 2, 2)
    assert rust.programs == [("eyas_text src/lib.rs", 1, 0.0), ("eyas_text in its documentation", 42, 1.0)]
    assert rust.skipped == ["golden::print: not a test: prints the trace", "slow: no reason given"]
    assert (python.n_passed, python.n_failed, python.n_skipped) == (1, 2, 1)
    assert python.skipped == ["b: needs x"]


BROKEN_TWICE = """
import pathlib, pytest
from harness import wait_until

@pytest.fixture
def room():
    yield pathlib.Path(__file__).with_name("tried")
    if not pathlib.Path(__file__).with_name("tidy").exists():
        pathlib.Path(__file__).with_name("tidy").touch()
        assert 1 == 2, "a consequence"

def test_first_time_only(room):
    was_there = room.exists()
    room.touch()
    wait_until(lambda: was_there, "a second try", timeout=0)

def test_other():
    pass
"""
WRONG = "def test_never():\n    assert False\n"
WRONG_ONCE = """
import pathlib

def test_wrong_once():
    tried = pathlib.Path(__file__).with_name("tried too")
    was_there = tried.exists()
    tried.touch()
    assert was_there
"""


@pytest.mark.parametrize("beside", ["", WRONG, WRONG_ONCE])
@pytest.mark.parametrize("is_busy", [True, False])
def test_what_fails_for_a_known_reason_is_tried_again_alone_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_busy: bool, beside: str
) -> None:
    """It counts once, though its own failure and that of its fixture are two in pytest's report."""
    program = load("test", monkeypatch)
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "lib"))
    # It notes when a test began.
    shutil.copy(ROOT / "conftest.py", tmp_path)
    monkeypatch.setattr(program.stalls.Meter, "idle_part", lambda *_: 0.2 if is_busy else 0.3)
    (tmp_path / "test_it.py").write_text(BROKEN_TWICE)
    if beside:
        (tmp_path / "test_beside.py").write_text(beside)
    tally = program.run_python(2, [])
    if is_busy and not beside:
        assert tally.trouble(False) is None
        assert {name.split(".")[-1]: why.split(" while ")[0] for name, why in tally.passed_alone.items()} == {
            "test_first_time_only": "it waited to its limit of time"
        }
        assert not tally.failed and tally.n_passed == 2
    else:
        assert tally.trouble(False) is not None
        assert len(tally.failed) == (2 if beside else 1) and not tally.passed_alone


# What tests of this tree say when they fail, and how many such a run may have.
WAITED = "Failed: waited 60 s for the old folder to go\n--- stdout\n"
NO_SLURM = 'failed on setup with "Failed: Slurm does not come up\nslurmctld: error"'
KNOWN = {
    WAITED: 3,
    f'failed on teardown with "{WAITED}"': 3,
    "Failed: still running after 120 s\neyas run": 3,
    "subprocess.TimeoutExpired: Command '['ray', 'stop']' timed out after 120 seconds": 3,
    "playwright._impl._errors.TimeoutError: Page.goto: Timeout 30000ms exceeded.": 3,
    "TimeoutError": 3,
}


def test_a_failure_is_excused_by_a_reason_of_the_table_and_by_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = load("tries", monkeypatch)
    table = tries.reasons()
    quiet, busy, still = (tries.stalls.Meter() for _ in range(3))
    for meter, n_idle in ((quiet, 150), (busy, 20), (still, 150)):
        meter.ticks = [(90.0, 0, 0), (200.0, 200, n_idle)]
    still.stalls = [tries.stalls.Stall(100.0, 106.0, "a write")]

    def known(meter: object, said: str, n: int = 1, test: str = "tests.nodes.test_x.a") -> int:
        failures = [tries.Failure(f"{test}{i}", said, (100.0, 160.0)) for i in range(n)]
        return len(tries.known(failures, meter, table))

    wrong = "AssertionError: waited 60 s for the wrong thing\nassert 1 == 2"
    for said, most in KNOWN.items():
        assert (known(quiet, said), known(busy, said, most), known(busy, said, most + 1)) == (0, most, 0), (
            said
        )
    assert (known(quiet, wrong), known(busy, wrong), known(still, wrong, 20)) == (0, 0, 20)
    # A server of others needs no measure, but it has to be one, and the setup of a test that is about it.
    assert (known(quiet, NO_SLURM, 3), known(quiet, NO_SLURM, 4)) == (3, 0)
    assert known(quiet, NO_SLURM.replace("setup", "teardown")) == 0
    assert known(quiet, NO_SLURM, test="tests.docs.test_x.a") == 0
    assert known(quiet, NO_SLURM.replace("Slurm", "eyas")) == 0
    # When it ran is not known, so nothing is known of the machine then.
    assert not tries.known([tries.Failure("a", WAITED, None)], busy, table)


def test_a_reason_that_excuses_anything_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tries = load("tries", monkeypatch)
    table = tmp_path / "table.toml"
    for entry, sentence in (
        (
            'tests = ["*"]',
            "the reason `x` in table.toml excuses any failure: give it `says`, or `measured` of",
        ),
        ('measured = "moon"', "excuses any failure"),
        ('says = ["a"]\nsay = 1', "the reason `x` in table.toml has the unknown key `say`"),
    ):
        table.write_text(f'[[reason]]\nwhy = "x"\n{entry}\n')
        with pytest.raises(ValueError, match=sentence):
            tries.reasons(table)


FAILED_AT = """<testsuites><testsuite><testcase classname="x" name="a" time="60"><properties><property name="began" value="100"/>
</properties><failure message="wrong"/></testcase><testcase classname="x" name="b" time="1"><failure/></testcase></testsuite></testsuites>"""


def test_what_failed_while_the_machine_stood_still_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each test needs took long meanwhile, and the processors are looked at beside it."""
    now = iter([89.0, 90.0, 90.5, 149.0, 150.0, 154.0, 157.0, 158.0, 163.0])
    rooms = iter([9e9, 7e9, 3e9, 8e9, 0.9e9, 5e9])
    ticks = iter([(1000, 500), (2000, 700), (2100, 780), (3000, 900)])
    stalls = load("stalls", monkeypatch)
    meter = stalls.Meter(
        {"a write": lambda: None}, lambda: next(now), lambda: int(next(rooms)), lambda: next(ticks)
    )
    for _ in range(3):
        meter.look()
    stood_still = "the machine stood still: a write took a second or more 2 times, 5.0 s at most"
    room = "the disk had 3.0 GB of room at least, and the processors were idle for 25% of the time"
    assert meter.lines() == [room, stood_still]
    # The first look was quick; of the last one, 2 s belong to the test that ends at 160.
    assert [meter.lost_s(*at) for at in ((80.0, 150.0), (100.0, 160.0), (153.0, 159.0))] == [0.0, 6.0, 2.0]
    assert [meter.idle_part(*at) for at in ((80.0, 149.0), (149.5, 156.0), (158.0, 160.0))] == [
        0.2,
        0.8,
        None,
    ]
    assert [meter.was_busy(*at) for at in ((80.0, 149.0), (149.5, 156.0), (158.0, 160.0))] == [
        True,
        False,
        False,
    ]
    program = load("test", monkeypatch)
    tally = program.Tally("x", exit_status=1)
    program.count_python(FAILED_AT, tally)
    assert tally.failed == ["x.a", "x.b"]
    assert [(of.said, of.at) for of in tally.failures.values()] == [("wrong", (100.0, 160.0)), ("", None)]
    tried: list[str] = []

    def run_pytest(name: str, options: list[str]) -> object:
        tried.append(name)
        return program.Tally(name, n_passed=1)

    monkeypatch.setattr(program, "run_pytest", run_pytest)
    assert program.tried_again(tally, [], meter).failed == ["x.a", "x.b"] and not tried
    tally.failed.pop()
    del tally.failures["x.b"]
    assert program.tried_again(tally, [], meter).passed_alone == {
        "x.a": "the machine stood still for 5 s or more while it ran"
    }
    assert tried == ["again"]
    # A full disk is no time to write to it.
    now = iter([199.0, 200.0])
    meter.look()
    assert meter.stalls[-1] == stalls.Stall(200.0, 201.0, stalls.FULL) and meter.room_least == 900_000_000


def test_nothing_run_something_failed_or_skipped_in_ci_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = load("test", monkeypatch).Tally
    assert tally("x").trouble(False) == "x: no test ran"
    assert tally("x", n_passed=1, n_failed=1).trouble(False) == "x: 1 failed"
    assert tally("x", n_passed=1, exit_status=101).trouble(False) == "x: ended with exit status 101"
    skipping = tally("x", n_passed=1, skipped=["a: needs b"])
    assert skipping.trouble(False) is None
    assert skipping.trouble(True) == "x: 1 skipped, which CI does not allow"
    assert tally("x", n_passed=1, skipped=["a: not a test: prints"]).trouble(True) is None


def test_commands_are_found_in_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    names = load("docs", monkeypatch).command_names
    assert names(HELP) == ["map", "bench"]
    assert names("Usage: eyas map\n\nOptions:\n  -h, --help\n") == []


# In both of the forms that help has: words beside an option, and below it.
OPTIONS = """\
Runs one command
over many files:
a task for each

Usage: eyas map [OPTIONS] [FILES]...

Arguments:
  [FILES]...  Files, or `-`

Options:
  -0, --null
          Names end in
          NUL bytes

          [default: a|b]
      --join <FILE>    Join file [env: EYAS_JOIN=]
      --node <NODE>

Exit status: 0 all is well, 1
all the rest.
"""


def test_help_becomes_a_page_without_losing_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = load("docs", monkeypatch)
    assert docs.described(docs.read_help(OPTIONS), 2, {}) == (
        "\nRuns one command over many files: a task for each\n"
        "\n```text\neyas map [OPTIONS] [FILES]...\n```\n"
        "\n## Arguments\n\n| argument | |\n|---|---|\n| `[FILES]...` | Files, or `-` |\n"
        "\n## Options\n\n| option | |\n|---|---|\n"
        "| `-0, --null` | Names end in NUL bytes \\[default: a\\|b\\] |\n"
        "| `--join <FILE>` | Join file \\[env: EYAS\\_JOIN\\] |\n"
        "| `--node <NODE>` |  |\n"
        "\nExit status: 0 all is well, 1 all the rest.\n"
    )
    with pytest.raises(SystemExit, match="not read to its end"):
        docs.read_help(OPTIONS.replace("  -0, --null\n", ""))


def test_the_page_of_times_has_every_step_crate_file_and_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = load("test", monkeypatch)
    python, rust = program.Tally("Python"), program.Tally("Rust")
    program.count_python(JUNIT.replace('name="a"', 'name="a" classname="tests.x" time="2.5"'), python)
    program.count_rust(CARGO_OUTPUT.splitlines(keepends=True), rust)
    noted, page = tmp_path / "noted", tmp_path / "page.md"
    program.note_times([rust, python], 4, noted)
    (noted / "steps.tsv").write_text("10\t25\tmake check\n")
    (noted / "make build.html").write_text(f"<script>\n{UNITS}</script>\n")
    program.times.write_page(noted, page)
    text = page.read_text()
    for line in (
        "| make check | 10 | 15 |",
        "3 compilations, 5 s; one after the other 6 s.",
        "| `a 1.0.0` | 2.5 |",
        "| 1 others | 0.5 |",
        "| `tests.x` | 1 | 1 | 2.5 |",
        "| `tests.x.a` | 2.5 |",
        "| `eyas_text in its documentation` | 42 | 1.0 |",
    ):
        assert line in text.splitlines(), text
    waited = text[text.index("What the last one waited for") :].splitlines()[4:7]
    assert [line.split("|")[1].strip() for line in waited] == [
        "`a 1.0.0`",
        '`b 0.1.0 (bin "b")`',
        "`c 0.1.0`",
    ]


def bare_path(folder: Path, programs: dict[str, str]) -> dict[str, str]:
    """An environment whose PATH has the few tools that need.sh uses, and these programs (name: shell text)."""
    for tool in ("sh", "sed", "sort", "head", "cut"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def need(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["sh", "scripts/need.sh", "cargo", "python", "cc"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_a_bare_machine_is_told_everything_that_is_missing(tmp_path: Path) -> None:
    done = need(bare_path(tmp_path, {}))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line.split(" ")[1].rstrip(",") for line in lines[::2]] == ["cargo", "python3", "cc"]
    assert all(line.startswith("hint: ") for line in lines[1::2])


def test_tools_that_are_too_old_are_told_apart_from_absent_ones(tmp_path: Path) -> None:
    done = need(bare_path(tmp_path, {"cargo": "echo cargo 1.66.0", "python3": "echo 3.9", "cc": ""}))
    assert done.returncode == 1
    assert "this one is 1.66.0" in done.stderr and "python3 is 3.9" in done.stderr


def test_this_machine_has_what_is_needed() -> None:
    done = need(dict(os.environ))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_names_of_functions_lie_beside_the_program(eyas: Eyas) -> None:
    symbols = eyas.path.with_suffix(".symbols")
    slim, names = (
        subprocess.run(["nm", file], capture_output=True, errors="replace", check=True)
        for file in (eyas.path, symbols)
    )
    assert "no symbols" in slim.stderr and "eyas_core" in names.stdout
    link = subprocess.run(
        ["readelf", "--string-dump=.gnu_debuglink", eyas.path],
        capture_output=True,
        errors="replace",
        check=True,
    )
    assert symbols.name in link.stdout


def test_calls_within_the_program_are_direct_and_those_of_libraries_bound_at_its_start(
    eyas: Eyas,
) -> None:
    """`.cargo/config.toml` asks for both. The table of what is not called directly had 28,922 entries of 8 bytes."""
    looked = subprocess.run(
        ["readelf", "--wide", "--dynamic", "--program-headers", "--sections", eyas.path],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "BIND_NOW" in looked and "GNU_RELRO" in looked
    (table,) = [line.split("]")[1].split() for line in looked.splitlines() if "] .got " in line]
    assert int(table[4], 16) < 64_000


def test_the_wheel_says_nothing_of_the_machine_that_built_it() -> None:
    (built,) = (ROOT / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as wheel:
        (bill,) = [name for name in wheel.namelist() if "/sboms/" in name]
        text = wheel.read(bill).decode()
        assert wheel.testzip() is None
    assert "eyas-core" in text and 'timestamp":' not in text
    assert f"{ROOT}/" not in text and str(Path.home()) not in text


def crates(*words: str) -> set[str]:
    """The crates of what cargo builds there, each with its features."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.removesuffix(" (*)") for line in done.stdout.splitlines()}


def test_what_the_program_is_made_of_is_not_compiled_again_for_the_tests() -> None:
    """A crate that has one feature more there is compiled twice, and so is all that depends on it."""
    of_tests = crates("--workspace", "--edges", "normal,build,dev")
    for package in ("eyas-cli", "eyas-lab"):
        assert crates("--package", package, "--edges", "normal,build") <= of_tests


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_wheel_for_older_machines_is_made_and_runs() -> None:
    """The script looks for symbols of a newer glibc and runs a small job with the program of the wheel."""
    done = subprocess.run(
        [sys.executable, "scripts/release.py", "--wheel"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ok: eyas maps a program over files" in done.stdout


def test_what_cannot_be_built_for_another_machine_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that has only its own machine's library, where there is no Debian that would have another."""
    foreign = load("foreign", monkeypatch)
    rustc = tmp_path / "rustc"
    rustc.write_text(f"#!/bin/sh\necho {tmp_path}\n")
    rustc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(foreign.shutil, "which", lambda _: None)
    with pytest.raises(
        SystemExit, match=r"Rust's library for aarch64-unknown-linux-gnu .*\nhint: rustup target add"
    ):
        foreign.rust("aarch64-unknown-linux-gnu")
    (tmp_path / "lib" / "rustlib" / "aarch64-unknown-linux-gnu" / "lib").mkdir(parents=True)
    assert foreign.rust("aarch64-unknown-linux-gnu") == {}


# With a program over files, a function, a context and a result that is mapped.
CALLS = """\
import platform
import eyas

with eyas.Cluster(nodes=2, slots=1) as c:
    run = c.map("cp {in} {out}", __file__, out="{name}.copy")
    run.wait()
    triple = c.context(lambda: 3)
    print(c.submit(platform.machine).result(), list(c.map(pow, range(4), context=triple)))
    print(len(c.submit(bytes, 300_000).result()), open("calls.py.copy").read() == open("calls.py").read())
"""


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("libc", ["gnu", "musl"])
def test_a_wheel_for_another_processor_is_made_and_runs(
    libc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an emulator. There is no Python for musl that could load that one's module."""
    processor = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    if not shutil.which("apt-get"):
        lacking("this is no Debian, which has Rust's library for other processors, and Python for them")
    done = subprocess.run(
        [sys.executable, "scripts/release.py", "--wheel", "--arch", processor, "--libc", libc],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "Linux 6.7 or newer is needed" in done.stderr:
        lacking("an emulator runs what was built from Linux 6.7 on")
    assert done.returncode == 0, done.stderr
    assert "ok: eyas maps a program over files" in done.stdout
    if libc == "musl":
        return
    (wheel,) = (ROOT / "dist" / "release").glob("*.whl")
    packages = tmp_path / "packages"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
    ]
    subprocess.run(
        [*pip, packages, "--platform", f"manylinux_2_28_{processor}", "--only-binary", ":all:", wheel],
        check=True,
    )
    shutil.copytree(Path(cloudpickle.__file__).parent, packages / "cloudpickle")
    (tmp_path / "calls.py").write_text(CALLS)
    foreign = load("foreign", monkeypatch)
    python = [
        *foreign.emulated(processor),
        foreign.system(processor) / "usr" / "bin" / "python3.11",
        "calls.py",
    ]
    ran = subprocess.run(
        python,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(packages), "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.stdout == f"{processor} [0, 1, 8, 27]\n300000 True\n", ran.stderr


def test_kept_data_sees_of_the_engine_what_is_listed_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The crates themselves are held to it by `scripts/crates.py --check`."""
    rules = load("crates", monkeypatch)
    good = {"site": {"terms", "storage", "catalog", "net"}, "catalog": {"text"}, "cli": {"core"}}
    may = {("site", "net"): "why"}
    assert rules.broken_kept(good, may) == []
    assert rules.broken_kept(good | {"catalog": {"core"}}, may) == [
        "catalog is kept data and uses core, which is the engine's"
    ]
    (needless,) = rules.broken_kept(good | {"site": {"terms"}}, may)
    assert needless.startswith("site does not use net any more")


def test_the_head_of_a_file_names_what_the_file_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The crates themselves are held to it by `scripts/crates.py --check`."""
    rules = load("crates", monkeypatch)
    inner = tmp_path / "crates" / "wing" / "one" / "src" / "inner"
    inner.mkdir(parents=True)
    (inner.parent.parent / "Cargo.toml").write_text('[package]\nname = "eyas-one"\n', encoding="utf-8")
    (inner.parent / "lib.rs").write_text("mod inner;\nmod tests {\n    use super::*;\n}\n", encoding="utf-8")
    (inner / "tests.rs").write_text("use super::*;\n", encoding="utf-8")
    (inner / "other.rs").write_text("use super::Named;\n", encoding="utf-8")
    assert rules.broken_heads(tmp_path) == []
    (inner / "other.rs").write_text("use super::super::*;\n", encoding="utf-8")
    (found,) = rules.broken_heads(tmp_path)
    assert found.startswith("crates/wing/one/src/inner/other.rs uses all of the module above")


def test_unsafe_code_is_where_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The crates themselves are held to it by `scripts/crates.py --check`."""
    rules = load("crates", monkeypatch)
    src = tmp_path / "crates" / "wing" / "one" / "src"
    src.mkdir(parents=True)
    (src.parent / "Cargo.toml").write_text('[package]\nname = "eyas-one"\n', encoding="utf-8")
    (src / "inner.rs").write_text("// unsafe { not_this() }\nfn f() {}\n", encoding="utf-8")
    (src / "lib.rs").write_text("#![forbid(unsafe_code)]\nmod inner;\n", encoding="utf-8")
    assert rules.broken_unsafe(tmp_path, {}) == []
    (needless,) = rules.broken_unsafe(tmp_path, {"one": "why"})
    assert needless == "one is listed in UNSAFE and has no unsafe code"
    (src / "lib.rs").write_text("mod inner;\n", encoding="utf-8")
    (lacking,) = rules.broken_unsafe(tmp_path, {})
    assert lacking == "crates/wing/one/src/lib.rs lacks #![forbid(unsafe_code)]"
    (src / "inner.rs").write_text("fn f() { unsafe { g() } }\n", encoding="utf-8")
    assert rules.broken_unsafe(tmp_path, {"one": "why"}) == []
    assert rules.broken_unsafe(tmp_path, {})[0] == "one has unsafe code and is not listed in UNSAFE"
