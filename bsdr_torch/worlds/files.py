"""Where the files that define worlds are, and how one is read and checked."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bsdr_torch.errors import InputError


def world_folder(kind: str) -> Path:
    """The folder of the worlds of a kind ("gridworld"): inside the installed package, else in the repository."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "envs" / kind
    return installed if installed.is_dir() else package.parent / "envs" / kind


def world_names(kind: str) -> list[str]:
    """The worlds of a kind that can be loaded by name, sorted."""
    return sorted(path.stem for path in world_folder(kind).glob("*.yaml"))


def world_file(kind: str, name_or_path: str | Path) -> Path:
    """The file of a world, given its name or a path that ends in .yaml."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return path
    names = world_names(kind)
    if str(name_or_path) not in names:
        raise InputError(
            f"no {kind} is called {str(name_or_path)!r}: choose one of {', '.join(names)}, "
            "or give a path that ends in .yaml"
        )
    return world_folder(kind) / f"{name_or_path}.yaml"


def read_yaml(path: Path) -> Any:
    """The content of a YAML file as plain data; a key given twice is an error."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a UTF-8 text file") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a date such as 2001-99-99
        raise InputError(f"{path}: is not valid YAML ({' '.join(str(error).split())})") from None


@dataclass(frozen=True)
class SpecField:
    """A value of a world file that knows its place, so that every complaint names the file and the field."""

    source: str
    path: str
    value: Any

    def error(self, message: str) -> InputError:
        """The error to raise about this field."""
        return InputError(f"{self.source}: {self.path}: {message}" if self.path else f"{self.source}: {message}")

    def items(self) -> Iterator[tuple[Any, SpecField]]:
        """The keys and fields of a mapping that is not empty."""
        if not isinstance(self.value, dict) or not self.value:
            raise self.error(f"expected a mapping of keys to values, got {_shortened(self.value)}")
        for key, value in self.value.items():
            yield key, SpecField(self.source, f"{self.path}.{key}" if self.path else str(key), value)

    def entries(self, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> dict[str, SpecField]:
        """The fields of a mapping whose keys are known."""
        found = {} if self.value == {} and not required else dict(self.items())
        for key in found:
            if key not in required and key not in optional:
                raise self.error(f"unknown key {key!r}; the keys are {', '.join((*required, *optional))}")
        for key in required:
            if key not in found:
                raise self.error(f"the key {key!r} is missing")
        return found

    def items_or_itself(self) -> list[SpecField]:
        """The items of a list; just this field if it is not a list."""
        if not isinstance(self.value, list):
            return [self]
        return [SpecField(self.source, f"{self.path}[{i}]", value) for i, value in enumerate(self.value)]

    def text(self) -> str:
        """Text that is not blank."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.error(f"expected text, got {_shortened(self.value)}")
        return self.value

    def names(self) -> tuple[str, ...]:
        """A list of different names, at least one."""
        if not isinstance(self.value, list) or not self.value:
            raise self.error(f"expected a list of names, got {_shortened(self.value)}")
        names = tuple(item.text() for item in self.items_or_itself())
        if len(set(names)) < len(names):
            raise self.error(f"a name is given twice in {list(names)}")
        return names

    def rows(self) -> tuple[str, ...]:
        """The rows of a drawing, all of one width."""
        rows = tuple(self.text().strip("\n").split("\n"))
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise self.error(
                    f"is ragged: row {number} ({row!r}) has {len(row)} cells and row 0 has {len(rows[0])}; "
                    "make all rows as wide"
                )
        return rows

    def number(self) -> float:
        """A number that float32 can hold."""
        is_number = is_integer(self.value) or isinstance(self.value, float)
        if not is_number or not abs(self.value) <= 1e30:
            raise self.error(f"expected a number (from -1e30 to 1e30), got {_shortened(self.value)}")
        return float(self.value)

    def probability(self) -> float:
        """A number from 0 to 1."""
        value = self.number()
        if not 0 <= value <= 1:
            raise self.error(f"expected a probability from 0 to 1, got {value:g}")
        return value

    def positive_integer(self) -> int:
        """A whole number, at least 1."""
        if not is_integer(self.value) or self.value < 1:
            raise self.error(f"expected a whole number, at least 1, got {_shortened(self.value)}")
        return int(self.value)

    def color(self) -> str:
        """A colour as "#rrggbb"."""
        if not isinstance(self.value, str) or not re.fullmatch(r"#[0-9a-fA-F]{6}", self.value):
            raise self.error(f'expected a colour as "#rrggbb" (in quotes), got {_shortened(self.value)}')
        return self.value


def is_integer(value: object) -> bool:
    """A whole number; True and False, which Python counts as integers, are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _UniqueKeyLoader(yaml.SafeLoader):
    """yaml.safe_load keeps the last of two equal keys, which hides a terrain that was pasted and not renamed."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: list[tuple[str, Any]] = []
        for key, _ in node.value:
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given twice", key.start_mark
                )
            seen.append((key.tag, key.value))
        return super().construct_mapping(node, deep)
