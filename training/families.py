"""The families of models as `--family` names them, the task that each is trained for, and the files
that a task is trained on. Needs neither Keras nor TensorFlow."""

# The task of a recipe that names none.
TRANSLATION = "translation"
FAMILY_TASKS = {
    "transformer": TRANSLATION,
    "language-model": "language-model",
    "classifier": "classifier",
}
# Those whose corpus is plain text, and those of texts and labels.
PLAIN_TASKS = {"language-model"}
LABELLED_TASKS = {"classifier"}


def files_of(task):
    """The options that name a task's files, in words."""
    if task in PLAIN_TASKS:
        return "--text"
    return "--source and --labels" if task in LABELLED_TASKS else "--source and --target"
