"""Search: from the probability of the next token to the most probable sequence.

Every search runs over a *step function* and a *state* (`tfformer.search.step`), and knows no model:

    logits, cache, attention = step(ids, position, visible, state)

    ids        int32 [B, W]: the newest token of each of W hypotheses a sentence
    position   int32 scalar: where it stands in the sequence, 0 for bos
    visible    boolean [B, W, C, W]: hypothesis w descends from what stood in beam v at position c
    state      `State(memory, cache)`, whose tensors all have the sentences as their first axis.
               memory: what a sentence has once; a step only reads it.
               cache: tensors [B, ..., C, K], what was computed at each of C positions for the W
               beams together; a step writes its own at index `position` of axis -2. It starts
               with room for one position, C = 1, and the search makes more. It may be written in
               place, for no search looks at a cache again that it has given to a step.
    logits     [B, W, V]: unnormalised, of the token after ids
    attention  [B, W, S], what each hypothesis attends to, or None: for the searches that ask for it

No cache is ever moved for a hypothesis that changes its beam. A hypothesis remembers the beams of
its ancestors instead, and attention sees those alone (`visible`). So a cache can be written in
place, where a gather would copy it at every step.

A batch is searched in parts, side by side: B is the size of a part, and a step should have no
stateful operation, or the parts wait for each other. Each part goes in blocks of 16 positions.
Between two blocks the sentences that are settled leave it, and the caches of the others grow; so
nothing is computed for what is finished, and no attention looks far beyond the positions that
there are.

The sequences found are y_1 ... y_n = eos with 1 <= n <= max_length: at the last position nothing
but eos is allowed, so that every result is a complete sequence whose probability can be compared.
pad and bos are never chosen.

    score(y) = log P(y | x) / penalty(n)
    penalty(n) = ((5 + n) / 6)^alpha     (Wu et al. 2016, equation 14: "gnmt")
               = n^alpha                 ("power")

Reading order: `step` (what a search asks of a model), `options`, `hypotheses` (what a search
knows), `loop`, `beam`, `greedy`, `sample`, `exhaustive`, `rules`, `loop_xla`; `uncached` and
`special_ids` for any model that gives logits.
"""

from tfformer.search.beam import beam_search
from tfformer.search.exhaustive import exhaustive_search
from tfformer.search.greedy import greedy_search
from tfformer.search.hypotheses import SearchResult, SearchSteps, length_penalty
from tfformer.search.options import OPTIONS, PENALTY_FORMS
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
