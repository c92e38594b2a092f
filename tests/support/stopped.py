"""Compares a training that is stopped in the middle with one that is not."""

import os
import signal

import numpy as np
import pytest
from workers import last_state

from training import train
from training.data.batches import Batches


def assert_goes_on(arguments, run, whole, batches=Batches, at=7):
    """Stops a training in the middle of its second epoch and resumes it by the same command. The
    result must be that of an uninterrupted training, bit for bit.

    It is validated only at the end, which does not change what it learns.

    Args:
        arguments: of the training, for the folder `run`.
        run: the folder, which must not exist.
        whole: the folder of the uninterrupted training.
        batches: the class of its batches.
        at: the number of batches of the second epoch before it is stopped.
    """
    tokens, arguments = batches.tokens, [*arguments, "--validate-every", "2"]

    def stopping(self, epoch, skip=0):
        for n, count in enumerate(tokens(self, epoch, skip)):
            if epoch == 1 and n == at:
                os.kill(os.getpid(), signal.SIGTERM)
            yield count

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "tokens", stopping)
        assert train.main(arguments) == 128 + signal.SIGTERM
    stopped = last_state(run)[1]
    assert stopped["epoch"] == 1 and stopped["batch"] > at - 1
    assert train.main([*arguments, "--resume"]) == 0
    (ours, progress), (others, _) = last_state(run), last_state(whole)
    assert progress["epoch"] == 2 and ours.keys() == others.keys()
    assert [name for name in others if not np.array_equal(ours[name], others[name])] == []
