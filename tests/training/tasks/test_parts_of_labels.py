"""Batches of labels in parts give the training of whole batches."""

import csv

import labelled
import pytest
from tiers import slow_or_nightly

from training import facts, train


def files_of(folder, family):
    """The options that name a small corpus of a family."""
    for split, count in (("train", 31), ("val", 7)):
        if family == "span":
            lines = ("\t".join(one) + "\n" for one in facts.pairs(split, count))
            (folder / f"{split}.tsv").write_text("".join(lines))
        else:
            labelled.write(folder, split, labelled.tagged(count, count))
            text = (folder / f"{split}.txt").read_text()
            if family != "tagger":
                (folder / f"{split}.tsv").write_text(
                    "".join(
                        f"{n % 3}{line}\tl{n % 3}\n" for n, line in enumerate(text.splitlines())
                    )
                )
    if family == "masked-language-model":
        return ["--text", str(folder / "train.txt"), "--val-text", str(folder / "val.txt")]
    names = [str(folder / f"{split}.tsv") for split in ("train", "val")]
    return ["--source", names[0], "--val-source", names[1]]


@pytest.mark.parametrize(
    "family",
    slow_or_nightly(
        ["span", "tagger", "classifier", "multi-label", "masked-language-model"],
        ["tagger", "masked-language-model"],
    ),
)
def test_batch_in_parts_gives_the_same_loss(family, tmp_path):
    """The losses of two epochs without dropout are equal, except for rounding."""
    losses = []
    files = files_of(tmp_path, family)
    more = ["--multi-label", "--piece-length", "9"] if family == "multi-label" else []
    name = "classifier" if family == "multi-label" else family
    for number, parts in enumerate(([], ["--accumulate", "2", "--cores", "2"])):
        run = tmp_path / f"run{number}"
        options = ["--max-tokens", "256", "--batch-tokens", "1024", "--dropout", "0", *more]
        words = ["--family", name, "--run", str(run), *files, *labelled.SIZES, *options]
        assert train.main([*words, *parts]) == 0
        with (run / "log.csv").open() as file:
            rows = list(csv.DictReader(file))
        losses.append([float(row[key]) for row in rows for key in ("loss", "val_loss")])
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)
