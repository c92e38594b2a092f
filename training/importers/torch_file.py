"""A file of PyTorch's `torch.save`, read without PyTorch, and without running what is in it.

Such a file is a pickle, and a pickle is a program for a small stack machine. This module runs it on
Python's own implementation of that machine, and allows only the opcodes that a file of tensors
needs. The few functions that a pickle may name are replaced by functions of this module; no other
function is called. Keys must be strings, because the hash of nested tuples can take forever.

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

from tfformer.files import open_regular, size_of

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
# Tensors may have in total so many times the numbers of their storage: a model with one embedding
# table stores it under four names.
MAXIMUM_SHARED = 4
MAXIMUM_ARGUMENTS = 99  # of a function, of a tensor's sizes and strides, of a storage
MAXIMUM_PAIRS = 100_000  # of all calls of `OrderedDict` together
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # the start of the older format


class Storage(NamedTuple):
    """An array of `count` numbers, which the file has elsewhere under a key."""

    kind: str
    key: str
    count: int


class Tensor(NamedTuple):
    """A part of a storage: offset, sizes and strides, in numbers."""

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
    if type(storage) is not Storage or len(shape) + len(strides) > MAXIMUM_ARGUMENTS:
        raise Refused("a tensor must be of a storage, and of few dimensions")
    numbers = (offset, *shape, *strides)
    if not all(type(one) is int and abs(one) < 2**63 for one in numbers):
        raise Refused("a tensor must have an offset, sizes and strides of 64 bits")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor, *_):
    """In place of `torch._utils._rebuild_parameter`."""
    return tensor


def _filled(dictionary, items):
    """A dictionary after an opcode has put items into it: [key, value, key, value, ...]."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) is not str:
            raise Refused(f"its keys must be strings, got a {type(key).__name__}")
        dictionary[key] = value
    return dictionary


ALLOWED = {
    ("collections", "OrderedDict"): dict,  # replaced by `_Unpickler._dictionary`
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    **{("torch", name): _Kind(name) for name in STORAGES},
}
# The opcodes of strings, numbers, tuples, lists, dictionaries, tensors, by their names in `pickle`.
OPCODES = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 BINFLOAT
STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2
TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
GLOBAL STACK_GLOBAL BINPERSID
""".split()


class _Dispatch(dict):
    """What is done at each opcode, by its byte."""

    def __missing__(self, code):
        raise ValueError(f"no tensor is written with the opcode {chr(code)!r}")


class _Unpickler(pickle._Unpickler):
    """Reads a pickle of tensors. Any opcode, name or key that is not allowed ends it.

    It is the Python version: the C version cannot restrict opcodes, and no signal interrupts it.
    """

    pairs = 0  # given to `OrderedDict` so far

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise Refused(
                f"it must hold tensors alone, got a pickle that names {module}.{name}, of which "
                "nothing was run"
            )
        return self._dictionary if name == "OrderedDict" else ALLOWED[module, name]

    def persistent_load(self, pid):
        if type(pid) is not tuple or not 5 <= len(pid) <= MAXIMUM_ARGUMENTS:
            raise Refused("it must refer to storages alone, got something else")
        what, kind, key, _, count, *_ = pid
        if type(kind) is not _Kind or [type(one) for one in (what, key, count)] != [str, str, int]:
            raise Refused("it must refer to storages alone, got something else")
        return Storage(kind.name, key, count)

    def _dictionary(self, pairs=()):
        """In place of `collections.OrderedDict`, which Python 2 wrote with a list of pairs."""
        self.pairs += len(pairs)
        if self.pairs > MAXIMUM_PAIRS or any(len(pair) != 2 for pair in pairs):
            raise Refused(f"its dictionaries must be of at most {MAXIMUM_PAIRS:,} pairs")
        return _filled({}, [one for pair in pairs for one in pair])

    def _call(self):
        arguments = self.stack.pop()
        if type(arguments) is not tuple or len(arguments) > MAXIMUM_ARGUMENTS:
            raise Refused(f"its functions must have at most {MAXIMUM_ARGUMENTS} arguments")
        self.stack[-1] = self.stack[-1](*arguments)

    def _put_item(self):
        value, key = self.stack.pop(), self.stack.pop()
        _filled(self.stack[-1], [key, value])

    def _put_items(self):
        items = self.pop_mark()
        _filled(self.stack[-1], items)

    def _make_dictionary(self):
        items = self.pop_mark()
        self.append(_filled({}, items))

    def _ignore_attributes(self):
        """A dictionary may have attributes, `_metadata` for instance. They are not needed."""
        self.stack.pop()

    dispatch = _Dispatch(
        {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
         for name in OPCODES}
        | {pickle.SETITEM[0]: _put_item, pickle.SETITEMS[0]: _put_items,
           pickle.DICT[0]: _make_dictionary, pickle.BUILD[0]: _ignore_attributes,
           pickle.REDUCE[0]: _call}
    )  # fmt: skip


def read_torch(path):
    """The arrays of a file of `torch.save` by name, each in its own format.

    Args:
        path: the file, of a dictionary of tensors.

    Raises:
        ValueError: it is none, is damaged, or names what is no tensor; nothing of it is run.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        try:
            is_zip = file.read(2) == b"PK"
            file.seek(0)
            tensors, numbers = (_from_zip if is_zip else _from_pickles)(file, size_of(file))
            return {name: _array(name, tensor, numbers) for name, tensor in tensors.items()}
        except Refused as error:
            raise ValueError(f"{path} is refused: {error}") from error
        except Exception as error:  # its type depends on the damaged byte
            what = str(error) or type(error).__name__
            raise ValueError(f"{path} is damaged, or no file of PyTorch: {what:.300}") from error


def _tensors(found):
    """{name: Tensor} of an unpickled file. Raises a ValueError if it is not of tensors."""
    if not isinstance(found, dict):
        raise ValueError(f"it must be a dictionary of tensors, got {type(found).__name__}")
    tensors = {name: one for name, one in found.items() if isinstance(one, Tensor)}
    _require_few_that_share(tensors)
    return tensors


def _from_zip(file, size):
    """The tensors of a zip of that size, and {key: bytes} of their storages."""
    with zipfile.ZipFile(file) as archive:
        members = {one.filename: one for one in archive.infolist()}
        if sum(one.file_size for one in archive.infolist()) > size:
            raise ValueError("its members must each have bytes of their own")
        if packed := [name for name, one in members.items() if one.compress_type]:
            raise ValueError(f"nothing in it must be compressed, got {packed[0]}")
        [pickled] = [name for name in members if name.endswith("/data.pkl")]
        if members[pickled].file_size > LONGEST_PICKLE:
            raise ValueError(f"{pickled} must have at most {LONGEST_PICKLE:,} bytes")
        folder = pickled.removesuffix("data.pkl")
        if f"{folder}byteorder" in members:
            if (order := archive.read(f"{folder}byteorder")) != b"little":
                raise ValueError(f"its byte order must be little, got {order!r:.99}")
        tensors = _tensors(_Unpickler(io.BytesIO(archive.read(pickled))).load())
        keys = {tensor.storage.key for tensor in tensors.values()}
        return tensors, {key: archive.read(f"{folder}data/{key}") for key in keys}


def _from_pickles(file, size):
    """The same of the older format."""
    beginning = io.BytesIO(file.read(LONGEST_PICKLE))
    for expected in (MAGIC, PROTOCOL):
        if _Unpickler(beginning).load() != expected:
            raise ValueError("it starts with other bytes")
    _Unpickler(beginning).load()  # the machine that wrote it
    storages = {}

    class Remembering(_Unpickler):
        def persistent_load(self, pid):
            storage = super().persistent_load(pid)
            return storages.setdefault(storage.key, storage)

    tensors, keys = _tensors(Remembering(beginning).load()), _Unpickler(beginning).load()
    file.seek(beginning.tell())
    numbers = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        length = count * np.dtype(STORAGES[storages[key].kind]).itemsize
        numbers[key] = file.read(length) if length <= size else b""
    return tensors, numbers


def _require_few_that_share(tensors):
    """Raises a ValueError if tensors have in total far more numbers than their storages."""
    counts = {}
    for name, (storage, _, shape, _) in tensors.items():
        counts[storage.key] = counts.get(storage.key, 0) + math.prod(shape)
        if counts[storage.key] > MAXIMUM_SHARED * storage.count:
            raise ValueError(
                f"{name} must be inside its storage: tensors may have {MAXIMUM_SHARED} times its "
                f"{storage.count:,} numbers, got {counts[storage.key]:,}"
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
