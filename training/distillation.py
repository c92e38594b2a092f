"""Distillation: a student learns what its teacher says in place of what people have written, or
what several expect of each next token beside that.

A teacher's translations of the training corpus are more alike than people's: of several ways to say
a thing it takes the same again. A model that writes all tokens at once, none of which knows the
others, learns such targets where it cannot learn the mixture of all ways (Kim and Rush 2016,
"Sequence-Level Knowledge Distillation"; Zhou et al. 2020, "Understanding Knowledge Distillation in
Non-autoregressive Machine Translation"). A smaller model gains by it too. What is expected of the
next token needs the teachers at each step: their weights are kept in the prepared folder.
"""

import itertools
from typing import NamedTuple

from tfformer.files import (
    RunError,
    pack,
    read_arrays,
    read_json,
    unpack,
    write_atomically,
    write_json,
)
from tfformer.models import ENCODER_DECODER, FAMILIES
from tfformer.run import load_service, read_checked, read_config, require_family

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


class Teacher(NamedTuple):
    """Who says what is to be expected: a configuration, and weights by name."""

    config: object
    weights: dict


def keep_teachers(folder, teachers):
    """Writes configuration and weights of each run into `folder`, as `teacher-1.json` and `.npz`.

    Raises:
        RunError: see `tfformer.run.load`; or a teacher is of another family.
    """
    for number, teacher in enumerate(teachers, 1):
        known = read_config(teacher)
        require_family(teacher, known, ENCODER_DECODER)
        weights = unpack(read_checked(teacher, known, known["weights"]))
        write_json(folder / f"teacher-{number}.json", known["model"])
        write_atomically(folder / f"teacher-{number}.npz", pack(weights))


def read_teachers(folder):
    """The `Teacher`s that were kept in a prepared folder, in their order. Raises RunError."""
    found = []
    while (path := folder / f"teacher-{len(found) + 1}.json").exists():
        try:
            config = FAMILIES[ENCODER_DECODER].read_configuration(read_json(path))
        except (TypeError, ValueError) as error:
            raise RunError(f"{path} is damaged: {error}") from error
        found.append(Teacher(config, read_arrays(path.with_suffix(".npz"))))
    return found


def load_teacher(teacher):
    """What serves the model of a teacher's run. Raises RunError, see `distilled`."""
    require_family(teacher, read_config(teacher), ENCODER_DECODER)
    try:
        return load_service(teacher, max_batch_size=BATCH)
    except ValueError as error:
        raise RunError(f"{teacher}: {error}") from error
