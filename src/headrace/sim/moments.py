"""Moments inside a node that no client sees and no polling would catch: listeners are notified of each call of a
method, and can inject a fault at that moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

from headrace.sim.owner import WorldOwner

if TYPE_CHECKING:
    from headrace.sim.world import World


@contextmanager
def before_each(owner: type, name: str, hear: Callable[..., None]) -> Iterator[None]:
    """`hear(self, ...)` is called before each call of a method, with what that is called with, inside the block."""
    real = vars(owner)[name]

    @wraps(real)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        hear(self, *given, **named)
        return real(self, *given, **named)

    with in_place(owner, name, call):
        yield


@contextmanager
def after_each(owner: type, name: str, hear: Callable[..., None]) -> Iterator[None]:
    """The same, called after each call."""
    real = vars(owner)[name]

    @wraps(real)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        hear(self, *given, **named)
        return found

    with in_place(owner, name, call):
        yield


@contextmanager
def in_place(owner: object, name: str, other: object) -> Iterator[None]:
    """An attribute of a class or a module is another one inside the block."""
    real = vars(owner)[name]
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, real)


class Listener(Protocol):
    """Hears of calls while a run goes on: a checker, or faults that come at moments."""

    def listening(self) -> AbstractContextManager[None]:
        """Returns a block inside of which it hears."""
        ...


class MomentFaults(ABC):
    """Faults that come at moments: `taps` says at which calls, and those meet them between `begin` and `end`."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._rng = world.rng(name)
        self._owner = WorldOwner(world)
        self._is_on = False

    @abstractmethod
    def taps(self) -> list[AbstractContextManager[None]]:
        """What is listened to."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears of the moments inside the block, and meets them between `begin` and `end`."""
        with ExitStack() as entered:
            for tap in self.taps():
                entered.enter_context(tap)
            yield

    def begin(self) -> None:
        """From now on moments are met."""
        self._is_on = True

    def end(self) -> None:
        """None is met any more.

        `ClusterFaults.heal` resumes frozen processes, `Faults.heal` the network; late messages arrive by themselves.
        """
        self._is_on = False
        self._owner.close()
