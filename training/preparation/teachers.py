"""Stores the teachers of a training (`--teachers`) in its prepared folder.

So the training can be resumed without the teachers' runs. Learning from the teachers is in
`training.methods.teachers`.
"""

import itertools
from pathlib import Path

from tfformer import run
from tfformer.files import RunError, read_arrays, read_json, unpack, write_atomically, write_json

from ..recipe.families import TRANSLATION
from ..tasks import TASKS
from .initialisation import Beginning, read_configuration_of


def keep_teachers(folder, teachers, config, recipe):
    """Writes configuration and weights of each run into `folder`, as `teacher-1.json` and `.npz`.

    `config` is the configuration of their student. A teacher that cannot read the student's input
    is a RunError.
    """
    task = TASKS[TRANSLATION]
    for number, teacher in enumerate(teachers, 1):
        known = run.read_config(teacher)
        run.require_family(teacher, known, task.family)
        own = read_configuration_of(task, known["model"], Path(teacher) / "config.json")
        if own.longest < recipe.max_tokens:
            raise RunError(
                f"max_tokens must be at most {own.longest}, the positions of the teacher "
                f"{teacher}, got {recipe.max_tokens}"
            )
        if own.source_eos != config.source_eos:
            raise RunError(
                f"source_eos must be {own.source_eos}, as in the teacher {teacher}, got "
                f"{config.source_eos}"
            )
        content = run.read_checked(teacher, known, known["weights"])
        unpack(content)  # raises an error now if it is damaged
        write_json(folder / f"teacher-{number}.json", own.to_dict())
        write_atomically(folder / f"teacher-{number}.npz", content)


def read_teachers(folder):
    """Yields the `Beginning` of each stored teacher, in order. Raises RunError."""
    for number in itertools.count(1):
        path = folder / f"teacher-{number}.json"
        if not path.exists():
            return
        config = read_configuration_of(TASKS[TRANSLATION], read_json(path), path)
        yield Beginning(config, read_arrays(path.with_suffix(".npz")))


def has_teachers(folder):
    """Whether a training was prepared with teachers."""
    return (folder / "teacher-1.json").exists()
