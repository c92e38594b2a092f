"""Models with few signatures, which are exported and loaded faster, and trainings that start
faster."""

import pytest
import tiny

from benchmarks import work
from tfformer.service.n_best import beam_search
from tfformer.service.translation import serving_default


@pytest.fixture
def few_signatures(monkeypatch):
    """Gives a `Translator` only the signatures that a worker calls, also in another checkout."""
    signatures = (serving_default, beam_search)
    monkeypatch.setattr("tfformer.service.translator.SIGNATURES", signatures)
    chosen = (
        "from tfformer.service import n_best, translation, translator\n"
        "translator.SIGNATURES = (translation.serving_default, n_best.beam_search)\n"
    )
    monkeypatch.setattr(work, "EXPORT", chosen + work.EXPORT)


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A base directory; version 1 has only the signature that clients call."""
    base = tmp_path_factory.mktemp("models") / "small"
    tiny.save_version(tiny.make_translator(**tiny.SERVED), base, 1, ["serving_default"])
    return base
