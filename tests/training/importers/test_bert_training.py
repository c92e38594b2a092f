"""One command trains a model that begins with an imported BERT; the result is exported."""

import random

import bert
import numpy as np
import pytest

from export import saved_model
from tfformer import ClassifierConfig, SpanConfig, TransformerConfig, run
from training import import_hf, train
from training.preparation import initialisation
from training.report.history import read_history

WORDS = "the red house is by old tree small and quiet See Baum Straße".split()
SIGNS = {"water": "lake", "air": "bird"}
FAST = ["--learning-rate-scale", "0.2", "--warmup-steps", "9", "--batch-tokens", "4000"]


@pytest.fixture
def imported(tmp_path):
    def run(name):
        assert import_hf.main([str(bert.folder(name)), str(tmp_path / name)]) == 0
        return tmp_path / name

    return run


def write_texts(path, sizes, count=64):
    """Labelled texts: every second word determines the label."""
    rng = random.Random(3)
    with path.open("w") as file:
        for n in range(count):
            label = list(SIGNS)[n % 2]
            words = rng.choices(WORDS, k=rng.randint(*sizes))
            words[::2] = [SIGNS[label]] * len(words[::2])
            file.write(f"{' '.join(words)}\t{label}\n")
    return path


def losses(directory):
    return [row["loss"] for row in read_history(directory)]


def half_of(directory, kind, **changes):
    """The encoder of a run for a model of this kind: its configuration and weights."""
    half = initialisation._Half("encoder", directory, kind)
    size = len(half.vocabulary.pieces)
    size = {"source_vocabulary_size" if half.alone is False else "vocabulary_size": size}
    config = kind.from_dict({**half.sizes(), **size, **changes})
    return config, half.weights(config, with_cross_attention=False)


def test_span_reader_encoder_adds_type_0_vector_to_positions(imported):
    """Only the tokens of a text have that type, so its vector is added to the positions."""
    directory = imported("bert-span")
    weights = run.model_weights(run.load_model(directory))
    _, found = half_of(directory, ClassifierConfig, num_labels=2)
    expected = weights["positions/embeddings"] + weights["token_types/embeddings"][0]
    np.testing.assert_array_equal(found["positions/embeddings"], expected)
    assert "token_types/embeddings" not in found
    _, found = half_of(directory, SpanConfig, token_types=True)
    for name in ("positions/embeddings", "token_types/embeddings"):
        np.testing.assert_array_equal(found[name], weights[name])


def test_encoder_without_bos_drops_the_first_position(imported):
    directory = imported("bert-masked")
    weights = run.model_weights(run.load_model(directory))
    config, found = half_of(directory, TransformerConfig)
    expected = weights["positions/embeddings"][1:]
    np.testing.assert_array_equal(found["source_positions/embeddings"], expected)
    assert config.max_positions == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", ["lstm", "transformer"])
def test_long_text_classifier_in_pieces_is_trained_and_exported(pieces, imported, tmp_path):
    """Pieces of 200 tokens overlap by 50; an LSTM or a Transformer reads their vectors."""
    begun, texts = imported("bert-masked"), write_texts(tmp_path / "long.tsv", (150, 290))
    made = tmp_path / "made"
    command = [
        "--family", "classifier", "--source", str(texts), "--init-encoder", str(begun),
        "--pooling", "mean", "--piece-length", "200", "--piece-overlap", "50", "--pieces", pieces,
        "--epochs", "5", "--run", str(made), *FAST,
    ]  # fmt: skip
    assert train.main(command) == 0
    config = run.read_config(made)["model"]
    assert config["pieces"] == pieces and config["embedding_norm"] and config["add_bos"]
    found = losses(made)
    assert found[-1] < found[0] - 0.02
    assert saved_model.main([str(made), str(tmp_path / "exported"), "--quick"]) == 0


@pytest.mark.slow
def test_an_imported_classifier_is_fine_tuned(imported, tmp_path):
    begun = imported("distilbert-classifier")
    texts = write_texts(tmp_path / "short.tsv", (4, 11))
    content = texts.read_text().replace("\twater", "\tbad").replace("\tair", "\tgood news, neutral")
    texts.write_text(content)
    made = tmp_path / "made"
    command = [
        "--family", "classifier", "--multi-label", "--source", str(texts), "--init", str(begun),
        "--epochs", "3", "--max-tokens", "60", "--run", str(made), *FAST,
    ]  # fmt: skip
    assert train.main(command) == 0
    found = losses(made)
    assert found[-1] < found[0] - 0.02
    assert run.load_service(made).answer(["lake the lake is lake lake"])[0] == "bad"
