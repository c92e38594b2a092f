"""Trains a T5 or a BART with PyTorch: `PYTHON tests/support/seq2seq_training.py KIND DATA FOLDER`.

    PYTHON tests/support/seq2seq_training.py t5 data/multi30k t5 --minutes 10

PYTHON has `torch`, `transformers`, `tokenizers` and `sentencepiece`. FOLDER is then a folder for
`tfformer import`: 3 + 3 layers of width 256 and 8,000 pieces for both languages, T5 1.1 with gated
GELU or BART with byte-level BPE. One thread trains it for --minutes: long enough that its
translations end, not to make it good.
"""

import argparse
from pathlib import Path

import marian_training as marian
import sentencepiece
import tokenizers
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    GenerationConfig,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

SIZE, HEADS, LAYERS = 8000, 4, 3
SEARCH = {"num_beams": 4, "max_length": 100}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["t5", "bart"])
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    options.folder.mkdir(parents=True)
    texts = [str(options.data / f"train.{language}") for language in marian.SIDES.values()]
    tokenizer, model = {"t5": t5, "bart": bart}[options.kind](texts, options.folder)
    marian.train(model, marian.batched(tokenizer, options.data), 60 * options.minutes)
    model.save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)


def t5(texts, folder):
    sentencepiece.SentencePieceTrainer.train(
        input=texts, model_prefix=str(folder / "spiece"), vocab_size=SIZE, num_threads=1,
        minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    (folder / "spiece.vocab").unlink()
    tokenizer = T5Tokenizer.from_pretrained(folder)
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = T5Config(
        vocab_size=len(tokenizer), d_model=256, d_kv=64, d_ff=1024, num_heads=HEADS,
        num_layers=LAYERS, num_decoder_layers=LAYERS, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, initializer_factor=0.05, **ids,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    model.generation_config = GenerationConfig(**ids, **SEARCH, forced_eos_token_id=1)
    return tokenizer, model


def bart(texts, folder):
    learned = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    learned.train(texts, vocab_size=SIZE, special_tokens=special, show_progress=False)
    learned.save_model(str(folder))
    tokenizer = BartTokenizer.from_pretrained(folder)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = BartConfig(
        vocab_size=len(tokenizer), d_model=256, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=1024,
        decoder_ffn_dim=1024, max_position_embeddings=512, **ids,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        **ids, **SEARCH, forced_bos_token_id=0, forced_eos_token_id=2
    )
    return tokenizer, model


if __name__ == "__main__":
    main()
