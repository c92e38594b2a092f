"""BART and Pegasus of Hugging Face: small folders with the original's results.

    PYTHON tests/support/bart_original.py write tests/data/bart
    PYTHON tests/support/bart_original.py answer FOLDER < lines.txt > answers.json

PYTHON has `torch`, `transformers`, `sentencepiece` and `safetensors`; it imports nothing of this
project. The small models are trained briefly on artificial sentences, so that their translations
end and differ.
"""

import shutil

import marian_original as marian
import t5_original as t5
import tokenizers
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    GenerationConfig,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PegasusTokenizer,
)

OFFSET = 5  # of Pegasus's ids, so that the models are small
SOURCES = [
    *marian.SOURCES, "It's  two\n\nlines, isn't it?", " tabs\tand é漢字😀 ", "the old tree", "42",
]  # fmt: skip
# Each is {options of the configuration}, and what is written how.
FOLDERS = {
    "bart": dict(
        bart=True, config=dict(encoder_layers=2, decoder_layers=1),
        generation=dict(
            num_beams=3, length_penalty=2.0, max_length=42, min_length=6, no_repeat_ngram_size=3,
            early_stopping=True, forced_bos_token_id=0,
        ),
    ),
    "bart-scaled": dict(
        bart=True, json=True, file="old",
        config=dict(
            encoder_layers=1, decoder_layers=1, scale_embedding=True, activation_function="relu",
            encoder_ffn_dim=13, decoder_ffn_dim=19,
        ),
        generation=dict(num_beams=2, max_length=38),
    ),
    "pegasus": dict(
        config=dict(encoder_layers=1, decoder_layers=1, scale_embedding=True),
        generation=dict(num_beams=4, max_length=36, length_penalty=0.6),
    ),
    "pegasus-json": dict(
        json=True, file="parts",
        config=dict(encoder_layers=2, decoder_layers=1, activation_function="relu"),
        generation=dict(num_beams=2, max_new_tokens=35),
    ),
}  # fmt: skip


def write(folder, seed, config, generation, bart=False, json=False, file=""):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = (byte_pairs if bart else sentence_pieces)(folder)
    torch.manual_seed(seed)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    ids["decoder_start_token_id"] = ids["eos_token_id" if bart else "pad_token_id"]
    ids |= {"bos_token_id": tokenizer.bos_token_id} if bart else {}
    options = dict(
        vocab_size=len(tokenizer), d_model=22, encoder_attention_heads=2, init_std=0.2,
        decoder_attention_heads=2, encoder_ffn_dim=17, decoder_ffn_dim=17, dropout=0.0,
        max_position_embeddings=64, **ids,
    )  # fmt: skip
    kinds = (PegasusConfig, PegasusForConditionalGeneration)
    kinds = (BartConfig, BartForConditionalGeneration) if bart else kinds
    model = kinds[1](kinds[0](**{**options, **config}))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".bias") or "norm" in name:
                weight += 0.2 * torch.randn_like(weight)
        model.final_logits_bias += 0.3 * torch.randn_like(model.final_logits_bias)
    forced = dict(forced_eos_token_id=ids["eos_token_id"])
    model.generation_config = GenerationConfig(**ids, **forced, **generation)
    t5.train(model, tokenizer, [""])
    t5.save(model, tokenizer, folder, file, json)
    t5.answer(folder, SOURCES)


def byte_pairs(folder):
    texts = [*marian.sentences(dict.keys), *marian.sentences(dict.values), *SOURCES]
    learned = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    learned.train_from_iterator(texts, vocab_size=330, special_tokens=special, show_progress=False)
    learned.save_model(str(folder))
    return BartTokenizer.from_pretrained(folder)


def sentence_pieces(folder):
    t5.write_vocabulary(folder, codes=False, bytes=False)
    return PegasusTokenizer.from_pretrained(folder, offset=OFFSET)


if __name__ == "__main__":
    marian.main(FOLDERS, write, t5.load)
