"""The hypothesis nearest to the reference is chosen, and a corpus is never overwritten."""

import pytest
import tensorflow as tf
import tiny

from benchmarks.learning.nearest import main
from tfformer import load_translator
from training.methods.reward import sentence_bleu

FAR = "nothing like it"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny.save_small_run(tmp_path_factory.mktemp("run") / "run")


@pytest.mark.slow
def test_hypothesis_with_the_highest_bleu_is_chosen(run, tmp_path, capsys):
    """By hand: the BLEU of each hypothesis of each text."""
    sources = tiny.sentences(13, seed=3)
    translator = load_translator(run, beam_width=3)
    references, expected, places = [], [], set()
    for n, source in enumerate(sources):
        answer = translator.functions["beam_search"](tf.constant([source]))
        texts = [" ".join(text.decode().split()) for text in answer["translations"][0].numpy()]
        # Each position in the beam is the nearest to some reference; for some references all are
        # equal.
        references.append(texts[n % 3] if n % 4 else FAR)
        scores = [sentence_bleu(text, references[-1]) for text in texts]
        places.add(scores.index(max(scores)))
        expected.append(texts[scores.index(max(scores))])
    assert places == {0, 1, 2}
    for side, texts in (("en", sources), ("de", references)):
        (tmp_path / f"train.{side}").write_text("".join(f"{text}\n" for text in texts))
    files = [f"--source={tmp_path}/train.en", f"--target={tmp_path}/train.de"]
    out = tmp_path / "out"
    more = ["--hypotheses=3", "--batch-size=5"]
    assert main([str(run), *files, f"--out={out}", *more]) == 0
    pairs = [*zip(sources, references, strict=True), *zip(sources, expected, strict=True)]
    written = [(out / f"{side}.txt").read_text().splitlines() for side in ("source", "target")]
    assert [*zip(*written, strict=True)] == [*dict.fromkeys(pairs)]
    assert "pairs, made of 13" in capsys.readouterr().out
    # Existing files are not overwritten.
    before = (out / "source.txt").read_bytes()
    assert main([str(run), *files, f"--out={out}"]) == 1
    assert f"--out must not exist yet, got {out}" in capsys.readouterr().err
    assert (out / "source.txt").read_bytes() == before
