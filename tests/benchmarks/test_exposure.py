"""Correct tokens by position, counted as BLEU counts, after own and after true words."""

import numpy as np
import pytest

import tfformer
from benchmarks import exposure
from tfformer import Tokenizer, Transformer, TransformerConfig


def test_repeated_tokens_count_up_to_their_reference_count():
    reference = np.array([5, 6, 6, 7, 3, 0])
    assert exposure.right(np.array([6, 6, 6, 9, 5, 3]), reference) == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert exposure.right(np.array([3, 0]), reference) == []


def test_shares_are_computed_per_fifth_of_each_sentence():
    long, short = [True] * 5 + [False] * 5, [True]
    assert exposure.by_parts([long, short]) == [1, 1, 0.5, 0, 0]
    assert exposure.by_parts([long]) == [1, 1, 0.5, 0, 0]
    assert exposure.by_parts([]) == [0] * 5


@pytest.fixture
def run(tmp_path):
    tokenizer = Tokenizer.train(["ein rotes Haus", "a red house"], vocabulary_size=300)
    config = TransformerConfig.preset("test", tokenizer.source_vocabulary_size)
    tfformer.save(tmp_path / "run", Transformer(config), tokenizer, {"max_target_length": 11})
    (tmp_path / "a").write_text("ein Haus\nrotes Haus\n")
    (tmp_path / "b").write_text("a house\nred house\n")
    return tmp_path


@pytest.mark.slow
def test_forced_predictions_equal_the_model_prefix_by_prefix(run):
    translator = tfformer.load_translator(run / "run")
    labels = translator.tokenizer.encode_target(["a house", "red"]).to_tensor()
    found = exposure.forced(translator, ["ein Haus", "rotes"], labels).numpy()
    for b, source in enumerate(("ein Haus", "rotes")):
        source_ids = translator.tokenizer.encode_source([source]).to_tensor()
        for t, label in enumerate(labels[b].numpy()):
            prefix = np.concatenate([[2], labels[b, :t].numpy()])[None]
            logits = translator.logits({"source_ids": source_ids, "target_ids": prefix})
            expected = logits[0, -1, 1:].numpy().argmax() + 1
            assert found[b, t] == (expected if label else 0)


@pytest.mark.slow
def test_command_prints_both_rows_and_writes_the_picture(run, capsys):
    files = ["--source", str(run / "a"), "--target", str(run / "b")]
    picture = ["--picture", str(run / "picture.png")]
    assert exposure.main([f"it={run / 'run'}", *files, *picture]) == 0
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert [line.split(" | ")[0] for line in lines] == [
        "| it, its own words before", "| it, true words before"
    ]  # fmt: skip
    assert (run / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        exposure.main([str(run / "run"), *files])
    assert "NAME=RUN must be different names" in capsys.readouterr().err
    assert exposure.main([f"it={run / 'none'}", *files]) == 1


@pytest.mark.slow
def test_seeds_of_a_name_give_mean_and_deviation(run, capsys, monkeypatch):
    found = iter([[[0.5] * 5, [0.75] * 5], [[0.25] * 5, [0.75] * 5]])
    monkeypatch.setattr(exposure, "shares", lambda translator, pairs: next(found))
    files = ["--source", str(run / "a"), "--target", str(run / "b")]
    assert exposure.main([f"it={run / 'run'},{run / 'run'}", *files]) == 0
    own, true = capsys.readouterr().out.splitlines()[-2:]
    assert own == "| it, its own words before" + " | 37.5 ± 17.7" * 5 + " |"
    assert true == "| it, true words before" + " | 75.0 ± 0.0" * 5 + " |"
