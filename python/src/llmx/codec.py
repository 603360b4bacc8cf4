"""Between JSON and the types of this package.

A type is a frozen dataclass whose fields have the names of the members. A field with a default may be absent; `None` is
written as absence. A class variable that is a text is a member with that constant value. Members this version does not know
are ignored when they are read: a later exchange may say more.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from numbers import Number
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any, str], Any]

INTEGER_MAX = 2**53 - 1
"""The largest integer of a message, and without its sign the smallest: what every JSON reader keeps exact."""


class UnreadableError(ValueError):
    """A document that does not have the form its type asks for."""

    def __init__(self, pointer: str, expected: str) -> None:
        super().__init__(f"{pointer or 'the document'}: expected {expected}")
        self.pointer = pointer
        self.expected = expected


class UnsendableError(TypeError):
    """A value that no message can carry. `pointer` leads to it."""

    def __init__(self, pointer: str, why: str) -> None:
        super().__init__(f"{pointer or 'the document'}: {why}")
        self.pointer = pointer


def encode(value: object, pointer: str = "") -> Any:
    """What stands for a value in JSON.

    Raises `UnsendableError` at the first member that has no place in a message.
    """
    if value is None:
        return value
    if isinstance(value, str):
        return value if value.isascii() else _encodable(value, pointer)
    if isinstance(value, int):
        if -INTEGER_MAX <= value <= INTEGER_MAX:
            return value
        raise UnsendableError(pointer, f"an integer beyond {INTEGER_MAX} (2**53 - 1) cannot be sent")
    if isinstance(value, datetime):
        # As the exchange writes it.
        digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return value.astimezone(UTC).isoformat(timespec=digits).replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {_name(name, pointer): encode(item, f"{pointer}/{name}") for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item, f"{pointer}/{index}") for index, item in enumerate(value)]
    if not is_dataclass(type(value)):
        raise UnsendableError(pointer, f"{type(value).__name__} cannot be sent; {_remedy(value)}")
    kind: Any = type(value)
    names, fixed = _members(kind)
    document: dict[str, Any] = dict(fixed)
    for name in names:
        item = getattr(value, name)
        if item is not None:
            document[name] = encode(item, f"{pointer}/{name}")
    return document


def _encodable(text: str, pointer: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnsendableError(pointer, "a text with half a surrogate pair cannot be sent") from None
    return text


def _name(name: object, pointer: str) -> str:
    if isinstance(name, str):
        return _encodable(name, pointer)
    raise UnsendableError(pointer, f"{type(name).__name__} cannot be the name of a member; expected a text")


def _remedy(value: object) -> str:
    if isinstance(value, Number):
        return "expected an int (money is an integer number of micro-units)"
    if isinstance(value, timedelta):
        return "a duration is an integer number of milliseconds"
    return "expected a text, an integer, a list or a mapping"


def texts(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Several texts. One text is a sequence as well, of its letters, and never meant so.

    Raises `TypeError` for one.
    """
    if isinstance(given, str):
        raise TypeError(f"{name}={given!r} is one text; give a list: {name}=[{given!r}]")
    return tuple(given)


def check_sendable(value: object) -> None:
    """Raises `UnsendableError` at the first member that has not the form its type asks for."""
    try:
        decode(type(value), encode(value))
    except UnreadableError as error:
        raise UnsendableError(error.pointer, f"expected {error.expected}") from None


def decode(kind: type[T], document: object, pointer: str = "") -> T:
    """Reads a document as a type.

    Raises `UnreadableError` at the first member that has another form.
    """
    hint: Any = kind
    value: T = reader(hint)(document, pointer)
    return value


@cache
def constants(kind: Any) -> Mapping[str, str]:
    """The members of a type whose value is always the same."""
    found: dict[str, str] = {}
    for name, hint in get_type_hints(kind).items():
        value = getattr(kind, name, None)
        if get_origin(hint) is ClassVar and isinstance(value, str):
            found[name] = value
    return found


@cache
def _members(kind: Any) -> tuple[tuple[str, ...], Mapping[str, str]]:
    names = tuple(field.name for field in fields(kind))
    whole: Any = kind
    return names, constants(whole)


@cache
def reader(kind: Any) -> Reader:
    """What reads a value of a type hint."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union(get_args(kind))
    if origin is Literal:
        return _literal(get_args(kind))
    if origin is tuple:
        return _array(reader(get_args(kind)[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(reader(get_args(kind)[1]))
    if is_dataclass(kind):
        return _object(kind)
    return _SCALARS[kind]


def _text(value: Any, pointer: str) -> str:
    if isinstance(value, str):
        return value
    raise UnreadableError(pointer, "a text")


def _integer(value: Any, pointer: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise UnreadableError(pointer, "an integer")


def _boolean(value: Any, pointer: str) -> bool:
    if isinstance(value, bool):
        return value
    raise UnreadableError(pointer, "true or false")


def _time(value: Any, pointer: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UnreadableError(pointer, "a time (RFC 3339)") from None
    if at.tzinfo is None:
        raise UnreadableError(pointer, "a time with a zone")
    return at


def _anything(value: Any, pointer: str) -> Any:
    return value


_SCALARS: Mapping[Any, Reader] = {
    str: _text,
    int: _integer,
    bool: _boolean,
    datetime: _time,
    Any: _anything,
}


def _literal(values: tuple[str, ...]) -> Reader:
    known = frozenset(values)

    def read(value: Any, pointer: str) -> Any:
        if isinstance(value, str) and value in known:
            return value
        raise UnreadableError(pointer, "one of " + ", ".join(sorted(known)))

    return read


def _array(item: Reader) -> Reader:
    def read(value: Any, pointer: str) -> Any:
        if not isinstance(value, list):
            raise UnreadableError(pointer, "an array")
        return tuple(item(one, f"{pointer}/{index}") for index, one in enumerate(value))

    return read


def _mapping(item: Reader) -> Reader:
    def read(value: Any, pointer: str) -> Any:
        if not isinstance(value, dict):
            raise UnreadableError(pointer, "an object")
        return {name: item(one, f"{pointer}/{name}") for name, one in value.items()}

    return read


def _union(alternatives: tuple[Any, ...]) -> Reader:
    """The alternatives of a union differ by the form of their JSON, or by a constant member."""
    readers = [reader(one) for one in alternatives if one is not type(None)]

    def read(value: Any, pointer: str) -> Any:
        fault: UnreadableError | None = None
        for one in readers:
            try:
                return one(value, pointer)
            except UnreadableError as error:
                # The fault that lies deepest belongs to the alternative that was meant.
                if fault is None or error.pointer.count("/") > fault.pointer.count("/"):
                    fault = error
        raise fault or UnreadableError(pointer, "nothing")

    return readers[0] if len(readers) == 1 else read


def _object(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    own: list[Field[Any]] = list(fields(kind))
    optional = [(field.name, reader(hints[field.name])) for field in own if not is_required(field)]
    required = [(field.name, reader(hints[field.name])) for field in own if is_required(field)]
    fixed = list(constants(kind).items())

    def read(value: Any, pointer: str) -> Any:
        if not isinstance(value, dict):
            raise UnreadableError(pointer, "an object")
        for name, constant in fixed:
            if value.get(name) != constant:
                raise UnreadableError(f"{pointer}/{name}", repr(constant))
        members: dict[str, Any] = {}
        for name, item in required:
            if name not in value:
                raise UnreadableError(f"{pointer}/{name}", "this member")
            members[name] = item(value[name], f"{pointer}/{name}")
        for name, item in optional:
            if value.get(name) is not None:
                members[name] = item(value[name], f"{pointer}/{name}")
        return kind(**members)

    return read


def is_required(field: Field[Any]) -> bool:
    """Whether a field has no default."""
    return field.default is MISSING and field.default_factory is MISSING
