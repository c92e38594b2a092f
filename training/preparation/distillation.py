"""Sequence-level distillation: a student learns its teacher's translations instead of human ones.

A teacher's translations of the training corpus are more uniform than human ones: if a sentence has
several translations, the teacher tends to choose the same one. A non-autoregressive model predicts
each token without knowledge of the others. It can learn such targets, but not the mixture of all
possible translations (Kim and Rush 2016, "Sequence-Level Knowledge Distillation"; Zhou et al. 2020,
"Understanding Knowledge Distillation in Non-autoregressive Machine Translation"). A smaller model
also gains from it.
"""

import itertools

from tfformer.files import RunError
from tfformer.models import ENCODER_DECODER
from tfformer.run import load_service, read_config, require_family

# Number of texts whose translations are in memory together, and number of texts in a batch.
CHUNK, BATCH = 2048, 128


def distilled(pairs, teacher, report):
    """Yields the pairs with the teacher's translation of each source as their target.

    The teacher translates with its own options, as a server would. Pairs whose translation is empty
    are dropped and counted in `report`, which has already counted the pairs, as blank.
    """
    require_family(teacher, read_config(teacher), ENCODER_DECODER)
    try:
        service = load_service(teacher, max_batch_size=BATCH)
    except ValueError as error:
        raise RunError(f"{teacher}: {error}") from error
    pairs = iter(pairs)
    while chunk := list(itertools.islice(pairs, CHUNK)):
        targets = service.answer([pair.source for pair in chunk], BATCH)
        for pair, target in zip(chunk, targets, strict=True):
            if target.strip():
                yield pair._replace(target=target)
            else:
                report.kept -= 1
                report.blank += 1
