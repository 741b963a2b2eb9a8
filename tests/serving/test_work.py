"""Which thread answers, and what becomes of what costs more than it did."""

import asyncio
import threading
import time

import pytest

from widemax.serving.limits import Limits
from widemax.serving.work import BusyError, TooSlowError, Workers


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def asked(ask, **limits):
    """Run a coroutine function with a pool of two threads."""

    async def run():
        workers = Workers(Limits(**limits), threads=2)
        try:
            return await ask(workers)
        finally:
            workers.close()

    return asyncio.run(run())


def test_what_costs_little_is_called_at_once_until_it_costs_more():
    async def ask(workers):
        seconds = [0.0] * 10 + [0.02] + [0.0] * 3
        return [
            await workers.do(lambda _, cost=cost: (burn(cost), threading.current_thread())[1], "a")
            for cost in seconds
        ]

    threads = asked(ask)
    here = [thread is threading.main_thread() for thread in threads]
    # Five are measured, the next are called here, also that which turns out to be long.
    assert here == [False] * 5 + [True] * 6 + [False] * 3


def test_what_has_no_kind_never_holds_up_the_server():
    async def ask(workers):
        return [await workers.do(lambda _: threading.current_thread()) for _ in range(20)]

    assert threading.main_thread() not in asked(ask)


def test_errors_and_lateness_reach_who_waits_and_places_come_free():
    async def ask(workers):
        held = threading.Event()

        def broken(_):
            raise KeyError("x")

        with pytest.raises(KeyError):
            await workers.do(broken)
        with pytest.raises(TooSlowError):
            await workers.do(lambda _: held.wait(30))
        assert workers.busy == 1
        other = asyncio.create_task(workers.do(lambda _: held.wait(30)))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await workers.do(lambda _: 1)
        held.set()
        assert await other
        assert await workers.do(lambda _: 7) == 7
        # Nobody is told when the one that was given up ends: its thread may be the last to run.
        async with asyncio.timeout(30):
            while workers.busy:
                await asyncio.sleep(0.001)

    asked(ask, seconds=0.5, concurrent=2)
