"""The public names, the direction of imports, and what runs with Keras alone."""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from paths import ROOT

import tfformer
from tfformer import registry

KERAS_ALONE = [
    "TransformerConfig",
    "Transformer",
    "LanguageModelConfig",
    "LanguageModel",
    "NonAutoregressiveConfig",
    "NonAutoregressive",
    "CTCLoss",
    "LengthCrossEntropy",
    "Classifier",
    "ClassifierConfig",
    "MaskedLanguageModel",
    "MaskedLanguageModelConfig",
    "SpanConfig",
    "TaggerConfig",
    "Tagger",
    "SpanReader",
    "PositionCrossEntropy",
    "LabelAccuracy",
    "LabelCrossEntropy",
    "LabelPerplexity",
    "TokenEmbedding",
    "SinusoidalPositionalEncoding",
    "LearnedPositionalEmbedding",
    "MultiHeadAttention",
    "FeedForward",
    "EncoderLayer",
    "Embedder",
    "EmbedderConfig",
    "Encoder",
    "DecoderLayer",
    "Decoder",
    "WarmupSchedule",
    "SmoothedCrossEntropy",
    "TokenAccuracy",
    "Perplexity",
    "RunError",
    "Shortlist",
    "from_keras_hub",
    "load",
    "load_translator",
    "save",
    "scaled_dot_product_attention",
    "to_keras_hub",
    "without_padding",
]
COMMANDS = [
    "CommandError",
    "evaluate_run",
    "export_run",
    "import_hf",
    "import_marian",
    "import_opennmt",
    "train_model",
    "verify_export",
]
WITH_TENSORFLOW = [
    "ParallelTranslator",
    "TextClassifier",
    "GapFiller",
    "TextTagger",
    "SpanAnswers",
    "TextEmbedder",
    "TextGenerator",
    "Tokenizer",
    "Translator",
    "greedy_search",
    "beam_search",
    "exhaustive_search",
    "sample_search",
    "generate",
    "SpecialIds",
    "State",
    "StepResult",
]
PUBLIC = KERAS_ALONE + COMMANDS + WITH_TENSORFLOW


def test_the_versions_of_python_are_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    versions = [one.removeprefix(prefix) for one in project["classifiers"] if prefix in one]
    first, *_, last = minors = [int(version.removeprefix("3.")) for version in versions]
    assert minors == list(range(first, last + 1))
    assert project["requires-python"] == f">=3.{first}"
    in_words = f"Python {', '.join(versions[:-1])} or {versions[-1]}"
    for path in ("README.md", "docs/guide/install.md", "Makefile"):
        assert in_words in (ROOT / path).read_text()
    assert f"(3, {first}) <= sys.version_info < (3, {last + 1})" in (ROOT / "Makefile").read_text()
    matrix = ", ".join(f'"{version}"' for version in versions)
    assert f"python: [{matrix}]\n" in (ROOT / ".github/workflows/ci.yml").read_text()


# The public surface.


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_importable_and_has_a_docstring(name):
    value = getattr(tfformer, name)
    assert value.__module__.startswith("tfformer.")
    assert value.__doc__


def test_the_public_names_are_these_and_no_others():
    assert sorted(PUBLIC) == sorted(tfformer.__all__)
    assert set(PUBLIC) <= set(dir(tfformer))
    assert all(hasattr(tfformer, name) for name in tfformer.__all__)


def test_stub_has_the_same_names_as_the_package():
    stub = (ROOT / "tfformer" / "__init__.pyi").read_text(encoding="utf-8")
    found = re.findall(r"^from (\S+) import (\w+) as (\w+)$", stub, re.M)
    assert {name: module for module, name, _ in found} == tfformer._MODULES
    assert all(name == shown for _, name, shown in found)


def functions_of(name):
    """{place: function} of a public name: the function itself, or what a user calls or reads of a
    class of this package: `__init__`, `__call__`, public methods and properties."""
    value = getattr(tfformer, name)
    if not isinstance(value, type):
        return {name: value}
    found = {}
    for method in dir(value):
        if not method.startswith("_") or method in ("__init__", "__call__"):
            member = inspect.getattr_static(value, method)
            for inner in ("__func__", "fget", "func"):  # of class methods and properties
                member = getattr(member, inner, member)
            if inspect.isfunction(member) and member.__module__.startswith("tfformer."):
                found[f"{name}.{method}"] = member
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_annotations(name):
    for where, function in functions_of(name).items():
        signature = inspect.signature(function)
        missing = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
        ]
        if signature.return_annotation is signature.empty:
            missing.append("return")
        assert not missing, f"{where} has no annotation of {', '.join(missing)}"


# A user's program, and what a type checker reports for its lines.
TYPED = """
import tfformer
config = tfformer.TransformerConfig.preset("tiny", 8000)
reveal_type(config)  # TransformerConfig"
model = tfformer.Transformer(config)
reveal_type(model.config.d_model)  # "int"
reveal_type(model.flops())  # "dict[str, int]"
model.compile(loss=tfformer.SmoothedCrossEntropy(0.1), metrics=[tfformer.TokenAccuracy()])
reveal_type(tfformer.load("runs/a"))  # ConfiguredModel, tfformer.text.tokenizer.Tokenizer]"
reveal_type(tfformer.load_translator("runs/a").translate(["ein Haus"]))  # "list[str]"
tfformer.save("runs/b", model, "tokenizer")  # error: Argument 3 to "save"
tfformer.Encoder(d_model=22)  # error: Missing positional argument "num_layers"
tfformer.MultiHeadAttention(d_model=22)  # error: Missing positional argument "num_heads"
tfformer.beam_search(print, tfformer.State(), 1, max_length=7)  # error: Argument 1
"""


@pytest.mark.slow
def test_mypy_gives_the_expected_messages(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(TYPED)
    options = ["--ignore-missing-imports", "--follow-imports=silent", "program.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    for number, line in enumerate(TYPED.splitlines(), 1):
        code, _, expected = line.partition("  # ")
        said = " ".join(re.findall(f"^program.py:{number}: (.*)$", done.stdout, re.M))
        assert expected in said if expected else not said, (code, said, done.stderr)


def test_a_name_of_an_earlier_version_still_works(tmp_path):
    import keras

    with pytest.warns(DeprecationWarning, match="is now tfformer.PositionCrossEntropy"):
        assert tfformer.PlaceCrossEntropy is tfformer.PositionCrossEntropy
    stored = keras.saving.serialize_keras_object(tfformer.PositionCrossEntropy())
    stored |= {
        "class_name": "PlaceCrossEntropy",
        "registered_name": "tfformer>PlaceCrossEntropy",
    }
    loss = keras.saving.deserialize_keras_object(stored)
    assert type(loss) is tfformer.PositionCrossEntropy


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Attention'"):
        _ = tfformer.Attention
    with pytest.raises(ImportError, match="Attention"):
        from tfformer import Attention  # noqa: F401


def test_layers_are_registered_under_the_name_of_the_package():
    import keras

    for name in KERAS_ALONE:
        value = getattr(tfformer, name)
        if isinstance(value, type) and not (
            name.endswith("Config") or name in ("RunError", "Shortlist")
        ):
            assert keras.saving.get_registered_name(value) == f"tfformer>{name}"


# In other processes: what is imported, and what runs without TensorFlow.


def run(program: str, folder=ROOT, backend="tensorflow") -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_every_registered_class_is_in_the_registry_table():
    import keras

    found = set()
    for module, names in registry.MODULES.items():
        classes = vars(importlib.import_module(f"tfformer.{module}"))
        found |= {keras.saving.get_registered_name(classes[name]) for name in names}
    in_sources = [
        re.findall(r"^@keras.*register_keras_serializable.*\nclass (\w+)", path.read_text(), re.M)
        for path in (ROOT / "tfformer").rglob("*.py")
    ]
    assert found == {f"tfformer>{name}" for names in in_sources for name in names}
    assert len(found) > 50


@pytest.mark.parametrize(
    "imports",
    [
        "import tfformer, importlib.util; importlib.util.find_spec('keras'); import keras",
        "import tfformer, keras",
        "import keras, tfformer",
        "import tfformer.layers.attention, keras",
    ],
)
def test_keras_loads_our_layers_after_a_light_import(imports, tmp_path):
    import keras

    layers = [keras.Input([None], dtype="int32"), tfformer.TokenEmbedding(7, 6)]
    keras.Sequential(layers).save(tmp_path / "model.keras")
    heavy = "'tensorflow_text', 'sentencepiece', 'tfformer.layers.embedding', 'tfformer.service'"
    program = f"""
{imports}
import sys
print([name for name in ({heavy}) if name in sys.modules])
print(keras.models.load_model("model.keras").count_params())
"""
    assert run(program, folder=tmp_path).split() == ["[]", "42"]


def test_a_plain_import_needs_neither_keras_nor_numpy():
    assert run("import sys, tfformer; print({'keras', 'numpy'} & {*sys.modules})") == "set()\n"


@pytest.fixture(scope="module")
def missing():
    """{name: the error message in a process without TensorFlow}"""
    pytest.importorskip("jax", reason="Keras needs one backend, and TensorFlow is hidden here")
    program = f"""
import json
import sys
sys.modules.update(dict.fromkeys(["tensorflow", "tensorflow_text", "sentencepiece"]))
import tfformer
said = {{}}
for name in {WITH_TENSORFLOW!r}:
    try:
        getattr(tfformer, name)
    except ImportError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
    return json.loads(run(program, backend="jax"))


@pytest.mark.parametrize("name", WITH_TENSORFLOW)
def test_name_that_needs_tensorflow_raises_a_clear_import_error(missing, name):
    assert f"tfformer.{name} needs " in missing[name]


def test_error_without_a_backend_gives_the_install_command():
    program = """
import sys
sys.modules["tensorflow"] = None
import tfformer
try:
    tfformer.Encoder
except ImportError as error:
    print(error, error.__cause__, error.__suppress_context__)
"""
    said = run(program).splitlines()
    assert len(said) == 1 and said[0].endswith(" None True")
    assert "tensorflow, which is not installed: pip install 'tfformer[tensorflow]'" in said[0]


# Hides some packages, runs everything that needs only Keras, and trains a little.
ON_KERAS_ALONE = """
import sys

sys.modules.update(dict.fromkeys({blocked!r}))  # an import of these fails

import keras
import numpy as np
import tfformer

assert keras.backend.backend() == {backend!r}
for name in {names!r}:
    getattr(tfformer, name)

data = np.load("data.npz")
inputs = {{name: data[name] for name in ("source_ids", "target_ids")}}
labels = data["labels"]
config = tfformer.TransformerConfig(**{config!r})
model = tfformer.Transformer(config)
model.set_weights([data[f"weight_{{n}}"] for n in range(len(model.weights))])
numpy = keras.ops.convert_to_numpy
found = {{"logits": numpy(model(inputs))}}

# Cached, as a search does it: two beams that are alike.
memory = model.encode(inputs["source_ids"])
projected, steps = model.decoder.project_memory(memory), []
cache = model.decoder.empty_cache(len(labels), 2)
for t in range(labels.shape[1]):
    ids = np.repeat(inputs["target_ids"][:, t : t + 1], 2, axis=1)
    step, cache = model.decode_step(ids, t, projected, inputs["source_ids"] != 0, cache)
    steps.append(numpy(step)[:, 1])
found["steps"] = np.stack(steps, axis=1)

# Each way to know positions, in attention of both directions and causal.
for positions in ("rotary", "alibi", "relative"):
    encoder = tfformer.Encoder(1, 12, 2, 13, attention_positions=positions)
    encoder.build((None, None, 12))
    encoder.set_weights([data[f"{{positions}}_{{n}}"] for n in range(len(encoder.weights))])
    for causal in (False, True):
        found[f"{{positions}}_{{causal}}"] = numpy(encoder(data["x"], causal=causal))

found["loss"] = numpy(tfformer.SmoothedCrossEntropy()(labels, found["logits"]))
found["rate"] = numpy(tfformer.WarmupSchedule(131, 17)(5))
accuracy = tfformer.TokenAccuracy()
accuracy.update_state(labels, found["logits"])
found["accuracy"] = numpy(accuracy.result())

model.compile(
    optimizer=keras.optimizers.Adam(tfformer.WarmupSchedule(config.d_model, 20)),
    loss=tfformer.SmoothedCrossEntropy(),
    metrics=[tfformer.TokenAccuracy(), tfformer.Perplexity()],
    jit_compile={backend!r} == "jax",  # by XLA, TensorFlow would compile longer than it trains
)
losses = model.fit(inputs, labels, epochs=20, verbose=0).history["loss"]
assert losses[-1] < losses[0] - 0.2, losses
model.save("model.keras")
again = keras.saving.load_model("model.keras")
np.testing.assert_allclose(numpy(again(inputs)), numpy(model(inputs)), atol=1e-6)
np.savez("found.npz", **found)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "blocked"),
    [
        ("tensorflow", ["tensorflow_text", "sentencepiece"]),
        ("jax", ["tensorflow", "tensorflow_text", "sentencepiece"]),
        ("torch", ["tensorflow", "tensorflow_text", "sentencepiece"]),
    ],
)
def test_model_runs_and_trains_the_same_on_keras_alone(backend, blocked, tmp_path, rng, randomise):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    config = tfformer.TransformerConfig.preset(
        "test", 17, num_encoder_layers=1, num_decoder_layers=1, norm="pre", activation="swiglu"
    )
    model = randomise(tfformer.Transformer(config))
    source_ids, labels = rng.integers(4, 17, size=(5, 7)), rng.integers(4, 17, size=(5, 3))
    source_ids[1, 4:], labels[2, 2:] = 0, 0
    target_ids = np.concatenate([np.full((5, 1), 2), labels[:, :-1]], axis=1)
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    weights = {f"weight_{n}": weight for n, weight in enumerate(model.get_weights())}
    encoders, x = {}, rng.normal(size=(2, 7, 12)).astype("float32")
    for positions in ("rotary", "alibi", "relative"):
        encoder = tfformer.Encoder(1, 12, 2, 13, attention_positions=positions)
        encoder.build(x.shape)
        encoders[positions] = randomise(encoder)
        weights |= {f"{positions}_{n}": weight for n, weight in enumerate(encoder.get_weights())}
    np.savez(tmp_path / "data.npz", **inputs, labels=labels, x=x, **weights)
    program = ON_KERAS_ALONE.format(
        blocked=blocked, backend=backend, names=KERAS_ALONE, config=config.to_dict()
    )
    run(program, tmp_path, backend)

    found = np.load(tmp_path / "found.npz")
    logits = model(inputs).numpy()
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5, rtol=1e-5)
    # A padded position has no meaning, and the cached step does not mask padding of its target.
    real = target_ids != 0
    np.testing.assert_allclose(found["steps"][real], logits[real], atol=1e-5, rtol=1e-5)
    for positions, encoder in encoders.items():
        for causal in (False, True):
            expected = encoder(x, causal=causal)
            np.testing.assert_allclose(found[f"{positions}_{causal}"], expected, atol=1e-5)
    loss = tfformer.SmoothedCrossEntropy()(labels, logits)
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(found["rate"], tfformer.WarmupSchedule(131, 17)(5), rtol=1e-6)
    accuracy = (logits.argmax(axis=-1) == labels)[labels != 0].mean()
    np.testing.assert_allclose(found["accuracy"], accuracy, rtol=1e-6)
