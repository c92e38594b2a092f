"""The moment at which a request is given up."""

import time

from export.capi.library import ServingError

# Seconds that the waiting calls of an operating system can count; more is as good as no limit.
LONGEST = 10**6


class Deadline:
    """A moment that comes `seconds` from now; with None it never comes.

    Attributes:
        at: by `time.monotonic`, which all processes of a machine share; None: never.
    """

    def __init__(self, seconds=None):
        limited = seconds is not None and seconds < LONGEST
        self.at = time.monotonic() + seconds if limited else None

    @classmethod
    def of(cls, at):
        """The deadline whose `at` this is."""
        deadline = cls()
        deadline.at = at
        return deadline

    def left(self, more=0.0):
        """Seconds until it, and `more`; at least 0. None: without end."""
        return None if self.at is None else max(0.0, self.at - time.monotonic() + more)

    def check(self, doing):
        """Raises DEADLINE_EXCEEDED, which names what was `doing`, if the moment has come."""
        if self.at is not None and time.monotonic() >= self.at:
            raise ServingError("DEADLINE_EXCEEDED", f"Timeout exceeded while {doing}")
