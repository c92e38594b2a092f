"""GPT-2, Llama and their relatives of Hugging Face: small folders with the original's results.

    PYTHON tests/support/decoder_original.py write tests/data/decoders
    PYTHON tests/support/decoder_original.py answer FOLDER LINES PROMPTS < lines.txt > answers.json

PYTHON has `torch`, `transformers`, `tokenizers`, `sentencepiece` and `safetensors`; it imports
nothing of this project. The weights are random, and large enough to give different continuations.
With `--text FILE`, the tokenizers learn the lines of a file too.
"""

import argparse
import io
import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else transformers asks the hub about each folder

import numpy as np
import sentencepiece
import torch
import transformers
from bert_original import SENTENCES
from hard_lines import chat_lines, hard_lines
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, processors, trainers
from tokenizers import decoders as of_tokens
from tokenizers import pre_tokenizers as before

LINES, PROMPTS, NEW, PIECES = 80, 12, 24, 330
WITH_BYTES = PIECES + 40  # of a SentencePiece model
SCORED = 7  # tokens of a prompt whose logits are stored
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
END = "<|endoftext|>"
CHAT = ["<|im_start|>", "<|im_end|>"]
LLAMA_TOKENS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"]
GPT_2 = dict(n_positions=128, n_embd=22, n_layer=2, n_head=2, initializer_range=0.4)
LIKE_LLAMA = dict(
    hidden_size=24, intermediate_size=31, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.4,
)  # fmt: skip
NARROW = dict(
    LIKE_LLAMA, hidden_size=12, num_attention_heads=3, num_key_value_heads=1, intermediate_size=17
)
SCALED = dict(
    rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=32,
)  # fmt: skip


# Tokenizers. Each returns the tokenizer, which is also written to the folder.


def gpt_2(folder, texts, **settings):
    """In vocab.json and merges.txt only, as GPT-2 was published."""
    made = learned(texts, before.ByteLevel(add_prefix_space=False), [END])
    made.model.save(str(folder))
    options = {"tokenizer_class": "GPT2Tokenizer", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return transformers.GPT2Tokenizer.from_pretrained(folder)


def with_digits(folder, texts):
    """Like that of SmolLM."""
    steps = [before.Digits(individual_digits=True), before.ByteLevel(add_prefix_space=False)]
    made = learned(texts, before.Sequence(steps), [END, *CHAT])
    return whole(folder, made, bos_token=END, eos_token=END, unk_token=END)


def llama_3(folder, texts):
    """Like that of Llama 3: bos before a text, and words that are pieces are never split."""
    made = learned(texts, split_by(LLAMA), [], ignore_merges=True)
    made.add_special_tokens([AddedToken(name, normalized=False) for name in LLAMA_TOKENS])
    bos = LLAMA_TOKENS[0]
    template = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
        special_tokens=[(bos, made.token_to_id(bos))],
    )  # fmt: skip
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return whole(folder, made, bos_token=bos, eos_token=LLAMA_TOKENS[1])


def qwen_2(folder, texts):
    """Like that of Qwen2: texts in NFC, and a token that is not special."""
    made = learned(texts, split_by(QWEN), [], normalizer=normalizers.NFC())
    made.add_special_tokens([AddedToken(name, normalized=False) for name in (END, *CHAT)])
    made.add_tokens([AddedToken("<tool_call>", normalized=False)])
    return whole(folder, made, eos_token=CHAT[1], pad_token=END)


def llama_2(folder, texts, legacy=False):
    """A SentencePiece model with bytes, and chat tokens, one of which is not special."""
    guide = sorted(Path(__file__).parents[2].glob("docs/guide/*.md"))
    lines = [line for path in guide for line in path.read_text().split("\n")]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*texts, *lines]), model_writer=model, model_type="bpe",
        vocab_size=WITH_BYTES, byte_fallback=True, character_coverage=0.98, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        allow_whitespace_only_pieces=True, max_sentence_length=100_000,
    )  # fmt: skip
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    settings = dict(tokenizer_class="LlamaTokenizer", legacy=legacy, add_bos_token=True)
    settings |= dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    added = {WITH_BYTES + n: name for n, name in enumerate([*CHAT, "<tool_call>"])}
    settings["added_tokens_decoder"] = {
        str(n): dict(content=name, special=name in CHAT, normalized=False)
        for n, name in {0: "<unk>", 1: "<s>", 2: "</s>", **added}.items()
    }
    for n in range(3):
        settings["added_tokens_decoder"][str(n)]["special"] = True
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return transformers.LlamaTokenizer.from_pretrained(folder)


def tiny_llama(folder, texts):
    """The same in tokenizer.json, which puts a space before every part."""
    made = llama_2(folder, texts).backend_tokenizer
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    made.normalizer, made.pre_tokenizer = normalizers.Sequence(steps), None
    (folder / "tokenizer.model").unlink()
    content = {**json.loads(made.to_str()), "pre_tokenizer": None}
    made = Tokenizer.from_str(json.dumps(content))
    return whole(folder, made, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def split_by(expression):
    split = before.Split(Regex(expression), behavior="isolated")
    return before.Sequence([split, before.ByteLevel(add_prefix_space=False, use_regex=False)])


def learned(texts, pre_tokenizer, special, ignore_merges=False, normalizer=None):
    """A byte-level BPE, learned from texts."""
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer, made.decoder = pre_tokenizer, of_tokens.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    alphabet = before.ByteLevel.alphabet()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=PIECES, initial_alphabet=alphabet, special_tokens=special,
            show_progress=False,
        ),
    )  # fmt: skip
    return made


def whole(folder, made, **names):
    """In tokenizer.json."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
    tokenizer.save_pretrained(folder)
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


# Each is the class, the function that makes its tokenizer, options of the configuration and of the
# generation, the names of bos and of what ends a text, and how it is written.
FOLDERS = {
    "gpt2": dict(kind="GPT2LMHeadModel", text=gpt_2, config=GPT_2, ends=[END]),
    "gpt2-inner": dict(
        kind="GPT2LMHeadModel", text=with_digits, ends=[END], file="older",
        config=dict(
            GPT_2, n_inner=31, activation_function="relu", scale_attn_weights=False,
            scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False,
        ),
    ),
    "llama": dict(
        kind="LlamaForCausalLM", text=llama_3, ends=LLAMA_TOKENS[1:3], bos=LLAMA_TOKENS[0],
        config=dict(LIKE_LLAMA, rope_parameters=SCALED), file="parts",
        generation=dict(do_sample=True, temperature=0.6, top_p=0.9),
    ),
    "qwen2": dict(
        kind="Qwen2ForCausalLM", text=qwen_2, ends=[CHAT[1], END], bos=END, file="bfloat16",
        config=dict(LIKE_LLAMA, tie_word_embeddings=True, rope_theta=100.0),
        generation=dict(repetition_penalty=1.1),
    ),
    "wide": dict(
        kind="MistralForCausalLM", text=with_digits, ends=[END],
        config=dict(LIKE_LLAMA, head_dim=10, num_key_value_heads=1, sliding_window=None),
    ),
    "biased": dict(
        kind="LlamaForCausalLM", text=with_digits, ends=[END],
        config=dict(
            LIKE_LLAMA, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
            hidden_act="gelu_pytorch_tanh",
        ),
    ),
    "llama2": dict(
        kind="LlamaForCausalLM", text=llama_2, ends=["</s>", CHAT[1]], bos="<s>", file="bfloat16",
        config=dict(NARROW, rms_norm_eps=1e-5, rope_theta=300.0),
    ),
    "tinyllama": dict(
        kind="MistralForCausalLM", text=tiny_llama, ends=["</s>"], bos="<s>", file="bfloat16",
        config=dict(NARROW, tie_word_embeddings=True, sliding_window=None),
    ),
    "qwen3": dict(
        kind="Qwen3ForCausalLM", text=qwen_2, ends=[CHAT[1], END], bos=END, file="bfloat16",
        config=dict(LIKE_LLAMA, head_dim=10, rms_norm_eps=1e-5, rope_theta=200.0),
    ),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    write_parser = commands.add_parser("write")
    write_parser.add_argument("folder", type=Path)
    write_parser.add_argument("names", nargs="*", help="default: all folders")
    write_parser.add_argument("--text", type=Path)
    answer_parser = commands.add_parser("answer")
    answer_parser.add_argument("folder", type=Path)
    for name in ("lines", "prompts"):
        answer_parser.add_argument(name, type=int, help=f"number of {name}, which are given")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "write":
        more = [] if options.text is None else options.text.read_text().split("\n")
        for seed, (name, parts) in enumerate(FOLDERS.items()):
            if name in (options.names or FOLDERS):
                write(options.folder / name, seed, more, **parts)
    else:
        model, tokenizer = load(options.folder)
        lines = json.loads(sys.stdin.read())
        found = answers(model, tokenizer, lines[: options.lines], lines[-options.prompts :])
        print(json.dumps(found))


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    named = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
    return model, getattr(transformers, named).from_pretrained(folder)


def write(folder, seed, more, kind, text, config, ends, bos=None, generation=None, file=""):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    tokenizer = text(folder, [*SENTENCES * 3, *hard_lines(300, 5), *more])
    ends = tokenizer.convert_tokens_to_ids(ends)
    bos = ends[0] if bos is None else tokenizer.convert_tokens_to_ids(bos)
    ids = {"bos_token_id": bos, "eos_token_id": ends[0], "pad_token_id": None}
    model = getattr(transformers, kind)
    model = model(model.config_class(vocab_size=len(tokenizer) + 3, **ids, **config)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight += 0.3 * torch.randn_like(weight)
            if "wpe" in name:
                weight += 0.5 * torch.randn_like(weight)
        bytes_ = [n for piece, n in tokenizer.get_vocab().items() if piece.startswith("<0x")]
        model.get_output_embeddings().weight[bytes_] *= 0.3  # rarely written
    ids["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    model.generation_config = transformers.GenerationConfig(**ids, **(generation or {}))
    save(model, folder, file)
    lines = hard_lines(LINES)
    prompts = ["", *chat_lines(PROMPTS - 1)]
    model, tokenizer = load(folder)
    found = answers(model, tokenizer, lines, prompts)
    found |= {"prompts": prompts, "eos": ends[0]}
    (folder / "answers.json").write_text(json.dumps(found, ensure_ascii=False))
    first = [ids[:SCORED] for ids in found["prompt_ids"][1:4]]
    arrays = {str(n): logits(model, ids) for n, ids in enumerate(first)}
    np.savez_compressed(folder / "logits.npz", **arrays)
    print(folder, sum(path.stat().st_size for path in folder.iterdir()), file=sys.stderr)


def save(model, folder, file):
    """As safetensors, in one file or several, or with the names in the first files of GPT-2."""
    if file == "bfloat16":
        model = model.bfloat16()
    model.save_pretrained(folder, **({"max_shard_size": "20KB"} if file == "parts" else {}))
    if file == "older":
        (folder / "model.safetensors").unlink()
        arrays = {name.removeprefix("transformer."): w for name, w in model.state_dict().items()}
        for n in range(model.config.n_layer):
            arrays[f"h.{n}.attn.bias"] = torch.tril(torch.ones(1, 1, 9, 9, dtype=torch.uint8))
            arrays[f"h.{n}.attn.masked_bias"] = torch.tensor(-1e4)
        torch.save(arrays, folder / "pytorch_model.bin")


def answers(model, tokenizer, lines, prompts):
    """The ids of lines, and their texts; the ids of prompts, and their greedy continuations."""
    found = {"ids": tokenizer(lines).input_ids, "prompt_ids": tokenizer(prompts).input_ids}
    found["texts"] = [tokenizer.decode(ids, skip_special_tokens=True) for ids in found["ids"]]
    found |= {"continuation_ids": [], "continuations": []}
    for n, ids in enumerate(found["prompt_ids"]):
        ids = ids or [model.config.bos_token_id]
        inputs = torch.tensor([ids])
        known = {"attention_mask": torch.ones_like(inputs), "pad_token_id": ids[0]}
        known |= {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        [all_ids] = model.generate(inputs, max_new_tokens=NEW, **known).tolist()
        new = all_ids[len(ids) :]
        found["continuation_ids"].append(new)
        before, text = (tokenizer.decode(n, skip_special_tokens=True) for n in (ids, all_ids))
        found["continuations"].append(text[len(before) :])
        if n % 100 == 99:
            print(f"{n + 1} of {len(prompts)}", file=sys.stderr)
    return found


def logits(model, ids):
    """[T, V] of a text."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0].numpy()


if __name__ == "__main__":
    main()
