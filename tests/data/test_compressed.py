from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsdr_torch.data.compressed import read_bytes
from bsdr_torch.errors import InputError


def zipped(data: bytes, members: int = 1) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in range(members):
            archive.writestr(f"{member}.csv", data)
    return stream.getvalue()


COMPRESSIONS: list[Callable[[bytes], bytes]] = [bytes, gzip.compress, bz2.compress, lzma.compress, zipped]


@pytest.mark.parametrize("compress", COMPRESSIONS)
def test_content_is_the_same_however_it_is_compressed(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "any_name"
    path.write_bytes(compress(b"a,b\n1,2\n"))
    assert read_bytes(path) == b"a,b\n1,2\n"


@pytest.mark.parametrize("compress", COMPRESSIONS)
def test_content_beyond_the_limit_is_refused(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(compress(b"\0" * 3_000_000))
    with pytest.raises(InputError, match="more than 2,000,000 bytes"):
        read_bytes(path, max_bytes=2_000_000)
    assert len(read_bytes(path, max_bytes=3_000_000)) == 3_000_000


@pytest.mark.parametrize("compress", COMPRESSIONS[1:])
def test_truncated_compression_is_refused(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(compress(random.Random(0).randbytes(1000))[:-30])
    with pytest.raises(InputError, match=r"cut: (the compressed data is damaged|cannot be read)"):
        read_bytes(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (gzip.compress(b""), "empty"),
        (zipped(b"x", members=2), "2 files"),
        (b"\x28\xb5\x2f\xfd....", "zstandard"),
    ],
    ids=["empty", "empty gzip", "zip of two", "zstandard"],
)
def test_what_holds_no_single_content_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_bytes(path)


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is there"):
        read_bytes(tmp_path / "absent")
    with pytest.raises(InputError, match="directory or device"):
        read_bytes(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="directory or device"):
        read_bytes(tmp_path / "pipe")


@given(st.sampled_from([b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00", b"PK\x03\x04", b""]), st.binary(max_size=100))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_content_or_an_input_error(tmp_path: Path, start: bytes, rest: bytes) -> None:
    path = tmp_path / "fuzz"
    path.write_bytes(start + rest)
    with contextlib.suppress(InputError):
        assert isinstance(read_bytes(path), bytes)
