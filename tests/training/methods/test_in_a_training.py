"""Methods in a training: without effect when off, resumed exactly, refused in wrong
combinations."""

import csv
import random
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from stopped import assert_goes_on
from tiers import slow_or_nightly

from tfformer import SmoothedCrossEntropy, Tokenizer, Transformer, TransformerConfig
from tfformer import run as runs
from tfformer.config import RecurrentConfig
from tfformer.models.recurrent import Recurrent
from training import train
from training.methods.guided_attention import GuidedAttention
from training.methods.method import Methods
from training.recipe import Recipe
from training.step.adam import Adam
from training.step.parallel import in_parts
from training.tasks import TASKS

WORDS = {"alpha": "eins", "beta": "zwei", "gamma": "drei", "delta": "vier", "eta": "sieben"}
METHODS = [
    "--scheduled-sampling", "0.7", "--scheduled-sampling-by", "sampled",
    "--scheduled-sampling-passes", "3", "--guided-attention", "0.5", "--objective", "kl",
    "--normalization", "batch",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, chosen = tmp_path_factory.mktemp("pairs"), random.Random(7)
    rows = [chosen.choices(list(WORDS), k=chosen.randint(1, 4)) for _ in range(251)]
    (folder / "a").write_text("".join(" ".join(row) + "\n" for row in rows))
    (folder / "b").write_text("".join(" ".join(WORDS[w] for w in row) + "\n" for row in rows))
    links = [" ".join(f"{n}-{n}" for n in range(len(row))) for row in rows]
    (folder / "links").write_text("".join(f"{line}\n" for line in links))
    return [f"--source={folder / 'a'}", f"--target={folder / 'b'}"]


def aligned(files):
    """The option that names the links of the files."""
    return f"--alignments={Path(files[0].partition('=')[2]).with_name('links')}"


def words(files, run, *options):
    return [
        *files, "--run", str(run), "--max-tokens", "47", "--batch-tokens", "512", "--epochs", "2",
        "--cores", "1", "--warmup-steps", "5", "--checkpoint-steps", "3", "--optimizer", "adam",
        "--learning-rate-scale", "0.1", *options,
    ]  # fmt: skip


SIZES = [
    "--preset", "test", "--num-encoder-layers", "1", "--num-decoder-layers", "1",
    "--vocabulary-size", "300", "--vocabulary-kind", "char",
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """An uninterrupted training with several methods."""
    run = tmp_path_factory.mktemp("methods") / "run"
    assert train.main(words(files, run, *SIZES, *METHODS, aligned(files))) == 0
    return run


@pytest.mark.slow
def test_training_with_several_methods_resumes_bit_identically(files, whole, tmp_path):
    options = [*SIZES, *METHODS, aligned(files)]
    assert_goes_on(words(files, tmp_path / "run", *options), tmp_path / "run", whole)
    with (whole / "log.csv").open() as file:
        first, second = (float(row["replaced"]) for row in csv.DictReader(file))
    assert 0 < first < second < 0.7
    # The averages of BatchNorm are part of the model.
    weights = runs.model_weights(runs.load_translator(whole).model)
    moved = [w for name, w in weights.items() if name.endswith("moving_mean")]
    assert moved and all(np.abs(w).max() > 1e-4 for w in moved)


@pytest.mark.parametrize(
    "kind", slow_or_nightly(["minimum-risk", "self-critical"], ["self-critical"])
)
def test_training_by_reward_resumes_bit_identically(files, whole, tmp_path, kind):
    options = ["--init", str(whole), "--reward", kind, "--reward-samples", "3"]
    assert train.main(words(files, tmp_path / "whole", *options)) == 0
    assert_goes_on(
        words(files, tmp_path / "run", *options), tmp_path / "run", tmp_path / "whole", at=4
    )
    with (tmp_path / "whole" / "log.csv").open() as file:
        assert all(0 <= float(row["reward"]) <= 1 for row in csv.DictReader(file))


@pytest.mark.slow
def test_recurrent_model_resumes_bit_identically(files, tmp_path):
    options = [*SIZES, "--family", "recurrent"]
    assert train.main(words(files, tmp_path / "whole", *options)) == 0
    assert_goes_on(words(files, tmp_path / "run", *options), tmp_path / "run", tmp_path / "whole")


def test_methods_are_empty_when_switched_off():
    """So a step has no more operations than without them."""
    pairs = {"scheduled_sampling": 0.0, "guided_attention": 0.0, "reward": "none"}
    assert TASKS["translation"].methods(Recipe(**pairs)) == Methods()
    assert not any(Methods())
    model = in_parts(Transformer)(TransformerConfig.preset("test", 17))
    assert model.methods == Methods() and model.noted == ()


@pytest.mark.parametrize(("parts", "cores", "links"), [(1, 2, False), (2, 1, True)])
def test_penalty_is_the_same_when_computed_in_parts(parts, cores, links, rng, randomise):
    """The penalty is a sum over tokens, like the loss, so parts of other lengths give the same."""
    inputs = linked_inputs(rng)
    ids = inputs["source_ids"]
    ids[0, 3:] = ids[3, 2:] = 0
    inputs["target_ids"] = np.where(ids, np.roll(ids, 1, 1) % 13 + 4, 0)
    if not links:
        inputs = {name: inputs[name] for name in ("source_ids", "target_ids")}
    found, weights = [], None
    for options in ({}, {"parts": parts, "cores": cores}):
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
        config = TransformerConfig.preset("test", 17, dropout=0.0, **layers)
        methods = Methods(penalty=GuidedAttention(3.0, 1))
        model = in_parts(Transformer)(config, methods=methods, **options)
        weights = weights or randomise(model).get_weights()
        model.set_weights(weights)
        model.compile(Adam(0.1), SmoothedCrossEntropy())
        found.append(model._sums(inputs, tf.constant(ids)))
    for mine, whole in zip(*found, strict=True):
        np.testing.assert_allclose(mine, whole, rtol=1e-4, atol=1e-4)


def linked_inputs(rng):
    """Pairs of 7 words; the last word of each target belongs to the first of its source."""
    ids = rng.integers(4, 17, (4, 7)).astype("int32")
    words = np.tile(np.arange(1, 8, dtype="int32"), (4, 1))
    links = np.stack([words, words[:, ::-1]], axis=2).reshape(4, 14)
    inputs = {"source_ids": ids, "target_ids": ids, "source_words": words, "target_words": words}
    return {**inputs, "links": links}


@pytest.mark.slow
def test_training_moves_the_guided_head_to_the_links(rng, randomise):
    """Against the diagonal, and in two parts."""
    inputs = linked_inputs(rng)
    config = TransformerConfig.preset(
        "test", 17, dropout=0.0, num_encoder_layers=1, num_decoder_layers=1
    )
    methods = Methods(penalty=GuidedAttention(1.0, 1))
    model = randomise(in_parts(Transformer)(config, methods=methods, cores=2))
    model.compile(Adam(0.01), SmoothedCrossEntropy())
    batches = tf.data.Dataset.from_tensors((inputs, inputs["source_ids"])).repeat(151)
    model.fit(batches, shuffle=False, verbose=0)
    _, attention = model.with_attention(inputs)
    guided, free = (np.array(attention[-1])[:, n, range(7), range(6, -1, -1)] for n in (0, 1))
    assert guided.mean() > 0.6 and free.mean() < 0.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reward", "minimum-risk"], "--reward needs --init: it continues a trained run"),
        (["--reward", "bleu"], "reward must be one of .* got 'bleu'"),
        (["--scheduled-sampling", "1"], r"scheduled_sampling must be in \[0, 0.99\], got 1.0"),
        (["--scheduled-sampling", "0.5", "--r-drop", "1"],
         "r_drop must be 0 with scheduled_sampling, got 1.0"),
        (["--scheduled-sampling", "0.5", "--reward", "minimum-risk"],
         "scheduled_sampling must be 0 with reward, got 0.5"),
        (["--reward", "minimum-risk", "--objective", "kl"],
         "objective must be 'cross-entropy' with reward, got 'kl'"),
        (["--reward", "minimum-risk", "--strategy", "tpu"],
         "strategy must not be 'tpu' with reward"),
        (["--alignments", "x"], "--alignments needs --guided-attention"),
        (["--alignments", "x", "y", "--guided-attention", "1"],
         "--alignments must name as many files as --source, got 2 and 1"),
        (["--alignments", "x", "--guided-attention", "1", "--both-ways", "2"],
         "--alignments cannot be given with --both-ways"),
        (["--alignments", "x", "--guided-attention", "1", "--family", "recurrent"],
         "guided_attention must be 0.0 for the family recurrent, got 1.0"),
        (["--alignments", "x", "--guided-attention", "1", "--strategy", "tpu"],
         "--alignments cannot be given with --strategy tpu"),
        (["--guided-attention", "-1"], "guided_attention must be at least 0, got -1.0"),
        (["--family", "classifier", "--objective", "kl"],
         "objective must be cross-entropy for the family classifier, got kl"),
        (["--family", "non-autoregressive", "--guided-attention", "1", "--tie-embeddings", "all"],
         "guided_attention must be 0.0 for the family non-autoregressive, got 1.0"),
        (["--normalization", "batch", "--strategy", "mirrored"],
         "strategy must be 'none' with normalization='batch'"),
        (["--normalization", "batch", "--cores", "2"], "cores must be 1 with normalization"),
        (["--normalization", "batch", "--accumulate", "2"],
         "accumulate must be 1 with normalization='batch', got 2"),
        (["--share-halves", "--freeze", "decoder"], "freeze must name both encoder and decoder"),
        (["--guided-heads", "2"], "guided_heads must be 1 without guided_attention, got 2"),
        (["--guided-attention", "1", "--guided-heads", "9"],
         "guided_heads must be at most num_heads=4, got 9"),
        (["--reward-samples", "3"], "reward_samples must be 8 without reward, got 3"),
        (["--scheduled-sampling-by", "mixed"],
         "scheduled_sampling_by must be argmax without scheduled_sampling, got mixed"),
    ],
)  # fmt: skip
def test_incompatible_options_give_one_line_error(files, tmp_path, capsys, options, message):
    options = [aligned(files).partition("=")[2] if word == "x" else word for word in options]
    if "classifier" in options:
        files = [files[0], "--labels", files[1].split("=")[1]]
    assert train.main([*files, "--run", str(tmp_path / "run"), *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error
    assert not (tmp_path / "run").exists()


def test_with_attention_updates_batchnorm_statistics():
    """A penalty calls the layers and not the model, which passes on the training mode."""
    model = Transformer(TransformerConfig.preset("test", 17, normalization="batch", norm="pre"))
    ids = np.array([[5, 6, 7, 3], [8, 9, 3, 0]], "int32")
    model.with_attention({"source_ids": ids, "target_ids": ids}, training=True)
    means = [v for v in model.non_trainable_variables if v.name == "moving_mean"]
    assert len(means) == 1 + 1 + 2 * 2 + 3 * 3
    assert all(np.abs(v).max() > 0 for v in means)


def test_init_from_a_run_without_halves_is_refused(files, tmp_path, capsys):
    tokenizer = Tokenizer.train(list(WORDS), vocabulary_size=300)
    size = tokenizer.source_vocabulary_size
    config = TransformerConfig.preset("test", size, share_halves=True, tie_embeddings="all")
    runs.save(tmp_path / "shared", Transformer(config), tokenizer)
    runs.save(tmp_path / "old", Recurrent(RecurrentConfig.preset("test", size)), tokenizer)
    for half, name, said in (
        ("decoder", "shared", "has no decoder of its own, but its encoder's layers"),
        ("encoder", "old", "is a run of the family 'recurrent': it has no halves"),
    ):
        options = [f"--init-{half}", str(tmp_path / name), "--preset", "test"]
        assert train.main([*files, "--run", str(tmp_path / "run"), *options]) == 1
        assert said in capsys.readouterr().err
