"""The translation of a row does not depend on the other rows of its batch."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
import tiny
from paths import ROOT

from export.serving.worker import Worker
from export.verification.graph import read_graph
from export.verification.paths import find_saved_model

TOLERANCE = 1e-4  # of a score


class Served:
    """`serving_default` of a SavedModel: texts to (translations, scores)."""

    def __init__(self, directory):
        path = find_saved_model(directory)
        signature = read_graph(path).signatures["serving_default"]
        self._text = signature.inputs["text"].name
        self._fetches = [signature.outputs[name].name for name in ("translation", "score")]
        self._worker = Worker(path, intra_op_threads=1)

    def __call__(self, texts):
        feeds = {self._text: np.array([text.encode() for text in texts], object)}
        return self._worker.run(feeds, self._fetches)

    def close(self):
        self._worker.close()


def random_batches(count, maximum, seed=7):
    """The numbers 0 ... count - 1, shuffled, in lists of 1 to `maximum`; both lengths occur.

    The result is the same for the same seed.
    """
    rng = random.Random(seed)
    places = rng.sample(range(count), count)
    sizes = [maximum, 1]
    while sum(sizes) < count:
        sizes.append(rng.randint(1, maximum))
    ends = np.cumsum([0, *sizes])
    return [places[a:b] for a, b in zip(ends, ends[1:], strict=False) if places[a:b]]


def compare(served, texts, maximum):
    """The differences between texts alone and in batches of up to `maximum`.

    Returns:
        (the positions whose translation differs, the maximum difference of two scores, the
        number of different translations).
    """
    alone = [[part[0] for part in served([text])] for text in texts]
    different, largest = [], 0.0
    for batch in random_batches(len(texts), maximum):
        translations, scores = served([texts[place] for place in batch])
        for place, translation, score in zip(batch, translations, scores, strict=True):
            if translation != alone[place][0]:
                different.append(place)
            largest = max(largest, abs(float(score) - float(alone[place][1])))
    return different, largest, len({translation for translation, _ in alone})


@pytest.mark.slow
def test_a_translation_does_not_depend_on_its_batch_mates(short, translator_served):
    texts = tiny.sentences(500)
    served = Served(short)
    try:
        different, largest, kinds = compare(served, texts, translator_served.max_batch_size)
    finally:
        served.close()
    assert kinds > 50  # otherwise one answer to everything would pass
    assert not different and largest <= TOLERANCE


@pytest.mark.slow
def test_trained_translation_does_not_depend_on_its_batch_mates():
    export = os.environ.get("TFFORMER_MULTI30K_EXPORT")
    if not export:
        pytest.skip("set TFFORMER_MULTI30K_EXPORT to an export of a run of Multi30K")
    named = os.environ.get("TFFORMER_MULTI30K")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("set TFFORMER_MULTI30K to a folder with the corpus, from training.multi30k")
    texts = (folder / "val.en").read_text(encoding="utf-8").split("\n")[:500]
    served = Served(export)
    try:
        different, largest, kinds = compare(served, texts, 64)
    finally:
        served.close()
    print(f"{len(different)} of {len(texts)} differ, scores by at most {largest:.2g}")
    assert kinds > 400
    assert not different and largest <= TOLERANCE
