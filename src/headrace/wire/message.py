"""What the generated classes have in common: equality, a printed form, and the face of a dataclass.

They are dataclasses (`fields`, `replace`, `asdict` and patterns work), but written out instead of being
made by the decorator, which would take half a millisecond a class at every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dataclasses import Field

EMPTY: Any = object()
"""The default of a parameter for which a new empty list or struct is made; None means null."""


class _Fields:
    """`__dataclass_fields__`, made when it is first asked for: few programs do, and `dataclasses` is slow to import."""

    def __get__(self, instance: object, owner: type[Message]) -> dict[str, Field[Any]]:
        from dataclasses import field, make_dataclass

        def default(name: str) -> Any:
            return field(default_factory=lambda: getattr(owner(), name))

        example = owner()
        made: Any = make_dataclass(
            "_", [(name, type(getattr(example, name)), default(name)) for name in owner.__slots__]
        )
        fields: dict[str, Field[Any]] = made.__dataclass_fields__
        owner.__dataclass_fields__ = fields
        return fields


class Message:
    """A message or a struct of one. `__slots__` names the fields, in the order of the schema."""

    __slots__: tuple[str, ...] = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _Fields()  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"
