"""The bytes of a file, plain or compressed, never more than a limit."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import IO

from bsdr_torch.errors import InputError

MAX_BYTES = 1 << 30

# A file is recognised by its first bytes, because downloads lose and change their extensions.
_GZIP, _BZIP2, _XZ, _ZIP, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
_XZ_MEMORY = 256 << 20
_CHUNK = 1 << 20


def read_bytes(path: Path | str, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file whole, decompressed when it is gzip, bzip2, xz, or a zip with one member."""
    path = Path(path)
    try:
        if not path.is_file():
            found = "a directory or device is there" if path.exists() else "nothing is there"
            raise InputError(f"{path}: expected a file, but {found}")
        with path.open("rb") as file:
            raw = _read_at_most(file, max_bytes)
        data = _decompress(raw, max_bytes)
    except _TooLargeError:
        raise InputError(
            f"{path}: more than {max_bytes:,} bytes of content, the most that is read at once: split the file"
        ) from None
    except _RefusedError as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    # zipfile raises NotImplementedError and RuntimeError for features and passwords, ValueError for bad fields.
    except (EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError, ValueError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: the compressed data is damaged: {error or type(error).__name__}") from None
    if not data:
        raise InputError(f"{path}: the file is empty")
    return data


class _TooLargeError(Exception):
    """More bytes than allowed."""


class _RefusedError(Exception):
    """A kind of compression that is not read; the text says what to do."""


def _decompress(raw: bytes, max_bytes: int) -> bytes:
    if raw.startswith(_GZIP):
        with gzip.GzipFile(fileobj=BytesIO(raw)) as gzip_file:
            return _read_at_most(gzip_file, max_bytes)
    if raw.startswith(_BZIP2):
        with bz2.BZ2File(BytesIO(raw)) as bzip2_file:
            return _read_at_most(bzip2_file, max_bytes)
    if raw.startswith(_XZ):
        # The header of an xz file chooses how much memory its decoder takes.
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        data = decoder.decompress(raw, max_length=max_bytes + 1)
        if len(data) > max_bytes:
            raise _TooLargeError
        if not decoder.eof:
            raise EOFError("it ends too early")
        return data
    if raw.startswith(_ZIP):
        with zipfile.ZipFile(BytesIO(raw)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                raise _RefusedError(f"a zip with {len(members)} files in it, expected one: unpack it and give one file")
            if members[0].compress_type not in _ZIP_METHODS:
                raise _RefusedError("a zip with an unusual compression method: unpack it and give the file")
            with archive.open(members[0]) as member_file:
                return _read_at_most(member_file, max_bytes)
    if raw.startswith(_ZSTD):
        raise _RefusedError("zstandard compression is not read: decompress the file first")
    return raw


def _read_at_most(file: IO[bytes] | gzip.GzipFile | bz2.BZ2File, max_bytes: int) -> bytes:
    chunks, size = [], 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if size > max_bytes:
            raise _TooLargeError
        chunks.append(chunk)
    return b"".join(chunks)
