"""A harder test set has words that training has not seen, and never overwrites a corpus."""

from pathlib import Path

from benchmarks.learning.harder import harder, main, words
from training.data.reader import Pair

SOURCES = ["a dog", "A cat, a dog", "a dog runs", "cat", "the dog swims", "the cat"]


def test_each_hard_source_has_a_word_missing_from_the_rest():
    pairs = [Pair(text, "x") for text in SOURCES]
    assert harder(pairs, 7) == [2, 4]
    [chosen] = harder(pairs, 1)
    left = {word for n, pair in enumerate(pairs) if n != chosen for word in words(pair.source)}
    assert words(pairs[chosen].source) - left


def test_command_writes_the_hard_and_train_parts(tmp_path, capsys):
    for name in ("train.en", "train.de"):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in SOURCES))
    files = [f"--source={tmp_path}/train.en", f"--target={tmp_path}/train.de"]
    assert main([*files, f"--out={tmp_path}/out"]) == 0
    for side in ("en", "de"):
        parts = [Path(tmp_path, "out", f"{part}.{side}").read_text() for part in ("hard", "train")]
        assert [part.splitlines() for part in parts] == [
            ["a dog runs", "the dog swims"],
            ["a dog", "A cat, a dog", "cat", "the cat"],
        ]
    assert main([*files, f"--out={tmp_path}"]) == 2
    assert "--out must be another folder" in capsys.readouterr().err
    assert (tmp_path / "train.en").read_text().count("\n") == len(SOURCES)
