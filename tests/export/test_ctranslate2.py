"""A run exported for CTranslate2 gives the model's results: probabilities, greedy and beam search.

The expected values are from the model without a cache, and from the plain beam search of
`export.verification`.
"""

import shutil

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from pairs import CASES, SOURCES, make_tokenizers, random_model

import tfformer
from export import ctranslate2 as command
from export.verification import reference
from tfformer.config import BOS, EOS, PAD

ctranslate2 = pytest.importorskip("ctranslate2")

MAX_LENGTH = 9


class Exported:
    """A model, its pieces, and the CTranslate2 model of its run, which was deleted."""

    def __init__(self, model, tokenizer, directory):
        self.model, self.tokenizer, self.directory = model, tokenizer, directory
        sides = (tokenizer.pieces(side) for side in ("source", "target"))
        self.source_pieces, self.target_pieces = sides
        self.translator = ctranslate2.Translator(
            str(directory), device="cpu", compute_type="float32", intra_threads=1
        )
        ids = tf.TensorSpec([None, None], tf.int32)
        self.logits = tf.function(
            lambda inputs: model(inputs, training=False),
            input_signature=[{"source_ids": ids, "target_ids": ids}],
            autograph=False,
        )

    def sentences(self, count):
        """Random source ids without eos, of 1, 2, 3, ... tokens."""
        random = np.random.default_rng(1)
        size = len(self.source_pieces)
        return [random.integers(EOS + 1, size, 1 + n).tolist() for n in range(count)]

    def translate(self, sentences, **options):
        """(target ids, score) of each hypothesis of each sentence; options as in tfformer."""
        results = self.translator.translate_batch(
            [[self.source_pieces[n] for n in ids] for ids in sentences],
            return_scores=True,
            suppress_sequences=[["<pad>"], ["<s>"]],
            **{
                "length_penalty": 0,
                "max_decoding_length": MAX_LENGTH,
                "min_decoding_length": 0,
                **options,
            },
        )
        return [
            [
                (tuple(map(self.target_pieces.index, pieces)), score)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def allowed(self, inputs):
        """The logits without pad and bos. After MAX_LENGTH tokens eos is certain and costs
        nothing."""
        logits = self.logits(inputs).numpy()
        logits[..., [PAD, BOS]] = -np.inf
        logits[:, MAX_LENGTH:] = np.where(np.arange(logits.shape[-1]) == EOS, 0, -np.inf)
        return logits

    def search(self, ids, beam_width):
        """The best hypothesis of the plain search: (target ids without eos, log P)."""
        best, *_ = reference.beam_search(
            self.allowed, np.array([*ids, EOS]), MAX_LENGTH + 1, beam_width, 0, "power"
        )
        return best.tokens[:-1], best.log_prob


@pytest.fixture(scope="module")
def tokenizers():
    return make_tokenizers()


@pytest.fixture(scope="module", params=list(CASES))
def exported(request, tokenizers, tmp_path_factory):
    changes = CASES[request.param]
    tokenizer = tokenizers[changes.get("tie_embeddings") != "all"]
    model = random_model(tokenizer, **changes)
    base = tmp_path_factory.mktemp(request.param)
    tfformer.save(base / "run", model, tokenizer)
    assert command.main([str(base / "run"), str(base / "deeper" / "model")]) == 0
    shutil.rmtree(base / "run")
    assert [path.name for path in (base / "deeper").iterdir()] == ["model"]
    return Exported(model, tokenizer, base / "deeper" / "model")


# Equal numbers.


@pytest.mark.slow
def test_token_log_probabilities_equal_the_model(exported):
    random = np.random.default_rng(2)
    sources = exported.sentences(7)
    size = len(exported.target_pieces)
    targets = [random.integers(EOS + 1, size, 11 - 2 * n).tolist() for n in range(6)] + [[]]
    results = exported.translator.score_batch(
        [[exported.source_pieces[n] for n in ids] for ids in sources],
        [[exported.target_pieces[n] for n in ids] for ids in targets],
    )
    inputs = {
        "source_ids": tf.ragged.constant([[*ids, EOS] for ids in sources]).to_tensor(PAD),
        "target_ids": tf.ragged.constant([[BOS, *ids] for ids in targets]).to_tensor(PAD),
    }
    log_probs = reference.log_softmax(exported.logits(inputs).numpy().astype("float64"))
    for row, ids, result in zip(log_probs, targets, results, strict=True):
        expected = row[np.arange(len(ids) + 1), [*ids, EOS]]
        np.testing.assert_allclose(result.log_probs, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("beam_width", [1, 4])
def test_translations_equal_the_plain_search(exported, beam_width):
    sentences = exported.sentences(11)
    for ids, found in zip(
        sentences, exported.translate(sentences, beam_size=beam_width), strict=True
    ):
        [(tokens, score)] = found
        expected, log_prob = exported.search(ids, beam_width)
        assert tokens == expected
        np.testing.assert_allclose(score, log_prob, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["gated"], indirect=True)
@pytest.mark.parametrize("beam_width", [1, 4])
def test_length_penalty_is_the_power_form_and_counts_eos(exported, beam_width):
    alpha, lengths, sentences = 0.7, set(), exported.sentences(7)
    for ids, found in zip(
        sentences,
        exported.translate(
            sentences, beam_size=beam_width, num_hypotheses=beam_width, length_penalty=alpha
        ),
        strict=True,
    ):
        for tokens, score in found:
            if len(tokens) < MAX_LENGTH:  # a hypothesis that was cut has no eos
                tokens += (EOS,)
                log_prob = reference.log_prob(exported.allowed, [*ids, EOS], tokens, MAX_LENGTH)
                ours = reference.score(reference.Hypothesis(tokens, log_prob), alpha, "power")
                np.testing.assert_allclose(score, ours, rtol=1e-4, atol=1e-4)
                lengths.add(len(tokens))
    assert len(lengths) >= 3


@pytest.mark.slow
def test_an_empty_source_is_an_empty_translation_with_score_0(exported):
    [alone] = exported.translate([[5, 7]], beam_size=4)
    assert exported.translate([[], [5, 7]], beam_size=4) == [[((), 0)], alone]


# Equal text.


@pytest.mark.slow
def test_pieces_and_ids_equal_the_tokenizer(exported):
    texts = [*SOURCES[:5], "Grüße, 你好 🎉", "  two  spaces ", "</s> <pad>", ""]
    source = sentencepiece.SentencePieceProcessor(str(exported.directory / "source.model"))
    target_model = exported.directory / "target.model"
    assert target_model.exists() != exported.tokenizer.is_shared
    target = (
        sentencepiece.SentencePieceProcessor(str(target_model)) if target_model.exists() else source
    )
    for text in texts:
        for processor, pieces, encode in (
            (source, exported.source_pieces, exported.tokenizer.encode_source),
            (target, exported.target_pieces, exported.tokenizer.encode_target),
        ):
            ids = list(map(pieces.index, processor.encode(text, out_type=str)))
            assert [*ids, EOS] == encode(tf.constant([text])).to_list()[0]
    for [(tokens, _)] in exported.translate(exported.sentences(5)):
        ours = exported.tokenizer.decode(tf.constant([[*tokens, EOS]])).numpy()[0].decode()
        assert target.decode([exported.target_pieces[n] for n in tokens]) == ours


@pytest.mark.slow
def test_folder_has_the_expected_files_and_model_size(exported):
    names = {path.name for path in exported.directory.iterdir()}
    if exported.tokenizer.is_shared:
        assert names == {"config.json", "model.bin", "shared_vocabulary.json", "source.model"}
    else:
        assert names == {
            "config.json",
            "model.bin",
            *(
                f"{side}{rest}"
                for side in ("source", "target")
                for rest in (".model", "_vocabulary.json")
            ),
        }
    # A matrix that is used twice is stored once; sinusoids are not weights.
    config = exported.model.config
    positions = 1024 * config.d_model if config.positions == "sinusoidal" else 0
    size = (exported.directory / "model.bin").stat().st_size
    assert 0 < size - 4 * (exported.model.count_params() + positions) < 20_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"residual": False}, "residual must be True for CTranslate2, got False"),
        ({"num_key_value_heads": 1}, "key_value_heads must be 2 for CTranslate2, got 1"),
        ({"attention_positions": "alibi"}, "attention_positions must be 'none' .* got 'alibi'"),
        ({"normalization": "rms"}, "layer_norm must be .* got RMSNorm"),
    ],
)
def test_error_names_an_unsupported_model_option(tokenizers, tmp_path, changes, message):
    model = random_model(tokenizers[False], **changes)
    tfformer.save(tmp_path / "run", model, tokenizers[False])
    with pytest.raises(ValueError, match=message):
        command.export(tmp_path / "run", tmp_path / "model", lambda line: None)
    assert not (tmp_path / "model").exists()
