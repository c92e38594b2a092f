"""BERT and its relatives of Hugging Face: small folders with the original's results.

    PYTHON tests/support/bert_original.py write tests/data/bert
    PYTHON tests/support/bert_original.py ids FOLDER COUNT > ids.json

PYTHON has `torch`, `transformers`, `tokenizers`, `sentencepiece` and `safetensors`; it imports
nothing of this project. The weights are random, and large enough to give different results.
"""

import argparse
import json
import os
import re
import shutil
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else transformers asks the hub about each folder

import numpy as np
import sentencepiece
import tokenizers
import torch
import transformers
from hard_lines import hard_lines
from tokenizers import models, normalizers, pre_tokenizers, trainers

LONGEST, LINES = 64, 40
PIECES = 320
LABELS = ["bad", "good news", "neutral"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
QUESTIONS = [
    ("Where is the house?", "The house is by the lake, and the tree is by the road."),
    ("Wer?", "Das Haus von Jürgen steht am See."),
    ("who", "x"),
    ("the tree", "the bird the house the tree the lake the road"),
    ("what", "The bird is quiet."),
    ("What is it?", "It's 3.14 — or “quoted” café words"),
]
MASKED = ["the {} house", "{}", "a {} and a {}.", "  the  lake {}s  ", "{}{} x"]
SENTENCES = (
    "the red house is by the lake. the old tree is small, and the bird is quiet! is it a tree? "
    "it's don't can't we'll Haus See Baum Straße Jürgen Zürich café naïve 3.14 2026 100 russia "
).split()

BERT = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=22,
    max_position_embeddings=LONGEST, hidden_dropout_prob=0.1, initializer_range=0.4,
)  # fmt: skip
ROBERTA = {**BERT, "max_position_embeddings": LONGEST + 2, "type_vocab_size": 1}
DISTIL = dict(
    dim=16, n_layers=2, n_heads=2, hidden_dim=22, max_position_embeddings=LONGEST,
    initializer_range=0.4,
)  # fmt: skip
MASK = tokenizers.AddedToken("<mask>", lstrip=True, special=True)  # as in the published models
TAGGED = dict(id2label=dict(enumerate(TAGS)), label2id={tag: n for n, tag in enumerate(TAGS)})
LABELLED = dict(id2label=dict(enumerate(LABELS)), label2id={s: n for n, s in enumerate(LABELS)})
MANY = {**LABELLED, "problem_type": "multi_label_classification"}
# Each is (the class, the kind of tokenizer and its options, options of the configuration).
FOLDERS = {
    "bert-classifier": ("BertForSequenceClassification", ("words", {}), {**BERT, **LABELLED}),
    "bert-masked": ("BertForMaskedLM", ("words", {"do_lower_case": False}),
                    {**BERT, "max_position_embeddings": 256}),
    "bert-tagger": ("BertForTokenClassification",
                    ("words", {"do_lower_case": True, "strip_accents": False}),
                    {**BERT, **TAGGED, "hidden_act": "gelu_new"}),
    "bert-span": ("BertForQuestionAnswering", ("words", {}), BERT),
    "sentences": ("BertModel", ("words", {}), {**BERT, "layer_norm_eps": 1e-5}),
    "distilbert-classifier": ("DistilBertForSequenceClassification", ("words", {}),
                              {**DISTIL, **MANY}),
    "distilbert-masked": ("DistilBertForMaskedLM", ("words", {}),
                          {**DISTIL, "tie_word_embeddings": False}),
    "roberta-masked": ("RobertaForMaskedLM", ("bytes", {"mask_token": MASK}), ROBERTA),
    "roberta-classifier": ("RobertaForSequenceClassification", ("bytes", {}),
                           {**ROBERTA, **LABELLED}),
    "roberta-tagger": ("RobertaForTokenClassification", ("bytes", {"add_prefix_space": True}),
                       {**ROBERTA, **TAGGED}),
    "xlm-roberta-masked": ("XLMRobertaForMaskedLM", ("pieces", {}), ROBERTA),
    "xlm-roberta-span": ("XLMRobertaForQuestionAnswering", ("pieces", {"json": True}), ROBERTA),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    write_parser = commands.add_parser("write")
    write_parser.add_argument("folder", type=Path)
    write_parser.add_argument("names", nargs="*", help="of FOLDERS; default all")
    ids_parser = commands.add_parser("ids")
    ids_parser.add_argument("folder", type=Path)
    ids_parser.add_argument("count", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "write":
        for seed, (name, parts) in enumerate(FOLDERS.items()):
            if name in (options.names or FOLDERS):
                write(options.folder / name, seed, *parts)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.folder)
        print(json.dumps(tokenizer(hard_lines(options.count)).input_ids))


# Small folders.


def write(folder, seed, name, tokenizer, options):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    kind, more = tokenizer
    tokenizer = {"words": word_pieces, "bytes": byte_pairs, "pieces": sentence_pieces}[kind](
        folder, **more
    )
    model = getattr(transformers, name)
    config = model.config_class(vocab_size=PIECES, **options)
    model = model(config).eval()
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            if weight_name.startswith(("classifier", "qa_outputs")):
                weight *= 3 * (weight.ndim > 1)
            elif weight.ndim == 1:
                weight += 0.3 * torch.randn_like(weight)
            if "position_embeddings" in weight_name or "token_type" in weight_name:
                weight += 0.3 * torch.randn_like(weight)
    centre(model, tokenizer)
    if folder.name == "distilbert-masked":  # as older files: by `torch.save`
        model.config.save_pretrained(folder)
        model.config.architectures = [name]
        model.config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    else:
        model.save_pretrained(folder)
    if folder.name == "sentences":
        write_modules(folder)
    found, arrays = answers(name, model, tokenizer, folder.name)
    found["ids"] = tokenizer(hard_lines(2 * LINES)).input_ids
    (folder / "answers.json").write_text(json.dumps(found, ensure_ascii=False))
    np.savez_compressed(folder / "outputs.npz", **arrays)
    print(folder, sum(path.stat().st_size for path in folder.rglob("*.*")), file=sys.stderr)


def centre(model, tokenizer):
    """Makes each label equally probable on average over all lines."""
    head = getattr(model, "classifier", None)
    if head is None:
        return
    head = getattr(head, "out_proj", head)
    lines = [line for line in hard_lines(100) if line.strip()]
    batch = tokenizer(lines, return_tensors="pt", padding=True, truncation=True, max_length=LONGEST)
    with torch.no_grad():
        logits = model(**batch).logits.flatten(0, -2)
        head.bias -= logits.mean(0)


def write_modules(folder):
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    rows = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    pooling = {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    limits = {"max_seq_length": LONGEST - 8, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limits))


def texts():
    return [*SENTENCES * 3, *hard_lines(300, 5)]


def word_pieces(folder, **options):
    """A learned WordPiece vocabulary; by default it is written as vocab.txt."""
    lower, accents = options.get("do_lower_case", True), options.get("strip_accents")
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=accents)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        texts(),
        trainers.WordPieceTrainer(vocab_size=PIECES - 3, limit_alphabet=90, special_tokens=special),
    )
    table = made.get_vocab()
    if options:
        transformers.BertTokenizer(vocab=table, **options).save_pretrained(folder)
    else:
        names = sorted(table, key=table.get)
        (folder / "vocab.txt").write_text("".join(f"{name}\n" for name in names))
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return transformers.BertTokenizer.from_pretrained(folder)


def byte_pairs(folder, **options):
    """A learned byte-level BPE; by default it is written as vocab.json and merges.txt."""
    made = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(texts(), vocab_size=PIECES - 2, special_tokens=special)
    made.save_model(str(folder))
    tokenizer = transformers.RobertaTokenizer.from_pretrained(folder, **options)
    if options:
        tokenizer.save_pretrained(folder)
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
        tokenizer = transformers.RobertaTokenizer.from_pretrained(folder)
    return tokenizer


def sentence_pieces(folder, json=False):
    """Learned Unigram pieces, by SentencePiece or in tokenizer.json."""
    path = folder / "sentencepiece.bpe"
    sentencepiece.SentencePieceTrainer.train(
        # Pieces such as "xxx" would give ties, which each program resolves differently.
        sentence_iterator=(text for text in texts() if not re.search(r"(.+)\1{4}", text)),
        model_prefix=str(path), vocab_size=PIECES - 3, hard_vocab_limit=False,
        character_coverage=0.99, num_threads=1, minloglevel=2,
    )  # fmt: skip
    (folder / "sentencepiece.bpe.vocab").unlink()
    tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(folder)
    if json:
        tokenizer.save_pretrained(folder)
        (folder / "sentencepiece.bpe.model").unlink()
        tokenizer = transformers.XLMRobertaTokenizer.from_pretrained(folder)
    return tokenizer


# The results of the original.


def answers(name, model, tokenizer, folder):
    """Results as JSON, and arrays."""
    lines = [line for line in hard_lines(3 * LINES) if line.strip()][:LINES]
    if name.endswith("ForQuestionAnswering"):
        return spans(model, tokenizer)
    if name.endswith("ForMaskedLM"):
        return masked(model, tokenizer)
    if name.endswith("ForTokenClassification"):
        return tags(model, tokenizer)
    longest = LONGEST - 8 if folder == "sentences" else LONGEST
    batch = tokenizer(lines, return_tensors="pt", padding=True, truncation=True, max_length=longest)
    with torch.inference_mode():
        if name.endswith("Model"):
            states = model(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None].float()
            vectors = (states * mask).sum(1) / mask.sum(1)
            vectors = torch.nn.functional.normalize(vectors, dim=1)
            return {"lines": lines}, {"vectors": vectors.numpy()}
        logits = model(**batch).logits
    return {"lines": lines}, {"logits": logits.numpy()}


def masked(model, tokenizer):
    """The pieces that fill the gaps, and the logits of some lines."""
    texts = [text.replace("{}", tokenizer.mask_token) for text in MASKED]
    found, arrays = {"texts": texts, "filled": [], "masked_ids": []}, {}
    for n, text in enumerate(texts):
        batch = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**batch).logits[0]
        arrays[str(n)] = logits.numpy()
        ids = batch["input_ids"][0]
        gaps = logits[ids == tokenizer.mask_token_id]
        found["masked_ids"].append(ids.tolist())
        found["filled"].append(gaps.argmax(-1).tolist())
    return found, arrays


def tags(model, tokenizer):
    """The tag of the first piece of each word."""
    lines = ["The old house", "Jürgen Straße in Zürich", "don't 3.14 x", "a"]
    found = {"lines": lines, "tags": []}
    arrays = {}
    for n, line in enumerate(lines):
        batch = tokenizer(line.split(), is_split_into_words=True, return_tensors="pt")
        words = batch.word_ids(0)
        first = [words.index(w) for w in range(len(line.split()))]
        with torch.inference_mode():
            logits = model(**batch).logits[0, first]
        arrays[str(n)] = logits.softmax(-1).numpy()
        found["tags"].append([TAGS[one] for one in logits.argmax(-1).tolist()])
    return found, arrays


def spans(model, tokenizer):
    """The most probable answer of at most 10 pieces, as its characters in the text."""
    found, arrays = {"questions": QUESTIONS, "spans": [], "pair_ids": []}, {}
    for n, (question, text) in enumerate(QUESTIONS):
        batch = tokenizer(question, text, return_tensors="pt", return_offsets_mapping=True)
        offsets = batch.pop("offset_mapping")[0].tolist()
        inside = [one == 1 for one in batch.sequence_ids(0)]
        with torch.inference_mode():
            out = model(**batch)
        begin, end = out.start_logits[0], out.end_logits[0]
        arrays[str(n)] = torch.stack([begin, end]).numpy()
        places = [n for n, one in enumerate(inside) if one]
        pairs = [(a, b) for a in places for b in places if a <= b < a + 10]
        a, b = max(pairs, key=lambda pair: float(begin[pair[0]] + end[pair[1]]))
        # The offsets of a blank alone are those of the next character.
        alone = tokenizer.convert_ids_to_tokens(int(batch["input_ids"][0, b])) == "▁"
        found["spans"].append([offsets[a][0], 0 if alone else offsets[b][1]])
        found["pair_ids"].append(batch["input_ids"][0].tolist())
    return found, arrays


if __name__ == "__main__":
    main()
