"""Distillation: a student learns what its teacher says in place of what people have written.

A teacher's translations of the training corpus are more alike than people's: of several ways to say
a thing it takes the same again. A model that writes all tokens at once, none of which knows the
others, learns such targets where it cannot learn the mixture of all ways (Kim and Rush 2016,
"Sequence-Level Knowledge Distillation"; Zhou et al. 2020, "Understanding Knowledge Distillation in
Non-autoregressive Machine Translation"). A smaller model gains by it too.
"""

import itertools

from tfformer.files import RunError
from tfformer.models import ENCODER_DECODER
from tfformer.run import load_service, read_config, require_family

# Texts whose translations are in memory at once, and that are searched at once.
CHUNK, BATCH = 2048, 128


def distilled(pairs, teacher, report):
    """Yields the pairs with the teacher's translation of each source as their target.

    It translates by its own options, as a server would. What it says nothing to is dropped, and
    counted in `report` as blank.

    Args:
        pairs: an iterable of `training.data.reader.Pair`.
        teacher: the directory of an encoder-decoder's run.
        report: a `training.data.reader.CorpusReport`, in which the pairs are counted already.

    Raises:
        RunError: see `tfformer.run.load`; or the teacher is of another family.
    """
    service, pairs = load_teacher(teacher), iter(pairs)
    while chunk := list(itertools.islice(pairs, CHUNK)):
        targets = service.answer([pair.source for pair in chunk], BATCH)
        for pair, target in zip(chunk, targets, strict=True):
            if target.strip():
                yield pair._replace(target=target)
            else:
                report.kept -= 1
                report.blank += 1


def load_teacher(teacher):
    """What serves the model of a teacher's run. Raises RunError, see `distilled`."""
    require_family(teacher, read_config(teacher), ENCODER_DECODER)
    try:
        return load_service(teacher, max_batch_size=BATCH)
    except ValueError as error:
        raise RunError(f"{teacher}: {error}") from error
