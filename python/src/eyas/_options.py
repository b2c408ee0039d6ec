"""What a cluster of this process may be like, as arguments of `eyas.Cluster`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .errors import EyasError

if TYPE_CHECKING:
    _Path = str | os.PathLike[str]
    # A number of seconds, or a text such as "10min".
    _Time = int | float | str
    # A number of bytes, or a text such as "2GiB".
    _Size = int | str
    _Amounts = Mapping[str, int] | Iterable[str]

Provider = Literal[
    "local",
    "ssh",
    "allocation",
    "command",
    "ray",
    "slurm",
    "grid-engine",
    "pbspro",
    "torque",
    "lsf",
    "htcondor",
    "kubernetes",
    "aws",
    "azure",
    "googlecloud",
]


class ClusterOptions(TypedDict, total=False):
    """Arguments of `eyas.Cluster` beside the number, slots and caches of its nodes. Each is the option of `eyas run` of its name, with
    `_` for `-`; `eyas run --help` says more. Times are seconds, or texts such as `"10min"`; sizes are bytes, or texts such as `"2GiB"`.

    Where nodes come from
    ---------------------
    provider : `"local"`, processes of this machine; `"ssh"`, the hosts of `hosts`; `"allocation"`, the nodes of the job that this program
        runs in; `"command"`, commands of yours; `"ray"`, nodes of a Ray cluster; else jobs of that batch system or cloud. Such nodes
        end with the cluster, also where this process is killed.
    hosts : a file with hosts, one on a line. All of them are used where `nodes` is not given.
    ssh : how hosts are reached; default: `ssh`.
    program : the program `eyas` on the nodes; default: the path of this one.
    start, list, stop : the three commands of `provider="command"`: one that starts a block, one that lists blocks, one that ends a block.
    address : the Ray cluster, such as `"auto"`.
    list_every : time between two listings; default: 15 s, of Ray 2 s.
    partition : Slurm's partition that jobs go to.
    queue : another batch system's queue that jobs go to.
    account : the account that jobs are charged to.
    nodes_per_job : nodes of each job; default: 1.
    options : anything else that the batch system's provider in Parsl takes, or Ray's actors do, such as `{"qos": "long"}`.
    python : the Python that has Parsl or Ray; default: this one.
    walltime : how long a job may live.
    node_dir : where a node keeps its cache, such as `"$TMPDIR"`, which is what the node has under that name.
    scratch_age : a node's folder that was unused for longer is removed.
    setup : lines for the shell of each node before it starts.
    listen, advertise : the address that the dispatcher listens on, and the one at which nodes reach it, such as `"0.0.0.0:7700"`.

    How nodes come and go, where `nodes` is a range
    -----------------------------------------------
    provisioning : how many are asked for when tasks wait, such as `"exponential"`.
    idle_release : a node ends when it has had no task for this time; default: 30 s.

    Each node
    ---------
    memory : its memory, for tasks that say how much they need.
    cache_memory : how much of its memory holds files of its cache.
    gpus : how many it has, or `"auto"`.
    resource : what it has of named resources, such as `{"licence": 4}`.
    eviction : what leaves a full cache, such as `"lru"`.
    grace : how long programs may go on after SIGTERM.
    home_wait : how long a home that is away is waited for.
    container_command : what runs the programs of tasks that have a container.
    line_shell : the shell of command lines that choose none, `"sh"` or `"bash"`.
    home_local : folders of inputs on the node's own disk, which are read where they are.
    system_users : system users for the programs of each user, such as `"70000-70099"`.

    What the dispatcher decides by
    ------------------------------
    placement : which task goes where, such as `"max-cache-hit"`.
    window, utilisation_threshold : what the policies of the papers look at.
    collectives : how files of workflows are moved, such as `"off"`.
    network : what is known of the network between nodes, such as `"measured"`.
    home_streams, home_rate : transfers from and to home at the same time, and bytes per second, of all nodes together.
    cluster_resource : named resources of the whole cluster.
    lease : time after which a node that is not heard is given up.
    no_event_log : write no event log.

    The cluster
    -----------
    dir : where it keeps its state; default: a new folder.
    dispatchers : how many share the tasks.
    """

    provider: Provider
    hosts: _Path
    ssh: str
    program: _Path
    start: str
    list: str
    stop: str
    address: str
    list_every: _Time
    partition: str
    queue: str
    account: str
    nodes_per_job: int
    options: Mapping[str, Any]
    python: _Path
    walltime: _Time
    node_dir: str
    scratch_age: _Time
    setup: str | Iterable[str]
    listen: str
    advertise: str
    provisioning: str
    idle_release: _Time
    memory: _Size
    cache_memory: _Size
    gpus: int | str
    resource: _Amounts
    eviction: str
    grace: _Time
    home_wait: _Time
    container_command: str
    line_shell: str
    home_local: _Path | Iterable[_Path]
    system_users: str | Iterable[str]
    placement: str
    window: int
    utilisation_threshold: float
    collectives: str
    network: str
    home_streams: int
    home_rate: _Size
    cluster_resource: _Amounts
    lease: _Time
    no_event_log: bool
    dir: _Path
    dispatchers: int


def given(options: Mapping[str, object]) -> list[tuple[str, object]]:
    """The arguments that say something, with values that the module below knows.

    Raises
    ------
    EyasError : a value is none that an argument can have.
    """
    return [(name, _plain(name, value)) for name, value in options.items() if value is not None]


def _plain(name: str, value: object) -> object:
    if isinstance(value, (bool, int, float, str, os.PathLike)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(name, of) for key, of in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [_plain(name, one) for one in value]
    raise EyasError(f"{name} is a {type(value).__name__}: give a text, a number, a path, or several of these")
