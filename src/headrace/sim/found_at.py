"""The seed at which the search for each planted fault starts, for tests and `python -m headrace.sim plants`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SEEDS_OF_A_PLANT: Final = 60
"""So many seeds, from the first one on, are tried before a fault counts as not found."""
FOUND_BY_LEAST: Final = 2
"""How many of them must find a fault. One that a single seed finds is found by chance, and any change of the code may
give a seed another course."""

FOUND_AT: Final[Mapping[str, int]] = {
    # one broker
    "keeps-a-torn-tail": 144,
    "compacts-the-last-value": 12,
    "takes-duplicates": 10,
    "says-synced-without-sync": 2,
    "never-syncs-metadata": 2,
    "never-syncs-names": 2,
    "lets-no-beat-prolong-a-session": 22,
    "calls-synced-what-comes-meanwhile": 2,
    "calls-synced-what-comes-until-it-hears": 3,
    "takes-commits-of-old-generations": 9,
    "takes-commits-of-replaced-instances": 9,
    "lets-old-generations-stay": 9,
    "remembers-the-first-metadata": 16,
    # our client
    "commits-what-failed": 13,
    "asks-one-broker-who-leads": 18,
    # loads of coordinators, one log
    "tries-no-load-again": 3,
    "keeps-epochs-that-were-cut": 2,
    "forgets-where-a-log-begins": 2,
    "keeps-places-that-were-cut": 2,
    "reads-in-what-was-swapped-in": 5,
    # quorums
    "commits-older-epochs-by-count": 16,
    "takes-its-vote-back": 2,
    "counts-pre-votes": 2,
    "hears-any-mark": 4,
    "votes-twice": 2,
    "names-a-snapshot-before-its-sync": 6,
    "elects-any-log": 3,
    "votes-for-shorter-logs": 19,
    "forgets-its-vote": 3,
    # clusters
    "acknowledges-before-others-have-it": 2,
    "lets-laggards-join": 2,
    "never-shrinks": 1001780,
    "cuts-to-the-high-watermark": 1001775,
    "never-cuts": 2,
    "loses-starts-of-epochs": 4,
    "appends-late-answers": 1001782,
    "serves-what-is-not-committed": 2,
    "acknowledges-when-deposed": 2,
    "forgets-producers-of-others": 1001772,
    "never-fences": 9,
    "elects-whoever-is-there": 2,
    "forgets-who-is-being-added": 13,
    "ignores-leader-epochs": 13,
    # replicas
    "alters-old-partition-epochs": 6,
    "cuts-in-one-round": 3,
    "lets-replicas-join-below-its-epoch": 2,
    "remembers-followers-of-earlier-terms": 10,
    "undoes-what-nobody-answers": 4,
    # roles under workers
    "takes-a-removed-log-for-a-broken-disk": 37,
    # raises of kraft.version
    "confirms-a-raise-at-once": 2,
    "forgets-the-level-over-a-restart": 2,
    "keeps-a-level-that-was-cut": 1001771,
    # transactions
    "answers-what-is-not-committed": 24,
    "sends-markers-too-early": 15,
    "takes-any-marker": 2,
    "takes-a-batch-after-its-marker": 18,
    "counts-offsets-at-once": 1001771,
    "times-out-without-a-raise": 8,
    "sends-a-marker-once": 11,
    "ends-some-the-other-way": 1001771,
    "names-no-aborted": 1001772,
    # consumers, deletions, failures
    "downgrades-whatever-the-policy": 10,
    "takes-commits-of-older-epochs": 4,
    "lets-a-replaced-member-stay": 2,
    "loses-shares-at-an-upgrade": 2,
    "starts-no-sessions-at-an-upgrade": 2,
    "loses-shares-at-a-downgrade": 7,
    "begins-before-it-is-committed": 23,
    "leads-on-from-a-dead-disk": 3,
    # the sink of Spark
    "compares-no-options-of-writes": 18,
    "compares-no-digest": 2,
    "passes-over-what-is-older": 3,
    "takes-a-missing-mark-for-the-first": 13,
    "forgets-the-commit-topic": 2,
    "marks-before-it-commits": 4,
    "compares-no-rows-of-batches": 2,
    "fences-nothing-for-a-plan": 3,
    "leaves-no-plan": 19,
}
"""The first seed that finds a fault, if that is not 1."""


def seeds_of(name: str) -> range:
    """Returns the seeds of a planted fault."""
    first = FOUND_AT.get(name, 1)
    return range(first, first + SEEDS_OF_A_PLANT)
