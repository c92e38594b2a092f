"""The stored folders of GPT-2, Llama and their relatives, with the results of the originals."""

from stored import Stored

from tfformer.config import EOS

FOLDERS = ("gpt2", "gpt2-inner", "llama", "qwen2", "wide", "biased", "llama2", "tinyllama", "qwen3")
SENTENCEPIECE = ("llama2", "tinyllama")
NEW = 24  # tokens of a stored continuation


STORED = Stored("decoders")
folder, answers, logits, copied = STORED.folder, STORED.answers, STORED.logits, STORED.copied


def our_ids(ids, eos):
    """The original's ids as our ids; `eos` is the original's."""
    return [EOS if n == eos else 4 + n for n in ids]
