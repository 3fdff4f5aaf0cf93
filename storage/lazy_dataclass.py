"""`dataclass` as in the standard library, but it compiles no method before the first instance is made.

The standard one compiles up to six methods for each class. A start imports some 140 classes and makes instances of
few: compiling for all of them took as long as painting the first screen.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, InitVar, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass  # For a type checker there is no difference.
else:

    def dataclass(cls: type[Any] | None = None, /, **options: bool) -> Any:
        """Make the class a dataclass: `frozen`, `slots`, `eq`, `repr` and `kw_only` mean what they always mean."""
        return partial(_made, options) if cls is None else _made(options, cls)


_OPTIONS: Final = frozenset({"frozen", "slots", "eq", "repr", "kw_only"})


def _made(options: Mapping[str, bool], cls: type[Any]) -> type[Any]:
    if unknown := options.keys() - _OPTIONS:
        raise TypeError(f"{', '.join(sorted(unknown))}: use the standard library's dataclass")
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    standard = {name: is_set for name, is_set in options.items() if name in ("slots", "kw_only")}
    made = dataclasses.dataclass(init=False, repr=False, eq=False, **standard)(cls)
    if any(isinstance(each.type, InitVar) for each in made.__dataclass_fields__.values()):
        raise TypeError("InitVar: use the standard library's dataclass")
    methods: dict[str, Any] = {"__init__": _first_init(made, is_frozen=options.get("frozen", False))}
    if options.get("repr", True):
        methods["__repr__"] = _repr
    if options.get("eq", True):
        methods["__eq__"] = _eq(_values([each.name for each in fields(made) if each.compare]))
        methods["__hash__"] = None
    if options.get("frozen", False):
        if options.get("eq", True):
            hashed = [each.name for each in fields(made) if (each.compare if each.hash is None else each.hash)]
            methods["__hash__"] = _hash(_values(hashed))
        methods |= {"__setattr__": _set, "__delattr__": _delete, "__getstate__": _get_state, "__setstate__": _set_state}
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def _first_init(made: type[Any], *, is_frozen: bool) -> Callable[..., None]:
    def compile_and_call(self: Any, *arguments: Any, **options: Any) -> None:
        made.__init__ = init = _init(made, is_frozen=is_frozen)
        init(self, *arguments, **options)

    return compile_and_call


def _init(made: type[Any], *, is_frozen: bool) -> Callable[..., None]:
    """Compile `__init__`."""
    scope: dict[str, Any] = {"_unset": object(), "_set": object.__setattr__}
    positional, by_name, lines = ["self"], ["*"], []
    for each in fields(made):
        name, value, default = each.name, each.name, ""
        if each.default_factory is not MISSING:
            scope[f"_of_{name}"], default = each.default_factory, "=_unset"
            value = f"_of_{name}() if {name} is _unset else {name}" if each.init else f"_of_{name}()"
        elif each.default is not MISSING:
            scope[f"_of_{name}"], default = each.default, f"=_of_{name}"
            value = name if each.init else f"_of_{name}"
        elif not each.init:
            continue
        if each.init:
            (by_name if each.kw_only else positional).append(name + default)
        lines.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(positional + by_name * (len(by_name) > 1))
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), scope)  # noqa: S102 — of names of fields
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads these fields of an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def is_equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return is_equal


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


@recursive_repr()
def _repr(self: Any) -> str:
    said = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({said})"


def _set(_: Any, name: str, __: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(_: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
