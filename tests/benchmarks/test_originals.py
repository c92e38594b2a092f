"""The benchmark gives an export and its original the same lines."""

import hub
import pytest

from benchmarks import originals
from tfformer.service.keras_hub import KerasHubTranslator


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{text}\n" for text in hub.TEXTS[:5]))
    return path


@pytest.mark.slow
def test_a_model_of_keras_hub_end_to_end(lines, tmp_path, capsys):
    model = hub.t5()
    model.save_to_preset(str(tmp_path / "preset"))
    limits = {"max_source_length": 37, "max_target_length": 13, "beam_width": 1}
    KerasHubTranslator(model, **limits).save(str(tmp_path / "t5" / "1"), ["serving_default"])
    code = originals.main(
        [
            f"keras_hub={tmp_path / 'preset'}", str(tmp_path / "t5"), "--source", str(lines),
            "--beam-width", "1", "--max-length", "13", "--batch", "1", "2", "--rounds", "1",
        ]
    )  # fmt: skip
    output = capsys.readouterr().out
    assert code == 0
    assert "KerasHub 0." in output and "| batch | keras_hub, ms a sentence |" in output
    rows = [line.split("|")[1:-1] for line in output.splitlines() if line.startswith("| ")][1:]
    assert [int(row[0]) for row in rows] == [1, 2]
    for row in rows:
        theirs, ours, ratio = map(float, row[1:4])
        assert theirs > 0 and ours > 0 and ratio > 0
        assert int(row[4]) == 5  # in greedy search, both give the same text
