"""A language model is trained, killed, resumed, scored, exported, verified and served."""

import csv
import math
import random
import re

import numpy as np
import pytest
import tensorflow as tf
from few_texts import prove_by_few
from stopped import assert_goes_on

from tfformer import run as runs
from tfformer.config import PAD
from training import evaluate, train, translate
from training.data.packed_text import JoinedBatches
from training.tasks import TASKS

pytestmark = pytest.mark.usefixtures("loaded_once")
TASK = TASKS["language-model"]
SIZES = [
    "--preset",
    "test",
    "--num-layers",
    "1",
    "--vocabulary-size",
    "300",
    "--vocabulary-kind",
    "char",
]
OPTIONS = [
    *SIZES, "--max-tokens", "23", "--batch-tokens", "256", "--epochs", "2", "--cores", "1",
    "--warmup-steps", "5", "--checkpoint-steps", "3", "--optimizer", "adam",
]  # fmt: skip


def texts(count, seed):
    """Each word is followed by the next one of a circle, from a random start; so the next word
    is known."""
    words = "alpha beta gamma delta epsilon zeta eta theta".split()
    chosen = random.Random(seed)
    starts = (chosen.randrange(len(words)) for _ in range(count))
    return [" ".join((words * 2)[n : n + chosen.randint(2, 6)]) for n in starts]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with texts for training and validation."""
    folder = tmp_path_factory.mktemp("language-model")
    for name, count in (("train.txt", 211), ("val.txt", 37)):
        (folder / name).write_text("".join(f"{text}\n" for text in texts(count, count)))
    return folder


@pytest.fixture(scope="module")
def folder(corpus):
    """The same folder with a trained run."""
    assert train.main(words(corpus, corpus / "run")) == 0
    return corpus


def words(folder, run, *options):
    files = ["--text", str(folder / "train.txt"), "--val-text", str(folder / "val.txt")]
    family = ["--family", "language-model", "--run", str(run)]
    return [*family, *files, *OPTIONS, *options]


@pytest.mark.slow
def test_run_logs_validation_perplexity_and_bits_per_byte(folder):
    with (folder / "run" / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    corpus = TASK.corpus(folder / "run" / "prepared" / "val")
    for row in rows:
        perplexity, bits = float(row["val_perplexity"]), float(row["val_bits_per_byte"])
        assert bits == pytest.approx(math.log2(perplexity) / corpus.bytes_per_token)
    config = runs.read_config(folder / "run")
    assert config["family"] == "language-model"
    # Together as many positions as a row of 23 tokens, and a last one that is not read.
    limits = {"max_source_length": 12, "max_target_length": 12}
    assert config["search"] == {"beam_width": 4, "length_penalty": 0.6, **limits}
    best = min(float(row["val_perplexity"]) for row in rows)
    assert config["training"]["val_perplexity"] <= best + 1e-9
    card = (folder / "run" / "README.md").read_text()
    assert "pipeline_tag: text-generation" in card and "211 texts kept" in card


@pytest.mark.slow
def test_published_perplexity_equals_recomputed_one(folder):
    """Over the rows as they were joined, with each text of a row in its own row."""
    model, tokenizer = runs.load(folder / "run")
    corpus = TASK.corpus(folder / "run" / "prepared" / "val")
    batches = TASK.batches(corpus, tokenizer, 256, 23, shuffle=False)
    total = count = 0
    for inputs, labels in batches.dataset().as_numpy_iterator():
        for ids, numbers, of_row in zip(inputs["ids"], inputs["texts"], labels, strict=True):
            for number in set(numbers.tolist()) - {PAD}:
                own = numbers == number
                log_probs = tf.nn.log_softmax(model(ids[own][None], training=False))[0].numpy()
                total -= log_probs[np.arange(own.sum()), of_row[own]].sum()
                count += own.sum()
    expected = runs.read_config(folder / "run")["training"]["val_perplexity"]
    assert math.exp(total / count) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_training_resumes_bit_identically(folder, tmp_path):
    run = tmp_path / "run"
    assert_goes_on(words(folder, run), run, folder / "run", JoinedBatches)


@pytest.mark.slow
def test_evaluating_scores_each_text_alone(folder, tmp_path, capsys):
    """Texts of one window; for longer ones see tests/service/test_text_generator.py."""
    texts = [" ".join(text.split()[:3]) for text in (folder / "val.txt").read_text().splitlines()]
    (tmp_path / "short.txt").write_text("\n".join(texts) + "\n")
    assert evaluate.main([str(folder / "run"), "--text", str(tmp_path / "short.txt")]) == 0
    shown = capsys.readouterr().out
    model, tokenizer = runs.load(folder / "run")
    total = count = size = 0
    for text in texts:
        ids = tokenizer.encode_source([text])[0].numpy()
        read = np.concatenate([[2], ids[:-1]])
        assert len(ids) <= 23
        log_probs = tf.nn.log_softmax(model(read[None], training=False))[0].numpy()
        total -= log_probs[np.arange(len(ids)), ids].sum()
        count, size = count + len(ids), size + len(text.encode())
    assert f"{math.exp(total / count):.3f}" in shown
    assert f"{total / math.log(2) / size:.3f}" in shown


@pytest.mark.slow
def test_evaluation_omits_bits_per_byte_when_a_text_is_cut(folder, tmp_path, capsys):
    """64 windows of 23 tokens are scored, with half of the tokens new in each."""
    (tmp_path / "long.txt").write_text(" ".join(["alpha"] * 400))
    assert evaluate.main([str(folder / "run"), "--text", str(tmp_path / "long.txt")]) == 0
    shown = capsys.readouterr().out
    assert "texts cut" in shown and "bits a byte" not in shown


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--family", "language-model", "--source", "FILE", "--target", "FILE"], "needs --text"),
        (["--text", "FILE"], "--family transformer needs --source and --target, got --text"),
        (["--text", "FILE", "--source", "FILE"], "--text is for plain text, --source for pairs"),
        (["--text", "FILE", "--data", "."], "--data is for a recipe's own corpus, --text"),
        (["--val-text", "FILE"], "--val-text needs --text"),
        (["--family", "language-model", "--text", "FILE", "--subword-sampling", "0.1"],
         "subword_sampling must be 0.0 for the family language-model, got 0.1"),
        (["--family", "language-model", "--text", "FILE", "--coverage-penalty", "0.1"],
         "search options of the family language-model must be of"),
        (["dates", "--text", "FILE"], "--text is for a language model (--family)"),
        (["--family", "language-model", "--text", "FILE", "--num-encoder-layers", "3"],
         "num_encoder_layers"),
        (["--family", "language-model", "--text", "missing.txt"], "cannot read missing.txt"),
    ],
)  # fmt: skip
def test_incompatible_options_are_refused(corpus, tmp_path, capsys, given, message):
    given = [str(corpus / "train.txt") if word == "FILE" else word for word in given]
    assert train.main([*given, "--run", str(tmp_path / "run")]) in (1, 2)
    said = capsys.readouterr().err
    assert message in said and said.count("error:") == 1 and "Traceback" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_unsupported_command_options_are_refused(folder, tmp_path, capsys):
    run, text = str(folder / "run"), str(folder / "val.txt")
    said = "must be a run of the family 'encoder-decoder'"
    asked = [
        (
            evaluate.main,
            [run, "--source", text, "--target", text],
            " or 'non-autoregressive' or 'recurrent'",
        ),
        (translate.main, [run, "--picture", str(tmp_path / "x.png")], ""),
    ]
    for main, arguments, more in asked:
        assert main(arguments) == 1
        assert f"{said}{more}, got 'language-model'" in capsys.readouterr().err
    assert evaluate.main([run, "--text", text, "--greedy"]) == 2
    assert "cannot be given with --greedy" in capsys.readouterr().err
    other = ["--run", run, "--family", "transformer", "--source", text, "--target", text]
    assert train.main([*other, "--resume"]) == 2
    assert re.search("--family .* language-model, got transformer", capsys.readouterr().err)
    began = ["--family", "language-model", "--text", text, "--init", run, "--new-pieces", "7"]
    assert train.main([*began, "--run", str(tmp_path / "run")]) in (1, 2)
    said = "new_pieces must be 0 for the family language-model, got 7"
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_next_word_is_learned_exported_and_served(folder, tmp_path, monkeypatch):
    """The next word is known; after thirty epochs the model writes it."""
    from export import saved_model, translate_files
    from tfformer import TextGenerator
    from tfformer.service import generator_service

    # tests/service exports the others.
    chosen = (
        generator_service.serving_default,
        generator_service.generate,
        generator_service.beam_search,
    )
    monkeypatch.setattr(generator_service, "SIGNATURES", chosen)
    prove_by_few(monkeypatch)

    run = tmp_path / "run"
    learn = ["--epochs", "30", "--norm", "pre", "--d-model", "32", "--dropout", "0"]
    learn += ["--validate-every", "30"]  # only at the end
    assert train.main(words(folder, run, *learn)) == 0
    options = {"max_source_length": 23, "max_target_length": 23, "top_k": 1}
    generator = TextGenerator(*runs.load(run), **options)
    found = generator.functions["serving_default"](tf.constant(["alpha be"]))["continuation"]
    assert found.numpy()[0].split()[0] == b"ta"
    assert runs.read_config(run)["training"]["val_perplexity"] < 2.5
    assert saved_model.main([str(run), str(tmp_path / "exported")]) == 0
    out = tmp_path / "out"
    assert (
        translate_files.main([str(tmp_path / "exported"), str(out), str(folder / "val.txt")]) == 0
    )
    lines = (out / "val.txt").read_text().split("\n")
    assert len(lines) == 37 + 1
