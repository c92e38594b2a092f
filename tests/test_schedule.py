"""The learning rate follows the paper's formula; step 1 of the formula is the optimizer's step
0."""

import keras
import numpy as np
import pytest

from tfformer import WarmupSchedule


def paper(step, d_model, warmup_steps):
    """Vaswani et al. 2017, equation 3."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@pytest.mark.parametrize(
    ("d_model", "warmup_steps", "scale"), [(512, 4000, 1.0), (131, 17, 2.5), (7, 1, 1.0)]
)
@pytest.mark.parametrize("step", [1, 2, 16, 17, 18, 3999, 4000, 4001, 100_003])
def test_rate_equals_the_formula_of_the_paper(d_model, warmup_steps, scale, step):
    rate = WarmupSchedule(d_model, warmup_steps, scale)(step - 1)
    np.testing.assert_allclose(rate, scale * paper(step, d_model, warmup_steps), rtol=1e-5)


def test_first_update_of_an_optimizer_has_the_rate_of_step_1():
    # Plain gradient descent with a gradient of 1 moves the variable by exactly the rate.
    variable = keras.Variable(0.0)
    optimizer = keras.optimizers.SGD(WarmupSchedule(131, 17))
    moved = 0
    for step in (1, 2, 3):
        optimizer.apply([keras.ops.ones(())], [variable])
        moved += paper(step, 131, 17)
        np.testing.assert_allclose(-variable.numpy(), moved, rtol=1e-5)


def test_config_round_trip():
    arguments = {
        "d_model": 131,
        "warmup_steps": 17,
        "scale": 2.5,
        "total_steps": 101,
        "cooldown_steps": 41,
        "rises": False,
    }
    schedule = WarmupSchedule(**arguments)
    again = WarmupSchedule.from_config(schedule.get_config())
    assert again.get_config() == arguments
    optimizer = keras.optimizers.Adam(schedule)
    stored = keras.saving.serialize_keras_object(optimizer)
    again = keras.saving.deserialize_keras_object(stored)
    np.testing.assert_allclose(again.learning_rate, optimizer.learning_rate, rtol=1e-6)
    assert again.get_config()["learning_rate"]["registered_name"] == "tfformer>WarmupSchedule"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 17, 1.0), "d_model=0"), ((131, 0, 1.0), "warmup_steps=0"), ((131, 17, 0), "scale=0")],
)
def test_error_names_a_bad_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupSchedule(*arguments)


def test_cooldown_falls_linearly_to_zero_and_changes_no_earlier_step():
    plain = WarmupSchedule(131, 17)
    cooled = WarmupSchedule(131, 17, total_steps=101, cooldown_steps=41)
    steps = np.arange(101)
    factors = np.array([float(cooled(step)) / float(plain(step)) for step in steps])
    np.testing.assert_allclose(factors[:60], 1, rtol=1e-6)
    # The last step has a rate above zero; the step after it would have zero.
    np.testing.assert_allclose(factors[60:], np.arange(41, 0, -1) / 42, rtol=1e-5)
    assert float(cooled(101)) == 0 and float(cooled(500)) == 0


@pytest.mark.parametrize("total_steps", [None, 40])
def test_cooldown_longer_than_the_training_is_refused(total_steps):
    with pytest.raises(ValueError, match="cooldown_steps=41"):
        WarmupSchedule(131, 17, total_steps=total_steps, cooldown_steps=41)


def test_without_a_rise_the_rate_starts_at_the_peak():
    rises, falls = (WarmupSchedule(7, 13, 2.0, rises=rises) for rises in (True, False))
    for step in range(13):
        np.testing.assert_allclose(falls(step), 2 * (7 * 13) ** -0.5, rtol=1e-6)
    for step in (12, 13, 99):
        np.testing.assert_allclose(falls(step), rises(step), rtol=1e-6)
    assert WarmupSchedule.from_config(falls.get_config())(0) == falls(0)
