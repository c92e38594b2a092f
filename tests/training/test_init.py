"""Fine-tuning: a training begins with a run, extends its vocabulary, and freezes parts of it."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from killing_recipe import RECIPE

import tfformer
from tfformer import Tokenizer, run
from training import train
from training.data.reader import Pair
from training.preparation.initialisation import Runs
from training.trainer.fit import Training

# Together they take minutes.
pytestmark = pytest.mark.slow

RECIPE = dataclasses.replace(
    RECIPE,
    epochs=1,
    average=1,
    checkpoint_steps=100,
    # The weights of its gate belong to no piece.
    model_changes=RECIPE.model_changes | {"copy": True},
)


def snowy(split, data):
    """The recipe's pairs with characters and words that its vocabulary lacks."""
    for pair in itertools.islice(RECIPE.pairs(split, data), 60):
        yield Pair(f"☃{pair.source} zzyx", f"{pair.target}☃ xyzz")


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run that has learned a little."""
    directory = tmp_path_factory.mktemp("init") / "first"
    Training(directory, RECIPE).run()
    return directory


# The vocabulary.


@pytest.fixture(scope="module", params=["unigram", "bpe", "char"])
def old(request):
    texts = ["a house by the lake", "the lake by a house", "eight trees"] * 20
    return Tokenizer.train(texts, vocabulary_size=290, kind=request.param)


def test_extending_keeps_old_ids_and_adds_new_characters(old):
    new = old.extended(["☃ by the ☂ lake ☃"] * 5, ["zauberhaft zauberhaft"] * 5, 11)
    size = old.source_vocabulary_size
    assert size < new.source_vocabulary_size <= size + 11
    assert new.is_shared
    ids = tf.range(size)
    np.testing.assert_array_equal(old.source_pieces(ids), new.source_pieces(ids))
    added = new.source_pieces(tf.range(size, new.source_vocabulary_size)).numpy()
    assert added[0].decode() == "☃" and "☂" in [piece.decode() for piece in added]
    encoded = new.encode_source(tf.constant(["the ☃"])).to_list()[0]
    assert any(number >= size for number in encoded)
    assert new.decode(tf.constant([encoded])).numpy()[0].decode() == "the ☃"
    assert not any(4 <= number < 260 for number in encoded)
    assert old.extended(["☃"], ["☃"], 0).source_model == old.source_model


def test_extending_does_not_change_the_ids_of_old_texts(old):
    new = old.extended(["☃☂"] * 9, ["☂"], 2)
    texts = tf.constant(["a house by the lake", "eight"])
    assert old.encode_source(texts).to_list() == new.encode_source(texts).to_list()


def test_both_vocabularies_are_extended_separately(old):
    other = Tokenizer.train(["eins zwei drei"] * 20, vocabulary_size=280)
    both = Tokenizer(old.source_model, other.source_model).extended(["☃"] * 3, ["☂"] * 3, 1)
    added = (
        both.source_pieces(old.source_vocabulary_size),
        both.target_pieces(other.source_vocabulary_size),
    )
    assert [piece.numpy().decode() for piece in added] == ["☃", "☂"]


def test_made_of_returns_the_old_ids_of_a_new_piece(old):
    new = old.extended(["☃"] * 3, ["☃"] * 3, 1)
    [ids] = new.made_of(old, "target")
    assert [number - 4 for number in ids] == list("☃".encode())


# The training.


def test_it_begins_with_the_weights_of_the_run(first, tmp_path):
    recipe = dataclasses.replace(RECIPE, preset="base", vocabulary_size=999)  # both are ignored
    training = Training(tmp_path / "second", recipe, runs=Runs(init=first))
    expected = run.model_weights(run.load_model(first))
    found = run.model_weights(training.model)
    assert set(found) == set(expected)
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight)
    assert training.setup.tokenizer.sha256 == run.load_tokenizer(first).sha256


def test_new_pieces_begin_with_the_mean_of_their_old_pieces(first, tmp_path):
    recipe = dataclasses.replace(RECIPE, pairs=snowy, new_pieces=5)
    training = Training(tmp_path / "second", recipe, runs=Runs(init=first))
    old, tokenizer = run.load_tokenizer(first), training.setup.tokenizer
    size = old.source_vocabulary_size
    assert tokenizer.source_vocabulary_size > size
    weights, before = run.model_weights(training.model), run.model_weights(run.load_model(first))
    made_of = tokenizer.made_of(old, "source")
    for name in ("source_embedding/embeddings", "target_embedding/embeddings"):
        np.testing.assert_array_equal(weights[name][:size], before[name])
        for row, ids in zip(weights[name][size:], made_of, strict=True):
            np.testing.assert_allclose(row, before[name][ids].mean(axis=0), rtol=1e-6)
    kernel, old_kernel = (w["output_projection/kernel"] for w in (weights, before))
    np.testing.assert_array_equal(kernel[:, :size], old_kernel)
    np.testing.assert_allclose(
        kernel[:, size], old_kernel[:, made_of[0]].mean(axis=1), rtol=1e-5, atol=1e-7
    )
    training.run()
    translator = tfformer.load_translator(tmp_path / "second")
    assert translator.model.config.source_vocabulary_size == tokenizer.source_vocabulary_size
    assert translator.translate(["☃abc"])


@pytest.mark.parametrize("freeze", ["encoder", "decoder, embeddings"])
def test_frozen_parts_do_not_learn_and_the_others_do(first, tmp_path, freeze):
    recipe = dataclasses.replace(RECIPE, pairs=snowy, freeze=freeze)
    training = Training(tmp_path / "second", recipe, runs=Runs(init=first))
    before = run.model_weights(training.model)
    training.run()
    after = run.model_weights(training.model)
    parts = {
        "encoder": ("encoder/",),
        "decoder": ("decoder/",),
        "embeddings": ("source_embedding/", "target_embedding/"),
    }
    frozen = tuple(prefix for part in recipe.frozen() for prefix in parts[part])
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same == {name for name in before if name.startswith(frozen)}


def test_training_resumes_after_the_init_run_is_deleted(first, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    recipe = dataclasses.replace(RECIPE, pairs=snowy, new_pieces=3, epochs=1)
    Training(tmp_path / "second", recipe, runs=Runs(init=copy)).run()
    shutil.rmtree(copy)
    longer = dataclasses.replace(recipe, epochs=2)
    training = Training(tmp_path / "second", longer)
    training.resume()
    assert len(training.run()) == 2


def test_init_run_decides_sizes_but_not_dropout(first, tmp_path):
    changes = {"dropout": 0.47, "num_encoder_layers": 3}
    recipe = dataclasses.replace(RECIPE, model_changes=changes)
    for _ in range(2):  # begun, then resumed
        config = Training(tmp_path / "second", recipe, runs=Runs(init=first)).model.config
        assert config.dropout == 0.47
        assert config.num_encoder_layers == 1


# The command.


def files(folder):
    paths = []
    for side in (0, 1):
        path = folder / f"text.{side}"
        path.write_text("".join(f"{pair[side]}\n" for pair in snowy("train", None)))
        paths.append(str(path))
    return ["--source", paths[0], "--target", paths[1]]


def test_mistakes_give_one_line_errors(first, tmp_path, capsys):
    base = [*files(tmp_path), "--run", str(tmp_path / "second")]
    for arguments, code, message in (
        (["--new-pieces", "3"], 2, "--new-pieces needs --init"),
        (["--freeze", "encoder,tail"], 2, "freeze must be some of"),
        (["--freeze", "encoder,decoder,embeddings"], 2, "but not all"),
        (
            ["--init", str(first), "--new-pieces", "3", "--freeze", "embeddings"],
            2,
            "new_pieces must be 0 with freeze='embeddings', as they would not be learned, got 3",
        ),
        (["--init", str(tmp_path)], 1, "is no run directory"),
        (["--init", str(first), "--preset", "tiny"], 2, "--preset cannot be given with --init"),
    ):
        assert train.main([*base, *arguments]) == code
        errors = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
        assert len(errors) == 1 and message in errors[0]
    assert not (tmp_path / "second" / "prepared").exists()


@pytest.mark.parametrize("fields", [{}, {"width": 3}])
def test_damaged_configuration_of_the_init_run_gives_one_line_error(
    first, tmp_path, capsys, fields
):
    damaged = tmp_path / "damaged"
    shutil.copytree(first, damaged)
    config = run.read_config(damaged) | {"model": fields}
    (damaged / "config.json").write_text(json.dumps(config))
    arguments = [*files(tmp_path), "--run", str(tmp_path / "second"), "--init", str(damaged)]
    assert train.main(arguments) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert len(errors) == 1 and f"{damaged / 'config.json'} is damaged: " in errors[0]
    assert not (tmp_path / "second" / "prepared").exists()
