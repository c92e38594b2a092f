"""Exports with options of the layers are verified and served: stock, with XLA, with a shortlist."""

import functools
import json

import numpy as np
import pytest
import tiny
from few_texts import prove_by_few

import tfformer
from export import saved_model
from tfformer import Tokenizer
from tfformer.service.n_best import beam_search_ids
from tfformer.service.translation import serving_default
from tfformer.shortlist import Shortlist

# Together they take minutes.
pytestmark = pytest.mark.slow

TEXTS = [f"word {n} and {n * 7} more" for n in range(97)]
# Few tokens. With XLA, all sources of at most 16 tokens have one length.
SEARCH = {"beam_width": 3, "max_source_length": 13, "max_target_length": 7}
MODELS = {
    "rotary, RMSNorm, keys of one head, location-aware, no biases": {
        "positions": "none", "attention_positions": "rotary", "normalization": "rms",
        "num_heads": 7, "num_key_value_heads": 1, "norm": "pre", "location_width": 3,
        "query_key_norm": True, "use_bias": False,
    },
    "ALiBi, AdaNorm, one layer for all": {
        "positions": "none", "attention_positions": "alibi", "normalization": "ada",
        "unique_layers": 1, "share_halves": True, "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    },
    "relative, BatchNorm": {
        "attention_positions": "relative", "normalization": "batch", "tie_embeddings": "all",
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def run(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run") / "run"
    tokenizer = functools.partial(Tokenizer.train, TEXTS, vocabulary_size=290)
    return tiny.save_run(directory, tokenizer, SEARCH, **MODELS[request.param])


def verified(run, out, *options):
    """Whether the served results are those of the model here and of the plain search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfformer.service.translator.SIGNATURES", (serving_default, beam_search_ids))
        prove_by_few(patch)
        assert saved_model.main([str(run), str(out), *options]) == 0
    return json.loads((out / "1.report.json").read_text())["passed"]


def test_run_is_exported_and_verified(run, tmp_path):
    assert verified(run, tmp_path / "out")


@pytest.mark.parametrize("run", list(MODELS)[:1], indirect=True)
def test_xla_export_is_verified(run, tmp_path):
    assert verified(run, tmp_path / "out", "--xla")


def test_a_shortlist_of_all_pieces_changes_nothing(run):
    model, tokenizer = tfformer.load(run)
    size = tokenizer.target_vocabulary_size
    shortlist = Shortlist(np.zeros((size, 1), "int32"), np.arange(size), tokenizer.sha256)
    whole, short = (
        tfformer.Translator(model, tokenizer, **SEARCH, shortlist=one) for one in (None, shortlist)
    )
    assert len(set(whole.translate(TEXTS[:11]))) > 3
    assert short.translate(TEXTS[:11]) == whole.translate(TEXTS[:11])
