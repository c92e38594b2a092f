"""A multilingual run serves all its languages, which a request names; and it is trained further."""

import json

import keras
import m2m100
import numpy as np
import pytest
import tensorflow as tf

import tfformer
from export import ctranslate2 as to_ctranslate2
from export import saved_model
from export.client import RequestError, RestClient
from export.local_server import LocalServer
from export.serving.versions import one_model
from tfformer.config import EOS
from tfformer.run import load_model, model_weights
from training import evaluate, import_hf, train, translate

TEXTS = ["the red house finds", "the small lake paints", "the old tree sees", ""]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("m2m100") / "run"
    assert import_hf.main(m2m100.arguments("m2m", directory)) == 0
    return directory


@pytest.fixture(scope="module")
def translator(directory):
    return tfformer.load_translator(directory)


@pytest.fixture(scope="module")
def by_language(translator):
    """{target language: the translations of the texts}"""
    return {one: translator.translate(TEXTS, target_language=one) for one in ("de", "fr", "en")}


def test_a_request_without_languages_gets_those_of_the_run(translator, by_language):
    assert translator.translate(TEXTS) == by_language["de"]
    assert len({one[0] for one in by_language.values()}) == 3 and by_language["de"][3] == ""


def test_default_languages_can_be_set_when_loading(directory, by_language):
    other = tfformer.load_translator(directory, target_language="fr", source_language="en")
    assert other.translate(TEXTS) == by_language["fr"]
    with pytest.raises(ValueError, match="target_language must be one of af, am, .*, got 'xx'"):
        tfformer.load_translator(directory, target_language="xx")
    with pytest.raises(ValueError, match="xla must be off for a multilingual model"):
        tfformer.load_translator(directory, xla=True)


def test_each_row_may_have_languages_of_its_own(translator, by_language):
    languages = ["fr", "de", "en", "de"]
    found = translator.functions["serving_default"](
        tf.constant(TEXTS), target_language=tf.constant(languages)
    )
    expected = [by_language[one][n] for n, one in enumerate(languages)]
    assert [text.decode() for text in found["translation"].numpy()] == expected


def test_error_names_an_unknown_language(translator):
    serve = translator.functions["serving_default"]
    for name in ("source_language", "target_language"):
        rule = f"{name} must be a language of the model, such as"
        with pytest.raises(tf.errors.InvalidArgumentError, match=rule) as error:
            serve(tf.constant(TEXTS), **{name: tf.constant(["de", "tlh", "en", "fr"])})
        assert "tlh" in str(error.value)
        rule = f"{name} must be one language, or one for each row"
        with pytest.raises(tf.errors.InvalidArgumentError, match=rule):
            serve(tf.constant(TEXTS), **{name: tf.constant(["de", "en"])})
    with pytest.raises(ValueError, match="target_language must be one of .*, got '__de__'"):
        translator.translate(TEXTS, target_language="__de__")
    with pytest.raises(ValueError, match="language must be None for this model, got 'de'"):
        translator.translate(TEXTS, language="de")


def test_a_document_is_translated_into_its_language(translator, by_language):
    documents = [f"{TEXTS[0]}.\n{TEXTS[1]}.", f"{TEXTS[2]}."]
    languages = ["fr", "de"]
    found = translator.functions["translate_document"](
        tf.constant(documents), target_language=tf.constant(languages)
    )["translation"].numpy()
    lines = [f"{text}." for text in TEXTS[:3]]
    of_lines = {one: translator.translate(lines, target_language=one) for one in languages}
    expected = ["\n".join(of_lines["fr"][:2]), of_lines["de"][2]]
    assert [text.decode() for text in found] == expected


@pytest.mark.slow
def test_every_search_begins_with_the_language_code(translator):
    text, asked = tf.constant(TEXTS[:3]), {"target_language": tf.constant(["fr"])}
    languages = translator.tokenizer.target.languages
    found = translator.functions["beam_search"](text, **asked, beam_width=3)
    assert np.all(found["token_ids"].numpy()[:, :, 0] == languages.ids["fr"])
    np.testing.assert_array_equal(found["token_log_probs"].numpy()[:, :, 0], 0)
    assert not any("__" in one.decode() for one in found["translations"].numpy().ravel())
    ids = translator.tokenizer.encode_source(text).to_tensor()
    of_ids = translator.functions["beam_search_ids"](ids, **asked, beam_width=3)
    np.testing.assert_array_equal(of_ids["token_ids"], found["token_ids"])
    # The limit leaves room for the code and eos.
    shortest = translator.functions["beam_search"](text, **asked, max_length=1)["token_ids"]
    np.testing.assert_array_equal(shortest[:, 0], [[languages.ids["fr"], EOS]] * 3)
    drawn = translator.functions["sample"](text, **asked, top_k=1)["translation"].numpy()
    greedy = translator.translate(TEXTS[:3], greedy=True, target_language="fr")
    assert [one.decode() for one in drawn] == greedy
    begun = translator.functions["complete"](text, tf.constant(["le lac"] * 3), **asked)
    assert all(one.startswith(b"le lac") for one in begun["translation"].numpy())


def test_sampled_segmentations_begin_with_the_language_code(translator):
    side = translator.tokenizer.target
    draw = side.sampler(0.3)
    found = draw([b"das rote Haus"] * 9, longest=64, seed=3)
    assert len({tuple(ids) for ids in found}) > 3
    assert all(ids[0] == side.languages.ids["de"] for ids in found)
    assert set(side.decode(tf.ragged.constant([ids[:-1] for ids in found])).numpy()) == {
        b"das rote Haus"
    }


@pytest.mark.slow
def test_commands_take_languages(directory, tmp_path, by_language, capsys, monkeypatch):
    monkeypatch.setattr(translate, "stdin_lines", lambda: iter(TEXTS))
    assert translate.main([str(directory), "--target-language", "fr"]) == 0
    assert capsys.readouterr().out.splitlines() == by_language["fr"]
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"{text}\n" for text in TEXTS[:3]))
    target.write_text("".join(f"{text}\n" for text in by_language["fr"][:3]))
    options = ["--source", source, "--target", target, "--target-language", "fr"]
    options += ["--source-language", "en", "--output", tmp_path / "scores.json"]
    assert evaluate.main([str(directory), *map(str, options)]) == 0
    assert json.loads((tmp_path / "scores.json").read_text())["bleu"] > 99
    assert translate.main([str(directory), "--target-language", "xx"]) == 1
    assert "target_language must be one of" in capsys.readouterr().err


def test_ctranslate2_is_refused(directory, tmp_path, capsys):
    pytest.importorskip("ctranslate2")
    assert to_ctranslate2.main([str(directory), str(tmp_path / "model")]) == 1
    assert "must be of one language pair for CTranslate2" in capsys.readouterr().err


@pytest.mark.slow
def test_an_export_serves_every_language(directory, tmp_path):
    """The command verifies all signatures as on a server, and compares them with plain searches."""
    base = tmp_path / "served"
    assert saved_model.main([str(directory), str(base), "--target-language", "fr"]) == 0
    translator = tfformer.load_translator(directory)
    with LocalServer(one_model("served", base)) as server:
        server.versions.require_all()
        client = RestClient("served", f"http://127.0.0.1:{server.rest_port}")
        for language in ("de", "fr"):
            expected = translator.translate(TEXTS, target_language=language)
            assert [*client.translate(TEXTS, target_language=language)] == expected
            if language == "fr":
                assert [*client.translate(TEXTS)] == expected
        with pytest.raises(RequestError, match="target_language must be a language") as error:
            [*client.translate(TEXTS, target_language="xx")]
        assert error.value.code == "INVALID_ARGUMENT"


@pytest.mark.slow
def test_it_is_fine_tuned(tmp_path):
    run, new, language = tmp_path / "run", tmp_path / "new", "deu_Latn"
    folder = str(m2m100.folder("nllb"))
    assert import_hf.main([folder, str(run), "--target-language", language]) == 0
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"the old house {n}\n" for n in range(80)))
    target.write_text("".join(f"das helle Haus {n}\n" for n in range(80)))
    options = "--epochs 6 --batch-tokens 128 --max-tokens 32 --warmup-steps 9 --average 1".split()
    arguments = ["--source", source, "--target", target, "--init", run, "--run", new]
    assert train.main([*map(str, arguments), *options]) == 0
    losses = [_loss(one, source, target) for one in (run, new)]
    assert losses[1] < losses[0] - 0.5
    before, after = (model_weights(load_model(one)) for one in (run, new))
    assert not np.array_equal(*(one["target_embedding/embeddings"] for one in (before, after)))
    translator = tfformer.load_translator(new)
    assert translator.tokenizer.languages["target_language"].default == language
    options = ["--quick", "--signatures", "serving_default"]
    assert saved_model.main([str(new), str(tmp_path / "served"), *options]) == 0


def _loss(run, source, target):
    """The mean loss of a token, with the code of the target's language, as in training."""
    model, tokenizer = tfformer.load(run)
    source_ids = tokenizer.encode_source(source.read_text().splitlines()).to_tensor()
    labels = tokenizer.encode_target(target.read_text().splitlines()).to_tensor()
    target_ids = tf.concat([tf.fill([len(labels), 1], 2), labels[:, :-1]], axis=1)
    logits = model({"source_ids": source_ids, "target_ids": target_ids}, training=False)
    loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return float(tf.reduce_mean(tf.boolean_mask(loss, labels > 0)))
