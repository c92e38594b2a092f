"""Each imported model is fine-tuned: 500 steps lower the loss, a stopped training resumes bit
for bit, and the result is exported."""

import random

import labelled
import pytest
from m2m100 import FOLDERS as MULTILINGUAL
from stopped import assert_goes_on
from stored import Stored

from export import saved_model
from training import facts, import_hf, train
from training.data.batches import Batches
from training.data.packed_text import JoinedBatches
from training.report.history import read_history

# At least one of each `model_type`.
TRANSLATORS = [
    "marian/joint", "m2m100/m2m", "m2m100/nllb", "m2m100/mbart", "t5/t5", "t5/flan", "t5/mt5",
    "t5/umt5", "bart/bart", "bart/pegasus",
]  # fmt: skip
GENERATORS = [f"decoders/{name}" for name in ("gpt2", "llama", "qwen2", "qwen3", "wide", "llama2")]
# A new classifier or tagger has its own labels, so it begins with the encoder.
ENCODERS = {
    "bert/distilbert-classifier": "classifier", "bert/roberta-tagger": "tagger",
    "bert/bert-span": "span", "bert/xlm-roberta-masked": "masked-language-model",
}  # fmt: skip
JOINED = ("language-model", "masked-language-model")  # families that read plain text
WORDS = {
    "the": "die", "red": "rote", "old": "alte", "small": "kleine", "quiet": "stille",
    "house": "Schule", "tree": "Eiche", "street": "Straße", "lake": "See", "sees": "sieht",
}  # fmt: skip
COUNT = 3000
OPTIONS = "--epochs 2 --batch-tokens 150 --max-tokens 60 --warmup-steps 20".split()
OPTIONS += "--learning-rate-scale 0.2 --checkpoint-steps 50 --cores 1".split()


def sentences():
    rng = random.Random(5)
    return [rng.choices(list(WORDS), k=rng.randint(2, 6)) for _ in range(COUNT)]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def corpus(name, folder):
    """The options that name the family and its corpus."""
    texts = [" ".join(words) for words in sentences()]
    if name in TRANSLATORS:
        answers = [" ".join(WORDS[word] for word in words) for words in sentences()]
        target = write(folder / "target.txt", answers)
        return ["--source", write(folder / "source.txt", texts), "--target", target]
    family = ENCODERS.get(name, "language-model")
    if family in JOINED:
        return ["--family", family, "--text", write(folder / "texts.txt", texts)]
    pairs = {
        "classifier": labelled.classified(COUNT, 3),
        "tagger": labelled.tagged(COUNT, 3),
        "span": facts.pairs("train", COUNT),
    }[family]
    return ["--family", family, "--source", write(folder / "pairs.tsv", map("\t".join, pairs))]


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*TRANSLATORS, *GENERATORS, *ENCODERS])
def test_imported_model_is_fine_tuned_resumed_and_exported(name, tmp_path):
    begun, whole, run = tmp_path / "begun", tmp_path / "whole", tmp_path / "run"
    language = MULTILINGUAL.get(name.removeprefix("m2m100/"))
    options = ["--target-language", language] if language else []
    assert import_hf.main([str(Stored().folder(name)), str(begun), *options]) == 0
    begin = "--init-encoder" if ENCODERS.get(name) in ("classifier", "tagger") else "--init"
    command = [*corpus(name, tmp_path), begin, str(begun), *OPTIONS, "--run"]
    assert train.main([*command, str(whole)]) == 0
    history = read_history(whole)
    assert history[-1]["step"] >= 500
    assert history[-1]["loss"] < history[0]["loss"] - 0.05
    batches = JoinedBatches if set(JOINED) & set(command) else Batches
    assert_goes_on([*command, str(run)], run, whole, batches)
    assert saved_model.main([str(run), str(tmp_path / "exported"), "--quick"]) == 0
