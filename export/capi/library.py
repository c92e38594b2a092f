"""TensorFlow's C API with ctypes: functions, error codes, types, and the switch for XLA.

The library is the one in TensorFlow's wheel, found without importing the package. The ops of
tensorflow-text are registered in it, because the server links them.
"""

import ctypes
import functools
import importlib.util
import os
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy; TensorFlow depends on it
import numpy as np

CODES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS "
    "PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED "
    "INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()  # in the order of absl::StatusCode
STRING = 7
DTYPES = {  # TF_DataType -> NumPy
    1: np.dtype("float32"), 2: np.dtype("float64"), 3: np.dtype("int32"), 4: np.dtype("uint8"),
    6: np.dtype("int8"), STRING: np.dtype(object), 9: np.dtype("int64"), 10: np.dtype("bool"),
    14: np.dtype("bfloat16"), 19: np.dtype("float16"),
}  # fmt: skip
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
STRING_BYTES = 24  # sizeof(TF_TString)


class ServingError(Exception):
    """An error as the server would answer it: the name of a canonical code, and a message."""

    def __init__(self, code_name: str, message: str):
        super().__init__(f"{code_name}: {message}")
        self.code_name = code_name
        self.message = message

    def __reduce__(self):  # it is sent between processes
        return ServingError, (self.code_name, self.message)


def invalid(message: str) -> ServingError:
    """The error for a wrong request."""
    return ServingError("INVALID_ARGUMENT", message)


def as_serving_error(error: Exception) -> ServingError:
    """An error of any type as the server answers it: INTERNAL, if it is no ServingError."""
    if isinstance(error, ServingError):
        return error
    return ServingError("INTERNAL", f"{type(error).__name__}: {error}")


class Output(ctypes.Structure):
    """A TF_Output: one output of an operation."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


class Status:
    """A TF_Status for one C call. Leaving the block raises the error that the call reported."""

    def __enter__(self):
        self.pointer = library().TF_NewStatus()
        return self.pointer

    def __exit__(self, error_type, *_):
        c = library()
        code, message = c.TF_GetCode(self.pointer), c.TF_Message(self.pointer)
        c.TF_DeleteStatus(self.pointer)
        if code and error_type is None:
            raise ServingError(CODES[code], message.decode(errors="replace"))


@functools.cache
def library() -> ctypes.CDLL:
    """TensorFlow's C API, with the ops of tensorflow-text registered."""
    folder = _package("tensorflow")
    if folder is None:
        raise ServingError("FAILED_PRECONDITION", "package 'tensorflow' is not installed")
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"), mode=ctypes.RTLD_GLOBAL)
    c = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"), mode=ctypes.RTLD_GLOBAL)
    for name, result, *arguments in PROTOTYPES:
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    text = _package("tensorflow_text")
    for path in sorted(text.glob("python/ops/_*.so")) if text else []:
        status = c.TF_NewStatus()
        c.TF_LoadLibrary(os.fsencode(path), status)
        code, message = c.TF_GetCode(status), c.TF_Message(status).decode(errors="replace")
        c.TF_DeleteStatus(status)
        if code:
            raise ServingError(CODES[code], message)
    return c


_xla: list[bool] = []  # the choice of the first session of the process


def switch_xla(xla: bool):
    """Disables XLA for the whole process if `xla` is False, as a server does when it starts."""
    if _xla and _xla != [xla]:
        raise ValueError(f"xla must be {_xla[0]}, as in the process's first session, got {xla}")
    if not _xla and not xla:
        library()._ZN10tensorflow21DisableXlaCompilationEv()  # DisableXlaCompilation()
    _xla[:] = [xla]


PROTOTYPES = [  # name, result, *arguments, as in tensorflow/c/c_api.h, tf_tensor.h, tf_tstring.h
    ("_ZN10tensorflow21DisableXlaCompilationEv", None),
    ("TF_NewStatus", c_void_p),
    ("TF_DeleteStatus", None, c_void_p),
    ("TF_GetCode", c_int, c_void_p),
    ("TF_Message", c_char_p, c_void_p),
    ("TF_LoadLibrary", c_void_p, c_char_p, c_void_p),
    ("TF_NewSessionOptions", c_void_p),
    ("TF_SetConfig", None, c_void_p, c_char_p, c_size_t, c_void_p),
    ("TF_DeleteSessionOptions", None, c_void_p),
    ("TF_NewGraph", c_void_p),
    ("TF_DeleteGraph", None, c_void_p),
    ("TF_LoadSessionFromSavedModel", c_void_p, c_void_p, c_void_p, c_char_p, POINTER(c_char_p),
     c_int, c_void_p, c_void_p, c_void_p),
    ("TF_NewBufferFromString", c_void_p, c_char_p, c_size_t),
    ("TF_DeleteBuffer", None, c_void_p),
    ("TF_CloseSession", None, c_void_p, c_void_p),
    ("TF_DeleteSession", None, c_void_p, c_void_p),
    ("TF_GraphOperationByName", c_void_p, c_void_p, c_char_p),
    ("TF_OperationNumOutputs", c_int, c_void_p),
    ("TF_SessionRun", None, c_void_p, c_void_p, POINTER(Output), POINTER(c_void_p), c_int,
     POINTER(Output), POINTER(c_void_p), c_int, c_void_p, c_int, c_void_p, c_void_p),
    ("TF_AllocateTensor", c_void_p, c_int, POINTER(c_int64), c_int, c_size_t),
    ("TF_DeleteTensor", None, c_void_p),
    ("TF_TensorType", c_int, c_void_p),
    ("TF_NumDims", c_int, c_void_p),
    ("TF_Dim", c_int64, c_void_p, c_int),
    ("TF_TensorElementCount", c_int64, c_void_p),
    ("TF_TensorData", c_void_p, c_void_p),
    ("TF_StringInit", None, c_void_p),
    ("TF_StringCopy", None, c_void_p, c_char_p, c_size_t),
    ("TF_StringGetDataPointer", c_void_p, c_void_p),
    ("TF_StringGetSize", c_size_t, c_void_p),
    ("TF_StringDealloc", None, c_void_p),
]  # fmt: skip


def _package(name: str) -> Path | None:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec else None
