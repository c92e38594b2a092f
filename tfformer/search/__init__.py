"""Search: finds the most probable sequence from the probabilities of the next token.

Every search needs a *step function* and a *state* (`tfformer.search.step`), and no model:

    logits, cache, attention = step(ids, position, visible, state)

    ids        int32 [B, W]: the newest token of each of W hypotheses of a sentence
    position   int32 scalar: the position of that token in the sequence, 0 for bos
    visible    boolean [B, W, C, W]: whether hypothesis w descends from beam v at position c
    state      `State(memory, cache)`. The first axis of all its tensors is that of the sentences.
               memory: computed once for each sentence; a step only reads it.
               cache: tensors [B, ..., C, K], computed at each of C positions for the W beams
               together. A step writes its own values at index `position` of axis -2. The cache
               starts with one position, C = 1, and the search adds more. The step may write in
               place, because a search never reads a cache again after passing it to a step.
    logits     [B, W, V]: unnormalised, of the token after ids
    attention  [B, W, S], the attention weights of each hypothesis for searches that need them,
               or None

The cache never moves when a hypothesis changes its beam. Instead a hypothesis stores the beams of
its ancestors, and attention reads only those (`visible`). So a cache can be written in place. A
gather would copy it at every step.

A batch is searched in parts that run in parallel, and B is the size of a part. A step should have
no stateful operation, because then the parts would wait for each other. Each part runs in blocks of
16 positions. After each block, settled sentences leave the part, and the caches of the others grow.
So sentences that have left cost nothing, and attention reads few empty positions.

A search finds sequences y_1 ... y_n = eos with 1 <= n <= max_length. At the last position it allows
only eos, so every result is a complete sequence and the probabilities can be compared. It never
chooses pad and bos.

    score(y) = log P(y | x) / penalty(n)
    penalty(n) = ((5 + n) / 6)^alpha     (Wu et al. 2016, equation 14: "gnmt")
               = n^alpha                 ("power")

Reading order: `step` (the interface between search and model), `options`, `hypotheses` (the state
of a search), `loop`, `beam`, `greedy`, `sample`, `exhaustive`, `rules`, `loop_xla`; then `uncached`
and `special_ids`, for any model that returns logits.
"""

from tfformer.config.search_options import OPTIONS, PENALTY_FORMS
from tfformer.search.beam import beam_search
from tfformer.search.exhaustive import exhaustive_search
from tfformer.search.greedy import greedy_search
from tfformer.search.hypotheses import SearchResult, SearchSteps, length_penalty
from tfformer.search.sample import keep_likeliest, sample_search
from tfformer.search.special_ids import SpecialIds
from tfformer.search.step import Searchable, State, StepResult
from tfformer.search.uncached import Uncached

__all__ = [
    "OPTIONS",
    "PENALTY_FORMS",
    "SearchResult",
    "SearchSteps",
    "Searchable",
    "SpecialIds",
    "State",
    "StepResult",
    "Uncached",
    "beam_search",
    "exhaustive_search",
    "greedy_search",
    "keep_likeliest",
    "length_penalty",
    "sample_search",
]
