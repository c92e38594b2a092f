"""The memory of the largest request, as an export states it: by hand, and measured."""

import pytest
import tiny
from serving import make_request

from export.serving.model import Model
from tfformer import Transformer, TransformerConfig, Translator


def test_the_largest_request_by_hand(translator_served):
    """37 rows with four beams, or 2 rows with 64 beams, whichever needs more."""
    config = translator_served.model.config
    layers, width, heads = config.num_decoder_layers, config.d_model, config.num_heads
    size = config.target_vocabulary_size

    def by_hand(rows, beams, number):
        caches = rows * (13 * beams + 17) * 2 * layers * width * number * 2
        return caches + rows * 4 * (6 * beams * size + 3 * heads * beams * beams * 13)

    assert translator_served.largest_request() == max(by_hand(37, 4, 4), by_hand(2, 64, 4))
    wide = Translator(
        translator_served.model,
        translator_served.tokenizer,
        beam_width=5,
        dtype="bfloat16",
        **tiny.SERVED,
    )
    assert wide.largest_request() == max(by_hand(37, 5, 2), by_hand(2, 64, 2))


@pytest.mark.slow
@pytest.mark.parametrize("rows, beams", [(96, 4), (6, 64)])
def test_no_request_needs_more_memory_than_stated(tmp_path, rows, beams):
    """In the server's own loader: the peak of the largest request minus that of a small one."""
    tokenizer = tiny.make_translator().tokenizer
    config = TransformerConfig.preset(
        "test", tokenizer.source_vocabulary_size, d_model=256, num_decoder_layers=2
    )
    limits = {"max_batch_size": 96, "max_source_length": 61, "max_target_length": 61}
    translator = Translator(Transformer(config), tokenizer, **limits)
    translator.save(str(tmp_path / "1"), ["beam_search"])
    model = Model("tiny", 1, tmp_path / "1", None, 1, 2, warm_up=False)
    try:
        peaks = []
        for count, width in ((1, 4), (rows, beams)):
            texts = [" ".join(tiny.sentences(29))] * count
            options = {"beam_width": width, "min_length": 61, "repetition_penalty": 1.5}
            model.predict(make_request("tiny", texts, "beam_search", no_repeat_ngram=2, **options))
            peaks.append(model.worker.peak_bytes)
    finally:
        model.close()
    # An allocator keeps some more pages.
    assert peaks[1] - peaks[0] < translator.largest_request() + 2**26
