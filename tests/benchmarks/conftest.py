"""Models of few signatures, which are sooner exported, loaded and warmed up than those of all; and
trainings that begin sooner."""

import pytest
import tiny

from benchmarks import work
from tfformer.service.n_best import beam_search
from tfformer.service.translation import serving_default


@pytest.fixture
def few_signatures(monkeypatch):
    """A `Translator` has those alone that a worker asks for, that of another checkout too."""
    signatures = (serving_default, beam_search)
    monkeypatch.setattr("tfformer.service.translator.SIGNATURES", signatures)
    chosen = (
        "from tfformer.service import n_best, translation, translator\n"
        "translator.SIGNATURES = (translation.serving_default, n_best.beam_search)\n"
    )
    monkeypatch.setattr(work, "EXPORT", chosen + work.EXPORT)


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A base directory whose version 1 has the signature alone that clients ask for."""
    base = tmp_path_factory.mktemp("models") / "small"
    tiny.save_version(tiny.make_translator(**tiny.SERVED), base, 1, ["serving_default"])
    return base
