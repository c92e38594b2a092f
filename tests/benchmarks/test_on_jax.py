"""Models trained together on JAX have the optimizer, loss and search of training.train; a study
gives a table."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from paths import ROOT, SUPPORT

from benchmarks.on_jax import pack_studies, score_studies, train_studies
from benchmarks.on_jax.batches import EDGES, Batches
from tfformer import SmoothedCrossEntropy, Transformer, TransformerConfig
from tfformer.config import BOS
from tfformer.run import model_weights, variable_name
from tfformer.search import State, StepResult, beam_search
from training.methods.method import Methods
from training.methods.teachers import Teachers
from training.recipe import Recipe
from training.step.adam import Adam
from training.step.muon import Muon as TensorFlowMuon
from training.step.muon_matrices import matrices_of
from training.step.parallel import in_parts

pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from benchmarks.on_jax import search  # noqa: E402
from benchmarks.on_jax.optimizer import Optimizer  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize(("clip_norm", "steps"), [(0.0, 1), (1.0, 3)])
def test_optimizer_equals_the_tensorflow_muon(clip_norm, steps):
    config = TransformerConfig.preset("test", 53, num_encoder_layers=1, num_decoder_layers=1)
    keras.utils.set_random_seed(3)
    model = Transformer(config)
    variables = model.trainable_variables
    weights = [jnp.asarray(v.numpy()) for v in variables]
    theirs = TensorFlowMuon(
        0.01, matrices_of(model), beta_1=0.9, beta_2=0.98, epsilon=1e-9,
        global_clipnorm=clip_norm or None, weight_decay=0.7,
    )  # fmt: skip
    vectors = [v for v in variables if len(v.shape) < 2 or v.name == "bias"]
    theirs.exclude_from_weight_decay(var_list=vectors)
    theirs.build(variables)
    ours = Optimizer("muon", model, weight_decay=0.7, clip_norm=clip_norm, compute_dtype="float32")
    state, rng = ours.start(weights), np.random.default_rng(11)
    for number in range(steps):
        size = 0.001 if number == 2 else 0.3  # one is below the norm that is clipped
        gradients = [rng.normal(0, size, v.shape).astype("float32") for v in variables]
        theirs.apply([tf.constant(g) for g in gradients])
        gradients = [jnp.asarray(g) for g in gradients]
        weights, state = ours.step(weights, gradients, state, number, 0.01)
        for mine, variable in zip(weights, variables, strict=True):
            np.testing.assert_allclose(mine, variable.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("drawn", [False, True])
def test_an_epoch_has_each_pair_once(rng, drawn):
    lengths = rng.integers(2, 30, (2, 3, 997))
    lengths[:, 0, 0] = 63  # alone in its bucket
    batches = Batches(lengths, 127, [(1, 0), (2, 0), (1, 1)])
    found, again = list(batches.epoch(5, drawn)), list(batches.epoch(5, drawn))
    assert len(found) == len(batches)
    assert all((a[1] == b[1]).all() for a, b in zip(found, again, strict=True))
    assert len({tuple(found[0][1][model, :, 0]) for model in range(3)}) == 3
    for model in range(3):
        rows = np.concatenate([index[model] for _, index in found])
        pairs = rows[rows[:, 0] >= 0]
        assert sorted(pairs[:, 0]) == list(range(997))
        assert len(rows) - len(pairs) < sum(batches.rows.values())  # the last batch of each bucket
        for side in (1, 2):
            assert set(pairs[:, side].tolist()) == ({0, 1, 2} if drawn else {0})
    for bucket, index in found:
        assert index.shape == (3, batches.rows[bucket], 3)
        index = index[index[..., 0] >= 0]
        usual = lengths[:, 0, index[:, 0]].max(axis=0)
        assert (usual <= EDGES[bucket]).all()
        assert bucket == 0 or (usual > EDGES[bucket - 1]).all()
        sides = [lengths[side, index[:, 1 + side], index[:, 0]] for side in (0, 1)]
        assert (np.maximum(*sides) <= EDGES[bucket]).all()


def on_jax(*command):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_loss_and_gradients_equal_those_of_tensorflow_training(tmp_path, rng, randomise):
    """With R-Drop and two teachers: the same loss and the same gradients."""
    config = TransformerConfig.preset(
        "test", 53, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    settings = {"model": config.to_dict(), "recipe": Recipe().settings()}
    source, labels = (rng.integers(4, 53, (5, size)).astype("int32") for size in (11, 7))
    source[1, 4:] = labels[0, 3:] = labels[3, 2:] = 0
    arrays = {"source": source, "labels": labels, "r_drop": 3.0, "teacher_weight": 0.3}
    arrays["settings"] = np.frombuffer(json.dumps(settings).encode(), np.uint8)
    keras.utils.set_random_seed(7)
    trained = {}
    for n, who in enumerate(("0", "1", "student")):
        trained[who] = randomise(in_parts(Transformer)(config, passes=2))
        trained[who].set_weights([(1 + n / 3) * x for x in trained[who].get_weights()])
        named = model_weights(trained[who])
        arrays |= {f"{who}/{name}": value for name, value in named.items()}
    np.savez(tmp_path / "given.npz", **arrays)
    on_jax(SUPPORT / "jax_loss.py", tmp_path / "given.npz", tmp_path / "found.npz")
    found = dict(np.load(tmp_path / "found.npz"))
    model = trained["student"]
    model.compile(Adam(0.01), SmoothedCrossEntropy(Recipe().smoothing, r_drop=3.0))
    model.methods = Methods(lesson=Teachers([trained["0"], trained["1"]], 0.3))
    first = np.full((5, 1), BOS, "int32")
    target = np.where(labels, np.concatenate([first, labels[:, :-1]], axis=1), 0)
    inputs = {"source_ids": np.tile(source, (2, 1)), "target_ids": np.tile(target, (2, 1))}
    total, tokens, *gradients = model._sums(
        tf.nest.map_structure(tf.constant, inputs), tf.constant(np.tile(labels, (2, 1)))
    )
    assert float(found.pop("loss")) == pytest.approx(float(total / tokens), rel=1e-5)
    wanted = dict(zip(map(variable_name, model.trainable_variables), gradients, strict=True))
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient / tokens, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("width", "alpha"), [(1, 0.0), (4, 0.6), (5, 2.0)])
def test_beam_search_equals_that_of_the_service(rng, width, alpha):
    """Each source has its own table of next tokens."""
    tables = rng.normal(0, 3, (7, 13, 13)).astype("float32")
    tables[:, :, 3] += 2  # eos

    def step(ids, position, visible, state):
        return StepResult(tf.gather(state.memory, ids, batch_dims=1), state.cache)

    def logits_of(source, target):
        return jnp.asarray(tables)[source[:, :1] - 1, target]

    start = State(memory=tf.constant(tables), cache=tf.zeros([7, width, 1, 1]))
    options = {"beam_width": width, "length_penalty": alpha, "num_results": 1}
    theirs = beam_search(step, start, 7, 9, **options).token_ids[:, 0].numpy()
    source = jnp.arange(1, 8)[:, None]
    ours = np.asarray(search.beam_search(logits_of, source, width, alpha, 9, 9))
    assert (ours[:, : theirs.shape[1]] == theirs).all() and not ours[:, theirs.shape[1] :].any()


STUDY = """
train = ["{here}/recipe.py", "--r-drop", "0", "--both-ways", "0", "--word-dropout", "0"]
evaluate = ["--recipe", "{here}/recipe.py", "--split", "val"]
picture = ["loss", "bleu"]
[figures]
perplexity = ["perplexity", "{:.2f}"]
bleu = ["BLEU, 13a", "{:.2f}"]
epochs_to_99 = ["epochs to greedy BLEU 99", "{:.1f}"]
[rows]
"as it is" = []
"slower" = ["--learning-rate-scale", "0.1"]
"recurrent" = ["--family", "recurrent"]
"BatchNorm by Muon" = ["--normalization", "batch", "--optimizer", "muon"]
"guided" = ["--guided-attention", "1"]
"sampled" = ["--scheduled-sampling", "0.3", "--scheduled-sampling-by", "sampled"]
"mixed" = ["--scheduled-sampling", "0.3", "--scheduled-sampling-by", "mixed"]
"two losses" = ["--r-drop", "1"]
"""


@pytest.mark.slow
def test_study_is_packed_trained_and_scored_into_a_table(tmp_path, capfd):
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "recipe.py").write_bytes((SUPPORT / "killing_recipe.py").read_bytes())
    study, packed, results = (str(tmp_path / name) for name in ("study", "p.npz", "r.jsonl.gz"))
    assert pack_studies.main([study, "--out", packed]) == 0
    assert "left out: " in capfd.readouterr().err
    rows = json.loads(np.load(packed)["rows"].tobytes())
    assert [len(group) for group in train_studies.groups_of(rows)] == [2, 1, 1, 1, 1, 1]
    on_jax("-m", "benchmarks.on_jax.train_studies", packed, "--out", results, "--seeds", "0", "5")
    found = train_studies.read_results(results)
    assert len(found) == 14 and all(len(one["history"]) == 3 for one in found)
    losses = {one["rows"][0][1]: one["history"][-1]["loss"] for one in found}
    assert losses["as it is"] < losses["slower"] < 6
    words = [results, "--packed", packed, "--studies", study, "--pictures", str(tmp_path / "drawn")]
    assert score_studies.main(words) == 0
    lines = capfd.readouterr().out.splitlines()
    names = [line.split(" | ")[:2] for line in lines if line.startswith("| ")][1:]
    assert names == [[f"| {row}", "2"] for row in losses]
    assert len(list((tmp_path / "drawn").iterdir())) == 1
