"""The families of models as `--family` names them, the task that each is trained for, and the files
that a task is trained on. Needs neither Keras nor TensorFlow."""

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
# Those whose corpus is plain text, and those of texts and labels.
PLAIN_TASKS = {"language-model", "masked-language-model"}
LABELLED_TASKS = {"classifier", "tagger", "multi-label-classifier"}
# Those whose --source may be a file in CoNLL style.
TAGGED_TASKS = {"tagger"}
# The task of a family whose texts have any number of labels: `--multi-label`.
MULTI_LABEL_TASKS = {"classifier": "multi-label-classifier"}


def task_of(family, multi_label=False):
    """The task of a family; of texts that have any number of labels, another."""
    task = FAMILY_TASKS[family]
    return MULTI_LABEL_TASKS.get(task, task) if multi_label else task


# Those of questions, texts and answers, in the columns of a TSV.
QUESTION_TASKS = {"span"}


def files_of(task):
    """The options that name a task's files, in words."""
    if task in QUESTION_TASKS:
        return "--source, a TSV of question, text and answer"
    if task in PLAIN_TASKS:
        return "--text"
    if task in TAGGED_TASKS:
        return "--source, a CoNLL file or a TSV, or --source and --labels"
    return "--source and --labels" if task in LABELLED_TASKS else "--source and --target"
