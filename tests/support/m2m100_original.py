"""M2M100, NLLB-200 and SMALL-100 of Hugging Face: small folders with the originals' results.

    PYTHON tests/support/m2m100_original.py write tests/data/m2m100
    PYTHON tests/support/m2m100_original.py answer FOLDER SOURCE TARGET < lines.txt > answers.json

PYTHON has `torch`, `transformers`, `sentencepiece` and `safetensors`; it imports nothing of this
project. The small models are trained briefly on artificial sentences, so that their translations
end and differ by language.
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
from transformers import (
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
)
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

# The adjectives, nouns and verbs of three languages, and their article.
WORDS = {
    "en": ("the", "red old small bright", "house lake tree street", "sees finds paints"),
    "de": ("das", "rote alte kleine helle", "Haus See Baum Straße", "sieht findet malt"),
    "fr": ("le", "rouge vieux petit clair", "château lac arbre chemin", "voit trouve peint"),
}
NAMES = {
    "nllb": {"en": "eng_Latn", "de": "deu_Latn", "fr": "fra_Latn"},
    "mbart": {"en": "en_XX", "de": "de_DE", "fr": "fr_XX"},
}
# The codes of NLLB's small folders, in the order of their ids.
CODES = ["ace_Latn", "deu_Latn", "eng_Latn", "fra_Latn", "zul_Latn"]
STEPS, RATE = 300, 0.01
# Full width letters and a typographic apostrophe are written as plain ones.
RULES = "FF21\t41\nFF22\t42\n2019\t27\n"
SOURCES = [
    "the red house finds the old tree",
    "a small lake’s bright street",
    "Ａ old street",
    "  two   blanks",
    "zebra 7 ☃",
    "the bright house paints the bright lake and the bright street",
    "x",
    "",
    "Straße ☂☂ château",
    "a lake ",  # a space at the end
    "__de__ lake deu_Latn",  # text that looks like a code
]
TARGETS = ["das rote Haus findet den Baum", "kleine Straße", "See ☂", "ein heller See"]
PAIRS = 3  # whose logits are stored
IDS = dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2)

# Each is {options of the configuration}, and how the folder is written.
FOLDERS = {
    "m2m": dict(
        config=dict(encoder_layers=2, decoder_layers=1),
        generation=dict(num_beams=3, length_penalty=0.8, max_length=40), drop=2, more="☃",
    ),
    "nllb": dict(
        config=dict(
            encoder_layers=1, decoder_layers=2, d_model=20, encoder_ffn_dim=13, decoder_ffn_dim=19
        ),
        generation=dict(
            num_beams=2, length_penalty=0.5, max_length=38, forced_bos_token_id="fr"
        ),
        kind="nllb",
    ),
    "whole": dict(
        config=dict(encoder_layers=1, decoder_layers=1, scale_embedding=False),
        generation=dict(num_beams=2, no_repeat_ngram_size=2, max_length=37), kind="nllb",
        whole=True, file="bfloat16",
    ),
    "mbart": dict(
        config=dict(encoder_layers=2, decoder_layers=1, activation_function="gelu"),
        generation=dict(num_beams=3, max_length=39, forced_eos_token_id=2), kind="mbart",
    ),
    "small100": dict(
        config=dict(encoder_layers=2, decoder_layers=1, activation_function="gelu"),
        generation=dict(num_beams=4, length_penalty=1.3, max_length=41), kind="small100",
        file="old",
    ),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    write_parser = commands.add_parser("write")
    write_parser.add_argument("folder", type=Path)
    write_parser.add_argument("names", nargs="*", help="of FOLDERS; default all")
    answer = commands.add_parser("answer")
    answer.add_argument("folder", type=Path)
    answer.add_argument("languages", nargs=2, help="source and target")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "write":
        for seed, (name, parts) in enumerate(FOLDERS.items()):
            if name in (options.names or FOLDERS):
                write(options.folder / name, seed, **parts)
    else:
        lines = sys.stdin.read().split("\n")[:-1]
        model, tokenizer = load(options.folder)
        print(json.dumps(answers(model, tokenizer, lines, *options.languages)))


class Small100Tokenizer(M2M100Tokenizer):
    """The rules of SMALL-100's own tokenizer: the source begins with the target's code, and the
    target with none."""

    def set_src_lang_special_tokens(self, src_lang):
        self.prefix_tokens = [self.get_lang_id(self.tgt_lang or "en")]
        self.suffix_tokens = [self.eos_token_id]

    def set_tgt_lang_special_tokens(self, tgt_lang):
        self.prefix_tokens, self.suffix_tokens = [], [self.eos_token_id]


def load(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, tokenizer_of(folder)


def tokenizer_of(folder):
    named = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
    classes = {"NllbTokenizer": NllbTokenizer, "SMALL100Tokenizer": Small100Tokenizer}
    classes["MBart50Tokenizer"] = MBart50Tokenizer
    return classes.get(named, M2M100Tokenizer).from_pretrained(folder)


def set_languages(tokenizer, source, target):
    tokenizer.tgt_lang = target
    tokenizer.src_lang = source


def first_of(tokenizer, target):
    """The id that the original puts first into a target, or None."""
    if isinstance(tokenizer, Small100Tokenizer):
        return None
    return tokenizer.convert_tokens_to_ids(
        f"__{target}__" if isinstance(tokenizer, M2M100Tokenizer) else target
    )


# The results of the original.


def answers(model, tokenizer, lines, source, target, batch_size=32):
    """Ids, greedy translations, and translations by the model's own beam search with their
    scores."""
    set_languages(tokenizer, source, target)
    found = {"source_ids": tokenizer(lines).input_ids}
    found |= {name: [] for name in ("greedy", "greedy_ids", "beam", "scores")}
    first = first_of(tokenizer, target)
    for n in range(0, len(lines), batch_size):
        batch = tokenizer(lines[n : n + batch_size], return_tensors="pt", padding=True)
        options = {"forced_bos_token_id": first}
        greedy = model.generate(**batch, **options, num_beams=1, no_repeat_ngram_size=0)
        found["greedy"] += decoded(tokenizer, greedy)
        found["greedy_ids"] += [said(ids) for ids in greedy.tolist()]
        best = model.generate(**batch, **options, output_scores=True, return_dict_in_generate=True)
        found["beam"] += decoded(tokenizer, best.sequences)
        found["scores"] += best.sequences_scores.tolist()
        print(f"{n + len(batch.input_ids)} of {len(lines)}", file=sys.stderr)
    return found


def said(ids):
    """The ids after the start, up to eos."""
    ids = ids[1:]
    return ids[: ids.index(2) + 1] if 2 in ids else ids


def decoded(tokenizer, ids):
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def states(model, source_ids, target_ids):
    """The logits [T, V] of a target, and the encoder's output [S, D]."""
    with torch.inference_mode():
        found = model(
            input_ids=torch.tensor([source_ids]),
            decoder_input_ids=torch.tensor([[2, *target_ids[:-1]]]),
        )
    return found.logits[0].numpy(), found.encoder_last_hidden_state[0].numpy()


# Small folders.


def write(folder, seed, config, generation, kind="m2m", whole=False, file="", drop=0, more=""):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    size = write_vocabulary(folder, kind, whole, drop, more)
    model = made(seed, size, config, kind)
    names = NAMES.get(kind) or {language: language for language in WORDS}
    tokenizer = tokenizer_of(folder)
    if forced := generation.get("forced_bos_token_id"):
        generation = {**generation, "forced_bos_token_id": first_of(tokenizer, names[forced])}
    model.generation_config = GenerationConfig(**IDS, **generation)
    train(model, tokenizer, names)
    save(model, folder, file)
    model, tokenizer = load(folder)
    stored = {"sources": SOURCES, "targets": TARGETS}
    arrays = {}
    for pair in (("en", "de"), ("fr", "en")):
        source, target = (names[one] for one in pair)
        found = answers(model, tokenizer, SOURCES, source, target)
        tokenizer.tgt_lang = target
        found["target_ids"] = tokenizer(text_target=TARGETS).input_ids
        stored[f"{source}-{target}"] = found
        pairs = zip(found["source_ids"], found["target_ids"], strict=False)
        for n, ids in enumerate(itertools.islice(pairs, PAIRS)):
            for name, array in zip(("logits", "states"), states(model, *ids), strict=True):
                arrays[f"{source}-{target}/{n}/{name}"] = array
    (folder / "answers.json").write_text(json.dumps(stored, ensure_ascii=False, indent=0))
    np.savez_compressed(folder / "states.npz", **arrays)


def sentences(language):
    article, *parts = WORDS[language]
    return [f"{article} {a} {n} {v}" for a, n, v in itertools.product(*map(str.split, parts))]


def write_vocabulary(folder, kind, whole, drop, more):
    """Writes the files of a tokenizer; returns the number of ids.

    The last `drop` pieces of the SentencePiece model are not in vocab.json, and the character
    `more` is only there.
    """
    rules = folder / "rules.tsv"
    rules.write_text(RULES)
    texts = [text for language in WORDS for text in sentences(language)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*texts, "ABC xyz'", *map(str, range(10)), "☂ ☃"]),
        model_prefix=str(folder / "s"), vocab_size=140 if kind != "mbart" else 74,
        model_type="bpe" if kind != "mbart" else "unigram", character_coverage=0.999,
        normalization_rule_tsv=str(rules), num_threads=1, minloglevel=2,
    )  # fmt: skip
    rules.unlink()
    (folder / "s.vocab").unlink()
    path = (folder / "s.model").rename(folder / "sentencepiece.bpe.model")
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [model.id_to_piece(n) for n in range(3, model.vocab_size())]
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "mbart":
        options = {"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX"}
        size = len(first) + len(pieces) + 52 + 1
    elif kind == "nllb":
        ids = {piece: n for n, piece in enumerate([*first, *pieces])}
        options = {"tokenizer_class": "NllbTokenizer"}
        write_whole(folder, path, ids)
        if whole:
            path.unlink()
        else:
            (folder / "special_tokens_map.json").write_text(
                json.dumps({"additional_special_tokens": CODES})
            )
        size = len(ids) + len(CODES) + 3
    else:
        # In another order than in the SentencePiece model.
        table = [*first, *pieces[: len(pieces) - drop][::-1], *more]
        ids = {piece: n for n, piece in enumerate(table)}
        (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
        named = {"m2m": "M2M100Tokenizer", "small100": "SMALL100Tokenizer"}[kind]
        languages = FAIRSEQ_LANGUAGE_CODES["m2m100"]
        options = {"tokenizer_class": named, "src_lang": "en"}
        options["additional_special_tokens"] = [f"__{language}__" for language in languages]
        size = len(ids) + 100 + 8
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return size


def write_whole(folder, path, ids):
    """tokenizer.json as NLLB-200 has it: the languages follow the pieces, then comes the mask."""
    options = {"tokenizer_class": "NllbTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    NllbTokenizer.from_pretrained(folder).save_pretrained(folder)
    whole = json.loads((folder / "tokenizer.json").read_text())
    for n, code in enumerate([*CODES, "<mask>"], len(ids)):
        whole["model"]["vocab"][code] = n
    row = whole["added_tokens"][0]
    kept = [one for one in whole["added_tokens"] if one["content"] != "<mask>"]
    whole["added_tokens"] = kept + [
        {**row, "id": n, "content": code} for n, code in enumerate([*CODES, "<mask>"], len(ids))
    ]
    assert {piece: whole["model"]["vocab"][piece] for piece in ids} == ids
    (folder / "tokenizer.json").write_text(json.dumps(whole, ensure_ascii=False))


def made(seed, size, config, kind):
    torch.manual_seed(seed)
    options = dict(
        vocab_size=size, d_model=24, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=17, decoder_ffn_dim=17, dropout=0.0, attention_dropout=0.0,
        max_position_embeddings=64, init_std=0.2, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
        **IDS,
    )  # fmt: skip
    if kind == "mbart":
        return MBartForConditionalGeneration(MBartConfig(**{**options, **config}))
    return M2M100ForConditionalGeneration(M2M100Config(**{**options, **config}))


def train(model, tokenizer, names):
    """Some steps over all sentences, from each language to each other one."""
    sources, labels = [], []
    for source, target in itertools.permutations(WORDS, 2):
        set_languages(tokenizer, names[source], names[target])
        sources += tokenizer(sentences(source)).input_ids
        labels += tokenizer(text_target=sentences(target)).input_ids
    source, labels = padded(sources), padded(labels)
    start = torch.full_like(labels[:, :1], 2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".bias") or "norm" in name:
                weight += 0.2 * torch.randn_like(weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    for _ in range(STEPS):
        rows = torch.randperm(len(sources))[:48]
        found = model(
            input_ids=source[rows], attention_mask=(source != 1).long()[rows],
            decoder_input_ids=torch.cat([start, labels[:, :-1]], 1)[rows],
        ).logits  # fmt: skip
        wanted = labels[rows].masked_fill(labels[rows] == 1, -100).flatten()
        loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), wanted, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"loss {loss.item():.3f}", file=sys.stderr)
    model.eval()


def padded(rows):
    rows = [torch.tensor(ids) for ids in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)


def save(model, folder, file):
    """As safetensors, or as older versions saved it: by `torch.save`, all names of a matrix."""
    if file == "bfloat16":
        model = model.bfloat16()
    model.save_pretrained(folder)
    if file == "old":
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")


if __name__ == "__main__":
    main()
