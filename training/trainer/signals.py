"""Stops a training on SIGINT or SIGTERM, after the current batch."""

import contextlib
import signal
import threading


class Interrupted(Exception):
    """A signal stopped the training; its state is saved."""

    def __init__(self, number):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Signals:
    """Records the stop signal of this process, and checks whether any worker received one.

    Its `number` is that of the received signal; None before.
    """

    def __init__(self, strategy):
        self.strategy, self.number = strategy, None

    def obey(self):
        """Raises `Interrupted` if any worker received a signal. Workers wait for each other."""
        if self.strategy.any(self.number):
            self.stop()

    def stop(self):
        """Raises `Interrupted` with this process's own signal, or for another worker's."""
        raise Interrupted(self.number or signal.SIGTERM)

    @contextlib.contextmanager
    def noted(self):
        """A context in which SIGINT and SIGTERM are only recorded in `number`."""

        def note(number, frame):
            self.number = number

        # Only the main thread of a program may set signal handlers.
        own = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if own else ()
        before = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
