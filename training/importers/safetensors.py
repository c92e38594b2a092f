"""The safetensors format: the size of a header in 8 bytes, the header in JSON, the numbers."""

import json
import math
from pathlib import Path

import numpy as np

# The formats of numbers that weights come in. (NumPy has no bfloat16: its bits are the upper half
# of a float32's.)
FORMATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LONGEST_HEADER = 100_000_000  # as the library has it


def read_safetensors(path):
    """The arrays of a safetensors file by name, in float32.

    Args:
        path: the file.

    Raises:
        ValueError: it is none, is damaged, or has numbers that are no weights.
        OSError: it cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        header, numbers = _parts(content)
        return {
            name: _array(name, entry, numbers)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is damaged, or no safetensors file: {what}") from error


def _parts(content):
    """The header, and the bytes of the numbers."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(len(content) - 8, LONGEST_HEADER):
        raise ValueError(f"its header must be in its {len(content):,} bytes, got {size:,}")
    header = json.loads(content[8 : 8 + size])
    if not isinstance(header, dict):
        raise ValueError(f"its header must be an object, got {type(header).__name__}")
    return header, memoryview(content)[8 + size :]


def _array(name, entry, numbers):
    """The array that an entry of the header describes."""
    if entry["dtype"] not in FORMATS:
        raise ValueError(f"{name} must be of {list(FORMATS)}, got {entry['dtype']!r}")
    dtype, shape = np.dtype(FORMATS[entry["dtype"]]), entry["shape"]
    begin, end = entry["data_offsets"]
    if any(type(one) is not int or one < 0 for one in (*shape, begin, end)):
        raise ValueError(f"{name} must have sizes and places, got {shape} and {begin, end}")
    if end > len(numbers) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} must be inside the file, got bytes {begin} to {end}")
    array = np.frombuffer(numbers[begin:end], dtype).reshape(shape)
    if entry["dtype"] == "BF16":
        return (array.astype("<u4") << 16).view("<f4")
    return array.astype("float32")
