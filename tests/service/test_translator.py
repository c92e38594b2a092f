"""Text in, text out: every served signature, against the other signatures and plain NumPy."""

import functools
import math

import numpy as np
import oracle
import pytest
import search_oracle
import tensorflow as tf
from search_oracle import BOS, EOS, PAD
from words import WORDS, make_model, sentences

from tfformer import Tokenizer, Translator
from tfformer.inference.fuse import fuse

MAX_SOURCE, MAX_TARGET, WIDTH, ALPHA = 13, 7, 3, 0.6


@pytest.fixture(scope="module")
def tokenizer():
    # Two models: a mix-up of the sides cannot hide.
    source = Tokenizer.train(sentences(1, 300), vocabulary_size=409, kind="bpe")
    target = Tokenizer.train(WORDS[5:] * 20, vocabulary_size=367, kind="bpe")
    return Tokenizer(source.source_model, target.source_model)


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_model(tokenizer)


@pytest.fixture(scope="module")
def translator(model, tokenizer):
    return Translator(
        model,
        tokenizer,
        beam_width=WIDTH,
        length_penalty=ALPHA,
        max_source_length=MAX_SOURCE,
        max_target_length=MAX_TARGET,
    )


@pytest.fixture(scope="module")
def serve(translator):
    """`serve(name, texts, ..., option=...)`: a signature's outputs as arrays."""

    def run(name, *texts, **options):
        inputs = [x if tf.is_tensor(x) else tf.constant(x, tf.string) for x in texts]
        outputs = translator.functions[name](*inputs, **options)
        return {key: value.numpy() for key, value in outputs.items()}

    return run


@pytest.fixture(scope="module")
def log_probs_of(model, tokenizer):
    """`log_probs_of(text)(prefix)`: by the whole model in NumPy, without a cache."""

    def of_text(text):
        (source_ids,) = tokenizer.encode_source(tf.constant([text])).numpy().tolist()

        @functools.cache
        def of(prefix):
            target_ids = np.array([[BOS, *prefix]])
            logits = oracle.transformer(model, np.array([source_ids]), target_ids)
            return search_oracle.log_softmax(logits[0, -1])

        return of

    return of_text


TEXTS = sentences(3, 5)


# ---------------------------------------------------------------- the table of signatures

B = len(TEXTS)
OPTIONS = {
    "beam_width": "int32",
    "length_penalty": "float32",
    "max_length": "int32",
    "min_length": "int32",
    "max_length_factor": "float32",
    "coverage_penalty": "float32",
    "repetition_penalty": "float32",
    "no_repeat_ngram": "int32",
}
N_BEST = {
    "token_ids": ("int32", 3),
    "scores": ("float32", 2),
    "lengths": ("int32", 2),
    "token_log_probs": ("float32", 3),
    "alignment": ("int32", 3),
}
SIGNATURES = {
    "serving_default": (
        {"text": "string"},
        {"translation": ("string", 1), "score": ("float32", 1), "truncated": ("bool", 1)},
    ),
    "translate_document": (
        {"text": "string"},
        {"translation": ("string", 1), "sentences": ("int32", 1), "truncated": ("bool", 1)},
    ),
    "beam_search": (
        {"text": "string", **OPTIONS},
        {
            "translations": ("string", 2),
            **N_BEST,
        },
    ),
    "beam_search_ids": ({"source_ids": "int32", **OPTIONS}, N_BEST),
    "score": (
        {"source": "string", "target": "string"},
        {"log_prob": ("float32", 1), "length": ("int32", 1)},
    ),
    "sample": (
        {
            "text": "string",
            "seed": "int32",
            "temperature": "float32",
            "top_k": "int32",
            "top_p": "float32",
            "max_length": "int32",
        },
        {"translation": ("string", 1), "log_prob": ("float32", 1)},
    ),
    "complete": (
        {"text": "string", "prefix": "string"},
        {"translation": ("string", 1), "score": ("float32", 1)},
    ),
    "align": (
        {"source": "string", "target": "string"},
        {
            "attention": ("float32", 3),
            "source_tokens": ("string", 2),
            "target_tokens": ("string", 2),
        },
    ),
}
signatures = pytest.mark.parametrize("name", SIGNATURES)


def arguments(name, tokenizer, texts=TEXTS):
    """Inputs without a default value."""
    if name == "beam_search_ids":
        return [tokenizer.encode_source(tf.constant(texts)).to_tensor(PAD)]
    return [texts] * sum(n in ("text", "source", "target", "prefix") for n in SIGNATURES[name][0])


@pytest.fixture(scope="module")
def served(serve, tokenizer):
    """Every signature's outputs for TEXTS, with the options' defaults."""
    return {name: serve(name, *arguments(name, tokenizer)) for name in SIGNATURES}


def test_there_is_every_signature_and_no_other(translator):
    assert set(translator.functions) == set(SIGNATURES)


@signatures
def test_inputs_and_outputs_have_their_names_dtypes_and_shapes(translator, served, name):
    inputs, outputs = SIGNATURES[name]
    specs = translator.functions[name].input_signature
    assert {spec.name: spec.dtype.name for spec in specs} == inputs
    for spec in specs:
        rank = 2 if spec.name == "source_ids" else int(spec.dtype == tf.string)
        assert spec.shape.as_list() == [None] * rank
    assert set(served[name]) == set(outputs)
    for key, (dtype, rank) in outputs.items():
        value = served[name][key]
        assert value.ndim == rank
        assert value.shape[0] == B
        assert value.dtype == (object if dtype == "string" else dtype), key


def test_shapes_agree_where_the_table_gives_them_one_letter(served):
    for name in ("beam_search", "beam_search_ids"):
        found = served[name]
        assert found["scores"].shape == found["lengths"].shape == (B, WIDTH)
        assert found["token_ids"].shape[:2] == (B, WIDTH)
        assert found["token_ids"].shape[2] <= MAX_TARGET
    assert served["beam_search"]["translations"].shape == (B, WIDTH)
    align = served["align"]
    expected = (B, align["target_tokens"].shape[1], align["source_tokens"].shape[1])
    assert align["attention"].shape == expected


# ---------------------------------------------------------------- search, against NumPy


def test_cached_beam_search_is_an_uncached_plain_one(served, log_probs_of, model):
    found, size = served["beam_search"], model.config.target_vocabulary_size
    ended_early = False
    for b, text in enumerate(TEXTS):
        expected = search_oracle.beam(log_probs_of(text), size, MAX_TARGET, WIDTH, ALPHA)
        lengths = found["lengths"][b]
        np.testing.assert_allclose(found["scores"][b], [e[1] for e in expected], rtol=1e-5)
        # Two sequences may be as good as one another to float32, so each is scored by itself.
        for ids, length, score in zip(
            found["token_ids"][b], lengths, found["scores"][b], strict=True
        ):
            assert not ids[length:].any()
            total = search_oracle.log_prob(log_probs_of(text), tuple(ids[:length].tolist()))
            expected_score = total / search_oracle.penalty(int(length), ALPHA)
            np.testing.assert_allclose(score, expected_score, rtol=1e-5)
        assert len({tuple(ids) for ids in found["token_ids"][b].tolist()}) == WIDTH
        ended_early |= bool((lengths < MAX_TARGET).any() and (lengths > 1).any())
    assert ended_early, "every hypothesis is cut off or empty, which proves little"


def test_greedy_is_the_uncached_plain_one(translator, log_probs_of, model, tokenizer):
    size = model.config.target_vocabulary_size
    expected = [search_oracle.greedy(log_probs_of(text), size, MAX_TARGET) for text in TEXTS]
    decoded = [tokenizer.decode(tf.constant([ids])).numpy()[0].decode() for ids in expected]
    assert translator.translate(TEXTS, greedy=True) == decoded


def test_serving_default_is_the_first_of_beam_search(served):
    best, beams = served["serving_default"], served["beam_search"]
    np.testing.assert_array_equal(best["translation"], beams["translations"][:, 0])
    np.testing.assert_allclose(best["score"], beams["scores"][:, 0], rtol=1e-5)
    assert not best["truncated"].any()
    assert (np.diff(beams["scores"], axis=1) <= 0).all()


def test_translations_are_the_decoded_ids(served, tokenizer):
    beams = served["beam_search"]
    for w in range(WIDTH):
        decoded = tokenizer.decode(tf.constant(beams["token_ids"][:, w]))
        np.testing.assert_array_equal(decoded, beams["translations"][:, w])


def test_beam_search_of_ids_is_that_of_their_text(served):
    for key, value in served["beam_search_ids"].items():
        np.testing.assert_allclose(value, served["beam_search"][key], rtol=1e-5)


def test_padding_behind_source_ids_changes_nothing(serve, served, tokenizer):
    (ids,) = arguments("beam_search_ids", tokenizer)
    room = MAX_SOURCE - ids.shape[1]
    assert room > 0
    padded = serve("beam_search_ids", tf.pad(ids, [[0, 0], [0, room]]))
    np.testing.assert_array_equal(padded["token_ids"], served["beam_search_ids"]["token_ids"])
    scores = served["beam_search_ids"]["scores"]
    np.testing.assert_allclose(padded["scores"], scores, rtol=1e-4)


def test_options_of_a_request_reach_the_search(serve, log_probs_of, model):
    size = model.config.target_vocabulary_size
    options = {"beam_width": 2, "length_penalty": 1.3, "max_length": 4}
    found = serve("beam_search", TEXTS[:2], **options)
    for b in (0, 1):
        expected = search_oracle.beam(log_probs_of(TEXTS[b]), size, 4, 2, 1.3)
        np.testing.assert_allclose(found["scores"][b], [e[1] for e in expected], rtol=1e-4)


RULES = {
    "min_length": 4,
    "max_length_factor": 1.5,
    "coverage_penalty": 0.4,
    "repetition_penalty": 1.6,
    "no_repeat_ngram": 2,
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_a_request_is_that_of_the_translator(name, serve, served, model, tokenizer):
    renamed = "min_target_length" if name == "min_length" else name
    own = Translator(
        model,
        tokenizer,
        beam_width=WIDTH,
        max_source_length=MAX_SOURCE,
        max_target_length=MAX_TARGET,
        **{renamed: RULES[name]},
    )
    best = own.functions["serving_default"](tf.constant(TEXTS))
    asked = serve("beam_search", TEXTS, **{name: RULES[name]})
    np.testing.assert_array_equal(best["translation"], asked["translations"][:, 0])
    np.testing.assert_allclose(best["score"], asked["scores"][:, 0], rtol=1e-4)
    default = own.functions["beam_search"](tf.constant(TEXTS))
    np.testing.assert_allclose(default["scores"], asked["scores"], rtol=1e-4)
    if name != "max_length_factor":
        assert (asked["scores"] != served["beam_search"]["scores"]).any()


def test_the_limit_by_the_source_counts_its_tokens(serve, tokenizer):
    tokens = (arguments("beam_search_ids", tokenizer)[0].numpy() != PAD).sum(axis=1)
    for factor in (0.3, 0.5, 1.0):
        lengths = serve("beam_search", TEXTS, max_length_factor=factor)["lengths"]
        limits = np.clip(np.ceil(np.float32(factor) * tokens), 1, MAX_TARGET)
        assert (lengths <= limits[:, None]).all()
        long = serve("beam_search", TEXTS, max_length_factor=factor, min_length=MAX_TARGET)
        np.testing.assert_array_equal(long["lengths"][:, 0], limits)


def test_token_log_probs_add_up_and_alignment_points_into_the_source(served, tokenizer):
    found = served["beam_search"]
    totals = found["token_log_probs"].sum(axis=-1)
    penalties = search_oracle.penalty(found["lengths"].astype(float), ALPHA)
    np.testing.assert_allclose(totals / penalties, found["scores"], rtol=1e-4)
    tokens = (arguments("beam_search_ids", tokenizer)[0].numpy() != PAD).sum(axis=1)
    assert (found["alignment"] < tokens[:, None, None]).all()
    assert found["alignment"].max() > 0


def test_alignment_is_the_greatest_attention_of_align(serve, served, tokenizer):
    found = served["beam_search"]
    best = served["serving_default"]["translation"]
    aligned = serve("align", TEXTS, best)
    compared = 0
    for b, ids in enumerate(tokenizer.encode_target(best).to_list()):
        # A text may be tokenised otherwise than it was found; then nothing can be compared.
        n = found["lengths"][b, 0]
        if ids[:n] == found["token_ids"][b, 0, :n].tolist():
            expected = aligned["attention"][b, :n].argmax(axis=-1)
            np.testing.assert_array_equal(found["alignment"][b, 0, :n], expected)
            compared += 1
    assert compared


def test_in_bfloat16_it_is_another_model_but_a_close_one(model, tokenizer, served):
    limits = {"max_source_length": MAX_SOURCE, "max_target_length": MAX_TARGET}
    half = Translator(model, tokenizer, beam_width=WIDTH, dtype="bfloat16", **limits)
    scores = half.functions["score"](tf.constant(TEXTS), tf.constant(TEXTS))["log_prob"]
    assert (scores != served["score"]["log_prob"]).numpy().all()
    np.testing.assert_allclose(scores, served["score"]["log_prob"], rtol=0.1)


@signatures
def test_no_rows_give_no_rows(serve, name):
    given = sum(n in ("text", "source", "target", "prefix") for n in SIGNATURES[name][0])
    inputs = [tf.zeros([0, 3], tf.int32)] if name == "beam_search_ids" else [[]] * given
    for value in serve(name, *inputs).values():
        assert value.shape[0] == 0


def test_where_every_continuation_is_forbidden_the_score_is_finite(model, tokenizer):
    own = Translator(
        model, tokenizer, max_target_length=40, min_target_length=40, no_repeat_ngram=1
    )
    assert np.isfinite(own.functions["serving_default"](tf.constant(TEXTS))["score"]).all()


def test_places_without_a_sequence_have_a_finite_score(serve):
    found = serve("beam_search", TEXTS[:2], beam_width=5, max_length=1)
    assert found["lengths"].tolist() == [[1, 0, 0, 0, 0]] * 2
    assert np.isfinite(found["scores"]).all()
    assert (found["scores"][:, 1:] < found["scores"][:, :1]).all()
    assert (found["translations"] == b"").all()


# ---------------------------------------------------------------- translate


def test_translations_do_not_depend_on_order_or_batch(translator, served):
    texts = TEXTS + sentences(4, 7, most=5)
    together = translator.translate(texts)
    assert together[:B] == [text.decode() for text in served["serving_default"]["translation"]]
    assert translator.translate(texts[::-1], batch_size=5) == together[::-1]
    assert [translator.translate([text])[0] for text in texts] == together
    assert len(set(together)) > 5


def test_no_texts_give_no_translations(translator):
    assert translator.translate([]) == []
    assert translator.translate(iter(["", ""])) == ["", ""]


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\0", "\u3000"])
def test_blank_texts_are_empty_and_leave_the_others_as_they_are(serve, served, blank):
    texts = [blank, *TEXTS, blank]
    found = serve("serving_default", texts)
    assert found["translation"][[0, -1]].tolist() == [b"", b""]
    assert found["score"][[0, -1]].tolist() == [0, 0]
    np.testing.assert_array_equal(
        found["translation"][1:-1], served["serving_default"]["translation"]
    )
    np.testing.assert_allclose(found["score"][1:-1], served["serving_default"]["score"], rtol=1e-5)
    beams = serve("beam_search", texts)
    assert (beams["lengths"][[0, -1]] == 0).all()
    assert (beams["scores"][[0, -1]] == 0).all()
    assert (beams["translations"][[0, -1]] == b"").all()
    np.testing.assert_array_equal(
        beams["translations"][1:-1], served["beam_search"]["translations"]
    )
    sampled = serve("sample", [blank])
    assert (sampled["translation"][0], sampled["log_prob"][0]) == (b"", 0)
    completed = serve("complete", [blank], ["ein"])
    assert (completed["translation"][0], completed["score"][0]) == (b"", 0)


def test_only_blank_texts_are_searched_without_an_error(serve):
    found = serve("serving_default", ["", " "])
    assert found["translation"].tolist() == [b"", b""]
    assert found["score"].tolist() == [0, 0]


def test_invalid_bytes_are_no_error_and_harm_no_neighbour(serve, served):
    found = serve("serving_default", [b"\xff\xfe\0", *TEXTS])
    np.testing.assert_array_equal(
        found["translation"][1:], served["serving_default"]["translation"]
    )


# ---------------------------------------------------------------- what is too long


def test_a_text_is_truncated_exactly_when_it_has_too_many_tokens(serve, tokenizer):
    # 1, 2, 3, ... words: one of them is the first that is too long.
    texts = [" ".join(["Haus"] * n) for n in range(1, MAX_SOURCE + 2)]
    lengths = tokenizer.encode_source(tf.constant(texts)).row_lengths().numpy()
    assert MAX_SOURCE in lengths and lengths[-1] > MAX_SOURCE
    found = serve("serving_default", texts)
    np.testing.assert_array_equal(found["truncated"], lengths > MAX_SOURCE)
    cut = texts[MAX_SOURCE - 2]
    assert tokenizer.encode_source([cut]).row_lengths() == MAX_SOURCE
    assert set(found["translation"][lengths > MAX_SOURCE]) == set(
        serve("serving_default", [cut])["translation"]
    )


def test_a_text_of_too_many_characters_is_cut_before_it_is_tokenised(serve):
    # Spaces cost no token, but one has to read them.
    texts = ["Haus" + " " * 16 * MAX_SOURCE + "See", "Haus", "ä" * 16 * MAX_SOURCE * 3]
    found = serve("serving_default", texts)
    assert found["truncated"].tolist() == [True, False, True]
    assert found["translation"][0] == found["translation"][1]


def test_characters_are_not_bytes(serve):
    # As many characters as may be, of four bytes each, most of them spaces in the end.
    text = "🦀" + "\u3000" * (16 * MAX_SOURCE - 1)
    assert serve("serving_default", [text])["truncated"].tolist() == [False]


# ---------------------------------------------------------------- score


def test_score_is_the_log_prob_under_teacher_forcing(serve, log_probs_of, tokenizer):
    targets = sentences(5, B, most=2)
    found = serve("score", TEXTS, targets)
    for b, row in enumerate(tokenizer.encode_target(tf.constant(targets)).numpy()):
        assert found["length"][b] == len(row) <= MAX_TARGET
        expected = search_oracle.log_prob(log_probs_of(TEXTS[b]), tuple(row.tolist()))
        np.testing.assert_allclose(found["log_prob"][b], expected, rtol=1e-4)


def test_score_of_a_translation_is_what_the_search_has_found(serve, tokenizer):
    found = serve("beam_search", TEXTS[:1], beam_width=64, max_length=3)
    translations = found["translations"][0]
    encoded = tokenizer.encode_target(tf.constant(translations)).numpy()
    # A translation of a random model may be spelt in other pieces than it was found in.
    same = [
        n
        for n, (ids, length) in enumerate(
            zip(found["token_ids"][0], found["lengths"][0], strict=True)
        )
        if ids[:length].tolist() == encoded[n].tolist()
    ]
    assert len(same) >= 3
    scores = serve("score", TEXTS[:1] * len(same), translations[same].tolist())
    lengths = found["lengths"][0][same]
    np.testing.assert_array_equal(scores["length"], lengths)
    penalty = [search_oracle.penalty(int(n), ALPHA) for n in lengths]
    np.testing.assert_allclose(scores["log_prob"] / penalty, found["scores"][0][same], rtol=1e-4)


# ---------------------------------------------------------------- sample


def test_a_sample_is_a_function_of_its_seed(serve):
    texts = TEXTS * 3
    first, again, other = (serve("sample", texts, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["translation"], again["translation"])
    np.testing.assert_array_equal(first["log_prob"], again["log_prob"])
    assert first["translation"].tolist() != other["translation"].tolist()


def test_a_sample_of_the_likeliest_alone_is_the_greedy_translation(serve, translator):
    greedy = translator.translate(TEXTS, greedy=True)
    for options in ({"top_k": 1}, {"top_p": 1e-6}):
        sampled = serve("sample", TEXTS, seed=3, **options)
        assert [text.decode() for text in sampled["translation"]] == greedy


# ---------------------------------------------------------------- complete


@pytest.mark.parametrize("prefix", ["ein", "der Garten", "Straße 1", "a"])
def test_a_completion_begins_with_its_prefix(serve, prefix):
    found = serve("complete", TEXTS, [prefix] * B)
    for translation in found["translation"]:
        assert translation.decode().startswith(prefix)


def test_a_completion_is_the_plain_beam_behind_the_prefix(serve, log_probs_of, tokenizer, model):
    size = model.config.target_vocabulary_size
    found = serve("complete", TEXTS[:2], ["ein", "der Garten"])
    for b, prefix in enumerate(["ein", "der Garten"]):
        forced = tokenizer.encode_target([prefix]).numpy()[0][:-1].tolist()
        expected = search_oracle.beam(
            log_probs_of(TEXTS[b]), size, MAX_TARGET, WIDTH, ALPHA, forced=forced
        )
        np.testing.assert_allclose(found["score"][b], expected[0][1], rtol=1e-4)


def test_an_empty_prefix_leaves_the_translation_as_it_is(serve, served):
    found = serve("complete", TEXTS, ["", " ", "\t", "", ""])
    best = served["serving_default"]
    np.testing.assert_array_equal(found["translation"], best["translation"])
    np.testing.assert_allclose(found["score"], best["score"], rtol=1e-5)


def test_a_prefix_over_the_limit_is_cut(serve):
    long = " ".join(["Haus"] * 40)
    (translation,) = serve("complete", TEXTS[:1], [long])["translation"]
    assert translation and long.startswith(translation.decode())


# ---------------------------------------------------------------- align


def test_attention_is_a_distribution_over_the_source_for_each_target_token(serve, tokenizer):
    sources, targets = ["ein kleines Haus am See", "a lake"], ["by", "der Garten blüht"]
    found = serve("align", sources, targets)
    encoded = zip(
        tokenizer.encode_source(sources).row_lengths().numpy(),
        tokenizer.encode_target(targets).row_lengths().numpy(),
        strict=True,
    )
    for b, (source_length, target_length) in enumerate(encoded):
        attention = found["attention"][b]
        np.testing.assert_allclose(attention[:target_length].sum(axis=1), 1, rtol=1e-5)
        assert (attention >= 0).all()
        assert not attention[target_length:].any()
        assert not attention[:, source_length:].any()
        for texts, key, length in (
            (sources, "source_tokens", source_length),
            (targets, "target_tokens", target_length),
        ):
            pieces = found[key][b]
            assert pieces[length - 1] == b"</s>"
            assert (pieces[length:] == b"").all()
            joined = b"".join(pieces[: length - 1]).decode()
            assert joined.replace("▁", " ").strip() == texts[b]


def test_attention_is_the_mean_over_the_heads_of_the_last_layer(serve, model, tokenizer):
    sources, targets = ["ein Haus", "a"], ["by the lake", "der"]
    found = serve("align", sources, targets)["attention"]
    for b in (0, 1):
        source_ids = tokenizer.encode_source(sources[b : b + 1]).to_tensor().numpy()
        labels = tokenizer.encode_target(targets[b : b + 1]).to_tensor().numpy()
        target_ids = np.concatenate([[[BOS]], labels[:, :-1]], axis=1)
        memory = oracle.encoder(
            model.encoder,
            oracle.embed_with_positions(model.source_embedding, model.source_positions, source_ids),
        )
        x = oracle.embed_with_positions(model.target_embedding, model.target_positions, target_ids)
        *others, last = model.decoder.layers
        for layer in others:
            x = oracle.decoder_layer(layer, x, memory)
        x = oracle.decoder_self_attention(last, x)
        expected = oracle.head_weights(last.cross_attention, x, memory).mean(axis=1)[0]
        part = found[b, : expected.shape[0], : expected.shape[1]]
        np.testing.assert_allclose(part, expected, rtol=1e-3, atol=1e-5)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "name, option, value",
    [
        ("beam_search", "beam_width", 0),
        ("beam_search", "beam_width", -1),
        ("beam_search", "beam_width", 65),
        ("beam_search", "length_penalty", -0.1),
        ("beam_search", "length_penalty", 10.1),
        ("beam_search", "length_penalty", float("nan")),
        ("beam_search", "max_length", -1),
        ("beam_search", "max_length", MAX_TARGET + 1),
        ("beam_search_ids", "beam_width", 0),
        ("beam_search_ids", "max_length", MAX_TARGET + 1),
        ("sample", "temperature", 0.0),
        ("sample", "temperature", -1.0),
        ("sample", "top_k", -1),
        ("sample", "top_k", 100_000),
        ("sample", "top_p", 0.0),
        ("sample", "top_p", 1.1),
        ("sample", "max_length", -7),
    ],
)
def test_an_option_out_of_its_range_is_named(serve, tokenizer, name, option, value):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{option} must be in "):
        serve(name, *arguments(name, tokenizer), **{option: value})


@pytest.mark.parametrize("value", [-1, 100_000])
def test_ids_outside_of_the_vocabulary_are_refused(serve, value):
    with pytest.raises(tf.errors.InvalidArgumentError, match="source_ids must be in "):
        serve("beam_search_ids", tf.constant([[value, EOS]]))


def test_too_many_ids_are_refused(serve):
    ids = tf.fill([1, MAX_SOURCE + 1], 5)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="the length of source_ids must be in "
    ):
        serve("beam_search_ids", ids)


@pytest.mark.parametrize("name", ["score", "complete", "align"])
def test_texts_of_unequal_number_are_refused(serve, name):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have as many rows"):
        serve(name, ["a", "b"], ["a", "b", "c"])


@pytest.mark.parametrize("text", ["a scalar", [["a", "matrix"]]])
def test_a_text_of_another_rank_is_refused(saved, text):
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        saved.signatures["serving_default"](text=tf.constant(text))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beam_width": 0}, r"beam_width must be in \[1, 64\], got 0"),
        ({"beam_width": 65}, r"beam_width must be in \[1, 64\], got 65"),
        ({"length_penalty": -1}, r"length_penalty must be in \[0, 10\], got -1"),
        ({"length_penalty_form": "wu"}, "length_penalty_form must be one of .* got 'wu'"),
        ({"max_source_length": 1}, "max_source_length must be in .* got 1"),
        ({"max_target_length": 0}, "max_target_length must be in .* got 0"),
    ],
)
def test_a_wrong_argument_is_named(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        Translator(model, tokenizer, **options)


def test_a_limit_over_the_learned_positions_is_refused(tokenizer):
    model = make_model(tokenizer, positions="learned", max_positions=19)
    Translator(model, tokenizer, max_source_length=19, max_target_length=19)
    for name in ("max_source_length", "max_target_length"):
        limits = {"max_source_length": 19, "max_target_length": 19, name: 20}
        with pytest.raises(ValueError, match=rf"{name} must be in \[2, 19\], got 20"):
            Translator(model, tokenizer, **limits)


def test_a_tokenizer_of_another_size_is_refused(model, tokenizer):
    swapped = Tokenizer(tokenizer.target_model, tokenizer.source_model)
    with pytest.raises(ValueError, match="tokenizer must have the model's numbers of ids"):
        Translator(model, swapped)


# ---------------------------------------------------------------- save


@pytest.fixture(scope="module")
def saved_directory(translator, tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved") / "1"
    translator.save(str(directory))
    return directory


@pytest.fixture(scope="module")
def saved(saved_directory):
    return tf.saved_model.load(str(saved_directory))


@pytest.fixture(scope="module")
def meta_graph(saved_directory):
    from tensorflow.core.protobuf import saved_model_pb2

    content = (saved_directory / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return graph


@signatures
def test_a_saved_signature_gives_the_same(saved, served, tokenizer, translator, meta_graph, name):
    names = [spec.name for spec in translator.functions[name].input_signature]
    values = [tf.constant(x) for x in arguments(name, tokenizer)]
    # Python's loader leaves out the default values, which a server fills in.
    defaults = {
        key: tf.constant(tf.make_ndarray(value))
        for key, value in meta_graph.signature_def[name].defaults.items()
    }
    given = dict(zip(names, values, strict=False))
    found = saved.signatures[name](**{**defaults, **given})
    assert set(found) == set(served[name])
    for key, value in served[name].items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[key], value)


def test_defaults_of_the_options_are_written_into_the_signatures(meta_graph):
    search = {"beam_width": WIDTH, "length_penalty": ALPHA, "max_length": 0, "min_length": 0}
    search |= {"max_length_factor": 0, "coverage_penalty": 0}
    search |= {"repetition_penalty": 1, "no_repeat_ngram": 0}
    sample = {"seed": 0, "temperature": 1, "top_k": 0, "top_p": 1, "max_length": 0}
    expected = {"beam_search": search, "beam_search_ids": search, "sample": sample}
    for name in SIGNATURES:
        defaults = meta_graph.signature_def[name].defaults
        values = {key: float(tf.make_ndarray(value)) for key, value in defaults.items()}
        assert values == pytest.approx(expected.get(name, {}))


def test_the_saved_root_holds_no_keras_object_and_each_weight_once(
    meta_graph, saved_directory, model
):
    nodes = meta_graph.object_graph_def.nodes
    identifiers = {node.user_object.identifier for node in nodes if node.HasField("user_object")}
    assert identifiers
    assert not [identifier for identifier in identifiers if "keras" in identifier]
    stored = tf.train.list_variables(str(saved_directory / "variables" / "variables"))
    sizes = sorted(tuple(shape) for name, shape in stored if "VARIABLE_VALUE" in name)
    weights = tf.nest.flatten(fuse(model, MAX_SOURCE)[1])
    assert sizes == sorted(tuple(weight.shape) for weight in weights)
    table = MAX_SOURCE * model.config.d_model
    assert sum(map(math.prod, sizes)) == model.count_params() + table


def test_the_saved_graph_has_no_op_that_a_stock_server_lacks(meta_graph):
    functions = meta_graph.graph_def.library.function
    ops = {node.op for function in functions for node in function.node_def}
    assert not ops & {"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch"}
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert not compiled


def test_a_directory_that_holds_a_model_is_not_written_over(translator, saved_directory):
    before = (saved_directory / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match=str(saved_directory)):
        translator.save(str(saved_directory))
    assert (saved_directory / "saved_model.pb").read_bytes() == before
