"""The model families of `--family`, the task of each family, and the files that each task needs.
Needs neither Keras nor TensorFlow."""

# The task of a recipe that names none.
TRANSLATION = "translation"
FAMILY_TASKS = {
    "transformer": TRANSLATION,
    "language-model": "language-model",
    "non-autoregressive": "non-autoregressive",
    "masked-language-model": "masked-language-model",
    "classifier": "classifier",
    "tagger": "tagger",
    "span": "span",
    "recurrent": "recurrent",
}
# Tasks whose corpus is plain text, and tasks with texts and labels.
PLAIN_TASKS = {"language-model", "masked-language-model"}
LABELLED_TASKS = {"classifier", "tagger", "multi-label-classifier"}
# Tasks whose --source may be a file in CoNLL style.
TAGGED_TASKS = {"tagger"}
# The task with `--multi-label`, where a text has any number of labels.
MULTI_LABEL_TASKS = {"classifier": "multi-label-classifier"}


def task_of(family, multi_label=False):
    """The task of a family. With `multi_label`, texts have any number of labels."""
    task = FAMILY_TASKS[family]
    return MULTI_LABEL_TASKS.get(task, task) if multi_label else task


# Tasks with questions, texts and answers in the columns of a TSV.
QUESTION_TASKS = {"span"}


def files_of(task):
    """The options for a task's files, in words."""
    if task in QUESTION_TASKS:
        return "--source, a TSV of question, text and answer"
    if task in PLAIN_TASKS:
        return "--text"
    if task in TAGGED_TASKS:
        return "--source, a CoNLL file or a TSV, or --source and --labels"
    return "--source and --labels" if task in LABELLED_TASKS else "--source and --target"
