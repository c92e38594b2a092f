"""Teachers: the student learns their distribution of each next token, beside the targets."""

import itertools
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from stopped import assert_goes_on

from tfformer import SmoothedCrossEntropy, Tokenizer, Transformer, TransformerConfig
from tfformer import run as runs
from tfformer.layers.packing import without_padding
from training import train
from training.methods.method import Methods
from training.methods.teachers import Teachers
from training.preparation.prepare import read_settings
from training.recipe import Recipe
from training.step.adam import Adam
from training.step.parallel import in_parts

V = 19
NUMBERS = ("eins", "zwei", "drei", "vier", "fünf")
SIZES = [
    "--preset", "test", "--num-encoder-layers", "1", "--num-decoder-layers", "1", "--epochs", "2",
    "--max-tokens", "47", "--batch-tokens", "256", "--warmup-steps", "5", "--cores", "1",
    "--checkpoint-steps", "3",
]  # fmt: skip


def config(**options):
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return TransformerConfig.preset("test", V, dropout=0.0, **layers, **options)


@pytest.fixture(scope="module")
def batch():
    """Inputs and labels of 4 pairs, padded to 7 and 5 tokens; tests must not change them."""
    rng = np.random.default_rng(7)
    source, labels = (rng.integers(4, V, (4, size)).astype("int32") for size in (7, 5))
    source[1, 4:] = labels[0, 3:] = labels[3, 2:] = 0
    first = np.full((4, 1), 2, "int32")
    target = np.where(labels, np.concatenate([first, labels[:, :-1]], axis=1), 0)
    return {"source_ids": source, "target_ids": target}, labels


def models(randomise, count):
    found = [randomise(Transformer(config())) for _ in range(count)]
    for n, model in enumerate(found):  # `randomise` changes them in the same way
        model.set_weights([(1 + n / 3) * weight for weight in model.get_weights()])
    return found


def student(randomise, lesson=None, **options):
    keras.utils.set_random_seed(5)
    model = in_parts(Transformer)(config(), methods=Methods(lesson=lesson), **options)
    randomise(model).compile(Adam(0.01), SmoothedCrossEntropy())
    return model


@pytest.mark.parametrize("packed", [False, True])
def test_loss_adds_cross_entropy_to_the_mean_of_teachers(batch, randomise, packed):
    inputs, labels = batch
    if packed:
        inputs, labels = without_padding(*map(tf_of, batch))
    one, two, own = models(randomise, 3)
    loss = np.random.default_rng(3).uniform(1, 2, np.shape(labels)).astype("float32")
    logits = own(inputs)
    found = Teachers([one, two], 0.3)(loss, logits, inputs)

    def softmax(z):
        z = np.exp(np.float64(z) - np.max(z, axis=-1, keepdims=True))
        return z / z.sum(axis=-1, keepdims=True)

    q = (softmax(one(inputs)) + softmax(two(inputs))) / 2
    wanted = 0.7 * loss - 0.3 * (q * np.log(softmax(logits))).sum(axis=-1)
    assert found.shape == np.shape(labels)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def tf_of(arrays):
    return tf.nest.map_structure(tf.constant, arrays)


def test_gradient_is_zero_when_student_equals_teacher(batch, randomise):
    """The cross-entropy is minimal if both are equal: all gradients are 0."""
    inputs, labels = tf_of(batch)
    model = student(randomise)
    other = Transformer(config())
    other.set_weights(model.get_weights())
    model.methods = Methods(lesson=Teachers([other], 1.0))
    total, tokens, *gradients = model._sums(inputs, labels)
    assert total > 0 and tokens == np.count_nonzero(labels)
    assert max(np.abs(gradient).max() for gradient in gradients) < 1e-4
    model.methods = Methods(lesson=Teachers([other], 0.5))
    assert max(np.abs(gradient).max() for gradient in model._sums(inputs, labels)[2:]) > 0.1


@pytest.fixture(scope="module")
def lesson(randomise):
    return Teachers(models(randomise, 2), 0.4)


@pytest.fixture(scope="module")
def whole(batch, randomise, lesson):
    """The loss of a batch that is computed in one part."""
    return student(randomise, lesson)._sums(*tf_of(batch))


@pytest.mark.parametrize(("parts", "cores"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("packed", [None, without_padding])
def test_batch_in_parts_gives_the_same_loss(batch, randomise, lesson, whole, parts, cores, packed):
    inputs, labels = tf_of(batch)
    split = student(randomise, lesson, parts=parts, cores=cores, without_padding=packed)
    for mine, other in zip(split._sums(inputs, labels), whole, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


# In a training.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pairs and translators: `one` and `two` can be their teachers, the others cannot."""

    folder = tmp_path_factory.mktemp("teachers")
    texts = [" ".join(words) for words in itertools.product(NUMBERS, repeat=3)]
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts))
    tokenizer = Tokenizer.train(texts, vocabulary_size=290, kind="char")
    upper = Tokenizer.train([t.upper() for t in texts], vocabulary_size=290, kind="char")
    size = tokenizer.source_vocabulary_size
    for name, options in (("one", {}), ("two", {"d_ff": 37}), ("other", {}),
                          ("short", {"positions": "learned", "max_positions": 31}),
                          ("marian", {"source_eos": False})):  # fmt: skip
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
        model = Transformer(TransformerConfig.preset("test", size, **layers, **options))
        runs.save(folder / name, model, upper if name == "other" else tokenizer)
    return folder


def words(folder, run, *teachers):
    named = ["--teachers", *(str(folder / teacher) for teacher in teachers)] if teachers else []
    return ["--source", str(folder / "pairs.tsv"), "--run", str(run), *SIZES, *named]


@pytest.mark.slow
def test_training_with_teachers_resumes_bit_identically(folder, tmp_path, capsys):
    """Also after the teachers' runs are deleted. The model card names them."""
    folder = shutil.copytree(folder, tmp_path / "teachers")
    passes = ["--r-drop", "2", "--r-drop-from", "1"]
    arguments = words(folder, tmp_path / "whole", "one", "two") + passes
    assert train.main(arguments) == 0
    card = (tmp_path / "whole" / "README.md").read_text()
    for name in ("one", "two"):
        weights = runs.read_config(folder / name)["weights"]
        assert f"how likely each token is to the run `{name}`, weights `{weights}`" in card
    assert_goes_on(
        words(folder, tmp_path / "run", "one", "two") + passes,
        tmp_path / "run",
        tmp_path / "whole",
        at=3,
    )
    capsys.readouterr()
    again = words(folder, tmp_path / "run", "two", "one")
    assert train.main([*again, "--resume"]) == 2
    assert "--teachers must be as when" in capsys.readouterr().err
    for name in ("one", "two"):
        shutil.rmtree(folder / name)
    resumed = ["--run", str(tmp_path / "run"), "--resume", "--epochs"]
    assert train.main([*resumed, "2", "--both-ways", "2"]) == 1
    assert "both_ways must be 0 with --teachers, got 2" in capsys.readouterr().err
    assert train.main([*resumed, "3"]) == 0
    # A damaged one is named.
    kept = tmp_path / "run" / "prepared" / "teacher-2.npz"
    kept.write_bytes(kept.read_bytes()[:-7])
    assert train.main([*resumed, "4"]) == 1
    assert "teacher-2.npz is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("teachers", "options", "code", "message"),
    [
        (["one", "other"], [], 1, "other must have the vocabulary of .*one, got another"),
        (["two"], ["--init", "other"], 1, "two must have the vocabulary of the run to begin with"),
        (["one", "short"], [], 1, "max_tokens must be at most 31, the positions of the teacher .*"
         "short, got 47"),
        (["marian"], [], 1, "source_eos must be False, as in the teacher .*marian, got True"),
        (["nobody"], [], 1, "nobody is no directory"),
        (["one"], ["--both-ways", "1"], 2, "both_ways must be 0 with --teachers, got 1"),
        (["one"], ["--r-drop", "2", "--teacher-weight", "1"], 2,
         "r_drop must be 0 with teacher_weight=1, got 2.0"),
        (["one"], ["--scheduled-sampling", "0.3"], 2, "scheduled_sampling must be 0 with --teach"),
        (["one"], ["--teacher-weight", "1.5"], 2, r"teacher_weight must be in \[0, 1\], got 1.5"),
        (["one"], ["--vocabulary-size", "300"], 2, "--vocabulary-size cannot be given with --teac"),
        (["one"], ["--family", "non-autoregressive"], 2,
         "--teachers need --family transformer or recurrent, got the family non-auto"),
        ([], ["--teacher-weight", "0.3"], 2, "--teacher-weight needs --teachers"),
    ],
)  # fmt: skip
def test_unsuitable_teachers_or_options_are_refused(
    folder, tmp_path, capsys, teachers, options, code, message
):
    given = [str(folder / word) if word == "other" else word for word in options]
    sizes = SIZES[6:] if "--init" in given else SIZES
    arguments = [*words(folder, tmp_path / "run", *teachers)[:4], *sizes]
    named = ["--teachers", *(str(folder / name) for name in teachers)] if teachers else []
    assert train.main([*arguments, *named, *given]) == code
    said = capsys.readouterr().err
    assert re.search(message, said) and said.count("error:") == 1 and "Traceback" not in said, said
    assert not (tmp_path / "run" / "prepared").exists()


@pytest.mark.slow
def test_teacher_weight_without_teachers_is_refused_on_resume(folder, tmp_path, capsys):
    arguments = words(folder, tmp_path / "run")
    assert train.main([*arguments, "--epochs", "1"]) == 0
    more = ["--run", str(tmp_path / "run"), "--resume", "--teacher-weight", "0.3"]
    assert train.main(more) == 1
    message = "teacher_weight must be 0.5 without --teachers, got 0.3"
    assert message in capsys.readouterr().err
    assert read_settings(tmp_path / "run", Recipe()).teacher_weight == 0.5
