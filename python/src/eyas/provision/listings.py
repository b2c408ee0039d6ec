"""What a batch system says about all blocks of this user, in one listing: it is asked for names, where it can be.

Parsl's providers ask for ids that they submitted themselves. After a restart nobody has these ids, so eyas asks for names: each
function here runs one command (or call) of its kind, and gives a row for each job.

A row's state is in the words of eyas: `queued`, `running`, `stuck` (the batch system keeps the job back until a person does something
about it) or `ended`. `why` is what the batch system says of a job that is stuck, has ended or waits.
Jobs of others and of other programs are in the rows, too; whoever asked knows its own by their names.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

# A command of the batch system for the shell: exit status, standard output, standard error.
Ask = Callable[[str], tuple[int, str, str]]


class Failed(Exception):
    """A command of the batch system failed; the text is one sentence with its own words."""


@dataclass(frozen=True)
class Row:
    """A job. `why`: why it ended, or waits. `n_nodes` is None where the listing does not say it."""

    id: str
    name: str
    state: str
    why: str = ""
    n_nodes: int | None = None


def words_of(command: str, status: int, out: str, err: str) -> str:
    """One sentence about a command that failed, with the last line that it printed."""
    program = command.split()[0]
    lines = [line.strip() for line in (err.splitlines() or out.splitlines()) if line.strip()]
    # qsub says why in the line before.
    if len(lines) > 1 and lines[-1] == "Exiting.":
        lines.pop()
    if not lines:
        return f"{program} ended with exit status {status} and said nothing"
    return f"{program} ended with exit status {status}: {lines[-1]}"


def _run(ask: Ask, command: str) -> str:
    status, out, err = ask(command)
    if status != 0:
        raise Failed(words_of(command, status, out, err))
    return out


# Put before the names of jobs by Parsl's classes for Torque and HTCondor.
PARSLS = "parsl."


def _user() -> str:
    return getpass.getuser()


def _stage(word: str, queued: Iterable[str], ended: Iterable[str]) -> str:
    if word in queued:
        return "queued"
    return "ended" if word in ended else "running"


SLURM_QUEUED = frozenset(
    "PENDING CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED RESV_DEL_HOLD SPECIAL_EXIT POWER_UP_NODE".split()
)
# Of queued jobs, those that Slurm, or whoever runs it, keeps back: by their states, or by their reasons. A job that its user holds
# (`JobHeldUser`) is none of them.
SLURM_STUCK = frozenset("REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT".split())
TIME_LIMIT = "PartitionTimeLimit"
SLURM_STUCK_REASONS = frozenset(
    {"JobHeldAdmin", "launch failed requeued held", "launch_failed_requeued_held", TIME_LIMIT}
)
# What reasons mean that will not go away by themselves (the manual of squeue, JOB REASON CODES), and the commonest others.
SLURM_REASONS = {
    "BadConstraints": "no node has what the job asks for",
    "BeginTime": "the time that it may begin at has not come",
    "DependencyNeverSatisfied": "a job that it depends on will never end as it should",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its quality of service is not valid",
    "JobHeldAdmin": "an administrator or Slurm itself holds it",
    "JobHeldUser": "its user holds it",
    "NodeDown": "a node that it needs is down",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than its partition has or allows",
    TIME_LIMIT: "it asks for more time than its partition allows",
    "Priority": "jobs with a higher priority wait, too",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "Reservation": "it waits for its reservation",
    "Resources": "it waits for nodes to become free",
}
SLURM_ENDED = frozenset(
    # A job that is being completed has ended. Where its node cannot be reached, it is completed when Slurm gives the node up.
    "COMPLETED COMPLETING FAILED CANCELLED TIMEOUT NODE_FAIL PREEMPTED OUT_OF_MEMORY DEADLINE BOOT_FAIL REVOKED "
    "LAUNCH_FAILED RECONFIG_FAIL".split()
)


def slurm(ask: Ask, options: Mapping[str, Any]) -> list[Row]:
    clusters = options.get("clusters")
    more = f" --clusters={clusters}" if clusters else ""
    rows = []
    # Jobs that ended within the last minutes (MinJobAge, 5 by default) are shown, too, so that one listing says why they did.
    line = f"squeue --noheader --user={os.getuid()} --states=all --format='%i|%j|%T|%D|%r'{more}"
    out = _run(ask, line)
    for line in out.splitlines():
        parts = line.strip().split("|", 4)
        # With several clusters Slurm prints a heading for each.
        if len(parts) != 5:
            continue
        job, name, word, n_nodes, reason = parts
        state = _stage(word, SLURM_QUEUED, SLURM_ENDED)
        why = "" if reason in ("None", "(null)") else reason
        if state == "queued" and (word in SLURM_STUCK or reason in SLURM_STUCK_REASONS):
            state = "stuck"
        if state in ("queued", "stuck"):
            # Some reasons have more behind a comma.
            meaning = SLURM_REASONS.get(re.split(r"[,(]", reason)[0].strip())
            why = f"{why}: {meaning}" if meaning else why
        if state == "stuck":
            why = f"Slurm keeps it back: {why or word}"
        if state == "ended":
            why = word.lower().replace("_", " ") + (f" ({why})" if why else "")
        rows.append(Row(job, name, state, why, int(n_nodes) if n_nodes.isdigit() else None))
    return rows


def slurm_seconds(text: str) -> int | None:
    """A time as Slurm writes it, such as `1-00:00:00` or `30:00`; None: it is no time, or has no end."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def slurm_time(seconds: int) -> str:
    """So many seconds as Slurm writes them."""
    days, rest = divmod(seconds, 24 * 3600)
    hours, minutes = divmod(rest // 60, 60)
    end = f"{minutes:02}:{rest % 60:02}"
    return f"{days}-{hours:02}:{end}" if days else f"{hours}:{end}"


def slurm_time_limit(ask: Ask, partition: str | None, options: Mapping[str, Any]) -> tuple[str, int] | None:
    """A partition, or the one that jobs go to unless they say one, with the seconds that it allows a job at most.

    None where it has no limit, where Slurm does not say it, or where the user's own lines may name another partition.
    """
    if "partition" in (lines := str(options.get("scheduler_options", ""))) or "-p" in lines.split():
        return None
    where = f" --partition={shlex.quote(partition)}" if partition else ""
    where += f" --clusters={options['clusters']}" if options.get("clusters") else ""
    status, out, _ = ask(f"sinfo --noheader --format='%P|%l'{where}")
    rows = {tuple(line.strip().rpartition("|")[::2]) for line in out.splitlines() if status == 0}
    found = [(name.rstrip("*"), limit) for name, limit in rows if partition or name.endswith("*")]
    # With several, Slurm takes whichever allows it.
    if len(found) != 1 or (seconds := slurm_seconds(found[0][1])) is None:
        return None
    return found[0][0], seconds


def grid_engine(ask: Ask, options: Mapping[str, Any]) -> list[Row]:
    out = _run(ask, f"qstat -u '{_user()}' -xml")
    rows = []
    for job in ElementTree.fromstring(out).iter("job_list"):
        word = job.findtext("state") or ""
        # An error state stays until somebody clears it: the job will not run.
        state = "stuck" if "E" in word else "queued" if "q" in word else "running"
        why = f"Grid Engine has it in the error state {word}" if state == "stuck" else ""
        if state == "queued" and "h" in word:
            why = "it is held"
        rows.append(Row(job.findtext("JB_job_number") or "", job.findtext("JB_name") or "", state, why))
    return rows


def grid_engine_errors(ask: Ask, ids: Sequence[str]) -> dict[str, str]:
    """Why these jobs are in an error state, in Grid Engine's words; a job that has no words is left out."""
    status, out, _ = ask(f"qstat -j {','.join(ids)}")
    found: dict[str, str] = {}
    job = ""
    for line in out.splitlines() if status == 0 else ():
        name, _, rest = line.partition(":")
        if name == "job_number":
            job = rest.strip()
        elif name.startswith("error reason") and job not in found:
            # The date, the shepherd's process and the words.
            found[job] = re.sub(r"^\S+ \S+ \[\d+:\d+\]: ", "", rest.strip())
    return found


def grid_engine_why(ask: Ask, job: str) -> str:
    """Why this job waits, in Grid Engine's words; empty where it says nothing of use.

    `qalter -w v` changes nothing: it says whether any queue could hold the job if all of them were empty.
    """
    _, out, err = ask(f"qalter -w v {job}")
    lines = [line.strip() for line in (out + err).splitlines() if line.strip()]
    if not any("no suitable queues" in line for line in lines):
        return (
            "all queues that could hold it are busy"
            if any("found suitable" in line for line in lines)
            else ""
        )
    # A line for each queue: `Job 7 (-l mem=9G) cannot run in queue "all.q@g1" because ...`. They mostly say the same.
    reasons = [found[1] for line in lines if (found := re.match(rf"Job {job} .*?(cannot run .*)", line))]
    because = f": it {reasons[0]}" if reasons else ""
    return f"no queue of Grid Engine can ever hold it{because}"


# What the command that cancels says of a job that is over, or soon will be.
_GONE = {
    "grid-engine": re.compile(
        r"denied: job \"[^\"]*\" does not exist|\S+ has (deleted|registered the) job .*|job \S+ is already in deletion"
    ),
    "pbspro": re.compile(r"qdel: (Job has finished|Unknown Job Id|Request invalid for state of job) \S+"),
    "torque": re.compile(r"qdel: (Unknown Job Id( Error)?|Request invalid for state of job.*) \S+"),
    "lsf": re.compile(
        r"Job <\S+>: (Job has already finished|No matching job found)|Job <\S+> is being terminated"
    ),
    "htcondor": re.compile(
        r"Couldn't find/remove all jobs .*|Job \S+ (not found|marked for removal|removed locally .*)"
        r"|.* has been marked for removal"
    ),
}


def is_gone(kind: str, said: str) -> bool:
    """A cancellation failed with these words, and all that it was to end is over."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = _GONE.get(kind)
    return words is not None and bool(lines) and all(words.fullmatch(line) for line in lines)


def pbspro(ask: Ask, options: Mapping[str, Any]) -> list[Row]:
    ids = _run(ask, f"qselect -u {_user()}").split()
    if not ids:
        return []
    jobs = json.loads(_run(ask, f"qstat -f -F json {' '.join(ids)}")).get("Jobs", {})
    rows = []
    for job, about in jobs.items():
        word = about.get("job_state", "")
        state = _stage(word, "QHWTM", "FX")
        why = f"exit status {about['Exit_status']}" if state == "ended" and "Exit_status" in about else ""
        if state == "queued":
            why = about.get("comment", "")
        rows.append(Row(job, about.get("Job_Name", ""), state, why))
    return rows


def torque(ask: Ask, options: Mapping[str, Any]) -> list[Row]:
    ids = _run(ask, f"qselect -u {_user()}").split()
    if not ids:
        return []
    rows = []
    for job in ElementTree.fromstring(_run(ask, f"qstat -f -x {' '.join(ids)}")).iter("Job"):
        state = _stage(job.findtext("job_state") or "", "QHWT", "C")
        status = job.findtext("exit_status")
        why = f"exit status {status}" if state == "ended" and status else ""
        if state == "queued":
            why = job.findtext("comment") or ""
        name = (job.findtext("Job_Name") or "").removeprefix(PARSLS)
        rows.append(Row(job.findtext("Job_Id") or "", name, state, why))
    return rows


def lsf(ask: Ask, options: Mapping[str, Any]) -> list[Row]:
    command = "bjobs -noheader -o 'jobid stat job_name delimiter=\"|\"'"
    status, out, err = ask(command)
    # Where there is no job, bjobs fails, and says so in these words.
    if status != 0 and "No unfinished job found" not in err:
        raise Failed(words_of(command, status, out, err))
    rows = []
    for line in out.splitlines():
        parts = line.strip().split("|", 2)
        if len(parts) == 3:
            state = _stage(parts[1], ("PEND", "PSUSP", "WAIT", "PROV"), ("DONE", "EXIT", "ZOMBI"))
            why = parts[1].lower() if state == "ended" else ""
            rows.append(Row(parts[0], parts[2], state, why))
    return rows


def htcondor(ask: Ask, options: Mapping[str, Any]) -> list[Row]:
    # Parsl names the script that a job runs after the job, and puts `parsl.` before it.
    out = _run(ask, "condor_q -af ClusterId ProcId JobStatus Args HoldReasonCode HoldReason")
    rows = []
    for line in out.splitlines():
        parts = line.split(None, 5)
        if len(parts) >= 4:
            cluster, process, number, script = parts[:4]
            state = _stage(number, ("1", "5"), ("3", "4"))
            why = {"3": "removed", "4": "completed"}.get(number, "")
            name = script.removeprefix(PARSLS)
            if number == "5" and len(parts) == 6:
                # A job that its user holds (code 1) is let go by the user, and all others by nobody.
                state = "queued" if parts[4] == "1" else "stuck"
                why = f"HTCondor holds it: {parts[5]}"
            rows.append(Row(f"{cluster}.{process}", name, state, why))
    return rows


def kubernetes(client: Any, namespace: str) -> list[Row]:
    """Pods that Parsl's provider made, by the label that it gives them. A pod's name is its block's, a dot and its id."""
    rows = []
    for pod in client.list_namespaced_pod(namespace=namespace, label_selector="parsl-job-id").items:
        phase = pod.status.phase
        state = _stage(phase, ("Pending",), ("Succeeded", "Failed"))
        why = (pod.status.message or phase.lower()) if state == "ended" else ""
        rows.append(Row(pod.metadata.labels["parsl-job-id"], pod.metadata.name, state, why))
    return rows


# Kinds whose listing is a command.
BY_COMMAND: Mapping[str, Callable[[Ask, Mapping[str, Any]], list[Row]]] = {
    "slurm": slurm,
    "grid-engine": grid_engine,
    "pbspro": pbspro,
    "torque": torque,
    "lsf": lsf,
    "htcondor": htcondor,
}
# Kinds whose blocks have no name of ours: their ids are kept in a file.
KINDS_BY_ID = frozenset({"aws", "azure", "googlecloud"})


def block_of(name: str, prefix: str) -> str | None:
    """The block that a job is called after: our prefix and a number, before what Parsl adds. None: it is no block of ours."""
    found = re.match(re.escape(prefix) + r"[1-9][0-9]*(?=$|\.)", name)
    return found[0] if found else None
