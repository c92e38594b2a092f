"""Searching a batch in groups gives the result of searching the whole batch."""

import numpy as np
import pytest
from search_oracle import EOS
from toy import Toy

from tfformer import beam_search, sample_search
from tfformer.search import loop as blocks
from tfformer.search.loop import BLOCK


def ending_at_different_times():
    """An artificial model whose sentences end in different blocks."""
    toy = Toy(seed=33, batch=7)
    toy.table[:, :, EOS] += np.linspace(-6, 3, 7)[:, None]
    return toy


def in_three_blocks(search, toy):
    if search == "beam":
        return beam_search(toy.step, toy.state(4), 7, 2 * BLOCK + 5, 4)
    return sample_search(toy.step, toy.state(), 7, 2 * BLOCK + 5, seed=5)


@pytest.fixture(scope="module")
def wholes():
    """{search: its result for the whole batch}"""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MIN_GROUPS", 1)
        for search in ("beam", "sample"):
            toy = ending_at_different_times()
            whole = found[search] = in_three_blocks(search, toy)
            assert len(set(whole.lengths[:, 0].numpy().tolist())) > 3
            assert toy.batch in {len(seen) for seen in toy.seen}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "minimum, maximum, size, largest",
    [(2, 16, 16, 4), (3, 16, 16, 3), (9, 16, 16, 1), (1, 16, 2, 3), (1, 2, 1, 4)],
)
@pytest.mark.parametrize("search", ["beam", "sample"])
def test_groups_of_a_batch_give_the_same_result_as_the_whole(
    search, minimum, maximum, size, largest, monkeypatch, wholes
):
    toy = ending_at_different_times()
    monkeypatch.setattr(blocks, "MIN_GROUPS", minimum)
    monkeypatch.setattr(blocks, "MAX_GROUPS", maximum)
    monkeypatch.setattr(blocks, "GROUP_SIZE", size)
    for parts, together in zip(in_three_blocks(search, toy), wholes[search], strict=True):
        if together is not None:
            np.testing.assert_allclose(parts, together, rtol=1e-6)
    assert max(len(seen) for seen in toy.seen) == largest
