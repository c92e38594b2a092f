"""Where a TensorProto has its values: each type in a list, and the other lists say nothing."""

FIELDS = {
    "float16": "half_val",
    "bfloat16": "half_val",
    "float32": "float_val",
    "float64": "double_val",
    "string": "string_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
}
OTHERWISE = "int_val"


def values_of(proto, dtype):
    """The list of a TensorProto that has the values of a type, by the type's name."""
    return getattr(proto, FIELDS.get(dtype, OTHERWISE))
