"""Errors of a SavedModel or of its user, each with a message of one line. Needs no TensorFlow."""


class UsageError(ValueError):
    """A mistake of the caller. The message of one line gives the value and the rule."""


class BrokenModel(Exception):
    """A SavedModel that no server can load. The message of one line gives the reason."""


def one_line(error, limit: int = 300) -> str:
    """The first line of an error's message: what went wrong. The other lines tell where."""
    lines = str(getattr(error, "message", None) or error).strip().splitlines()
    return (lines or [type(error).__name__])[0][:limit]
