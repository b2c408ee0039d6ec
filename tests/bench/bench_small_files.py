"""Many small objects from S3, beside `s5cmd`, which does nothing but fetch them.

    python tests/bench/bench_small_files.py [--files 10000] [--bytes 10000] [--per-task 100] [--nodes 1] [--slots 2]
                                      [--before PROGRAM] [--rounds 3] [--dir DIR] [--peer]

A real server (versitygw) on this machine has the objects, each folder of them the inputs of one task. In each round `s5cmd`
copies them all into a folder, and then each program runs all tasks with cold caches, by turns. A task writes the digest of
what it has read, and every digest has to be right. `--before`: another program, such as an older eyas, to compare with.
`versitygw` and `s5cmd` are looked for in PATH and beside this Python.

With `--peer` there is no S3: a node has read all files, and a second node, which has just come, gets them from it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("lib", "weather"))

from buckets import KEY, answers_at, free_port
from harness import wait_until

SECRET = "averysecretword42"
BUCKET = "small"


def program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        sys.exit(f"`{name}` is not there: install it and put it into PATH.")
    return found


@contextmanager
def server(folder: Path) -> Iterator[dict[str, str]]:
    """A server of objects; gives the environment of its users."""
    port = free_port()
    root = folder / "objects"
    root.mkdir()
    own = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    command = [
        program("versitygw"),
        "--quiet",
        "--keep-alive",
        "--port",
        f"127.0.0.1:{port}",
        "posix",
        str(root),
    ]
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
    try:
        wait_until(lambda: answers_at(port), "versitygw")
        endpoint = f"http://127.0.0.1:{port}"
        yield {
            **os.environ,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "S3_ENDPOINT_URL": endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.terminate()
        process.wait(30)


def fill(folder: Path, files: int, size: int, per_task: int, env: dict[str, str]) -> tuple[Path, list[str]]:
    """Makes the objects. Gives the task list and the digest that each task has to find."""
    made = folder / "made"
    tasks, digests = folder / "tasks.jsonl", []
    draw = random.Random(1)
    with open(tasks, "w") as lines:
        for first in range(0, files, per_task):
            number = first // per_task
            (made / f"{number:04}").mkdir(parents=True)
            digest, inputs = hashlib.sha256(), {}
            for n in range(min(per_task, files - first)):
                content = draw.randbytes(size)
                digest.update(content)
                name = f"{number:04}/{n:05}"
                (made / name).write_bytes(content)
                inputs[f"d/{n:05}"] = f"s3://{BUCKET}/in/{name}"
            digests.append(digest.hexdigest())
            command = "find d -type f | sort | xargs cat | sha256sum > n"
            task = {
                "id": f"t{number}",
                "command": command,
                "inputs": inputs,
                "outputs": {"n": f"out/{number}"},
            }
            lines.write(json.dumps(task) + "\n")
    s5cmd = program("s5cmd")
    subprocess.run([s5cmd, "mb", f"s3://{BUCKET}"], env=env, check=True, capture_output=True)
    copy = [s5cmd, "--log", "error", "cp", f"{made}/*", f"s3://{BUCKET}/in/"]
    subprocess.run(copy, env=env, check=True)
    shutil.rmtree(made)
    return tasks, digests


def timed(command: list[str], folder: Path, env: dict[str, str]) -> tuple[float, float]:
    """Seconds of a command, and processor seconds of it and of what it started."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def from_peer(program: str, folder: Path, files: int, size: int) -> tuple[float, float]:
    """Seconds until a second node has all files from the first one, and processor seconds of the second one."""
    folder.mkdir()
    draw, inputs, digest = random.Random(2), {}, hashlib.sha256()
    (folder / "in").mkdir()
    for n in range(files):
        content = draw.randbytes(size)
        digest.update(content)
        (folder / "in" / f"{n:06}").write_bytes(content)
        inputs[f"d/{n:06}"] = f"in/{n:06}"
    # The second task has to go to the second node, as the first one is at work.
    for name, n_tasks in (("first", 1), ("second", 2)):
        command = "find d -type f | sort | xargs cat | sha256sum > n; sleep 2"
        tasks = [
            {"id": f"{name}{n}", "command": command, "inputs": inputs, "outputs": {"n": f"out/{name}{n}"}}
            for n in range(n_tasks)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    join = folder / "D" / "join.json"
    parts = [subprocess.Popen([program, "dispatcher", "--dir", str(folder / "D")], stderr=subprocess.DEVNULL)]

    def add_node(name: str) -> None:
        given = ["--join", str(join), "--dir", str(folder / name), "--name", name, "--slots", "1"]
        parts.append(subprocess.Popen([program, "executor", *given], stderr=subprocess.DEVNULL))
        n_nodes = len(parts) - 1
        status = [program, "status", "--join", str(join)]
        wait_until(
            lambda: (
                subprocess.run(status, capture_output=True, text=True).stdout.count("connected") == n_nodes
            ),
            name,
        )

    def run(name: str) -> float:
        begun = time.monotonic()
        command = [program, "run", "--join", str(join), f"{name}.jsonl"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return time.monotonic() - begun

    try:
        wait_until(join.exists, "dispatcher")
        add_node("node1")
        run("first")
        add_node("node2")
        seconds = run("second")
        fields = Path(f"/proc/{parts[-1].pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    finally:
        for part in reversed(parts):
            part.terminate()
            part.wait()
    for out in (folder / "out").iterdir():
        assert out.read_text().split()[0] == digest.hexdigest(), f"{out.name} has read other bytes"
    return seconds - 2, cpu


def compare_peers(programs: list[str], files: int, size: int, rounds: int, folder: Path) -> None:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for turn in range(rounds):
        for n, name in enumerate(programs):
            found[name].append(from_peer(name, folder / f"{turn}-{n}", files, size))
    print(
        f"{files} files of {size} B from one node to another, read by one task; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'median of ' + str(rounds):34}{'s':>9}{'files/s':>12}{'CPU s':>9}")
    for name, times in found.items():
        seconds, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:34}{seconds:>9.2f}{files / seconds:>12.0f}{cpu:>9.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Many small objects from S3, beside s5cmd.")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=10_000)
    parser.add_argument("--per-task", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--slots", type=int, default=2, help="of each node")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", action="append", default=[], metavar="PROGRAM")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--peer", action="store_true", help="from node to node, without S3")
    args = parser.parse_args()
    eyas = os.environ.get("EYAS_BIN") or program("eyas")
    if args.peer:
        with tempfile.TemporaryDirectory(dir=args.dir) as made:
            compare_peers([eyas, *args.before], args.files, args.bytes, args.rounds, Path(made))
        return 0
    with tempfile.TemporaryDirectory(dir=args.dir) as made, server(Path(made)) as env:
        folder = Path(made)
        tasks, digests = fill(folder, args.files, args.bytes, args.per_task, env)
        found: dict[str, list[tuple[float, float]]] = {}
        for turn in range(args.rounds):
            # What a round made stays: file systems are slow where much was removed a moment ago.
            work = folder / f"work{turn}"
            work.mkdir()
            copy = [program("s5cmd"), "--log", "error", "cp", f"s3://{BUCKET}/in/*", "copied/"]
            found.setdefault("s5cmd", []).append(timed(copy, work, env))
            n_copied = sum(len(names) for _, _, names in os.walk(work / "copied"))
            assert n_copied == args.files, f"s5cmd copied {n_copied} files"
            for name in [eyas, *args.before]:
                place = work / f"{len(found)}-{turn}-{Path(name).parent.name}"
                place.mkdir()
                shutil.copy(tasks, place)
                run = [
                    name,
                    "run",
                    tasks.name,
                    "--dir",
                    "D",
                    "--nodes",
                    str(args.nodes),
                    "--slots",
                    str(args.slots),
                ]
                found.setdefault(name, []).append(timed(run, place, env))
                for number, digest in enumerate(digests):
                    told = (place / "out" / str(number)).read_text().split()[0]
                    assert told == digest, f"task {number} of {name} has read other bytes"
            load = os.getloadavg()[0]
            took = ", ".join(f"{name} {times[-1][0]:.2f} s" for name, times in found.items())
            print(f"round {turn + 1}: {took}; load {load:.1f}", flush=True)
    print(
        f"{args.files} objects of {args.bytes} B, {args.per_task} for each task; {args.nodes} x {args.slots} slots"
    )
    print(f"{'median of ' + str(args.rounds):34}{'s':>9}{'objects/s':>12}{'of s5cmd':>10}{'CPU s':>9}")
    reference = statistics.median(seconds for seconds, _ in found["s5cmd"])
    for name, times in found.items():
        seconds, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        share = f"{100 * reference / seconds:.0f} %"
        print(f"{name:34}{seconds:>9.2f}{args.files / seconds:>12.0f}{share:>10}{cpu:>9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
