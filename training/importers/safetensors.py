"""Reads safetensors files: 8 bytes with the header's size, the header in JSON, the numbers."""

import json
import math

import ml_dtypes
import numpy as np

from tfformer.files import open_regular, size_of

# The number formats of weights.
FORMATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}
# The limits of the safetensors library: bytes of a header; sizes and offsets are below LARGEST.
LONGEST_HEADER, LARGEST = 100_000_000, 2**64
MAXIMUM_DIMENSIONS = 64  # NumPy's limit


def read_safetensors(path):
    """Reads {name: array} from a safetensors file. Each array keeps its number format.

    As in the safetensors library, the arrays follow each other without gaps or overlaps and fill
    the file. So together they have at most as many bytes as the file. Another file, or another
    number format than `FORMATS`, is a ValueError.
    """
    with open_regular(path) as file:
        try:
            entries = _entries(file, size_of(file))
            return {
                name: np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
                for name, (dtype, shape, _) in entries.items()
            }
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} is damaged, or no safetensors file: {what:.300}") from error


def _entries(file, size):
    """{name: (dtype, shape, (begin, end))} in the order of the file, which is then at the first
    array."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, LONGEST_HEADER):
        raise ValueError(f"its header must be in its {size:,} bytes, got {length:,}")
    header = json.loads(file.read(length), object_pairs_hook=_once)
    if not isinstance(header, dict):
        raise ValueError(f"its header must be an object, got {type(header).__name__}")
    header.pop("__metadata__", None)
    found = {name: _entry(name, entry) for name, entry in header.items()}
    found = dict(sorted(found.items(), key=lambda item: item[1][2]))
    offset, available = 0, size - 8 - length
    for name, (dtype, shape, (begin, end)) in found.items():
        if begin != offset or end > available or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(
                f"{name} must be inside the file, of shape {shape}, and start at byte {offset:,}, "
                f"where the array before it ends, got bytes {begin:,} to {end:,}"
            )
        offset = end
    if offset != available:
        raise ValueError(f"its arrays must fill {available:,} bytes, got {offset:,}")
    return found


def _once(pairs):
    """A JSON object. Raises a ValueError if a key occurs twice."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name in its header must be there once")
    return found


def _entry(name, entry):
    """(dtype, shape, (begin, end)) of an entry of the header."""
    if entry["dtype"] not in FORMATS:
        raise ValueError(f"{name} must be of {list(FORMATS)}, got {entry['dtype']!r}")
    dtype, shape = np.dtype(FORMATS[entry["dtype"]]), entry["shape"]
    begin, end = entry["data_offsets"]
    numbers = [*shape, begin, end]
    if any(type(one) is not int or not 0 <= one < LARGEST for one in numbers):
        raise ValueError(f"{name} must have sizes and offsets, got {shape} and {begin, end}")
    if len(shape) > MAXIMUM_DIMENSIONS:
        raise ValueError(f"{name} must have at most {MAXIMUM_DIMENSIONS} sizes, got {len(shape)}")
    return dtype, shape, (begin, end)
