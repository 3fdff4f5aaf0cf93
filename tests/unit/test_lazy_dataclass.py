"""A class of ours behaves as the standard library's dataclass does, in all that we use of it."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from storage import lazy_dataclass


def shape(decorate: Callable[..., Any], **options: bool) -> tuple[type[Any], type[Any]]:
    """A class with every kind of field that is in use, and one that inherits it."""

    @decorate(**options)
    class Box:
        """Doc."""

        width: int
        lid: str = "flat"
        items: list[int] = field(default_factory=list)
        note: str = field(default="", repr=False, compare=False)
        depth: int = field(default=1, kw_only=True)
        area: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "area", self.width * self.depth)

    @decorate(**options)
    class Crate(Box):
        """Doc."""

        wood: tuple[str, ...] = ("oak",)

    return Box, Crate


OPTIONS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"slots": True, "eq": False, "repr": False},
]


def told(decorate: Callable[..., Any], options: dict[str, bool]) -> list[object]:
    """All that can be told of its instances from outside."""
    said: list[object] = []
    for kind in shape(decorate, **options):
        one, same, other = kind(width=2, depth=3), kind(width=2, depth=3, note="not compared"), kind(width=3)
        said += [kind.__match_args__, [each.name for each in dataclasses.fields(kind)], hasattr(one, "__dict__")]
        said += [one == same, one == other, one != "2", one.items is not same.items]
        said += [dataclasses.asdict(dataclasses.replace(one, width=5)), dataclasses.asdict(copy.copy(one))]
        said += [repr(one) if options.get("repr", True) else "", kind.__hash__ is None]
        for fails in (kind, lambda kind=kind: kind(1, colour="red"), lambda one=one: setattr(one, "lid", "round")):
            said.append(refused(fails))
    return said


def refused(work: Callable[[], object]) -> tuple[object, str]:
    """The refusal, if there is one."""
    try:
        work()
    except (TypeError, FrozenInstanceError) as error:
        return type(error), str(error)
    return None, ""


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_does_what_the_standard_one_does(options: dict[str, bool]) -> None:
    """Defaults, inheritance, comparison, text, refusals, and what `dataclasses` itself does with it."""
    assert told(lazy_dataclass.dataclass, options) == told(dataclasses.dataclass, options)


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Point:
    """Doc."""

    x: int
    y: tuple[int, ...] = ()


def test_frozen_ones_are_keys_and_can_be_pickled() -> None:
    """Equal ones have one hash, and a copy from bytes is equal."""
    assert {Point(1, (2,)): "here"}[Point(1, (2,))] == "here"
    assert pickle.loads(pickle.dumps(Point(1, (2,)))) == copy.deepcopy(Point(1, (2,))) == Point(1, (2,))
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del Point(1).x  # type: ignore[misc]


@pytest.mark.parametrize("option", ["order", "unsafe_hash", "weakref_slot", "init", "match_args"])
def test_what_it_does_not_do_is_refused(option: str) -> None:
    """A type checker takes it for the standard one, which does it."""
    with pytest.raises(TypeError, match=f"{option}: use the standard library's"):
        lazy_dataclass.dataclass(**{option: True})(type("Late", (), {}))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="InitVar"):
        lazy_dataclass.dataclass(type("Late", (), {"__annotations__": {"given": dataclasses.InitVar[int]}}))
