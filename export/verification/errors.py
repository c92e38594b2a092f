"""What may be wrong with a SavedModel or with the call, in one line; TensorFlow is not needed."""


class UsageError(ValueError):
    """The caller's mistake, in one line: what was given and what is wanted."""


class BrokenModel(Exception):
    """A SavedModel that no server can load, and why, in one line."""


def one_line(error, limit: int = 300) -> str:
    """The first line of an error's message, which says what went wrong; the rest says where."""
    lines = str(getattr(error, "message", None) or error).strip().splitlines()
    return (lines or [type(error).__name__])[0][:limit]
