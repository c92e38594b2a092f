"""The paper's learning rate: up linearly, then down with the root of the step."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tfformer")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """lr = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)

    (Vaswani et al. 2017, equation 3, with `scale` = 1.) Its peak, at `warmup_steps`, is
    scale * (d_model * warmup_steps)^-0.5.

    Args:
        d_model: D of the model.
        warmup_steps: the steps of the rise. Default 4000, the paper's.
        scale: a factor. Default 1.

    Call arguments:
        step: the optimizer's count of updates done, from 0; the first update is the paper's
            step 1.
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        if d_model < 1 or warmup_steps < 1 or scale <= 0:
            raise ValueError(
                "d_model and warmup_steps must be at least 1 and scale positive, got "
                f"d_model={d_model}, warmup_steps={warmup_steps} and scale={scale}"
            )
        self.d_model, self.warmup_steps, self.scale = d_model, warmup_steps, scale

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        rise = step * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(step), rise)

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }
