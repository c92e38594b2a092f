"""A batch in parts, on two devices or one after the other, gives the result of the whole batch,
to 1e-5."""

import keras
import numpy as np
import processes
import pytest
import tensorflow as tf
import two_devices

from tfformer import Transformer
from tfformer.files import unpack
from tfformer.run import model_weights
from training.step.adam import Adam
from training.step.parallel import in_parts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What support/two_devices.py writes, in a separate process, because devices can be split
    only once."""
    folder = tmp_path_factory.mktemp("two_devices")
    said = folder / "said"
    with said.open("w") as output:
        assert processes.begin("two_devices", [folder], output=output).wait() == 0, said.read_text()
    return folder


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["plain", "ours"])
def test_two_devices_give_the_results_of_one(folder, kind):
    """Weights, the metrics of each epoch, and an evaluation."""
    two, one = (unpack((folder / f"{kind}-{n}.npz").read_bytes()) for n in (2, 1))
    assert {"accuracy", "perplexity", "loss", "val_accuracy", "val_perplexity"} < set(one)
    assert one["perplexity"][1] < one["perplexity"][0]
    assert_close(two, one)


def test_the_two_devices_had_different_numbers_of_tokens():
    for ids in two_devices.batches():
        assert (ids[::2] != 0).sum() > 4 * (ids[1::2] != 0).sum() > 0


def test_each_replica_has_its_own_dropout(folder):
    dropped = unpack((folder / "dropout.npz").read_bytes())
    for moment in ("made", "stepped"):
        assert (dropped[f"{moment}-0"] != dropped[f"{moment}-1"]).any()
    for n in (0, 1):
        assert (dropped[f"made-{n}"] != dropped[f"stepped-{n}"]).any()
        np.testing.assert_array_equal(dropped[f"made-{n}"], dropped[f"restored-{n}"])


def fitted(make, optimizer, dataset=None):
    """A model after an epoch of the dataset (default: two_devices's), its history, its initial
    weights."""
    model = two_devices.compiled(make, optimizer)
    before = model_weights(model)
    dataset = two_devices.Shards().dataset(0, 0) if dataset is None else dataset
    return model, model.fit(dataset, verbose=0, shuffle=False).history, before


def clipped():
    """Clips the gradient of each step."""
    return Adam(0.01, epsilon=1e-4, global_clipnorm=0.1)


@pytest.fixture(scope="module")
def one_step():
    return fitted(Transformer, clipped())


@pytest.mark.parametrize(("parts", "cores"), [(3, 1), (12, 1), (1, 3), (3, 2), (2, 6)])
def test_training_in_parts_equals_the_whole_batch(parts, cores, one_step):
    """12 rows of very different lengths, in parts of 4, 2 and 1."""

    def make(config, **kwargs):
        return in_parts(Transformer)(config, parts=parts, cores=cores, **kwargs)

    whole, expected_history, _ = one_step
    split, history, _ = fitted(make, clipped())
    assert_close(model_weights(split), model_weights(whole))
    history.pop("stop")
    assert_close(history, expected_history)
    assert int(split.optimizer.iterations) == two_devices.STEPS, "an update a batch"


def test_parts_with_only_padding_change_nothing():
    ids = np.array(next(two_devices.batches()))
    ids[4:] = 0
    dataset = tf.data.Dataset.from_tensors(({"source_ids": ids, "target_ids": ids}, ids))
    small = dataset.map(lambda x, y: ({k: v[:4] for k, v in x.items()}, y[:4]))

    def make(config, **kwargs):
        return in_parts(Transformer)(config, parts=3, **kwargs)

    split, *_ = fitted(make, Adam(0.01, epsilon=1e-4), dataset)
    whole, *_ = fitted(Transformer, Adam(0.01, epsilon=1e-4), small)
    assert_close(model_weights(split), model_weights(whole))


def test_a_batch_of_padding_changes_no_weight():
    ids = np.zeros((4, 5), "int32")
    dataset = tf.data.Dataset.from_tensors(({"source_ids": ids, "target_ids": ids}, ids))

    def make(config, **kwargs):
        return in_parts(Transformer)(config, parts=2, **kwargs)

    model, _, before = fitted(make, Adam(0.01), dataset)
    for name, value in model_weights(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_adam_sums_sparse_gradients_of_repeated_tokens(clip):
    """The gradient of a gather has a row for each occurrence; the rows must be summed first."""
    sparse = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, -4.0]]), [1, 1], [3, 2])
    options = {"learning_rate": 0.1, "epsilon": 0.01, "global_clipnorm": clip}
    weights = [keras.Variable(np.ones((3, 2), "float32")) for _ in range(2)]
    for weight, optimizer, gradient in (
        (weights[0], Adam(**options), sparse),
        (weights[1], keras.optimizers.Adam(**options), tf.convert_to_tensor(sparse)),
    ):
        for _ in range(3):
            optimizer.apply_gradients([(gradient, weight)])
    found, expected = (weight.numpy() for weight in weights)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert (found[1] != 1).all()
