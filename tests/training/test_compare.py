"""Runs are compared: scores as in evaluation, and the significance of differences."""

import json
import random
import shutil

import pytest
import tiny

import tfformer
from training import compare
from training.data.reader import Pair
from training.evaluate import evaluate
from training.report.history import read_history


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of one model; the second may write at most one token."""
    translator = tiny.make_translator(max_source_length=17, max_target_length=13)
    folder = tmp_path_factory.mktemp("runs")
    for name, maximum in (("a", 13), ("b", 3)):
        search = {"max_source_length": 17, "max_target_length": maximum}
        tfformer.save(folder / name, translator.model, translator.tokenizer, search)
    (folder / "a" / "log.csv").write_text("epoch,seconds,val_bleu\n1,30,\n2,90,7.5\n")
    return [folder / "a", folder / "b"]


@pytest.fixture(scope="module")
def pairs(runs, loaded_once):
    """The first run's translations, a fifth of them made wrong."""
    translator = loaded_once(runs[0])
    texts = tiny.sentences(61)
    return [
        Pair(text, "nobody" if n % 5 == 0 else target)
        for n, (text, target) in enumerate(zip(texts, translator.translate(texts), strict=True))
    ]


def test_scores_are_those_of_evaluation(runs, pairs):
    found = compare.compare(runs, pairs)
    for name, run in zip("ab", runs, strict=True):
        expected, _ = evaluate(tfformer.load_translator(run), pairs)
        for key in ("bleu", "chrf", "exact_match", "perplexity"):
            assert found[name][key] == pytest.approx(expected[key])
    assert found["a"]["minutes"] == 1.5 and "minutes" not in found["b"]
    assert "p" not in found["a"] and found["b"]["p"] < 0.05
    assert found["a"]["parameters"] == tfformer.load(runs[0])[0].count_params()


def test_a_difference_by_chance_is_not_significant():
    rng = random.Random(5)
    references = [" ".join(rng.choices(tiny.WORDS, k=9)) for _ in range(97)]

    def disturbed(places):
        return [f"{text} x" if n in places else text for n, text in enumerate(references)]

    same = {"first": [disturbed(range(0, 97, 2))], "second": [disturbed(range(1, 97, 2))]}
    better = {"first": [disturbed(range(0, 97, 2))], "second": [disturbed([])]}
    assert compare.significance(same, references)["second"] > 0.1
    assert compare.significance(better, references)["second"] < 0.01


def test_texts_without_common_4_grams_can_differ_significantly():
    """Their BLEU is smoothed, in the table and in the resamples."""
    references = ["a red bird flies far away", "the old man walks home now"] * 30
    good = ["a red bird sings far away", "the old man runs home now"] * 30
    bad = ["red a flies bird away far", "old the walks man now home"] * 30
    found = compare.significance({"good": [good], "bad": [bad]}, references)
    assert found["bad"] < 0.01


def test_identical_outputs_have_p_value_1():
    references = ["red north blue", "south west", "north"] * 20
    said = ["red north", "south", "north"] * 20
    found = compare.significance({"first": [said], "second": [list(said)]}, references)
    assert found == {"second": 1}


def test_a_difference_that_seeds_explain_is_not_significant():
    rng = random.Random(5)
    references = [" ".join(rng.choices(tiny.WORDS, k=9)) for _ in range(97)]

    def disturbed(count):
        return [f"{text} x" if n < count else text for n, text in enumerate(references)]

    first, near = [disturbed(n) for n in (0, 40, 80)], [disturbed(n) for n in (10, 50, 95)]
    assert compare.significance({"first": first, "second": near}, references)["second"] > 0.3
    pair = {"first": first[1:2], "second": near[1:2]}
    assert compare.significance(pair, references)["second"] < 0.01


def test_a_significant_p_value_is_about_twice_the_one_of_sacrebleu():
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    rng = random.Random(5)
    references = [" ".join(rng.choices(tiny.WORDS, k=9)) for _ in range(97)]
    systems = {
        name: [f"{text} x" if n in some else text for n, text in enumerate(references)]
        for name, some in (("first", range(0, 50)), ("second", range(40, 70)))
    }
    test = PairedTest(list(systems.items()), {"BLEU": BLEU()}, [references], "bs", 4000)
    one_sided = test()[1]["BLEU"][1].p_value
    found = {name: [texts] for name, texts in systems.items()}
    found = compare.significance(found, references)["second"]
    assert found == pytest.approx(2 * one_sided, abs=0.02) and found < 0.1


def test_names_tell_the_runs_apart(tmp_path):
    runs = [tmp_path / "x" / "run", tmp_path / "y" / "run"]
    assert compare.names_of(runs) == ["x/run", "y/run"]
    assert compare.names_of([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    with pytest.raises(ValueError, match="different folders"):
        compare.names_of([tmp_path, tmp_path])


@pytest.fixture
def seeds(runs, tmp_path):
    """Makes a run with a seed, perhaps with other settings or another corpus; returns its
    directory."""

    def make(name, seed, changes=(), corpus="c0"):
        run = shutil.copytree(runs[0], tmp_path / name)
        (run / "prepared").mkdir()
        settings = {"epochs": 3, "seed": seed, **dict(changes)}
        (run / "prepared" / "recipe.json").write_text(json.dumps(settings))
        (run / "prepared" / "corpus.json").write_text(json.dumps({"train": {"sha256": corpus}}))
        return run

    return make


def test_only_runs_that_differ_in_seed_are_averaged(seeds, runs, capsys):
    # How it was computed does not make another sample.
    three = [
        seeds(f"s{n}", n, {"accumulate": n, "cores": n, "checkpoint_steps": 7 * n})
        for n in (1, 2, 3)
    ]
    others = [
        seeds("again", 1),
        seeds("longer", 4, {"epochs": 5}),
        seeds("other", 5, corpus="c1"),
        seeds("killed", 6),
        seeds("bfloat16", 7),
        runs[1],
    ]
    rows = (others[3] / "log.csv").read_text().splitlines(keepends=True)
    (others[3] / "log.csv").write_text("".join(rows[:-1]))
    (others[4] / "sessions.json").write_text('[{"dtype": "mixed_bfloat16"}]')
    found = {
        run.name: {
            "pairs": 61,
            "bleu": bleu,
            "bleu_signature": "s",
            "chrf": 10.0,
            "vocabulary": "v",
        }
        for run, bleu in zip([*three, *others], (1, 2, 6, *range(90, 96)), strict=True)
    }
    del found["s2"]["chrf"]
    means = compare.seeds([*three, *others], found)
    # (4 + 1 + 9) / 2 is the variance of the sample.
    assert means == {"s1 + s2 + s3": {"bleu": 3, "bleu_deviation": pytest.approx(7**0.5)}}
    compare.show({name: found[name] for name in ("s1", "s2", "s3")}, means)
    printed = capsys.readouterr().out
    assert "3.00 ± 2.65" in printed and "vocabularies differ" not in printed
    found["s3"]["vocabulary"] = "w"
    compare.show({"[b]": found["s1"], "s3": found["s3"]}, {})
    printed = capsys.readouterr().out
    assert "[b]" in printed and "vocabularies differ" in printed
    assert compare.seeds(others, {run.name: found[run.name] for run in others}) == {}


def test_command_prints_scores_and_writes_json_and_curves(runs, pairs, tmp_path, capsys):
    source, target, out = tmp_path / "s", tmp_path / "t", tmp_path / "out"
    source.write_text("".join(f"{pair.source}\n" for pair in pairs))
    target.write_text("".join(f"{pair.target}\n" for pair in pairs))
    files = ["--source", str(source), "--target", str(target), "--out", str(out)]
    assert compare.main([*map(str, runs), *files]) == 0
    printed = capsys.readouterr().out
    assert "p, difference from the first" in printed and "61 pairs" in printed
    assert set(json.loads((out / "compare.json").read_text())) == {"a", "b"}
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_curves_of_different_validation_corpora_are_not_laid_over_each_other(seeds, tmp_path):
    names = ["a", "b", "c", "never"]
    runs = [seeds(name, n) for n, name in enumerate(names)]
    for run, val in zip(runs, ("v0", "v1", "v0", "v1"), strict=True):
        (run / "prepared" / "corpus.json").write_text(json.dumps({"val": {"sha256": val}}))
    rows = dict(zip(names, map(read_history, runs), strict=True)) | {"never": [], "x": [], "y": []}
    rows["x"] = rows["y"] = rows["a"]
    corpora = dict(zip(names, map(compare.validated_on, runs), strict=True))
    corpora |= {"x": compare.validated_on(tmp_path), "y": None}  # unknown, so perhaps the same
    assert corpora["a"] == "v0" and corpora["x"] is None
    assert compare.panels(rows, corpora) == [["a", "c"], ["b"], ["x"], ["y"]]
    assert compare.panels({"never": []}, corpora) == []
    said = []
    compare.write_curves(tmp_path / "two.png", rows, corpora, said.append)
    assert len(said) == 1 and "validation corpora" in said[0]


def test_mistakes_give_one_line_errors(runs, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("a\n")
    files = ["--source", str(text), "--target", str(text)]
    for arguments, code, message in (
        ([str(runs[0]), *files], 2, "two or more"),
        ([*map(str, runs)], 2, "give either --recipe or --source"),
        ([str(runs[0]), str(tmp_path), *files], 1, "is no run directory"),
        ([str(runs[0]), str(runs[0]), *files], 1, "different folders"),
    ):
        try:
            assert compare.main(arguments) == code
        except SystemExit as error:
            assert error.code == code
        errors = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
        assert len(errors) == 1 and message in errors[0]
