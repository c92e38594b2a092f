"""The paper's learning rate: a linear rise, then a fall with the inverse root of the step."""

import numbers
from typing import Any

import keras
from keras import ops

from tfformer.annotations import Tensor


@keras.saving.register_keras_serializable("tfformer")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """lr = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)

    (Vaswani et al. 2017, equation 3, with `scale` = 1.) Its peak, at `warmup_steps`, is
    scale * (d_model * warmup_steps)^-0.5.

    With `total_steps`, the rate also falls linearly to zero over the last `cooldown_steps`. There
    it is multiplied by (total_steps + 1 - step) / (cooldown_steps + 1) (Hägele et al. 2024). A
    training of known length gives a better model with this fall than with a rate that stays high.

    With `rises=False` the rate starts at its peak and stays there until `warmup_steps`; then it
    falls as usual: lr = scale * d_model^-0.5 * min(step^-0.5, warmup_steps^-0.5).

    Args:
        d_model: D of the model.
        warmup_steps: the number of steps of the rise. Default 4000, as in the paper.
        scale: a factor. Default 1.
        total_steps: the number of steps of the whole training, or None (default): no cool-down.
        cooldown_steps: the number of steps of the final fall. Default 0.
        rises: whether the rate rises to its peak. Default True, as in the paper.

    Call arguments:
        step: the optimizer's number of updates so far, from 0. The first update is the paper's
            step 1.

    Raises:
        ValueError: `d_model` or `warmup_steps` is not a number of at least 1, `scale` is not
            positive, or `cooldown_steps` is given but not within `total_steps`.

    Example, the peak, which is (512 * 4000)^-0.5:
        >>> rate = WarmupSchedule(d_model=512, warmup_steps=4000)
        >>> round(float(rate(3999)), 6)
        0.000699
    """

    def __init__(
        self,
        d_model: int,
        warmup_steps: int = 4000,
        scale: float = 1.0,
        total_steps: int | None = None,
        cooldown_steps: int = 0,
        rises: bool = True,
    ) -> None:
        known = all(isinstance(value, numbers.Real) for value in (d_model, warmup_steps, scale))
        if not known or not (d_model >= 1 and warmup_steps >= 1 and scale > 0):
            raise ValueError(
                "d_model and warmup_steps must be at least 1 and scale positive, got "
                f"d_model={d_model!r}, warmup_steps={warmup_steps!r} and scale={scale!r}"
            )
        steps = cooldown_steps, total_steps or 0
        known = all(isinstance(value, numbers.Real) for value in steps)
        if cooldown_steps and (not known or not 0 < cooldown_steps <= steps[1]):
            raise ValueError(
                "cooldown_steps must be positive and at most total_steps, got "
                f"cooldown_steps={cooldown_steps!r} and total_steps={total_steps!r}"
            )
        self.d_model, self.warmup_steps, self.scale = d_model, warmup_steps, scale
        self.total_steps, self.cooldown_steps = total_steps, cooldown_steps
        self.rises = rises

    def __call__(self, step: int | Tensor) -> Tensor:
        step = ops.cast(step, "float32") + 1.0
        first = step * self.warmup_steps**-1.5 if self.rises else self.warmup_steps**-0.5
        rate = self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(step), first)
        if not self.cooldown_steps or self.total_steps is None:
            return rate
        left = (self.total_steps + 1.0 - step) / (self.cooldown_steps + 1.0)
        return rate * ops.clip(left, 0.0, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "total_steps": self.total_steps,
            "cooldown_steps": self.cooldown_steps,
            "rises": self.rises,
        }
