"""Matching in turns: one piece of work at a time, and principals after one another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.coordinators import matching as module
from headrace.broker.coordinators.matching import PIECE_TEXTS, Matching
from headrace.env.posix_node import PosixNode
from headrace.machine.patterns import PatternError


def with_matching(script: Callable[[Matching], Any]) -> Any:
    async def run() -> Any:
        node = PosixNode()
        try:
            return await script(Matching(node))
        finally:
            await node.close()

    return asyncio.run(run())


def test_one_piece_at_a_time_and_principals_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    at_work = threading.Lock()

    def watched(pattern: str, texts: list[str]) -> list[str]:
        assert at_work.acquire(blocking=False), "two pieces at a time"
        order.append(pattern)
        at_work.release()
        return texts

    monkeypatch.setattr(module, "matching", watched)
    texts = [f"t-{index}" for index in range(3 * PIECE_TEXTS)]

    async def script(matching: Matching) -> list[list[str]]:
        heavy = [matching.matching("User:heavy", f"heavy-{index}", texts) for index in range(20)]
        light = [matching.matching("User:light", "light", texts[:5])]
        return await asyncio.gather(*heavy, *light)

    *heavy, light = with_matching(script)
    assert heavy == [texts] * 20 and light == texts[:5]
    assert "light" in order[:3] and len(order) == 61


def test_a_pattern_that_nobody_understands() -> None:
    async def script(matching: Matching) -> tuple[str, str]:
        with pytest.raises(PatternError):
            await matching.matching("User:u", "(", ["a"])
        assert await matching.matching("User:u", "a|b", ["a", "b", "ab"]) == ["a", "b"]
        return await matching.what_is_wrong("User:u", "("), await matching.what_is_wrong("User:u", "(a)")

    wrong, right = with_matching(script)
    assert wrong and not right


def test_who_gives_up_waiting_holds_nobody_up() -> None:
    async def script(matching: Matching) -> list[str]:
        first = asyncio.ensure_future(matching.matching("User:a", "x", ["x"] * 10))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(matching.matching("User:b", "x", ["x"]))
        third = asyncio.ensure_future(matching.matching("User:b", "x", ["x", "y"]))
        await asyncio.sleep(0)
        second.cancel()
        await first
        return await third

    assert with_matching(script) == ["x"]
