"""The benchmarks give all systems the same work and report all measured times."""

import json
import math
import statistics

import numpy as np
import pytest
import tiny
from paths import ROOT

from benchmarks import (
    decoding,
    serving,
    training,
    work,
)
from benchmarks.peers import protocol
from training.step import machine

TEXT = work.Text(
    "toy",
    ["the cat sat", "a dog ran"] * 20,
    ["die Katze", "ein Hund"] * 20,
    ["the cat sat on", "a"],
)


@pytest.fixture(scope="module")
def tokenizer():
    return work.learn_vocabulary(TEXT, 400)


def test_batches_hold_the_texts_in_order_with_their_ids(tokenizer):
    texts = [f"{n} cat" for n in range(64)]
    for batch_size, count in ((1, 16), (8, 4), (32, 2)):
        batches = work.make_batches(texts, tokenizer, batch_size)
        assert [len(batch["texts"]) for batch in batches] == [batch_size] * count
        assert [text for batch in batches for text in batch["texts"]] == texts[: batch_size * count]
        for batch in batches:
            assert batch["ids"] == tokenizer.encode_source(batch["texts"]).to_list()
            assert all(row[-1] == 3 for row in batch["ids"])


def test_ratios_are_to_the_best_time_of_the_other_system(capsys):
    def row(system, threads, ms, best, foreign=0.0):
        names = ["size", "batch", "system", "threads", "ms_per_sentence", "best", "foreign"]
        values = ["S", 8, system, threads, ms, best, foreign]
        return {**dict(zip(names, values, strict=True)), "least": ms, "greatest": ms}

    table = decoding.markdown(
        [
            row("tfformer", 1, 30.0, True),
            row("tfformer", None, 40.0, False, foreign=0.25),
            row("ctranslate2-float32", 1, 20.0, True),
            row("ctranslate2-float32", 2, 60.0, False),
        ]
    ).splitlines()
    assert len(table) == 5  # two header lines, and no number of threads that was slower
    assert table[2] == "| 8 | tfformer | 1 | 30.00 | 30.00 to 30.00 | 1.50 |  | 0.00 |"
    assert table[3].startswith("| 8 | tfformer | default | 40.00 |")
    assert table[3].endswith("| 2.00 |  | 0.25 (!) |")


@pytest.mark.slow
def test_decoding_end_to_end(few_signatures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(decoding, "BEAM_WIDTH", 2)
    out = tmp_path / "new" / "decoding.json"
    code = decoding.main(
        [
            "--size", "test", "--rounds", "2", "--batch", "1", "2", "--threads", "1",
            "--steps", "5", "--systems", "tfformer", "marian", "--python", "marian=/no/such/python",
            "--out", str(out),
        ]
    )  # fmt: skip
    output, progress = capsys.readouterr()
    assert code == 0
    assert "skipped: marian: /no/such/python cannot be started" in progress
    assert "| 2 | tfformer | " in output
    record = json.loads(out.read_text())
    assert record["machine"]["cores"] >= 1 and record["text"].startswith("dates")
    measured = [(row["batch"], row["threads"]) for row in record["rows"]]
    assert sorted(measured, key=str) == [(1, 1), (1, None), (2, 1), (2, None)]
    for row in record["rows"]:
        assert row["system"] == "tfformer" and "TensorFlow" in row["version"]
        assert len(row["rounds"]) == 2 and row["foreign"] >= 0
        assert 0 < row["least"] <= row["ms_per_sentence"] <= row["greatest"]
        assert row["ms_per_sentence"] == statistics.median(row["rounds"])
    for batch in (1, 2):
        own = [row for row in record["rows"] if row["batch"] == batch]
        [best] = [row for row in own if row["best"]]
        assert best["ms_per_sentence"] == min(row["ms_per_sentence"] for row in own)


@pytest.mark.slow
def test_training_end_to_end(tmp_path, capsys):
    out = tmp_path / "new" / "training.json"
    arguments = [
        "--size", "test", "--rounds", "3", "--batches", "2",
        "--systems", "tfformer", "tfformer-plain", "keras_hub", "torch",
        "--python", "torch=/no/such/python", "--out", str(out), "--beside", str(ROOT),
    ]  # fmt: skip
    assert training.main(arguments) == 0
    output, progress = capsys.readouterr()
    assert "skipped: torch: /no/such/python cannot be started" in progress
    record = json.loads(out.read_text())
    rows = {row["system"]: row for row in record["rows"]}
    assert set(rows) == {"tfformer", "tfformer-plain", "keras_hub", "beside-1"}
    assert record["beside"] == {"beside-1": str(ROOT)}
    for row in rows.values():
        assert len(row["rounds"]) == 3
        assert 0 < row["least"] <= row["tokens_per_second"] <= row["greatest"]
        assert row["tokens_per_second"] == statistics.median(row["rounds"])
    of_hub, of_beside = (
        rows["tfformer"]["tokens_per_second"] / rows[name]["tokens_per_second"]
        for name in ("keras_hub", "beside-1")
    )
    ratios = f"| {of_hub:.2f} | {of_beside:.2f} |"
    assert ratios in next(line for line in output.splitlines() if "| tfformer |" in line)
    assert rows["tfformer"]["version"].endswith(
        f", {math.gcd(64, min(machine.cores(), 8))} parts a batch"
    )
    assert rows["tfformer-plain"]["version"].endswith(", 1 parts a batch")
    assert record["pipeline"] > 0
    assert f"The input pipeline alone: {record['pipeline']:,.0f} tokens/s" in output


def test_training_batches_are_deterministic_and_have_few_lengths():
    text = work.read_text()
    tokenizer = work.learn_vocabulary(text, 500)
    batches = work.make_training_batches(text, tokenizer, 5, rows=16)
    assert batches == work.make_training_batches(text, tokenizer, 5, rows=16)
    for batch in batches:
        assert len(batch["source"]) == len(batch["target"]) == 16
        source, target, labels = map(np.array, protocol.training_ids(batch))
        assert source.shape == target.shape == labels.shape == (16, batch["length"])
        assert batch["length"] in work.EDGES
        assert [row[row != 0].tolist() for row in target] == [[2, *y[:-1]] for y in batch["target"]]
        assert [row[row != 0].tolist() for row in labels] == batch["target"]
    with pytest.raises(ValueError, match="batches must be at most .*, got 100000"):
        work.make_training_batches(text, tokenizer, 100_000)


@pytest.mark.slow
def test_serving_end_to_end(small_model, tmp_path, capsys):
    source, batching = tmp_path / "source.txt", tmp_path / "batching_parameters.txt"
    source.write_text("".join(f"{text}\n\n" for text in tiny.sentences(23)))
    batching.write_text("max_batch_size { value: 8 }\nbatch_timeout_micros { value: 1000 }\n")
    out = tmp_path / "new" / "serving.json"
    code = serving.main(
        [
            str(small_model), "--source", str(source), "--clients", "3", "--seconds", "1",
            "--batching", str(batching), "--out", str(out),
        ]
    )  # fmt: skip
    output, error = capsys.readouterr()
    assert code == 0, error
    record = json.loads(out.read_text())
    assert record["text"] == "23 lines of source.txt" and record["language"] == "gRPC"
    assert record["batching"]["max_batch_size"] == 8
    assert "TensorFlow" in record["versions"] and record["machine"]["cores"] >= 1
    assert [(row["clients"], row["batching"]) for row in record["rows"]] == [(3, "off"), (3, "on")]
    for row in record["rows"]:
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] < 30_000
        assert row["errors"] == row["different"] == 0 and row["first_error"] is None
        assert row["answers"] >= row["requests_a_second"] > 3
        assert f"| 3 | {row['batching']} | {row['requests_a_second']:.1f} | " in output
