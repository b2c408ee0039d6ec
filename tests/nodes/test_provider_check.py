"""`eyas provider check`: one probe, and what is wrong in words; on a real Slurm, and with commands over real processes."""

from __future__ import annotations

import re
import shlex
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch import Batch, shared
from clocks import Clock, build
from harness import Eyas, Finished, need_program, wait_until
from slurm import Slurm, slurm

SLURM = [
    "--provider",
    "slurm",
    "--walltime",
    "10m",
    "--slots",
    "1",
    "--listen",
    "127.0.0.1:0",
    "--list-every",
    "1s",
]


@pytest.fixture(scope="module")
def real() -> Iterator[Slurm]:
    with slurm("PartitionName=short Nodes=ALL MaxTime=60") as made:
        yield made


@pytest.fixture
def commands(tmp_path: Path) -> list[str]:
    """Options of a provider whose jobs are processes of this machine."""
    return ["--listen", "127.0.0.1:0", "--slots", "1", *Batch(tmp_path / "batch").options()]


def check(eyas: Eyas, *options: str, status: int) -> Finished:
    wait = () if "--wait" in options else ("--wait", "60s")
    done = eyas.run("provider", "check", "--cache", "1MiB", *wait, *options, status=status)
    assert not shared(eyas), "no key is left"
    return done


def test_a_good_profile_is_shown_submitted_and_found_good(real: Slurm, eyas: Eyas, tmp_path: Path) -> None:
    eyas.env |= real.env
    (tmp_path / "eyas.toml").write_text(
        '[profile.cpu]\nprovider = "slurm"\npartition = "debug"\nnodes-per-job = 2\nwalltime = "10min"\nslots = 1\n'
        'setup = ["echo loaded"]\nlisten = "127.0.0.1:0"\noptions = { qos = "long" }\n'
    )
    assert "1 profile: cpu" in eyas.run("config", "check").stdout
    # This Slurm has no accounting, so it takes any name of a quality of service.
    done = check(eyas, "--profile", "cpu", status=0)
    for line in ("#SBATCH --partition=debug", "#SBATCH --nodes=2", "#SBATCH --time=10", "#SBATCH --qos=long"):
        assert line in done.stdout, done
    assert "echo loaded" in done.stdout and "executor --join" in done.stdout, done
    assert done.stdout.count("node        ") == 2, done
    assert done.stdout.endswith("good: nodes can be taken like this\n"), done
    wait_until(lambda: not real.queue(), "an empty queue")


def test_what_slurm_refuses_is_said_with_what_to_do(real: Slurm, eyas: Eyas) -> None:
    eyas.env |= real.env
    done = check(eyas, *SLURM, "--partition", "nope", status=3)
    assert (
        "error: the batch system takes no job: sbatch ended with exit status 1: sbatch: error:" in done.stderr
    )
    assert "hint: `sinfo` shows the partitions there are; --partition names one" in done.stderr, done


def test_a_walltime_over_the_partitions_limit_is_said_with_both(real: Slurm, eyas: Eyas) -> None:
    eyas.env |= real.env
    words = ["2h" if word == "10m" else word for word in SLURM]
    done = check(eyas, *words, "--partition", "short", status=3)
    said = "the batch system takes no job: partition short allows at most 1:00:00, and --walltime asks for 2:00:00"
    assert f"error: {said}\nhint: a shorter --walltime may be allowed" in done.stderr, done
    wait_until(lambda: not real.queue(), "an empty queue")


def test_a_program_that_nodes_do_not_have_is_said(real: Slurm, eyas: Eyas) -> None:
    eyas.env |= real.env
    done = check(eyas, *SLURM, "--program", "/no/such/eyas", status=3)
    assert "error: the node has no program /no/such/eyas\n" in done.stderr, done
    wait_until(lambda: not real.queue(), "an empty queue")


def test_a_dispatcher_that_nodes_do_not_reach_is_said(eyas: Eyas, commands: list[str]) -> None:
    done = check(eyas, *commands, "--advertise", "127.0.0.1:1", status=3)
    assert "error: the dispatcher at 127.0.0.1:1 cannot be reached from the node: " in done.stderr, done
    assert "hint: --advertise HOST:PORT" in done.stderr, done


def test_a_folder_for_caches_that_cannot_be_written_is_said(eyas: Eyas, commands: list[str]) -> None:
    done = check(eyas, *commands, "--node-dir", "/proc/nowhere", status=3)
    assert "error: the folder for caches on the node cannot be made: /proc/nowhere: mkdir: " in done.stderr, (
        done
    )


def test_a_start_that_fails_is_said_without_options_of_batch_systems(
    eyas: Eyas, commands: list[str], tmp_path: Path
) -> None:
    (tmp_path / "batch" / "refuse").write_text("no such queue")
    done = check(eyas, *commands, status=3)
    said = "error: no node was requested: --start ended with exit status 3: no such queue\nhint: try the command above by hand\n"
    assert said in done.stderr, done


def test_a_bad_line_of_set_up_is_said_with_its_own_output(eyas: Eyas, commands: list[str]) -> None:
    done = check(eyas, *commands, "--setup", "echo 'no such module: blast' >&2; exit 1", status=3)
    assert "it said last: no such module: blast\n" in done.stderr, done


def test_a_line_of_set_up_that_fails_is_not_passed_over(eyas: Eyas, commands: list[str]) -> None:
    done = check(eyas, *commands, "--setup", "no_such_module load blast", "--setup", "true", status=3)
    assert "it said last: " in done.stderr and "no_such_module: not found\n" in done.stderr, done
    done = check(eyas, *commands, "--setup", "false", status=3)
    assert "hint: the lines of --setup run first, and the first one that fails ends the job" in done.stderr, (
        done
    )


def test_a_variable_of_the_folder_that_the_node_lacks_is_named(eyas: Eyas, commands: list[str]) -> None:
    done = check(eyas, *commands, "--node-dir", "$NO_SUCH_DISK/eyas", status=3)
    assert (
        "error: the variable NO_SUCH_DISK is empty on this node, and --node-dir needs it\n" in done.stderr
    ), done


def test_a_probe_that_waits_in_the_queue_is_ended_with_the_batch_systems_reason(
    real: Slurm, eyas: Eyas
) -> None:
    eyas.env |= real.env
    # No node has so many processors.
    words = ["65" if word == "1" else word for word in SLURM]
    done = check(eyas, *words, "--wait", "6s", status=3)
    said = r"error: the job still waits in the queue after 6 s; the batch system says why: \w+\n"
    assert re.search(said, done.stderr), done
    assert not real.queue()


def test_a_clock_that_is_ten_minutes_off_is_said(eyas: Eyas, commands: list[str], tmp_path: Path) -> None:
    clock = Clock(build(tmp_path), tmp_path / "ahead")
    clock.set(600)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in clock.env.items()]
    done = check(eyas, *commands, *(f"--setup={line}" for line in lines), status=3)
    assert "error: the node's clock is 600 s ahead of this machine's\n" in done.stderr, done


def test_a_c_library_that_is_too_old_is_said(eyas: Eyas, commands: list[str], tmp_path: Path) -> None:
    need_program("cc", "build-essential")
    program = tmp_path / "newer"
    (tmp_path / "newer.c").write_text('#include <stdio.h>\nint main(void) { return puts("x") < 0; }\n')
    subprocess.run(["cc", "-o", program, tmp_path / "newer.c"], check=True, timeout=60)
    data = program.read_bytes()
    # The program asks for a version of the C library that does not exist yet: its name and the name's hash are replaced.
    old = next(v for v in (b"GLIBC_2.34", b"GLIBC_2.33", b"GLIBC_2.17") if v + b"\0" in data)
    data = data.replace(old + b"\0", b"GLIBC_9.99\0"[: len(old) + 1])
    data = data.replace(struct.pack("<I", elf_hash(old)), struct.pack("<I", elf_hash(b"GLIBC_9.99")))
    program.write_bytes(data)
    done = check(eyas, *commands, "--program", str(program), status=3)
    said = f"error: the node's C library is too old for {program}, which needs glibc 9.99\n"
    assert said in done.stderr, done


def elf_hash(name: bytes) -> int:
    """The hash of a symbol version, as the System V ABI defines it."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def test_a_job_that_stays_in_the_queue_is_given_up_and_ended(eyas: Eyas, tmp_path: Path) -> None:
    batch = Batch(tmp_path / "batch")
    (batch.folder / "hold").touch()
    done = check(eyas, "--listen", "127.0.0.1:0", *batch.options(), "--wait", "2s", status=3)
    assert "error: the job still waits in the queue after 2 s\n" in done.stderr, done
    assert not batch.running()


def test_a_probe_that_nobody_waits_for_is_ended(eyas: Eyas, tmp_path: Path) -> None:
    batch = Batch(tmp_path / "batch")
    (batch.folder / "hold").touch()
    running = eyas.start("provider", "check", "--listen", "127.0.0.1:0", *batch.options())
    wait_until(lambda: len(batch.blocks()) == 1, "the probe to be submitted")
    running.signal(signal.SIGINT)
    done = running.wait(status=130)
    assert "error: the probe was not waited for, and is ended\n" in done.stderr, done
    assert batch.calls("stop") and not shared(eyas)
