"""IBM model 1 and its shortlist; and all steps from a corpus to a served model."""

import collections
import json
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
import tiny
from few_texts import prove_by_few

import tfformer
from export import saved_model, verify
from export.artifacts.examples import sample_requests
from export.capi.job import serve_calls
from export.verification.graph import read_graph
from export.verification.translation import compare_reference
from tfformer import Tokenizer
from tfformer.service.n_best import beam_search_ids
from tfformer.service.translation import serving_default
from tfformer.shortlist import Shortlist
from training import shortlist as learning
from training.data.reader import Pair
from training.shortlist import Tokens, coverage, learn, split, tokenise, translation_probabilities

WORDS = {"house": "Haus", "lake": "See", "tree": "Baum", "one": "ein", "old": "altes", "by": "am"}
SEARCH = {"max_source_length": 17, "max_target_length": 13}


def pairs(seed, count):
    """Word for word, so that each word has one translation."""
    rng = np.random.default_rng(seed)
    drawn = (rng.choice([*WORDS], 1 + rng.integers(5)) for _ in range(count))
    return [Pair(" ".join(words), " ".join(WORDS[word] for word in words)) for words in drawn]


@pytest.fixture(scope="module")
def tokenizer():
    texts = [text for pair in pairs(1, 60) for text in pair[:2]]
    return Tokenizer.train(texts, vocabulary_size=331)


# ---------------------------------------------------------------- IBM model 1


def tokens_of(*sentence_pairs):
    sides = zip(*sentence_pairs, strict=True)
    return Tokens(*([np.array(ids, "int32") for ids in side] for side in sides))


def probabilities(tokens, iterations):
    found = zip(*translation_probabilities(tokens, iterations), strict=True)
    return {(int(source), int(target)): t for source, target, t in found}


def test_ibm_model_1_of_two_sentences_by_hand():
    tokens = tokens_of(([5], [7]), ([5, 6], [7, 8]))
    # 0 is the null word. First each token is shared equally: 7 of the first pair by two, those of
    # the second by three.
    first = {(0, 7): "5/7", (0, 8): "2/7", (5, 7): "5/7", (5, 8): "2/7", (6, 7): "1/2"}
    first[6, 8] = "1/2"
    # Then in proportion: 7 of the second pair by 5/7 : 5/7 : 1/2, 8 by 2/7 : 2/7 : 1/2.
    second = {(0, 7): "235/307", (0, 8): "72/307", (5, 7): "235/307", (5, 8): "72/307"}
    second |= {(6, 7): "5/14", (6, 8): "9/14"}
    for iterations, expected in ((1, first), (2, second)):
        expected = {key: float(Fraction(value)) for key, value in expected.items()}
        assert probabilities(tokens, iterations) == pytest.approx(expected, rel=1e-12)


def plainly(tokens, iterations):
    """The same with dictionaries, link by link; and the log-likelihood before each iteration."""
    t, likelihoods = collections.defaultdict(lambda: 1.0), []
    for _ in range(iterations):
        counts, totals = collections.Counter(), collections.Counter()
        likelihood = 0.0
        for source, target in zip(*tokens, strict=True):
            source = [0, *source.tolist()]
            for word in target.tolist():
                total = sum(t[other, word] for other in source)
                likelihood += np.log(total / len(source))
                for other in source:
                    counts[other, word] += t[other, word] / total
                    totals[other] += t[other, word] / total
        t = {pair: count / totals[pair[0]] for pair, count in counts.items()}
        likelihoods.append(likelihood)
    return t, likelihoods


def test_probabilities_equal_the_plain_algorithm_for_every_chunk_size(rng, monkeypatch):
    def sentence(minimum):
        return rng.integers(4, 23, rng.integers(minimum, 9))  # some pieces twice

    tokens = tokens_of(*((sentence(0), sentence(0)) for _ in range(53)))
    assert any(len(ids) == 0 for ids in [*tokens.source, *tokens.target])
    expected, likelihoods = plainly(tokens, 5)
    for chunk in (1024, 7, 1):
        monkeypatch.setattr(learning, "CHUNK", chunk)
        assert probabilities(tokens, 5) == pytest.approx(expected, rel=1e-9)
    # From the second iteration on, t is a distribution, and no iteration lowers the likelihood.
    assert (np.diff(likelihoods[1:]) > 0).all()
    source, _, t = translation_probabilities(tokens)
    sums = np.bincount(source, t)
    np.testing.assert_allclose(sums[np.unique(source)], 1, rtol=1e-12)


def test_empty_corpus_gives_no_probabilities():
    for tokens in (Tokens([], []), tokens_of(([], [])), tokens_of(([5], []))):
        assert [part.size for part in translation_probabilities(tokens)] == [0, 0, 0]


# ---------------------------------------------------------------- the shortlist


def test_tokens_are_those_of_the_tokenizer_without_eos(tokenizer, monkeypatch):
    monkeypatch.setattr(learning, "CHUNK", 7)
    given = [*pairs(2, 17), Pair("", "ein")]
    tokens = tokenise(given, tokenizer)
    for ids, texts, encode in zip(
        tokens, zip(*given, strict=True), (tokenizer.encode_source, tokenizer.encode_target),
        strict=False,
    ):  # fmt: skip
        expected = encode(tf.constant(texts)).to_list()
        assert [[*own.tolist(), 3] for own in ids] == expected


def test_candidates_are_the_most_likely_translations_in_order(tokenizer):
    tokens = tokenise(pairs(3, 200), tokenizer)
    shortlist = learn(tokens, tokenizer, candidates=5, frequent=1)
    t = probabilities(tokens, learning.ITERATIONS)
    assert shortlist.candidates.shape == (tokenizer.source_vocabulary_size, 5)
    assert not shortlist.candidates[[0, 3]].any()  # padding and eos
    met = {source for source, _ in t if source}
    full = 0
    for piece, row in enumerate(shortlist.candidates.tolist()):
        best = sorted((target for s, target in t if s == piece), key=lambda y: -t[piece, y])
        if piece not in met:
            best = []
        kept = [target for target in row if target]
        assert row == kept + [0] * (5 - len(kept))
        # The same piece is a candidate, at the last position if it was added for this reason.
        if piece > 3 and piece not in best[:5] and row[0] != 0 and kept[-1] == piece:
            kept = kept[:-1]
        if piece in met:
            values = [t[piece, target] for target in kept]
            expected = [t[piece, target] for target in best[: len(kept)]]
            assert values == pytest.approx(expected)
            full += len(kept) >= 4
    assert full > 3


def test_special_byte_and_frequent_pieces_are_always_candidates(tokenizer):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.target_model)
    tokens = tokenise(pairs(4, 50), tokenizer)
    counts = collections.Counter(np.concatenate(tokens.target).tolist())
    for frequent in (1, 3, 1000):
        always = set(learn(tokens, tokenizer, 2, frequent).always.tolist())
        special = {n for n in range(processor.vocab_size()) if n < 4 or processor.is_byte(n)}
        assert len(special) == 260 and special <= always
        more = always - special
        assert len(more) == min(frequent, len(counts))
        minimum = min(counts[piece] for piece in more)
        assert all(counts[piece] <= minimum for piece in counts if piece not in more)


def test_coverage_by_hand():
    candidates = np.zeros((9, 2), "int32")
    candidates[5], candidates[6] = [7, 0], [8, 9]
    shortlist = Shortlist(candidates, np.array([0, 1, 2, 3, 4]), "ab")
    tokens = tokens_of(([5], [7, 4, 8]), ([6, 5], [7, 9, 10, 8, 8]), ([], [4]))
    assert coverage(shortlist, tokens) == (7 / 9, 9, (6 + 8 + 5) / 3)


def test_every_50th_pair_is_held_out():
    ids = [np.array([n]) for n in range(1, 131)]
    learned, held_out = split(Tokens(ids, ids[::-1]))
    assert [int(n[0]) for n in held_out.source] == [50, 100]
    assert [int(n[0]) for n in held_out.target] == [81, 31]
    assert len(learned.source) == 128 and not {50, 100} & {int(n[0]) for n in learned.source}
    few = Tokens(ids[:49], ids[:49])
    assert [len(part.source) for part in split(few)] == [49, 49]


# ---------------------------------------------------------------- the commands


@pytest.fixture(scope="module")
def run(tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run") / "run"
    source_model = tokenizer.source_model
    return tiny.save_run(directory, lambda: Tokenizer(source_model), SEARCH, tie_embeddings="all")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for side in ("source", "target"):
        lines = [getattr(pair, side) for pair in pairs(6, 101)]
        (folder / side).write_text("\n".join(lines) + "\n")
    return ["--source", str(folder / "source"), "--target", str(folder / "target")]


@pytest.fixture(scope="module")
def learned(run, corpus, tmp_path_factory):
    """The file that the command has written."""
    path = tmp_path_factory.mktemp("learned") / "shortlist.npz"
    options = ["--candidates", "4", "--frequent", "3", "--out", str(path)]
    assert learning.main([str(run), *corpus, *options]) == 0
    return path


def test_command_writes_the_learned_shortlist(run, corpus, learned, tmp_path, capsys):
    again = tmp_path / "again.npz"
    options = ["--candidates", "4", "--frequent", "3", "--out", str(again)]
    assert learning.main([str(run), *corpus, *options]) == 0
    assert again.read_bytes() == learned.read_bytes()
    printed, progress = capsys.readouterr()
    tokenizer = tfformer.run.load_tokenizer(run)
    known, held_out = split(tokenise(pairs(6, 101), tokenizer))
    expected = learn(known, tokenizer, 4, 3)
    found = Shortlist.load(learned)
    np.testing.assert_array_equal(found.candidates, expected.candidates)
    np.testing.assert_array_equal(found.always, expected.always)
    covered = coverage(expected, held_out)
    assert f"{again}: {expected.describe()}\n2 pairs held out: {covered.covered:.2%} of" in printed
    assert "101 pairs kept; nothing dropped; learning from 99" in progress


@pytest.mark.slow
def test_export_with_a_shortlist_answers_as_in_process(run, learned, tmp_path, monkeypatch):
    # Text or ids, whose search it narrows; with fewer signatures, verification is faster.
    signatures = (serving_default, beam_search_ids)
    monkeypatch.setattr("tfformer.service.translator.SIGNATURES", signatures)
    prove_by_few(monkeypatch)
    base = tmp_path / "exported"
    assert saved_model.main([str(run), str(base), "--shortlist", str(learned)]) == 0
    report = json.loads((base / "1.report.json").read_text())
    details = {check["name"]: check["detail"] for check in report["checks"]}
    assert report["passed"] and "plain beam search in NumPy" in details
    assert details["shortlist"] == Shortlist.load(learned).describe()

    texts = ["old house by one lake", "", "tree", "Grüße 🎉"]
    here = tfformer.load_translator(run, shortlist=Shortlist.load(learned))
    signature = read_graph(base / "1").signatures["serving_default"]
    feeds = {signature.inputs["text"].name: np.array([text.encode() for text in texts], object)}
    fetches = [signature.outputs[name].name for name in ("translation", "score")]
    [answer] = serve_calls(base / "1", [(feeds, fetches)])
    here = here.functions["serving_default"](tf.constant(texts))
    assert answer[fetches[0]].tolist() == here["translation"].numpy().tolist()
    np.testing.assert_allclose(answer[fetches[1]], here["score"], atol=1e-4)
    whole = tfformer.load_translator(run).functions["serving_default"](tf.constant(texts))
    differences = np.abs(answer[fetches[1]] - whole["score"])
    assert ((differences > 1e-2) == (np.array(texts) != "")).all()


@pytest.mark.slow
def test_verification_fails_with_another_shortlist(run, learned):
    shortlist = Shortlist.load(learned)
    translator = tfformer.load_translator(run, shortlist=shortlist)
    requests = sample_requests(translator)
    [request] = requests["beam_search_ids"]
    request["source_ids"] = request["source_ids"][:2]
    answer = translator.functions["beam_search_ids"](
        tf.constant(request["source_ids"]), max_length=tf.constant(request["max_length"])
    )
    served = {"beam_search_ids": [{key: value.numpy() for key, value in answer.items()}]}
    best = int(answer["token_ids"][0, 0, 0])
    assert best > 3, "a special piece is always a candidate"
    passed = []
    for other in (
        shortlist,
        Shortlist(
            np.where(shortlist.candidates == best, 0, shortlist.candidates),
            shortlist.always[shortlist.always != best],
            shortlist.tokenizer_sha256,
        ),
        None,
    ):
        translator.shortlist, report = other, verify.Report("", served=served)
        compare_reference(translator, requests, report)
        passed.append(report.passed)
    assert passed == [True, False, False]


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["{run}", "--source", "{short}", "--target", "{source}", "--out", "{out}"], 1, "1 line "),
        (["{run}", "--source", "{blank}", "--target", "{blank}", "--out", "{out}"], 1, "no pair "),
        (["{run}", "--source", "{source}", "--out", "{out}"], 1, "1 column, but"),
        (["{run}", *["--source", "{source}", "--target", "{target}", "--out", "{tmp}"]], 1, ""),
        (["{run}", "--source", "x", "--out", "x", "--candidates", "0"], 2, "[1, 10000], got 0"),
        (["{run}", "--source", "x", "--out", "x", "--frequent", "10001"], 2, "got 10001"),
    ],
)
def test_mistakes_give_one_line_error_and_write_nothing(
    arguments, code, message, run, corpus, tmp_path, capsys
):
    (tmp_path / "short").write_text("house\n")
    (tmp_path / "blank").write_text("\n \n")
    places = {"run": run, "tmp": tmp_path, "out": tmp_path / "out", "source": corpus[1]}
    places |= {"target": corpus[3], "short": tmp_path / "short", "blank": tmp_path / "blank"}
    try:
        found = learning.main([argument.format(**places) for argument in arguments])
    except SystemExit as ended:
        found = ended.code
    assert found == code
    printed, said = capsys.readouterr()
    [line] = [line for line in said.splitlines() if not line.endswith("...")]
    assert line.startswith("python -m training.shortlist: error: ") and message in line
    assert not printed and sorted(path.name for path in tmp_path.iterdir()) == ["blank", "short"]
