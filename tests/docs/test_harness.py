"""The harness itself: it has to notice what the other tests rely on it to notice."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest
from harness import MARK, Eyas, need_path, need_program, wait_until

# Stands for eyas: does what its first argument says.
PROGRAM = f"""#!{sys.executable}
import os, signal, subprocess, sys, time
what = sys.argv[1]
if what == "echo":
    print(*sys.argv[2:]); print(sys.stdin.read(), end=""); sys.exit(int(os.environ.get("STATUS", "0")))
elif what == "panic":
    print("thread 'main' panicked at src/main.rs:1:1", file=sys.stderr)
elif what == "hang":
    child = subprocess.Popen(["sleep", "1000"]); print("child", child.pid, flush=True); child.wait()
elif what == "serve":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    print("ready", flush=True)
    while True: signal.pause()
elif what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    while True: signal.pause()
elif what == "orphan":
    subprocess.Popen(["sleep", "1000"], start_new_session=True, env={{}}, cwd=sys.argv[2])
"""


@pytest.fixture
def fake(tmp_path: Path) -> Eyas:
    path = tmp_path / "fake-eyas"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    (tmp_path / "test").mkdir()
    return Eyas(path, tmp_path / "test" / ".eyas-test", uuid.uuid4().hex)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_output_input_and_status_are_seen(fake: Eyas) -> None:
    done = fake.run("echo", "a b", stdin="typed\n", status=4, env={"STATUS": "4"})
    assert (done.stdout, done.stderr, done.status) == ("a b\ntyped\n", "", 4)
    with pytest.raises(AssertionError, match="expected exit status 0"):
        fake.run("echo", env={"STATUS": "1"})


def test_the_environment_is_the_tests_own(
    fake: Eyas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EYAS_JOIN", "/of/the/user")
    again = Eyas(fake.path, tmp_path / "again", "m")
    assert "EYAS_JOIN" not in again.env and again.env[MARK] == "m"
    assert again.env["HOME"].startswith(str(tmp_path))


def test_a_panic_fails_the_test_whatever_the_status(fake: Eyas) -> None:
    with pytest.raises(AssertionError, match="panicked"):
        fake.run("panic", status=None)
    fake.start("panic").process.wait()
    with pytest.raises(AssertionError, match="panicked"):
        fake.end()


def test_a_hanging_program_ends_with_its_children(fake: Eyas) -> None:
    with pytest.raises(pytest.fail.Exception, match="still running after 2 s") as caught:
        fake.run("hang", timeout=2)
    child = int(str(caught.value).partition("child ")[2].split()[0])
    wait_until(lambda: not is_running(child), "the end of the child")
    fake.end()


def test_background_programs_are_waited_for_and_stopped(fake: Eyas) -> None:
    server = fake.start("serve")
    server.wait_for_text("ready")
    assert server.is_alive()
    assert server.stop(status=3).stdout == "ready\n"
    crashed = fake.start("serve")
    crashed.wait_for_text("ready")
    assert crashed.kill().status == -9
    forgotten = fake.start("serve")
    forgotten.wait_for_text("ready")
    fake.end()
    assert forgotten.process.returncode == 3


def test_a_program_that_ended_is_not_waited_for(fake: Eyas) -> None:
    ended = fake.start("echo", "bye")
    with pytest.raises(pytest.fail.Exception, match=r"waited for the text 'ready', but\n.*\n.*\n.*\nbye"):
        ended.wait_for_text("ready")
    fake.end()


def test_a_process_left_behind_fails_the_test(fake: Eyas, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found although it has a session and an environment of its own."""
    monkeypatch.setattr("harness.GONE_S", 0.0)
    fake.run("orphan", fake.folder.parent)
    ((pid, _),) = fake.left_behind()
    with pytest.raises(AssertionError, match=r"left behind: .*sleep 1000"):
        fake.end()
    wait_until(lambda: not is_running(pid), "the end of what was left behind")


def test_a_program_that_ignores_sigterm_is_named_and_killed(
    fake: Eyas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.GONE_S", 0.0)
    deaf = fake.start("deaf")
    deaf.wait_for_text("ready")
    with pytest.raises(pytest.fail.Exception, match="does not end within"):
        fake.end()
    assert not is_running(deaf.pid)


def test_what_is_absent_is_skipped_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    assert need_program("sh") and need_path("/", "base-files") == Path("/")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install the-package"):
        need_program("no-such-program", "the-package")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install the-package"):
        need_path("/no/such/path", "the-package")
