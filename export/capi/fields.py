"""The field of a TensorProto that holds its values: each type has its own list."""

FIELDS = {
    "float16": "half_val", "bfloat16": "half_val", "float32": "float_val", "float64": "double_val",
    "string": "string_val", "int64": "int64_val", "bool": "bool_val", "uint32": "uint32_val",
    "uint64": "uint64_val", "complex64": "scomplex_val", "complex128": "dcomplex_val",
}  # fmt: skip


def values_of(proto, dtype):
    """The list of a TensorProto that holds the values of the type named `dtype`."""
    return getattr(proto, FIELDS.get(dtype, "int_val"))
