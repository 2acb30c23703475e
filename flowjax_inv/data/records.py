"""Files of records: array_record through its own reader, TFRecord by hand, without TensorFlow."""

import struct
from collections.abc import Iterator
from pathlib import Path

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
    """Walk a TFRecord file: length (8 bytes), its checksum (4), record, its checksum (4).

    The lengths' checksums are compared; the records', too slow in Python, are not: PNG and JPEG
    notice most damage themselves.
    """
    position, records = 0, []
    while position < len(data):
        header = data[position : position + 12]
        if len(header) < 12 or struct.unpack("<I", header[8:])[0] != _masked_crc(header[:8]):
            raise ValueError(f"no record begins at byte {position}")
        (length,) = struct.unpack("<Q", header[:8])
        end = position + 12 + length
        if end + 4 > len(data):
            raise ValueError(f"cut short in the record at byte {position}")
        records.append(data[position + 12 : end])
        position = end + 4
        if len(records) == chunk:
            yield records
            records = []
    if records:
        yield records


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli, reflected
        table.append(byte)
    return tuple(table)


_CRC = _crc_table()


def _masked_crc(data: bytes) -> int:
    """Return TFRecord's checksum: CRC-32C, turned right by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[crc & 255 ^ byte]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
