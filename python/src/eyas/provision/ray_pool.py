"""A pool whose nodes are those of a Ray cluster: behind its four calls stand actors in place of a batch system's jobs.

A block is one node. A block that waits for a node is a line in the book and a placement group, which is demand that Ray's
autoscaler sees; the group goes with this process. A block that runs is a named, detached actor of `ray_node.Node` that has reserved
its processors, memory and gpus on one node. So a pool that is opened again goes on with both.

A node holds at most one actor of a cluster. Which nodes there are, whether one is lost, and which are started: Ray says it.
"""

from __future__ import annotations

import difflib
import importlib
import json
import logging
import math
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import listings
from .kinds import Settings
from .pool import Listed, Refused, _Book, _sentence

# How long an address may take to accept a connection, in seconds.
ANSWER_MAX_S = 5.0
# How long actors may take to say how they are.
STATUS_MAX_S = 5.0
# How long actors may take to end in order.
END_MAX_S = 4.0
# Ray starts an actor again whose process was killed, so many times.
RESTARTS_MAX = 3
# How the words of Ray's client begin where the other side could not let it in.
FROM_SERVER = "Initialization failure from server:"
# What Ray's constructor of actors takes and eyas leaves to users, and whether a value fits.
OPTIONS: dict[str, tuple[str, Any]] = {
    "resources": (
        "a section of names and numbers above 0",
        lambda value: isinstance(value, dict) and all(_is_positive(n) for n in value.values()),
    ),
    "accelerator_type": ("a text", lambda value: isinstance(value, str)),
    "runtime_env": ("a section", lambda value: isinstance(value, dict)),
}
# What users may look for there, and what says it in eyas.
OUR_WORDS = {
    "num_cpus": "slots",
    "num_gpus": "gpus",
    "memory": "memory",
    "name": "nothing: eyas names actors after the cluster",
    "namespace": "nothing: it is called after the cluster",
}
GONE = ("DEAD",)
# What Ray says of an actor that it did not start, as the part of Ray that was to start it did not know the node of the actor.
NODE_UNKNOWN = "NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible"
# So often in a row a block waits for a node again for that.
NODES_UNKNOWN_MAX = 3


def _is_positive(n: Any) -> bool:
    return isinstance(n, (int, float)) and not isinstance(n, bool) and n > 0


def ray_version() -> str:
    """Raises Refused where Ray is not there."""
    try:
        return str(importlib.import_module("ray").__version__)
    except ModuleNotFoundError as error:
        raise Refused(
            f"this Python has no {error.name}, which --provider ray needs", "pip install 'ray>=2.9'"
        ) from None


def complaints(settings: Settings) -> list[tuple[str, str | None]]:
    """What is wrong with the options, as sentences with hints."""
    wrong: list[tuple[str, str | None]] = []
    for name, value in settings.options.items():
        if name in OUR_WORDS:
            wrong.append((f"the option `{name}` is eyas's own", f"say it by `{OUR_WORDS[name]}`"))
        elif name not in OPTIONS:
            near = difflib.get_close_matches(name, sorted(OPTIONS), 1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted(OPTIONS))}"
            wrong.append((f"--provider ray has no option `{name}`", hint))
        elif not OPTIONS[name][1](value):
            wrong.append((f"the option `{name}` cannot be {value!r}: it is {OPTIONS[name][0]}", None))
    return wrong


@dataclass(frozen=True)
class Share:
    """What a block gets of a node. `node` is Ray's id of it; memory is in bytes."""

    node: str
    cpus: int
    gpus: int
    memory: int


@dataclass
class View:
    """What Ray says: by node its place, all resources and the free ones; by name of an actor its state, its node and why it ended, and
    Ray's id of it."""

    places: dict[str, str] = field(default_factory=dict)
    totals: dict[str, dict[str, float]] = field(default_factory=dict)
    free: dict[str, dict[str, float]] = field(default_factory=dict)
    actors: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)


def look(prefix: str) -> tuple[Any, Any, Any]:
    """The nodes, what is free on each, and all actors whose names begin with `prefix`. It runs where Ray's global state is: in a driver,
    or in a task on the cluster.

    Ray has no public call for the last two that works without its dashboard.
    """
    ray: Any = importlib.import_module("ray")
    state: Any = importlib.import_module("ray._private.state")
    nodes = [(n["NodeID"], n["NodeManagerAddress"], n["Resources"]) for n in ray.nodes() if n["Alive"]]
    actors = []
    for actor in state.actors().values():
        if actor["Name"].startswith(prefix):
            cause = actor["DeathCause"]
            which = cause.WhichOneof("context") if cause else None
            why = str(getattr(getattr(cause, which), "error_message", "")) if which else ""
            actors.append((actor["Name"], actor["State"], actor["Address"]["NodeID"], why, actor["ActorID"]))
    return nodes, state.available_resources_per_node(), actors


def share_of(settings: Settings, node: str, total: dict[str, float], free: dict[str, float]) -> Share | None:
    """What a block gets of this node; None: the node has too little that is free.

    Without `slots` it is all that is free. With `slots` memory goes with the processors, unless it is said.
    """
    cpus = math.floor(free.get("CPU", 0.0)) if settings.slots is None else settings.slots
    if cpus < 1 or free.get("CPU", 0.0) < cpus:
        return None
    if isinstance(settings.gpus, int):
        gpus = settings.gpus
    else:
        takes_all = settings.gpus == "auto" or settings.slots is None
        gpus = math.floor(free.get("GPU", 0.0)) if takes_all else 0
    if free.get("GPU", 0.0) < gpus:
        return None
    memory = settings.memory_bytes
    if memory is None:
        part = total.get("memory", 0.0) * min(1.0, cpus / max(total.get("CPU", 0.0), 1.0))
        memory = math.floor(min(part, free.get("memory", 0.0)))
    elif free.get("memory", 0.0) < memory:
        return None
    more = dict(settings.options.get("resources", {}))
    if "accelerator_type" in settings.options:
        more[f"accelerator_type:{settings.options['accelerator_type']}"] = 0.001
    if any(free.get(name, 0.0) < n for name, n in more.items()):
        return None
    return Share(node, cpus, gpus, memory)


class RayPool:
    """See the module; `folder` and `book` are as for `pool.Pool`, and `address` is one that `ray.init` takes."""

    def __init__(self, settings: Settings, folder: Path, book: Path, address: str) -> None:
        for text, hint in complaints(settings):
            raise Refused(text, hint)
        self.settings = settings
        self.folder = folder
        self._book = _Book(book)
        self._address = address
        # Placement groups of blocks that wait, by name.
        self._groups: dict[str, Any] = {}
        # Nodes of actors that this process has requested and that may not be there yet.
        self._placed: dict[str, str] = {}
        # The key that each actor has, as far as this process knows.
        self._keys: dict[str, str] = {}
        # Blocks whose actors were seen at work, how often in a row Ray did not know the node of others, and its ids of these actors.
        self._begun: set[str] = set()
        self._n_unknown: dict[str, int] = {}
        self._unstarted: set[str] = set()
        # The last words of actors that ended.
        self._ends: dict[str, str] = {}
        self._n_asked = 0
        self._program: tuple[dict[str, Any], Any] | None = None
        ray_version()
        self._ray: Any = importlib.import_module("ray")
        self._connect()

    # ---------------------------------------------------------------- calls

    def submit(self, name: str, script: Path, n_nodes: int) -> str:
        self._book.add(name, name)
        try:
            self._place(self._view(name.rpartition("-")[0] + "-"))
        except Exception as error:
            self._forget(name)
            raise listings.Failed(_sentence(error)) from error
        return name

    def blocks(self, prefix: str) -> list[Listed]:
        try:
            view = self._place(self._view(prefix))
            self._renew_keys(view)
            ends = self._ask_for_ends(view)
        except Exception as error:
            raise listings.Failed(f"Ray does not answer: {_sentence(error)}") from error
        found = []
        for name, (state, _, why) in view.actors.items():
            if state in GONE:
                self._placed.pop(name, None)
                found.append(Listed(name, name, "ended", self._ends.get(name) or _cause(why), 1))
            elif name in ends:
                found.append(Listed(name, name, "ended", ends[name], 1))
            else:
                is_there = state in ("ALIVE", "RESTARTING")
                found.append(Listed(name, name, "running" if is_there else "queued", "", 1))
        listed = {block.name for block in found}
        for name in self._book.all().keys() - listed:
            if listings.block_of(name, prefix):
                found.append(Listed(name, name, "queued", "", 1))
        for name in self._placed.keys() - listed:
            found.append(Listed(name, name, "queued", "", 1))
        return found

    def cancel(self, jobs: Sequence[tuple[str, str]]) -> None:
        for name, _ in jobs:
            self._forget(name)
            self._placed.pop(name, None)
        self._n_asked += 1
        try:
            asked = [handle for name, _ in jobs if (handle := self._find(name)) is not None]
            refs = [handle.end.remote() for handle in asked]
            if refs:
                self._ray.wait(refs, num_returns=len(refs), timeout=END_MAX_S)
            deadline = time.monotonic() + END_MAX_S
            left = [name for name, _ in jobs]
            while left and time.monotonic() < deadline:
                left = [name for name in left if self._find(name) is not None]
                time.sleep(0.1 if left else 0)
            for name in left:
                handle = self._find(name)
                if handle is not None:
                    self._ray.kill(handle, no_restart=True)
        except Exception as error:
            raise listings.Failed(f"Ray does not answer: {_sentence(error)}") from error

    def describe(self, name: str, script: Path, n_nodes: int) -> tuple[str, str]:
        view = self._view(name.rpartition("-")[0] + "-")
        lines = [f"the actor {name} in the namespace {_namespace(name)}, on one of these nodes of Ray:"]
        for node, total in view.totals.items():
            share = share_of(self.settings, node, total, view.free.get(node, {}))
            said = (
                f"{share.cpus} processors, {share.gpus} gpus and {share.memory >> 20} MiB"
                if share
                else "too little is free"
            )
            lines.append(f"  {view.places[node]} ({node[:8]}): {said}")
        return "\n".join(lines), "a call of Ray"

    def taken_calls(self) -> int:
        """How often Ray was asked what there is, or for something, since this was called last."""
        n, self._n_asked = self._n_asked, 0
        return n

    # ---------------------------------------------------------------- inside

    def _connect(self) -> None:
        address, ray = self._address, self._ray
        at = address.removeprefix("ray://")
        host, _, port = at.rpartition(":")
        if address != "auto":
            if not host or not port.isdigit():
                raise Refused(
                    f"--address {address} is no address of Ray",
                    "write auto, HOST:PORT of a cluster that this machine is a node of, or ray://HOST:PORT",
                )
            try:
                socket.create_connection((host.strip("[]"), int(port)), ANSWER_MAX_S).close()
            except OSError as error:
                raise Refused(
                    f"no Ray answers at {at}: {error.strerror or error}",
                    "`ray start --head` prints its address, and `ray status --address HOST:PORT` asks it",
                ) from None
        # Ray's head starts a process for each client, and gives up after 30 s, which a busy machine may take once.
        for is_last in (not self._is_client(), True):
            try:
                # The words of all actors would come here as well.
                ray.init(
                    address=address,
                    namespace="eyas",
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                    configure_logging=True,
                )
                return
            except Exception as error:
                if is_last or not str(error).startswith(FROM_SERVER):
                    raise _refusal(address, error) from None

    def _is_client(self) -> bool:
        return self._address.startswith("ray://")

    def _view(self, prefix: str) -> View:
        self._n_asked += 1
        if self._is_client():
            task = self._ray.remote(num_cpus=0)(_by_value(look))
            nodes, free, actors = self._ray.get(task.remote(prefix), timeout=60)
        else:
            nodes, free, actors = look(prefix)
        view = View()
        for node, place, total in nodes:
            view.places[node], view.totals[node], view.free[node] = place, total, dict(free.get(node, {}))
        for name, state, node, why, actor in actors:
            block = listings.block_of(name, prefix)
            # Of several with one name all but one are over.
            if block != name or actor in self._unstarted or (name in view.actors and state in GONE):
                continue
            view.actors[name], view.ids[name] = (state, node, why), actor
        return view

    def _put_back(self, view: View) -> None:
        """Blocks whose actors Ray could not start wait again, where another node, or the same one a moment later, may do."""
        for name, (state, _, why) in list(view.actors.items()):
            if state not in GONE:
                if state == "ALIVE":
                    self._n_unknown.pop(name, None)
                    self._begun.add(name)
                continue
            n = self._n_unknown.get(name, 0)
            is_ours = name in self._placed and name not in self._begun
            if NODE_UNKNOWN in why and is_ours and n < NODES_UNKNOWN_MAX:
                self._n_unknown[name] = n + 1
                self._unstarted.add(view.ids[name])
                self._book.add(name, name)
                del view.actors[name], self._placed[name]

    def _place(self, view: View) -> View:
        """Gives blocks that wait the nodes that are free, and asks Ray for nodes for the others."""
        self._put_back(view)
        waiting = []
        for name in sorted(self._book.all(), key=lambda name: int(name.rpartition("-")[2])):
            if name in view.actors:
                self._forget(name)
            else:
                waiting.append(name)
        states = {name: state for name, (state, _, _) in view.actors.items()}
        placed = {name: node for name, node in self._placed.items() if states.get(name) not in GONE}
        taken = {node for state, node, _ in view.actors.values() if state not in GONE} | set(placed.values())
        by_node = self._groups_by_node(view)
        # Ray may give a node that was free for a moment to a group before the actor that is started there has asked for it.
        # The actor would wait for the group, and the group's block for a node that Ray sees no reason to add.
        for name, node in placed.items():
            for group in by_node.pop(node, []) if states.get(name) != "ALIVE" else []:
                self._remove_group(group)
        for node, total in view.totals.items():
            if not waiting or node in taken:
                continue
            share = share_of(self.settings, node, total, view.free[node])
            if share is None:
                continue
            # Takes a while, in which the node would be free for others.
            self._put_program()
            # Groups of ours that Ray has put there have done their work.
            for name in by_node.get(node, []):
                self._remove_group(name)
            name = waiting.pop(0)
            self._start(name, share)
            self._forget(name)
        shape = self._shape(view)
        for name in waiting:
            if name not in self._groups:
                util = importlib.import_module("ray.util")
                self._groups[name] = util.placement_group([shape], strategy="PACK")
        return view

    def _groups_by_node(self, view: View) -> dict[str, list[str]]:
        """Which groups Ray has given room on which node. What they hold counts as free from then on."""
        found: dict[str, list[str]] = {}
        if not self._groups:
            return found
        util = importlib.import_module("ray.util")
        for name, group in self._groups.items():
            about = util.placement_group_table(group)
            if about.get("state") != "CREATED":
                continue
            for index, node in about["bundles_to_node_id"].items():
                if node in view.free:
                    found.setdefault(node, []).append(name)
                    for resource, n in about["bundles"][index].items():
                        view.free[node][resource] = view.free[node].get(resource, 0.0) + n
        return found

    def _shape(self, view: View) -> dict[str, float]:
        """What a block that waits asks for. Where whole nodes are wanted, the smallest node that there is says how large one is."""
        sizes = [total["CPU"] for total in view.totals.values() if total.get("CPU", 0.0) >= 1]
        settings = self.settings
        shape = {"CPU": float(settings.slots or (min(sizes) if sizes else 1))}
        if isinstance(settings.gpus, int) and settings.gpus:
            shape["GPU"] = float(settings.gpus)
        if settings.memory_bytes is not None:
            shape["memory"] = float(settings.memory_bytes)
        shape |= {name: float(n) for name, n in settings.options.get("resources", {}).items()}
        if "accelerator_type" in settings.options:
            shape[f"accelerator_type:{settings.options['accelerator_type']}"] = 0.001
        return shape

    def _start(self, name: str, share: Share) -> None:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        settings = self.settings
        key = self._key()
        # The actor holds the executor's standard input open, so the executor ends with the actor.
        args = ["--until-stdin-closes"]
        if settings.slots is None:
            args += ["--slots", str(share.cpus)]
        if settings.memory_bytes is None:
            args += ["--memory", str(share.memory)]
        if settings.gpus is None and share.gpus:
            args += ["--gpus", "auto"]
        program, ref = self._put_program()
        spec = {
            "key": key,
            "script": (self.folder / f"{name}.sh").read_text(),
            "args": args,
            "cpus": share.cpus,
            "program": program,
        }
        ray_node = _by_value(importlib.import_module(".ray_node", __package__))
        actor = self._ray.remote(ray_node.Node).options(
            name=name,
            namespace=_namespace(name),
            lifetime="detached",
            num_cpus=share.cpus,
            num_gpus=share.gpus,
            memory=share.memory or None,
            max_restarts=RESTARTS_MAX,
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(share.node, soft=False),
            **settings.options,
        )
        actor.remote(spec, [ref])
        self._placed[name] = share.node
        self._keys[name] = key

    def _put_program(self) -> tuple[dict[str, Any], Any]:
        """The program in Ray's object store, once."""
        if self._program is None:
            ray_node = importlib.import_module(".ray_node", __package__)
            path = Path(self.settings.program)
            content = path.read_bytes()
            spec = {"path": str(path), "size": len(content), "digest": ray_node.digest_of(content)}
            self._program = spec, self._ray.put(content)
        return self._program

    def _key(self) -> str:
        """The join file in one line, as executors read it from their standard input."""
        return json.dumps(json.loads((self.folder / "join.json").read_text()))

    def _find(self, name: str) -> Any:
        """The actor of a block, None where there is none."""
        try:
            return self._ray.get_actor(name, namespace=_namespace(name))
        except ValueError:
            return None

    def _forget(self, name: str) -> None:
        """The block does not wait any more."""
        self._book.remove(name)
        self._remove_group(name)

    def _remove_group(self, name: str) -> None:
        group = self._groups.pop(name, None)
        if group is not None:
            importlib.import_module("ray.util").remove_placement_group(group)

    def _renew_keys(self, view: View) -> None:
        key = self._key()
        for name, (state, _, _) in view.actors.items():
            if state == "ALIVE" and self._keys.get(name) != key:
                handle = self._find(name)
                if handle is not None:
                    handle.set_key.remote(key)
                    self._keys[name] = key

    def _ask_for_ends(self, view: View) -> dict[str, str]:
        """Of actors whose executors have ended, why. What the executor printed goes into a file beside the block's script."""
        handles = {name: self._find(name) for name, (state, *_) in view.actors.items() if state == "ALIVE"}
        refs = {handle.status.remote(): name for name, handle in handles.items() if handle is not None}
        if not refs:
            return {}
        done, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=STATUS_MAX_S)
        ends: dict[str, str] = {}
        for ref in done:
            name = refs[ref]
            try:
                status = self._ray.get(ref)
            except self._ray.exceptions.RayError:
                continue  # The next look shows what became of it.
            if status["code"] is not None:
                (self.folder / f"{name}.log").write_text("".join(f"{line}\n" for line in status["lines"]))
                how = status["code"]
                ends[name] = f"its executor ended with {'signal' if how < 0 else 'exit status'} {abs(how)}"
        self._ends |= ends
        return ends


def _namespace(name: str) -> str:
    """The namespace of a block's actor: what the names of all blocks of its cluster begin with."""
    return name.rpartition("-")[0]


def _by_value(what: Any) -> Any:
    """A function or a module of this package, which the nodes need not have."""
    cloudpickle = importlib.import_module("ray.cloudpickle")
    module = importlib.import_module(what.__module__) if hasattr(what, "__module__") else what
    cloudpickle.register_pickle_by_value(module)
    return what


def _cause(why: str) -> str:
    """Why Ray says that an actor is dead, in one sentence."""
    low = why.lower()
    if NODE_UNKNOWN in why:
        return "Ray did not know the node that its actor was to start on"
    if "node" in low and ("died" in low or "dead" in low or "terminated" in low or "unexpectedly" in low):
        return "Ray has lost the node"
    if "ray.kill" in low:
        return "its actor was ended"
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    return f"Ray has ended its actor: {lines[0]}" if lines else "Ray has ended its actor"


def _refusal(address: str, error: Exception) -> Refused:
    text = str(error)
    versions = re.findall(r"(Ray|Python): ([\w.+-]+)", text)
    if "ersion mismatch" in text and len(versions) >= 4:
        (_, ray1), (_, python1), (_, ray2), (_, python2) = versions[:4]
        return Refused(
            f"the Ray cluster has Ray {ray1} with Python {python1}, and this Python has Ray {ray2} with Python {python2}",
            "both have to be the same; --python PATH names another Python",
        )
    if address == "auto" and isinstance(error, ConnectionError):
        return Refused(
            "this machine is no node of a running Ray cluster, and RAY_ADDRESS is not set",
            "--address HOST:PORT or ray://HOST:PORT names the cluster, and `ray start` makes this machine a node",
        )
    if "grpc" in text and isinstance(error, ImportError):
        return Refused("this Ray cannot be a client of another machine's", "pip install 'ray[client]'")
    if "raylet" in text or ("node" in text.lower() and not address.startswith("ray://")):
        return Refused(
            f"this machine is no node of the Ray cluster at {address}: {_sentence(error)}",
            "from outside, the address is ray://HOST:10001",
        )
    # What failed at the other side is told as a traceback, whose last line says why.
    why = text.strip().splitlines()[-1].strip() if text.startswith(FROM_SERVER) else _sentence(error)
    return Refused(f"cannot connect to Ray at {address}: {why}")
