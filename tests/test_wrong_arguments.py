"""A wrong argument of a public name raises an error that names it and the value received."""

import numpy as np
import pytest
import tensorflow as tf

import tfformer
from tfformer import (
    Perplexity,
    Shortlist,
    SmoothedCrossEntropy,
    Tokenizer,
    Transformer,
    TransformerConfig,
    Translator,
    WarmupSchedule,
    scaled_dot_product_attention,
    without_padding,
)

D, TEXTS = 6, ["ein Haus", "a house"]
IDS = np.full((2, 5), 7)
SIDES = {"source_ids": IDS, "target_ids": IDS}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS, vocabulary_size=300)


@pytest.fixture(scope="module")
def translator(tokenizer):
    config = TransformerConfig.preset("test", tokenizer.source_vocabulary_size)
    return Translator(Transformer(config), tokenizer, max_batch_size=3)


def ones(*shape):
    return np.ones(shape, "float32")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: WarmupSchedule("131"), "got d_model='131', warmup_steps=4000 and"),
        (lambda: WarmupSchedule(131, None), "got d_model=131, warmup_steps=None and"),
        (lambda: WarmupSchedule(131, 17, float("nan")), "scale=nan"),
        (lambda: WarmupSchedule(131, 17, 1, 7, "5"), "cooldown_steps='5' and total_steps=7"),
        (lambda: WarmupSchedule(131, 17, 1, "7", 5), "cooldown_steps=5 and total_steps='7'"),
        (lambda: SmoothedCrossEntropy("0.1"), "smoothing must be in .*, got smoothing='0.1'"),
        (lambda: SmoothedCrossEntropy(r_drop=None), "r_drop must be at least 0, got r_drop=None"),
        (lambda: SmoothedCrossEntropy(r_drop=float("nan")), "r_drop must be .* got r_drop=nan"),
        (lambda: TransformerConfig.preset(["base"], 17), r"name must be one of .*, got \['base'\]"),
    ],
)  # fmt: skip
def test_setting_that_is_no_number_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "query, key, value, message",
    [
        (ones(2, 3, 5), ones(2, 7, 4), ones(2, 7, 4), r"\(2, 3, 5\), \(2, 7, 4\), \(2, 7, 4\)"),
        (ones(2, 3, 5), ones(2, 7, 5), ones(2, 6, 4), r"\(2, 3, 5\), \(2, 7, 5\), \(2, 6, 4\)"),
        (ones(3, 5), ones(5), ones(5), r"got shapes \(3, 5\), \(5,\), \(5,\)"),
        (IDS, ones(7, 5), ones(7, 4), "query must be of a floating dtype, got .*int64"),
    ],
)
def test_attention_refuses_mismatched_shapes(query, key, value, message):
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(query, key, value)


@pytest.mark.parametrize(
    "layer", [tfformer.SinusoidalPositionalEncoding(D), tfformer.LearnedPositionalEmbedding(11, D)]
)
@pytest.mark.parametrize("shape, positions", [((D,), None), ((3, D), None), ((2, 3, D), range(3))])
def test_positional_layers_refuse_other_shapes(layer, shape, positions):
    positions = positions and np.array(positions)
    with pytest.raises(ValueError, match=r"x must be \[B, T, D\], or \[N, D\] with positions, got"):
        layer(ones(*shape), positions=positions)


@pytest.mark.parametrize(
    "inputs, passes, message",
    [
        (IDS, 1, "inputs must be .*, got ndarray"),
        ({"source_ids": IDS}, 1, r"inputs must be .*, got \['source_ids'\]"),
        (SIDES, 0, "passes must be an integer of at least 1, got 0"),
        (SIDES, "2", "passes must be an integer of at least 1, got '2'"),
    ],
)
def test_without_padding_refuses_other_inputs(inputs, passes, message):
    with pytest.raises(ValueError, match=message):
        without_padding(inputs, IDS, passes)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"source_ids": IDS[0]}, r"source_ids must be \[B, S\] .*, got shapes \(5,\) and \(2, 5\)"),
        ({"target_ids": IDS[..., None]}, r"target_ids \[B, T\], got shapes .* and \(2, 5, 1\)"),
        ({"source_places": IDS[0]}, "source_places and target_places come together, got"),
        ({"target_places": IDS[0]}, "source_places and target_places come together, got"),
    ],
)
def test_transformer_refuses_inputs_that_are_not_rows_of_ids(translator, change, message):
    with pytest.raises(ValueError, match=message):
        translator.model({**SIDES, **change})


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: t.train("ein Haus"), "source_texts must be an iterable of .*, got 'ein Haus'"),
        (lambda t: t.train(None), "source_texts must be an iterable of strings, got None"),
        (lambda t: t.train(TEXTS, 3), "target_texts must be an iterable of strings, got 3"),
        (lambda t: t.extended(TEXTS, TEXTS, -1), "count must be .* at least 0, got -1"),
        (lambda t: t.extended(TEXTS, TEXTS, "2"), "count must be .* at least 0, got '2'"),
        (lambda t: t.pieces("both"), r"side must be one of \('source', 'target'\), got 'both'"),
        (lambda t: t.made_of(t, None), "side must be one of .*, got None"),
        (lambda t: t.decode(IDS), "ids must be int32, got int64"),
        (lambda t: t.decode(tf.constant([[5, 999]])), r"ids must be in \[0, \d+\), got 5 to 999"),
        # Here SentencePiece itself would end the process.
        (lambda t: t.source_pieces(tf.constant([999])), r"ids must be in .*, got 999 to 999"),
        (lambda t: t.target_pieces(tf.constant([-1, 5])), r"ids must be in .*, got -1 to 5"),
        (lambda t: t.target_pieces(IDS), "ids must be int32, got int64"),
    ],
)
def test_tokenizer_refuses_inputs_that_are_no_texts_or_ids(tokenizer, call, message):
    with pytest.raises(ValueError, match=message):
        call(tokenizer)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda s: s.allowed([4, 7]), r"source_ids must be in \[0, 7\), got 4 to 7"),
        (lambda s: s.allowed([-1]), r"source_ids must be in \[0, 7\), got -1 to -1"),
        (lambda s: Shortlist(s.candidates, s.always, None), "tokenizer_sha256 must be .* got None"),
    ],
)
def test_shortlist_refuses_wrong_source_ids_and_hash(call, message):
    with pytest.raises(ValueError, match=message):
        call(Shortlist(np.zeros((7, 2), int), np.arange(4), "ab"))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tokenizer": None}, "tokenizer must be a Tokenizer, got None"),
        ({"search": "beam"}, "search must be a dict of options, got 'beam'"),
    ],
)
def test_save_refuses_wrong_arguments_and_creates_no_run(translator, change, message, tmp_path):
    run = {"model": translator.model, "tokenizer": translator.tokenizer, **change}
    with pytest.raises(ValueError, match=message):
        tfformer.save(tmp_path / "run", **run)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: Translator(t.tokenizer, t.model), "model must be a Transformer, .* got Token"),
        (lambda t: Translator(t.model, None), "tokenizer a Tokenizer, got .* and NoneType"),
        (lambda t: Translator(t.model, t.tokenizer, max_source_length="9"),
         "max_source_length must be an integer .*, got '9'"),
        (lambda t: Translator(t.model, t.tokenizer, max_target_length=2.5),
         "max_target_length must be an integer .*, got 2.5"),
        (lambda t: Translator(t.model, t.tokenizer, max_batch_size=None),
         "max_batch_size must be an integer .*, got None"),
        (lambda t: t.translate(3), "texts must be a list of strings, got 3 among them"),
        (lambda t: t.translate(["a", None]), "texts must be a list of strings, got None among"),
        (lambda t: t.translate([["a"]]), r"texts must be a list of strings, got \['a'\] among"),
        (lambda t: t.translate(["a"], batch_size="2"), "batch_size must be an integer .* got '2'"),
        (lambda t: t.translate(["a"], batch_size=0), r"batch_size must be in \[1, 3\], got 0"),
        (lambda t: t.save("a-model", ["scores"]), r"signatures must be of \[.*\], got 'scores'"),
    ],
)  # fmt: skip
def test_translator_refuses_wrong_arguments(translator, call, message):
    with pytest.raises(ValueError, match=message):
        call(translator)


@pytest.mark.parametrize("loss", [SmoothedCrossEntropy(), Perplexity().update_state])
def test_labels_that_do_not_match_the_logits_are_refused(loss):
    with pytest.raises(ValueError, match=r"y_pred must be logits .*, got .*\(2, 4, 7\).*\(2, 5\)"):
        loss(IDS, ones(2, 4, 7))
