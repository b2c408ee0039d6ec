"""`python -m eyas.provision`: the four calls of a pool as lines of JSON.

The first line on standard input opens the pool, each further one is a call. Each line is answered by one on standard output; the
process ends when its input does. Standard error is a log.

    {"protocol": 1, "kind": "slurm", "folder": DIR, "book": FILE, "queue": ..., ...}
                                                                         ->  {"ready": {"parsl": VERSION, "calls": N}}
    for Ray also "address", "gpus" and "program"                         ->  {"ready": {"ray": VERSION, "calls": N}}
    the same with "check": true                                          ->  {"complaints": [[TEXT, HINT or null], ...]}
    {"id": 1, "call": "submit", "name": NAME, "script": FILE, "nodes": 2}  ->  {"id": 1, "ok": JOB}
    {"id": 2, "call": "list", "prefix": PREFIX}     ->  {"id": 2, "ok": [{"id", "name", "state", "why", "nodes"}, ...]}
    {"id": 3, "call": "cancel", "jobs": [[JOB, NAME], ...]}                ->  {"id": 3, "ok": null}
    {"id": 4, "call": "describe", "name", "script", "nodes"}               ->  {"id": 4, "ok": [SCRIPT, COMMAND]}

Each answer to a call has "calls", too: how often the batch system was asked for it.

A pool that cannot be opened is answered by {"refused": TEXT, "hint": TEXT or null}, a call that failed by {"id", "error": TEXT}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from .kinds import KINDS, Settings
from .listings import Failed
from .pool import Pool, Refused, complaints, parsl_version
from .ray_pool import RayPool, ray_version
from .ray_pool import complaints as ray_complaints

PROTOCOL = 1


def settings_of(first: dict[str, Any]) -> Settings:
    if first.get("protocol") != PROTOCOL:
        raise Refused(
            f"the Python package eyas speaks protocol {PROTOCOL}, and the program {first.get('protocol')}",
            "install both from one wheel file, or use both of one clone after `make install`",
        )
    if first["kind"] not in KINDS and first["kind"] != "ray":
        raise Refused(f"the Python package eyas knows no provider {first['kind']}")
    return Settings(
        kind=first["kind"],
        queue=first.get("queue"),
        account=first.get("account"),
        walltime_s=first.get("walltime_s"),
        nodes_per_job=first.get("nodes_per_job", 1),
        slots=first.get("slots"),
        memory_bytes=first.get("memory_bytes"),
        options=first.get("options", {}),
        gpus=first.get("gpus"),
        program=first.get("program") or "",
    )


def carry_out(pool: Pool | RayPool, call: dict[str, Any]) -> Any:
    verb = call["call"]
    if verb == "submit":
        return pool.submit(call["name"], Path(call["script"]), call["nodes"])
    if verb == "list":
        return [
            {"id": b.id, "name": b.name, "state": b.state, "why": b.why, "nodes": b.n_nodes}
            for b in pool.blocks(call["prefix"])
        ]
    if verb == "cancel":
        return pool.cancel([(job, name) for job, name in call["jobs"]])
    if verb == "describe":
        return pool.describe(call["name"], Path(call["script"]), call["nodes"])
    raise Failed(f"there is no call {verb!r}")


def main() -> int:
    # Parsl prints now and then; the pipe is for answers alone.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=pipe, flush=True)

    first = sys.stdin.readline()
    if not first.strip():
        return 0
    try:
        opening = json.loads(first)
        settings = settings_of(opening)
        if opening.get("check"):
            wrong = ray_complaints(settings) if settings.kind == "ray" else complaints(settings)
            say({"complaints": wrong})
            return 0
        folder, book = Path(opening["folder"]), Path(opening["book"])
        pool: Pool | RayPool
        if settings.kind == "ray":
            version = {"ray": ray_version()}
            pool = RayPool(settings, folder, book, opening.get("address") or "auto")
        else:
            version = {"parsl": parsl_version()}
            pool = Pool(settings, folder, book)
    except Refused as refused:
        say({"refused": str(refused), "hint": refused.hint})
        return 1
    say({"ready": {**version, "calls": pool.taken_calls()}})
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"ok": carry_out(pool, call)}
        except (Failed, Refused) as failed:
            answer = {"error": str(failed)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        say({"id": call["id"], **answer, "calls": pool.taken_calls()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
