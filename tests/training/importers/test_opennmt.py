"""An imported model of OpenNMT-tf has the original's ids, logits, scores and texts."""

from pathlib import Path

import numpy as np
import opennmt_folders as opennmt
import pytest
import tensorflow as tf

import tfformer
from export.verification.reference import log_softmax
from tfformer.config import BOS, EOS, UNK
from tfformer.text.renumbering import regular_pieces
from training import import_opennmt
from training.importers.opennmt import Files, read_opennmt
from training.importers.opennmt_description import read_description
from training.importers.opennmt_text import read_text, read_vocabulary
from training.importers.opennmt_weights import sinusoids


class Both:
    """A stored model, its run, and the original's results."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        assert import_opennmt.main(opennmt.words(name, directory)) == 0
        self.translator = tfformer.load_translator(directory)
        self.model, self.tokenizer = self.translator.model, self.translator.tokenizer
        self.answers = opennmt.answers(name)

    def ours(self, side, ids):
        """The original's ids as ours."""
        return opennmt.our_ids(self.name, side)[ids].tolist()


@pytest.fixture(scope="module", params=opennmt.FOLDERS)
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("opennmt") / "run")


@pytest.mark.slow
def test_token_ids_match_the_original(both):
    found = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    size = len(opennmt.our_ids(both.name, "source"))
    for ids, expected in zip(found, both.answers["source_ids"], strict=True):
        # A piece that the vocabulary lacks has its own id; the original has unknown.
        ids = [UNK if n >= size else n for n in ids]
        expected = both.ours("source", expected)
        assert ids == (expected if both.name == "joint" else [*expected, EOS])


@pytest.mark.slow
def test_logits_match_the_original(both):
    known = opennmt.our_ids(both.name, "target")
    sources = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    compared = 0
    for source, (expected, target) in zip(sources, opennmt.logits(both.name), strict=False):
        target = [n for n in both.ours("target", target) if n != EOS]
        inputs = {"source_ids": np.array([source]), "target_ids": np.array([[*target]])}
        assert target[0] == BOS
        found = np.asarray(both.model(inputs, training=False))[0]
        expected = expected[: len(found)]
        np.testing.assert_allclose(found[:, known], expected, atol=1e-4, rtol=1e-4)
        compared += len(found)
        np.testing.assert_allclose(
            log_softmax(found)[:, known], log_softmax(expected), atol=1e-4, rtol=1e-4
        )
    assert compared > 7


def letters(text):
    """Without spaces, and without the unknown word, which is not written here."""
    return "".join(text.replace("<unk>", "").replace("⁇", "").split())


@pytest.mark.slow
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_texts_and_scores_match_the_original(both, search):
    """All by greedy search, at least three by beam search."""
    answers = both.answers
    # In the original, a hypothesis at the maximum length does not end; here it does.
    ended = [n for n, text in enumerate(answers[search]) if len(text) < 100]
    assert len(ended) > 2
    options = {"beam_width": 1} if search == "greedy" else {}
    translator = tfformer.load_translator(both.directory, **options)
    sources = tf.constant([answers["sources"][n] for n in ended])
    found = translator.functions["serving_default"](sources)
    texts = [letters(text.decode()) for text in found["translation"].numpy()]
    same = [text == letters(answers[search][n]) for text, n in zip(texts, ended, strict=True)]
    scores = np.array([answers[f"{search}_scores"][n] for n in ended])
    same &= np.isclose(found["score"], scores, atol=1e-3)
    # The original's beam search gives some texts wrong scores, as its own log-probabilities show;
    # for texts with high probability it does not.
    assert all(same) if search == "greedy" else sum(same) >= 3


@pytest.mark.slow
def test_output_ignores_masked_source_eos_and_padding(tmp_path):
    """Nor on other rows of the batch: padding is hidden in the same way."""
    assert import_opennmt.main(opennmt.words("words", tmp_path / "run")) == 0
    translator = tfformer.load_translator(tmp_path / "run")
    assert not translator.model.config.source_eos
    target_ids = np.array([[2, 5, 7]])
    given = [[5, 6, 3], [5, 6, 0], [5, 6, 3, 0, 0]]
    found = [
        np.asarray(translator.model({"source_ids": np.array([ids]), "target_ids": target_ids}))
        for ids in given
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)
    sources = opennmt.answers("words")["sources"]
    alone = [translator.translate([text])[0] for text in sources]
    assert translator.translate(sources) == alone


def test_sinusoids_by_hand():
    """For width 6: the angles pos, pos / 100, pos / 10,000."""
    angles = np.array([[1, 0.01, 0.0001], [3, 0.03, 0.0003]])
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    np.testing.assert_allclose(sinusoids([1, 3], 6), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "heads", "activation"),
    [
        ("import opennmt.models.catalog as c\nmodel = lambda: c.TransformerBig()\n", 16, "relu"),
        ("model = lambda: opennmt.models.Transformer(num_heads=5)", 5, "relu"),
        ("model = lambda: Transformer(num_heads=H, ffn_activation=tf.nn.swish)", None, "silu"),
        (
            "class Mine(opennmt.models.Transformer):\n def __init__(self):\n"
            "  super().__init__(num_heads=3, ffn_activation=tf.nn.gelu)\nmodel = Mine\n",
            3,
            "gelu",
        ),
        ("class Mine(c.TransformerBig):\n pass\nmodel = Mine", 16, "relu"),
        ("model = functools.partial(Transformer, num_heads=3, ffn_activation=tf.nn.gelu)",
         3, "gelu"),
        ("model = lambda: Mine(num_heads=3)", None, None),
        ("raise SystemExit('it is not run')", None, None),
        # What OpenNMT-tf itself writes for --model_type NAME.
        ('from opennmt import models\n'
         'model = lambda: models.get_model_from_catalog("TransformerTiny")\n', 2, "relu"),
        ('model = lambda: get_model_from_catalog(name="ScalingNmtEnFr")', 16, "relu"),
        ('model = lambda: models.get_model_from_catalog("LuongAttention")', None, None),
    ],
)  # fmt: skip
def test_model_description_is_parsed_without_running_it(tmp_path, text, heads, activation):
    path = tmp_path / "model_description.py"
    path.write_text(text)
    assert read_description(path)[1:3] == (heads, activation)


@pytest.mark.parametrize("name", ["ScalingNmtEnDe", "ScalingNmtEnFr", "TransformerBig", "Mine"])
def test_source_eos_is_read_from_the_catalog(name, tmp_path):
    """`auto_config` of both ScalingNmt models has `source_sequence_controls: {end: true}`."""
    folder = opennmt.copied("words", tmp_path / "folder")
    (folder / "model_description.py").write_text(f"model = get_model_from_catalog('{name}')")
    files = Files(folder / "source.vocab", folder / "target.vocab")
    in_catalog = name.startswith("Scaling")
    for given, expected in ((None, in_catalog), (False, False), (True, True)):
        found = read_opennmt(folder, files, 3, given, "relu")
        assert found.config.source_eos == expected
        assert ("give --no-source-eos" in "".join(found.notes)) == (in_catalog and given is None)


@pytest.mark.parametrize("has_beginning", [True, False])
def test_a_vocabulary_with_the_scores_of_sentencepiece_is_read(has_beginning, tmp_path, capsys):
    folder = opennmt.copied("joint", tmp_path / "folder")
    words = opennmt.words("joint", tmp_path / "run", folder)
    path = Path(words[words.index("--vocabulary") + 1])
    lines = read_vocabulary(path)
    scored = [f"{line}\t{-number / 8:e}" for number, line in enumerate(lines[3:])]
    beginning = lines[:3] if has_beginning else [f"{one}\t0" for one in ("<unk>", "<s>", "</s>")]
    path.write_text("".join(f"{line}\n" for line in [*beginning, *scored]))
    assert read_vocabulary(path) == lines
    assert import_opennmt.main(words) == 0
    known = len(set(lines) & set(regular_pieces(model_of(words).read_bytes())))
    assert f"{path} has {known:,} of the " in capsys.readouterr().err


def model_of(words):
    return Path(words[words.index("--sentencepiece") + 1])


def test_optimizer_slots_in_a_checkpoint_are_ignored(tmp_path, capsys):
    """Training writes it into the checkpoint; the imported model is the same."""
    folder = opennmt.copied("words", tmp_path / "folder")
    opennmt.rewrite(folder, lambda arrays: arrays | {
        name.replace(opennmt.SUFFIX, f"/.OPTIMIZER_SLOT/optimizer/m{opennmt.SUFFIX}"): array
        for name, array in arrays.items() if name.startswith("model/")
    })  # fmt: skip
    for name, of in (("with", folder), ("without", opennmt.folder("words"))):
        assert import_opennmt.main(opennmt.words("words", tmp_path / name, of)) == 0
    found, expected = (
        tfformer.load_translator(tmp_path / name).model.get_weights()
        for name in ("with", "without")
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_averaged_checkpoint_uses_the_description_of_its_parent_folder(tmp_path):
    folder = opennmt.copied("words", tmp_path / "folder")
    average = folder / "avg"
    average.mkdir()
    for path in [folder / "checkpoint", *folder.glob("ckpt-*")]:
        path.rename(average / path.name)
    words = opennmt.words("words", tmp_path / "run", folder)
    assert import_opennmt.main([str(average), *words[1:]]) == 0
    config = tfformer.load_translator(tmp_path / "run").model.config
    assert (config.num_heads, config.activation) == (3, "gelu")


def test_text_like_a_language_code_is_tokenized_as_text(tmp_path):
    """Codes before a text exist only for Marian, not for OpenNMT-tf."""
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the weather of the other house"] * 7), model_writer=model,
        vocab_size=40, hard_vocab_limit=False, minloglevel=2, user_defined_symbols=[">>de<<"],
    )  # fmt: skip
    path = tmp_path / "one.model"
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(n) for n in range(3, processor.vocab_size())]
    for left_out in ([], [">>de<<"]):
        lines = ["<blank>", "<s>", "</s>", *(one for one in pieces if one not in left_out)]
        (tmp_path / "one.vocab").write_text("".join(f"{line}\n" for line in lines))
        files = Files(tmp_path / "one.vocab", tmp_path / "one.vocab", path, path)
        tokenizer, *_ = read_text(files)
        for text in (">>de<< the weather", "the >>de<< weather", ">>x<< of"):
            [ids] = tokenizer.encode_source([text]).to_list()
            found = [tokenizer.pieces("source")[n] for n in ids[:-1]]
            expected = [
                "<unk>" if processor.is_unknown(n) else processor.id_to_piece(n)
                for n in processor.encode(text)
            ]
            assert found == expected
