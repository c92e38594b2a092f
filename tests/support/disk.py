"""A disk that is full."""

import contextlib
import resource


@contextlib.contextmanager
def no_file_over(size):
    """The limit that the kernel sets: a write over it fails, part of the file being written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
