"""The interface of training methods: what they do in a training step, and their metrics."""

from typing import NamedTuple

import keras

# The settings of methods. A task may support some of them.
METHODS = (
    "glancing objective scheduled_sampling scheduled_sampling_decay scheduled_sampling_by "
    "scheduled_sampling_passes guided_attention guided_heads reward reward_samples teacher_weight"
).split()


class Methods(NamedTuple):
    """What the methods of a training do in a step. By default, nothing.

    first_pass: a function of (model, inputs, labels, seed) that returns (inputs, labels, weights).
        It changes a batch in a pass without gradients, before the training pass. The weights are
        those of each label's loss, float32 of the same shape; None: all are 1. `seed` is integers
        [2].
    penalty: a function of (attention, inputs) that returns a term added to the loss, summed over
        the target tokens. `attention` is float32 [B, H, T, S] of each decoder layer.
    notes: names of the methods' metrics, each a `Noted` of the model.
    as_served: whether the training pass runs without dropout, as when the model is served.
    lesson: a function of (loss, logits, inputs, passes) that returns a replacement for the loss of
        each label, of the same shape. `passes` is the number of copies of each row in a batch.
    """

    first_pass: object = None
    penalty: object = None
    notes: tuple = ()
    as_served: bool = False
    lesson: object = None


class Noted(keras.metrics.Metric):
    """A metric that a method updates itself: a quotient of two sums, such as the share of replaced
    tokens. It ignores labels and logits.

    Args:
        name: the name of the column in `log.csv`.
    """

    def __init__(self, name, **kwargs):
        super().__init__(name=name, **kwargs)
        self.noted = self.add_variable((), "zeros", name="noted")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        pass

    def add(self, noted, total):
        """Adds to both sums."""
        self.noted.assign_add(noted)
        self.total.assign_add(total)

    def result(self):
        return self.noted / keras.ops.maximum(self.total, 1e-9)


def note(model, name, noted, total):
    """Adds to the `Noted` metric of this name, if the model has one."""
    for metric in model.metrics:
        if metric.name == name:
            metric.add(noted, total)
