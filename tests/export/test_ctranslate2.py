"""A run exported for CTranslate2 gives what the model gives: probabilities, greedy and beam search.

The truth is the uncached model, and the plain beam search of `export.verification` over it.
"""

import json
import os
import resource
import shutil
import signal
import sys

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

import tfformer
from export import ctranslate2 as command
from export.verification import reference
from tfformer import Tokenizer, Transformer, TransformerConfig
from tfformer.config import ACTIVATIONS, BOS, EOS, PAD

ctranslate2 = pytest.importorskip("ctranslate2")

SOURCES = [f"word {n} and {n * 7} more" for n in range(97)]
TARGETS = [f"{n * 7} Dinge und Wort {n}" for n in range(97)]
MAX_LENGTH = 9
# Every kind of layer, of norm, of positions and of ties; one vocabulary or two.
CASES = {
    "paper": {"tie_embeddings": "all"},
    "pre-norm": {"norm": "pre", "activation": "gelu", "tie_embeddings": "target"},
    "learned": {"activation": "silu", "positions": "learned", "max_positions": 23},
    "gated": {
        "norm": "pre",
        "activation": "swiglu",
        "positions": "learned",
        "max_positions": 31,
        "tie_embeddings": "target",
        "num_encoder_layers": 3,
        "num_decoder_layers": 1,
    },
}


def random_model(tokenizer, **changes):
    """A model whose every weight matters; the longer vector of eos lets some translations end."""
    sizes = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
    model = Transformer(
        TransformerConfig.preset("test", sizes[0], target_vocabulary_size=sizes[1], **changes)
    )
    for n, weight in enumerate(model.weights):
        value = (
            weight.value.numpy() + 0.4 * tf.random.stateless_normal(weight.shape, [n, 5]).numpy()
        )
        if weight.path.endswith("target_embedding/embeddings"):
            value[EOS] *= 3
        if weight.path.endswith("output_projection/kernel"):
            value[:, EOS] *= 3
        weight.assign(value)
    return model


class Exported:
    """A model, its pieces, and the CTranslate2 model of its run, which is gone."""

    def __init__(self, model, tokenizer, directory):
        self.model, self.tokenizer, self.directory = model, tokenizer, directory
        self.source_pieces, self.target_pieces = command.vocabularies(tokenizer)
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
        """(target ids, score) of each hypothesis of each sentence; options as tfformer's."""
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
        """The logits without pad and bos; behind MAX_LENGTH tokens eos is certain, at no cost."""
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
    """One for both sides, and one of two."""
    keras.utils.set_random_seed(3)
    return [
        Tokenizer.train(SOURCES, TARGETS, vocabulary_size=307),
        Tokenizer.train(SOURCES, TARGETS, vocabulary_size=293, shared=False),
    ]


@pytest.fixture(scope="module")
def run(tokenizers, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run") / "run"
    tfformer.save(directory, random_model(tokenizers[1], **CASES["gated"]), tokenizers[1])
    return directory


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


# The same numbers.


def test_every_token_has_the_models_probability(exported):
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


@pytest.mark.parametrize("beam_width", [1, 4])
def test_translations_are_those_of_the_plain_search(exported, beam_width):
    sentences = exported.sentences(11)
    for ids, found in zip(
        sentences, exported.translate(sentences, beam_size=beam_width), strict=True
    ):
        [(tokens, score)] = found
        expected, log_prob = exported.search(ids, beam_width)
        assert tokens == expected
        np.testing.assert_allclose(score, log_prob, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("exported", ["gated"], indirect=True)
def test_translations_are_of_many_lengths(exported):
    found = exported.translate(exported.sentences(11), beam_size=4)
    assert len({len(tokens) for [(tokens, _)] in found}) >= 4


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
            if len(tokens) < MAX_LENGTH:  # one that was cut has no eos
                tokens += (EOS,)
                log_prob = reference.log_prob(exported.allowed, [*ids, EOS], tokens, MAX_LENGTH)
                ours = reference.score(reference.Hypothesis(tokens, log_prob), alpha, "power")
                np.testing.assert_allclose(score, ours, rtol=1e-4, atol=1e-4)
                lengths.add(len(tokens))
    assert len(lengths) >= 3


def test_an_empty_source_is_an_empty_translation_with_score_0(exported):
    [alone] = exported.translate([[5, 7]], beam_size=4)
    assert exported.translate([[], [5, 7]], beam_size=4) == [[((), 0)], alone]


@pytest.mark.parametrize("exported", ["paper"], indirect=True)
def test_a_source_that_is_cut_keeps_its_eos(exported):
    [ids] = exported.sentences(17)[-1:]
    whole, cut, short = (
        exported.translate([ids[:length]], beam_size=4, max_input_length=most)
        for length, most in ((17, 0), (17, 7), (6, 0))
    )
    assert cut == short != whole


def test_layer_norm_has_our_epsilon(tokenizers, tmp_path):
    """Embeddings of variance 1e-6: with CTranslate2's own epsilon, 1e-5, the rest is another."""
    model = random_model(tokenizers[1], norm="pre", positions="learned", max_positions=19)
    for weight in model.weights:
        if weight.path.endswith("embeddings"):
            weight.assign(weight * (1e-3 / keras.ops.std(weight)))
    for epsilon, agree in ((1e-6, True), (1e-5, False)):
        directory = tmp_path / str(epsilon)
        directory.mkdir()
        spec = command.specification(model, tokenizers[1], 19)
        if not agree:
            spec.config.layer_norm_epsilon = epsilon
        command.save(spec, tokenizers[1], directory)
        assert json.loads((directory / "config.json").read_text())["layer_norm_epsilon"] == epsilon
        difference = command.largest_difference(directory, model, tokenizers[1])
        assert (difference < 1e-4) == agree


def test_sinusoids_reach_the_runs_limits(tokenizers, tmp_path):
    tfformer.save(
        tmp_path / "run",
        random_model(tokenizers[0], num_encoder_layers=1, num_decoder_layers=1),
        tokenizers[0],
        {"max_source_length": 1031, "max_target_length": 13},
    )
    command.export(tmp_path / "run", tmp_path / "model", lambda line: None)
    translator = ctranslate2.Translator(str(tmp_path / "model"), device="cpu")
    options = {"max_input_length": 0, "max_decoding_length": 2}
    translator.translate_batch([["▁word"] * 1030], **options)
    with pytest.raises(RuntimeError, match="positions >= 1031"):
        translator.translate_batch([["▁word"] * 1031], **options)


# The same text.


def test_pieces_and_ids_are_those_of_the_tokenizer(exported):
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


def test_the_folder_holds_what_it_says(exported):
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
    # A matrix that is used twice is there once; the sinusoids are no weights.
    config = exported.model.config
    positions = 1024 * config.d_model if config.positions == "sinusoidal" else 0
    size = (exported.directory / "model.bin").stat().st_size
    assert 0 < size - 4 * (exported.model.count_params() + positions) < 20_000


# What cannot be done.


def test_every_activation_has_a_name_there():
    assert set(command.ACTIVATIONS) == set(ACTIVATIONS)


def test_an_activation_that_has_none_is_named(tokenizers, monkeypatch):
    monkeypatch.delitem(command.ACTIVATIONS, "gelu")
    model = random_model(tokenizers[1], **CASES["pre-norm"])
    with pytest.raises(ValueError, match="activation must be one of .* got 'gelu'"):
        command.specification(model, tokenizers[1], 19)


def test_special_pieces_of_two_names_are_refused(tokenizers):
    model = random_model(tokenizers[1], **CASES["learned"])
    tokenizer = Tokenizer(tokenizers[1].source_model, tokenizers[1].target_model)
    processor = tokenizer.target_model.replace(b"</s>", b"<e/>")
    tokenizer.target_model = processor
    with pytest.raises(ValueError, match="one name on both sides .*'</s>'.*'<e/>'"):
        command.specification(model, tokenizer, 19)


def failed(capsys):
    """What was wrong, in the last line of standard error; before it, progress at most."""
    *before, last = capsys.readouterr().err.splitlines()
    start = "python -m export.ctranslate2: error: "
    assert last.startswith(start)
    assert all(line.endswith(" ...") for line in before), before
    return last.removeprefix(start)


def test_bad_arguments_are_one_line(run, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for source, directory, message in (
        (tmp_path / "missing", "out", "is no directory"),
        (tmp_path / "empty", "out", "is no run directory"),
        (run, "file", "directory must not exist yet, got "),
        (run, "empty", "directory must not exist yet, got "),
        (run, "link", "directory must not exist yet, got "),
        (run, "file/out", "File exists"),
    ):
        assert command.main([str(source), str(tmp_path / directory)]) == 1
        assert message in failed(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "link"]


def test_wrong_usage_is_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["run"])
    assert failed(capsys).endswith(" (see --help)")


def test_without_ctranslate2_it_says_what_to_install(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert command.main([str(run), str(tmp_path / "out")]) == 1
    assert failed(capsys).startswith("ctranslate2 is needed: pip install 'ctranslate2>=4.8'")
    assert not os.listdir(tmp_path)


def test_what_does_not_agree_is_not_published(run, tmp_path, monkeypatch, capsys):
    for difference in (0.25, np.nan):
        monkeypatch.setattr(command, "largest_difference", lambda *_, d=difference: d)
        assert command.main([str(run), str(tmp_path / "out")]) == 1
        assert f"got a difference of {difference:.2g}" in failed(capsys)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("exported", ["paper"], indirect=True)
def test_another_model_does_not_agree(exported):
    model = Transformer(exported.model.config)
    assert command.largest_difference(exported.directory, model, exported.tokenizer) > 0.01


@pytest.mark.parametrize(
    "error, code, message",
    [
        (OSError("no\nspace"), 1, "no space"),
        (RuntimeError("CTranslate2 says\n\nno"), 1, "CTranslate2 says no"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_failed_write_is_one_line_and_leaves_nothing(
    error, code, message, run, tmp_path, monkeypatch, capsys
):
    def fail(spec, tokenizer, directory):
        (directory / "model.bin").write_text("half")
        raise error

    monkeypatch.setattr(command, "save", fail)
    assert command.main([str(run), str(tmp_path / "out")]) == code
    assert failed(capsys) == message
    assert not os.listdir(tmp_path)


def test_a_full_disk_is_one_line_and_leaves_nothing(run, tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        code = command.main([str(run), str(tmp_path / "out")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert code == 1
    failed(capsys)
    assert not os.listdir(tmp_path)
