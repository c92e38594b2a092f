"""A checkpoint is the whole state: a training resumed from it ends with the same numbers."""

import errno
import os

import keras
import numpy as np
import pytest

from tfformer import SmoothedCrossEntropy, TokenAccuracy, Transformer, TransformerConfig
from tfformer.files import RunError, pack, read_arrays
from training.trainer import checkpoint

V = 23


def make_model(seed=0, **changes):
    config = TransformerConfig.preset(
        "test", V, num_encoder_layers=1, num_decoder_layers=1, dropout=0.3, **changes
    )
    model, rng = Transformer(config), np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(scale=0.3, size=variable.shape))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=SmoothedCrossEntropy(),
        metrics=[TokenAccuracy()],
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def batch(n):
    ids = np.random.default_rng(n).integers(4, V, size=(3, 5)).astype("int32")
    return {"source_ids": ids, "target_ids": ids[:, ::-1]}, ids


def train(model, steps):
    for n in steps:
        model.train_on_batch(*batch(n))
    return model


def state(model):
    """All values of a model, its optimizer, its random generators and its metrics."""
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [np.asarray(variable).copy() for variable in variables]


def assert_equal(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def trained():
    """A model after 3 steps, for tests that do not continue its training."""
    return train(make_model(), range(3))


@pytest.fixture(scope="module")
def fresh():
    """Another model with the same sizes, other weights, and built metrics."""
    return train(make_model(seed=9), range(40, 41))


@pytest.fixture
def path(tmp_path, trained):
    checkpoint.save(tmp_path / "last.npz", trained, {"epoch": 2})
    return tmp_path / "last.npz"


def test_resumed_training_equals_uninterrupted(tmp_path, fresh):
    whole = train(make_model(), range(3))
    checkpoint.save(tmp_path / "last.npz", whole, {"batch": 3})
    expected = state(train(whole, range(3, 6)))
    assert checkpoint.restore(tmp_path / "last.npz", fresh) == {"batch": 3}
    assert int(fresh.optimizer.iterations) == 3
    found = state(train(fresh, range(3, 6)))
    assert_equal(found, expected)
    # Dropout's generators have advanced: they are part of the restored state.
    assert any("seed_generator" in variable.path for variable in fresh.variables)


def test_restore_returns_the_saved_progress(tmp_path, trained, fresh):
    progress = {"epoch": 3, "history": [{"loss": 1.25, "note": "größer"}], "best": None}
    checkpoint.save(tmp_path / "last.npz", trained, progress)
    assert checkpoint.restore(tmp_path / "last.npz", fresh) == progress


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_and_the_file_stays(path, fresh, poison):
    before, kernel = path.read_bytes(), fresh.output_projection.kernel
    good = kernel.numpy()
    bad = good.copy()
    bad[0, 0] = poison
    kernel.assign(bad)
    try:
        with pytest.raises(checkpoint.NotFinite, match="output_projection/kernel is not finite"):
            checkpoint.save(path, fresh, {})
    finally:
        kernel.assign(good)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["last.npz"]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_full_disk_leaves_the_old_file_and_no_other(path, fresh, monkeypatch, function):
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        checkpoint.save(path, fresh, {})
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["last.npz"]


@pytest.mark.parametrize("damage", ["empty", "half", "no_end", "flipped", "text"])
def test_a_damaged_file_is_refused_and_changes_nothing(path, fresh, damage):
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    else:
        content = {
            "empty": b"",
            "half": content[: len(content) // 2],
            "no_end": content[:-1],
            "text": b"no checkpoint",
        }[damage]
    path.write_bytes(content)
    before = state(fresh)
    with pytest.raises(RunError, match=r"last\.npz is damaged") as error:
        checkpoint.restore(path, fresh)
    assert "\n" not in str(error.value)
    assert_equal(state(fresh), before)


def test_the_checkpoint_of_another_model_is_refused(path):
    for changes in ({"d_ff": 31}, {"tie_embeddings": "target"}):
        with pytest.raises(RunError, match=r"last\.npz is the checkpoint of another model"):
            checkpoint.restore(path, make_model(**changes))


def test_average_is_the_mean_by_name(tmp_path):
    rng = np.random.default_rng(1)
    sets = [
        {"a": rng.normal(size=(3, 5)).astype("float32"), "b/c": np.float32([n])} for n in range(3)
    ]
    paths = [tmp_path / f"{n}.npz" for n in range(3)]
    for target, arrays in zip(paths, sets, strict=True):
        target.write_bytes(pack(arrays))
    mean = checkpoint.average(map(read_arrays, paths))
    assert set(mean) == {"a", "b/c"}
    expected = np.mean([arrays["a"].astype("float64") for arrays in sets], axis=0)
    np.testing.assert_allclose(mean["a"], expected, rtol=1e-6)
    assert mean["b/c"].tolist() == [1.0]
    assert {value.dtype for value in mean.values()} == {np.dtype("float32")}
