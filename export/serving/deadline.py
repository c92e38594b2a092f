"""The deadline of a request."""

import time

from ..capi.library import ServingError

# The longest timeout in seconds: blocking calls of operating systems may refuse longer ones. A
# longer timeout counts as no limit.
LONGEST = 10**6


class Deadline:
    """A deadline in `seconds` from now; with None, no deadline.

    Its `at` is a time by `time.monotonic`, a clock that all processes of a machine share, or None.
    """

    def __init__(self, seconds=None):
        limited = seconds is not None and seconds < LONGEST
        self.at = time.monotonic() + seconds if limited else None

    def left(self, more=0.0):
        """The seconds left plus `more`, at least 0. None: no deadline."""
        return None if self.at is None else max(0.0, self.at - time.monotonic() + more)

    def check(self, doing):
        """Raises DEADLINE_EXCEEDED if the deadline has passed; `doing` goes into the message."""
        if self.at is not None and time.monotonic() >= self.at:
            raise ServingError("DEADLINE_EXCEEDED", f"Timeout exceeded while {doing}")
