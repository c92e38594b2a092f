"""Reads files of PyTorch's `torch.save` without PyTorch, and without running code from the file.

Such a file is a pickle: a program for a small stack machine. This module runs it on Python's own
implementation of that machine, and allows only the opcodes that a file of tensors needs. The few
functions that a pickle may name are replaced by functions of this module; no other function is
called. Keys must be strings, because the hash of nested tuples can take forever.

There are two formats. PyTorch 1.6 and later writes a zip with `data.pkl` and a file of numbers for
each storage. Older versions wrote several pickles, followed by the numbers.
"""

import io
import math
import pickle
import zipfile
from typing import NamedTuple

import ml_dtypes
import numpy as np

from tfformer.files import open_regular, size_of

# {name of a storage class: number format}.
STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
LONGEST_PICKLE = 2_000_000  # bytes: some 10,000 tensors
# The tensors of a storage may have in total this many times its numbers: a model with one embedding
# table stores it under four names.
MAXIMUM_SHARED = 4
MAXIMUM_ARGUMENTS = 99  # of a function, of a tensor's sizes and strides, of a storage
MAXIMUM_PAIRS = 100_000  # in all calls of `OrderedDict` together
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # the start of the older format


class Storage(NamedTuple):
    """An array of `count` numbers, stored elsewhere in the file under a key."""

    kind: str
    key: str
    count: int


class Tensor(NamedTuple):
    """A part of a storage: offset, sizes and strides, counted in numbers, not bytes."""

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


class Refused(ValueError):
    """The pickle contains something other than tensors by name."""


class _Kind(NamedTuple):
    """Replaces a storage class in the pickle. It cannot be called."""

    name: str


def _tensor(storage, offset, shape, strides, *_):
    """Replaces `torch._utils._rebuild_tensor_v2`."""
    if type(storage) is not Storage or len(shape) + len(strides) > MAXIMUM_ARGUMENTS:
        raise Refused("a tensor must be of a storage, and of few dimensions")
    numbers = (offset, *shape, *strides)
    if not all(type(one) is int and abs(one) < 2**63 for one in numbers):
        raise Refused("a tensor must have an offset, sizes and strides of 64 bits")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _filled(dictionary, items):
    """Adds the items [key, value, key, value, ...] to a dictionary and returns it."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) is not str:
            raise Refused(f"its keys must be strings, got a {type(key).__name__}")
        dictionary[key] = value
    return dictionary


ALLOWED = {
    ("collections", "OrderedDict"): dict,  # replaced by `_Unpickler._dictionary`
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    **{("torch", name): _Kind(name) for name in STORAGES},
}
# The opcodes for strings, numbers, tuples, lists, dictionaries, tensors: their names in `pickle`.
OPCODES = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 BINFLOAT
STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2
TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
GLOBAL STACK_GLOBAL BINPERSID
""".split()


class _Dispatch(dict):
    """{byte of an opcode: its function}. Refuses all other opcodes."""

    def __missing__(self, code):
        raise ValueError(f"no tensor is written with the opcode {chr(code)!r}")


class _Unpickler(pickle._Unpickler):
    """Reads a pickle of tensors. Raises an error for any opcode, name or key that is not allowed.

    (The C version cannot restrict opcodes, and signals cannot interrupt it.)
    """

    pairs = 0  # number of pairs given to `OrderedDict` so far

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise Refused(
                f"it must contain only tensors, got a pickle that names {module}.{name}, which was "
                "not run"
            )
        return self._dictionary if name == "OrderedDict" else ALLOWED[module, name]

    def persistent_load(self, pid):
        if type(pid) is not tuple or not 5 <= len(pid) <= MAXIMUM_ARGUMENTS:
            raise Refused("it must refer to storages only, got something else")
        what, kind, key, _, count, *_ = pid
        if type(kind) is not _Kind or [type(one) for one in (what, key, count)] != [str, str, int]:
            raise Refused("it must refer to storages only, got something else")
        return Storage(kind.name, key, count)

    def _dictionary(self, pairs=()):
        """Replaces `collections.OrderedDict`, which Python 2 wrote with a list of pairs."""
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
        """Skips the attributes of a dictionary, for example `_metadata`. They are not needed."""
        self.stack.pop()

    dispatch = _Dispatch(
        {getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
         for name in OPCODES}
        | {pickle.SETITEM[0]: _put_item, pickle.SETITEMS[0]: _put_items,
           pickle.DICT[0]: _make_dictionary, pickle.BUILD[0]: _ignore_attributes,
           pickle.REDUCE[0]: _call}
    )  # fmt: skip


def read_torch(path):
    """Reads {name: array} from a file of `torch.save`. Each array keeps its number format.

    Raises:
        ValueError: it is no such file, is damaged, or names something other than tensors. No code
            of the file is run.
    """
    with open_regular(path) as file:
        try:
            is_zip = file.read(2) == b"PK"
            file.seek(0)
            tensors, numbers = (_from_zip if is_zip else _from_pickles)(file, size_of(file))
            return {name: _array(name, tensor, numbers) for name, tensor in tensors.items()}
        except Refused as error:
            raise ValueError(f"{path} is refused: {error}") from error
        except Exception as error:  # the type of the error depends on the damaged byte
            what = str(error) or type(error).__name__
            raise ValueError(f"{path} is damaged, or no file of PyTorch: {what:.300}") from error


def _tensors(found):
    """{name: Tensor} of an unpickled file. Raises a ValueError if it is no dictionary."""
    if not isinstance(found, dict):
        raise ValueError(f"it must be a dictionary of tensors, got {type(found).__name__}")
    tensors = {name: one for name, one in found.items() if isinstance(one, Tensor)}
    _require_few_that_share(tensors)
    return tensors


def _from_zip(file, size):
    """The tensors of a zip file of `size` bytes, and {key: bytes} of their storages."""
    with zipfile.ZipFile(file) as archive:
        members = {one.filename: one for one in archive.infolist()}
        if sum(one.file_size for one in archive.infolist()) > size:
            raise ValueError("its members must each have bytes of their own")
        if packed := [name for name, one in members.items() if one.compress_type]:
            raise ValueError(f"its members must not be compressed, got {packed[0]}")
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
    """The same for the older format."""
    beginning = io.BytesIO(file.read(LONGEST_PICKLE))
    for expected in (MAGIC, PROTOCOL):
        if _Unpickler(beginning).load() != expected:
            raise ValueError("it starts with other bytes")
    _Unpickler(beginning).load()  # facts about the writing machine, not needed
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
    """Raises a ValueError if the tensors of a storage have far more numbers than it has."""
    counts = {}
    for name, (storage, _, shape, _) in tensors.items():
        counts[storage.key] = counts.get(storage.key, 0) + math.prod(shape)
        if counts[storage.key] > MAXIMUM_SHARED * storage.count:
            raise ValueError(
                f"{name} must be inside its storage: tensors may have {MAXIMUM_SHARED} times its "
                f"{storage.count:,} numbers, got {counts[storage.key]:,}"
            )


def _array(name, tensor, numbers):
    """The NumPy array of a `Tensor`."""
    storage, offset, shape, strides = tensor
    dtype, data = np.dtype(STORAGES[storage.kind]), numbers[storage.key]
    if len(data) != storage.count * dtype.itemsize:
        raise ValueError(f"{name} must have {storage.count:,} numbers, got {len(data):,} bytes")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    empty = 0 in shape
    if math.prod(shape) > storage.count:  # the tensor would repeat numbers
        raise ValueError(f"{name} must be inside its storage, got {shape} of {storage.count:,}")
    if min((offset, *shape, *strides)) < 0 or (not empty and last >= storage.count):
        raise ValueError(f"{name} must be inside its storage, got {shape} from {offset} on")
    if empty:
        return np.zeros(shape, dtype)
    array = np.frombuffer(data, dtype)[offset:]
    steps = [step * dtype.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(array, shape, steps, writeable=False)
