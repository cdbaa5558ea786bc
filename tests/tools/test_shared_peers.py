"""A shared broker that dies is named, and started once more; see the hooks of tests/conftest.py."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from peers import shared as peers_shared
from peers.headrace import HeadracePeer
from peers.kafka import answers
from peers.shared import deaths, shared, start_again


def kill(peer: HeadracePeer) -> None:
    assert peer.process is not None
    os.kill(peer.pid, signal.SIGKILL)
    peer.process.wait(30)


def test_a_dead_peer_is_named_and_started_once_more(tmp_path: Path) -> None:
    peer = HeadracePeer(tmp_path)
    with shared("the broker of this test", peer):
        assert deaths() == [] and start_again() == []
        pid = peer.pid
        kill(peer)
        (death,) = deaths()
        assert death.peer is peer
        first, *lines = death.text.splitlines()
        lacking = r"\d+ MiB free on its disk, \d+ processes killed for memory meanwhile"
        started = f"the broker of this test on port {peer.port} died by signal SIGKILL"
        assert re.fullmatch(f"{started}; {lacking}; its last lines:", first)
        assert lines == peer.log.read_text().splitlines()[-peers_shared.LAST_LINES :]
        assert [again.peer for again in start_again()] == [peer]
        assert peer.pid != pid and answers(peer.port) and deaths() == []
        kill(peer)
        with pytest.raises(RuntimeError, match="started 2 times already: the broker of this test"):
            start_again()
    assert start_again() == []
