"""Requests as tasks of a cluster: plan, submit, follow, collect. Through the public Python API of eyas alone.

A request is two runs. The first has a task for each exposure (and at most OBJECTS_PER_TASK of its objects), which cuts and stacks
them. The second has one task, which adds what the first has made. They are two because a file of the survey that cannot be read
fails its task, and the rest of the request goes on without it. While many ask, the second run goes before first runs of others: what
has been begun is ended.

A request whose work another one has done before, whoever asked for that, gets copies of its files. What has to be equal is all that
goes into the pixels: positions, their order, the size, and the exposures as they are now.

Runs have the request's name. A portal that starts anew looks for them at the cluster, and follows what it finds; only a run that is
not there is submitted.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import py_compile
import re
import resource
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import eyas
import numpy as np
import sqlalchemy.exc

from .index import Index
from .lists import Asked
from .store import ENDS, Row, Store
from .surveys import Survey, name_of
from .webfiles import kind_of_status

APP = Path(__file__).resolve().parent.parent
STACKING = APP.parent / "stacking"
# What the tasks consist of.
PROGRAM = (
    *(APP / name for name in ("tasks.py", "cut.py", "combine.py", "crop.py")),
    *(STACKING / name for name in ("cutout.py", "stack.py", "picture.py")),
)

OBJECTS_PER_TASK = 50
# The user of the cluster whose tasks end requests, for all people: its weight puts these tasks before those that begin a request. No
# person has this name, as none of theirs has a plus.
LAST_USER, LAST_WEIGHT = "portal+last", 10_000
# Requests that are followed at once; others wait. Each holds a thread that mostly waits.
FOLLOWED_AT_ONCE = 64
# Users whose connections stay open for their next request, at most; and the descriptors that each takes. What else a portal has open
# gets as many as all connections.
CONNECTIONS_KEPT, CONNECTION_DESCRIPTORS = 1000, 4
# How often who follows a request looks whether the portal ends.
LOOK_UP_S = 1.0
# What a request gives out, and the type of each. Nothing else in its folder is served.
FILES = {
    "stack.fits": "application/fits",
    "stack.png": "image/png",
    "stack.jpg": "image/jpeg",
    "one.png": "image/png",
}
# What the last task says of a stack.
FOUND = ("n_cutouts", "snr", "snr_one", "height", "width_pixels", "height_pixels")
# What homes say of a name that leads to nothing, and of what is there and is no file that this user may read.
MISSING_WORDS = ("no such file", "a parent of it is not a directory")
UNREADABLE_WORDS = (
    *("permission denied", "not permitted", "it is a directory", "it is not a regular file"),
    *("its symbolic links form a circle", "the name is too long", "the query of this url is not known"),
)
# Sides of a cutout in pixels, of which a survey has those that leave room for the noise beside a star.
SIZES = (31, 41, 51, 61, 81, 101)

# What is said of the requests of a user whom an administrator has blocked.
BLOCKED = "an administrator blocked this account, so its requests were cancelled"

log = logging.getLogger("portal")


class Connections:
    """A connection to the cluster for each user, with a key of their own, so that the cluster shares itself fairly among them.

    Those of the users who asked last are kept. Another one closes when nobody has a run of it any more, as one that is forgotten does:
    another request of its user may go on with it.
    """

    def __init__(self, join: Path, folder: Path) -> None:
        """`join` is the join file of the cluster's owner; keys of users lie in `folder`."""
        self._folder = folder
        self._lock = threading.Lock()
        # The one that was used last stands last.
        self._clients: OrderedDict[str, eyas.Client] = OrderedDict()
        # The weights of users whose keys are known to be right.
        self._weights: dict[str, int] = {}
        n_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # Without end it is a negative number.
        n_for_users = CONNECTIONS_KEPT if n_descriptors < 0 else n_descriptors // (2 * CONNECTION_DESCRIPTORS)
        self._n_kept = max(1, min(CONNECTIONS_KEPT, n_for_users))
        self.owner = eyas.connect(join)
        self._cluster = str(self.owner.status()["cluster"])

    def of(self, user: str, weight: int) -> eyas.Client:
        with self._lock:
            if user not in self._clients:
                # Another cluster has other keys.
                key = self._folder / self._cluster / f"{user}.json"
                if self._weights.get(user) != weight or not key.exists():
                    self._allow(user, key, weight)
                self._clients[user] = eyas.connect(key)
            self._clients.move_to_end(user)
            while len(self._clients) > self._n_kept:
                self._clients.popitem(last=False)
            return self._clients[user]

    def _allow(self, user: str, key: Path, weight: int) -> None:
        """Make the key of a user of that weight, if it is not there."""
        # Somebody whose key was taken back has no rights, and is listed while their runs go on.
        known = next((one for one in self.owner.users() if one.name == user and one.rights), None)
        if known is None or not key.exists():
            key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            key.unlink(missing_ok=True)
            if known is not None:
                # The file is lost, and without it the key is nobody's.
                self.owner.remove_user(user)
            self.owner.add_user(user, key, weight=weight)
        elif known.weight != weight:
            # It was changed while this portal did not know the user, or the cluster did not answer.
            self.owner.set_user(user, weight=weight)
        self._weights[user] = weight

    def forget(self, user: str) -> None:
        """Connect anew the next time."""
        with self._lock:
            self._clients.pop(user, None)
            self._weights.pop(user, None)

    def set_weight(self, user: str, weight: int) -> None:
        with self._lock:
            is_known = user in self._weights
        if is_known:
            self.owner.set_user(user, weight=weight)
            with self._lock:
                self._weights[user] = weight

    def close(self) -> None:
        for client in [*self._clients.values(), self.owner]:
            client.close()


class Closing(Exception):
    """The portal ends, and with it the following of a request."""


class Live:
    """What is known of a request that goes on; `version` grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self.status: dict[str, Any] = {"state": "waiting"}
        self.is_cancelled = threading.Event()
        self.run: eyas.Run | None = None

    def note(self, **values: Any) -> None:
        self.status = {**self.status, **values}
        self.version += 1


def plan_of(asked: list[Asked], index: Index, size: int) -> dict[str, Any]:
    """Which positions go to which exposure, and those that the survey does not have.

    Gives `exposures`: a list of `[address, [numbers of objects]]`, and `outside`: a list of `[number of the object, why]`.
    """
    by_address: dict[str, list[int]] = {}
    outside: list[tuple[int, str]] = []
    for band in sorted({one.band for one in asked}):
        numbers = [number for number, one in enumerate(asked) if one.band == band]
        ra = np.array([asked[number].ra for number in numbers])
        dec = np.array([asked[number].dec for number in numbers])
        for number, covering in zip(numbers, index.covering(band, ra, dec, size), strict=True):
            for _, address in covering:
                by_address.setdefault(address, []).append(number)
            if not covering:
                outside.append((number, f"no exposure in {band} holds the {size} pixels around it"))
    return {"exposures": sorted(by_address.items()), "outside": sorted(outside)}


def sizes_of(psf_sigma: float) -> tuple[int, ...]:
    """The sizes whose stacks can be measured."""
    from cutout import StackingError
    from stack import noise_positions

    found = []
    for size in SIZES:
        with contextlib.suppress(StackingError):
            noise_positions(size, psf_sigma)
            found.append(size)
    return tuple(found)


def kind_of_failure(reason: str, stderr: str) -> tuple[str, str]:
    """Why an exposure gave nothing: `missing`, `unreadable`, `corrupt` or `away`, and a sentence."""
    own_words = re.search(r"^error: (.+)$", stderr, re.MULTILINE)
    if own_words:
        return "corrupt", own_words[1]
    lower = reason.lower()
    # A home at a web server.
    answer = re.search(r"\bthe server answered (\d{3})\b", reason)
    if answer:
        return kind_of_status(int(answer[1])), reason
    if any(words in lower for words in MISSING_WORDS):
        return "missing", reason
    if any(words in lower for words in UNREADABLE_WORDS):
        return "unreadable", reason
    # The task's program found what it has no sentence for.
    return "corrupt" if "the program ended with status" in reason else "away", reason


def program_of(folder: Path) -> Path:
    """The program of all tasks, an archive in `folder` that Python runs: `tasks.py` with its modules, as they are and compiled. Python of
    another version on a node takes the sources.

    The program's name has a digest of its content, so tasks of an older portal keep theirs, and the same version is not written anew:
    copies in caches stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive, tempfile.TemporaryDirectory(dir=folder) as compiled:
        for source in PROGRAM:
            name = "__main__" if source.stem == "tasks" else source.stem
            made = Path(compiled) / f"{name}.pyc"
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(
                str(source), str(made), dfile=source.name, doraise=True, invalidation_mode=mode
            )
            # Without the time of now, which would make another digest.
            archive.writestr(zipfile.ZipInfo(f"{name}.py"), source.read_bytes())
            archive.writestr(zipfile.ZipInfo(made.name), made.read_bytes())
    data = content.getvalue()
    path = folder / f"tasks-{hashlib.sha256(data).hexdigest()[:16]}.pyz"
    if not path.exists():
        new = path.with_suffix(".new")
        new.write_bytes(data)
        os.replace(new, path)
    return path


class Work:
    """Carries out requests. One of these follows all requests of a portal."""

    def __init__(
        self, store: Store, index: Index, connections: Connections, survey: Survey, data: Path
    ) -> None:
        self.store, self.index, self.connections = store, index, connections
        self.survey, self.data = survey, data.resolve()
        self.psf_sigma = survey.psf_sigma
        self.sizes = sizes_of(self.psf_sigma)
        self._program = program_of(self.data / "program")
        self._threads = ThreadPoolExecutor(FOLLOWED_AT_ONCE, "request")
        self._live: dict[str, Live] = {}
        self._lock = threading.Lock()
        self._is_closing = False

    def begin(self) -> None:
        """Go on with all requests that have not ended."""
        for number in self.store.going():
            self.start(number)

    def start(self, number: str) -> None:
        with self._lock:
            if number in self._live or self._is_closing:
                return
            self._live[number] = Live()
        self._threads.submit(self._follow, number)

    def close(self) -> None:
        """Follow nothing any more; the runs go on at the cluster, if that goes on."""
        with self._lock:
            self._is_closing = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.survey.close()

    def live(self, number: str) -> Live | None:
        with self._lock:
            return self._live.get(number)

    def folder(self, number: str) -> Path:
        return self.data / "requests" / number

    def cancel(self, number: str, why: str | None = None) -> bool:
        """End a request; `False`: it had ended. `why`: what its page says of that, where it was not its user who ended it."""
        said = {} if why is None else {"problem": why}
        if not self.store.set_request(number, is_cancel_wanted=True, **said):
            return False
        live = self.live(number)
        if live is not None:
            live.is_cancelled.set()
            if live.run is not None:
                live.run.cancel()
        return True

    def cancel_all_of(self, user: int, why: str) -> None:
        """End the requests of a user that go on."""
        for number in self.store.going(user):
            try:
                self.cancel(number, why)
            except eyas.EyasError as error:
                # Who follows the request sees that, too. The others have to end all the same.
                log.warning("request %s could not be cancelled at the cluster: %s", number, error)

    def task(
        self, name: str, words: list[str], inputs: dict[str, str], outputs: dict[str, str]
    ) -> dict[str, Any]:
        """A task of the portal's program, which does what the first of `words` names."""
        program = self._program.name
        return {
            "id": name,
            "command": [sys.executable, program, *words],
            "inputs": {program: str(self._program)} | inputs,
            "outputs": outputs,
            # Python and the program stay at the slot for the tasks that follow.
            "env": {"EYAS_WARM": "2"},
            "label": words[0],
        }

    # ------------------------------------------------------------ following one request

    def _follow(self, number: str) -> None:
        live = self._live[number]
        is_said = False
        try:
            while not self._is_closing:
                try:
                    return self._follow_to_end(number, live)
                except sqlalchemy.exc.OperationalError as error:
                    # Where its disk is full, say. What was submitted is found again.
                    if not is_said:
                        log.warning("request %s waits for the database: %s", number, error.orig)
                    is_said = True
                    time.sleep(LOOK_UP_S)
        finally:
            with self._lock:
                self._live.pop(number, None)

    def _follow_to_end(self, number: str, live: Live) -> None:
        try:
            row = self.store.request(number)
            if row is None or row["state"] in ENDS:
                return
            user = self.store.user_by_id(row["user"])
            if user is not None and user["is_blocked"]:
                # The portal that was asked to block them may have ended before it came to this request.
                self.cancel(number, BLOCKED)
            if row["is_cancel_wanted"]:
                live.is_cancelled.set()
            self._carry_out(row, live)
        except Closing:
            pass
        except sqlalchemy.exc.OperationalError:
            raise
        except eyas.EyasError as error:
            log.warning("request %s: %s", number, error)
            self._end(number, live, "failed", problem=f"the cluster did not carry it out: {error}")
        except Exception:
            if self._is_closing:
                return
            log.exception("request %s ended with an error of the portal", number)
            self._end(number, live, "failed", problem="the portal made an error, which its log has")

    def _end(self, number: str, live: Live, state: str, **values: Any) -> None:
        if self._is_closing:
            return
        if state == "done":
            # A wish to end it came too late.
            values["problem"] = None
        self.store.set_request(number, state=state, ended=time.time(), **values)
        shutil.rmtree(self.folder(number) / "cuts", ignore_errors=True)
        live.note(state=state)
        # Whoever waits for it waits no longer, while servers of the survey are asked whether its exposures are still the same.
        with self._lock:
            self._live.pop(number, None)

    def _submitted(
        self, user: str, weight: int, name: str, tasks: list[dict[str, Any]], may_be_there: bool
    ) -> eyas.Run:
        """A new run of that name, for a user of the cluster. `may_be_there`: it is looked for before, as a portal that has ended may have
        submitted it. To look takes the state of all runs that the cluster remembers.
        """
        try:
            return self._run_of(user, weight, name, tasks, may_be_there)
        except eyas.ClusterLost:
            # The connection may be of a dispatcher that was started anew since. The submission may have arrived.
            self.connections.forget(user)
            return self._run_of(user, weight, name, tasks, True)

    def _run_of(
        self, user: str, weight: int, name: str, tasks: list[dict[str, Any]], may_be_there: bool
    ) -> eyas.Run:
        client = self.connections.of(user, weight)
        known = client.runs(name=name) if may_be_there else []
        return known[-1] if known else client.run(tasks, name=name)

    def _wait(self, run: eyas.Run, shown: Callable[[dict[str, Any]], object] | None = None) -> None:
        """Until the run has ended, or this portal ends: then the next one follows the run."""
        while not run.wait(LOOK_UP_S, check=False, progress=shown):
            if self._is_closing:
                raise Closing

    def _carry_out(self, row: Row, live: Live) -> None:
        number, began = row["id"], time.monotonic()
        asked = [Asked(*one) for one in row["asked"]]
        plan = row["plan"]
        if plan is None:
            plan = plan_of(asked, self.index, row["size"])
        tasks, parts = self._tasks(row, asked, plan)
        digest = self._digest(row, asked, plan)
        before = None if digest is None else self._done_before(number, digest)
        if before is not None and not live.is_cancelled.is_set():
            known = {name: before[name] for name in FOUND if name in before}
            result = self._result(row, asked, plan, None, parts, known, began)
            return self._end(number, live, "done", result=result)
        live.note(state="running", n_tasks=len(tasks) + 1, n_done=0, n_outside=len(plan["outside"]))
        # The next portal goes on with the same tasks, whatever the index has by then.
        self.store.set_request(number, state="running", plan=plan)
        if live.is_cancelled.is_set():
            return self._end(number, live, "cancelled")
        if not tasks:
            result = self._result(row, asked, plan, {}, parts, None, began)
            return self._end(number, live, "done", result=result)
        user = self.store.user_by_id(row["user"])
        assert user is not None

        def shown(status: Mapping[str, Any]) -> None:
            n_ended = status["n_done"] + status["n_failed"] + status["n_cancelled"]
            left_s = (time.monotonic() - began) * (len(tasks) + 1 - n_ended) / n_ended if n_ended else None
            live.note(
                n_done=n_ended,
                n_failed=status["n_failed"],
                n_running=status["n_running"],
                n_nodes=status["n_nodes"],
                local_bytes=status["local_bytes"],
                peer_bytes=status["peer_bytes"],
                home_bytes=status["home_bytes"],
                percent=int(100 * n_ended / (len(tasks) + 1)),
                left_s=left_s,
                troubles=list(status.get("troubles") or ()),
            )

        # This portal follows a request that waits for the first time. Others have begun before it was started.
        may_be_there = row["state"] != "waiting"
        name = f"request-{number}"
        live.run = run = self._submitted(user["name"], user["weight"], name, tasks, may_be_there)
        # A wish to cancel that came between the look above and now found no run.
        if live.is_cancelled.is_set():
            run.cancel()
        self._wait(run, shown)
        bytes_of = {key: run.status()[key] for key in ("local_bytes", "peer_bytes", "home_bytes")}
        ended = {task.id: task for task in run.tasks()}
        if live.is_cancelled.is_set():
            return self._end(number, live, "cancelled")

        live.note(state="stacking")
        self.store.set_request(number, state="stacking")
        made = [of for of in ended if ended[of].state == "done"]
        found = None
        if made:
            adding = [self._last(row, made)]
            last = self._submitted(LAST_USER, LAST_WEIGHT, f"{name}-stack", adding, may_be_there)
            live.run = last
            if live.is_cancelled.is_set():
                last.cancel()
            self._wait(last)
            task = next(iter(last.tasks()))
            if task.state == "cancelled":
                return self._end(number, live, "cancelled")
            if task.state != "done":
                words = kind_of_failure(
                    task.reason or "no reason is known", task.stderr.decode(errors="replace")
                )[1]
                return self._end(number, live, "failed", problem=f"the cutouts could not be added: {words}")
            found = json.loads(task.stdout)
        result = self._result(row, asked, plan, ended, parts, found, began)
        self._end(number, live, "done", result={**result, **bytes_of})
        # A file that was away may be there the next time. One that was replaced meanwhile has another digest by now.
        if found and digest is not None and not result["unread"] and digest == self._digest(row, asked, plan):
            self.store.add_result(digest, number)

    def _digest(self, row: Row, asked: list[Asked], plan: dict[str, Any]) -> str | None:
        """The digest of all that goes into the pixels; None: an exposure is not there, or nothing would show that it is another one."""
        if not plan["exposures"]:
            return None
        versions = self.survey.versions([address for address, _ in plan["exposures"]])
        if versions is None:
            return None
        parts: list[Any] = [row["size"], self.psf_sigma]
        for (address, numbers), version in zip(plan["exposures"], versions, strict=True):
            places = [(asked[number].ra, asked[number].dec) for number in numbers]
            parts.append((address, version, places))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _done_before(self, number: str, digest: str) -> dict[str, Any] | None:
        """The result of a request that has done the same, whose files this one has now, too."""
        row = self.store.result_of(digest)
        if row is None or row["id"] == number:
            return None
        own = self.folder(number)
        own.mkdir(parents=True, exist_ok=True)
        try:
            for name in FILES:
                shutil.copyfile(self.folder(row["id"]) / name, own / name)
        except OSError:
            return None
        found: dict[str, Any] = row["result"]
        return found

    def _tasks(
        self, row: Row, asked: list[Asked], plan: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], list[Any]]:
        """The tasks of the first run, and for each its id, address and numbers of objects."""
        tasks, parts = [], []
        places = self.survey.places([address for address, _ in plan["exposures"]])
        for at, (address, numbers) in enumerate(plan["exposures"]):
            for start in range(0, len(numbers), OBJECTS_PER_TASK):
                part = numbers[start : start + OBJECTS_PER_TASK]
                name, of = name_of(address), f"{at:05d}-{start // OBJECTS_PER_TASK:03d}"
                words = ["cut", str(row["size"]), name, "cut.fits"]
                words += [f"{asked[number].ra!r},{asked[number].dec!r}" for number in part]
                inputs = {name: places[address]}
                outputs = {"cut.fits": str(self.folder(row["id"]) / "cuts" / f"{of}.fits")}
                tasks.append(self.task(of, words, inputs, outputs))
                parts.append((of, address, part))
        return tasks, parts

    def _last(self, row: Row, made: list[str]) -> dict[str, Any]:
        folder = self.folder(row["id"])
        words = ["combine", "--psf-sigma", str(self.psf_sigma), "cuts", *FILES]
        inputs = {f"cuts/{of}.fits": str(folder / "cuts" / f"{of}.fits") for of in made}
        return self.task("stack", words, inputs, {name: str(folder / name) for name in FILES})

    def _result(
        self,
        row: Row,
        asked: list[Asked],
        plan: dict[str, Any],
        ended: Mapping[str, eyas.Task] | None,
        parts: list[Any],
        found: dict[str, Any] | None,
        began: float,
    ) -> dict[str, Any]:
        """What the page of results shows: all that Raicu09, section 6.2 lists, and more. `ended` is None: another request did the work."""

        def object_of(number: int, why: str) -> dict[str, Any]:
            one = asked[number]
            return {"line": one.line, "ra": one.ra, "dec": one.dec, "band": one.band, "why": why}

        nodes, stacked = set(), set()
        unread: dict[str, dict[str, Any]] = {}
        for of, address, numbers in parts:
            if ended is None:
                stacked |= set(numbers)
                continue
            task = ended.get(of)
            if task is not None and task.state == "done":
                nodes.add(json.loads(task.stdout)["node"])
                stacked |= set(numbers)
                continue
            reason, stderr = (
                ("it was not run", "")
                if task is None
                else (
                    task.reason or "no reason is known",
                    task.stderr.decode(errors="replace"),
                )
            )
            kind, why = kind_of_failure(reason, stderr)
            why = self.survey.shown(why)
            one = unread.setdefault(address, {"address": address, "kind": kind, "why": why, "lines": []})
            one["lines"] += [asked[number].line for number in numbers]
        outside: dict[int, str] = dict(plan["outside"])
        lost = [n for n in range(len(asked)) if n not in stacked and n not in outside]
        folder = self.folder(row["id"])
        return {
            **(found or {}),
            "n_objects": len(asked),
            "n_found": len(stacked),
            "outside": [object_of(number, why) for number, why in outside.items()],
            "unread": sorted(unread.values(), key=lambda one: str(one["address"])),
            "lost": [object_of(number, "none of its exposures could be read") for number in lost],
            "is_as_before": ended is None,
            "n_computers": len(nodes),
            "n_exposures": len({address for address, _ in plan["exposures"]}),
            "seconds": round(time.time() - row["created"], 3),
            "seconds_on_cluster": round(time.monotonic() - began, 3),
            "files": {name: (folder / name).stat().st_size for name in FILES} if found else {},
        }
