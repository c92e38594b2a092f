"""Imported GPT-2, Llama, Qwen and Mistral models have the originals' ids, logits and
continuations."""

import decoders
import numpy as np
import pytest
import tensorflow as tf
from hard_lines import hard_lines
from marian import changed
from tiers import slow_or_nightly

from export import saved_model
from export.verification.reference import log_softmax
from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.run import load_service, read_config
from training import import_hf
from training.importers import llama

HAS_BOS = ("llama", *decoders.SENTENCEPIECE)  # their tokenizers put bos before a text
FAST = ("gpt2",)  # the search of another model takes 10 s to trace
SOME_FAST = pytest.mark.parametrize(
    "both",
    [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in decoders.FOLDERS],
    indirect=True,
)


class Both:
    """A stored folder, its run, and the original's results."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        assert import_hf.main([str(decoders.folder(name)), str(directory)]) == 0
        self.generator = load_service(directory)
        self.model, self.tokenizer = self.generator.model, self.generator.tokenizer
        self.answers = decoders.answers(name)

    def ours(self, ids):
        """The original's ids of a text as ours; its beginning is our bos."""
        found = decoders.our_ids(ids, self.answers["eos"])
        return [BOS, *found[1:]] if self.name in HAS_BOS else found

    def generate(self, prompts, **options):
        """The outputs of `generate` for greedy search with as many tokens as the original's."""
        options = {"top_k": tf.constant(1), "max_length": tf.constant(decoders.NEW), **options}
        return self.generator.functions["generate"](tf.constant(prompts), **options)


@pytest.fixture(scope="module", params=decoders.FOLDERS)
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("imported") / "run")


def test_token_ids_match_the_original(both):
    lines = hard_lines(len(both.answers["ids"]))
    begin = [BOS] * (both.name in HAS_BOS)
    for line, ids, own in zip(
        lines, both.answers["ids"], both.tokenizer.encode_source(lines).to_list(), strict=True
    ):
        assert [*begin, *own[:-1]] == both.ours(ids), repr(line)
        assert own[-1] == EOS


SPACES = {
    "first": ({}, ["▁a", "<tool_call>", "a", "</s>", "▁a", "▁"]),
    "always": ({"legacy": True}, ["▁a", "<tool_call>", "▁a", "</s>", "▁a", "▁"]),
    "never": ({"add_prefix_space": False}, ["a", "<tool_call>", "a", "</s>", "▁a", "▁"]),
}


@pytest.mark.parametrize("space", SPACES)
def test_the_settings_decide_which_parts_begin_with_a_space(space, tmp_path):
    """Between symbols; only "always" is `legacy`. The decoded text is the original one."""
    settings, expected = SPACES[space]
    folder, text = decoders.copied("llama2", tmp_path / "folder"), "a<tool_call>a</s> a "
    changed(folder / "tokenizer_config.json", **settings)
    side = llama.read(folder).tokenizer.source
    assert side.space == space
    [ids] = side.encode(tf.constant([text])).to_list()
    assert [side.pieces[n] for n in ids[:-1]] == expected
    for same in (side, type(side).from_content(side.content), side.filled_up(side.size + 3)):
        assert same.encode(tf.constant([text])).to_list() == [ids]
        [found] = same.decode(tf.ragged.constant([[n for n in ids if n > EOS]], tf.int32)).numpy()
        assert found.decode().replace("> ", ">") == text.replace("</s>", "")


def test_byte_pieces_are_decoded_to_characters():
    """Also beside bytes that are not UTF-8, which transformers drops."""
    side = llama.read(decoders.folder("llama2")).tokenizer.source
    ids = [side.byte_ids[n] for n in "中é".encode() + b"\xe4"]
    assert side.decode(tf.ragged.constant([ids], tf.int32)).numpy() == ["中é\ufffd".encode()]


def test_decoded_texts_match_the_original(both):
    ids = both.tokenizer.encode_source(hard_lines(len(both.answers["ids"])))
    texts = [text.decode() for text in both.tokenizer.decode(ids).numpy()]
    assert texts == both.answers["texts"]


def test_prompt_ids_match_the_original(both):
    """With tokens of chat models, and for an empty text, which begins with bos."""
    prompts, _ = both.generator.writing.prompts(tf.constant(both.answers["prompts"]))
    for own, ids in zip(prompts.numpy(), both.answers["prompt_ids"], strict=True):
        assert [n for n in own.tolist() if n != PAD] == (both.ours(ids) or [BOS])


def test_logits_match_the_original(both):
    prompts = both.answers["prompt_ids"][1:]
    for ids, expected in zip(prompts, decoders.logits(both.name), strict=False):
        own = both.ours(ids[: len(expected)])
        found = np.array(both.model(np.array([own]), training=False))[0]
        ours = decoders.our_ids(range(expected.shape[1]), both.answers["eos"])
        np.testing.assert_allclose(found[:, ours], expected, atol=1e-4)
        np.testing.assert_allclose(
            log_softmax(found)[:, ours], log_softmax(expected), atol=1e-4, rtol=1e-4
        )
        others = np.setdiff1d(np.arange(found.shape[1]), ours)  # with pad, unk and bos
        assert {PAD, UNK, BOS} <= set(others)
        assert np.all(np.exp(log_softmax(found)[:, others]) == 0)


@SOME_FAST
def test_greedy_search_continues_with_the_same_text(both):
    found = both.generate(both.answers["prompts"])
    texts = [text.decode() for text in found["continuation"].numpy()]
    assert texts == both.answers["continuations"]
    counts = [len(ids) for ids in both.answers["continuation_ids"]]
    assert found["length"].numpy().tolist() == counts
    assert len(set(texts)) >= 8


@pytest.mark.parametrize(
    "both", slow_or_nightly(["llama", "qwen2", "llama2"], ["llama2"]), indirect=True
)
def test_generation_also_stops_at_the_original_end_tokens(both):
    """Not only at our eos; and no search shows the end."""
    [end] = both.tokenizer.source.ends
    generator = load_service(both.directory)
    size = both.tokenizer.source.size
    generator.model.output_projection.bias.assign_add(1e3 * tf.one_hot(end, size))
    found = generator.functions["generate"](tf.constant(["the", ""]))
    assert found["continuation"].numpy().tolist() == [b"", b""]
    assert found["length"].numpy().tolist() == [1, 1]
    assert found["finished"].numpy().all()
    longer = generator.functions["generate"](tf.constant(["a"]), min_length=tf.constant(3))
    assert longer["length"].numpy() == 3
    best = generator.functions["beam_search"](tf.constant(["the"]))
    assert best["token_ids"][0, 0, 0] == end and best["lengths"][0, 0] == 1


# What the run keeps of each folder: layers, heads, heads of keys, size of a head, tied embeddings,
# base and factor of rotary positions.
KEPT = {
    "gpt2": (2, 2, 2, None, "all", 10000.0, 1.0),
    "gpt2-inner": (2, 2, 2, None, "none", 10000.0, 1.0),
    "llama": (2, 4, 2, 6, "none", 500.0, 8.0),
    "qwen2": (2, 4, 2, 6, "all", 100.0, 1.0),
    "wide": (2, 4, 1, 10, "none", 10000.0, 1.0),
    "biased": (2, 4, 2, 8, "all", 10000.0, 1.0),
    "llama2": (2, 3, 1, 4, "none", 300.0, 1.0),
    "tinyllama": (2, 3, 1, 4, "all", 10000.0, 1.0),
    "qwen3": (2, 4, 2, 10, "none", 200.0, 1.0),
}


def test_the_run_keeps_the_options(both):
    config, search = both.model.config, read_config(both.directory)["search"]
    found = config.num_layers, config.num_heads, config.key_value_heads, config.head_size
    rotary = config.rotary_base, config.rotary_factor
    assert (*found, config.tie_embeddings, *rotary) == KEPT[both.name]
    assert search["max_source_length"] + search["max_target_length"] == 129
    assert search.get("repetition_penalty", 1.0) == (1.1 if both.name == "qwen2" else 1.0)
    sampling = [search.get(name) for name in ("top_k", "temperature", "top_p")]
    assert sampling == ([50, 0.6, 0.9] if both.name == "llama" else [1, None, None])


BIASED = "gpt2", "gpt2-inner", "qwen2", "biased"


def test_layers_have_biases_only_if_some_of_the_original_have(both):
    """Otherwise fine-tuning would train what the original does not have."""
    paths = [one.path for one in both.model.trainable_variables if one.path.endswith("/bias")]
    assert any("output_projection" not in path for path in paths) == (both.name in BIASED)


@SOME_FAST
def test_the_first_token_is_scored_after_bos(both):
    """Also of a model whose prompts have no bos."""
    text = "the red house"
    [ids] = both.tokenizer.encode_source([text]).to_list()
    log_probs = log_softmax(np.array(both.model(np.array([[BOS, *ids[:-1]]]), training=False))[0])
    found = both.generator.functions["score"](tf.constant([text]))
    expected = log_probs[np.arange(len(ids)), ids].sum()
    assert float(found["log_prob"][0]) == pytest.approx(expected, abs=1e-3)
    assert int(found["length"][0]) == len(ids)


@pytest.mark.parametrize(
    "both",
    slow_or_nightly(["gpt2", "llama", "qwen2", "wide", "llama2"], ["gpt2", "llama2"]),
    indirect=True,
)
def test_export_passes_verification_and_gives_the_same_answers(both, tmp_path):
    options = [] if both.name in FAST else ["--quick"]
    assert saved_model.main([str(both.directory), str(tmp_path / "exported"), *options]) == 0
    loaded = tf.saved_model.load(str(tmp_path / "exported" / "1"))
    texts = tf.constant(both.answers["prompts"])
    found = loaded.signatures["serving_default"](text=texts)["continuation"].numpy()
    expected = both.generator.functions["serving_default"](texts)["continuation"].numpy()
    assert found.tolist() == expected.tolist()
    if both.name != "llama":  # it samples
        greedy = both.answers["continuations"]
        starts = zip(found, greedy, strict=True)
        assert all(text.decode(errors="replace").startswith(one[:-3]) for text, one in starts)
