"""A training that is asked to stop: by SIGINT or SIGTERM, after the batch that is computed."""

import contextlib
import signal


class Interrupted(Exception):
    """A signal asked the training to stop; its state is saved."""

    def __init__(self, number):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Signals:
    """What this process was asked by a signal, and whether any worker was.

    Args:
        strategy: a `Strategy`.

    Attributes:
        number: of the signal that came; None before.
    """

    def __init__(self, strategy):
        self.strategy, self.number = strategy, None

    def obey(self):
        """Raises `Interrupted` if any worker was asked to stop. They wait for each other."""
        if self.strategy.any(self.number):
            self.stop()

    def stop(self):
        """Raises `Interrupted`: by this process's own signal, or by another worker's."""
        raise Interrupted(self.number or signal.SIGTERM)

    @contextlib.contextmanager
    def noted(self):
        """Inside, SIGINT and SIGTERM are noted in `number`, and do nothing else."""

        def note(number, frame):
            self.number = number

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
