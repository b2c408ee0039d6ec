"""`eyas.aio`: clusters, runs and calls in an event loop."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import eyas
import eyas.aio
import pytest


def test_runs_and_calls_are_awaited_while_the_loop_goes_on(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"{n}.in").write_text("x" * n)

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        async with eyas.aio.Cluster(nodes=1, slots=2, dir=str(tmp_path / "c")) as c:
            ticking = asyncio.create_task(tick())
            sleeps = c.submit(time.sleep, 0.5)
            run = await c.map(
                "wc -c < {in} > {out}",
                eyas.glob(tmp_path / "*.in"),
                out=str(tmp_path / "{stem}.out"),
                shell=True,
            )
            one, two = await asyncio.gather(c.submit(pow, 2, 3), c.submit(len, "four"))
            assert (one, two) == (8, 4)
            assert await c.submit(sum, [c.submit(int, "5"), c.submit(int, "6")]) == 11
            base = c.context(int, "10")
            assert await c.submit(pow, base, 2) == 100
            assert [n async for n in c.map_calls(pow, range(4), [base] * 4)] == [0, 1, 1024, 59049]
            assert [n async for n in c.map(pow, range(4), context=base)] == [0, 1, 1024, 59049]
            ones = [c.submit(abs, -1)] * 5
            assert [n async for n in c.map_calls(abs, ones, chunksize=2)] == [1] * 5
            assert await run.wait() and run.n_tasks == 4
            assert "4 done" in await run.report()
            assert [task.state for task in await run.tasks()] == ["done"] * 4
            assert (await run.events())["name"][
                -1
            ].as_py() == "end_run" and "4 of 4 tasks" in run._repr_html_()
            await sleeps
            ticking.cancel()
            with pytest.raises(ValueError, match="invalid literal"):
                await c.submit(int, "x")
            failing = await c.run([{"id": "f", "command": "exit 3"}])
            with pytest.raises(eyas.TaskFailed, match="f of run"):
                await failing.wait()
        assert ticks >= 10

    asyncio.run(main())
    assert (tmp_path / "3.out").read_text().strip() == "3"


def test_a_wait_that_is_cancelled_or_too_long_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with eyas.aio.Cluster(nodes=1, slots=2, dir=str(tmp_path / "c")) as c:
            run = await c.run([{"id": "long", "command": "sleep 1000"}])
            assert not await run.wait(0.1)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(run.wait(), 0.2)
            call = c.submit(time.sleep, 1000)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(call, 0.5)
            assert call.done()
            assert await run.cancel() == 1
            assert await run.wait(check=False)

    asyncio.run(main())


def test_a_map_that_is_left_cancels_its_other_calls(tmp_path: Path) -> None:
    async def main() -> None:
        async with eyas.aio.Cluster(nodes=1, slots=1, dir=str(tmp_path / "c")) as c:
            async for _ in c.map(time.sleep, [0.0, *[600.0] * 5]):
                break
            assert await asyncio.wait_for(c.submit(abs, -3), 60) == 3

    asyncio.run(main())


def test_a_connection_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        eyas.aio.connect("join.json").submit(int)
