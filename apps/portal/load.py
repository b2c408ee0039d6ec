#!/usr/bin/env python3
"""Many people ask a portal at once: how long each waits, and how nodes come and go with the demand.

    load.py [--users 200] [--requests 2000] [--nodes 0..4] [--figure demand.svg] [--out RESULT.json]
    load.py --clicks 9 [--exposures 16] [--slots 2] [--out RESULT.json]

Starts a portal of its own, with accounts for all. First each kind of request is asked alone, with warm caches: that is the unloaded
time. Then so many people ask that the portal is always busy: that is its capacity. Then requests arrive by themselves, at 60 % of the
capacity: single ones as a Poisson process, and bursts of 20 at moments of another one. Users and places are drawn anew for each.
Last, two users ask for the same sky: the second one finds the exposures in caches, and an equal request has the result of the first.

With --clicks one user asks so often for 20 objects, with warm caches, and waits for the picture: by the API, and in Chromium from the
click to the picture that is drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

HERE = Path(__file__).resolve().parent
PASSWORD = "correct horse battery"
# How many objects a request has, and how often.
SIZES = {1: 0.5, 5: 0.3, 20: 0.2}
BURST = 20
# So many requests have one burst among them. A burst of 20 alone keeps a portal busy for 20 / capacity, and what arrives meanwhile
# waits, too.
REQUESTS_PER_BURST = 1000
BUSY = 0.6
UNLOADED_TRIES = 7


@dataclass
class Done:
    """A request that ended: how many objects it had, when it was sent and for how long it was waited for, in seconds."""

    size: int
    sent: float
    seconds: float
    state: str
    is_as_before: bool


@dataclass
class Load:
    """People who ask, and what came of it."""

    url: str
    tokens: list[str]
    places: list[tuple[float, float, str]]
    random: random.Random
    client: httpx2.AsyncClient
    done: list[Done] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    n_open: int = 0

    def objects(self, size: int) -> list[dict[str, Any]]:
        """Sources near each other in the list of the survey, because people ask for a field. Each is moved by less than a thousandth
        of a pixel, so that no request is equal to another one and all work is done.
        """
        begin = self.random.randrange(max(1, len(self.places) - size))
        moved = self.random.uniform(-1e-7, 1e-7)
        near = self.places[begin : begin + size]
        return [{"ra": ra, "dec": dec + moved, "band": band} for ra, dec, band in near]

    async def ask(self, token: str, objects: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Send a request and wait for its end; None: something was wrong, and `errors` has it."""
        headers = {"Authorization": f"Bearer {token}"}
        sent = time.monotonic()
        self.n_open += 1
        try:
            while True:
                made = await self.client.post(
                    f"{self.url}/api/requests", json={"objects": objects}, headers=headers
                )
                # A user has at most five requests at once: who draws this user again waits, and the wait counts.
                if made.status_code != 429:
                    break
                await asyncio.sleep(0.2)
            if made.status_code != 201:
                self.errors.append(f"{made.status_code}: {made.text[:200]}")
                return None
            found: dict[str, Any] = made.json()
            while found["state"] not in ("done", "failed", "cancelled"):
                got = await self.client.get(
                    f"{self.url}/api/requests/{found['id']}", params={"wait": 30}, headers=headers
                )
                got.raise_for_status()
                found = got.json()
        except httpx2.HTTPError as error:
            self.errors.append(repr(error))
            return None
        finally:
            self.n_open -= 1
        seconds, result = time.monotonic() - sent, found.get("result") or {}
        if found["state"] != "done" or result["n_found"] != len(objects):
            self.errors.append(f"{found['state']}: {found['problem'] or result}"[:300])
        self.done.append(Done(len(objects), sent, seconds, found["state"], bool(result.get("is_as_before"))))
        return found

    async def ask_any(self) -> None:
        size = self.random.choices(list(SIZES), list(SIZES.values()))[0]
        await self.ask(self.random.choice(self.tokens), self.objects(size))

    def take(self) -> list[Done]:
        """What was done since the last time."""
        taken, self.done = self.done, []
        return taken


async def unloaded(load: Load) -> dict[int, float]:
    """The median of each size, alone; caches are warm."""
    found = {}
    for size in SIZES:
        for _ in range(UNLOADED_TRIES):
            await load.ask(load.random.choice(load.tokens), load.objects(size))
        found[size] = statistics.median(one.seconds for one in load.take())
    return found


async def capacity(load: Load, n: int, at_once: int) -> float:
    """Requests in a second while `at_once` are always open."""
    left = n
    began = time.monotonic()

    async def person() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await load.ask_any()

    await asyncio.gather(*(person() for _ in range(at_once)))
    return len(load.take()) / (time.monotonic() - began)


def arrivals(n: int, n_bursts: int, rate: float, drawn: random.Random) -> list[float]:
    """When each of `n` requests is sent: a Poisson process of single ones, and bursts at any moment. The rate is that of all."""
    moments: list[float] = []
    n_single = n - n_bursts * BURST
    at = 0.0
    for _ in range(n_single):
        at += drawn.expovariate(rate * n_single / n)
        moments.append(at)
    end = at
    for _ in range(n_bursts):
        moments += [drawn.uniform(0, end)] * BURST
    return sorted(moments)


async def under_load(load: Load, moments: Sequence[float]) -> None:
    began = time.monotonic()
    asking = []
    for moment in moments:
        await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
        asking.append(asyncio.create_task(load.ask_any()))
    await asyncio.gather(*asking)


async def same_sky(load: Load) -> dict[str, Any]:
    """Two users ask for the same twenty places: the second one's bytes come from caches, and an equal request has an equal result."""
    objects = load.objects(max(SIZES))
    first = await load.ask(load.tokens[0], objects)
    other = await load.ask(load.tokens[1], objects[::-1])
    equal = await load.ask(load.tokens[1], objects)
    if first is None or other is None or equal is None:
        return {"is_right": False}
    load.take()
    result = other["result"]
    # A new user's first task reads a program or two; exposures are there.
    return {
        "home_bytes_of_the_second": result["home_bytes"],
        "local_bytes_of_the_second": result["local_bytes"] + result["peer_bytes"],
        "is_as_before": equal["result"]["is_as_before"],
        "seconds_as_before": equal["result"]["seconds"],
        "is_right": equal["result"]["is_as_before"]
        and equal["result"]["snr"] == first["result"]["snr"]
        and abs(result["snr"] - first["result"]["snr"]) < 0.02,
    }


class Nodes:
    """How many nodes there are and how many requests are open, every half second."""

    def __init__(self, join: Path, load: Load) -> None:
        import eyas

        self._client = eyas.connect(join)
        self._load = load
        self._is_over = threading.Event()
        self.samples: list[tuple[float, int, int]] = []
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over.wait(0.5):
            n = len(self._client.status()["executors"])
            self.samples.append((time.monotonic(), n, self._load.n_open))

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.close()


def make_users(url: str, n: int) -> list[str]:
    """A token of each of `n` new users."""
    tokens = []
    with httpx2.Client(base_url=url, timeout=120) as client:
        for _ in range(n):
            who = {"name": "u" + secrets.token_hex(5), "password": PASSWORD}
            # It leads to a page, which is not needed; whether there is an account shows below.
            client.post("/sign-up", data=who)
            client.cookies.clear()
            made = client.post("/api/tokens", json=who)
            made.raise_for_status()
            tokens.append(str(made.json()["token"]))
    return tokens


def places_of(folder: Path, survey: Path) -> list[tuple[float, float, str]]:
    """Sources of the survey with the bands in which exposures show them."""
    import numpy as np
    from portal import store
    from portal.index import Index

    lines = [line.split(",") for line in (survey / "targets.csv").read_text().splitlines()[1:]]
    ra, dec = np.array([(float(line[1]), float(line[2])) for line in lines]).T
    index = Index(store.connect(f"sqlite:///{folder}/portal.db"))
    places = []
    for band in "griz":
        shown = index.covering(band, ra, dec, 41)
        places += [(float(x), float(y), band) for x, y, one in zip(ra, dec, shown, strict=True) if one]
    return places


async def measure(args: argparse.Namespace, url: str, folder: Path, survey: Path) -> dict[str, Any]:
    tokens = make_users(url, args.users)
    places = places_of(folder, survey)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=50)
    async with httpx2.AsyncClient(timeout=120, limits=limits) as client:
        load = Load(url, tokens, places, random.Random(args.seed), client)
        join = next((folder / "cluster").rglob("join.json"))
        nodes = Nodes(join, load)
        try:
            # Each exposure is read once, so that what follows has warm caches.
            for begin in range(0, len(places), 20):
                objects = [{"ra": x, "dec": y, "band": b} for x, y, b in places[begin : begin + 20]]
                await load.ask(tokens[0], objects)
            load.take()
            alone = await unloaded(load)
            print("alone: " + ", ".join(f"{size} objects {seconds:.2f} s" for size, seconds in alone.items()))
            per_s = await capacity(load, max(args.requests // 10, 2 * args.at_once), args.at_once)
            print(f"capacity: {per_s:.2f} requests/s with {args.at_once} always open", flush=True)
            # Until the nodes have gone, so that the figure begins without any.
            if args.rest:
                await asyncio.sleep(args.rest)
            began = time.monotonic()
            await under_load(load, arrivals(args.requests, args.bursts, BUSY * per_s, load.random))
            seconds = time.monotonic() - began
            done = load.take()
            same = await same_sky(load)
            if args.rest:
                await asyncio.sleep(args.rest)
        finally:
            nodes.close()
    rows = {}
    for size in SIZES:
        waited = sorted(one.seconds for one in done if one.size == size)
        if len(waited) < 2:
            continue
        p95 = statistics.quantiles(waited, n=20)[-1]
        rows[size] = {
            "n": len(waited),
            "unloaded_s": round(alone[size], 3),
            "p50_s": round(statistics.median(waited), 3),
            "p95_s": round(p95, 3),
            "p95_over_unloaded": round(p95 / alone[size], 2),
        }
    return {
        "users": args.users,
        "bursts": args.bursts,
        "requests": args.requests,
        "errors": load.errors,
        "capacity_per_s": round(per_s, 3),
        "rate_per_s": round(BUSY * per_s, 3),
        "seconds": round(seconds, 1),
        "as_before": sum(one.is_as_before for one in done),
        "sizes": rows,
        "same_sky": same,
        "n_nodes_max": max(n for _, n, _ in nodes.samples),
        "samples": [(round(at - began, 2), n, n_open) for at, n, n_open in nodes.samples],
    }


def click(args: argparse.Namespace, url: str, folder: Path, survey: Path) -> dict[str, Any]:
    """Seconds from asking to the picture, by the API and in a browser."""
    from playwright.sync_api import sync_playwright

    places, drawn = places_of(folder, survey), random.Random(args.seed)
    by_api, by_page, n_exposures = [], [], []
    (token,) = make_users(url, 1)
    load = Load(url, [token], places, drawn, httpx2.AsyncClient())
    with httpx2.Client(base_url=url, timeout=120, headers={"Authorization": f"Bearer {token}"}) as client:

        def ask(objects: list[dict[str, Any]]) -> dict[str, Any]:
            found: dict[str, Any] = client.post("/api/requests", json={"objects": objects}).json()
            while found["state"] not in ("done", "failed", "cancelled"):
                found = client.get(f"/api/requests/{found['id']}", params={"wait": 30}).json()
            client.get(f"/api/requests/{found['id']}/files/stack.png").raise_for_status()
            return found

        # Each exposure is read once, so that what follows has warm caches.
        for begin in range(0, len(places), 20):
            ask([{"ra": x, "dec": y, "band": b} for x, y, b in places[begin : begin + 20]])
        for _ in range(args.clicks):
            objects, began = load.objects(20), time.monotonic()
            found = ask(objects)
            by_api.append(time.monotonic() - began)
            n_exposures.append(found["result"]["n_exposures"])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{url}/sign-up")
        page.get_by_label("Name").fill("clicks")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign up").click()
        page.get_by_role("heading", name="New request").wait_for()
        for _ in range(args.clicks):
            page.goto(f"{url}/requests/new")
            lines = [f"{one['ra']!r} {one['dec']!r} {one['band']}" for one in load.objects(20)]
            page.get_by_label("Objects").fill("\n".join(lines))
            began = time.monotonic()
            page.get_by_role("button", name="Stack them").click()
            page.locator("#picture").evaluate("image => image.decode()", timeout=120_000)
            by_page.append(time.monotonic() - began)
        browser.close()
    return {
        "n_exposures": n_exposures,
        "api_s": [round(one, 3) for one in by_api],
        "page_s": [round(one, 3) for one in by_page],
    }


def draw(found: dict[str, Any], path: Path) -> None:
    """Open requests and nodes over time, as figure 20 of the papers has them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    at, nodes, n_open = zip(*found["samples"], strict=True)
    figure, axes = pyplot.subplots(figsize=(8, 3.5), layout="constrained")
    axes.fill_between(at, n_open, step="post", color="#c8d7ea", label="requests that wait or go on")
    axes.set_xlabel("seconds since the first request of the load")
    axes.set_ylabel("requests")
    other = axes.twinx()
    other.step(at, nodes, where="post", color="#b03a2e", label="nodes")
    other.set_ylabel("nodes")
    other.set_ylim(0, max(nodes) + 1)
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure a portal that many people use at once.")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument(
        "--bursts",
        type=int,
        help=f"bursts of {BURST} among them [default: one for {REQUESTS_PER_BURST} requests]",
    )
    parser.add_argument(
        "--at-once", type=int, default=16, help="open requests while the capacity is measured"
    )
    parser.add_argument("--nodes", default="0..4", help="nodes of the portal's cluster")
    parser.add_argument("--slots", type=int, default=1, help="tasks that a node runs at once")
    parser.add_argument("--idle", default="5s", help="how long a node without work stays")
    parser.add_argument("--rest", type=float, default=10, help="seconds of nothing before and after the load")
    parser.add_argument("--exposures", type=int, default=6, help="of each field and band of the survey")
    parser.add_argument(
        "--clicks", type=int, default=0, help="requests of 20 objects that are timed, in place of the load"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--figure", type=Path, help="draw requests and nodes over time into this file")
    parser.add_argument("--out", type=Path, help="write the numbers to this file, as JSON")
    args = parser.parse_args()
    if args.bursts is None:
        args.bursts = max(1, args.requests // REQUESTS_PER_BURST)
    if args.bursts < 0 or args.bursts * BURST >= args.requests or args.users < 2:
        parser.error(
            f"{args.requests} requests have no room for {args.bursts} bursts of {BURST}, or users are fewer than 2"
        )
    sys.path[:0] = [str(HERE), str(HERE.parent / "stacking")]
    with tempfile.TemporaryDirectory(prefix="portal-load") as name:
        folder, survey = Path(name) / "data", Path(name) / "survey"
        import make_survey

        make_survey.make(survey, 13, args.exposures, 60, os.cpu_count() or 1)
        words = [
            sys.executable,
            HERE / "serve.py",
            "--dir",
            folder,
            "--survey",
            survey,
            "--nodes",
            args.nodes,
        ]
        words += ["--slots", str(args.slots), "--idle-release", args.idle, "--accounts-per-hour", "1000000"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = None
            for line in process.stdout:
                if address := re.match(r"The portal is at (\S+)$", line):
                    url = address[1]
                    break
            if url is None:
                print("error: the portal did not start", file=sys.stderr)
                return 1
            if args.clicks:
                found = click(args, url, folder, survey)
            else:
                found = asyncio.run(measure(args, url, folder, survey))
        finally:
            process.terminate()
            process.wait(60)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.clicks:
        for what, key in (("the API", "api_s"), ("the page", "page_s")):
            print(f"20 objects by {what}: {statistics.median(found[key]):.2f} s (median of {found[key]})")
        return 0
    for size, row in found["sizes"].items():
        print(
            f"{size} objects, {row['n']} requests: alone {row['unloaded_s']} s, loaded p50 {row['p50_s']} s, "
            f"p95 {row['p95_s']} s, {row['p95_over_unloaded']} times"
        )
    print(
        f"{found['requests']:,} requests of {found['users']} users at {found['rate_per_s']} a second with {found['bursts']} bursts, which is 60 % of "
        f"{found['capacity_per_s']}: {len(found['errors'])} errors, {found['as_before']} answered with what was there, "
        f"at most {found['n_nodes_max']} nodes; the same sky twice: {found['same_sky']}"
    )
    for error in found["errors"][:5]:
        print(f"error: {error}", file=sys.stderr)
    if args.figure:
        draw(found, args.figure)
    return 1 if found["errors"] or not found["same_sky"]["is_right"] else 0


if __name__ == "__main__":
    sys.exit(main())
