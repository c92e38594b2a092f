"""The benchmark of training's input: its memory is not that of the corpus."""

import concurrent.futures
import json
import tempfile

import forks
import pytest

from benchmarks import streaming


class Forked(concurrent.futures.Executor):
    """Phases of `streaming` in a process each, which does not import TensorFlow anew."""

    def __init__(self, *_):
        """The arguments are those of a pool of processes, and not needed."""

    def submit(self, phase, *arguments):
        answer = concurrent.futures.Future()
        with tempfile.NamedTemporaryFile("r") as file:
            done = forks.run(
                "import json\n"
                "from pathlib import Path, PosixPath\n"
                "from benchmarks import streaming\n"
                f"row = streaming.{phase.__name__}{arguments}\n"
                f"Path({file.name!r}).write_text(json.dumps(row))\n"
            )
            assert done.returncode == 0, done.stderr
            answer.set_result(json.load(file))
        return answer


@pytest.mark.slow
def test_memory_of_the_input_does_not_grow_with_the_corpus(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", Forked)
    arguments = ["--pairs", "10000", "150000", "--batches", "200", "--folder", str(tmp_path)]
    assert streaming.main(arguments) == 0
    head, *rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    small, large = (
        {k: float(v.replace(",", "")) for k, v in zip(head, row, strict=True)} for row in rows
    )
    assert large["pairs"] == 15 * small["pairs"]
    assert large["batches an epoch"] > 7 * small["batches an epoch"]
    # Its index is 5 MiB more, its text would be 20; two processes of one size differ by up to 9.
    for phase in ("corpus mib", "batches mib"):
        assert 0 < large[phase] < small[phase] + 14
    assert not list(tmp_path.iterdir())
