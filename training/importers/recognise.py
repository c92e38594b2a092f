"""Recognises the model folders of other systems, and the commands that read them."""

from pathlib import Path

from tfformer.files import read_json

# The families of Hugging Face that `tfformer import` reads: {model_type: the module beside this}.
MODULES = {
    "bart": "bart",
    "bert": "bert",
    "distilbert": "bert",
    "gpt2": "gpt2",
    "llama": "llama",
    "m2m_100": "m2m100",
    "marian": "marian",
    "mbart": "mbart",
    "mistral": "llama",
    "mt5": "t5",
    "pegasus": "bart",
    "qwen2": "llama",
    "qwen3": "llama",
    "roberta": "bert",
    "t5": "t5",
    "umt5": "t5",
    "xlm-roberta": "bert",
}
HUGGING_FACE = "which `tfformer import` reads"
OPENNMT = "a model directory of OpenNMT-tf, which `tfformer import-opennmt` reads"
KERAS_HUB = "which `tfformer export-keras-hub` exports"
# The families of Hugging Face that KerasHub reads and that a service here supports.
OF_KERAS_HUB = ("gemma", "gemma2", "gemma3_text", "mistral", "t5gemma")


def described(folder):
    """Describes a folder in words from its `config.json`, with the command that reads it."""
    folder = Path(folder)
    if not (folder / "config.json").exists():
        is_opennmt = (folder / "model_description.py").exists() or (folder / "checkpoint").exists()
        return OPENNMT if is_opennmt else "a folder without config.json"
    config = read_json(folder / "config.json")
    family = config.get("model_type")
    if {"format", "sha256"} <= config.keys():
        return "a run, which needs no import"
    if "registered_name" in config:
        return f"a preset of KerasHub, {KERAS_HUB}"
    reader = "which nothing here reads"
    for known, command in ((OF_KERAS_HUB, KERAS_HUB), (MODULES, HUGGING_FACE)):
        if family in tuple(known):  # a tuple, because `family` may be unhashable
            reader = command
    return f"a model of the family {family!r:.99}, {reader}"
