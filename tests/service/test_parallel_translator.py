"""A non-autoregressive translator gives the same result alone or in a batch, here or saved."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from words import make_tokenizer

from tfformer import NonAutoregressive, NonAutoregressiveConfig, ParallelTranslator, Translator
from tfformer.config import BOS, EOS
from tfformer.inference.fuse import fuse
from tfformer.inference.non_autoregressive import ParallelInference

LIMITS = {"max_source_length": 13, "max_target_length": 11, "max_batch_size": 7}
TEXTS = ["Ein Haus am See", "", "x", "ein kleines Haus und ein großer Baum am kleinen See hier"]
VARIANTS = {
    "mask-predict": {"max_length_difference": 7},
    "ctc": {"decoding": "ctc", "tie_embeddings": "target", "upsampling": 2},
    "eos": {"decoding": "eos", "tie_embeddings": "target", "upsampling": 2},
}
variants = pytest.mark.parametrize("variant", VARIANTS)
# Tests that take long run the variants that many users have.
two_variants = pytest.mark.parametrize(
    "variant", ["mask-predict", "ctc", pytest.param("eos", marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def make():
    """One translator with random weights for each variant."""
    tokenizer = make_tokenizer()

    def translator(variant, **options):
        sizes = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
        config = NonAutoregressiveConfig.preset(
            "test", sizes[0], target_vocabulary_size=sizes[1], **layers, **VARIANTS[variant]
        )
        model = NonAutoregressive(config)
        rng = np.random.default_rng(5)
        for weight in model.trainable_variables:
            mean = 1.0 if weight.path.endswith("gamma") else 0.0
            # Positions weigh as much as everything else, so that no two positions are alike.
            scale = 0.6 if weight.path.endswith("kernel") else 0.1
            weight.assign(rng.normal(mean, scale, size=weight.shape))
        return ParallelTranslator(model, tokenizer, **{**LIMITS, **options})

    return functools.cache(translator)


def ask(translator, name, texts):
    found = translator.functions[name](tf.constant(texts, tf.string, [len(texts)]))
    return {key: value.numpy() for key, value in found.items()}


@two_variants
def test_no_answer_depends_on_batch_mates(make, variant):
    translator = make(variant)
    for name in translator.signatures:
        together = ask(translator, name, TEXTS)
        for row, text in enumerate(TEXTS):
            for key, value in ask(translator, name, [text]).items():
                if value.dtype.kind == "f":
                    np.testing.assert_allclose(together[key][row], value[0], atol=1e-5)
                else:
                    assert together[key][row] == value[0]
        assert {
            key: len(value) for key, value in ask(translator, name, []).items()
        } == dict.fromkeys(together, 0)


@variants
def test_signatures_and_output_types_are_those_of_a_translator(make, variant, translator):
    """`translator` is an encoder-decoder."""
    own = make(variant)
    assert list(own.signatures) == ["serving_default", "translate_document"]
    for name in own.signatures:
        theirs, ours = translator.functions[name], own.functions[name]
        assert ours.input_signature == theirs.input_signature
        found, expected = ask(own, name, TEXTS[:2]), theirs(tf.constant(TEXTS[:2]))
        expected = {key: value.numpy() for key, value in expected.items()}
        kinds = [{k: (v.dtype, v.shape) for k, v in one.items()} for one in (found, expected)]
        assert kinds[0] == kinds[1]


@pytest.mark.slow
@two_variants
def test_a_saved_translator_answers_the_same(make, variant, tmp_path):
    translator = make(variant)
    translator.save(str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for name in translator.signatures:
        expected = ask(translator, name, TEXTS)
        found = loaded.signatures[name](text=tf.constant(TEXTS))
        for key, value in expected.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(found[key], value, atol=1e-5)
            else:
                np.testing.assert_array_equal(found[key], value)


@variants
def test_blank_text_is_empty_and_long_text_is_truncated(make, variant):
    found = ask(make(variant), "serving_default", ["", " ", *TEXTS[3:]])
    assert found["translation"][:2].tolist() == [b"", b""]
    assert found["score"][:2].tolist() == [0.0, 0.0]
    assert found["truncated"].tolist() == [False, False, True]


def test_more_tokens_than_the_limit_are_cut(make):
    translator = make("eos", max_target_length=2)
    source = translator.tokenizer.encode_source(tf.constant(TEXTS[:1])).to_tensor()
    inference = ParallelInference(*translator.fused())
    whole = inference.from_places(source, up_to_first_eos=True).token_ids
    assert whole.shape[1] > 2
    expected = translator.tokenizer.decode(whole[:, :2]).numpy()
    assert ask(translator, "serving_default", TEXTS[:1])["translation"] == expected


def test_most_likely_of_several_lengths_is_chosen(make):
    """One row by hand for each length; more lengths never find a less likely text."""
    one, three = make("mask-predict", lengths=1), make("mask-predict", lengths=3)
    source = three.tokenizer.encode_source(tf.constant([TEXTS[0], TEXTS[2]])).to_tensor()
    inference = ParallelInference(*fuse(three.model, 13))
    written = inference.by_mask_predict(source, 4, 3, 10)
    found = ask(three, "serving_default", [TEXTS[0], TEXTS[2]])
    for row in range(2):
        own = [
            (float(written.mean[n]), written.token_ids[n].numpy())
            for n in range(3 * row, 3 * row + 3)
        ]
        score, ids = max(own, key=lambda pair: pair[0])
        assert found["score"][row] == pytest.approx(score, abs=1e-5)
        text = three.tokenizer.decode(tf.constant(ids[None]))
        assert found["translation"][row] == text.numpy()[0]
    alone = ask(one, "serving_default", [TEXTS[0], TEXTS[2]])
    assert (found["score"] >= alone["score"] - 1e-5).all()


@pytest.mark.slow
def test_reranker_chooses_among_the_lengths(make, model, tokenizer, tmp_path):
    """The log-probability of each candidate by the whole model, with the length penalty; here
    and saved. `model` is an encoder-decoder with the same tokenizer."""
    own = make("mask-predict", lengths=3)
    chooser = Translator(model, own.tokenizer, length_penalty=1.3, **LIMITS)
    translator = ParallelTranslator(own.model, own.tokenizer, **LIMITS, lengths=3, rerank=chooser)
    texts = [TEXTS[0], TEXTS[2]]
    source = own.tokenizer.encode_source(tf.constant(texts)).to_tensor()
    written = ParallelInference(*own.fused()).by_mask_predict(source, 4, 3, 10).token_ids.numpy()
    found = ask(translator, "serving_default", texts)
    for row in range(2):
        scores = []
        for ids in written[3 * row : 3 * row + 3]:
            labels = [*ids[ids != 0], EOS]
            inputs = {
                "source_ids": source[row : row + 1],
                "target_ids": tf.constant([[BOS, *labels[:-1]]]),
            }
            log_probs = tf.nn.log_softmax(model(inputs, training=False))[0].numpy()
            total = log_probs[np.arange(len(labels)), labels].sum()
            scores.append(total / ((5 + len(labels)) / 6) ** 1.3)
        best = int(np.argmax(scores))
        assert found["score"][row] == pytest.approx(scores[best], rel=1e-4)
        text = own.tokenizer.decode(tf.constant(written[3 * row + best][None]))
        assert found["translation"][row] == text.numpy()[0]
    translator.save(str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    again = loaded.signatures["serving_default"](text=tf.constant(texts))
    np.testing.assert_array_equal(again["translation"], found["translation"])


def test_wrong_reranker_is_refused(make, translator):
    own = make("mask-predict")
    for other, rerank, message in (
        (make("ctc"), translator, "rerank must be None with decoding='ctc', which writes one"),
        (own, own, "rerank must be a Translator, got ParallelTranslator"),
    ):
        with pytest.raises(ValueError, match=message):
            ParallelTranslator(other.model, other.tokenizer, rerank=rerank)


def test_translate_takes_any_number_of_texts(make):
    translator = make("ctc")
    expected = [text.decode() for text in ask(translator, "serving_default", TEXTS)["translation"]]
    assert translator.translate(TEXTS * 3, batch_size=5) == expected * 3
    assert translator.answer(TEXTS, greedy=True) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passes": 0}, r"passes must be in \[1, 64\], got 0"),
        ({"lengths": 17}, r"lengths must be in \[1, 16\], got 17"),
        ({"max_target_length": 1}, r"max_target_length must be in \[2, inf\], got 1"),
        ({"max_batch_size": 0}, "max_batch_size must be an integer of at least 1, got 0"),
        ({"dtype": "half"}, "dtype must be 'float32' or 'bfloat16', got 'half'"),
    ],
)
def test_error_names_a_wrong_option(make, options, message):
    translator = make("mask-predict")
    with pytest.raises(ValueError, match=message):
        ParallelTranslator(translator.model, translator.tokenizer, **options)


def test_max_source_length_over_the_learned_positions_is_refused(make):
    translator = make("ctc")
    config = {**translator.model.config.to_dict(), "positions": "learned", "max_positions": 23}
    with pytest.raises(ValueError, match="max_source_length must be at most 11, of which each"):
        ParallelTranslator(
            NonAutoregressive(config), translator.tokenizer, max_source_length=12,
            max_target_length=11,
        )  # fmt: skip


def test_a_model_of_another_family_is_refused(make, model):
    with pytest.raises(ValueError, match="model must be a NonAutoregressive, .* got Transformer"):
        ParallelTranslator(model, make("ctc").tokenizer)
