"""Dataclasses whose classes cost little to make.

``dataclasses`` compiles six functions for each class while its module is imported: a third of the
start of ``hark run``. Here ``__init__`` is compiled at its first call, and the other methods are
closures over the fields. The decorator, its three options and the results are those of the standard
library, which also sees these classes as its own (``dataclasses.replace``, ``fields``, ``asdict``);
type checkers are shown the standard ones.

Rules. ``slots`` is always on. Not there, since hark does not use it: ``InitVar``, ``order``,
``unsafe_hash``, ``KW_ONLY``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import asdict, dataclass, field, fields, replace

_NONE: Any = object()  # no default
_FIELDS = "_hark_fields"


class _Field:
    """One field, under the names of ``dataclasses.Field``."""

    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "name", "repr")

    def __init__(self, default: Any, default_factory: Any, **flags: bool) -> None:
        self.name = ""
        self.default, self.default_factory = default, default_factory
        self.init = flags.get("init", True)
        self.repr = flags.get("repr", True)
        self.compare = flags.get("compare", True)
        self.kw_only = flags.get("kw_only", False)

    @property
    def has_default(self) -> bool:
        return self.default is not _NONE or self.default_factory is not _NONE


class _StandardFields:
    """``__dataclass_fields__``, made when somebody asks for it."""

    def __get__(self, _instance: object, owner: type) -> dict[str, Any]:
        import dataclasses  # noqa: PLC0415 - slow, and seldom needed

        out = {}
        for name, spec in getattr(owner, _FIELDS).items():
            missing: Any = dataclasses.MISSING
            made: Any = dataclasses.field(
                default=missing if spec.default is _NONE else spec.default,
                default_factory=missing if spec.default_factory is _NONE else spec.default_factory,
                init=spec.init,
                repr=spec.repr,
                compare=spec.compare,
                kw_only=spec.kw_only,
            )
            made.name, made.type = name, owner.__annotations__.get(name, "")
            made._field_type = dataclasses._FIELD  # type: ignore[attr-defined]  # noqa: SLF001
            out[name] = made
        return out


def _make_field(*, default: Any = _NONE, default_factory: Any = _NONE, **flags: bool) -> Any:
    """As ``dataclasses.field``."""
    return _Field(default, default_factory, **flags)


def _fields_of(value: Any) -> tuple[Any, ...]:
    """As ``dataclasses.fields``, also for classes of the standard library."""
    return tuple((getattr(value, _FIELDS, None) or value.__dataclass_fields__).values())


def _replaced(value: Any, /, **changes: Any) -> Any:
    """As ``dataclasses.replace``."""
    for spec in _fields_of(value):
        if spec.init and spec.name not in changes:
            changes[spec.name] = getattr(value, spec.name)
    return value.__class__(**changes)


def _as_dict(value: Any) -> Any:
    """As ``dataclasses.asdict``, for values in values, lists, tuples and dicts."""
    if hasattr(value, _FIELDS):
        return {spec.name: _as_dict(getattr(value, spec.name)) for spec in _fields_of(value)}
    if isinstance(value, list | tuple):
        return type(value)(map(_as_dict, value))
    if isinstance(value, dict):
        return {name: _as_dict(inner) for name, inner in value.items()}
    return value


def _decorator(
    cls: type | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = True,
    kw_only: bool = False,
    eq: bool = True,
) -> Any:
    """As ``dataclasses.dataclass``, with slots."""
    if not slots:
        raise TypeError("a class without slots is for the standard library")

    def wrap(plain: type) -> type:
        return _make(plain, frozen=frozen, kw_only=kw_only, eq=eq)

    return wrap if cls is None else wrap(cls)


def _collect(cls: type, *, kw_only: bool) -> tuple[dict[str, _Field], list[str]]:
    """All fields, those of the bases first, and the names of the class's own."""
    found: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        found.update(base.__dict__.get(_FIELDS, {}))
    own = []
    for name, annotation in cls.__annotations__.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = cls.__dict__.get(name, _NONE)
        spec = given if isinstance(given, _Field) else _Field(given, _NONE)
        if spec.default.__class__.__module__ == "dataclasses":
            raise TypeError(f"{cls.__name__}.{name}: take `field` from hark.values too")
        if spec.default.__class__.__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name}: a mutable default; use default_factory")
        spec.name = name
        spec.kw_only = spec.kw_only or kw_only
        found[name] = spec
        own.append(name)
    return found, own


def _make(plain: type, *, frozen: bool, kw_only: bool, eq: bool) -> type:
    specs, own = _collect(plain, kw_only=kw_only)
    inherited = {name for base in plain.__mro__[1:] for name in base.__dict__.get(_FIELDS, ())}
    body = {k: v for k, v in plain.__dict__.items() if k not in own}
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    body["__slots__"] = tuple(name for name in own if name not in inherited)
    body[_FIELDS] = specs
    body["__dataclass_fields__"] = _StandardFields()
    body.setdefault(
        "__match_args__", tuple(n for n, s in specs.items() if s.init and not s.kw_only)
    )
    for name, method in _methods(specs, frozen=frozen, eq=eq).items():
        body.setdefault(name, method)
    if eq and body.get("__hash__") is None:  # Python sets it to None beside an __eq__
        body["__hash__"] = _hash_by(specs) if frozen else None
    cls: Any = type(plain)(plain.__name__, plain.__bases__, body)
    cls.__qualname__ = plain.__qualname__
    if "__init__" not in plain.__dict__:
        cls.__init__ = _lazy_init(cls, specs, frozen=frozen)
    return cls  # type: ignore[no-any-return]


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _hash_by(specs: dict[str, _Field]) -> Callable[[Any], int]:
    values = _getter([name for name, spec in specs.items() if spec.compare])

    def hashed(self: Any) -> int:
        return hash(values(self))

    return hashed


def _methods(specs: dict[str, _Field], *, frozen: bool, eq: bool) -> dict[str, Any]:
    compared = _getter([name for name, spec in specs.items() if spec.compare])
    shown = [name for name, spec in specs.items() if spec.repr]

    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def show(self: Any) -> str:
        text = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({text})"

    methods: dict[str, Any] = {"__repr__": show, "__replace__": _replaced}
    if eq:
        methods["__eq__"] = equal
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    return methods


def _refuse(self: Any, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError  # noqa: PLC0415 - slow, and seldom needed

    raise FrozenInstanceError(f"cannot assign to {self.__class__.__name__}.{name}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)


def _lazy_init(cls: Any, specs: dict[str, _Field], *, frozen: bool) -> Callable[..., None]:
    """Return an ``__init__`` that puts the compiled one in its place when it is first called."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it is one
        made = _compile_init(cls, specs, frozen=frozen)
        cls.__init__ = made
        made(self, *args, **kwargs)

    return __init__


def _compile_init(cls: Any, specs: dict[str, _Field], *, frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_none": _NONE}
    positional: list[str] = []
    keyword: list[str] = []
    lines: list[str] = []
    for name, spec in specs.items():
        value = name
        if spec.default_factory is not _NONE:
            scope[f"_make_{name}"] = spec.default_factory
            value = f"_make_{name}()" + (f" if {name} is _none else {name}" if spec.init else "")
        elif spec.default is not _NONE:
            scope[f"_default_{name}"] = spec.default
            value = name if spec.init else f"_default_{name}"
        if spec.init:
            default = f"_default_{name}" if spec.default is not _NONE else "_none"
            word = f"{name}={default}" if spec.has_default else name
            (keyword if spec.kw_only else positional).append(word)
        if frozen:  # the slot's own setter: quicker than object.__setattr__, and allowed
            scope[f"_set_{name}"] = getattr(cls, name).__set__
            lines.append(f" _set_{name}(_self, {value})")
        else:
            lines.append(f" _self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" _self.__post_init__()")
    words = ", ".join(["_self", *positional, *(["*", *keyword] if keyword else [])])
    source = f"def __init__({words}):\n" + "\n".join(lines or [" pass"])
    exec(source, scope)  # noqa: S102 - made of identifiers of this class alone
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


if not TYPE_CHECKING:
    dataclass, field, fields, replace = _decorator, _make_field, _fields_of, _replaced
    asdict = _as_dict
