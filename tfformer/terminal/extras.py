"""Which extra of pip has a package that a command lacks."""

# The extra that each command needs, if it is not `train`.
EXTRAS = {
    "serve": "serve",
    "client": "serve",
    "playground": "serve",
    "page": "serve",
    "translate": "serve",
    "translate-files": "serve",
    "translate-export": "serve",
    "export-ctranslate2": "ctranslate2",
    "export-keras-hub": "keras-nlp",
}
# Packages that some options of these commands need too.
ONLY_IN_TRAIN = {"babel", "matplotlib", "requests", "sacrebleu", "sacremoses", "tensorboard"}


def missing(command, error):
    """The line for a `ModuleNotFoundError`; None if the missing module is one of tfformer."""
    package = str(error.name).partition(".")[0]
    if package == "tfformer":
        return None
    extra = "train" if package in ONLY_IN_TRAIN else EXTRAS.get(command, "train")
    return f"{package} is not installed: pip install 'tfformer[{extra}]'"
