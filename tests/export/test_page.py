"""The page of a run computes what the library computes, and each of its controls works.

A real browser opens the file from the disk, as a learner does.
"""

import json
import re

import numpy as np
import pytest
import tiny
from browser import PROGRAM, Browser
from hard_lines import hard_lines
from paths import DATA, ROOT
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import tfformer
from export import page
from tfformer import Tokenizer, Transformer, TransformerConfig
from tfformer.config import EOS
from tfformer.layers.packing import Padded
from tfformer.text.vocabularies import PieceTable, SentencePieceModel
from training import import_marian

SEARCH = {"max_source_length": 17, "max_target_length": 13}
EXAMPLES = ["a house", "a little lake"]
# One small model for each kind of each option.
MODELS = {
    "the paper's": {},
    "pre-norm": {
        "norm": "pre", "normalization": "rms", "activation": "swiglu", "positions": "learned",
        "max_positions": 23, "tie_embeddings": "all", "num_key_value_heads": 1, "use_bias": False,
    },
    "bias": {
        "activation": "gelu", "tie_embeddings": "target", "output_bias": True, "last_norm": True,
        "source_eos": False, "embedding_norm": True, "head_size": 5, "epsilon": 1e-3,
    },
    "pre-norm without a last norm": {
        "norm": "pre", "last_norm": False, "activation": "silu", "tie_embeddings": "embeddings",
        "positions": "none",
    },
    "tanh": {"activation": "gelu_tanh"},
    "gated tanh": {"activation": "geglu"},
}  # fmt: skip
SOURCE_IDS, TARGET_IDS = [5, 261, 9, 270, 3], [2, 262, 7, 281, 5, 279]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One browser page for all tests, which run one after the other."""
    if PROGRAM is None:
        pytest.skip("no Chromium is installed")
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(tiny.sentences(97), vocabulary_size=347)


def random_model(size, **options):
    model = Transformer(TransformerConfig.preset("test", size, **{"num_heads": 2, **options}))
    rng = np.random.default_rng(5)
    for weight in model.trainable_variables:
        mean = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(rng.normal(mean, 0.4, size=weight.shape))
    return model


def opened(browser, run, file):
    """The file of a run's page in the browser, when it is ready."""
    assert page.main([str(run), str(file)]) == 0
    browser.open(file.as_uri())
    browser.run("ready")


def rows(browser, code):
    """An array of typed arrays from JavaScript, as NumPy."""
    return np.array(browser.run(f"({code}).map(row => [...row])"))


def logits(browser, switches="PLAIN", source_ids=SOURCE_IDS):
    source = f"page.model.encode({source_ids}, {switches})"
    code = f"page.model.decode({TARGET_IDS}, {source}, {switches}, true)"
    return rows(browser, f"{code}.logits"), code


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_attention_equal_the_library(name, browser, tokenizer, tmp_path):
    model = random_model(tokenizer.source_vocabulary_size, **MODELS[name])
    tfformer.save(tmp_path / "run", model, tokenizer, search=SEARCH)
    opened(browser, tmp_path / "run", tmp_path / "page.html")
    inputs = {"source_ids": np.array([SOURCE_IDS]), "target_ids": np.array([TARGET_IDS])}
    found, code = logits(browser)
    expected = np.array(model(inputs))[0]
    assert expected.std() > 0.5
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    for layer, heads in enumerate(np.array(model.cross_attention_weights(inputs))[:, 0]):
        for head, weights in enumerate(heads):
            seen = rows(browser, f"{code}.attention.cross[{layer}][{head}]")
            np.testing.assert_allclose(seen, weights, rtol=0, atol=1e-5)


def test_logits_without_causal_mask_or_a_head_equal_the_library(browser, tokenizer, tmp_path):
    model = random_model(tokenizer.source_vocabulary_size)
    tfformer.save(tmp_path / "run", model, tokenizer, search=SEARCH)
    opened(browser, tmp_path / "run", tmp_path / "page.html")
    source, target = np.array([SOURCE_IDS]), np.array([TARGET_IDS])
    inputs = {"source_ids": source, "target_ids": target}
    x = model._target(target, Padded(), False)
    expected = model.logits(model.decoder(x, model.encode(source), causal=False))
    found, _ = logits(browser, "{...PLAIN, causal: false}")
    np.testing.assert_allclose(found, np.array(expected)[0], rtol=0, atol=1e-4)
    for kind, attention in (
        ("encoder", model.encoder.layers[1].self_attention),
        ("decoder", model.decoder.layers[1].self_attention),
        ("cross", model.decoder.layers[1].cross_attention),
    ):
        # W_O ignores the second head.
        kernel = attention.output_projection.kernel
        whole = kernel.numpy()
        kernel.assign(np.where(np.arange(len(whole))[:, None] < len(whole) // 2, whole, 0))
        expected = np.array(model(inputs))[0]
        kernel.assign(whole)
        found, _ = logits(browser, f'{{...PLAIN, off: new Set(["{kind}.1.1"])}}')
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("source_eos", [True, False])
def test_logits_with_padding_equal_the_library(source_eos, browser, tokenizer, tmp_path):
    model = random_model(tokenizer.source_vocabulary_size, source_eos=source_eos)
    tfformer.save(tmp_path / "run", model, tokenizer, search=SEARCH)
    opened(browser, tmp_path / "run", tmp_path / "page.html")
    padded = [*SOURCE_IDS, 0, 0, 0, 0]
    plain, _ = logits(browser)
    masked, _ = logits(browser, source_ids=padded)
    np.testing.assert_allclose(masked, plain, rtol=0, atol=1e-9)
    seen, _ = logits(browser, "{...PLAIN, padding: false}", padded)
    assert abs(seen - plain).max() > 0.1
    source, target = np.array([padded]), np.array([TARGET_IDS])
    mask = source_eos | (source != EOS)
    expected = model.decode(target, model.encode(source, rows=Padded(mask)), mask)
    np.testing.assert_allclose(seen, np.array(expected)[0], rtol=0, atol=1e-4)


GREEDY = """texts => texts.map(text => {
  const {ids} = page.source.encode(text, page.search.max_source_length);
  let found = {ids: []};
  if (ids.length > 1) for (found of greedy(
    page.model, page.model.encode(ids, PLAIN), PLAIN, page.search.max_target_length));
  return page.target.decode(found.ids);
})"""
BEAM = """(texts, width) => texts.map(text => {
  const {ids} = page.source.encode(text, page.search.max_source_length);
  const beam = new Beam(page.model, page.model.encode(ids, PLAIN), PLAIN, page.search, width);
  while (!beam.done) beam.step();
  return page.target.decode(beam.hypotheses[0].ids);
})"""


def test_translations_equal_the_library(browser, tmp_path):
    translator = tiny.make_translator(**SEARCH)
    tfformer.save(tmp_path / "run", translator.model, translator.tokenizer, search=SEARCH)
    opened(browser, tmp_path / "run", tmp_path / "page.html")
    texts = tiny.sentences(20, maximum=19, seed=3)
    expected = translator.translate(texts, greedy=True)
    assert len(set(expected)) > 10
    assert browser.run(f"({GREEDY})({json.dumps(texts)})") == expected
    expected = translator.translate(texts)
    assert browser.run(f"({BEAM})({json.dumps(texts)}, 4)") == expected


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
def test_pieces_equal_the_library(kind, browser, tmp_path):
    texts = [*tiny.sentences(97), "ein Straße, 中文 字符 naïve!", "café 100 don't"]
    tokenizer = Tokenizer.train(texts, vocabulary_size=401, kind=kind)
    model = random_model(tokenizer.source_vocabulary_size)
    tfformer.save(tmp_path / "run", model, tokenizer, search=SEARCH)
    opened(browser, tmp_path / "run", tmp_path / "page.html")
    lines = [*tiny.sentences(20), *hard_lines(300)]
    expected = tokenizer.encode_source(lines).to_list()
    found = browser.run(f"{json.dumps(lines)}.map(text => page.source.encode(text, 10000).ids)")
    assert [(line, ids) for line, ids in zip(lines, found, strict=True)] == [
        (line, ids) for line, ids in zip(lines, expected, strict=True)
    ]
    rng = np.random.default_rng(7)
    size = tokenizer.target_vocabulary_size
    several = [*expected, *(rng.integers(3, size, 9).tolist() for _ in range(50))]
    found = browser.run(f"{json.dumps(several)}.map(ids => page.target.decode(ids))")
    for ids, text in zip(several, found, strict=True):
        assert text == tokenizer.decode(np.array([ids], "int32"))[0].numpy().decode()


def test_tokenizer_without_normalization_rules_equals_the_library(browser, tokenizer, tmp_path):
    model = ModelProto.FromString(tokenizer.source.content)
    model.normalizer_spec.precompiled_charsmap = b""
    model.normalizer_spec.remove_extra_whitespaces = False
    side = SentencePieceModel(model.SerializeToString())
    other = Tokenizer(side)
    tfformer.save(tmp_path / "run", random_model(side.size), other, search=SEARCH)
    opened(browser, tmp_path / "run", tmp_path / "page.html")
    lines = hard_lines(200)
    found = browser.run(f"{json.dumps(lines)}.map(text => page.source.encode(text, 10000).ids)")
    assert found == other.encode_source(lines).to_list()


def test_imported_run_with_two_tokenizers_translates_as_the_library(browser, tmp_path):
    assert import_marian.main([str(DATA / "marian" / "separate"), str(tmp_path / "run")]) == 0
    opened(browser, tmp_path / "run", tmp_path / "page.html")
    translator = tfformer.load_translator(tmp_path / "run")
    lines = [*hard_lines(100), "a\u3042\u3044b", *tiny.sentences(20)]
    expected = translator.tokenizer.encode_source(lines).to_list()
    assert any(1 in ids for ids in expected) and not translator.tokenizer.is_shared
    found = browser.run(f"{json.dumps(lines)}.map(text => page.source.encode(text, 10000).ids)")
    assert found == expected
    lines = [line for line, ids in zip(lines, expected, strict=True) if len(ids) > 1][-20:]
    expected = translator.translate(lines, greedy=True)
    assert browser.run(f"({GREEDY})({json.dumps(lines)})") == expected


def test_long_text_is_truncated_as_in_the_library(shown, seen):
    text = " ".join(tiny.WORDS * 3)
    found = shown.run(f"page.source.encode({json.dumps(text)}, 17)")
    expected = seen.tokenizer.encode_source([text]).to_list()[0]
    assert found == {"ids": [*expected[:16], 3], "cut": True}


@pytest.fixture(scope="module")
def seen(browser, tmp_path_factory):
    """A translator whose page is open in the browser, and the address of the page."""
    folder = tmp_path_factory.mktemp("seen")
    translator = tiny.make_translator(**SEARCH)
    training = {"examples": EXAMPLES}
    run = folder / "run"
    tfformer.save(run, translator.model, translator.tokenizer, search=SEARCH, training=training)
    assert page.main([str(run), str(folder / "page.html")]) == 0
    translator.address = (folder / "page.html").as_uri()
    return translator


@pytest.fixture
def shown(browser, seen):
    browser.open(seen.address)
    browser.run("ready")
    return browser


DONE = "state.original?.ids.length && $('said').textContent === ''"
CHIPS = "[...document.querySelectorAll('#{}Pieces .piece')].map(chip => chip.firstChild.data)"


def test_text_is_translated_and_shown_with_its_pieces(shown, seen):
    assert shown.run("$('text').value") == EXAMPLES[0]
    shown.run("$('text').value = 'a little house'; $('form').requestSubmit()")
    shown.until(DONE)
    [expected] = seen.translate(["a little house"], greedy=True)
    assert shown.run("$('originalText').textContent") == expected
    ids = seen.tokenizer.encode_source(["a little house"])
    pieces = [piece.decode() for piece in seen.tokenizer.source_pieces(ids).to_list()[0]]
    assert shown.run("[...$('pieces').children].map(piece => piece.textContent)") == pieces
    assert shown.run("$('changedText').textContent") == ""
    assert shown.run("$('undo').hidden")
    assert len(shown.run("[...$('likely').children].map(one => one.textContent)")) == 10
    assert shown.run("[...document.querySelectorAll('canvas')].length") == 2  # heads of the layer
    shown.run("$('text').value = '  '; $('form').requestSubmit()")
    assert shown.run("$('said').textContent") == "Write a text first."


def test_disabled_head_and_mask_change_the_translation_until_undone(shown):
    shown.until(DONE)
    original = shown.run("state.original.ids")
    shown.run("document.querySelector('[data-head=\"cross.0.1\"]').click()")
    shown.until("state.changed?.ids.length && $('said').textContent === ''")
    assert shown.run("[...state.off]") == ["cross.0.1"]
    assert shown.run("state.changed.ids") != original == shown.run("state.original.ids")
    assert "Cross-attention 1.2" in shown.run("$('changes').textContent")
    assert shown.run("document.querySelector('[data-head=\"cross.0.1\"]').ariaPressed") == "false"
    shown.run("$('causal').click()")
    shown.until("$('changes').textContent.includes('Causal mask off')")
    shown.until("state.changed && $('said').textContent === ''")
    # The first row of the decoder's self-attention sees more than the first token.
    first = "state.changed.attention.decoder[0][0][0]"
    assert shown.run(f"{first}.filter(share => share > 0).length") > 1
    shown.run("$('undo').click()")
    shown.until("$('undo').hidden")
    assert shown.run("state.changed === null && $('causal').checked && state.off.size === 0")


def test_padding_changes_the_probabilities_only_without_its_mask(shown):
    shown.until(DONE)
    shown.run("$('tokens').value = '4'; $('tokens').dispatchEvent(new Event('change'))")
    shown.until("state.changed?.ids.length && $('said').textContent === ''")
    assert shown.run("$('changes').textContent") == "4 tokens of padding after the source. "
    original = shown.run("$('originalText').textContent")
    assert shown.run("$('changedText').textContent") == original
    length = shown.run("state.ids.length")
    shares = "state.{}.attention.cross[0][0][0]"
    assert len(shown.run(shares.format("original"))) == length
    assert shown.run(shares.format("changed"))[length:] == [0, 0, 0, 0]
    first = "[...state.{}.logProbs[0]]"
    plain = np.array(shown.run(first.format("original")))
    np.testing.assert_allclose(shown.run(first.format("changed")), plain, rtol=0, atol=1e-9)
    shown.run("$('padding').click()")
    shown.until("$('changes').textContent.includes('Padding mask off') && !$('said').textContent")
    assert min(shown.run(shares.format("changed"))[length:]) > 0
    assert abs(np.array(shown.run(first.format("changed"))) - plain).max() > 0.01
    # A text of the maximum length has no room for padding.
    text = json.dumps(" ".join(tiny.WORDS * 3))
    shown.run(f"$('text').value = {text}; $('form').requestSubmit()")
    shown.until("state.changed?.ids.length && $('said').textContent !== 'translating …'")
    assert shown.run("[state.ids.length, state.changed.source.length]") == [17, 17]
    assert "padding after" not in shown.run("$('changes').textContent")
    shown.run("$('padding').click()")
    shown.until(
        "state.changed === null && !$('undo').hidden && $('said').textContent !== 'translating …'"
    )
    shown.run("$('undo').click()")
    shown.until("$('undo').hidden")
    assert shown.run("[$('tokens').value, $('padding').checked]") == ["0", True]


def test_last_of_several_quick_changes_wins(shown):
    shown.until(DONE)
    click = "document.querySelector('[data-head=\"cross.0.1\"]').click()"
    shown.run(f"{click}; {click}")
    shown.until("state.changed === null && $('undo').hidden && $('said').textContent === ''")
    assert shown.run("state.off.size === 0 && $('changedText').textContent === ''")
    # A new text during a translation, and the mask meanwhile.
    send = "$('form').requestSubmit()"
    shown.run(f"{send}; $('causal').click(); $('text').value = 'trees by the lake'; {send}")
    shown.until("state.changed?.ids.length && $('said').textContent === ''")
    ids = "page.source.encode('trees by the lake', 17).ids"
    assert shown.run(f"state.ids.join() === {ids}.join() && !state.causal")


def test_forced_token_stays_and_the_translation_continues_from_it(shown):
    shown.until(DONE)
    original = shown.run("state.original.ids")
    shown.run("document.querySelectorAll('#originalPieces button')[1].click()")
    shown.run("document.querySelectorAll('#likely button')[2].click()")
    second = shown.run("likeliest(state.original.logProbs[1], 10)[2]")
    shown.until("state.changed?.ids.length && $('said').textContent === ''")
    assert shown.run("state.changed.ids.slice(0, 2)") == [original[0], second]
    assert shown.run("document.querySelectorAll('.forced').length") == 2
    # Any piece, by its name, at a position of the changed translation.
    shown.run("$('word').value = '▁lake'; $('force').requestSubmit()")
    shown.until("page.target.pieces[state.changed?.ids[1]] === '▁lake'")
    shown.run("$('word').value = 'no such piece'; $('force').requestSubmit()")
    assert "no such piece" in shown.run("$('said').textContent")


def test_beam_search_is_shown_step_by_step(shown, seen):
    shown.until(DONE)
    shown.run("$('width').value = '3'; $('width').dispatchEvent(new Event('change'))")
    shown.run("$('step').click()")
    cells = "[...document.querySelectorAll('#steps table')].map(t => [...t.rows].length)"
    assert shown.run(cells) == [4]
    shown.run("$('step').click()")
    assert shown.run(cells) == [4, 4]
    shown.run("$('end').click()")
    [expected] = seen.translate([EXAMPLES[0]])
    assert shown.run("$('step').disabled")
    assert expected or shown.run("$('beamSaid').textContent")
    sums = """state.beam.hypotheses.every(one => {
      const source = page.model.encode(state.ids, PLAIN);
      const rows = page.model.decode([BOS, ...one.ids.slice(0, -1)], source, PLAIN, true).logits;
      const total = sum(one.ids.map((id, t) => logSoftmax(rows[t])[id]));
      return Math.abs(total - one.logProb) < 1e-9;
    })"""
    assert shown.run(sums)
    shown.run("$('restart').click()")
    assert shown.run(cells) == []


def test_page_switches_between_english_and_chinese(shown):
    texts = "[...document.querySelectorAll('[data-word]')].map(one => one.textContent)"
    assert shown.run("document.documentElement.lang") == "en"
    english = shown.run(texts)
    shown.run("$('language').click()")
    assert shown.run("document.documentElement.lang") == "zh-Hans"
    chinese = shown.run(texts)
    assert all(english) and all(re.search("[\u4e00-\u9fff]", text) for text in chinese)
    keys = "Object.fromEntries(Object.entries(WORDS).map(([k, v]) => [k, Object.keys(v).sort()]))"
    found = shown.run(keys)
    assert found["en"] == found["zh"]
    address = shown.run("location.href")
    shown.open("about:blank")
    shown.open(address)
    shown.run("ready")
    assert shown.run("document.documentElement.lang") == "zh-Hans"


@pytest.mark.parametrize("width", [375, 1000])
def test_page_fits_a_phone_and_fonts_are_at_least_12_pixels(shown, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    shown._call("Emulation.setDeviceMetricsOverride", **size)
    shown.until(DONE)
    shown.run("$('end').click()")
    assert shown.run("document.documentElement.scrollWidth") <= width
    every = "[...document.body.querySelectorAll('*')]"
    sizes = shown.run(f"{every}.map(one => parseFloat(getComputedStyle(one).fontSize))")
    assert min(sizes) >= 12 and int(shown.run("FONT").split("px")[0]) >= 12
    texts = "[...document.querySelectorAll('#text, output, .pieces, #word')]"
    assert shown.run(f"{texts}.every(one => one.dir === 'auto')")


def test_page_loads_no_files_and_escapes_script_tags(seen, tmp_path):
    training = {"examples": ["</script><script>alert(1)</script>", 7]}
    run = tmp_path / "run"
    tfformer.save(run, seen.model, seen.tokenizer, search=SEARCH, training=training)
    text = page.page_of(run).decode()
    assert "default-src 'none'" in text and not re.search(r"(src|href)=(?!\"data:)", text)
    assert text.count("</script>") == 4
    assert page.page_of(run).decode() == text  # the same run gives the same file


REFUSED = {
    "normalization": {"normalization": "ada"},
    "residual": {"residual": False},
    "attention_positions": {"attention_positions": "alibi"},
    "unique_layers": {"unique_layers": 1},
    "share_halves": {"share_halves": True},
    "location_width": {"location_width": 3},
    "query_key_norm": {"query_key_norm": True},
    "copy": {"copy": True},
}


@pytest.fixture
def run(seen, tmp_path):
    tfformer.save(tmp_path / "run", seen.model, seen.tokenizer, search=SEARCH)
    return tmp_path / "run"


def refused(run, message, capsys, *options):
    file = run.parent / "page.html"
    file.write_text("what was there")
    assert page.main([str(run), str(file), *options]) == 1
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert file.read_text() == "what was there" and len(list(run.parent.iterdir())) == 2


@pytest.mark.parametrize("name", REFUSED)
def test_error_names_an_unsupported_model_option(name, run, capsys):
    path = run / "config.json"
    config = json.loads(path.read_text())
    config["model"] |= REFUSED[name]
    path.write_text(json.dumps(config))
    refused(run, f"a page supports {name}=", capsys)


def test_every_option_of_the_model_is_supported_or_refused():
    options = set(TransformerConfig.preset("test", 17).to_dict())
    assert page.SUPPORTED.keys() <= options
    script = (page.TEMPLATES / "page_model.js").read_text()
    unread = {
        one for one in options - page.SUPPORTED.keys() if not re.search(rf"\b{one}\b", script)
    }
    # The weights show the sizes and biases; only training and other positions read the rest.
    assert unread == {
        "d_ff", "use_bias", "output_bias", "head_size", "max_positions",
        "source_vocabulary_size", "target_vocabulary_size",
        "dropout", "attention_dropout", "activation_dropout",
        "rotary_base", "rotary_factor", "rotary_length",
    }  # fmt: skip


@pytest.mark.parametrize("option", [("no_repeat_ngram", 3), ("min_length", 2)])
def test_error_names_an_unsupported_search_option(option, run, capsys):
    path = run / "config.json"
    config = json.loads(path.read_text())
    config["search"][option[0]] = option[1]
    path.write_text(json.dumps(config))
    refused(run, f"does not support the search option {option[0]}={option[1]}", capsys)


def test_another_tokenizer_or_family_and_a_large_run_are_refused(run, seen, tmp_path, capsys):
    refused(run, "--max-megabytes must be larger, got 0.01", capsys, "--max-megabytes=0.01")
    table = Tokenizer(PieceTable(["a", "house"]))
    model = random_model(table.source_vocabulary_size)
    folder = tmp_path / "table"
    folder.mkdir()
    tfformer.save(folder / "run", model, table)
    refused(
        folder / "run", "the source tokenizer must be a SentencePiece model, got PieceTable", capsys
    )
    folder = tmp_path / "recurrent"
    folder.mkdir()
    config = tfformer.models.RecurrentConfig.preset("test", seen.tokenizer.source_vocabulary_size)
    tfformer.save(folder / "run", tfformer.models.Recurrent(config), seen.tokenizer)
    refused(folder / "run", "must be a run of the family", capsys)


def test_unwritable_file_gives_one_line_error(run, capsys):
    for file, message in (
        (run.parent / "none" / "page.html", "FILE must be in a folder that exists"),
        (run, "FILE must be a file, got the folder"),
    ):
        assert page.main([str(run), str(file)]) == 1
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1


TRAINED = [ROOT / "runs" / name for name in ("dates", "tutorial")]


@pytest.mark.slow
@pytest.mark.parametrize("run", TRAINED, ids=lambda run: run.name)
def test_a_trained_run_translates_as_in_the_library(run, browser, tmp_path):
    if not run.is_dir():
        pytest.skip(f"runs/{run.name} is not trained here")
    opened(browser, run, tmp_path / "page.html")
    translator = tfformer.load_translator(run)
    texts = json.loads((run / "config.json").read_text())["training"].get("examples", [])[:20]
    texts = texts or tiny.sentences(20)
    assert browser.run(f"({GREEDY})({json.dumps(texts)})") == translator.translate(
        texts, greedy=True
    )
    ids = translator.tokenizer.encode_source(texts[:1]).to_tensor().numpy()
    target = np.array([[2, *ids[0, :-1]]])
    found = rows(browser, f"page.model.decode({target[0].tolist()}, "
                 f"page.model.encode({ids[0].tolist()}, PLAIN), PLAIN, true).logits")  # fmt: skip
    expected = np.array(translator.logits({"source_ids": ids, "target_ids": target}))[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
