"""The benchmark of shared parameters: the size of the cache, and a table of exports in turns."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import sharing
from tfformer import Transformer, TransformerConfig
from tfformer.inference.fuse import fuse
from tfformer.inference.transformer import Inference


def test_cache_bytes_equal_the_caches_of_a_search():
    size = {"num_layers": 3, "d_model": 14, "num_heads": 7}
    for changes in ({}, {"num_key_value_heads": 1}):
        config = TransformerConfig(
            17, num_encoder_layers=3, num_decoder_layers=3, d_model=14, num_heads=7, **changes
        )
        inference = Inference(*fuse(Transformer(config), 97))
        memory = inference.memory(np.full([1, sharing.SOURCE], 5))
        # The cache of the source, and that of a step of all beams.
        kept = (memory["keys"], memory["values"]), inference.caches(1, sharing.BEAM)
        of_source, of_step = (sum(4 * tf.size(x) for x in tf.nest.flatten(each)) for each in kept)
        assert sharing.cache_bytes(size | {"changes": changes}, 11) == of_source + 11 * of_step


@pytest.mark.slow
def test_sharing_end_to_end(few_signatures, monkeypatch, capsys):
    rows = {"nothing": {}, "one head": {"num_key_value_heads": 1}}
    monkeypatch.setattr(sharing, "ROWS", rows)
    assert sharing.main(["--size", "test", "--length", "5", "--batch", "2", "--rounds", "1"]) == 0
    *_, title, _, head, _, plain, shared = capsys.readouterr().out.splitlines()
    assert title == "Size test, 5 tokens, 4 beams:" and head.count("|") == 5
    # 4 beams of 5 tokens and 16 of the source, 2 heads of 8: 36 * 16 * 2 * 4 bytes; then half.
    assert [row.split(" | ")[1] for row in (plain, shared)] == ["4", "2"]
    assert plain.endswith("| 1.00 |")
