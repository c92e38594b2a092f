"""Small corpora of labelled texts, made from a seed, and a training of them."""

import random

KINDS = {
    "colour": "red green blue".split(),
    "animal": "cat dog horse".split(),
    "fruit salad": "apple pear plum".split(),
}
FILLING = "the a we saw and with of today".split()
SIZES = [
    "--preset", "test", "--num-layers", "1", "--vocabulary-size", "300",
    "--vocabulary-kind", "char",
    "--max-tokens", "48", "--batch-tokens", "256", "--epochs", "2", "--cores", "1",
    "--warmup-steps", "5", "--checkpoint-steps", "3", "--optimizer", "adam",
]  # fmt: skip


def classified(count, seed):
    """(text, label): one word of each text determines its label."""
    chosen = random.Random(seed)
    for _ in range(count):
        label = chosen.choice(sorted(KINDS))
        words = chosen.choices(FILLING, k=chosen.randint(1, 7))
        words.insert(chosen.randint(0, len(words)), chosen.choice(KINDS[label]))
        yield " ".join(words), label


def tagged(count, seed):
    """(text, labels): each word has its kind; some words have one letter or no piece."""
    chosen = random.Random(seed)
    kinds = {word: f"B-{kind[:2]}" for kind, words in KINDS.items() for word in words}
    words = [*kinds, *FILLING, "\u200b", "größer"]
    for _ in range(count):
        text = chosen.choices(words, k=chosen.randint(1, 7))
        yield "  ".join(text), " ".join(kinds.get(word, "O") for word in text)


def write(folder, name, pairs):
    """Two files of a corpus, and the same pairs as a TSV."""
    sides = list(zip(*pairs, strict=True))
    for side, suffix in zip(sides, ("txt", "labels"), strict=True):
        (folder / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in side))
    lines = ("\t".join(pair) + "\n" for pair in zip(*sides, strict=True))
    (folder / f"{name}.tsv").write_text("".join(lines))


def command(folder, family, run, *options):
    """The arguments of a training on the files of a folder."""
    words = ["--family", family, "--run", str(run)]
    for split, before in (("train", "--"), ("val", "--val-")):
        words += [f"{before}source", str(folder / f"{split}.txt")]
        words += [f"{before}labels", str(folder / f"{split}.labels")]
    return [*words, *SIZES, *options]
