"""For GPT-2, Llama and similar models, what cannot be imported is refused in one line that names
it."""

import json

import decoders
import numpy as np
import pytest
from marian import changed
from safetensors.numpy import load_file, save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from training import import_hf

NAN, INFINITE = float("nan"), float("inf")
OF_GPT_2 = [
    ("n_head", 0, "n_head"), ("n_head", 3, "n_embd must be a multiple of n_head = 3"),
    ("n_embd", "22", "n_embd"), ("n_embd", 10**9, "wte.weight must be of shape"),
    ("n_layer", 10**9, "must have a weight transformer.h.2."), ("n_inner", 17, "c_fc.weight"),
    ("n_positions", 10**9, "wpe.weight must be of shape"), ("vocab_size", 10**10, "wte.weight"),
    ("activation_function", "tanh", "activation_function"), ("layer_norm_epsilon", NAN, "epsilon"),
    ("resid_pdrop", NAN, "resid_pdrop must be in [0, 1), got nan"), ("attn_pdrop", 1.5, "attn"),
    ("embd_pdrop", 0.0, "embd_pdrop must be resid_pdrop = 0.1, got 0.0"),
    ("scale_attn_weights", "yes", "scale_attn_weights"), ("add_cross_attention", True, "add_cross"),
    ("tie_word_embeddings", False, "must have a weight lm_head.weight"),
    ("eos_token_id", None, "eos_token_id"), ("eos_token_id", [0, "1"], "eos_token_id"),
    ("eos_token_id", 10**6, "must be ids below vocab_size"), ("bos_token_id", [0, 1], "bos_token"),
    ("eos_token_id", 332, "must have a piece for id 332"), ("model_type", "gpt_neox", "gpt_neox"),
]  # fmt: skip
OF_LLAMA = [
    ("num_attention_heads", 0, "num_attention_heads"), ("num_key_value_heads", 3, "multiple of"),
    ("head_dim", 7, "head_size must be even"), ("head_dim", 8, "q_proj.weight must be of shape"),
    ("hidden_size", 25, "embed_tokens"), ("intermediate_size", 10**9, "gate_proj.weight"),
    ("num_hidden_layers", 10**9, "must have a weight model.layers.2."),
    ("rms_norm_eps", NAN, "rms_norm_eps"), ("hidden_act", "gelu", "hidden_act must be silu"),
    ("hidden_act", None, "hidden_act"), ("attention_bias", True, "q_proj.bias"),
    ("attention_bias", "no", "attention_bias"), ("tie_word_embeddings", True, "one matrix"),
    ("rope_parameters", {"rope_type": "yarn"}, "rope_type must be default or llama3, got 'yarn'"),
    ("rope_parameters", {"rope_type": "default", "rope_theta": NAN}, "rope_theta"),
    ("rope_parameters", {"rope_type": "default", "rope_theta": "10"}, "rope_theta"),
    ("rope_parameters", {"rope_type": "default", "rope_theta": 10**400}, "rope_theta"),
    ("rope_parameters", {"rope_type": "llama3", "factor": 8}, "low_freq_factor"),
    ("rope_parameters", {"rope_type": "llama3", "factor": INFINITE, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0}, "factor must be a number"),
    ("rope_parameters", {"rope_type": "llama3", "factor": 8, "low_freq_factor": 2,
                         "high_freq_factor": 4}, "low_freq_factor must be 1, got 2"),
    ("rope_parameters", ["llama3"], "rope_type"), ("partial_rotary_factor", 0.5, "partial_rotary"),
    ("layer_types", ["sliding_attention"], "layer_types must be full_attention"),
    ("layer_types", 5, "layer_types"), ("use_sliding_window", 1, "use_sliding_window"),
    ("max_position_embeddings", "64", "max_position_embeddings"),
    ("vocab_size", 9, "below vocab_size = 9"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "option", "value", "said"),
    [*(("gpt2", *row) for row in OF_GPT_2), *(("llama", *row) for row in OF_LLAMA)],
)
def test_unsupported_option_is_refused(name, option, value, said, tmp_path, refused):
    folder = decoders.copied(name, tmp_path / "folder")
    changed(folder / "config.json", **{option: value})
    if option == "eos_token_id":
        changed(folder / "generation_config.json", eos_token_id=value)
    assert said in refused(folder)


@pytest.mark.parametrize(("name", "window"), [("wide", 64), ("wide", "64"), ("qwen2", 64)])
def test_sliding_window_is_refused(name, window, tmp_path, refused):
    folder = decoders.copied(name, tmp_path / "folder")
    changed(folder / "config.json", sliding_window=window, use_sliding_window=True)
    assert "sliding_window must be None, or at least max_position" in refused(folder)


def test_default_sliding_window_of_mistral_is_refused(tmp_path, refused):
    folder = decoders.copied("wide", tmp_path / "folder")
    options = json.loads((folder / "config.json").read_text())
    del options["sliding_window"]
    options["max_position_embeddings"] = 32768
    (folder / "config.json").write_text(json.dumps(options))
    assert "max_position_embeddings = 32768, got 4096" in refused(folder)


def test_sliding_window_over_all_positions_is_accepted(tmp_path):
    folder = decoders.copied("wide", tmp_path / "folder")
    changed(folder / "config.json", sliding_window=128)
    assert import_hf.main([str(folder), str(tmp_path / "run")]) == 0


GENERATION = {
    "min_length": 3, "min_p": 0.1, "typical_p": 0.9, "forced_eos_token_id": 0, "penalty_alpha": 0.6,
    "suppress_tokens": [5], "num_beams": 65, "repetition_penalty": 0.5, "do_sample": "yes",
    "bad_words_ids": [[3, 4]], "stop_strings": ["x"], "no_repeat_ngram_size": NAN,
}  # fmt: skip


@pytest.mark.parametrize("name", GENERATION)
def test_unsupported_generation_option_is_refused(name, tmp_path, refused):
    folder = decoders.copied("gpt2", tmp_path / "folder")
    changed(folder / "generation_config.json", **{name: GENERATION[name]})
    assert name in refused(folder)


FILES = [
    ("gpt2", "config.json"), ("gpt2", "vocab.json"), ("gpt2", "merges.txt"),
    ("gpt2", "model.safetensors"), ("gpt2-inner", "pytorch_model.bin"), ("llama", "tokenizer.json"),
    ("llama", "model.safetensors.index.json"), ("llama2", "tokenizer.model"),
    ("tinyllama", "tokenizer.json"), ("llama", "model-00001-of-00004.safetensors"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "file"), FILES)
def test_missing_or_damaged_file_is_refused(name, file, tmp_path, refused):
    folder = decoders.copied(name, tmp_path / "folder")
    content = (folder / file).read_bytes()
    # Half of the merges may be valid merges too.
    half = [] if file == "merges.txt" else [content[: len(content) // 2]]
    for damaged in (b"", *half, b"\xff" * 99):
        (folder / file).write_bytes(damaged)
        # Without merges, no merge makes some of the pieces.
        assert file in refused(folder) or (file, damaged) == ("merges.txt", b"")
    (folder / file).unlink()
    assert file in refused(folder)


def write_json(path, change):
    """Changes the content of a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


MERGES = [
    ["a"], ["a b c"], [["a", "b", "c"]], [5], ["Ġ Ġq"], 5, [["th", "th"]], ["\ud800 a"], [" "],
    ["a ", "a b"],
]  # fmt: skip


@pytest.mark.parametrize("merges", MERGES)
def test_invalid_merges_are_refused(merges, tmp_path, refused):
    folder = decoders.copied("llama", tmp_path / "folder")
    write_json(folder / "tokenizer.json", lambda c: c["model"].update(merges=merges))
    error = refused(folder)
    assert "merge" in error and str(folder) in error


def test_duplicate_merges_in_any_order_are_accepted(tmp_path):
    """A piece is made of two others, so a text only becomes shorter."""
    folder = decoders.copied("llama", tmp_path / "folder")
    path = folder / "tokenizer.json"
    again = json.loads(path.read_text())["model"]["merges"]
    write_json(path, lambda c: c["model"].update(merges=[*again[::-1], *again, *again]))
    assert import_hf.main([str(folder), str(tmp_path / "run")]) == 0


def other_words(content):
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": r"\p{L}+|\s+"}


def other_template(content):
    content["post_processor"]["processors"][1]["single"].append(
        {"SpecialToken": {"id": "<|end_of_text|>", "type_id": 0}}
    )


TOKENIZERS = [
    (lambda c: c["model"].update(type="Unigram"), "model type must be BPE"),
    (lambda c: c.update(model=5), "model must be an object"),
    (lambda c: c["model"].update(byte_fallback=True), "'<unk>' is not in list"),
    (lambda c: c["model"].update(vocab=5), "must have an id for each piece"),
    (lambda c: c["model"].update(vocab={"a": 0, "b": 0}), "must have each id once"),
    (lambda c: c["model"].update(vocab={"a": 10**9}), "must have each id once"),
    (lambda c: c["model"].update(dropout=0.1), "dropout must be empty or false"),
    (lambda c: c.update(normalizer={"type": "NFKC"}), "normalizer must be None or NFC"),
    (lambda c: c.update(decoder={"type": "Metaspace"}), "decoder must be ByteLevel"),
    (lambda c: c.update(pre_tokenizer=None), "pre_tokenizer must split words as GPT-2"),
    (lambda c: c.update(pre_tokenizer={"type": "Sequence"}), "pre_tokenizer must split words"),
    (lambda c: c.update(pre_tokenizer={"type": "Sequence", "pretokenizers": []}), "pre_tokenizer"),
    (lambda c: c.update(pre_tokenizer={"type": "ByteLevel", "use_regex": []}), "pre_tokenizer"),
    (other_words, "pre_tokenizer must split words"),
    (other_template, "post_processor must add <|begin_of_text|> before a text, or nothing"),
    (lambda c: c.update(post_processor={"type": "BertProcessing"}), "post_processor must add"),
    (lambda c: c.update(post_processor="TemplateProcessing"), "post_processor must add"),
    (lambda c: c.update(added_tokens=[5]), "added tokens must be objects"),
    (lambda c: c.update(added_tokens=[{"content": "", "id": 5}]), "must have a name and an id"),
    (lambda c: c["added_tokens"][0].update(id=10**9), "must have a name and an id below"),
    (lambda c: c["added_tokens"][0].update(id="5"), "must have a name and an id below"),
    (lambda c: c["added_tokens"][0].update(lstrip=True), "lstrip of '<|begin_of_text|>' must be"),
    (lambda c: c["added_tokens"][3].update(id=5), "must have ids in [0, 337), each once"),
    (lambda c: c.update(added_tokens=[]), "must have a piece for id 33"),
]  # fmt: skip


OF_PIECES = [
    (lambda c: c.update(normalizer={"type": "NFKC"}), "must replace spaces as Llama 2"),
    (lambda c: c.update(normalizer=5), "must replace spaces as Llama 2"),
    (lambda c: c.update(pre_tokenizer={"type": "Metaspace"}), "must replace spaces as Llama 2"),
    (lambda c: c.update(pre_tokenizer=[]), "must replace spaces as Llama 2"),
    (lambda c: c["decoder"]["decoders"].pop(), "decoder must turn pieces and bytes into text"),
    (lambda c: c.update(decoder=None), "decoder must turn pieces and bytes into text"),
    (lambda c: c["model"].update(dropout=0.1), "dropout must be empty or false"),
    (lambda c: c["model"].update(type="Unigram"), "tokenizer.json"),
    (lambda c: c["model"].update(merges=5), "must be a tokenizer of the tokenizers library"),
    (lambda c: c["model"]["merges"].append(["a"]), "must be a tokenizer of the tokenizers library"),
    (lambda c: c["model"]["merges"].clear(), "merges must have all pairs that make"),
    (lambda c: c["model"]["merges"].sort(), "merges must have all pairs that make"),
    (lambda c: c["model"]["vocab"].pop("<0x0A>"), "must have each id once"),
    (lambda c: c["added_tokens"][3].update(id=10**9), "must follow the ids of the vocabulary"),
    (lambda c: c["added_tokens"][3].update(rstrip=True), "rstrip of '<|im_start|>' must be false"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [*(("llama", *row) for row in TOKENIZERS), *(("tinyllama", *row) for row in OF_PIECES)],
)
def test_unsupported_tokenizer_json_is_refused(name, change, said, tmp_path, refused):
    folder = decoders.copied(name, tmp_path / "folder")
    write_json(folder / "tokenizer.json", change)
    assert said in refused(folder)


@pytest.mark.parametrize(
    ("option", "value"),
    [("tokenizer_class", "BertTokenizer"), ("add_prefix_space", 1), ("add_bos_token", "yes"),
     ("add_eos_token", True), ("eos_token", 5), ("added_tokens_decoder", {"a": {}})],
)  # fmt: skip
@pytest.mark.parametrize("name", ["gpt2", "llama2"])
def test_unsupported_tokenizer_setting_is_refused(name, option, value, tmp_path, refused):
    folder = decoders.copied(name, tmp_path / "folder")
    changed(folder / "tokenizer_config.json", **{option: value})
    assert ("'a' must be an id" if option == "added_tokens_decoder" else option) in refused(folder)


def test_conflicting_add_prefix_space_is_refused(tmp_path, refused):
    folder = decoders.copied("gpt2-inner", tmp_path / "folder")
    changed(folder / "tokenizer_config.json", add_prefix_space=True)
    assert "add_prefix_space must be that of tokenizer.json, False, got True" in refused(folder)


PIECES = [
    (lambda m: setattr(m.trainer_spec, "model_type", 1), "model_type must be BPE, got 'UNIGRAM'"),
    (lambda m: setattr(m.trainer_spec, "byte_fallback", False), "byte_fallback must be True"),
    (lambda m: m.pieces.pop(9), "bytes must be 256, got 255"),
    (lambda m: setattr(m.trainer_spec, "treat_whitespace_as_suffix", True), "as_suffix must be"),
    (lambda m: setattr(m.normalizer_spec, "remove_extra_whitespaces", True), "must be False"),
    (lambda m: setattr(m.normalizer_spec, "escape_whitespaces", False), "must be True, got False"),
    (lambda m: setattr(m.normalizer_spec, "precompiled_charsmap", b"1"), "normalization_rule must"),
    (lambda m: setattr(m.pieces[-1], "piece", m.pieces[-2].piece), "must be a SentencePiece model"),
    (lambda m: m.pieces.extend(m.pieces[-9:]), "must have one piece for id 370"),
    (lambda m: setattr(m.pieces[1], "piece", "<b>"), "must have one piece for id 1, got '<b>'"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), PIECES)
def test_unsupported_sentencepiece_model_is_refused(change, said, tmp_path, refused):
    path = decoders.copied("llama2", tmp_path / "folder") / "tokenizer.model"
    model = ModelProto.FromString(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())
    assert said in refused(path.parent)


def test_tokenizer_class_that_contradicts_tokenizer_json_is_accepted(tmp_path):
    """Some byte-level folders name the class of Llama 2."""
    folder = decoders.copied("wide", tmp_path / "folder")
    changed(folder / "tokenizer_config.json", tokenizer_class="LlamaTokenizerFast")
    assert import_hf.main([str(folder), str(tmp_path / "run")]) == 0


def test_missing_extra_misshapen_or_non_finite_weights_are_refused(tmp_path, refused):
    folder = decoders.copied("wide", tmp_path / "folder")
    arrays = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.o_proj.weight"
    for wrong, said in (
        ({**arrays, "other": np.zeros(3, "float32")}, "has no weight other"),
        (
            {**arrays, "model.layers.0.self_attn.q_norm.weight": np.ones(10, "float32")},
            "has no weight model.layers.0.self_attn.q_norm.weight",
        ),
        ({key: a for key, a in arrays.items() if key != name}, f"must have a weight {name}"),
        ({**arrays, name: arrays[name].T.copy()}, f"{name} must be of shape"),
        ({**arrays, name: arrays[name] * np.float32("nan")}, f"{name} must be finite"),
        ({**arrays, name: arrays[name].astype("int32")}, f"{name} must be of floats"),
    ):
        save_file(wrong, folder / "model.safetensors")
        assert said in refused(folder)
