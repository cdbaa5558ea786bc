"""Unknown key ids cause few fetches, whoever makes them up."""

from __future__ import annotations

from itertools import pairwise

from headrace.security.oauthbearer.refresh import ASK_AGAIN_MS, FETCH_PAUSE_MS, REMEMBERED_MAX, UnknownKeys


def test_one_id_asks_once_a_minute() -> None:
    unknown = UnknownKeys()
    assert unknown.wants_fetch("a", 0)
    assert [at for at in range(1, 200_000, 1_000) if unknown.wants_fetch("a", at)] == [60_001, 120_001, 180_001]


def test_many_ids_ask_no_more_often_than_the_pause_and_are_few() -> None:
    unknown = UnknownKeys()
    fetches = [at for at in range(0, 600_000, 7) if unknown.wants_fetch(f"id {at}", at)]
    assert len(fetches) <= 600_000 // FETCH_PAUSE_MS + 1
    assert all(later - before >= FETCH_PAUSE_MS for before, later in pairwise(fetches))
    assert len(unknown._ask_again_ms) <= REMEMBERED_MAX


def test_a_real_new_key_is_asked_for_soon_between_made_up_ones() -> None:
    unknown = UnknownKeys()
    assert unknown.wants_fetch("made up", 0)
    assert not unknown.wants_fetch("new", 1)
    assert unknown.wants_fetch("new", FETCH_PAUSE_MS)
    assert not unknown.wants_fetch("new", 2 * FETCH_PAUSE_MS)
    assert unknown.wants_fetch("new", FETCH_PAUSE_MS + ASK_AGAIN_MS)
