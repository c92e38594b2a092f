"""The benchmark of training's input shows that its memory does not grow with the corpus."""

import pytest

from benchmarks import streaming


@pytest.mark.nightly
def test_memory_of_the_input_does_not_grow_with_the_corpus(tmp_path, capsys):
    arguments = ["--pairs", "10000", "150000", "--batches", "200", "--folder", str(tmp_path)]
    assert streaming.main(arguments) == 0
    head, *rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    small, large = (
        {k: float(v.replace(",", "")) for k, v in zip(head, row, strict=True)} for row in rows
    )
    assert large["pairs"] == 15 * small["pairs"]
    assert large["batches an epoch"] > 7 * small["batches an epoch"]
    # The index takes 5 MiB more, the text would take 20; two equal processes differ by up to 9.
    for phase in ("corpus mib", "batches mib"):
        assert 0 < large[phase] < small[phase] + 14
    assert not list(tmp_path.iterdir())
