"""Pickles read as inert data: nothing is imported, nothing is called, nothing grows beyond the file.

The standard unpickler calls what the file names, sizes its memo by a number in the file and hashes whatever the
file calls a key; each of these lets a hostile file run code, take all memory or never end. This one is a small
stack machine that builds plain values, and where a pickle would import a name or call it, leaves a `Name` or a
`Call` for the reader to interpret.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_OPERATIONS = 20_000_000


class PickleError(ValueError):
    """The bytes are not a pickle that may be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Name:
    """Something the pickle would have imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Call:
    """Something the pickle would have called: what, with which arguments, and the state then given to the result."""

    function: Name
    args: tuple[Any, ...]
    state: Any = None


def load(data: bytes, allowed: Callable[[str, str], bool], max_operations: int = MAX_OPERATIONS) -> Any:
    """The value in a pickle, of plain Python values, `Name` and `Call`; a name not `allowed(module, name)` is refused.

    Example:
        >>> import pickle
        >>> load(pickle.dumps({"soups": [1, 2.5, "onion", None]}), allowed=lambda module, name: False)
        {'soups': [1, 2.5, 'onion', None]}
    """
    try:
        return _Machine(data, allowed).run(max_operations)
    except PickleError:
        raise
    except IndexError:
        raise PickleError("the pickle is cut short or damaged") from None
    except (ValueError, TypeError, OverflowError, MemoryError, struct.error) as error:
        raise PickleError(f"the pickle is damaged: {error or type(error).__name__}") from None


class _Machine:
    """The stack, the memo and the marks of one pickle being read."""

    def __init__(self, data: bytes, allowed: Callable[[str, str], bool]) -> None:
        self.data = data
        self.position = 0
        self.allowed = allowed
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def run(self, max_operations: int) -> object:
        data = self.data
        for _ in range(max_operations):
            code = data[self.position]
            self.position += 1
            if code == _STOP:
                return self.stack.pop()
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise PickleError(f"byte {self.position - 1} is {code:#04x}, which no pickled table holds")
            operation(self)
        raise PickleError(f"more than {max_operations:,} operations: save the table as CSV instead")

    def take(self, size: int) -> bytes:
        start = self.position
        end = start + size
        if end > len(self.data):
            raise PickleError(f"the pickle is cut short: byte {start} announces {size:,} more bytes than there are")
        self.position = end
        return self.data[start:end]

    def number(self, size: int) -> int:
        """An unsigned number of so many bytes."""
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.position)
        if end < 0:
            raise PickleError("the pickle is cut short: a line has no end")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self, count: int) -> list[object]:
        # Values below the last mark belong to something unfinished.
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise PickleError("the pickle takes more values than it gave")
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def pop_mark(self) -> list[object]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def top(self, kind: type) -> object:
        if type(self.stack[-1]) is not kind:
            raise PickleError(f"expected a {kind.__name__}, found a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def extend(self, values: list[object]) -> None:
        target = self.top(list)
        assert isinstance(target, list)
        target.extend(values)

    def update(self, flat: list[object]) -> None:
        target = self.top(dict)
        assert isinstance(target, dict)
        if len(flat) % 2:
            raise PickleError("a dictionary with a key that has no value")
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            # Only keys that hash in constant time: nested tuples can take for ever, huge integers collide.
            if type(key) is not str and not (type(key) is int and abs(key) < 1 << 60):
                raise PickleError(f"a dictionary key of type {type(key).__name__}, expected text")
            target[key] = value

    def name(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleError("a name that is not text")
        if not self.allowed(module, name):
            raise PickleError(f"it asks for {module}.{name}, which is no part of a table: refused, nothing was run")
        self.push(Name(module, name))

    def call(self) -> None:
        function, args = self.pop(2)
        if not isinstance(function, Name) or not isinstance(args, tuple):
            raise PickleError("it calls something that is not a name")
        self.push(Call(function, args))

    def build(self) -> None:
        (state,) = self.pop(1)
        target = self.top(Call)
        assert isinstance(target, Call)
        target.state = state

    def memoise(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def remember(self, index: int) -> None:
        if index not in self.memo:
            raise PickleError(f"it refers to value {index}, which it never gave")
        self.push(self.memo[index])


def _text_int(line: bytes) -> int | bool:
    # Protocol 0 writes booleans as the integers 00 and 01.
    return line == b"01" if line in (b"00", b"01") else int(line)


def _memoise_next(m: _Machine) -> None:
    m.memo[len(m.memo)] = m.stack[-1]


def _tuple(size: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(tuple(m.pop(size)))


def _text(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(width)).decode())


def _raw(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(width)))


def _old_string(width: int) -> Callable[[_Machine], None]:
    # Python 2 did not tell text from bytes; latin-1 keeps both recoverable.
    return lambda m: m.push(m.take(m.number(width)).decode("latin-1"))


def _unsigned(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.number(width))


def _constant(value: object) -> Callable[[_Machine], None]:
    return lambda m: m.push(value)


def _new_dict(m: _Machine) -> None:
    flat = m.pop_mark()
    m.push({})
    m.update(flat)


_STOP = ord(".")

# Absent on purpose: persistent ids, the extension registry, sets, out-of-band buffers, old-style instances and
# quoted strings.
_OPERATIONS: dict[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.take(1),  # protocol number
    0x95: lambda m: m.take(8),  # frame length: the bytes are all here already
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("0"): lambda m: m.pop(1),
    ord("1"): lambda m: m.pop_mark(),
    ord("2"): lambda m: m.push(m.stack[-1]),
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("I"): lambda m: m.push(_text_int(m.line())),
    ord("L"): lambda m: m.push(int(m.line().removesuffix(b"L"))),
    ord("J"): lambda m: m.push(int.from_bytes(m.take(4), "little", signed=True)),
    ord("K"): _unsigned(1),
    ord("M"): _unsigned(2),
    0x8A: lambda m: m.push(int.from_bytes(m.take(m.number(1)), "little", signed=True)),
    ord("F"): lambda m: m.push(float(m.line())),
    ord("G"): lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    ord("T"): _old_string(4),
    ord("U"): _old_string(1),
    ord("V"): lambda m: m.push(m.line().decode("raw_unicode_escape")),
    0x8C: _text(1),
    ord("X"): _text(4),
    0x8D: _text(8),
    ord("C"): _raw(1),
    ord("B"): _raw(4),
    0x8E: _raw(8),
    0x96: _raw(8),
    ord("]"): lambda m: m.push([]),
    ord("a"): lambda m: m.extend(m.pop(1)),
    ord("e"): lambda m: m.extend(m.pop_mark()),
    ord("l"): lambda m: m.push(m.pop_mark()),
    ord(")"): _constant(()),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("t"): lambda m: m.push(tuple(m.pop_mark())),
    ord("}"): lambda m: m.push({}),
    ord("d"): _new_dict,
    ord("s"): lambda m: m.update(m.pop(2)),
    ord("u"): lambda m: m.update(m.pop_mark()),
    ord("g"): lambda m: m.remember(int(m.line())),
    ord("h"): lambda m: m.remember(m.number(1)),
    ord("j"): lambda m: m.remember(m.number(4)),
    ord("p"): lambda m: m.memoise(int(m.line())),
    ord("q"): lambda m: m.memoise(m.number(1)),
    ord("r"): lambda m: m.memoise(m.number(4)),
    0x94: _memoise_next,
    ord("c"): lambda m: m.name(m.line().decode(), m.line().decode()),
    0x93: lambda m: m.name(*m.pop(2)),
    ord("R"): lambda m: m.call(),
    0x81: lambda m: m.call(),
    ord("b"): lambda m: m.build(),
}
