"""What a training method may do in a step, and what it notes of its own work."""

from typing import NamedTuple

import keras

# The settings that ask for a method, of which a task may know some.
METHODS = (
    "glancing",
    "objective",
    "scheduled_sampling",
    "scheduled_sampling_decay",
    "scheduled_sampling_by",
    "scheduled_sampling_passes",
    "guided_attention",
    "guided_heads",
    "reward",
    "reward_samples",
    "teacher_weight",
)


class Methods(NamedTuple):
    """What the methods of a training do in a step; nothing, by default.

    first_pass: a function of (model, inputs, labels, seed) that gives (inputs, labels, weights):
        what a pass without gradients makes of a batch before it is learned from. The weights are of
        the loss of each label, float32 of their shape, or None: 1 each. `seed` are integers [2].
    penalty: a function of (attention, inputs) that gives what is added to the loss, a sum over the
        tokens of the target. `attention` is float32 [B, H, T, S] of each decoder layer.
    notes: names of what they note of their own work, each a `Noted` of the model.
    as_served: whether the pass that is learned from is one as the model is served: without dropout.
    lesson: a function of (loss, logits, inputs, passes) that gives what is learned in place of the
        loss, of its shape: of each label. `passes` is how often a batch holds its rows.
    """

    first_pass: object = None
    penalty: object = None
    notes: tuple = ()
    as_served: bool = False
    lesson: object = None


class Noted(keras.metrics.Metric):
    """A quotient of two sums that a method notes while it works, as the share of the tokens that it
    has replaced. Labels and logits tell it nothing.

    Args:
        name: of the column in `log.csv`.
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
    """Adds to what a model that is trained has noted under this name."""
    for metric in model.metrics:
        if metric.name == name:
            metric.add(noted, total)
