"""Files of records: array_record through its own reader, TFRecord by hand, without TensorFlow."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

__all__ = ["read_records"]


def read_records(path: Path, file_format: str, chunk: int = 1000) -> Iterator[list[bytes]]:
    """Yield the records of an array_record or TFRecord file, in order, in lists of `chunk`.

    Raises:
        RuntimeError: if an array_record file is damaged.
        ValueError: if a TFRecord file is.
    """
    if file_format == "tfrecord":
        yield from _tfrecord(path.read_bytes(), chunk)
        return
    from array_record.python.array_record_module import ArrayRecordReader

    reader = ArrayRecordReader(str(path))
    try:
        total = reader.num_records()
        for start in range(0, total, chunk):
            yield reader.read(start, min(start + chunk, total))
    finally:
        if reader.ok():  # closing a damaged one raises, and hides what came before
            reader.close()


def _tfrecord(data: bytes, chunk: int) -> Iterator[list[bytes]]:
    """Walk a TFRecord file: length (8 bytes), its checksum (4), record, its checksum (4)."""
    bounds = [0]
    while bounds[-1] < len(data):  # a wrong length leads astray, and is found by its checksum
        begin = bounds[-1]
        bounds.append(begin + 16 + int.from_bytes(data[begin : begin + 8], "little"))
    frames = list(itertools.pairwise(bounds))
    for first in range(0, len(frames), chunk):
        some = frames[first : first + chunk]
        wrong = _wrong([data[begin : begin + 12] for begin, _ in some])
        if wrong.size:
            raise ValueError(f"no record begins at byte {some[wrong[0]][0]}")
        if some[-1][1] > len(data):
            raise ValueError(f"cut short in the record at byte {some[-1][0]}")
        checked = [data[begin + 12 : end] for begin, end in some]
        wrong = _wrong(checked)
        if wrong.size:
            raise ValueError(f"changed in the record at byte {some[wrong[0]][0]}")
        yield [record[:-4] for record in checked]


def _wrong(parts: Sequence[bytes]) -> np.ndarray:
    """Return the indices of those that do not end in the checksum of what comes before."""
    stored = [int.from_bytes(part[-4:], "little") for part in parts]
    return np.flatnonzero(_masked_crc([part[:-4] for part in parts]) != stored)


def _through_zeros(crc: np.ndarray) -> np.ndarray:
    """Take states of CRC-32C (Castagnoli, reflected) through four bytes of zeros."""
    for _ in range(32):
        crc = crc >> 1 ^ np.where(crc & 1, np.uint32(0x82F63B78), np.uint32(0))
    return crc


_HALVES = np.arange(2**16, dtype=np.uint32)
_LOW, _HIGH = _through_zeros(_HALVES), _through_zeros(_HALVES << 16)
_TO_ONES = bytes.fromhex("54641f64")  # takes the state from 0 to all ones, where a CRC begins


def _masked_crc(parts: Sequence[bytes]) -> np.ndarray:
    """Return TFRecord's checksums: CRC-32C, turned right by 15 bits, plus a constant.

    All parts go side by side, four bytes a step. Zeros before a part leave the state at 0.
    """
    width = -(-max(map(len, parts)) // 4) * 4 + len(_TO_ONES)
    rows = b"".join((_TO_ONES + part).rjust(width, b"\0") for part in parts)
    crc = np.zeros(len(parts), np.uint32)
    for word in np.frombuffer(rows, "<u4").reshape(len(parts), -1).T:
        crc ^= word
        crc = _LOW[crc & 0xFFFF] ^ _HIGH[crc >> 16]
    crc = ~crc
    return (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)
