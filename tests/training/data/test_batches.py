"""Batches: a repeatable order, each pair once an epoch, few shapes, as few steps as possible."""

import itertools
import random
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from tfformer import Tokenizer
from training.data.batches import EDGES, Batches
from training.data.corpus import COLUMNS, LINKS_BYTES, SOURCE_TOKENS, write_corpus
from training.data.epochs import permuted
from training.data.noise import Noise
from training.data.reader import CorpusReport, Pair
from training.tasks import TASKS

PAIRS, TOKENS = 211, 97
TRANSLATION = TASKS["translation"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["ein Haus am See", "der Garten"] * 10, vocabulary_size=300, kind="char")


@pytest.fixture(scope="module")
def pairs():
    chosen = random.Random(5)

    def text():
        return "".join(chosen.choices("einHausmS", k=chosen.randint(1, 30)))

    return [Pair(f"{n}{text()}", text()) for n in range(PAIRS)]


@pytest.fixture(scope="module")
def corpus(pairs, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "train"
    return write_corpus(folder, pairs, tokenizer, 64, CorpusReport(kept=PAIRS))


@pytest.fixture(scope="module")
def batches(corpus, tokenizer):
    return Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3)


def elements(dataset):
    """The batches of a dataset as (source ids, target ids, labels), in NumPy."""
    return [
        (inputs["source_ids"], inputs["target_ids"], labels)
        for inputs, labels in dataset.as_numpy_iterator()
    ]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


# ---------------------------------------------------------------- the permutation


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 101, 1023, 1024, 1025])
def test_permuted_is_a_permutation(size):
    for key in ((0, 0), (0, 1), (7, 0)):
        found = permuted(np.arange(size), size, key)
        assert found.dtype == np.int64
        assert sorted(found.tolist()) == list(range(size))


def test_permuted_can_be_computed_in_parts():
    whole = permuted(np.arange(1009), 1009, (1, 2))
    parts = [permuted(np.arange(n, min(n + 100, 1009)), 1009, (1, 2)) for n in range(0, 1009, 100)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    positions = np.array([5, 1008, 0])
    np.testing.assert_array_equal(permuted(positions, 1009, (1, 2)), whole[positions])
    np.testing.assert_array_equal(positions, [5, 1008, 0])


def test_different_keys_give_different_permutations():
    keys = list(itertools.product(range(5), repeat=2))
    found = {tuple(permuted(np.arange(101), 101, key)) for key in keys}
    assert len(found) == len(keys)


# ---------------------------------------------------------------- the plan


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_an_epoch_has_every_pair_once(batches, epoch):
    numbers = [n for _, chosen in batches.plan(epoch) for n in chosen]
    assert sorted(numbers) == list(range(PAIRS))


def test_a_pair_is_in_the_first_bucket_that_holds_it(batches, corpus):
    for bucket, numbers in batches.plan(0):
        longest = corpus.index[numbers, SOURCE_TOKENS:LINKS_BYTES].max(axis=1)
        assert (longest <= EDGES[bucket]).all()
        if bucket:
            assert (longest > EDGES[bucket - 1]).all()


def test_the_plan_is_a_pure_function_of_seed_and_epoch(corpus, tokenizer):
    def plan(seed, epoch):
        return list(Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed).plan(epoch))

    assert plan(3, 1) == plan(3, 1)
    different = [plan(seed, epoch) for seed in (3, 4) for epoch in (0, 1)]
    assert all(one != other for one, other in itertools.combinations(different, 2))


def test_every_epoch_has_the_same_number_of_batches(batches):
    for epoch in range(5):
        assert sum(1 for _ in batches.plan(epoch)) == len(batches)


def test_tokens_are_counted_without_padding(batches):
    tokens = list(batches.tokens(0))
    assert len(tokens) == len(batches)
    assert list(batches.tokens(0, skip=3)) == tokens[3:]
    for count, (source_ids, _, labels) in zip(tokens, elements(batches.dataset(0)), strict=True):
        assert count == (source_ids != 0).sum() + (labels != 0).sum()


def test_the_plan_of_a_large_corpus_is_not_kept_in_memory():
    class Large:
        rng = np.random.default_rng(0)
        index = np.zeros((300_000, COLUMNS), "int64")
        index[:, SOURCE_TOKENS:LINKS_BYTES] = rng.integers(2, 60, size=(300_000, 2))

        def __len__(self):
            return len(self.index)

    batches = Batches(TRANSLATION, Large(), None, 4096)
    tracemalloc.start()
    count = sum(1 for _ in batches.plan(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == len(batches)
    # A list of all its numbers would take 300,000 x 8 bytes and 300,000 integers of 32.
    assert peak < 300_000 * 40


# ---------------------------------------------------------------- the dataset


@pytest.fixture(scope="module")
def epoch_0(batches):
    return elements(batches.dataset(0))


def test_cardinality_is_exact(batches, epoch_0):
    assert len(epoch_0) == len(batches)
    for skip in (0, 1, len(batches)):
        dataset = batches.dataset(0, skip)
        assert int(dataset.cardinality()) == len(batches) - skip


def test_elements_equal_the_tokenizer_s_ids_with_padding(batches, epoch_0, pairs, tokenizer):
    for (_, numbers), (source_ids, target_ids, labels) in zip(
        batches.plan(0), epoch_0, strict=True
    ):
        sources = tokenizer.encode_source(tf.constant([pairs[n].source for n in numbers]))
        targets = tokenizer.encode_target(tf.constant([pairs[n].target for n in numbers]))
        for row, (x, y) in enumerate(zip(sources.numpy(), targets.numpy(), strict=True)):
            assert source_ids[row, : len(x)].tolist() == x.tolist()
            assert not source_ids[row, len(x) :].any()
            assert labels[row, : len(y)].tolist() == y.tolist()
            assert not labels[row, len(y) :].any()
            assert target_ids[row, : len(y)].tolist() == [2, *y[:-1].tolist()]
            assert not target_ids[row, len(y) :].any()
        for ids in (source_ids, target_ids, labels):
            assert ids.dtype == np.int32
            assert not ids[len(numbers) :].any()


def test_element_shapes_match_the_announced_bucket_shapes(batches, epoch_0):
    for element in epoch_0:
        assert len({ids.shape for ids in element}) == 1
    assert {element[0].shape for element in epoch_0} == {batches.shape(b) for b in batches.buckets}
    for rows, edge in map(batches.shape, batches.buckets):
        assert rows == max(1, TOKENS // edge)


def test_skip_yields_the_rest_of_the_epoch(batches, epoch_0):
    for skip in (1, len(batches) // 2, len(batches) - 1, len(batches)):
        assert_same(elements(batches.dataset(0, skip)), epoch_0[skip:])


def test_iterating_a_dataset_twice_gives_the_same_elements(batches, epoch_0):
    dataset = batches.dataset(0)
    # Also after a pass that was not completed.
    next(iter(dataset))
    for _ in range(2):
        assert_same(elements(dataset), epoch_0)
    skipped = batches.dataset(0, 3)
    for _ in range(2):
        assert_same(elements(skipped), epoch_0[3:])


# ---------------------------------------------------------------- shards and parts


def rows_of(element):
    """The rows of an element that are not padding, each as bytes."""
    rows = np.concatenate(element, axis=1)
    return sorted(row.tobytes() for row in rows if row.any())


@pytest.mark.parametrize(("count", "parts"), [(2, 1), (3, 1), (1, 4), (2, 3), (7, 2)])
def test_shards_partition_every_batch(corpus, tokenizer, epoch_0, count, parts):
    batches = Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3, parts=parts)
    shards = [elements(batches.dataset(shards=(n,), count=count)) for n in range(count)]
    shapes = {batches.shape(bucket, count) for bucket in batches.buckets}
    for whole, *split in zip(epoch_0, *shards, strict=True):
        assert {ids.shape for shard in split for ids in shard} == {split[0][0].shape}
        assert split[0][0].shape in shapes
        rows, edge = split[0][0].shape
        assert edge == whole[0].shape[1]
        assert rows % parts == 0
        # No more padding than needed.
        assert rows * count - whole[0].shape[0] < count * parts
        assert sorted(row for shard in split for row in rows_of(shard)) == rows_of(whole)
    # The last batches of an epoch have fewer rows than shards, so some shards have only padding.
    if count == 7:
        assert any(not rows_of(shard) for split in shards for shard in split)


def test_several_shards_are_interleaved(batches):
    alone = [elements(batches.dataset(1, 2, (n,), 5)) for n in (1, 2)]
    dataset = batches.dataset(1, 2, (1, 2), 5)
    assert int(dataset.cardinality()) == 2 * (len(batches) - 2)
    assert_same(
        elements(dataset), [element for pair in zip(*alone, strict=True) for element in pair]
    )
    assert_same(elements(dataset), elements(dataset))


def test_a_shard_reads_only_its_own_texts(corpus, tokenizer):
    read = []

    class Watched:
        index, __len__ = corpus.index, lambda self: len(corpus)

        def texts(self, numbers):
            read.extend(numbers)
            return corpus.texts(numbers)

    batches = Batches(TRANSLATION, Watched(), tokenizer, TOKENS, seed=3)
    elements(batches.dataset(0, 0, (1,), 3))
    assert read == [n for _, numbers in batches.plan(0) for n in numbers[1::3]]


# ---------------------------------------------------------------- packed, in passes, with noise


def test_packed_batches_give_token_positions(batches, corpus, tokenizer):
    packed = Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3, packed=True)
    both = zip(packed.dataset().as_numpy_iterator(), elements(batches.dataset()), strict=True)
    for (inputs, labels), (source, target, padded_labels) in both:
        np.testing.assert_array_equal(inputs["source_ids"], source)
        for name, ids in (("source_places", source), ("target_places", target)):
            places, tokens = inputs[name], np.flatnonzero(ids)
            np.testing.assert_array_equal(places[: len(tokens)], tokens)
            assert (ids.ravel()[places[len(tokens) :]] == 0).all()
            assert len(places) % 16 == 0 or len(places) == ids.size
        np.testing.assert_array_equal(labels, padded_labels.ravel()[inputs["target_places"]])


def test_both_halves_of_a_two_pass_batch_are_equal(batches, corpus, tokenizer):
    noise = Noise(tokenizer, word_dropout=0.3)
    twice = Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3, noise=noise)
    twice.passes = 2
    for found, once in zip(elements(twice.dataset()), elements(batches.dataset()), strict=True):
        for ids in found:
            np.testing.assert_array_equal(*np.split(ids, 2))
        np.testing.assert_array_equal(found[2][: len(once[2])], once[2])


def test_noise_differs_between_epochs_and_repeats_on_resume(corpus, tokenizer):
    noise = Noise(tokenizer, word_dropout=0.3)
    noisy = Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3, noise=noise, shuffle=False)
    first = elements(noisy.dataset(0))
    assert_same(elements(noisy.dataset(0, skip=2)), first[2:])
    other = elements(noisy.dataset(1))
    assert any((a[0] != b[0]).any() for a, b in zip(first, other, strict=True))
    for a, b in zip(first, other, strict=True):
        np.testing.assert_array_equal(a[2], b[2], err_msg="labels have no noise")


def test_both_ways_swaps_half_of_the_pairs_in_first_epochs(corpus, tokenizer):
    both = Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3, both_ways=2)
    plain = Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3)

    def texts(batches, epoch):
        return [
            pair
            for _, numbers in batches.plan(epoch)
            for pair in zip(*batches.texts(numbers, epoch), strict=True)
        ]

    turned = []
    for epoch in (0, 1):
        pairs, expected = texts(both, epoch), texts(plain, epoch)
        turned.append({min(x, y) for (x, y), (z, _) in zip(pairs, expected, strict=True) if x != z})
        assert all(
            pair in (other, other[::-1]) for pair, other in zip(pairs, expected, strict=True)
        )
        # Four standard deviations of a fair coin.
        assert abs(len(turned[epoch]) - PAIRS / 2) < 2 * PAIRS**0.5
    assert turned[0] != turned[1]
    assert texts(both, 2) == texts(plain, 2)


def test_both_ways_swaps_equal_pairs_on_resume_and_in_shards(corpus, tokenizer):
    both = Batches(TRANSLATION, corpus, tokenizer, TOKENS, seed=3, both_ways=1)
    epoch = elements(both.dataset())
    assert_same(elements(both.dataset(0, skip=2)), epoch[2:])
    shards = [elements(both.dataset(shards=(n,), count=3)) for n in range(3)]
    for whole, *split in zip(epoch, *shards, strict=True):
        assert sorted(row for shard in split for row in rows_of(shard)) == rows_of(whole)
