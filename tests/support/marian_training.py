"""Trains a Marian model with PyTorch: `PYTHON tests/support/marian_training.py DATA FOLDER`.

    PYTHON tests/support/marian_training.py data/multi30k marian --minutes 10

PYTHON has `torch`, `transformers` and `sentencepiece`. FOLDER is then a folder for
`MarianMTModel.from_pretrained` and `python -m training.import_marian`: 3 + 3 layers of width 256, a
SentencePiece model of 4,000 pieces a side and one vocabulary of both, as OPUS-MT has them. One
thread trains it for --minutes: long enough that its translations end, not to make it good.
"""

import argparse
import json
import random
import time
from pathlib import Path

import sentencepiece
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

SIDES = {"source": "en", "target": "de"}
BATCH_TOKENS, WARMUP, RATE = 1000, 200, 1e-3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    options.folder.mkdir(parents=True)
    write_vocabulary(options.data, options.folder)
    tokenizer = MarianTokenizer.from_pretrained(options.folder)
    model = made(tokenizer)
    batches = batched(tokenizer, options.data)
    train(model, batches, 60 * options.minutes)
    model.save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)


def write_vocabulary(data, folder):
    """Two SentencePiece models, and one vocabulary with all their pieces."""
    pieces = []
    for side, language in SIDES.items():
        prefix = folder / side
        sentencepiece.SentencePieceTrainer.train(
            input=str(data / f"train.{language}"), model_prefix=str(prefix), vocab_size=4000,
            character_coverage=1.0, num_threads=1, minloglevel=2,
        )  # fmt: skip
        prefix.with_suffix(".model").rename(prefix.with_suffix(".spm"))
        prefix.with_suffix(".vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(prefix.with_suffix(".spm")))
        pieces += [model.id_to_piece(n) for n in range(3, model.vocab_size())]
    names = ["</s>", "<unk>", *dict.fromkeys(pieces), "<pad>"]
    vocabulary = {name: n for n, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "de", "separate_vocabs": False})
    )


def made(tokenizer):
    size, pad = len(tokenizer.get_vocab()), tokenizer.pad_token_id
    config = MarianConfig(
        vocab_size=size, d_model=256, encoder_layers=3, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=1024,
        decoder_ffn_dim=1024, activation_function="swish", scale_embedding=True, dropout=0.1,
        max_position_embeddings=512, pad_token_id=pad, decoder_start_token_id=pad,
        eos_token_id=0, forced_eos_token_id=0, init_std=256**-0.5,
    )  # fmt: skip
    model = MarianMTModel(config)
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=100, bad_words_ids=[[pad]], pad_token_id=pad,
        decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
    )  # fmt: skip
    return model


def batched(tokenizer, data):
    """Lists of (source ids, target ids) with similar lengths and similar numbers of tokens."""
    lines = [(data / f"train.{one}").read_text().splitlines() for one in SIDES.values()]
    source = tokenizer(lines[0]).input_ids
    target = tokenizer(text_target=lines[1]).input_ids
    pairs = sorted(zip(source, target, strict=True), key=lambda pair: max(map(len, pair)))
    batches, batch = [], []
    for pair in pairs:
        if (len(batch) + 1) * max(map(len, pair)) > BATCH_TOKENS and batch:
            batches.append(batch)
            batch = []
        batch.append(pair)
    return [*batches, batch]


def train(model, batches, seconds):
    pad, end, step = model.config.pad_token_id, time.monotonic() + seconds, 0
    # The bias of the output layer is not trained in transformers, but Marian's own training learns
    # it. T5 has none.
    has_bias = hasattr(model, "final_logits_bias")
    bias = torch.nn.Parameter(torch.zeros(1, model.config.vocab_size))
    optimizer = torch.optim.Adam([*model.parameters(), *[bias] * has_bias], betas=(0.9, 0.98))
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)
    shuffled, model = random.Random(1), model.train()
    while time.monotonic() < end:
        for batch in shuffled.sample(batches, len(batches)):
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(step / WARMUP, (WARMUP / step) ** 0.5)
            source, target = (padded(rows, pad) for rows in zip(*batch, strict=True))
            start = torch.full_like(target[:, :1], model.config.decoder_start_token_id)
            logits = model(
                input_ids=source, attention_mask=(source != pad).long(),
                decoder_input_ids=torch.cat([start, target[:, :-1]], 1),
            ).logits + (bias if has_bias else 0)  # fmt: skip
            labels = target.masked_fill(target == pad, -100)
            loss = loss_of(logits.flatten(0, 1), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step}: {loss.item():.3f}", flush=True)
            if time.monotonic() >= end:
                break
    if has_bias:
        model.final_logits_bias.copy_(bias.detach())
    model.eval()


def padded(rows, pad):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])


if __name__ == "__main__":
    main()
