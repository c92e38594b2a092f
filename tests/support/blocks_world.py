"""A small set of files and runs with the names in the pages, for their blocks."""

import shutil

import marian
import opennmt_folders
import tiny
import words
from blocks import all_blocks
from paths import DATA

import tfformer
from tfformer import Tokenizer
from tfformer.models import FAMILIES
from tfformer.text.vocabularies import LabelTable
from training.importers import huggingface
from training.importers.imported import write

LINES = 41
LABELS = ("news", "sport")
LIMITS = {"max_source_length": 37, "max_target_length": 13}
# {a file: the seed of its lines}; two files of one corpus have the same number of lines.
TEXTS = {
    f"{split}.{side}": seed
    for seed, (split, side) in enumerate(
        (split, side)
        for split in ("train", "val", "test", "text", "documents")
        for side in ("en", "de", "pt", "txt")
    )
} | {"stories.txt": 101, "all.txt": 102, "shards/1.txt": 103, "shards/2.txt": 104}
TEXTS |= {"distilled.de": 105, "turned.de": 106}
TEXTS |= {"data/diverse/source.txt": 107, "data/diverse/target.txt": 108}
# The translators' runs that pages name, and a run that copies.
TRANSLATORS = ("mine", "dates", "a", "b", "old", "pt-en", "reverse", "teacher")
TRANSLATORS += ("forward", "backward", "turned", "one", "two")
COPYING = "names"
# {a run of another family: (the family, fields of its configuration)}
OTHERS = {
    "stories": ("language-model", {}),
    "reads": ("masked-language-model", {}),
    "topics": ("classifier", {"num_labels": len(LABELS)}),
    "tags": ("tagger", {"num_labels": len(LABELS)}),
    "student": ("non-autoregressive", {}),
    "recurrent": ("recurrent", {}),
}
READING = ("reads", "topics", "tags")  # they write nothing, so they have no maximum target length
# {a file: (page, language and beginning of the block with its content)}
WRITTEN = {
    "mine.toml": ("docs/guide/recipes.md", "toml", "source = "),
    "reverse.py": ("docs/guide/recipes.md", "python", '"""Reverses'),
}
# Values for words in capitals, which a reader replaces.
PLACEHOLDERS = {
    "D": "exported/mine",
    "DIRECTORY": "exported/mine",
    "F": "train.en",
    "FILE": "picture.png",
    "FOLDER": "data/multi30k",
    "NAME": "mine",
    "NEW": "runs/new",
    "OUTPUT": "translated",
    "PRESET": "presets/mine",
    "PYTHON": "/usr/bin/python3",
    "RECIPE": "dates",
    "RUN": "runs/mine",
    "S": "S",
    "SOURCE": "train.en",
    "TARGET": "train.de",
    "TEXT": "a house",
}
# The runs that a page imports from the hub, and the small original used for each.
IMPORTED = {
    "flan": "t5/flan",
    "madlad": "t5/madlad",
    "cnn": "bart/bart",
    "gpt2": "decoders/gpt2",
    "nllb": "m2m100/nllb",
}
# Other values for some commands.
OWN_PLACEHOLDERS = {
    ("training.train", "FILE"): "mine.toml",
    ("training.import_hf", "FOLDER"): "opus-mt-en-de",
    ("training.import_marian", "FOLDER"): "opus-mt-en-de",
    ("training.import_opennmt", "FOLDER"): "model_dir",
    ("training.import_opennmt", "FILE"): "wmtende.vocab",
    ("training.shortlist", "FILE"): "mine.npz",
    ("export.translate_files", "FILE"): "text.en",
}


def with_files(command, folder):
    """The arguments of a command, with files for its words in capitals and its patterns."""
    found = []
    for word in command.arguments:
        name = word.removesuffix("...")
        name, equals, value = name.rpartition("=")
        if value.isupper() and value.isalpha():
            chosen = OWN_PLACEHOLDERS.get((command.module, value)) or PLACEHOLDERS[value]
            found.append(name + equals + chosen)
        elif "*" in word and " " not in word:
            files = sorted(path.relative_to(folder).as_posix() for path in folder.glob(word))
            assert files, f"{word} is no file: {command}"
            found += files
        else:
            found.append(word)
    return found


def make_texts(folder):
    """Writes everything except runs into a folder."""
    for name, seed in TEXTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = tiny.sentences(LINES, seed=seed)
        path.write_text("".join(f"{line}.\n" for line in lines), encoding="utf-8")
    for split in ("train", "test"):
        labels = (LABELS[n % len(LABELS)] for n in range(LINES))
        (folder / f"{split}.labels").write_text("".join(f"{label}\n" for label in labels))
    for split in ("train", "val", "test"):
        sentence = "".join(f"word {label}\n" for label in LABELS)
        (folder / f"{split}.conll").write_text(f"{sentence}\n" * LINES)
    (folder / "train.links").write_text("0-0\n" * LINES)
    (folder / "settings.py").write_text(
        "from training.recipe import Recipe\n\nRECIPE = Recipe(epochs=3)\n"
    )
    for name, (page, language, beginning) in WRITTEN.items():
        [block] = [
            block
            for block in all_blocks(language)
            if block.page == page and block.text.startswith(beginning)
        ]
        (folder / name).write_text(block.text, encoding="utf-8")
    shutil.copyfile(folder / "reverse.py", folder / "recipe.py")
    marian.copied("joint", folder / "opus-mt-en-de")
    opennmt_folders.copied("joint", folder / "model_dir")
    for name in ("vocab", "model"):
        shutil.copyfile(folder / "model_dir" / f"joint.{name}", folder / f"wmtende.{name}")


def make_runs(folder):
    """Writes the runs that pages name into `folder/runs`: with random weights, or imported."""
    runs = folder / "runs"
    for name, original in IMPORTED.items():
        write(huggingface.read(DATA / original), runs / name)

    def tokenizer():
        return Tokenizer.train(tiny.sentences(97), vocabulary_size=347)

    tiny.save_run(runs / COPYING, tokenizer, LIMITS, copy=True)
    known = tokenizer()
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    for name in TRANSLATORS:
        tfformer.save(runs / name, words.make_model(known, bonus=9, **sizes), known, LIMITS)
    labelled = Tokenizer(known.source, LabelTable(sorted(LABELS)))
    for name, (family, fields) in OTHERS.items():
        config = FAMILIES[family].configuration.preset(
            "test", known.source_vocabulary_size, **fields
        )
        limits = {key: LIMITS[key] for key in LIMITS if key != "max_target_length"}
        tfformer.save(
            runs / name,
            FAMILIES[family].model(config),
            labelled if "num_labels" in fields else known,
            limits if name in READING else LIMITS,
        )
