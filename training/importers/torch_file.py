"""A file of PyTorch's `torch.save`, read without PyTorch, and without running what is in it.

Such a file is a pickle, and a pickle is a program for a small stack machine. Here that machine is
Python's own in Python, with the opcodes that tensors are written with and no others. A pickle may
name the few functions that make tensors, and each name stands for a function of this module:
nothing else is ever called. Keys are strings, so that nothing is hashed that takes long.

Two formats: a zip with `data.pkl` and a file of numbers for each storage (PyTorch 1.6 and later),
and several pickles with the numbers after them.
"""

import io
import math
import pickle
import zipfile
from typing import NamedTuple

import ml_dtypes
import numpy as np

from tfformer.files import regular_size

# The formats of numbers by the name of their storage.
STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}
LONGEST_PICKLE = 2_000_000  # bytes: some 10,000 tensors
# How often the numbers of a storage may stand in tensors: a model with one table of pieces has it
# by four names.
MOST_SHARED = 4
LONGEST_SHAPE = 99  # of an offset, sizes and strides together
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # what the older format begins with


class Storage(NamedTuple):
    """A row of `count` numbers, which stand elsewhere in the file under a key."""

    kind: str
    key: str
    count: int


class Tensor(NamedTuple):
    """A part of a storage: from where on, its sizes and strides, in numbers."""

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


class Refused(ValueError):
    """A pickle of something else than tensors by name."""


class _Kind(NamedTuple):
    """What the name of a storage's class stands for; nobody can call it."""

    name: str


def _tensor(storage, offset, shape, strides, *_):
    """In place of `torch._utils._rebuild_tensor_v2`."""
    numbers = (offset, *shape, *strides)
    if type(storage) is not Storage or len(numbers) > LONGEST_SHAPE:
        raise Refused("a tensor must be of a storage, and of few dimensions")
    if not all(type(one) is int and abs(one) < 2**63 for one in numbers):
        raise Refused("a tensor must have an offset, sizes and strides of 64 bits")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor, *_):
    """In place of `torch._utils._rebuild_parameter`."""
    return tensor


def _dictionary(pairs=()):
    """In place of `collections.OrderedDict`, which Python 2 wrote with a list of pairs."""
    return _filled({}, [one for pair in pairs for one in pair])


def _filled(dictionary, items):
    """A dictionary with what an opcode puts into it: items are key, value, key, value, ..."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) is not str:  # of tuples in tuples the hash is never ready
            raise Refused(f"its keys must be strings, got a {type(key).__name__}")
        dictionary[key] = value
    return dictionary


ALLOWED = {
    ("collections", "OrderedDict"): _dictionary,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    **{("torch", name): _Kind(name) for name in STORAGES},
}
# The opcodes of strings, numbers, tuples, lists, dictionaries, tensors, by their names in `pickle`.
OPCODES = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 BINFLOAT
STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2
TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
GLOBAL STACK_GLOBAL REDUCE BINPERSID
""".split()


class _Dispatch(dict):
    """What is done at each opcode, by its byte."""

    def __missing__(self, code):
        raise ValueError(f"no tensor is written with the opcode {chr(code)!r}")


class _Unpickler(pickle._Unpickler):
    """Reads a pickle of tensors. Any opcode, name or key that is not allowed ends it.

    It is the one in Python: the one in C cannot be told which opcodes it may obey, and no signal
    ends what it does.
    """

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise Refused(
                f"it must hold tensors alone, got a pickle that names {module}.{name}, of which "
                "nothing was run"
            )
        return ALLOWED[module, name]

    def persistent_load(self, pid):
        what, kind, key, _, count, *_ = pid
        if type(kind) is not _Kind or [type(one) for one in (what, key, count)] != [str, str, int]:
            raise Refused("it must refer to storages alone, got something else")
        return Storage(kind.name, key, count)

    def _put_item(self):
        value, key = self.stack.pop(), self.stack.pop()
        _filled(self.stack[-1], [key, value])

    def _put_items(self):
        items = self.pop_mark()
        _filled(self.stack[-1], items)

    def _make_dictionary(self):
        items = self.pop_mark()
        self.append(_filled({}, items))

    def _pass_over_state(self):
        """The attributes of a dictionary, of which nobody here has need."""
        self.stack.pop()

    dispatch = _Dispatch(
        {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
         for name in OPCODES}
        | {pickle.SETITEM[0]: _put_item, pickle.SETITEMS[0]: _put_items,
           pickle.DICT[0]: _make_dictionary, pickle.BUILD[0]: _pass_over_state}
    )  # fmt: skip


def read_torch(path):
    """The arrays of a file of `torch.save` by name, each in its own format.

    Args:
        path: the file, of a dictionary of tensors.

    Raises:
        ValueError: it is none, is damaged, or names what is no tensor; nothing of it is run.
        OSError: it cannot be read.
    """
    size = regular_size(path)
    try:
        with open(path, "rb") as file:
            is_zip = file.read(2) == b"PK"
            file.seek(0)
            found, numbers = (_from_zip if is_zip else _from_pickles)(file, size)
        if not isinstance(found, dict):
            raise ValueError(f"it must be a dictionary of tensors, got {type(found).__name__}")
        tensors = {name: one for name, one in found.items() if isinstance(one, Tensor)}
        _require_few_that_share(tensors)
        return {name: _array(name, tensor, numbers) for name, tensor in tensors.items()}
    except Refused as error:
        raise ValueError(f"{path} is refused: {error}") from error
    except Exception as error:  # of many types, by the damaged byte
        what = str(error) or type(error).__name__
        raise ValueError(f"{path} is damaged, or no file of PyTorch: {what:.300}") from error


def _from_zip(file, _):
    """What the pickle in a zip says, and {key: bytes} of the storages."""
    with zipfile.ZipFile(file) as archive:
        members = {one.filename: one for one in archive.infolist()}
        if packed := [name for name, one in members.items() if one.compress_type]:
            raise ValueError(f"nothing in it must be compressed, got {packed[0]}")
        [pickled] = [name for name in members if name.endswith("/data.pkl")]
        if members[pickled].file_size > LONGEST_PICKLE:
            raise ValueError(f"{pickled} must have at most {LONGEST_PICKLE:,} bytes")
        folder = pickled.removesuffix("data.pkl")
        if f"{folder}byteorder" in members:
            if (order := archive.read(f"{folder}byteorder")) != b"little":
                raise ValueError(f"its byte order must be little, got {order!r:.99}")
        found = _Unpickler(io.BytesIO(archive.read(pickled))).load()
        prefix = f"{folder}data/"
        names = [name for name in members if name.startswith(prefix)]
        return found, {name.removeprefix(prefix): archive.read(name) for name in names}


def _from_pickles(file, size):
    """The same of the older format, of a file of that size."""
    beginning = io.BytesIO(file.read(LONGEST_PICKLE))
    for expected in (MAGIC, PROTOCOL):
        if _Unpickler(beginning).load() != expected:
            raise ValueError("it begins with other bytes")
    _Unpickler(beginning).load()  # the machine that wrote it
    storages = {}

    class Remembering(_Unpickler):
        def persistent_load(self, pid):
            storage = super().persistent_load(pid)
            return storages.setdefault(storage.key, storage)

    found, keys = Remembering(beginning).load(), _Unpickler(beginning).load()
    file.seek(beginning.tell())
    numbers = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        length = count * np.dtype(STORAGES[storages[key].kind]).itemsize
        numbers[key] = file.read(length) if length <= size else b""
    return found, numbers


def _require_few_that_share(tensors):
    """Raises a ValueError if tensors have together far more numbers than their storages."""
    counts = {}
    for name, (storage, _, shape, _) in tensors.items():
        counts[storage.key] = counts.get(storage.key, 0) + math.prod(shape)
        if counts[storage.key] > MOST_SHARED * storage.count:
            raise ValueError(
                f"{name} must be inside its storage, of {storage.count:,} numbers, which tensors "
                f"have {MOST_SHARED} times at most, got {counts[storage.key]:,} in them"
            )


def _array(name, tensor, numbers):
    """The array of a `Tensor`."""
    storage, offset, shape, strides = tensor
    dtype, data = np.dtype(STORAGES[storage.kind]), numbers[storage.key]
    if len(data) != storage.count * dtype.itemsize:
        raise ValueError(f"{name} must have {storage.count:,} numbers, got {len(data):,} bytes")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    empty = 0 in shape
    if math.prod(shape) > storage.count:  # numbers that are there twice
        raise ValueError(f"{name} must be inside its storage, got {shape} of {storage.count:,}")
    if min((offset, *shape, *strides)) < 0 or (not empty and last >= storage.count):
        raise ValueError(f"{name} must be inside its storage, got {shape} from {offset} on")
    if empty:
        return np.zeros(shape, dtype)
    array = np.frombuffer(data, dtype)[offset:]
    steps = [step * dtype.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(array, shape, steps, writeable=False)
