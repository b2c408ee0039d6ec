"""`import eyas`: programs and functions on a cluster of this process, and on one that is up."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any, NamedTuple

import eyas
import numpy as np
import pytest
from embedded import embedded
from eyas import _ffi, _worker, functions
from eyas.functions import CallFuture, Spool, _Packed
from eyas.futures import Executor
from harness import Run, Start, wait_until

PYTHON = Path(sys.executable)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[eyas.Cluster]:
    """Two nodes of two slots, which end with the file's tests, all of them."""
    with embedded(tmp_path_factory, nodes=2, slots=2, cache="1GiB") as made:
        yield made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def numbers(folder: Path, n: int = 4) -> list[str]:
    for i in range(n):
        (folder / f"{i}.txt").write_text("x\n" * i)
    return eyas.glob("*.txt")


# ------------------------------------------------------------ programs


def test_a_program_runs_over_files_and_the_run_says_how_it_was(cluster: eyas.Cluster, here: Path) -> None:
    files = numbers(here)
    assert files == ["0.txt", "1.txt", "2.txt", "3.txt"]
    seen: list[dict[str, Any]] = []
    run = cluster.map("wc -l < {in} > {out}", files, out="n/{stem}", shell=True)
    assert run.wait(60, progress=seen.append)
    assert [int((here / f"n/{i}").read_text()) for i in range(4)] == [0, 1, 2, 3]
    assert run.n_tasks == 4 and run.status()["n_done"] == 4
    assert all(status["run"] == run.number for status in seen)
    assert [(task.id, task.state, task.reason) for task in run.tasks()][1] == ("1.txt", "done", None)
    report = run.report(here / "report.html")
    assert report.startswith("4 tasks in ") and "4 done, 0 failed, 0 cancelled" in report
    assert "<html" in (here / "report.html").read_text()
    assert run.explain("1.txt").startswith("Task `1.txt`")


def test_tasks_come_as_mappings(cluster: eyas.Cluster, here: Path) -> None:
    (here / "in").write_text("b\na\n")
    task = {"id": "sorts", "command": "sort in > out", "inputs": ["in"], "outputs": {"out": "sorted"}}
    assert cluster.run([task]).wait()
    assert (here / "sorted").read_text() == "a\nb\n"


def test_a_failure_has_the_end_of_what_the_task_printed(cluster: eyas.Cluster, here: Path) -> None:
    run = cluster.map("cat {in} no-such-file", numbers(here, 2))
    with pytest.raises(eyas.TaskFailed, match="ended with status 1") as caught:
        run.wait()
    error = caught.value
    assert (error.run, error.n_more) == (run.number, 1) and "no-such-file: No such file" in error.stderr
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert run.wait(check=False)
    assert {task.state for task in run.tasks()} == {"failed"}


def test_a_directory_is_an_argument_of_a_function(cluster: eyas.Cluster, here: Path) -> None:
    (here / "sky/deep").mkdir(parents=True)
    (here / "sky/a").write_text("1")
    (here / "sky/deep/b").write_text("2")

    def found(folder: str) -> list[str]:
        return sorted(
            f"{p.relative_to(folder)}:{p.read_text()}" for p in Path(folder).rglob("*") if p.is_file()
        )

    there = eyas.File("sky/")
    assert there.location == f"{here}/sky/" != eyas.File("sky").location
    assert cluster.submit(found, there).result(60) == ["a:1", "deep/b:2"]
    assert cluster.submit(found, eyas.File(f"file://{here}/sky/")).result(60) == ["a:1", "deep/b:2"]
    (here / "sky/a").write_text("3")
    assert cluster.submit(found, there).result(60) == ["a:3", "deep/b:2"]


STAYS = """
import os, sys
import eyas.stay

def main(words):
    print(os.getpid(), os.environ["EYAS_TASK"], os.getcwd() == os.environ["EYAS_SANDBOX"])
    if words[0] == "doubles":
        with open("in") as file, open("out", "w") as out:
            out.write(file.read() * 2)
    if words[0] == "raises":
        raise ValueError("so it is")
    if words[0] == "says":
        sys.exit("not today")
    return 3 if words[0] == "ends" else 0

if __name__ == "__main__":
    sys.exit(eyas.stay.serve(main))
"""


def test_a_program_stays_for_the_tasks_that_follow(cluster: eyas.Cluster, here: Path) -> None:
    (here / "stays.py").write_text(STAYS)
    (here / "in").write_text("word ")

    def task(name: str, what: str, **more: object) -> dict[str, object]:
        command, env = [sys.executable, "stays.py", what], {"EYAS_WARM": "2"}
        return {"id": name, "command": command, "inputs": ["stays.py", "in"], "env": env, **more}

    ends = ["doubles", "raises", "says", "ends"]
    tasks = [task(f"t{n}", "nothing") for n in range(30)]
    tasks += [task(what, what, outputs={"out": "out"} if what == "doubles" else {}) for what in ends]
    run = cluster.run(tasks)
    run.wait(60, check=False)
    ended = {one.id: one for one in run.tasks()}
    said = {name: one.stdout.decode().split() for name, one in ended.items()}
    assert all(words[1:] == [name, "True"] for name, words in said.items()), said
    assert len({pid for pid, *_ in said.values()}) <= 4, "one process for each slot"
    assert (here / "out").read_text() == "word word "
    assert {name for name, one in ended.items() if one.state != "done"} == {"raises", "says", "ends"}
    assert ended["raises"].stderr.endswith(b"ValueError: so it is\n")
    assert ended["says"].stderr == b"not today\n" and "status 1" in (ended["says"].reason or "")
    assert ended["ends"].stderr == b"" and "status 3" in (ended["ends"].reason or "")
    # Another text of the program is another program.
    (here / "stays.py").write_text(STAYS.replace("file.read() * 2", "file.read() * 3"))
    cluster.run([task("again", "doubles", outputs={"out": "out"})]).wait(60)
    assert (here / "out").read_text() == "word word word "


STAYS_AND_CHANGES = """
import os, sys
import eyas.stay
import beside

kept = []

def main(words):
    print(os.getpid(), os.environ.get("EYAS_MORE"), beside.VALUE)
    if words[0] == "forks":
        child = os.fork()
        if child == 0:
            return 0
        os.waitpid(child, 0)
        with open("out", "w") as out:
            out.write("forks")
    if words[0] == "keeps":
        kept.append(open("out", "w"))
        kept[0].write("keeps")
    if words[0] == "loads":
        import later
        with open(os.path.join(os.path.dirname(__file__), "out"), "w") as out:
            out.write(later.VALUE)
    if words[0] == "closes":
        os.close(1)
    if words[0] == "opens":
        kept.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(resource_max() // 2))
    return 0

def resource_max():
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    return 200

if __name__ == "__main__":
    sys.exit(eyas.stay.serve(main))
"""


def test_what_a_task_does_to_a_program_that_stays_is_not_the_next_tasks(here: Path) -> None:
    (here / "stays.py").write_text(STAYS_AND_CHANGES)
    (here / "beside.py").write_text("VALUE = 1")
    (here / "later.py").write_text("VALUE = 'first'")
    with eyas.Cluster(nodes=1, slots=1) as cluster:

        def done(what: str, **more: str) -> list[str]:
            task = {"command": [sys.executable, "stays.py", what], "env": {"EYAS_WARM": "2", **more}}
            outputs = {"out": "out"} if what in ("forks", "keeps", "loads") else {}
            inputs = ["stays.py", "beside.py", "later.py"]
            run = cluster.run([{**task, "inputs": inputs, "outputs": outputs}])
            run.wait(60, check=what != "closes")
            return next(run.tasks()).stdout.decode().split()

        pid, *said = done("nothing", EYAS_MORE="more")
        assert said == ["more", "1"]
        assert done("nothing") == [pid, "None", "1"], "a variable is of one task"
        done("forks")
        assert (here / "out").read_text() == "forks", "a fork does not answer for the task"
        assert done("loads")[0] == pid and (here / "out").read_text() == "first"
        (here / "later.py").write_text("VALUE = 'second'")
        done("loads")
        assert (here / "out").read_text() == "second", "a module that was loaded has changed"
        (here / "beside.py").write_text("VALUE = 2")
        pid, *said = done("nothing")
        assert said == ["None", "2"]
        done("keeps")
        assert (here / "out").read_text() == "keeps", "a file that is open is written to its end"
        pid, *_ = done("nothing")
        done("opens")
        assert (again := done("nothing")[0]) != pid, "before there are no descriptors any more"
        done("closes")
        assert done("nothing")[0] not in ("", again), "the next task can print"


def test_a_program_that_could_stay_does_one_task_by_itself(here: Path) -> None:
    (here / "stays.py").write_text(STAYS)
    env = {**os.environ, "EYAS_TASK": "t", "EYAS_SANDBOX": str(here)}
    done = subprocess.run([sys.executable, "stays.py", "ends"], env=env, capture_output=True, check=False)
    assert done.returncode == 3 and done.stdout.endswith(b" t True\n"), done


def test_what_is_wrong_is_said_and_starts_nothing(cluster: eyas.Cluster, here: Path) -> None:
    with pytest.raises(eyas.EyasError, match="nothing"):
        eyas.glob("*.nothing")
    with pytest.raises(eyas.EyasError, match=r"\{nonsense\}"):
        cluster.map("echo {nonsense}", numbers(here, 1))
    with pytest.raises(eyas.EyasError, match="cannot be split into words: No closing quotation"):
        cluster.map("echo 'x", numbers(here, 1))
    with pytest.raises(eyas.EyasError, match="a task is 'true', and not a dictionary"):
        cluster.run(["true"])  # type: ignore[list-item]
    with pytest.raises(eyas.EyasError, match="rubbish"):
        cluster.map("true {in}", numbers(here, 1), rubbish=3)
    with pytest.raises(eyas.EyasError, match="no-such-policy"):
        eyas.Cluster(placement="no-such-policy")
    with pytest.raises(eyas.ClusterLost):
        eyas.connect(here / "join.json")


def test_a_wait_lets_other_threads_go_on_and_ends_when_it_is_to(cluster: eyas.Cluster, here: Path) -> None:
    run = cluster.map("sleep 600", range="0..2")
    ticks = 0
    waits = threading.Thread(target=lambda: run.wait(check=False))
    waits.start()
    while ticks < 1000:
        ticks += 1
    assert not run.wait(0.01)
    assert run.cancel() == 2
    waits.join(60)
    assert not waits.is_alive() and run.status()["n_cancelled"] == 2


def test_another_client_of_the_same_cluster(cluster: eyas.Cluster, here: Path) -> None:
    with eyas.connect(cluster.join) as other:
        assert other.map("true", range="0..3").wait()
        assert other.submit(os.getppid).result(60) != os.getpid()
        assert {line["name"] for line in other.status()["executors"]} == {"node1", "node2"}
        other.map("sleep 1; echo slept", range="0..2", shell=True, name="night")
    with pytest.raises(RuntimeError, match="closed"):
        other.status()
    # What goes on is found again by its name.
    [night] = cluster.runs("night")
    assert night.wait(60) and [task.stdout for task in night.tasks()] == [b"slept\n"] * 2
    assert night.number in [run.number for run in cluster.runs()] and cluster.runs("none") == []


SCRIPT = """
import eyas
with eyas.Cluster(nodes=1, slots=1) as c:
    run = c.map("sleep 600", range="0..1")
    print("waits", *c.processes().values(), flush=True)
    run.wait()
"""


def test_ctrl_c_ends_a_wait_and_with_it_the_cluster(start: Start, tmp_path: Path) -> None:
    started = start("-c", SCRIPT, program=PYTHON)
    started.wait_for_text("waits")
    wait_until(lambda: started.stdout.endswith("\n"), "the whole line", alive=started)
    pids = started.stdout.split()[1:]
    started.signal(signal.SIGINT)
    done = started.wait(status=None)
    assert "KeyboardInterrupt" in done.stderr and done.status in (1, 130, -signal.SIGINT)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_import_is_quick() -> None:
    """Processor time, so that others on the machine do not count."""
    code = "import time; t = time.process_time(); import eyas; print(time.process_time() - t)"
    times = [float(subprocess.check_output([PYTHON, "-c", code])) for _ in range(5)]
    assert min(times) < 0.08, times


# ------------------------------------------------------------ functions


def power(base: int, exponent: int = 2) -> int:
    return int(base**exponent)


def test_functions_and_values_go_and_results_come(cluster: eyas.Cluster) -> None:
    futures = [cluster.submit(power, n, exponent=3) for n in range(20)]
    assert [future.result(60) for future in futures] == [n**3 for n in range(20)]
    assert cluster.submit(lambda: power(5)).result(60) == 25
    assert list(cluster.map_calls(power, range(5))) == [0, 1, 4, 9, 16]
    assert len(cluster.submit(os.urandom, 500_000).result(60)) == 500_000


def test_one_worker_does_many_calls(cluster: eyas.Cluster) -> None:
    def where(_: int) -> tuple[int, str, str]:
        return os.getpid(), os.environ["EYAS_TASK"], os.getcwd()

    found = [future.result(60) for future in [cluster.submit(where, n) for n in range(100)]]
    # One for each slot; where a task of another kind came between, one more.
    assert len({pid for pid, _, _ in found}) <= 8
    assert len({task for _, task, _ in found}) == 100


def test_an_exception_comes_with_its_traceback(cluster: eyas.Cluster) -> None:
    def fails() -> None:
        raise LookupError("there is none")

    with pytest.raises(LookupError, match="there is none") as caught:
        cluster.submit(fails).result(60)
    assert 'raise LookupError("there is none")' in str(caught.value.__cause__)


class Picky(Exception):
    def __init__(self, one: int, two: object) -> None:
        super().__init__(f"{one} and {two}")
        self.two = two


def test_a_program_that_ends_without_a_close_leaves_no_calls(cluster: eyas.Cluster) -> None:
    program = (
        "import eyas, sys, time; c = eyas.connect(sys.argv[1]); f = c.submit(time.sleep, 600)\n"
        "while not f.running(): time.sleep(0.01)\n"
        "c.map('true', range='0..1', name='stays'); print(f.task)"
    )
    done = subprocess.run(
        [PYTHON, "-c", program, cluster.join], capture_output=True, text=True, check=True, timeout=60
    )
    run = str(cluster.runs("functions")[-1].number)
    command = [str(PYTHON.parent / "eyas"), "tasks", "--json", "--join", str(cluster.join), "--run", run]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in shown.stdout and '"running"' not in shown.stdout
    assert cluster.runs("stays")[0].wait(60)


def test_what_a_function_returned_is_not_shown_as_what_it_printed(cluster: eyas.Cluster) -> None:
    def speak() -> int:
        print("spoken")
        return 1

    spoken, silent = cluster.submit(speak), cluster.submit(power, 2)
    wait([spoken, silent], 60)
    for call, words in ((spoken, "spoken"), (silent, "printed nothing")):
        task = call.task  # type: ignore[attr-defined]
        command = [eyas.find_binary(), "logs", task, "--join", cluster.join]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        assert words in shown.stderr and shown.stdout == ""


def test_what_cannot_be_pickled_is_the_errors_of_its_call_alone(cluster: eyas.Cluster) -> None:
    def picky(two: object) -> None:
        raise Picky(1, two or threading.Lock())

    good = cluster.submit(power, 3)
    with pytest.raises(TypeError):
        cluster.submit(power, threading.Lock()).result(60)
    with pytest.raises(TypeError, match="lock"):
        cluster.submit(threading.Lock).result(60)
    # One that takes other arguments than it hands on is made again all the same.
    error = cluster.submit(picky, 2).exception(60)
    assert type(error) is Picky and str(error) == "1 and 2" and error.two == 2
    with pytest.raises(RuntimeError, match=r"Picky: 1 and .*lock"):
        cluster.submit(picky, None).result(60)
    assert good.result(60) == 9


class Mute(Exception):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("it has no words")


def test_a_process_that_a_function_forks_gives_no_answer(cluster: eyas.Cluster) -> None:
    def forks(n: int) -> tuple[int, int]:
        pid = os.fork()
        if pid == 0 and n % 2:
            sys.exit(n)
        return n, pid and os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    calls = [cluster.submit(forks, n) for n in range(60)]
    assert [call.result(60) for call in calls] == [(n, n % 2 * n) for n in range(60)]


def test_functions_have_any_name_and_close_what_they_like(cluster: eyas.Cluster) -> None:
    folder = cluster._spool / functions.RESULTS
    for name in ("../../up", "x" * 300, "a\nb", "\udcff", ""):

        def make(n: int) -> Any:
            return np.zeros(n)

        make.__name__ = make.__qualname__ = name
        calls = []
        for _ in range(2):
            calls.append(cluster.submit(make, 20_000))
            assert calls[-1].result(60).shape == (20_000,)
        assert {path.name for path in folder.iterdir()} == {call.task for call in calls}  # type: ignore[attr-defined]
        del calls

    def mute() -> None:
        raise Mute

    with pytest.raises(RuntimeError, match="Mute, whose text cannot be made"):
        cluster.submit(mute).result(60)
    assert cluster.submit(os.close, 1).result(60) is None


def test_pythons_own_exceptions_come_without_what_cannot_be_pickled(cluster: eyas.Cluster) -> None:
    def hung() -> None:
        error = ValueError("with", threading.Lock())
        error.lock, error.code = threading.Lock(), 7  # type: ignore[attr-defined]
        raise error

    error = cluster.submit(hung).exception(60)
    assert type(error) is ValueError and error.args[0] == "with" and "lock" in error.args[1]
    assert error.code == 7 and not hasattr(error, "lock")  # type: ignore[attr-defined]


def test_a_group_has_those_of_its_exceptions_that_can_be_pickled(cluster: eyas.Cluster) -> None:
    def several() -> None:
        raise ExceptionGroup("all", [KeyError("k"), Picky(1, threading.Lock()), Picky(1, 2)])

    group = cluster.submit(several).exception(60)
    assert isinstance(group, ExceptionGroup) and group.message == "all"
    assert [type(one) for one in group.exceptions] == [KeyError, RuntimeError, Picky]
    lost, whole = group.exceptions[1:]
    assert "Picky: 1 and" in str(lost) and isinstance(whole, Picky) and whole.two == 2


def test_a_result_that_cannot_be_pickled_is_named_as_the_reason(cluster: eyas.Cluster) -> None:
    error = cluster.submit(threading.Lock).exception(60)
    assert "the function returned a lock" in error.__notes__[0]  # type: ignore[union-attr]


def test_what_only_a_node_can_import_is_named(cluster: eyas.Cluster, here: Path) -> None:
    (here / "only_there.py").write_text("class Lost(Exception):\n    pass\n")

    def use(raises: bool) -> Any:
        sys.path.insert(0, str(here))
        try:
            lost = __import__("only_there").Lost("in the forest")
        finally:
            sys.path.remove(str(here))
        if raises:
            raise lost
        return lost

    with pytest.raises(RuntimeError, match=r"only_there\.Lost: in the forest; what the function raised"):
        cluster.submit(use, True).result(60)
    call = cluster.submit(use, False)
    error = call.exception(60)
    assert isinstance(error, ModuleNotFoundError) and "only_there" in str(error)
    assert f"task {call.task} returned cannot be unpickled" in error.__notes__[0]  # type: ignore[attr-defined]


def test_methods_travel_that_are_not_found_by_their_functions_names(cluster: eyas.Cluster) -> None:
    def plus(n: int) -> Callable[[Any], int]:
        def inner(self: Any) -> int:
            return int(self.n) + n

        return inner

    class Base:
        n = 1

        def get(self) -> int:
            return self.n

    class Odd(Base):
        short = lambda self: self.n * 10  # noqa: E731
        decorated = plus(5)

        def get(self) -> int:
            return -1

        def __hidden(self) -> int:
            return self.n + 3

        def all(self) -> list[Any]:
            return [self.get, super().get, self.short, self.decorated, self.__hidden]

    assert [cluster.submit(method).result(60) for method in Odd().all()] == [-1, 1, 10, 6, 4]


def test_callbacks_may_raise_anything_and_cannot_wait_for_calls(
    cluster: eyas.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with eyas.connect(cluster.join) as c:
        held: Future[int] = Future()
        first = c.submit(power, held)
        seen: list[Any] = []

        def ends(_: Any) -> None:
            raise SystemExit("a callback ends")

        def waits(_: Any) -> None:
            seen.append(c.submit(power, 5))
            try:
                seen[-1].result()
            except RuntimeError as error:
                seen.append(str(error))

        first.add_done_callback(ends)
        first.add_done_callback(waits)
        after = c.submit(power, first)
        held.set_result(2)
        assert after.result(60) == 16
        assert c.submit(power, 4).result(60) == 16
        assert "waits for the call" in seen[1] and seen[0].result(60) == 25
    assert "a callback ends" in caplog.text


def test_an_interrupt_while_a_call_is_packed_is_heard_by_the_program(cluster: eyas.Cluster) -> None:
    done: Future[Any] = Future()
    done.set_result(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        cluster.submit(power, done)
    with Executor(cluster=cluster) as executor, pytest.raises(KeyboardInterrupt):
        executor.submit(repr, done)
    # In a callback nobody hears of it but those who ask for results.
    later: Future[Any] = Future()
    calls = [cluster.submit(power, cluster.submit(power, later)) for _ in range(3)]
    later.set_result(Interrupted())
    assert [type(call.exception(60)) for call in calls] == [KeyboardInterrupt] * 3
    assert cluster.submit(power, 4).result(60) == 16


class Interrupted:
    """A value that the user presses ^C at while it is pickled."""

    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGINT)
        return Interrupted, ()


def test_a_call_that_the_cluster_refuses_takes_no_other_with_it(cluster: eyas.Cluster) -> None:
    held: Future[int] = Future()
    calls = [cluster.submit(power, held) for _ in range(50)]
    wrong = cluster.submit(lambda n, path: n, held, eyas.File("a\0b"))
    calls += [cluster.submit(power, held) for _ in range(50)]
    held.set_result(3)
    assert [call.result(60) for call in calls] == [9] * 100
    with pytest.raises(eyas.EyasError, match="NUL byte"):
        wrong.result(60)
    with pytest.raises(ValueError, match="not UTF-8: rename it"):
        eyas.File(os.fsdecode(b"\xff"))


def test_a_worker_that_dies_fails_its_call_alone(cluster: eyas.Cluster) -> None:
    def end_parent() -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    others = [cluster.submit(power, n) for n in range(20)]
    lost: dict[str, Future[Any]] = {
        "ended without an answer, with status 0": cluster.submit(os._exit, 0),
        "ended by signal 6": cluster.submit(os.abort),
        "ended by signal 9": cluster.submit(os.killpg, 0, signal.SIGKILL),
        "closed its connection to its slot": cluster.submit(os.closerange, 0, 4096),
        "slot's process was ended by signal 9 .* each of the 5 times": cluster.submit(end_parent),
    }
    for how, future in lost.items():
        with pytest.raises(eyas.WorkerLost, match=how):
            future.result(60)
    assert [future.result(60) for future in others] == [n * n for n in range(20)]


def test_calls_say_that_the_dispatcher_of_this_process_has_ended(here: Path) -> None:
    with eyas.Cluster(nodes=1, slots=1) as c:
        call = c.submit(time.sleep, 600)
        os.kill(c.processes()["dispatcher"], signal.SIGKILL)
        with pytest.raises(eyas.ClusterLost, match="dispatcher ended: signal: 9"):
            call.result(60)
        with pytest.raises(eyas.ClusterLost, match="dispatcher ended"):
            c.submit(abs, -1).result(60)


def test_a_failure_is_tried_again_where_that_is_asked_for(cluster: eyas.Cluster, here: Path) -> None:
    def flaky(path: str) -> str:
        if not os.path.exists(path):
            open(path, "w").close()
            raise OSError("not yet")
        return os.environ["EYAS_ATTEMPT"]

    assert cluster.submit(flaky, str(here / "flag"), retries=1).result(60) == "2"
    with pytest.raises(eyas.TaskFailed, match="wall"):
        cluster.submit(time.sleep, 600, walltime=0.2).result(60)


def test_files_arrive_as_local_copies_and_are_inputs(cluster: eyas.Cluster, here: Path) -> None:
    (here / "a.txt").write_text("text")
    (here / "b.txt").write_text("more")

    def read(paths: list[str], last: str) -> tuple[list[str], bool]:
        texts = [open(path).read() for path in [*paths, last]]
        return texts, all(path.startswith(os.environ["EYAS_SANDBOX"]) for path in paths)

    a, b = eyas.File("a.txt"), eyas.File(here / "b.txt")
    assert cluster.submit(read, [a, b], last=a).result(60) == (["text", "more", "text"], True)
    with pytest.raises(eyas.TaskFailed, match=r"nowhere\.txt"):
        cluster.submit(read, [], eyas.File("nowhere.txt")).result(60)


def test_a_large_value_is_one_file_and_unpickled_once_per_worker(cluster: eyas.Cluster) -> None:
    frame = np.arange(1_000_000, dtype=np.float64)

    def look(frame: Any, scale: int) -> tuple[float, bool, int, int]:
        may_write = frame.flags.writeable  # misspelt on purpose
        return float(frame[-1] * scale), bool(may_write), id(frame), os.getpid()

    found = [f.result(60) for f in [cluster.submit(look, frame, scale) for scale in range(20)]]
    assert [value for value, *_ in found] == [999_999.0 * scale for scale in range(20)]
    assert not any(may_write for _, may_write, *_ in found)
    assert len({(pid, one) for *_, one, pid in found}) == len({pid for *_, pid in found})
    # The next call sees what was changed since, and what was changed back.
    for last in (5.0, 999_999.0):
        frame[-1] = last
        assert cluster.submit(look, frame, 1).result(60)[0] == last
    table = np.asfortranarray(frame.reshape(1000, 1000))
    for last in (7.0, 8.0):
        table[0, -1] = last
        assert cluster.submit(lambda table: (table[0, -1], table[1, 0]), table).result(60) == (last, 1000.0)


def test_a_call_sees_nothing_that_another_call_changed(cluster: eyas.Cluster) -> None:
    def append(values: Any) -> int:
        values.append(0)
        return len(values)

    def nested(values: Any) -> int:
        return append(values[0])

    def write(array: Any) -> str:
        try:
            array += 1
            return "written"
        except ValueError as error:
            return str(error)

    def both(one: Any, two: Any, three: Any) -> tuple[int, int, int]:
        append(one)
        return len(one), len(two), len(three)

    numbers: Future[Any] = cluster.submit(list, range(100_000))
    wait([numbers])
    numbers = cluster.submit(list, range(100_000))  # its result stays at its node
    lists = np.empty(10_000, dtype=object)
    lists[:] = [[n] for n in range(10_000)]
    for values, fn, n in (
        (bytearray(100_000), append, 100_001),
        (numbers, append, 100_001),
        (lists, nested, 2),
    ):
        # More calls than workers.
        assert [cluster.submit(fn, values).result(60) for _ in range(6)] == [n] * 6
    for array in (np.zeros(20_000), np.zeros(40_000)[::2], np.zeros(20_000, "M8[s]")):
        assert "read-only" in cluster.submit(write, array).result(60)
    # One value that is there twice is one, and two equal values are two.
    one, two = bytearray(100_000), bytearray(100_000)
    assert cluster.submit(both, one, two, one).result(60) == (100_001, 100_000, 100_001)
    lists.flags.writeable = False
    assert cluster.submit(nested, lists).result(60) == 2
    lists[0].append(0)
    assert cluster.submit(nested, lists).result(60) == 3, "the array is frozen, and what is in it is not"


# A program's own functions. The first two use modules and builtins only.
MAIN = """
import math
count = 0
def area(r: float) -> "float":
    return math.floor(math.pi * float(r) ** 2)
def fails():
    return [int("none") for _ in range(1)]
def counts():
    global made
    made = 1
def reads():
    return count
def calls():
    return area(1)
def inner():
    return [(lambda: count)() for _ in range(2)]
def keeps(values=[]):
    return values
def evaluates():
    return eval("count")
def waits():
    return name_that_may_come
"""


def test_a_function_of_the_program_is_pickled_anew_when_what_it_uses_has_changed(
    cluster: eyas.Cluster,
) -> None:
    import cmath
    import math

    means: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(MAIN, "main.py", "exec"), means)
    known, area = functions._PickledFunctions(), means["area"]
    once = known.pickle_of(area)
    assert once is not None and known.pickle_of(area) is once and known.pickle_of(means["fails"]) is not None
    for name in ("counts", "reads", "calls", "inner", "keeps", "evaluates", "waits"):
        assert known.pickle_of(means[name]) is None, name
    assert cluster.submit(area, 2).result(60) == 12
    with pytest.raises(ValueError, match="none") as caught:
        cluster.submit(means["fails"]).result(60)
    assert 'File "main.py", line 7, in fails' in str(caught.value.__cause__)
    changes: list[tuple[str, Any, Any]] = [
        ("math", cmath, AttributeError),
        ("math", math, 12),
        ("float", abs, None),
        ("floor", 1, 12),
    ]
    for name, value, expect in changes:
        means[name] = value
        pickled = known.pickle_of(area)
        if expect is AttributeError:
            assert pickled not in (None, once)
            with pytest.raises(AttributeError):
                cluster.submit(area, 2).result(60)
        elif expect is None:
            assert pickled is None, "a name of the program stands for the builtin"
            assert cluster.submit(area, -2).result(60) == 12
            del means[name]
        else:
            assert pickled is not None and cluster.submit(area, 2).result(60) == expect
    area.__code__ = means["fails"].__code__
    assert known.pickle_of(area) not in (None, once)
    area.unit = "m2"
    assert known.pickle_of(area) is None


def test_copies_of_a_function_have_names_of_their_own() -> None:
    means: dict[str, Any] = {"__name__": "__main__"}
    exec(MAIN, means)
    pickled = functions._PickledFunctions().pickle_of(means["area"])
    assert pickled is not None
    one, two = _worker.function_of(pickled), _worker.function_of(pickled)
    one.__globals__["float"] = None
    one.__annotations__["r"] = "int"
    assert (two(2), two.__annotations__["r"], two.__module__) == (12, "float", "__main__")
    assert _worker._globals_of(two) is two.__globals__


class Column:
    """Numbers with what says how large they are, as a column of a table has it."""

    def __init__(self) -> None:
        self.numbers = np.zeros(100_000)

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes


def test_a_large_value_that_is_no_array_may_be_changed_by_its_call(cluster: eyas.Cluster) -> None:
    def count(column: Column) -> float:
        column.numbers[0] += 1
        return float(column.numbers[0])

    given, made = Column(), cluster.submit(Column)
    for column in (given, made):
        assert [cluster.submit(count, column).result(60) for _ in range(3)] == [1.0] * 3
    with pytest.raises(ValueError, match="read-only"):
        cluster.submit(lambda numbers: numbers.fill(1), given.numbers).result(60)


def test_a_file_is_named_without_the_query_of_its_url(tmp_path: Path) -> None:
    files = [
        eyas.File(url) for url in ("https://h/d/f.fits?sig=5ec2e7", "s3://bucket/g", "https://h?sig=5ec2e7#x")
    ]
    packed = _Packed(len, (files,), {}, Spool(tmp_path), len)
    assert list(packed.inputs) == ["files/0/f.fits", "files/1/g", "files/2/h"]


def load(path: str, scale: int) -> tuple[str, int, int]:
    return Path(path).read_text(), scale, os.getpid()


def test_a_context_is_made_once_in_each_worker_and_anew_when_its_file_changed(
    cluster: eyas.Cluster, here: Path
) -> None:
    Path("weights").write_text("old")
    model = cluster.context(load, eyas.File("weights"), 3)

    def use(made: tuple[str, int, int], n: int) -> tuple[str, int, bool]:
        return made[0], made[1] * n, made[2] == os.getpid()

    def use_by_name(n: int) -> tuple[int, int]:
        return model[1] * n, id(model)  # type: ignore[index]

    futures = [cluster.submit(use, model, n) for n in range(20)]
    assert [future.result(60) for future in futures] == [("old", 3 * n, True) for n in range(20)]
    named = [cluster.submit(use_by_name, n).result(60) for n in range(8)]
    assert [value for value, _ in named] == [3 * n for n in range(8)]
    assert len({which for _, which in named}) <= 4, "there are four workers"
    Path("weights").write_text("younger")
    assert cluster.submit(use, model, 1).result(60)[0] == "younger"
    # Another file of the same size, which has brought its time along.
    known = os.stat("weights")
    Path("other").write_text("another")
    os.utime("other", ns=(known.st_atime_ns, known.st_mtime_ns))
    os.replace("other", "weights")
    assert cluster.submit(use, model, 1).result(60)[0] == "another"
    bad = cluster.context(int, "x")
    assert isinstance(cluster.submit(use, bad, 1).exception(60), ValueError)
    with pytest.raises(TypeError, match="made by workers"):
        pickle.dumps(model)
    with pytest.raises(TypeError, match="3 makes no context"):
        cluster.context(3)  # type: ignore[arg-type]


def test_map_of_a_function_calls_it_with_a_context_behind_the_elements(cluster: eyas.Cluster) -> None:
    def predict(chunk: int, weight: int, base: int) -> int:
        return base * chunk + weight

    model = cluster.context(int, "100")
    expect = [100, 201, 302, 403, 504]
    assert list(cluster.map(predict, range(1, 6), range(5), context=model)) == expect
    chunked = cluster.map(predict, range(1, 6), range(5), context=model, chunksize=2, retries=1)
    assert list(chunked) == expect
    assert list(cluster.map_calls(predict, range(1, 6), range(5), base=100, chunksize=3)) == expect
    assert list(cluster.map(abs, [-1, -2])) == [1, 2]
    assert list(cluster.map(pow, [2, 3], context=2)) == [4, 9], "a plain value is one, too"
    with pytest.raises(TypeError, match="nothing to call the function with"):
        cluster.map(abs)


def test_a_map_that_is_left_cancels_its_other_calls(cluster: eyas.Cluster) -> None:
    left = cluster.map(time.sleep, [0.0, *[600.0] * 12])
    assert next(left) is None
    del left
    assert cluster.submit(power, 3).result(60) == 9
    with pytest.raises(TypeError):
        list(cluster.map(time.sleep, [0.0, "x", *[600.0] * 12], chunksize=1))
    assert cluster.submit(power, 4).result(60) == 16
    # Those of a map with a name are somebody else's, too.
    named = cluster.map(power, range(40), name="left")
    assert next(named) == 0
    del named
    assert list(cluster.runs("left")[-1].results()) == [n * n for n in range(40)]


def test_tasks_of_chunks_have_the_name_of_the_function(cluster: eyas.Cluster) -> None:
    calls = cluster._map_calls(power, (range(4),), None, 2, {})
    assert [call.result(60) for call in calls] == [[0, 1], [4, 9]]
    assert all(str(call.task).startswith("power-") for call in calls if isinstance(call, CallFuture))
    assert cluster.runs("functions")[-1].status() is not None


def kept_contexts() -> list[str]:
    return [name for name, _ in _worker._contexts.items()]


def test_a_context_that_is_dropped_goes_from_the_workers(start: Start) -> None:
    with eyas.Cluster(nodes=1, slots=1) as c:
        one, two, three = (c.context(bytes, n) for n in range(3))
        assert list(c.map(len, [one, two, three])) == [0, 1, 2]
        assert len(c.submit(kept_contexts).result(60)) == 3
        one.drop()
        assert len(c.submit(kept_contexts).result(60)) == 2
        with pytest.raises(ValueError, match="a context was dropped"):
            c.submit(len, one).result(60)
        # One that is made again of the same is another one.
        again = c.context(bytes, 0)
        assert c.submit(len, again).result(60) == 0
        assert len(c.submit(kept_contexts).result(60)) == 3
        twin = c.context(bytes, 1)
        del two
        assert len(c.submit(kept_contexts).result(60)) == 3, "its twin has the same value"
        del twin
        assert len(c.submit(kept_contexts).result(60)) == 2


def test_contexts_are_the_last_to_go_where_memory_is_bounded(start: Start) -> None:
    def fill(n_mib: int) -> bytearray:
        return bytearray(b"x") * (n_mib << 20)

    def use(model: bytearray, array: Any) -> tuple[int, float]:
        return os.getpid(), float(array.sum())

    with eyas.Cluster(nodes=1, slots=1, worker_memory="200MiB") as c:
        model = c.context(fill, 40)
        arrays = [np.full(40 << 17, n) for n in range(6)]
        used = [c.submit(use, model, array).result(60) for array in arrays]
        assert len({pid for pid, _ in used}) == 1, "arrays go, and the process stays"
        assert len(c.submit(kept_contexts).result(60)) == 1, "with the context"
        pid = c.submit(lambda _: os.getpid(), c.context(fill, 210)).result(60)
        assert pid == used[0][0]
        assert c.submit(kept_contexts).result(60) == [], "then contexts go"


def test_a_context_of_a_gpu_is_made_once_for_each_gpu(start: Start) -> None:
    def load() -> tuple[str, int]:
        return os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()

    def use(made: tuple[str, int]) -> tuple[str, int]:
        assert made == load()
        time.sleep(0.05)
        return made

    with eyas.Cluster(nodes=1, slots=4, gpus=2) as c:
        model = c.context(load)
        seen = set()
        for _ in range(5):
            # Calls that need no gpu come between them, and some go on meanwhile.
            others = [c.submit(time.sleep, 0.1) for _ in range(2)]
            calls = [c.submit(use, model, resources={"gpus": 1}) for _ in range(4)]
            seen |= {call.result(60) for call in calls}
            wait(others, 60)
        assert sorted(gpu for gpu, _ in seen) == ["0", "1"], seen


def test_workers_end_at_their_bounds_and_lose_no_call(start: Start) -> None:
    def grow(n_bytes: int) -> int:
        _worker.grown = [*getattr(_worker, "grown", []), os.urandom(n_bytes)]  # type: ignore[attr-defined]
        return os.getpid()

    with eyas.Cluster(nodes=1, slots=1, worker_memory="128MiB") as c:
        small = [c.submit(grow, 1).result(60) for _ in range(3)]
        large = [c.submit(grow, 130 << 20).result(60) for _ in range(3)]
    assert len(set(small)) == 1 and large[0] == small[0] and len(set(large)) == 3
    with Executor(1, max_tasks_per_child=3) as executor:
        pids = list(executor.map(lambda _: os.getpid(), range(9)))
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]


def test_calls_hold_parts_of_cpus_and_gpus_and_named_resources() -> None:
    def gpu() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    with eyas.Cluster(nodes=1, slots=2, gpus=2, cluster_resource=["licence=1"]) as c:
        assert c.submit(gpu, resources={"gpus": 1, "licence": 1, "cpus": 0.5}).result(60) in ("0", "1")
        status = [c.submit(time.sleep, 0.5, resources={"licence": 1}) for _ in range(2)]
        wait(status, 0.7, "FIRST_COMPLETED")
        assert not all(call.done() for call in status), "one of them has the licence"
        for wrong, words in (
            ({"gpu": 1}, "write 'gpus'"),
            ({"cpus": 0}, "0 cpus"),
            ({"licence": 0.5}, "0.5 of 'licence'"),
            ({"cpus": 1e300}, "1e\\+300 cpus"),
            ({"memory": 1 << 70}, "memory is"),
        ):
            with pytest.raises(ValueError, match=words):
                c.submit(gpu, resources=wrong)


def test_many_elements_are_one_call(cluster: eyas.Cluster) -> None:
    assert list(cluster.map_calls(abs, range(-1000, 0), chunksize=300)) == list(range(1000, 0, -1))
    for chunksize in (0, 1.5):
        with pytest.raises(ValueError, match="chunksize"):
            cluster.map_calls(abs, [1], chunksize=chunksize)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give it an iterable"):
        cluster.map_calls(abs)
    list(cluster.map_calls(np.zeros, [20_000] * 2))
    folder = cluster._spool / functions.RESULTS
    for array in cluster.map_calls(np.zeros, [20_000] * 6):
        assert array.shape == (20_000,)
        left = len(list(folder.iterdir()))
    assert left <= 3, "results that were taken are not kept"


def test_futures_are_arguments(cluster: eyas.Cluster) -> None:
    one, two = cluster.submit(power, 2), cluster.submit(power, 3)
    assert cluster.submit(sum, [one, two]).result(60) == 13
    bad = cluster.submit(power, "x")
    with pytest.raises(TypeError):
        cluster.submit(power, bad).result(60)


class Pair(NamedTuple):
    one: Any
    two: Any


def test_futures_are_found_wherever_they_are_and_other_values_are_those_of_the_submission(
    cluster: eyas.Cluster,
) -> None:
    one, two = cluster.submit(power, 2), cluster.submit(power, 3)
    assert cluster.submit(sum, [one] * 20_000).result(60) == 80_000
    assert cluster.submit(sum, {one, two}).result(60) == 13
    assert cluster.submit(sum, Pair(one, two)).result(60) == 13
    assert cluster.submit(lambda: one + two).result(60) == 13  # type: ignore[operator]
    with pytest.raises(TypeError, match="a future in it"):
        other: Future[Any] = Future()
        other.set_result([one])
        cluster.submit(power, other).result(60)
    with pytest.raises(TypeError, match="the future's result"):
        cluster.context(power, one)
    later: Future[int] = Future()
    array, numbers = np.zeros(20_000), [1]
    call = cluster.submit(lambda _, array, numbers: (float(array[0]), numbers), later, array, numbers)
    array[0] = 9
    numbers.append(2)
    later.set_result(0)
    assert call.result(60) == (0.0, [1])


def test_a_call_that_waits_for_another_ends_with_it(cluster: eyas.Cluster) -> None:
    never: Future[Any] = Future()
    call = cluster.submit(power, never)
    assert call.cancel() and wait([call], 10).done == {call}
    chain = [cluster.submit(power, never)]
    for _ in range(3000):
        chain.append(cluster.submit(power, chain[-1]))
    never.set_exception(OSError("never"))
    assert wait(chain, 60).not_done == set()
    assert isinstance(chain[-1].exception(), OSError)
    other: Future[Any] = Future()
    with eyas.connect(cluster.join) as client:
        call = client.submit(power, other)
        after = client.submit(power, call)
    assert wait([call, after], 10).not_done == set() and call.cancelled()
    other.set_result(2)


def test_a_client_that_ends_leaves_others_what_is_theirs(cluster: eyas.Cluster, here: Path) -> None:
    array = np.arange(20_000.0)
    for spool in (None, here):
        first, second = (eyas.connect(cluster.join, spool=spool) for _ in range(2))
        model = second.context(np.sum, array)
        for client in (first, second):
            assert client.submit(np.zeros, 20_000).result(60).shape == (20_000,)
            assert client.submit(np.sum, array).result(60) == array.sum()
        large = second.submit(np.zeros, 20_000)
        wait([large], 60)
        first.close()
        assert large.result().shape == (20_000,)
        assert second.submit(np.max, array).result(60) == 19_999.0
        assert second.submit(lambda model: model, model).result(60) == array.sum()
        second.close()
        # Another cluster takes the result, which is here, and knows why it has no context.
        assert cluster.submit(np.size, large).result(60) == 20_000
        with pytest.raises(ValueError, match="cluster that was closed"):
            cluster.submit(lambda model: model, model).result(60)


# A client that is killed while its calls and its programs run.
KILLED = """
import sys, time, eyas
import numpy as np
join, gate = sys.argv[1:]

def square(i, table, gate):
    import os, time
    while not os.path.exists(gate):
        time.sleep(0.05)
    if i == 5:
        raise KeyError(i)
    return table[:1] + i if i < 4 else np.full(20_000, i * i)

c = eyas.connect(join)
base = c.submit(abs, -7)
table = np.ones(20_000)
c.map(square, range(6), [table] * 6, context=gate, name="squares")
c.map(divmod, range(5), [base] * 5, chunksize=2, name="divided")
c.map(f"while ! test -e {gate}; do sleep 0.05; done; echo {{n}}", param={"n": ["a", "b"]}, shell=True, name="echoes")
print("given", flush=True)
time.sleep(600)
"""


def test_what_a_client_gave_by_name_goes_on_when_it_is_killed(cluster: eyas.Cluster, here: Path) -> None:
    command = [str(word) for word in (PYTHON, "-c", KILLED, cluster.join, here / "gate")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "given\n"
        program.kill()
    with eyas.connect(cluster.join) as c:
        (squares,), (divided,), (echoes,) = (c.runs(name) for name in ("squares", "divided", "echoes"))
        assert not squares.wait(0) and squares.n_tasks == 6
        (here / "gate").touch()
        found = squares.results()
        first = [next(found) for _ in range(5)]
        assert [float(one[0]) for one in first] == [1, 2, 3, 4, 16] and first[4].shape == (20_000,)
        with pytest.raises(KeyError, match="5") as raised:
            next(found)
        assert "line 11, in square" in str(raised.value.__cause__)
        assert list(divided.results()) == [divmod(n, 7) for n in range(5)]
        assert [task.stdout for task in echoes.tasks()] == [b"a\n", b"b\n"]
        with pytest.raises(LookupError, match=f"run {echoes.number} calls no functions"):
            next(echoes.results())
    # Whoever asks again has it again.
    (again,) = cluster.runs("squares")
    assert next(again.results())[0] == 1


def test_the_results_that_are_there_are_given_beside_errors(cluster: eyas.Cluster, here: Path) -> None:
    def inverse(n: int) -> float:
        if n == 6:
            os._exit(3)
        return 1 / n

    with pytest.raises(ZeroDivisionError):
        list(cluster.map(inverse, range(5), name="inverses"))
    (run,) = cluster.runs("inverses")
    found = list(run.results(return_exceptions=True))
    assert found[1:] == [1, 1 / 2, 1 / 3, 1 / 4] and type(found[0]) is ZeroDivisionError
    assert "in inverse" in str(found[0].__cause__)
    with pytest.raises(ZeroDivisionError):
        next(run.results())
    # Each result stands at the place of its element, also where several elements were one call.
    with pytest.raises(ZeroDivisionError):
        list(cluster.map(inverse, range(8), chunksize=3, name="chunks"))
    (run,) = cluster.runs("chunks")
    found = list(run.results(return_exceptions=True))
    assert [type(one) for one in found[:3] + found[6:]] == [ZeroDivisionError] * 3 + [eyas.WorkerLost] * 2
    assert found[3:6] == [1 / 3, 1 / 4, 1 / 5] and len(found) == 8
    programs = cluster.map("true {in}", numbers(here, 1))
    with pytest.raises(LookupError, match=f"run {programs.number} calls no functions"):
        list(programs.results(return_exceptions=True))


def test_each_failure_of_a_run_has_its_reason_however_many_there_are(
    cluster: eyas.Cluster, here: Path
) -> None:
    with pytest.raises(eyas.WorkerLost):
        list(cluster.map(os._exit, [3] * 60, name="gone"))
    (run,) = cluster.runs("gone")
    lost = list(run.results(return_exceptions=True))
    assert len(lost) == 60 and all(isinstance(one, eyas.WorkerLost) for one in lost)
    assert all("ended without an answer, with status 3" in str(one) for one in lost)
    programs = cluster.map("sh -c 'exit 4' {in}", numbers(here, 60))
    assert programs.wait(60, check=False)
    assert {task.reason for task in programs.tasks()} == {"the program ended with status 4"}


def test_a_map_with_a_name_goes_on_when_its_client_ends(cluster: eyas.Cluster, here: Path) -> None:
    gate, array = here / "gate", np.arange(20_000.0)

    def waits(n: int, gate: Path) -> Any:
        while not gate.exists():
            time.sleep(0.05)
        return array + n

    client = eyas.connect(cluster.join)
    given = client.map(waits, range(4), context=gate, name="on")
    client.close()
    with pytest.raises(CancelledError):
        next(given)
    gate.touch()
    (run,) = cluster.runs("on")
    assert [float(one[-1]) for one in run.results()] == [19_999, 20_000, 20_001, 20_002]
    with pytest.raises(TypeError, match="name is 3"):
        cluster.map(waits, [1], context=gate, name=3)  # type: ignore[call-overload]
    assert list(cluster.map(abs, [], name="nothing")) == [] and not cluster.runs("nothing")
    with pytest.raises(TypeError, match="pickle"):
        cluster.map(lambda _: threading.Lock(), [threading.Lock()], name="wrong")
    assert not cluster.runs("wrong"), "all of a map is given, or nothing"


def test_files_of_a_named_map_go_when_its_run_is_forgotten(run: Run, here: Path) -> None:
    run("up", "--dir", "c", "--nodes", "1", "--slots", "1")
    join, spool = here / "c/dispatcher/join.json", here / "spool"

    def given(name: str) -> tuple[int, Path]:
        """The run of a map of that name, whose client has ended, and the folder with its files."""
        before = set(spool.glob("*"))
        with eyas.connect(join, spool=spool) as c:
            assert [len(one) for one in c.map(np.full, [20_000], context=1.5, name=name)] == [20_000]
            number = c.runs(name)[-1].number
        (folder,) = set(spool.glob("*")) - before
        return number, folder

    (one, of_one), (two, of_two) = given("one"), given("two")
    with eyas.connect(join, spool=spool) as c:
        assert sum(1 for path in of_one.rglob("*") if path.is_file() and path.name != "named.json") == 1
        list(c.map(abs, [-1], name="stays"))
        stays = c.runs("stays")[-1].number
        run("forget", str(one), str(stays))
        given("three")
        assert not of_one.exists() and of_two.exists(), "the run is forgotten"
        assert len(next(c.runs("two")[-1].results())) == 20_000
        # Its run is forgotten, too, and its client is there.
        assert c.submit(np.full, 20_000, 2.5).result(60)[0] == 2.5
        own = c._functions()._spool.folder
        assert own.exists()
    # A folder of another cluster says nothing to this one, and neither does what nobody can read.
    named = of_two / "named.json"
    said = json.loads(named.read_text())
    named.write_text(json.dumps({**said, "cluster": "another"}))
    odd = spool / "odd"
    odd.mkdir()
    (odd / "named.json").write_text("{")
    run("forget", str(two))
    given("four")
    assert of_two.exists() and odd.exists() and not own.exists()
    run("down")


def test_a_result_that_is_too_large_to_be_printed_is_refused(
    cluster: eyas.Cluster, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node that shares no spool with the client, and with a bound of 1 MB in place of 1 GiB."""
    assert _worker.PRINTED_RESULT_BYTES_MAX == 1 << 30

    def make(n: int) -> Any:
        from eyas import _worker

        _worker.PRINTED_RESULT_BYTES_MAX = 1_000_000
        return np.zeros(n)

    # The client cannot make the folder, so no node has it.
    (here / "file").write_text("")
    with eyas.connect(cluster.join, spool=here / "file" / "below") as c:
        assert c.submit(make, 100_000).result(60).shape == (100_000,)
        with pytest.raises(
            ValueError, match=r"has 1\d{6} bytes, and this node cannot write it to .*give a `spool`"
        ):
            c.submit(make, 150_000).result(60)
        assert c.submit(abs, -3).result(60) == 3, "the worker goes on"


def test_a_result_that_is_too_large_is_refused_where_it_is_made(cluster: eyas.Cluster, here: Path) -> None:
    with eyas.connect(cluster.join, spool=here, result_max="200KB") as c:
        assert c.submit(np.zeros, 20_000).result(60).shape == (20_000,)
        # As a buffer behind the pickle, in the pickle, and in one that pickle itself cannot make.
        makers: list[Callable[[], Any]] = [
            lambda: np.zeros(1_000_000),
            lambda: bytes(1_000_000),
            lambda: (lambda: None, list(range(1_000_000))),
        ]
        for make in makers:
            with pytest.raises(
                ValueError, match="larger than 200000 bytes, which `result_max` allows: write"
            ):
                c.submit(make).result(60)
        wait_until(
            lambda: not any(path.is_file() for path in here.rglob("*")), "no file of a result to be left"
        )
    with pytest.raises(ValueError, match="result_max is 'big'"):
        eyas.connect(cluster.join, result_max="big")


def test_a_large_result_stays_where_it_was_made_until_it_is_asked_for(start: Start) -> None:
    def make(n: int) -> Any:
        return np.full(n, 1.5)

    def total(*arrays: Any) -> float:
        return float(sum(array.sum() for array in arrays))

    with eyas.Cluster(nodes=2, slots=1) as c:
        # The first one is no output of its task: only now is it known that there is something large.
        folder = c._spool / functions.RESULTS
        first = c.submit(make, 100_000)
        wait([first], 60)
        assert [path.stat().st_size > 800_000 for path in folder.iterdir()] == [True]
        assert c.submit(total, first).result(60) == 150_000.0
        del first
        parts = [c.submit(make, 100_000) for _ in range(6)]
        assert c.submit(total, *parts).result(60) == 900_000.0
        assert len(list(folder.iterdir())) == 6
        brought = [run["home_bytes"] for run in c.status()["runs"]]
        assert sum(brought) < 6 * 800_000, "some were there already"
        # What the client changes is its own.
        mine = parts[0].result(60)
        mine[0] = 7
        assert parts[0].result()[0] == 7 and c.submit(total, parts[0]).result(60) == 150_000.0
        del parts, mine
        wait_until(lambda: not list(folder.iterdir()), "files of results that nobody has")
        # The same function may return something small.
        assert c.submit(make, 3).result(60).tolist() == [1.5, 1.5, 1.5]
        assert not list(folder.iterdir()), "a small result leaves no file"
        large, gone = c.submit(make, 200_000), c.submit(make, 300_000)
        wait([large, gone], 60)
        next(path for path in folder.iterdir() if path.name == gone.task).unlink()  # type: ignore[attr-defined]
        with pytest.raises(eyas.ClusterLost, match="result of a call cannot be read"):
            gone.result()
    assert large.result().shape == (200_000,), "also behind the end of the cluster"


FILES = """
import os, resource, eyas
import numpy as np
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
with eyas.Cluster(nodes=1, slots=1) as c:
    for size in (10_000, 140_000):
        calls = [c.submit(np.full, size, n) for n in range(200)]
        held = [call.result(60) for call in calls]
        assert [int(array[-1]) for array in held] == list(range(200))
        held[3][0] = 7
        given = [c.submit(lambda array: int(array[0]), np.full(size, n)) for n in range(200)]
        assert [call.result(60) for call in given] == list(range(200))
    left = [c.submit(np.full, size, n) for n in range(200)]
    [call.exception(60) for call in left]
assert [int(call.result()[-1]) for call in left] == list(range(200))
"""


def test_values_are_no_open_files(start: Start, tmp_path: Path) -> None:
    start("-c", FILES, cwd=tmp_path, program=PYTHON).wait(300)


def test_what_the_spool_cannot_take_is_the_error_of_its_call(cluster: eyas.Cluster, here: Path) -> None:
    (here / "spool").touch()
    with eyas.connect(cluster.join, spool=here / "spool") as client:
        with pytest.raises(NotADirectoryError, match=r"cannot be written.* another spool: .*/spool/"):
            client.submit(np.sum, np.zeros(20_000)).result(60)
        # There is no folder for results, so each is printed. They are larger than what is kept of printed output.
        for n in (60_000, 20_000):
            assert client.submit(np.zeros, n).result(60).shape == (n,)
        assert client.submit(np.size, 3).result(60) == 1


FORKS = """
import gc, os, sys, eyas
c = eyas.Cluster(nodes=1, slots=1)
assert c.submit(abs, -1).result(60) == 1
for how in ("closes", "drops", "exits"):
    pid = os.fork()
    if pid == 0:
        if how == "closes":
            c.close()
        if how == "drops":
            del c
            gc.collect()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert c.submit(abs, -2).result(60) == 2
c.close()
"""


def test_a_fork_that_ends_leaves_its_parent_the_cluster(start: Start, tmp_path: Path) -> None:
    program = start("-c", FORKS, cwd=tmp_path, program=PYTHON)
    program.wait(120)


def test_a_call_that_waits_and_one_that_runs_are_cancelled(cluster: eyas.Cluster, here: Path) -> None:
    begun = here / "begun"

    def sleeps(path: str) -> None:
        open(path, "w").close()
        time.sleep(600)

    runs = cluster.submit(sleeps, str(begun))
    wait_until(begun.exists, "the call's begin")
    assert runs.cancel() and runs.cancelled()
    assert wait([runs], 10).done == {runs}
    # One may be on its way to the cluster at that moment, too.
    for n in range(40):
        begins = cluster.submit(time.sleep, 600)
        wait([begins], n / 20_000)
        assert begins.cancel() and begins.cancelled()
    assert cluster.submit(power, 2).result(60) == 4


def test_files_of_values_go_when_no_call_needs_them(
    cluster: eyas.Cluster, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "RECENT_MAX", 3)
    with eyas.connect(cluster.join, spool=here) as client:

        def files() -> int:
            return sum(path.is_file() for path in client._spool.iterdir())

        array = np.zeros(20_000)
        for n in range(10):
            array[0] = n
            assert client.submit(lambda array: array[0], array).result(60) == n
            assert client.submit(len, str(n) * 30_000).result(60) == 30_000
        wait_until(lambda: files() <= 3, "files that no call needs")
        # Calls that have not ended, and contexts, have theirs.
        never: Future[int] = Future()
        calls = [client.submit(lambda n, array: n + array[0], never, np.full(20_000, n)) for n in range(6)]
        model = client.context(np.sum, np.full(20_000, 1.5))
        for n in range(6):
            assert client.submit(len, str(n) * 90_000).result(60) == 90_000
        never.set_result(1)
        assert [call.result(60) for call in calls] == [1, 2, 3, 4, 5, 6]
        assert client.submit(lambda model: model, model).result(60) == 30_000.0
        # A value that comes again is written again.
        assert client.submit(lambda array: array[0], np.full(20_000, 4)).result(60) == 4
        del calls, model
        wait_until(lambda: files() <= 3, "files that no call needs")
    assert not list(here.iterdir())


def test_an_array_is_pickled_once_while_its_bytes_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    write_object = _worker.write_object

    def look(value: object, dumps: object) -> list[bytes | memoryview]:
        looks.append(value)
        return write_object(value, dumps)

    monkeypatch.setattr(_worker, "write_object", look)
    spool = functions.Spool(tmp_path / "spool")
    frame = np.arange(10_000.0)
    first = [spool.keep(frame) for _ in range(5)]
    assert len(set(first)) == 1 and len(looks) == 1
    frame[0] = 1
    assert spool.keep(frame) not in first
    # One that may not be written to changes through the array that it is a view of.
    view = frame[:]
    view.flags.writeable = False
    before = [spool.keep(view) for _ in range(5)]
    assert len(set(before)) == 1 and len(looks) == 3
    frame[0] = 2
    assert spool.keep(view) not in before


def test_options_that_say_nothing_of_tasks_are_refused_and_parameters_are_values(
    cluster: eyas.Cluster, here: Path
) -> None:
    for option in ("dry_run", "to_list", "resume", "json", "nodes"):
        with pytest.raises(eyas.EyasError, match=f"no argument '{option}'"):
            given: dict[str, Any] = {option: "3"}
            cluster.map("true", numbers(here, 1), **given)
    run = cluster.map("echo {x}", param={"x": [1, 2]})
    assert sorted(task.stdout for task in run.tasks()) == [b"1\n", b"2\n"]
    with pytest.raises(eyas.EyasError, match="comma"):
        cluster.map("echo {x}", param={"x": ["a,b"]})
    with pytest.raises(eyas.EyasError, match="this is one task"):
        cluster.run({"id": "a", "command": "true"})  # type: ignore[dict-item]
    with pytest.raises(eyas.EyasError, match="the cluster has no node 'nobody'"):
        cluster.warm(numbers(here, 1), nodes=["node1", "nobody"])
    cluster.warm(numbers(here, 1), nodes="node1")


def test_words_of_a_command_may_be_paths_and_else_are_named(cluster: eyas.Cluster, here: Path) -> None:
    numbers(here, 3)
    (here / "say.py").write_text("import sys\nprint(*sys.argv)\n")
    said = cluster.map([PYTHON, Path("say.py"), "{in}"], "2.txt").tasks()
    assert [task.stdout for task in said] == [b"say.py 2.txt\n"]
    assert [task.state for task in cluster.map(Path("/bin/true"), "2.txt").tasks()] == ["done"]
    no_commands: list[Any] = [["echo", 5], 5, None]
    for wrong in no_commands:
        with pytest.raises(TypeError, match="give a text, a list of texts and paths, or a function"):
            cluster.map(wrong, "2.txt")
    with pytest.raises(TypeError, match="the tasks are 5: give a list of dictionaries"):
        cluster.run(5)  # type: ignore[arg-type]


def test_a_file_is_read_as_the_command_line_reads_it(cluster: eyas.Cluster, here: Path) -> None:
    (here / "list.txt").write_text("echo one\necho two\n")
    assert [task.stdout for task in cluster.run("list.txt").tasks()] == [b"one\n", b"two\n"]
    (here / "a.swift").write_text(
        'type file; app (file o) e() { echo "x" stdout=@o; } file f <"f.txt">; f = e();'
    )
    cluster.run(here / "a.swift").wait()
    assert (here / "f.txt").read_text() == "x\n"
    (here / "wide.jsonl").write_bytes('{"command": "true"}\n'.encode("utf-16"))
    with pytest.raises(eyas.EyasError, match=r"wide\.jsonl.* UTF-16"):
        cluster.run("wide.jsonl")
    with pytest.raises(eyas.EyasError, match=r"nothing\.jsonl"):
        cluster.run("nothing.jsonl")


def test_what_a_call_cannot_have_is_said(cluster: eyas.Cluster) -> None:
    for wrong in (
        *({"walltime": walltime} for walltime in (-1, 0, float("nan"), float("inf"), 1e30, "1m")),
        *({"retries": retries} for retries in (-1, 0.5, 10**12)),
    ):
        with pytest.raises(ValueError, match=r"(walltime|retries) is .*: give"):
            cluster.submit(int, **wrong)  # type: ignore[arg-type]
    for wanted in (
        *({"memory": memory} for memory in (-1, float("nan"), "lots", "1e400GiB")),
        *({"cpus": cpus} for cpus in (float("nan"), 1e300, None, True)),
        *({"licence": licence} for licence in (0, 10**30, "1")),
        {3: 1},
    ):
        with pytest.raises(ValueError, match=r"(memory is|resources (has|names)) .*: (give|write it)"):
            cluster.submit(int, resources=wanted)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dictionary"):
        cluster.submit(int, resources=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a cluster does not go with calls"):
        cluster.submit(lambda: cluster.join).result(60)
    missing = cluster.submit(len, eyas.File("/not/there")).exception()
    assert type(missing) is eyas.TaskFailed and "/not/there" in str(missing)


def test_what_no_node_will_have_is_refused_and_not_waited_for(cluster: eyas.Cluster, here: Path) -> None:
    """On a cluster of this process, whose nodes are known, as on the command line's own."""
    before = cluster.submit(abs, -1)
    for wanted, lacking in (
        ({"cpus": 1000}, "needs 1000 cpus, and each node has 2 slots"),
        ({"gpus": 1}, "needs 1 gpus, and each node has 0"),
        ({"licence": 1}, "needs 1 of `licence`, and each node has 0"),
        ({"memory": "9PiB"}, "needs 9.0 PiB of memory, and each node has"),
    ):
        with pytest.raises(eyas.EyasError, match=lacking):
            cluster.submit(abs, -1, resources=wanted).result(60)
        # Also where there is a run that calls are added to.
        assert cluster.submit(abs, -2).result(60) == 2
    assert before.result(60) == 1
    numbers(here)
    with pytest.raises(eyas.EyasError, match=r"needs 3 cpus.*\nhint: slots 3 gives each node more"):
        cluster.map("wc {in}", "*.txt", cpus=3)
    with pytest.raises(eyas.EyasError, match="needs 1 gpus"):
        cluster.map(abs, [1], name="named", resources={"gpus": 1})
    with pytest.raises(eyas.EyasError, match="needs 5 cpus"):
        cluster.run([{"command": "true", "cpus": 5}])


def test_a_program_that_was_changed_runs_as_it_is_now(start: Start, tmp_path: Path) -> None:
    start("dispatcher", "--dir", tmp_path / "d")
    wait_until(lambda: (tmp_path / "d/join.json").exists(), "the dispatcher is up")
    start("executor", "--join", tmp_path / "d/join.json", "--dir", tmp_path / "n", "--slots", "1")
    (tmp_path / "use.py").write_text(
        "import eyas, beside\n"
        f"with eyas.connect({str(tmp_path / 'd/join.json')!r}) as c: print(c.submit(beside.say).result())\n"
    )
    for said in ("old", "new text"):
        (tmp_path / "beside.py").write_text(f"def say(): return {said!r}\n")
        done = subprocess.run(
            [sys.executable, "-B", "use.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == said + "\n"


def test_several_dispatchers_take_calls(tmp_path: Path) -> None:
    with eyas.Cluster(nodes=2, slots=1, dispatchers=2, dir=str(tmp_path / "c")) as c:
        ones = [c.submit(abs, -n) for n in range(40)]
        large = c.submit(np.ones, 100_000)
        total = c.submit(sum, [*ones, ones[1]])
        assert total.result(60) == sum(range(40)) + 1
        assert float(large.result(60).sum()) == 100_000
        with pytest.raises(ZeroDivisionError):
            c.submit(divmod, 1, 0).result(60)
        assert list(c.map_calls(abs, range(-100, 0), chunksize=7)) == list(range(100, 0, -1))
        assert list(c.map(abs, range(-40, 0), name="named")) == list(range(40, 0, -1))
        assert list(c.runs("named")[-1].results()) == list(range(40, 0, -1))
        sleeps = c.submit(time.sleep, 1000)
    assert sleeps.cancelled()


def test_calls_go_on_with_a_dispatcher_that_was_started_again(start: Start, tmp_path: Path) -> None:
    dispatcher = start("dispatcher", "--dir", tmp_path / "d")
    wait_until(lambda: (tmp_path / "d/join.json").exists(), "the dispatcher is up")
    start("executor", "--join", tmp_path / "d/join.json", "--dir", tmp_path / "n", "--slots", "1")
    with eyas.connect(tmp_path / "d/join.json") as c:
        later: Future[int] = Future()
        call, after = c.submit(os.getpid), c.submit(power, later)
        assert call.result(60) != os.getpid()
        dispatcher.kill()
        start("dispatcher", "--dir", tmp_path / "d").wait_for_text("listens")
        later.set_result(3)
        assert after.result(60) == 9


def test_a_client_that_looks_for_its_dispatcher_can_be_closed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = start("dispatcher", "--dir", tmp_path / "d")
    wait_until(lambda: (tmp_path / "d/join.json").exists(), "the dispatcher is up")
    client = eyas.connect(tmp_path / "d/join.json")
    client.submit(power, 2)
    looks, stopped, ends = threading.Event(), threading.Event(), _ffi.Ends

    class Found:
        """A connection that is found when the one before it has been stopped."""

        def __init__(self, join: Path, listener: int) -> None:
            looks.set()
            self._found = ends(join, listener)
            self.next, self.follow = self._found.next, self._found.follow
            stopped.wait(60)

        def stop(self) -> None:
            self._found.stop()

    class First:
        def follow(self, run: int) -> None:
            first.follow(run)

        def stop(self) -> None:
            first.stop()
            stopped.set()

    calls = client._functions()
    first, calls._ends = calls._ends, First()  # type: ignore[assignment]
    monkeypatch.setattr(_ffi, "Ends", Found)
    dispatcher.kill()
    assert looks.wait(60)
    closes = threading.Thread(target=client.close, daemon=True)
    closes.start()
    start("dispatcher", "--dir", tmp_path / "d").wait_for_text("listens")
    closes.join(60)
    assert not closes.is_alive()
