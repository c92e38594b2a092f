"""An imported run is a run like any other: converted, fine-tuned, exported."""

import tracemalloc

import decoders
import marian
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import tfformer
from export import ctranslate2 as to_ctranslate2
from tfformer.run import load_model, model_weights
from training import import_hf, import_marian, train
from training.importers import marian as importer
from training.importers import weights
from training.importers.imported import write


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    for name in marian.FOLDERS:
        assert import_marian.main([str(marian.folder(name)), str(base / name)]) == 0
    return base


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_import_takes_little_more_memory_than_the_file(tmp_path, dtype):
    """The weights are in memory once, and a part of them twice. The run is as large as the file."""
    folder, size = marian.copied("joint", tmp_path / "folder"), 30_011
    marian.changed(folder / "config.json", encoder_ffn_dim=size, decoder_ffn_dim=size)
    path = folder / "model.safetensors"
    arrays = load_file(path)
    for name, array in arrays.items():
        shape = [size if n == 17 else n for n in array.shape]
        arrays[name] = np.resize(array, shape).astype(dtype)
    save_file(arrays, path)
    del arrays, array
    tracemalloc.start()
    try:
        write(importer.read(folder), tmp_path / "run")
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 7_500_000
    assert used < {"float32": 1.5, "bfloat16": 2.2}[dtype] * path.stat().st_size
    [stored] = (tmp_path / "run").glob("weights-*.npz")
    assert stored.stat().st_size < 1.1 * path.stat().st_size
    assert load_model(tmp_path / "run").config.d_ff == size


def test_weights_that_are_stored_as_bfloat16_keep_their_values(tmp_path):
    """Llama's gates and values, whose numbers the import does not change."""
    folder = decoders.folder("llama2")
    assert import_hf.main([str(folder), str(tmp_path / "run")]) == 0
    ours, theirs = model_weights(load_model(tmp_path / "run")), {}
    for path in folder.glob("*.safetensors"):
        theirs |= load_file(path)
    [path] = (tmp_path / "run").glob("weights-*.npz")
    with np.load(path) as file:
        stored = {name.removesuffix(".bfloat16"): file[name].dtype for name in file.files}
    for layer in range(2):
        for their_name, our_name in (
            ("mlp.gate_proj", "feed_forward/inner"), ("self_attn.v_proj", "self_attention/value"),
        ):  # fmt: skip
            expected = theirs[f"model.layers.{layer}.{their_name}.weight"]
            assert expected.dtype == "bfloat16"
            name = f"decoder/layer_{layer}/{our_name}/kernel"
            np.testing.assert_array_equal(ours[name], expected.T.astype("float32"))
            assert stored[name] == "uint16"


@pytest.mark.parametrize(
    ("value", "is_kept"), [(1.0, True), (-(2.0**127), True), (1.0078125, True), (1.00390625, False)]
)
def test_compact_uses_bfloat16_only_when_exact(value, is_kept):
    """bfloat16 has 8 bits of precision: 1 + 2**-7 but not 1 + 2**-8."""
    matrix = np.array([[1, 2, 3], [0.5, value, 0]], "float32")
    assert weights.compact(matrix).dtype == ("bfloat16" if is_kept else "float32")
    np.testing.assert_array_equal(weights.compact(matrix).astype("float32"), matrix)
    assert weights.compact(matrix[1]).dtype == "float32"  # vectors are small


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joint", "separate"])
def test_ctranslate2_gives_the_same_translations(runs, name, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    # The command compares log-probabilities before it writes the folder.
    assert to_ctranslate2.main([str(runs / name), str(tmp_path / "model")]) == 0
    translator = ctranslate2.Translator(str(tmp_path / "model"), device="cpu")
    tokenizer = tfformer.load(runs / name)[1]
    answers, pieces = marian.answers(name), tokenizer.pieces("source")
    texts = [text for text in answers["sources"] if text]
    sources = tokenizer.encode_source(tf.constant(texts)).to_list()
    results = translator.translate_batch(
        [[pieces[n] for n in ids[:-1]] for ids in sources], beam_size=1, max_decoding_length=64
    )
    own = {piece: n for n, piece in enumerate(tokenizer.pieces("target"))}
    found = [[own[piece] for piece in result.hypotheses[0]] for result in results]
    expected = [
        best for text, best in zip(answers["sources"], answers["greedy"], strict=True) if text
    ]
    decoded = tokenizer.decode(tf.ragged.constant(found, tf.int32)).numpy()
    assert [text.decode().strip() for text in decoded] == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codes", "separate"])
def test_it_is_fine_tuned(runs, name, tmp_path, capsys):
    codes = ">>de<< " if name == "codes" else ""
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"{codes}the red house {n}\n" for n in range(80)))
    target.write_text("".join(f"das rote Haus {n}\n" for n in range(80)))
    arguments = ["--source", source, "--target", target, "--init", runs / name, "--run"]
    options = "--epochs 1 --batch-tokens 128 --max-tokens 32 --warmup-steps 9 --average 1".split()
    new = tmp_path / "new"
    assert train.main([*map(str, [*arguments, new]), *options]) == 0
    before, after = (model_weights(load_model(one)) for one in (runs / name, new))
    assert all(np.isfinite(weight).all() for weight in after.values())
    assert not np.array_equal(before["output_projection/bias"], after["output_projection/bias"])
    assert tfformer.load_translator(new).translate([f"{codes}a small lake"])
    if name == "codes":
        more = [*map(str, [*arguments, tmp_path / "more"]), *options, "--new-pieces", "3"]
        assert train.main(more) == 1
        assert "new_pieces must be 0 with tie_embeddings='all'" in capsys.readouterr().err
