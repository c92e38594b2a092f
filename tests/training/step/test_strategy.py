"""The weights of a training do not depend on its devices or on interruptions."""

import json
import random
import re
import signal

import processes
import pytest
from tiers import slow_or_nightly
from workers import (
    KILLS,
    Workers,
    alone,
    assert_close_weights,
    assert_same_state,
    last_state,
    train,
)

from training import train as command
from training.step.strategy import Strategy
from training.step.worker import is_chief

# One epoch of 16 steps with clipped gradients; batches with different numbers of tokens. The seed
# is not 0, because with it an inner activation came so close to 0 on one machine that rounding
# decided whether ReLU let it through, and a weight changed by a thousandth.
EXACT = ("--epochs", "1", "--clip-norm", "0.3", "--seed", "1")


# ---------------------------------------------------------------- which process is the chief


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "chief"),
    [
        ({"worker": ["a:1", "b:1"]}, "worker", 0, True),
        ({"worker": ["a:1", "b:1"]}, "worker", 1, False),
        ({"chief": ["c:1"], "worker": ["a:1"]}, "chief", 0, True),
        ({"chief": ["c:1"], "worker": ["a:1"]}, "worker", 0, False),
    ],
)
def test_one_worker_is_the_chief(monkeypatch, cluster, kind, index, chief):
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert is_chief("multiworker") is chief
    assert is_chief("none") and is_chief("mirrored")


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{}",
        "workers",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}',
    ],
)
def test_invalid_tf_config_gives_one_line_error(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="TF_CONFIG") as error:
        is_chief("multiworker")
    assert "\n" not in str(error.value) and repr(config) in str(error.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--strategy", "multiworker"], "TF_CONFIG"),
        (["--strategy", "tpu"], "strategy tpu needs a TPU"),
        (["--strategy", "many"], "strategy must be one of"),
        (["--accumulate", "0"], "accumulate must be at least 1"),
    ],
)
def test_unavailable_or_invalid_strategy_is_refused(tmp_path, options, named):
    run = tmp_path / "run"
    done = processes.train(
        ["dates", "--run", str(run), *options], {"TF_CONFIG": None, "TPU_NAME": None}
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert named in done.stderr.strip().splitlines()[-1]
    assert not run.exists()


def test_strategy_of_one_process_is_its_own_chief():
    strategy = Strategy()
    assert strategy.is_chief and strategy.replicas == 1
    assert strategy.chiefs(0.1) == 0.1
    assert strategy.any(None) is False and strategy.any(signal.SIGTERM) is True
    done = []
    strategy.chief_first(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(OSError, match="full"):
        strategy.chief_first(lambda: (_ for _ in ()).throw(OSError("full")))


def test_only_the_first_of_several_workers_needs_the_corpus_and_other_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "_begin", lambda *_: 7)
    words = ["--source", "only-there", "--target", "only-there", "--init", "only-there"]
    words += ["--run", str(tmp_path / "run"), "--strategy", "multiworker"]
    assert command.main(words) == 1
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert command.main(words) == 7


# ---------------------------------------------------------------- the same weights


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """An epoch without dropout, on one device, with whole batches."""
    run = tmp_path_factory.mktemp("one_process") / "run"
    train(run, *EXACT, DROPOUT="0")
    return run


@pytest.mark.slow
def test_two_devices_train_to_the_weights_of_one(one_process, tmp_path):
    train(tmp_path / "run", *EXACT, "--strategy", "mirrored", DROPOUT="0", DEVICES="2")
    assert_close_weights(tmp_path / "run", one_process, 1)


@pytest.mark.nightly
def test_accumulation_trains_to_the_same_weights_with_adam(tmp_path):
    for name, parts in (("whole", "1"), ("run", "3")):
        train(tmp_path / name, *EXACT, "--accumulate", parts, DROPOUT="0", OPTIMIZER="adam")
    assert_close_weights(tmp_path / "run", tmp_path / "whole", 1)


@pytest.mark.slow
def test_two_workers_train_to_the_weights_of_one_process(one_process, tmp_path):
    with Workers(tmp_path / "run", *EXACT, count=2, DROPOUT="0") as workers:
        assert workers.wait() == [0, 0], workers.said(0) + workers.said(1)
        assert "epoch 1/1: loss" in workers.said(0)
        assert "epoch" not in workers.said(1), "only the chief speaks"
    assert_close_weights(tmp_path / "run", one_process, 1)
    # The metrics are over all tokens, too.
    (ours,), (theirs,) = (last_state(r)[1]["history"] for r in (tmp_path / "run", one_process))
    assert ours.keys() == theirs.keys()
    for name in ("step", "loss", "accuracy", "val_loss", "val_accuracy", "val_bleu"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name


@pytest.mark.nightly
def test_cluster_of_one_worker_equals_one_process(one_process, tmp_path, monkeypatch):
    config = {"cluster": {"worker": ["127.0.0.1:0"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    train(tmp_path / "run", *EXACT, "--strategy", "multiworker", DROPOUT="0")
    assert_close_weights(tmp_path / "run", one_process, 1)


@pytest.mark.slow
def test_signal_to_one_worker_stops_both_and_training_resumes(one_process, tmp_path):
    """And one process resumes, to the weights of an uninterrupted training."""
    run = tmp_path / "run"
    options = {"count": 2, "DROPOUT": "0"}
    with Workers(run, *EXACT, die={1: "terminated"}, **options) as workers:
        assert workers.wait() == [128 + signal.SIGTERM] * 2, workers.said(0) + workers.said(1)
        assert "stopped by SIGTERM; saved" in workers.said(0)
        assert "Traceback" not in workers.said(0) + workers.said(1)
    assert 0 < last_state(run)[1]["batch"] < 16
    train(run, "--resume", "--strategy", "none", DROPOUT="0")
    assert_close_weights(run, one_process, 1)


@pytest.mark.parametrize("killed", slow_or_nightly([0, 1], [0]))
def test_losing_a_worker_ends_the_other_with_one_line_error(tmp_path, killed):
    die = {killed: "3 batches, 0.0 seconds"}
    with Workers(tmp_path / "run", "--epochs", "500", count=2, die=die) as workers:
        codes = workers.wait(timeout=300)
        said = workers.said(1 - killed)
    assert codes[killed] == -signal.SIGKILL and codes[1 - killed] == 1
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if "error:" in line]
    assert len(lines) == 1 and re.search("another worker is gone.*--resume", lines[0])


@pytest.mark.slow
def test_the_others_end_when_the_chief_cannot_begin(tmp_path):
    """It cannot write to its folder; each prints one line."""
    (tmp_path / "run").write_text("a file")
    with Workers(tmp_path / "run", count=2) as workers:
        assert workers.wait(timeout=300) == [1, 1]
        for n in (0, 1):
            assert "Traceback" not in workers.said(n)
        assert "the chief has failed" in workers.said(1)


@pytest.mark.hostile  # test_resume.py kills one process at chosen moments
@pytest.mark.parametrize("count", [1, 2])
def test_randomly_killed_training_equals_uninterrupted(tmp_path, count):
    """SIGKILL in or after random batches, with everything that is drawn from seeds, R-Drop and
    Muon.

    Each worker computes its rows in two parallel parts.

    test_train.py kills at validation and at the ends of epochs.
    """
    # Two epochs for each kill, and one after the last kill.
    epochs = str(2 * KILLS + 1)
    options = ["--epochs", epochs, "--checkpoint-steps", "2", "--cores", "2"]
    # One step to trace. test_resume.py has the epoch in which R-Drop begins, and for one process
    # the validations between kills.
    options += ["--r-drop-from", "0"]
    options += ["--validate-every", epochs] if count == 1 else []
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(whole, *options, count=count)
    chosen, places = random.Random(count), set()
    for _ in range(KILLS):
        victim = chosen.randrange(count)
        moment = f"{chosen.randint(4, 16)} batches, {chosen.uniform(0, 0.1)} seconds"
        if count == 1:
            killed = alone(run, *options, "--resume", DIE=moment)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        else:
            with Workers(run, *options, "--resume", count=count, die={victim: moment}) as workers:
                assert workers.wait_for(victim) == -signal.SIGKILL, workers.said(victim)
                workers.kill()
        if (run / "checkpoints" / "last.npz").exists():
            progress = last_state(run)[1]
            places.add((progress["epoch"], progress["batch"]))
    assert len(places) > KILLS / 2, "it was killed in few places"
    train(run, *options, "--resume", count=count)
    assert_same_state(run, whole)
