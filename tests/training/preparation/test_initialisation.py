"""Halves of other runs: their weights are in the new model, and the other weights are random."""

import numpy as np
import pytest

from tfformer import (
    Classifier,
    LanguageModel,
    LanguageModelConfig,
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    Tokenizer,
    Transformer,
    TransformerConfig,
)
from tfformer.run import load_tokenizer, model_weights, save
from training import train
from training.command_line import options
from training.command_line.arguments import RUNS, parser
from training.preparation.initialisation import Runs, read_init
from training.preparation.prepare import prepare, read_tokenizer
from training.tasks import TASKS

SIZES = {"d_model": 14, "num_heads": 2, "d_ff": 29}
TEXTS = [f"{a} {b}" for a in ("eins", "zwei", "drei") for b in ("vier", "fünf", "sechs")] * 4
OPTIONS = ["--epochs", "1", "--warmup-steps", "2", "--cores", "1", "--batch-tokens", "512"]


def kept(directory, model, tokenizer):
    save(directory, model, tokenizer)
    return model_weights(model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("halves")
    lines = "".join(f"{text}\n" for text in TEXTS)
    for name in ("source.txt", "target.txt"):
        (folder / name).write_text(lines)
    (folder / "labels.txt").write_text("".join(f"{text.split()[1]}\n" for text in TEXTS))
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    """{name: the weights of a run of that name in `folder`}"""
    one = Tokenizer.train(TEXTS, vocabulary_size=290, kind="char")
    other = Tokenizer.train([text.upper() for text in TEXTS], vocabulary_size=290, kind="char")
    size = one.source_vocabulary_size
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 3}

    def transformer(**options):
        return Transformer(TransformerConfig(size, **{**SIZES, **layers, **options}))

    def language_model(**options):
        return LanguageModel(LanguageModelConfig(size, num_layers=3, **{**SIZES, **options}))

    assert other.source_vocabulary_size == size
    reads = MaskedLanguageModelConfig(size, num_layers=2, **SIZES)
    return {
        name: kept(folder / name, model, tokenizer)
        for name, model, tokenizer in (
            ("both", transformer(tie_embeddings="all"), one),
            ("two", transformer(tie_embeddings="none", norm="pre"), one),
            ("writes", language_model(), one),
            ("writes pre", language_model(norm="pre", tie_embeddings="none"), one),
            ("writes otherwise", language_model(), other),
            ("writes wider", language_model(d_ff=31), one),
            ("reads", MaskedLanguageModel(reads), one),
        )
    }


def asked(folder, run, *given):
    """The arguments of a training on the folder's texts, which are their own translations; with
    labels, if the family has them."""
    side = "labels" if "classifier" in given else "target"
    source, target = str(folder / "source.txt"), str(folder / f"{side}.txt")
    files = ["--source", source, f"--{side}", target]
    files += ["--val-source", source, f"--val-{side}", target]
    if "language-model" in given:
        files = ["--text", source, "--val-text", source]
    return [*files, "--run", str(run), *OPTIONS, *given]


def begun(folder, name, *given):
    """What a training with these arguments takes from other runs: a `Beginning`."""
    arguments = parser("").parse_args(asked(folder, folder / name, *given))
    recipe, prepared = options.read_recipe(arguments), folder / name / "prepared"
    (folder / name).mkdir()
    runs = Runs(*[getattr(arguments, option) for option in RUNS])
    prepare(prepared, recipe, None, lambda line: None, runs)
    return read_init(prepared, TASKS[recipe.task])


def same(taken, weights, pairs):
    for ours, theirs in pairs.items():
        np.testing.assert_array_equal(taken[ours], weights[theirs])


def of(half, weights):
    return {name for name in weights if name.startswith(f"{half}/")}


def test_init_encoder_takes_layers_and_source_embedding(folder, runs):
    """The decoder has the recipe's number of layers, with random weights."""
    found = begun(folder, "one half", "--init-encoder", str(folder / "two"), "--preset", "test",
                  "--num-decoder-layers", "1", "--tie-embeddings", "none")  # fmt: skip
    weights = runs["two"]
    names = of("encoder", weights) | {"source_embedding/embeddings"}
    assert found.partly and set(found.weights) == names
    same(found.weights, weights, {name: name for name in names})
    assert (found.config.num_encoder_layers, found.config.num_decoder_layers) == (2, 1)
    assert found.config.norm == "pre" and found.config.d_ff == 29


def test_a_language_model_is_a_decoder_without_cross_attention(folder, runs):
    found = begun(folder, "writer", "--init-decoder", str(folder / "writes pre"), "--preset",
                  "test", "--tie-embeddings", "none")  # fmt: skip
    weights = runs["writes pre"]
    expected = {
        name.replace("/attention_residual/", "/self_residual/"): name
        for name in of("decoder", weights)
    }
    expected["target_embedding/embeddings"] = "embedding/embeddings"
    expected["output_projection/kernel"] = "output_projection/kernel"
    assert set(found.weights) == set(expected)
    same(found.weights, weights, expected)
    own = of("decoder", model_weights(Transformer(found.config)))
    assert {name.split("/")[2] for name in own - set(found.weights)} == {
        "cross_attention", "cross_residual"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["both", "reads"])
def test_a_classifier_begins_with_an_encoder(folder, runs, name):
    """From a translator or a masked language model; it has its own labels."""
    half = ["--init-encoder", str(folder / name)]
    found = begun(folder, f"classifies as {name}", *half, "--family", "classifier")
    weights = runs[name]
    embedding = "target_embedding" if name == "both" else "embedding"
    expected = {one: one for one in of("encoder", weights)}
    expected["embedding/embeddings"] = f"{embedding}/embeddings"
    assert set(found.weights) == set(expected)
    same(found.weights, weights, expected)
    assert (found.config.num_layers, found.config.num_labels) == (2, 3)
    assert set(expected) < set(model_weights(Classifier(found.config)))
    kept = read_tokenizer(folder / f"classifies as {name}" / "prepared")
    assert kept.source.content == load_tokenizer(folder / name).source.content


def test_a_language_model_begins_with_a_decoder(folder, runs):
    """Its attention to the encoder is dropped."""
    half = ["--init-decoder", str(folder / "both")]
    found = begun(folder, "writes as both", *half, "--family", "language-model")
    weights = runs["both"]
    expected = {
        name.replace("/self_residual/", "/attention_residual/"): name
        for name in of("decoder", weights)
        if "/cross_" not in name
    }
    expected["embedding/embeddings"] = "target_embedding/embeddings"
    assert set(found.weights) == set(expected) == set(model_weights(LanguageModel(found.config)))
    same(found.weights, weights, expected)


def test_halves_of_two_runs_have_two_embeddings(folder, runs):
    found = begun(folder, "two halves", "--init-encoder", str(folder / "both"), "--init-decoder",
                  str(folder / "writes"))  # fmt: skip
    assert found.config.tie_embeddings == "target" and found.config.num_decoder_layers == 3
    same(
        found.weights, runs["both"], {"source_embedding/embeddings": "target_embedding/embeddings"}
    )
    same(found.weights, runs["writes"], {"target_embedding/embeddings": "embedding/embeddings"})


def test_both_halves_of_one_run_give_all_its_weights(folder, runs):
    run = str(folder / "both")
    found = begun(folder, "whole", "--init-encoder", run, "--init-decoder", run,
                  "--max-length-difference", "20", "--family", "non-autoregressive")  # fmt: skip
    assert set(found.weights) == set(runs["both"])
    same(found.weights, runs["both"], {name: name for name in runs["both"]})
    assert found.config.decoding == "mask-predict" and found.config.tie_embeddings == "all"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--init-decoder", "writes otherwise", "--init-encoder", "both",
          "--tie-embeddings", "all"],
         "tie_embeddings='all' needs one vocabulary for source and target, got two"),
        (["--init-decoder", "writes", "--init-encoder", "both", "--tie-embeddings", "all"],
         "tie_embeddings must be 'target' or 'none' with halves of two runs"),
        (["--init-decoder", "writes wider", "--init-encoder", "both"],
         "d_ff of both halves must be one, got 29 of the encoder's run and 31 of the decoder's"),
        (["--init-encoder", "writes"],
         "is a run of the family 'language-model': it has no encoder"),
        (["--init-encoder", "both", "--d-model", "14"],
         "--d-model cannot be given with --init-encoder: that run decides it"),
        (["--init-encoder", "both", "--init", "both"], "--init loads a whole run"),
        (["--init-encoder", "nothing"], "is no directory"),
        (["--init-decoder", "both", "--family", "classifier"],
         "--init-decoder is for a model that has one, got the family 'classifier'"),
        (["--init-encoder", "both", "--num-layers", "2", "--family", "classifier"],
         "--num-layers cannot be given with --init-encoder: that run decides it"),
        (["--init-encoder", "both", "--profile", "latency"],
         "--profile cannot be given with --init-encoder: that run decides it"),
        (["--init-encoder", "both", "--distill", "two", "--vocabulary-size", "300"],
         "--vocabulary-size cannot be given with --init-encoder"),
    ],
)  # fmt: skip
def test_incompatible_halves_are_refused(folder, runs, tmp_path, capsys, given, message):
    given = [str(folder / one) if one in {*runs, "nothing"} else one for one in given]
    assert train.main(asked(folder, tmp_path / "run", *given)) in (1, 2)
    said = capsys.readouterr().err
    assert message in said and said.count("error:") == 1 and "Traceback" not in said
    assert not (tmp_path / "run" / "prepared").exists()


@pytest.mark.slow
def test_run_begun_with_init_encoder_resumes(folder, runs, capsys):
    """Also by the same command; it cannot begin with another run."""
    half = ["--init-encoder", str(folder / "both")]
    assert train.main(asked(folder, folder / "goes on", *half, "--preset", "test")) == 0
    again = ["--run", str(folder / "goes on"), "--resume", "--epochs", "2"]
    assert train.main(again) == 0
    assert train.main([*again, *half]) == 0
    capsys.readouterr()
    for other in (["--init-encoder", str(folder / "two")], ["--init-decoder", half[1]]):
        assert train.main([*again, *other]) == 2
        said = capsys.readouterr().err
        assert f"{other[0]} must be as when {folder / 'goes on'} was begun" in said
