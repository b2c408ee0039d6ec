"""A pool: the four calls behind which Parsl's provider of one kind stands.

A pool keeps nothing about blocks between calls, except for the kinds in `listings.KINDS_BY_ID`, whose ids are kept in a file. So a
pool that is opened again goes on with the blocks of the one before.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import os
import re
import shlex
import sys
import tempfile
import time
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import kinds, listings
from .kinds import KINDS, OURS, Settings

# How often Grid Engine is asked why jobs wait, in seconds.
WHY_EVERY_S = 60.0
# How often, and how many times, Slurm is asked whether it means to start a job that asks for more time than its partition allows.
VERDICT_EVERY_S = 1.0
N_VERDICT_LOOKS = 8
# Which of our options says what an option of Parsl's would.
OUR_WORDS = {"nodes_per_block": "nodes-per-job", "walltime": "walltime", "worker_init": "setup"}


class Refused(Exception):
    """Trying again cannot help; the text is one sentence, `hint` another one or None."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True)
class Listed:
    """A block of ours. `state`: queued, running, stuck or ended; `why`: what the batch system says of one that does not run."""

    id: str
    name: str
    state: str
    why: str
    n_nodes: int | None


@dataclass(frozen=True)
class _Call:
    """A command that Parsl gave, and how it ended."""

    command: str
    status: int
    out: str
    err: str


def parsl_version() -> str:
    """Raises Refused where Parsl is not there."""
    if importlib.util.find_spec("parsl") is None:
        raise Refused(
            "this Python has no parsl, which --provider needs for batch systems",
            "pip install 'parsl>=2025.1.13'",
        )
    try:
        return importlib.metadata.version("parsl")
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _make_bare_packages() -> None:
    """Makes `parsl` and `parsl.providers` without running them: they import all of Parsl, of which one provider needs a third.

    That takes half a second of processor time, which the first task of each run would wait for.
    """
    for name in ("parsl", "parsl.providers"):
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            sys.modules[name] = importlib.util.module_from_spec(spec)


def _load(module: str) -> Any:
    """A module of Parsl. Raises ImportError."""
    _make_bare_packages()
    try:
        return importlib.import_module(module)
    except (ImportError, AttributeError):
        # This Parsl, or this provider, needs more of the packages: then all of it is loaded.
        for name in [name for name in sys.modules if name.partition(".")[0] == "parsl"]:
            del sys.modules[name]
        importlib.import_module("parsl")
        return importlib.import_module(module)


def class_of(kind: str) -> Any:
    """Parsl's class of that kind. Raises Refused where it is not there."""
    parsl_version()
    entry = KINDS[kind]
    try:
        return getattr(_load(entry.module), entry.cls)
    except (ImportError, AttributeError) as error:
        raise Refused(f"this Parsl has no provider for {kind}: {error}", "pip install -U parsl") from None


def _annotations(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(cls.__init__))
    except Exception:
        return {}


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is of an annotated type, as far as this can be said."""
    typeguard = importlib.import_module("typeguard")
    try:
        typeguard.check_type(value, wanted)
    except typeguard.TypeCheckError:
        return False
    except Exception:
        return True
    return True


def _name_of(wanted: Any) -> str:
    union = typing.get_origin(wanted) in (typing.Union, getattr(types, "UnionType", None))
    parts = [part for part in typing.get_args(wanted) if part is not type(None)] if union else [wanted]
    words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return " or ".join(words.get(part, getattr(part, "__name__", str(part))) for part in parts)


def adapted(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The user's options as Parsl's class takes them: a number where it wants a text becomes one, and so on."""
    hints = _annotations(class_of(kind))
    found: dict[str, Any] = {}
    for name, value in options.items():
        wanted = hints.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if wanted is not None and is_number and not _fits(value, wanted) and _fits(str(value), wanted):
            value = str(value)
        elif isinstance(value, list) and wanted is not None and not _fits(value, wanted):
            # TOML and JSON have no tuples.
            value = [tuple(item) if isinstance(item, list) else item for item in value]
        found[name] = value
    return found


def complaints(settings: Settings) -> list[tuple[str, str | None]]:
    """What is wrong with the options of a pool, as sentences with hints. Raises Refused where Parsl is not there."""
    cls = class_of(settings.kind)
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(cls.__init__).parameters.items()
        if name != "self"
    }
    hints = _annotations(cls)
    own = kinds.OWN_OPTIONS.get(settings.kind, frozenset())
    wrong: list[tuple[str, str | None]] = []
    for name, value in adapted(settings.kind, settings.options).items():
        if name in OURS:
            word = OUR_WORDS.get(name, "nodes")
            wrong.append((f"the option `{name}` is eyas's own", f"say it by `{word}`"))
        elif name in own:
            if not isinstance(value, str) or not value:
                wrong.append((f"the option `{name}` cannot be {value!r}: it is a text", None))
        elif name not in parameters:
            near = difflib.get_close_matches(name, sorted(own.union(parameters)), 1)
            known = ", ".join(sorted(own.union(parameters) - OURS))
            hint = f"did you mean `{near[0]}`?" if near else f"there are {known}"
            wrong.append((f"--provider {settings.kind} has no option `{name}`", hint))
        elif name == "launcher":
            if not isinstance(value, str) or not hasattr(importlib.import_module("parsl.launchers"), value):
                wrong.append((f"there is no launcher {value!r}", "such as SrunLauncher or MpiExecLauncher"))
        elif name in hints and not _fits(value, hints[name]):
            wrong.append((f"the option `{name}` cannot be {value!r}: it is {_name_of(hints[name])}", None))
    has_environment = "pe" in settings.options or "-pe " in str(settings.options.get("scheduler_options", ""))
    if settings.kind == "grid-engine" and settings.nodes_per_job > 1 and not has_environment:
        wrong.append(
            (
                "jobs of several nodes need a parallel environment of Grid Engine",
                "the option `pe` names one; `qconf -spl` lists them",
            )
        )
    given = kinds.arguments_of(settings).keys() | settings.options.keys()
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            wrong.append((f"--provider {settings.kind} needs the option `{name}`", None))
    return wrong


class Pool:
    """See the module.

    folder : where scripts and what they printed go; nodes see it under the same path.
    book : the file that keeps ids, for kinds that know blocks by nothing else.

    Raises Refused where settings are not possible, or a package is not there.
    """

    def __init__(self, settings: Settings, folder: Path, book: Path) -> None:
        for text, hint in complaints(settings):
            raise Refused(text, hint)
        self.settings = settings
        self.folder = folder
        self._book = _Book(book) if settings.kind in listings.KINDS_BY_ID else None
        self._providers: dict[int, Any] = {}
        self._calls: list[_Call] = []
        self._is_rehearsal = False
        self._n_asked = 0
        # Of Grid Engine: jobs that the last listing had as queued, why such jobs wait, and when that may be asked again.
        self._queued_before: set[str] = set()
        self._why_queued = ""
        self._ask_why_at = 0.0
        # Of Slurm: whether a job of this pool was held against its partition's limit.
        self._has_checked_time = False
        # Commands of all batch systems pass this function; what they print is the best reason that there is.
        cluster: Any = importlib.import_module("parsl.providers.cluster_provider")
        self._execute = cluster.execute_wait
        cluster.execute_wait = self._observed
        # Parsl's own words go to standard error, which is a log.
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
        self._provider(1)

    # ---------------------------------------------------------------- calls

    def submit(self, name: str, script: Path, n_nodes: int) -> str:
        """Requests a block of that name that runs the script on each of its nodes, and gives its id.

        Raises listings.Failed with the batch system's words where there is none.
        """
        provider = self._provider(n_nodes)
        self._calls.clear()
        self._count_request()
        try:
            found = provider.submit(f"/bin/sh {shlex.quote(str(script))}", 1, name)
        except Exception as error:
            raise listings.Failed(self._refusal(provider, error)) from error
        if not found:
            raise listings.Failed(self._refusal(provider, None))
        if self._book:
            self._book.add(str(found), name)
        if self.settings.kind == "slurm" and self.settings.walltime_s and not self._has_checked_time:
            self._check_time(provider, str(found), name)
            self._has_checked_time = True
        return str(found)

    def _refusal(self, provider: Any, error: Exception | None) -> str:
        """Why a submission failed. Slurm names no limit where it refuses a job that asks for too much time."""
        reason = self._reason(error)
        if self.settings.kind == "slurm" and "time limit" in reason.lower():
            words = self._look_up_limit(provider)
            return f"{reason}; {words}" if words else reason
        return reason

    def _look_up_limit(self, provider: Any) -> str | None:
        """What is wrong with the time that jobs of Slurm ask for, in a sentence that names the limit."""
        found = listings.slurm_time_limit(provider.execute_wait, provider.partition, self.settings.options)
        asked = listings.slurm_seconds(provider.walltime)
        if not found or not asked or asked <= found[1]:
            return None
        who = "--walltime asks for" if self.settings.walltime_s else "without --walltime a job asks for"
        limit = listings.slurm_time(found[1])
        return f"partition {found[0]} allows at most {limit}, and {who} {listings.slurm_time(asked)}"

    def _check_time(self, provider: Any, job: str, name: str) -> None:
        """Takes a job back that Slurm will never start, as its partition allows less time. Raises listings.Failed then.

        The limit alone does not say so: a quality of service may lift it. So Slurm's own reason decides.
        """
        too_long = self._look_up_limit(provider)
        for _ in range(N_VERDICT_LOOKS if too_long else 0):
            time.sleep(VERDICT_EVERY_S)
            rows = listings.slurm(provider.execute_wait, self.settings.options)
            states = [row for row in rows if row.id == job]
            if any(listings.TIME_LIMIT in row.why for row in states):
                self.cancel([(job, name)])
                raise listings.Failed(str(too_long))
            if any(row.state != "queued" for row in states):
                return

    def blocks(self, prefix: str) -> list[Listed]:
        """All blocks whose names are `prefix` and a number. Raises listings.Failed."""
        self._count_request()
        if self._book:
            return self._listed_by_id(prefix)
        provider = self._provider(1)
        if self.settings.kind == "kubernetes":
            try:
                rows = listings.kubernetes(provider.kube_client, provider.namespace)
            except Exception as error:
                raise listings.Failed(_sentence(error)) from error
        else:
            try:
                rows = listings.BY_COMMAND[self.settings.kind](provider.execute_wait, self.settings.options)
            except listings.Failed:
                raise
            except Exception as error:
                raise listings.Failed(_sentence(error)) from error
        found = []
        for row in rows:
            block = listings.block_of(row.name, prefix)
            if block is None:
                continue
            self._know(provider, row.id, row.name)
            found.append(Listed(row.id, block, row.state, row.why, row.n_nodes))
        if self.settings.kind == "grid-engine":
            return self._with_reasons(provider, found)
        late = [block for block in found if block.state == "stuck" and listings.TIME_LIMIT in block.why]
        if late and (words := self._look_up_limit(provider)):
            why = f"Slurm keeps it back: {words}"
            return [replace(block, why=why) if block in late else block for block in found]
        return found

    def _with_reasons(self, provider: Any, found: list[Listed]) -> list[Listed]:
        """The same with Grid Engine's words, which its listing lacks: for jobs in an error state, and for those that stay queued.

        All jobs of a pool ask for the same, so one of them is asked about, at most once in `WHY_EVERY_S`.
        """
        stuck = [block.id for block in found if block.state == "stuck"]
        errors = listings.grid_engine_errors(provider.execute_wait, stuck) if stuck else {}
        queued = [block.id for block in found if block.state == "queued" and not block.why]
        stays = [job for job in queued if job in self._queued_before]
        now = time.monotonic()
        if stays and now >= self._ask_why_at:
            self._ask_why_at = now + WHY_EVERY_S
            self._why_queued = listings.grid_engine_why(provider.execute_wait, stays[0])
        self._queued_before = set(queued)

        def words(block: Listed) -> Listed:
            if block.id in errors:
                return replace(block, why=f"{block.why}: {errors[block.id]}")
            return replace(block, why=self._why_queued) if block.id in stays else block

        return [words(block) for block in found]

    def cancel(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Ends blocks, each given as its id and name; that one is over already is no failure. Raises listings.Failed."""
        provider = self._provider(1)
        ids = []
        for job, name in jobs:
            if self.settings.kind == "kubernetes" and job not in provider.resources:
                # A pod is deleted by its name, which a listing shows.
                rows = listings.kubernetes(provider.kube_client, provider.namespace)
                pods = [row.name for row in rows if row.id == job]
                if not pods:
                    continue
                name = pods[0]
            self._know(provider, job, name)
            ids.append(job)
        if not ids:
            return
        self._count_request()
        self._calls.clear()
        try:
            is_done = provider.cancel(ids)
        except Exception as error:
            raise listings.Failed(self._reason(error)) from error
        said = "\n".join(call.out + call.err for call in self._calls)
        if not all(is_done) and not listings.is_gone(self.settings.kind, said):
            raise listings.Failed(self._reason(None))
        if self._book:
            for job in ids:
                self._book.remove(job)

    def describe(self, name: str, script: Path, n_nodes: int) -> tuple[str, str]:
        """What `submit` would do: the batch system's script, and the command that it is handed in by.

        Of kinds without a command both are empty.
        """
        if self.settings.kind not in listings.BY_COMMAND:
            return "", ""
        provider = self._provider(n_nodes)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            before, provider.script_dir = provider.script_dir, folder
            self._calls.clear()
            self._is_rehearsal = True
            try:
                with _quiet():
                    provider.submit(f"/bin/sh {shlex.quote(str(script))}", 1, name)
            except Exception:
                # Nobody answered it, so it failed.
                pass
            finally:
                self._is_rehearsal = False
                provider.script_dir = before
            # HTCondor has a script besides the description of the job.
            texts = [path.read_text() for path in sorted(Path(folder).iterdir())]
            command = self._calls[-1].command if self._calls else ""
            shown = f"{self.folder}/"
            return "\n".join(texts).replace(f"{folder}/", shown), command.replace(f"{folder}/", shown)

    def taken_calls(self) -> int:
        """How often the batch system was asked since this was called last: commands that were run, or else requests."""
        n, self._n_asked = self._n_asked, 0
        return n

    # ---------------------------------------------------------------- inside

    def _count_request(self) -> None:
        """Where commands are run, these are counted."""
        if self.settings.kind not in listings.BY_COMMAND:
            self._n_asked += 1

    def _provider(self, n_nodes: int) -> Any:
        """Parsl's provider for blocks of so many nodes."""
        if n_nodes not in self._providers:
            s = self.settings
            cls = class_of(s.kind)
            known = inspect.signature(cls.__init__).parameters
            ours = kinds.arguments_of(replace(s, nodes_per_job=n_nodes))
            given = ours | adapted(s.kind, s.options)
            if s.kind == "grid-engine":
                # The user's lines stand below ours.
                given["scheduler_options"] = ours["scheduler_options"]
            given["nodes_per_block"] = n_nodes
            given["launcher"] = self._launcher(n_nodes)
            given.setdefault("cmd_timeout", kinds.COMMAND_MAX_S)
            if s.kind == "aws":
                given.setdefault("state_file", str(self.folder.parent / "aws.json"))
            # Parsl's class for Slurm asks for the accounting, which eyas does not use, and which may hang.
            before, self._is_rehearsal = self._is_rehearsal, True
            try:
                provider = cls(**{name: value for name, value in given.items() if name in known})
            except Exception as error:
                raise Refused(
                    f"--provider {s.kind}: {_sentence(error)}", _packages_hint(s.kind, error)
                ) from error
            finally:
                self._is_rehearsal = before
            provider.script_dir = str(self.folder)
            if s.kind == "googlecloud":
                _tame_google(provider, self._book)
            self._providers[n_nodes] = provider
        return self._providers[n_nodes]

    def _launcher(self, n_nodes: int) -> Any:
        launchers = importlib.import_module("parsl.launchers")
        name = self.settings.options.get("launcher")
        if n_nodes == 1 and name is None:
            return launchers.SimpleLauncher()
        name = name or KINDS[self.settings.kind].launcher
        if name is None:
            raise Refused(
                f"eyas does not know how jobs of {self.settings.kind} start a command on each of their nodes",
                "leave out nodes-per-job, or name a launcher of Parsl in `options`",
            )
        # One node that ends is no reason to end the others.
        more = {"overrides": "--kill-on-bad-exit=0 --mpi=none"} if name == "SrunLauncher" else {}
        if name == "WrappedLauncher":
            more = {"prepend": kinds.ON_EACH_HOST}
        return getattr(launchers, name)(**more)

    def _know(self, provider: Any, job: str, name: str) -> None:
        """Lets Parsl cancel or ask about a block that another process may have submitted."""
        states = importlib.import_module("parsl.jobs.states")
        if job not in provider.resources:
            provider.resources[job] = {
                "job_id": job,
                "status": states.JobStatus(states.JobState.PENDING),
                "job_stdout_path": None,
                "job_stderr_path": None,
                "pod_name": name,
            }
        instances = getattr(provider, "instances", None)
        if isinstance(instances, list) and job not in instances:
            instances.append(job)

    def _listed_by_id(self, prefix: str) -> list[Listed]:
        assert self._book
        provider = self._provider(1)
        found = []
        for job, name in self._book.all().items():
            if listings.block_of(name, prefix) is None:
                continue
            self._know(provider, job, name)
            try:
                (status,) = provider.status([job])
            except Exception as error:
                raise listings.Failed(_sentence(error)) from error
            state = "ended" if status.terminal else "queued" if status.state.name == "PENDING" else "running"
            found.append(
                Listed(job, name, state, status.state.name.lower() if state == "ended" else "", None)
            )
            if status.terminal:
                self._book.remove(job)
        return found

    def _observed(self, command: str, walltime: int | None = None) -> tuple[int, str, str]:
        if self._is_rehearsal:
            self._calls.append(_Call(command, 1, "", ""))
            return 1, "", ""
        self._n_asked += 1
        status, out, err = self._execute(command, walltime)
        self._calls.append(_Call(command, status, out, err))
        return status, out, err

    def _reason(self, error: Exception | None) -> str:
        """Why a call failed: the batch system's own words, where a command of it failed."""
        for call in reversed(self._calls):
            if call.status != 0:
                return listings.words_of(call.command, call.status, call.out, call.err)
        return _sentence(error) if error else "the provider refused it and said nothing"


class _Book:
    """Ids of blocks with their names, in a file that survives this process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> dict[str, str]:
        try:
            found = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {}
        return {str(job): str(name) for job, name in found.items()}

    def add(self, job: str, name: str) -> None:
        self._write(self.all() | {job: name})

    def remove(self, job: str) -> None:
        known = self.all()
        if known.pop(job, None) is not None:
            self._write(known)

    def _write(self, known: dict[str, str]) -> None:
        part = self.path.with_suffix(".part")
        with open(part, "w") as file:
            json.dump(known, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.path)


def _tame_google(provider: Any, book: _Book | None) -> None:
    """Parsl's class ends all machines when Python does, and counts their names from 0 each time."""
    atexit = importlib.import_module("atexit")
    atexit.unregister(provider.bye)
    known = [re.fullmatch(r"parslauto(\d+)", job) for job in (book.all() if book else {})]
    provider.num_instances = 1 + max((int(match[1]) for match in known if match), default=-1)


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _packages_hint(kind: str, error: Exception) -> str | None:
    packages = KINDS[kind].packages
    if type(error).__name__ == "OptionalModuleMissing" and packages:
        return f"pip install {' '.join(packages)}"
    return None
