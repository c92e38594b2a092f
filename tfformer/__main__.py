"""`tfformer COMMAND ...`: all commands of tfformer, in the order in which they are used."""

import argparse
import difflib
import importlib
import os
import re
import sys

from tfformer import __version__
from tfformer.terminal import command
from tfformer.terminal.extras import missing

# {heading: {command: (its module in tfformer, its purpose)}}
COMMANDS = {
    "Get a corpus": {
        "multi30k": ("training.multi30k", "download Multi30K: English and German captions"),
        "dates": ("training.dates", "print the embedded corpus of dates in 16 languages"),
        "names": ("training.names", "print the embedded corpus of names, for copying"),
        "rooms": ("training.rooms", "print the embedded corpus of room descriptions"),
        "facts": ("training.facts", "print the embedded corpus of questions about facts"),
        "inspect": ("training.inspect", "check a corpus before training on it"),
        "diversify": ("training.diversify", "make more training pairs with trained models"),
    },
    "Train": {
        "train": ("training.train", "train a model, or go on with a training"),
        "average": ("training.average", "average the weights of several runs"),
        "shortlist": ("training.shortlist", "learn which target tokens a source token needs"),
        "import": ("training.import_hf", "make a run of a model of Hugging Face"),
        "import-marian": ("training.import_marian", "make a run of a Marian model (Hugging Face)"),
        "import-opennmt": ("training.import_opennmt", "make a run of a model of OpenNMT-tf 2"),
    },
    "Use a run": {
        "translate": ("training.translate", "translate, complete or label lines of text"),
        "evaluate": ("training.evaluate", "score a run on a test set"),
        "compare": ("training.compare", "compare runs on a test set, with p values"),
        "picture": ("training.picture", "draw the attention inside a translation"),
        "page": ("export.page", "write one HTML file to look inside a small translator"),
    },
    "Export": {
        "export": ("export.saved_model", "export a run as a SavedModel for TensorFlow Serving"),
        "export-keras-hub": ("export.keras_hub", "export a KerasHub model as a SavedModel"),
        "export-ctranslate2": ("export.ctranslate2", "export a run for CTranslate2"),
        "verify": ("export.verify", "check that a SavedModel serves, without a server"),
    },
    "Serve": {
        "serve": ("export.local_server", "serve a SavedModel on this machine"),
        "client": ("export.client", "send lines of text to a server"),
        "playground": ("export.playground", "open a web page for an exported model"),
        "translate-files": ("export.translate_files", "translate files of any size"),
        "translate-export": ("export.translate", "translate lines with a SavedModel"),
    },
}
# The module of each command.
MODULES = {name: module for group in COMMANDS.values() for name, (module, _) in group.items()}
USAGE = "usage: tfformer [-h] [--version] COMMAND ...\n"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command that the first argument names. Returns its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    completing = "_ARGCOMPLETE" in os.environ  # the shell completes a command line
    if completing:
        words = _words_to_complete()
    if words[:1] in ([], ["-h"], ["--help"]):
        print(_help())
        return 0
    if words[0] == "--version":
        print(f"tfformer {__version__}")
        return 0
    if words[0] not in MODULES:
        near = difflib.get_close_matches(words[0], MODULES, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        print(f"tfformer: error: no command {words[0]!r}{hint} (see --help)", file=sys.stderr)
        return 2
    command.called_as = f"tfformer {words[0]}"
    try:
        module = importlib.import_module(f"tfformer.{MODULES[words[0]]}")
        if arguments is None and not completing and hasattr(module, "prepare_process"):
            module.prepare_process("tfformer" if __name__ == "__main__" else sys.argv[0])
        return module.main(words[1:])
    except ModuleNotFoundError as error:
        line = missing(words[0], error)
        if line is None:
            raise
        print(f"{command.called_as}: error: {line}", file=sys.stderr)
        return 2


def _words_to_complete() -> list[str]:
    """The words of the line that the shell completes, for `argcomplete`, without `tfformer`.

    The first word is completed here. For the others, the line is changed to one of the command.
    """
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    _, *words, begun = re.split(r"\s+", line[:point])
    words.append(begun)
    if len(words) < 2:
        import argcomplete

        parser = argparse.ArgumentParser("tfformer")
        parser.add_argument("command", choices=MODULES)
        argcomplete.autocomplete(parser)
    shorter = re.sub(r"\s+\S+", "", line, count=1)
    os.environ["COMP_LINE"] = shorter
    os.environ["COMP_POINT"] = str(point - len(line) + len(shorter))
    return words[:1]


def _help() -> str:
    lines = [USAGE]
    for heading, group in COMMANDS.items():
        lines.append(f"{heading}:")
        lines += [f"  {name:20}{purpose}" for name, (_, purpose) in group.items()]
        lines.append("")
    lines.append("`tfformer COMMAND --help` describes a command and its options.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
