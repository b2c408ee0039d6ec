"""The kinds of providers, and how settings of eyas become arguments of Parsl's classes.

A kind's entry says which of our settings it has. A setting that it lacks is refused by the command line (`ProvideArgs` in
crates/app/cli) before anything is started; this table is the second line of defence, and the one that `docs` and tests read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GIB = 1 << 30
# Of Parsl's classes, what eyas decides itself: users cannot set these.
OURS = frozenset(
    {"init_blocks", "min_blocks", "max_blocks", "parallelism", "nodes_per_block", "walltime", "worker_init"}
)
# Options of ours beside those of Parsl's class, by kind: texts all. Parsl has no word for these.
OWN_OPTIONS: Mapping[str, frozenset[str]] = {
    # The parallel environment that places slots, and the resource that memory is asked for by.
    "grid-engine": frozenset({"pe", "memory_resource"}),
}
# Starts the command that follows on each host of a job of Grid Engine. The first host is the one that the script is on: there is no
# `qrsh` to it, which an environment may refuse. A host stands on a line for each queue.
ON_EACH_HOST = r"""eyas_on_each_host() {
    while read -r eyas_host eyas_slots eyas_number; do
        if [ "$eyas_number" = 1 ]; then
            NSLOTS=$eyas_slots NHOSTS=1 "$@" < /dev/null &
        else
            qrsh -inherit -nostdin "$eyas_host" "$@" < /dev/null &
        fi
    done <<EOF
$(awk '{ if (!n[$1]) host[++k] = $1; n[$1] += $2 } END { for (i = 1; i <= k; i++) print host[i], n[host[i]], i }' "$PE_HOSTFILE")
EOF
    wait
}
eyas_on_each_host"""
# How long a command of a batch system may take, in seconds, where the user does not say it.
COMMAND_MAX_S = 60


@dataclass(frozen=True)
class Settings:
    """What a pool is opened with; None is "not said".

    walltime_s : seconds that a block may live.
    slots, memory_bytes : processors and memory of each node that are asked for.
    options : arguments of Parsl's class by name; they win over what follows from the other settings. For Ray, of its actors.
    gpus : of each node: a number, or "auto". For Ray alone, as `program` is: the path of the program `eyas` here.
    """

    kind: str
    queue: str | None = None
    account: str | None = None
    walltime_s: int | None = None
    nodes_per_job: int = 1
    slots: int | None = None
    memory_bytes: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    gpus: int | str | None = None
    program: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of provider.

    module, cls : where Parsl's class is.
    launcher : the class of `parsl.launchers` that starts one command on each node of a job with several; None: such
        a job is refused.
    packages : what Parsl's class needs beside Parsl, as pip calls it.
    """

    module: str
    cls: str
    launcher: str | None = None
    packages: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "slurm": Kind("parsl.providers.slurm.slurm", "SlurmProvider", "SrunLauncher"),
    "grid-engine": Kind("parsl.providers.grid_engine.grid_engine", "GridEngineProvider", "WrappedLauncher"),
    "pbspro": Kind("parsl.providers.pbspro.pbspro", "PBSProProvider", "MpiExecLauncher"),
    "torque": Kind("parsl.providers.torque.torque", "TorqueProvider", "MpiExecLauncher"),
    "lsf": Kind("parsl.providers.lsf.lsf", "LSFProvider", "JsrunLauncher"),
    "htcondor": Kind("parsl.providers.condor.condor", "CondorProvider"),
    "kubernetes": Kind("parsl.providers.kubernetes.kube", "KubernetesProvider", packages=("kubernetes",)),
    "aws": Kind("parsl.providers.aws.aws", "AWSProvider", packages=("boto3",)),
    "azure": Kind(
        "parsl.providers.azure.azure",
        "AzureProvider",
        packages=("azure-mgmt-compute", "azure-mgmt-network", "azure-mgmt-resource", "msrestazure"),
    ),
    "googlecloud": Kind(
        "parsl.providers.googlecloud.googlecloud",
        "GoogleCloudProvider",
        packages=("google-api-python-client",),
    ),
}


def hours_minutes_seconds(seconds: int) -> str:
    """The form that batch systems take, rounded up to minutes: several of them know nothing shorter."""
    minutes = max(1, math.ceil(seconds / 60))
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def _gib(settings: Settings) -> int | None:
    return None if settings.memory_bytes is None else max(1, math.ceil(settings.memory_bytes / GIB))


def _memory_mib(settings: Settings) -> int | None:
    return None if settings.memory_bytes is None else max(1, math.ceil(settings.memory_bytes / (1 << 20)))


def _lines(*lines: str | None) -> str:
    return "".join(f"{line}\n" for line in lines if line)


def arguments_of(settings: Settings) -> dict[str, Any]:
    """Arguments of Parsl's class that follow from the settings, without the user's own options.

    None stands for a value that was not said; such arguments are left to Parsl's defaults.
    """
    s = settings
    found: dict[str, Any] = {}
    if s.kind == "slurm":
        found = {
            "partition": s.queue,
            "account": s.account,
            "cores_per_node": s.slots,
            "mem_per_node": _gib(s),
        }
        # Whoever says how many processors a node needs can share its machine with others.
        found["exclusive"] = s.slots is None
    elif s.kind == "grid-engine":
        n_slots = s.slots or 1
        pe, resource = s.options.get("pe"), s.options.get("memory_resource")
        # What is asked for by a resource is asked for each slot.
        memory = None if s.memory_bytes is None else math.ceil(s.memory_bytes / n_slots / (1 << 20))
        found = {
            "queue": s.queue,
            # A job with `-notify` is told of its end by this signal, and so is its shell, which has to outlive it.
            "worker_init": "trap : USR2",
            "scheduler_options": _lines(
                s.account and f"#$ -A {s.account}",
                pe and f"#$ -pe {pe} {n_slots * s.nodes_per_job}",
                f"#$ -l {resource}={memory}M" if resource and memory else None,
                s.options.get("scheduler_options"),
            ),
        }
    elif s.kind == "pbspro":
        memory = _memory_mib(s)
        found = {"queue": s.queue, "account": s.account, "cpus_per_node": s.slots}
        found["select_options"] = None if memory is None else f"mem={memory}mb"
    elif s.kind == "torque":
        memory = _memory_mib(s)
        found = {"queue": s.queue, "account": s.account}
        found["scheduler_options"] = _lines(None if memory is None else f"#PBS -l mem={memory}mb")
    elif s.kind == "lsf":
        found = {"queue": s.queue, "project": s.account}
    elif s.kind == "htcondor":
        found = {"project": s.account, "cores_per_slot": s.slots, "mem_per_slot": _gib(s)}
    elif s.kind == "kubernetes":
        memory = _memory_mib(s)
        found = {"max_cpu": s.slots, "init_cpu": s.slots}
        found |= {} if memory is None else {"max_mem": f"{memory}Mi", "init_mem": f"{memory}Mi"}
    found["walltime"] = None if s.walltime_s is None else hours_minutes_seconds(s.walltime_s)
    found["nodes_per_block"] = s.nodes_per_job
    return {name: value for name, value in found.items() if value is not None}
