"""Marian of Hugging Face: small folders with the original's results, or answers to lines.

    PYTHON tests/support/marian_original.py write tests/data/marian
    PYTHON tests/support/marian_original.py answer FOLDER < lines.txt > answers.json

PYTHON has `torch`, `transformers`, `sentencepiece` and `safetensors`; it imports nothing of this
project. The small models are trained briefly on artificial sentences, so that their translations
end and differ.
"""

import argparse
import itertools
import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else transformers asks the hub about each folder

import numpy as np
import sentencepiece
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

ADJECTIVES = {"red": "rote", "old": "alte", "small": "kleine", "bright": "helle", "quiet": "leise"}
NOUNS = {"house": "Haus", "lake": "See", "tree": "Baum", "street": "Straße", "bird": "Vogel"}
VERBS = {"sees": "sieht", "finds": "findet", "paints": "malt"}
# Full width letters and a typographic apostrophe are written as plain ones.
STEPS, RATE = 400, 0.01
RULES = "FF21\t41\nFF22\t42\n2019\t27\n"
CODES = (">>de<<", ">>fr<<")
SOURCES = [
    "the red house finds the old tree",
    "a small bird’s lake",
    "Ａ quiet street",
    "  two   blanks ",
    "zebra 7 ☃",
    "the bright bird paints the bright lake and the bright street",
    "x",
    "",
]
TARGETS = ["das rote Haus findet den Baum", "der kleine See", "Straße ☂", "ein leiser Vogel"]
PAIRS = 3  # whose logits are stored

# Each is {options of the configuration}, and how the folder is written.
FOLDERS = {
    "joint": dict(
        config=dict(encoder_layers=2, decoder_layers=1, scale_embedding=True),
        generation=dict(
            num_beams=3, length_penalty=0.8, max_length=40, renormalize_logits=True
        ),
        drop=3,
    ),
    "separate": dict(
        config=dict(
            encoder_layers=1, decoder_layers=2, share_encoder_decoder_embeddings=False,
            activation_function="relu", d_model=18, encoder_ffn_dim=13, decoder_ffn_dim=19,
        ),
        generation=dict(num_beams=2, length_penalty=1.2, max_length=38), separate=True,
        file="zip", drop=2,
    ),
    "codes": dict(
        config=dict(encoder_layers=1, decoder_layers=1, activation_function="gelu"),
        generation=dict(num_beams=4, max_length=41), codes=True, file="old",
    ),
    "untied": dict(
        config=dict(
            encoder_layers=1, decoder_layers=2, tie_word_embeddings=False, scale_embedding=False
        ),
        generation=dict(num_beams=2, no_repeat_ngram_size=2, max_length=37), file="bfloat16",
    ),
}  # fmt: skip


def main(folders, write, load):
    """The command of a program like this one.

    `folders` has the arguments of `write(folder, seed, ...)` by name. `load(folder)` returns a
    model and its tokenizer.
    """
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    write_parser = commands.add_parser("write")
    write_parser.add_argument("folder", type=Path)
    write_parser.add_argument("names", nargs="*", help="default: all folders")
    commands.add_parser("answer").add_argument("folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "write":
        for seed, (name, parts) in enumerate(folders.items()):
            if name in (options.names or folders):
                write(options.folder / name, seed, **parts)
    else:
        lines = sys.stdin.read().splitlines()
        print(json.dumps(answers(*load(options.folder), lines)))


def load(folder):
    model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    return model, MarianTokenizer.from_pretrained(folder)


# The results of the original.


def answers(model, tokenizer, lines, batch_size=32):
    """Ids, greedy translations, and translations by the model's own beam search with their
    scores."""
    found = {"source_ids": tokenizer(lines).input_ids}
    found |= {name: [] for name in ("greedy", "greedy_ids", "beam", "scores")}
    for n in range(0, len(lines), batch_size):
        batch = tokenizer(lines[n : n + batch_size], return_tensors="pt", padding=True)
        greedy = model.generate(**batch, num_beams=1, no_repeat_ngram_size=0)
        found["greedy"] += decoded(tokenizer, greedy)
        found["greedy_ids"] += [said(ids, model.config) for ids in greedy.tolist()]
        best = model.generate(**batch, output_scores=True, return_dict_in_generate=True)
        found["beam"] += decoded(tokenizer, best.sequences)
        found["scores"] += best.sequences_scores.tolist()
        print(f"{n + len(batch.input_ids)} of {len(lines)}", file=sys.stderr)
    return found


def said(ids, config):
    """The ids after the start, up to eos."""
    ids = ids[1:]
    return ids[: ids.index(config.eos_token_id) + 1]


def decoded(tokenizer, ids):
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def logits(model, source_ids, target_ids):
    """[T, V] of a target, including its beginning."""
    start = [model.config.decoder_start_token_id]
    with torch.inference_mode():
        return model(
            input_ids=torch.tensor([source_ids]),
            decoder_input_ids=torch.tensor([start + target_ids[:-1]]),
        ).logits[0].numpy()  # fmt: skip


# Small folders.


def write(folder, seed, config, generation, separate=False, codes=False, file="", drop=0):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    size = write_vocabulary(folder, separate, codes, drop)
    model = made(seed, size, config, generation)
    train(model, MarianTokenizer.from_pretrained(folder), codes)
    save(model, folder, file)
    model, tokenizer = load(folder)
    sources = [f"{CODES[n % 2]} {text}" for n, text in enumerate(SOURCES)] if codes else SOURCES
    sources = [*sources, ">>xx<< a tree", ">>de<<the lake"] if codes else sources
    found = answers(model, tokenizer, sources)
    found |= {"sources": sources, "targets": TARGETS}
    found["target_ids"] = tokenizer(text_target=TARGETS).input_ids
    (folder / "answers.json").write_text(json.dumps(found, ensure_ascii=False, indent=0))
    pairs = zip(found["source_ids"], found["target_ids"], strict=False)
    arrays = {str(n): logits(model, *pair) for n, pair in enumerate(itertools.islice(pairs, PAIRS))}
    np.savez_compressed(folder / "logits.npz", **arrays)


def sentences(words):
    """Sentences made of one word of each table; `words` takes the keys or the values."""
    parts = (list(words(one)) for one in (ADJECTIVES, NOUNS, VERBS))
    article = "the" if words is dict.keys else "das"
    return [f"{article} {a} {n} {v}" for a, n, v in itertools.product(*parts)]


def write_vocabulary(folder, separate, codes, drop):
    """Writes two SentencePiece models and one or two tables of ids; returns the numbers of ids.

    The last `drop` pieces that the source uses, and two of the target, are in no table.
    """
    rules = folder / "rules.tsv"
    rules.write_text(RULES)
    tables = []
    for side, words in (("source", dict.keys), ("target", dict.values)):
        texts = sentences(words)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*texts, "ABC xyz'", *map(str, range(10))]),
            model_prefix=str(folder / side), vocab_size=61, hard_vocab_limit=False,
            normalization_rule_tsv=str(rules), num_threads=1, minloglevel=2,
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        (folder / f"{side}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        pieces = [model.id_to_piece(n) for n in range(3, model.vocab_size())]
        tables.append(pieces[: len(pieces) - (drop if side == "source" else 2 * bool(drop))])
    rules.unlink()
    if not separate:
        tables = [list(dict.fromkeys([*tables[0], *tables[1]]))]
    # In another order than in a SentencePiece model.
    tables = [["</s>", "<unk>", *table[::-1], *(CODES if codes else ())] for table in tables]
    longest = max(map(len, tables))
    for name, table in zip(("vocab.json", "target_vocab.json"), tables, strict=False):
        ids = {piece: n for n, piece in enumerate(table)} | {"<pad>": longest}
        (folder / name).write_text(json.dumps(ids, ensure_ascii=False))
    options = {"separate_vocabs": separate, "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return longest + 1


def made(seed, size, config, generation):
    torch.manual_seed(seed)
    pad = size - 1
    ids = dict(pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0)
    options = dict(
        vocab_size=size, d_model=22, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=17, decoder_ffn_dim=17, activation_function="swish", dropout=0.0,
        max_position_embeddings=64, init_std=0.2, **ids,
    )  # fmt: skip
    model = MarianMTModel(MarianConfig(**{**options, **config}))
    model.generation_config = GenerationConfig(bad_words_ids=[[pad]], **ids, **generation)
    return model


def train(model, tokenizer, codes):
    """Some steps over all sentences; the bias of the output layer and the norms become other
    than 0."""
    sources, targets = sentences(dict.keys), sentences(dict.values)
    if codes:
        sources = [f"{CODES[n % 2]} {text}" for n, text in enumerate(sources)]
    source = tokenizer(sources, return_tensors="pt", padding=True)
    labels = tokenizer(text_target=targets, return_tensors="pt", padding=True).input_ids
    pad = model.config.pad_token_id
    start = torch.full_like(labels[:, :1], pad)
    bias = torch.nn.Parameter(0.3 * torch.randn_like(model.final_logits_bias))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".bias") or "norm" in name:
                weight += 0.2 * torch.randn_like(weight)
    optimizer = torch.optim.Adam([*model.parameters(), bias], lr=RATE)
    for _ in range(STEPS):
        rows = torch.randperm(len(sources))[:32]
        found = model(
            input_ids=source.input_ids[rows], attention_mask=source.attention_mask[rows],
            decoder_input_ids=torch.cat([start, labels[:, :-1]], 1)[rows],
        ).logits + bias  # fmt: skip
        wanted = labels[rows].masked_fill(labels[rows] == pad, -100).flatten()
        loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), wanted, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"loss {loss.item():.3f}", file=sys.stderr)
    model.final_logits_bias.copy_(bias.detach())
    model.eval()


def save(model, folder, file):
    """As safetensors, or as older versions saved it: by `torch.save`, all names of a matrix."""
    if file == "bfloat16":
        model = model.bfloat16()
    model.save_pretrained(folder)
    if file in ("zip", "old"):
        (folder / "model.safetensors").unlink()
        options = {"_use_new_zipfile_serialization": file == "zip"}
        torch.save(model.state_dict(), folder / "pytorch_model.bin", **options)
    if file == "old":  # its generation options were in the same file
        generation = folder / "generation_config.json"
        path = folder / "config.json"
        options = json.loads(path.read_text()) | json.loads(generation.read_text())
        path.write_text(json.dumps(options, indent=2))
        generation.unlink()


if __name__ == "__main__":
    main(FOLDERS, write, load)
