"""Language models get the same ids, and each gets its own figures."""

import random

import numpy as np
import pytest

from benchmarks import generation, language_model, work

LINES = [f"the {one} {two} on a mat" for one in ("cat", "dog") for two in ("sat", "ran", "lay")] * 7


@pytest.fixture(scope="module")
def tokenizer():
    return work.learn_vocabulary(work.Text("", LINES, LINES, []), 300)


def test_batches_hold_each_text_once_with_shifted_labels():
    ids = [[*range(4, 4 + length), 3] for length in (5, 1, 30, 12, 7, 8, 55, 90)] * 20
    for order in (None, random.Random(3)):
        seen = []
        for before, labels in language_model.batches(ids, order):
            assert before.shape == labels.shape and before.shape[1] in work.EDGES
            assert 0 < len(before) <= language_model.ROWS
            for row, label in zip(before, labels, strict=True):
                seen.append(label[label > 0].tolist())
                assert row[row > 0].tolist() == [2, *seen[-1][:-1]]
        longest = work.EDGES[-1]
        assert sorted(seen) == sorted(row[:longest] for row in ids)
    one, again, other = (
        [labels.tolist() for _, labels in language_model.batches(ids, random.Random(seed))]
        for seed in (3, 3, 4)
    )
    assert one == again != other


def test_prompt_text_tokenizes_to_its_ids(tokenizer):
    batches = work.make_prompts(LINES, tokenizer, 8, 3)
    assert [len(batch["texts"]) for batch in batches] == [8] * 4
    for batch in batches:
        assert {len(row) for row in batch["ids"]} == {3}
        found = tokenizer.encode_source(batch["texts"]).to_list()
        assert found == [[*row, 3] for row in batch["ids"]]
    with pytest.raises(ValueError, match="prompts must be at least 100, got 42"):
        work.make_prompts(LINES, tokenizer, 100, 3)


def test_tokens_per_second_and_ratios_by_hand():
    rows = [
        {"system": name, "batch": 8, "threads": threads, "best": best, "foreign": foreign,
         "ms_per_sentence": time}
        for name, threads, best, time, foreign in [
            ("tfformer", 1, False, 30.0, 0.0), ("tfformer", None, True, 20.0, 0.0),
            ("gpt2", 2, True, 50.0, 0.2)]
    ]  # fmt: skip
    lines = [line.split(" | ") for line in generation.table(rows, steps=64)][2:]
    assert lines == [
        ["| 8", "tfformer", "default", "3,200", "2.50", "", "0.00 |"],
        ["| 8", "gpt2", "2", "1,280", "1.00", "", "0.20 (!) |"],
    ]


@pytest.mark.slow
def test_generation_end_to_end(monkeypatch, capsys):
    monkeypatch.setattr("tfformer.service.generator_service.SIGNATURES", _few())
    arguments = ["--size", "test", "--steps", "5", "--prompt", "3", "--rounds", "1"]
    assert generation.main([*arguments, "--batch", "2", "--threads", "1"]) == 0
    output = capsys.readouterr().out
    names = [line.split(" | ")[1] for line in output.splitlines() if line.startswith("| 2 |")]
    assert sorted(names) == ["gpt2", "gpt2-xla", "tfformer", "tfformer-bfloat16"]


def _few():
    from tfformer.service.language_model_signatures import beam_search, serving_default

    return serving_default, beam_search


@pytest.mark.slow
def test_training_end_to_end_with_as_many_parameters_as_the_peer(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("\n".join(LINES) + "\n")
    arguments = ["--text", str(text), "--val-text", str(text), "--size", "test", "--epochs", "3"]
    assert language_model.main([*arguments, "--warmup-steps", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()[4:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert len(rows) == 3 and rows[1][1] == rows[2][1] != rows[0][1]
    for row in rows:
        perplexities = [float(value) for value in row[2].split()]
        assert len(perplexities) == 3 and float(row[3]) == min(perplexities)
        assert np.all(np.diff(perplexities) < 0)
