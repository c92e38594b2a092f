"""A language model's signatures: texts, scores, and the reason why a text ended."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tiny

import tfformer
from export.artifacts.examples import sample_requests
from export.verification.compare import answer
from export.verification.language_model import compare_whole
from export.verification.report import Report
from tfformer import LanguageModel, LanguageModelConfig, TextGenerator, Tokenizer
from tfformer.config import BOS, EOS
from tfformer.service.language_model_signatures import scored

LIMITS = {"max_source_length": 11, "max_target_length": 13, "max_batch_size": 7}
TEXTS = ["a house", "", "nobody in the little lake", "a\x00b \udcff"]
TEXTS = [text.encode(errors="surrogateescape") for text in TEXTS]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(tiny.sentences(97), vocabulary_size=331)


@pytest.fixture(scope="module")
def model(tokenizer):
    size = tokenizer.source_vocabulary_size
    model = LanguageModel(LanguageModelConfig.preset("test", size, num_layers=2))
    rng = np.random.default_rng(5)
    for weight in model.trainable_variables:
        mean = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(rng.normal(mean, 0.4, size=weight.shape))
    # Bytes are unlikely, so that the texts can be read.
    table = model.embedding.embeddings.numpy()
    table[4:260] *= 0.01
    model.embedding.embeddings.assign(table)
    return model


@pytest.fixture(scope="module")
def generator(model, tokenizer):
    return TextGenerator(model, tokenizer, **LIMITS)


def ask(generator, name, texts=TEXTS, **options):
    function = generator.functions[name]
    kinds = {spec.name: spec.dtype for spec in function.input_signature}
    options = {key: tf.constant(value, kinds[key]) for key, value in options.items()}
    found = function(tf.constant(texts, tf.string, [len(texts)]), **options)
    return {key: value.numpy() for key, value in found.items()}


def prompt_of(tokenizer, text):
    """bos and the ids of a text, as `tfformer.generate` takes them."""
    return [BOS, *tokenizer.encode_source([text])[0].numpy().tolist()[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"seed": 3}, {"top_k": 1}, {"top_k": 1, "no_repeat_ngram": 1}])
def test_generated_text_equals_tfformer_generate(generator, model, tokenizer, options):
    """The ids of the uncached model if the most likely token is drawn; the text follows the
    prompt's."""
    found = ask(generator, "generate", **options)
    prompts = [prompt_of(tokenizer, text) for text in TEXTS]
    ids = tfformer.generate(
        model, prompt=prompts, search="sample", max_length=13, force_eos=False,
        **{"seed": 0, **options},
    )  # fmt: skip
    for row, prompt in enumerate(prompts):
        token_ids = ids.token_ids.numpy()[row, 0]
        whole = tokenizer.decode(tf.constant([[*prompt, *token_ids]], tf.int32)).numpy()[0]
        before = tokenizer.decode(tf.constant([prompt], tf.int32)).numpy()[0]
        assert before + found["continuation"][row] == whole
    np.testing.assert_array_equal(found["length"], ids.lengths[:, 0])
    np.testing.assert_allclose(found["log_prob"], ids.log_probs[:, 0], rtol=1e-4)
    ended = (ids.token_ids.numpy()[:, 0] == EOS).any(axis=1)
    np.testing.assert_array_equal(found["finished"], ended)


def test_top_k_1_equals_greedy_search_without_a_cache(generator, model, tokenizer):
    found = ask(generator, "generate", top_k=1)
    for row, text in enumerate(TEXTS):
        plain = tfformer.generate(
            functools.partial(model, training=False),
            prompt=[prompt_of(tokenizer, text)], search="greedy", max_length=13,
            force_eos=False,
        )  # fmt: skip
        assert found["length"][row] == plain.lengths[0, 0]
        np.testing.assert_allclose(found["log_prob"][row], plain.log_probs[0, 0], rtol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 13])
def test_a_text_is_finished_if_and_only_if_the_model_chose_eos(generator, model, tokenizer, length):
    """The tokens are drawn by the seed, from the model without a cache."""
    found = ask(generator, "generate", seed=3, max_length=length)
    drawn = tfformer.generate(
        functools.partial(model, training=False),
        prompt=[prompt_of(tokenizer, text) for text in TEXTS],
        search="sample", seed=3, max_length=length, force_eos=False,
    )  # fmt: skip
    tokens = drawn.token_ids.numpy()[:, 0]
    assert found["finished"].tolist() == (tokens == EOS).any(axis=1).tolist()
    assert ((found["length"] == length) | found["finished"]).all()
    assert not (length == 2 and found["finished"].all())


@pytest.mark.slow
def test_a_seed_draws_the_same_and_another_does_not(generator):
    first, again, other = (ask(generator, "generate", seed=n) for n in (1, 1, 2))
    np.testing.assert_array_equal(first["continuation"], again["continuation"])
    assert first["continuation"].tolist() != other["continuation"].tolist()
    default = ask(generator, "serving_default")
    np.testing.assert_array_equal(
        default["continuation"], ask(generator, "generate")["continuation"]
    )


@pytest.mark.slow
def test_no_answer_depends_on_batch_mates(generator):
    for name in ("beam_search", "score"):
        together = ask(generator, name)
        for row, text in enumerate(TEXTS):
            alone = ask(generator, name, [text])
            for key, value in alone.items():
                expected = together[key][row]
                if value[0].dtype == object:
                    assert value[0].tolist() == expected.tolist(), (name, key)
                    continue
                size = value[0].shape
                inside = tuple(slice(n) for n in size)
                np.testing.assert_allclose(value[0], expected[inside], rtol=1e-4, atol=1e-5)


def test_generation_ends_at_the_stop_string(generator):
    whole = ask(generator, "generate", seed=1, min_length=13)
    letters = [c for c in whole["continuation"][0].decode() if c.isascii() and c.isalpha()]
    for stop in (letters[-1].encode(), letters[1].encode(), b"no such thing"):
        found = ask(generator, "generate", seed=1, min_length=13, stop=stop)
        for row in range(len(TEXTS)):
            expected = whole["continuation"][row].split(stop)[0]
            assert found["continuation"][row] == expected
            if stop in whole["continuation"][row]:
                assert found["finished"][row]
                assert found["length"][row] <= whole["length"][row]
    assert len(letters) > 3


def log_probs(model, ids):
    """log P of each token of bos + ids, by the Keras model."""
    found = tf.nn.log_softmax(model(np.array([[BOS, *ids[:-1]]]), training=False))
    return found.numpy()[0][np.arange(len(ids)), ids]


def test_score_equals_the_log_probability_of_the_model(generator, model, tokenizer):
    """Short texts; `truncated` is false."""
    texts = ["a house", "the lake", ""]
    found = ask(generator, "score", texts)
    for row, text in enumerate(texts):
        ids = tokenizer.encode_source([text])[0].numpy()
        assert found["length"][row] == len(ids) <= LIMITS["max_source_length"]
        np.testing.assert_allclose(found["log_prob"][row], log_probs(model, ids).sum(), rtol=1e-4)
    assert not found["truncated"].any()


@pytest.mark.parametrize("stride", [None, pytest.param(1, marks=pytest.mark.slow), 7, 23])
def test_a_long_text_is_scored_by_windows(generator, model, tokenizer, stride):
    """By hand: each window alone; each token is counted in the first window that has it."""
    text = " ".join(tiny.sentences(19, seed=3))
    [ids] = tokenizer.encode_source([text]).to_list()
    found, real, cut = scored(generator.writing, tf.constant([text, "a house"]), stride)
    window, step = 23, stride or 11  # tokens of prompt and continuation together
    assert len(ids) > 3 * window and real[0].numpy().all() and not cut.numpy().any()
    inputs = [BOS, *ids[:-1]]
    expected = []
    for start in range(0, len(ids), step):
        read = np.array([inputs[start : start + window]])
        labels = ids[start : start + window]
        own = tf.nn.log_softmax(model(read, training=False)).numpy()[0]
        own = own[np.arange(len(labels)), labels]
        expected += own.tolist()[len(expected) - start :]
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    assert int(tf.math.count_nonzero(real[1])) == len(tokenizer.encode_source(["a house"])[0])


def test_long_prompt_keeps_only_its_end(generator, tokenizer):
    long = " ".join(tiny.sentences(9, seed=4))
    ids, truncated = generator.writing.prompts(tf.constant([long, "a house", ""]))
    whole = tokenizer.encode_source([long])[0].numpy().tolist()[:-1]
    assert ids[0].numpy().tolist() == [BOS, *whole[-10:]]
    assert truncated.numpy().tolist() == [True, False, False]
    assert ids[2].numpy().tolist() == [0] * 10 + [BOS]
    assert ask(generator, "generate", [long])["truncated"].tolist() == [True]


def test_empty_batch_gives_empty_outputs(generator):
    for name in generator.functions:
        assert all(len(value) == 0 for value in ask(generator, name, []).values())


@pytest.mark.parametrize(
    ("name", "texts", "options", "message"),
    [
        ("generate", TEXTS * 2, {}, "number of texts must be in"),
        ("score", TEXTS * 2, {}, "number of texts must be in"),
        ("beam_search", TEXTS, {"beam_width": 64}, "number of texts \\* beam_width must be in"),
        ("generate", TEXTS, {"temperature": 0.0}, "temperature must be in"),
        ("generate", TEXTS, {"top_p": 1.5}, "top_p must be in"),
        ("generate", TEXTS, {"top_k": 332}, "top_k must be in"),
        ("generate", TEXTS, {"max_length": 14}, "max_length must be in"),
        ("generate", TEXTS, {"min_length": -1}, "min_length must be in"),
        ("generate", TEXTS, {"repetition_penalty": 0.5}, "repetition_penalty must be in"),
    ],
)
def test_bad_request_is_refused(generator, name, texts, options, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask(generator, name, texts, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature must be in"),
        ({"top_k": -1}, "top_k must be in"),
        ({"beam_width": 65}, "beam_width must be in"),
        ({"min_length": 14, **LIMITS}, "min_length must be at most max_target_length = 13, got 14"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'bfloat16', got 'float16'"),
        ({"max_batch_size": 0}, "max_batch_size must be an integer of at least 1, got 0"),
    ],
)
def test_error_names_an_option_out_of_range(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        TextGenerator(model, tokenizer, **options)


def test_mismatched_model_and_tokenizer_are_refused(model, tokenizer):
    other = Tokenizer.train(["ein Haus"], vocabulary_size=300)
    with pytest.raises(ValueError, match="tokenizer must be one for both sides, of \\d+ ids"):
        TextGenerator(model, other)
    apart = Tokenizer(tokenizer.source_model, other.source_model)
    with pytest.raises(ValueError, match="tokenizer must be one for both sides"):
        TextGenerator(model, apart)
    with pytest.raises(ValueError, match="model must be a LanguageModel"):
        TextGenerator(tokenizer, tokenizer)


def test_max_length_above_the_limit_is_refused(generator):
    with pytest.raises(ValueError, match="max_length must be at most max_target_length = 13"):
        generator.generate(["The "], max_length=76)


def test_export_with_a_repetition_penalty_is_still_compared(model, tokenizer):
    """The penalty changes the scores, so the compared texts are searched without it."""
    generator = TextGenerator(model, tokenizer, repetition_penalty=1.2, **LIMITS)
    requests = sample_requests(generator)
    report = Report("")
    compare_whole(generator, requests, report)
    [check] = report.checks
    assert check.passed and int(check.detail.split()[0]) > 0
    answers = [dict(answer(generator, "beam_search", one)) for one in requests["beam_search"]]
    for one in answers:
        one["token_log_probs"] = one["token_log_probs"] - 0.1
    report = Report("", served={"beam_search": answers})
    compare_whole(generator, requests, report)
    assert not report.passed
    report, requests["beam_search"] = Report(""), requests["beam_search"][:1]
    compare_whole(generator, requests, report)
    assert not report.passed and "no text" in report.checks[0].detail
