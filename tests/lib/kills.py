"""Random kills of dispatchers, executors and slot processes, with restarts, while a workflow runs.

    .venv/bin/python tests/lib/kills.py --dispatchers 2 --kills 200 [--seed N] [--eyas PATH] [--dir DIR]

A campaign is a number of rounds. A round is drawn from its seed: nodes with unequal numbers of slots, a workflow of
three stages whose files stay on the nodes or go home, and kills at random moments, each followed by a restart. Each
task writes its id to a file when it begins. In the end

- every task is done, and every output at home has the bytes that a plain run would have made; nothing else is there;
- what a journal had as done before a kill has not run again, unless the journal says that a file which it had left
  on a node was lost. That is only said after a node was.

The plan of a round is the same for each seed; what a kill hits depends on the machine. A round that fails is printed
with its seed, and its folder is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import ROOT, Background, Eyas, end_group, wait_until

LEASE_S = 6
# A task that was on more lost executors fails for that, as it may be what kills them.
EXECUTOR_KILLS_MAX = 3
SLOT_KILLS_MAX = 4
KILLS_PER_ROUND = 10
# Kills fall into so many seconds of a round.
KILLING_S = 9.0
# What `wait` may take once the kills are over, and everything runs again.
WAIT_S = 240.0
GONE_BY_ITSELF_S = 0.5

# Records of the journal, by their first byte, and the first byte of an outcome.
TASK_ENDED, TASK_REVIVED, DONE = 4, 6, 0
JOURNAL_HEADER_BYTES, MARKER, MARKER_BYTES = 40, 0xFFFF_FFFF, 32


# ---------------------------------------------------------------- the plan


@dataclass(frozen=True)
class Kill:
    at_s: float
    # "dispatcher", "executor", or "slot" (of an executor).
    kind: str
    which: int
    # How long the victim stays away; a slot process is started again by its executor.
    pause_s: float


@dataclass
class Task:
    id: str
    inputs: list[str]
    output: str
    sleep_s: float

    @property
    def stays(self) -> bool:
        return self.output.startswith("run:")


@dataclass
class Plan:
    seed: int
    n_dispatchers: int
    slots: list[int]
    tasks: list[Task]
    kills: list[Kill]


def plan_of(seed: int, n_dispatchers: int) -> Plan:
    rng = random.Random(seed * 10 + n_dispatchers)
    slots = [rng.choice([1, 1, 2, 3, 5]) for _ in range(n_dispatchers + rng.randint(1, 2))]
    tasks: list[Task] = []
    stages: list[list[str]] = []
    for stage, goes_home in enumerate([0.3, 0.5, 1.0]):
        made = []
        for i in range(rng.randint(20, 45)):
            name = f"{'abc'[stage]}{i}"
            before = [file for files in stages for file in files]
            n_inputs = rng.randint(1, 3) if before else 0
            # Mostly the stage before: a file that is read late is one that can be lost meanwhile.
            latest = stages[-1] if stages else []
            inputs = [rng.choice(latest if rng.random() < 0.8 else before) for _ in range(n_inputs)]
            output = f"home/{name}" if rng.random() < goes_home else f"run:{name}"
            tasks.append(Task(name, sorted(set(inputs)), output, round(rng.uniform(0.05, 0.8), 2)))
            made.append(output)
        stages.append(made)
    kills: list[Kill] = []
    left = {"executor": EXECUTOR_KILLS_MAX, "slot": SLOT_KILLS_MAX, "dispatcher": KILLS_PER_ROUND}
    for at_s in sorted(rng.uniform(0.2, KILLING_S) for _ in range(KILLS_PER_ROUND)):
        kind = rng.choices(["dispatcher", "executor", "slot"], [4, 3, 3])[0]
        kind = kind if left[kind] else "dispatcher"
        left[kind] -= 1
        which = rng.randrange(n_dispatchers if kind == "dispatcher" else len(slots))
        # At once, in a moment, and sometimes when the leases of the others are over.
        pause_s = rng.choice([0.0, rng.uniform(0.05, 0.5), rng.uniform(0.5, 2.5)])
        if rng.random() < 0.08:
            pause_s = LEASE_S + rng.uniform(0.5, 3)
        kills.append(Kill(round(at_s, 2), kind, which, round(pause_s, 2)))
    rng.shuffle(tasks)
    return Plan(seed, n_dispatchers, slots, tasks, kills)


def expected(plan: Plan) -> dict[str, str]:
    """What is at home after a plain run."""
    by_output = {task.output: task for task in plan.tasks}
    files: dict[str, str] = {}

    def content(output: str) -> str:
        if output not in files:
            task = by_output[output]
            files[output] = f"{task.id}\n" + "".join(content(name) for name in task.inputs)
        return files[output]

    return {task.id: content(task.output) for task in plan.tasks if not task.stays}


# ---------------------------------------------------------------- what is on disk


def varint(body: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = body[at]
        number, at, shift = number | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return number, at


def records(journal: Path) -> Iterator[bytes]:
    """The records of a journal, as far as they are whole."""
    for segment in sorted(journal.glob("segment-*.log")):
        data, at = segment.read_bytes(), JOURNAL_HEADER_BYTES
        while at + 8 <= len(data):
            n_bytes, _ = struct.unpack_from("<II", data, at)
            if n_bytes == MARKER:
                at += MARKER_BYTES
            elif n_bytes == 0 or at + 8 + n_bytes > len(data):
                break
            else:
                yield data[at + 8 : at + 8 + n_bytes]
                at += 8 + n_bytes


@dataclass
class Ends:
    """Of one journal: the numbers of tasks that are done, and how often each was revived."""

    done: set[int] = field(default_factory=set)
    revived: Counter[int] = field(default_factory=Counter)


def ends_in(journal: Path) -> Ends:
    ends = Ends()
    for body in records(journal):
        kind, at = varint(body, 0)
        if kind == TASK_ENDED:
            task, at = varint(body, at)
            if varint(body, at)[0] == DONE:
                ends.done.add(task)
        elif kind == TASK_REVIVED:
            task, at = varint(body, at)
            ends.done.discard(task)
            ends.revived[task] += 1
    return ends


def expand(pieces: list[Any], columns: list[Any], row: int, index: int) -> str:
    text = ""
    for piece in pieces:
        if piece == "index":
            text += str(index)
        elif "literal" in piece:
            text += piece["literal"]
        else:
            column = columns[piece["column"]["column"]]
            begin = column["ends"][row - 1] if row else 0
            text += column["text"].encode()[begin : column["ends"][row]].decode()
    return text


@dataclass
class Log:
    """Of the event log of one dispatcher: the ids of tasks by their numbers, and how often each task was rerun where its files were needed."""

    ids: dict[int, str] = field(default_factory=dict)
    reruns: Counter[str] = field(default_factory=Counter)


def log_of(path: Path) -> Log:
    log, reruns = Log(), Counter[int]()
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # its writer was killed
        if "eyas_event_log" in entry:
            # Another process: it numbers all tasks again, and gives them the same numbers.
            log.ids.clear()
        happened, action = entry.get("in"), entry.get("out")
        if isinstance(happened, dict) and "array_added" in happened:
            array = happened["array_added"]["array"]
            for row in range(array["n_tasks"]):
                index = array["first_index"] + row
                log.ids[len(log.ids)] = expand(array["template"]["id"], array["columns"], row, index)
        if isinstance(action, dict) and "rerun_task" in action:
            reruns[action["rerun_task"]["assignment"]["task"]] += 1
    log.reruns = Counter({log.ids[task]: n for task, n in reruns.items()})
    return log


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return sorted(found)


# ---------------------------------------------------------------- one round


class Round:
    """Carries out a plan. `faults` has a sentence for each promise that was broken."""

    def __init__(self, plan: Plan, eyas: Eyas, folder: Path) -> None:
        self.plan, self.eyas, self.folder = plan, eyas, folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.ran_path = folder / "ran"
        self.ran_path.touch()
        self.parts: dict[tuple[str, int], Background] = {}
        # When what is away starts again.
        self.restarts: dict[tuple[str, int], float] = {}
        self.n_kills = 0
        self.nodes_ended = 0
        # By dispatcher and number: how often each task that is done had run, and been revived, when that was first seen.
        self.finished: dict[tuple[int, int], tuple[Counter[str], int]] = {}
        self.faults: list[str] = []

    def dir(self, k: int) -> Path:
        return self.folder / f"D{k + 1}"

    def join(self, k: int = 0) -> Path:
        return self.dir(k) / "join.json"

    def start(self, kind: str, k: int) -> None:
        if kind == "dispatcher":
            n = self.plan.n_dispatchers
            group: list[str | Path] = ["--member", f"{k + 1}/{n}"] if n > 1 else []
            group += ["--group", self.join(0)] if k > 0 else []
            given: list[str | Path] = ["--dir", self.dir(k), "--lease", f"{LEASE_S}s", *group]
        else:
            name, slots = f"N{k + 1}", str(self.plan.slots[k])
            given = ["--dir", self.folder / name, "--name", name, "--slots", slots, "--join", self.join(0)]
        self.parts[kind, k] = self.eyas.start(kind, *given)

    def ran(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.ran_path.read_text().splitlines())

    def look(self) -> None:
        """Notes what the journals have as done by now."""
        all_ends = {k: ends_in(self.dir(k) / "journal") for k in range(self.plan.n_dispatchers)}
        # After the journals: whatever they have as done has begun.
        ran = self.ran()
        for k, ends in all_ends.items():
            for task in ends.done:
                revived = ends.revived[task]
                if self.finished.get((k, task), (None, -1))[1] != revived:
                    self.finished[k, task] = (ran, revived)
            for known, (_, revived) in self.finished.items():
                if known[0] == k and known[1] not in ends.done and ends.revived[known[1]] == revived:
                    self.faults.append(
                        f"dispatcher {k + 1} has lost the end of task {known[1]} from its journal"
                    )

    def command(self, task: Task) -> dict[str, Any]:
        line = (
            f"echo {task.id} $EYAS_ATTEMPT $PWD >> {self.ran_path}; sleep {task.sleep_s}; echo {task.id} > o"
        )
        files = {f"in{i}": name for i, name in enumerate(task.inputs)}
        line += f"; cat {' '.join(files)} >> o" if files else ""
        at_home = {
            name: str(self.folder / name) if name.startswith("home/") else name for name in task.inputs
        }
        output = task.output if task.stays else str(self.folder / task.output)
        inputs = {here: at_home[name] for here, name in files.items()}
        return {"id": task.id, "command": line, "inputs": inputs, "outputs": {"o": output}}

    def members(self) -> list[str]:
        members: list[str] = json.loads(self.join(0).read_text())["members"]
        return members

    def begin(self) -> None:
        for k in range(self.plan.n_dispatchers):
            self.start("dispatcher", k)
            wait_until(self.join(k).exists, "the join file", alive=self.parts["dispatcher", k])
        if self.plan.n_dispatchers > 1:
            wait_until(lambda: all(self.members()), "the dispatchers to know each other")
        for k in range(len(self.plan.slots)):
            self.start("executor", k)
        tasks = self.folder / "tasks.jsonl"
        tasks.write_text("".join(json.dumps(self.command(task)) + "\n" for task in self.plan.tasks))
        self.eyas.run("submit", tasks, "--join", self.join(0))

    def kill(self, kill: Kill) -> None:
        kind = "executor" if kill.kind == "slot" else kill.kind
        part = self.parts[kind, kill.which]
        if not part.is_alive():
            return
        self.look()
        if kill.kind == "slot":
            slots = children(part.pid)
            if not slots:
                return
            try:
                os.kill(slots[kill.which % len(slots)], signal.SIGKILL)
            except ProcessLookupError:
                return  # it has ended since
        else:
            part.kill()
            self.restarts[kind, kill.which] = time.monotonic() + kill.pause_s
            self.nodes_ended += kind == "executor"
        self.n_kills += 1

    def supervise(self) -> None:
        """Starts again what is to start again, and what has ended by itself: an executor, after its lease."""
        now = time.monotonic()
        for (kind, k), part in self.parts.items():
            if not part.is_alive() and (kind, k) not in self.restarts:
                self.restarts[kind, k] = now + GONE_BY_ITSELF_S
                self.nodes_ended += kind == "executor"
                if kind == "dispatcher":
                    self.faults.append(f"dispatcher {k + 1} ended by itself: {part.finished()}")
        for (kind, k), at in list(self.restarts.items()):
            if at <= now:
                del self.restarts[kind, k]
                self.start(kind, k)

    def live(self) -> None:
        self.begin()
        begun = time.monotonic()
        for kill in self.plan.kills:
            while time.monotonic() < begun + kill.at_s:
                self.supervise()
                time.sleep(0.02)
            self.kill(kill)
        waiting: Background | None = None
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            self.supervise()
            if waiting is None and not self.restarts:
                waiting = self.eyas.start("wait", "--run", "1", "--join", self.join(0))
            if waiting is not None and not waiting.is_alive():
                done = waiting.finished()
                if done.status != 3:
                    break
                # The dispatcher that it asks was not there yet.
                waiting = None
            time.sleep(0.05)
        else:
            status = self.eyas.run("status", "--join", self.join(0), status=None)
            self.faults.append(f"not everything ended within {WAIT_S:.0f} s\n{status}")
            return
        if done.status != 0 or f"{len(self.plan.tasks)} done, 0 failed" not in done.stdout + done.stderr:
            self.faults.append(f"not every task is done\n{done}")
        self.look()

    def check(self) -> None:
        wanted = expected(self.plan)
        found = {path.name: path.read_text() for path in self.home.iterdir()}
        for name in sorted(wanted.keys() | found.keys()):
            if name not in wanted:
                self.faults.append(f"`{name}` was left at home")
            elif name not in found:
                self.faults.append(f"the output of `{name}` is missing")
            elif found[name] != wanted[name]:
                self.faults.append(
                    f"the output of `{name}` has other bytes: {found[name]!r}, not {wanted[name]!r}"
                )
        ran = self.ran()
        self.faults.extend(f"task `{t.id}` never ran" for t in self.plan.tasks if not ran[t.id])
        tasks = {task.id: task for task in self.plan.tasks}
        for k in range(self.plan.n_dispatchers):
            log = log_of(self.dir(k) / "events.jsonl")
            revived = ends_in(self.dir(k) / "journal").revived
            for number in revived:
                task = tasks[log.ids[number]]
                if not task.stays or not self.nodes_ended:
                    self.faults.append(
                        f"task `{task.id}` was done and was revived, though nothing of it was lost"
                    )
            for (of, number), (before, n_revived) in self.finished.items():
                if of != k or revived[number] != n_revived:
                    continue
                name = log.ids[number]
                again = ran[name] - before[name] - log.reruns[name]
                if again > 0:
                    self.faults.append(
                        f"task `{name}` (number {number} of dispatcher {k + 1}) was done and ran again"
                    )

    def end(self) -> None:
        for part in self.parts.values():
            if part.is_alive():
                part.signal(signal.SIGTERM)
        for part in self.parts.values():
            try:
                part.process.wait(20)
            except Exception:
                end_group(part.process)
                self.faults.append(f"does not end within 20 s of SIGTERM: {part.finished()}")


def play(plan: Plan, eyas_path: Path, folder: Path) -> Round:
    """One round in an empty folder. What a test's assertion would say is a fault, too."""
    eyas = Eyas(eyas_path, folder / ".eyas", uuid.uuid4().hex)
    played = Round(plan, eyas, folder)
    try:
        played.live()
        played.end()
        played.check()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        played.faults.append(f"{type(error).__name__}: {error}")
    finally:
        try:
            eyas.end()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            played.faults.append(f"at the end: {error}")
    return played


def campaign(eyas_path: Path, folder: Path, n_dispatchers: int, n_kills: int, seed: int) -> list[str]:
    """Rounds until so many kills have hit something. Gives the faults of the first round that has some."""
    n, first = 0, seed
    while n < n_kills:
        plan = plan_of(seed, n_dispatchers)
        begun = time.monotonic()
        at = folder / f"round-{n_dispatchers}-{seed}"
        played = play(plan, eyas_path, at)
        n += played.n_kills
        took, n_again = time.monotonic() - begun, sum(played.ran().values()) - len(plan.tasks)
        print(
            f"seed {seed}, dispatchers {n_dispatchers}, slots {plan.slots}: {len(plan.tasks)} tasks, {n_again} attempts more, "
            f"{played.n_kills} kills in {took:.0f} s; "
            f"{n} kills since seed {first}",
            flush=True,
        )
        if played.faults:
            again = f"--dispatchers {n_dispatchers} --seed {seed} --kills 1"
            print(
                f"seed {seed} breaks a promise; `tests/lib/kills.py {again}` plays it alone; its folder is {at}"
            )
            print("\n".join(played.faults), flush=True)
            return played.faults
        shutil.rmtree(at)
        seed += 1
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description="Random kills while workflows run.")
    parser.add_argument("--dispatchers", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200, help="how many have to hit something")
    parser.add_argument("--seed", type=int, default=None, help="of the first round (default: drawn)")
    parser.add_argument("--eyas", type=Path, default=ROOT / ".venv" / "bin" / "eyas")
    parser.add_argument("--dir", type=Path, default=None, help="where rounds have their folders")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1_000_000)
    folder = args.dir or Path(tempfile.mkdtemp(prefix="eyas-kills-"))
    faults = campaign(args.eyas.absolute(), folder.absolute(), args.dispatchers, args.kills, seed)
    print("a promise was broken" if faults else "all promises kept")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
