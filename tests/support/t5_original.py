"""T5 of Hugging Face: small folders with the original's results, or answers to lines.

    PYTHON tests/support/t5_original.py write tests/data/t5
    PYTHON tests/support/t5_original.py answer FOLDER < lines.txt > answers.json

PYTHON has `torch`, `transformers`, `sentencepiece` and `safetensors`; it imports nothing of this
project. The small models are trained briefly on artificial sentences, so that their translations
end and differ.
"""

import itertools
import json
import shutil
import sys

import marian_original as marian
import numpy as np
import sentencepiece
import torch
import transformers
from transformers import (
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

STEPS, RATE, SENTINELS = 300, 0.01, 3
CODES = ("<2de>", "<2fr>")
PREFIX = "translate English to German: "
SOURCES = [
    *(PREFIX + text for text in marian.SOURCES),
    "the <extra_id_0> house<extra_id_1> finds",
    "<extra_id_2>",
    "<2de> the red house",
    "a lake <2fr>",
]

# Each is {options of the configuration}, and how the folder is written.
FOLDERS = {
    "t5": dict(
        kind=(T5Config, T5ForConditionalGeneration),
        config=dict(d_kv=6, num_layers=2, num_decoder_layers=1), file="old",
        generation=dict(num_beams=3, length_penalty=0.8, max_length=40),
    ),
    "flan": dict(
        kind=(T5Config, T5ForConditionalGeneration), untied=True,
        config=dict(
            d_kv=5, num_heads=3, d_ff=19, num_layers=2, num_decoder_layers=2,
            feed_forward_proj="gated-gelu", tie_word_embeddings=False,
        ),
        generation=dict(num_beams=2, max_new_tokens=37, early_stopping=True),
    ),
    "mt5": dict(
        kind=(MT5Config, MT5ForConditionalGeneration), untied=True, json=True, file="bfloat16",
        config=dict(
            d_kv=7, feed_forward_proj="gated-gelu", num_layers=1, tie_word_embeddings=False
        ),
        generation=dict(num_beams=2, no_repeat_ngram_size=3, max_length=38),
    ),
    "madlad": dict(
        kind=(T5Config, T5ForConditionalGeneration), untied=True, codes=True, bytes=True,
        config=dict(d_kv=12, feed_forward_proj="gated-gelu", num_layers=1, vocab_size=400,
                    tie_word_embeddings=False),
        generation=dict(num_beams=4, max_length=36), file="parts",
    ),
    "umt5": dict(
        kind=(UMT5Config, UMT5ForConditionalGeneration), untied=True,
        config=dict(d_kv=6, feed_forward_proj="gated-gelu", num_layers=2,
                    tie_word_embeddings=False),
        generation=dict(num_beams=2, max_length=36),
    ),
}  # fmt: skip


def load(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    named = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
    return model, getattr(transformers, named).from_pretrained(folder)


def write(
    folder, seed, kind, config, generation, untied=False, codes=False, bytes=False, json=False,
    file="",
):  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_vocabulary(folder, codes, bytes)
    tokenizer = T5Tokenizer.from_pretrained(folder, extra_ids=SENTINELS)
    model = made(seed, len(tokenizer), kind, config, generation, untied)
    train(model, tokenizer, [f"{code} {PREFIX}" for code in CODES] if codes else [PREFIX])
    save(model, tokenizer, folder, file, json)
    answer(folder, SOURCES)


def write_vocabulary(folder, codes, bytes):
    rules = folder / "rules.tsv"
    rules.write_text(marian.RULES)
    texts = [*marian.sentences(dict.keys), *marian.sentences(dict.values)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*texts, PREFIX, "ABC xyz'", *map(str, range(10))]),
        model_prefix=str(folder / "spiece"), vocab_size=350 if bytes else 110,
        hard_vocab_limit=False, normalization_rule_tsv=str(rules), byte_fallback=bytes,
        user_defined_symbols=list(CODES) if codes else [], num_threads=1, minloglevel=2,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    rules.unlink()
    (folder / "spiece.vocab").unlink()


def made(seed, size, kind, config, generation, untied):
    torch.manual_seed(seed)
    ids = dict(pad_token_id=0, decoder_start_token_id=0, eos_token_id=1)
    # At the maximum length a translation ends with eos, as here.
    forced = dict(forced_eos_token_id=1)
    options = dict(vocab_size=size + 5, d_model=18, num_heads=2, d_ff=17, dropout_rate=0.0, **ids)
    model = kind[1](kind[0](**{**options, **config}))
    if untied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "relative" in name:
                weight += 0.3 * torch.randn_like(weight)
            elif "shared" in name or "lm_head" in name:
                weight.copy_(0.5 * torch.randn_like(weight))
    model.generation_config = GenerationConfig(**ids, **forced, **generation)
    return model


def train(model, tokenizer, prefixes):
    """Some steps over all sentences; the `prefixes` of the sources take turns."""
    sources = [
        prefixes[n % len(prefixes)] + text for n, text in enumerate(marian.sentences(dict.keys))
    ]
    source = tokenizer(sources, return_tensors="pt", padding=True)
    labels = tokenizer(marian.sentences(dict.values), return_tensors="pt", padding=True).input_ids
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        rows = torch.randperm(len(sources))[:32]
        loss = model(
            input_ids=source.input_ids[rows], attention_mask=source.attention_mask[rows],
            labels=labels[rows],
        ).loss  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"loss {loss.item():.3f}", file=sys.stderr)
    model.eval()


def save(model, tokenizer, folder, file, json):
    """As safetensors, in one file or several, or as older versions saved it; the tokenizer as
    `spiece.model` with its settings, or as `tokenizer.json`."""
    if file == "bfloat16":
        model = model.bfloat16()
    model.save_pretrained(folder, **({"max_shard_size": "20KB"} if file == "parts" else {}))
    if file == "old":
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    tokenizer.save_pretrained(folder)
    for name in ("spiece.model", "vocab.json", "merges.txt") if json else ("tokenizer.json",):
        (folder / name).unlink(missing_ok=True)


def answer(folder, sources):
    """Writes the original's results for a folder and these sources."""
    model, tokenizer = load(folder)
    found = marian.answers(model, tokenizer, sources)
    found |= {"sources": sources, "targets": marian.TARGETS}
    found["target_ids"] = tokenizer(marian.TARGETS).input_ids
    (folder / "answers.json").write_text(json.dumps(found, ensure_ascii=False, indent=0))
    pairs = zip(found["source_ids"], found["target_ids"], strict=False)
    pairs = itertools.islice(pairs, marian.PAIRS)
    arrays = {str(n): marian.logits(model, *pair) for n, pair in enumerate(pairs)}
    np.savez_compressed(folder / "logits.npz", **arrays)


if __name__ == "__main__":
    marian.main(FOLDERS, write, load)
