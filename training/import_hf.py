"""Converts a model of Hugging Face to a run: `tfformer import FOLDER RUN`.

    tfformer import opus-mt-en-de runs/en-de
    tfformer import google/flan-t5-small runs/flan
    echo "A man walks." | tfformer translate runs/en-de

FOLDER contains config.json, the weights (model.safetensors, its parts with their index, or
pytorch_model.bin) and the files of the tokenizer. config.json names the family, and the family's
importer reads the rest. If FOLDER does not exist, a model of that name is downloaded from the
Hugging Face hub; this needs the package huggingface_hub. NAME@REVISION downloads one revision. RUN
must not exist yet.

The run gives the same log-probabilities as the original. You can evaluate, fine-tune (--init),
export and serve it like any other run. docs/guide/from_hugging_face.md lists the families, and what
differs from the originals. Nothing in FOLDER is executed: pytorch_model.bin is a pickle, but only
its tensors are read. PyTorch is not needed.

Exit codes: 0 imported; 1 an error of FOLDER or the disk, or an option of the model that tfformer
lacks, which is named: nothing is written; 2 wrong usage; 130 or 143 interrupted.
"""

import sys
from pathlib import Path

from tfformer.terminal.command import Parser

from .importers.hub import folder_of, require_folder


def parser(module="training.import_hf", text=__doc__):
    """The command's arguments."""
    parser = Parser(module, text, new={"run": "RUN"})
    parser.add_argument("folder", metavar="FOLDER", help="the model; or its name on the hub")
    parser.add_argument("run", metavar="RUN", type=Path, help="the run directory to create")
    return parser


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    for side in ("source", "target"):
        command.add_argument(
            f"--{side}-language", metavar="CODE",
            help=f"for a multilingual model: the {side} language if a request names none; default: "
            "the folder's",
        )  # fmt: skip
    return command.run(lambda options: run(command, options), arguments)


def run(command, options, family=None):
    """Imports `options.folder` as `options.run`; returns the exit code of the `command`.

    `family` is the only `model_type` that the command reads. Default: all.
    """
    try:
        require_folder(options.folder)
    except ValueError as error:
        return command.fail(error)

    from .importers import huggingface
    from .importers.imported import run_import
    from .importers.weights import READERS

    def read():
        folder = folder_of(options.folder, huggingface.files(family), READERS)
        print(f"reading {folder} ...", file=sys.stderr)
        asked = ("source_language", "target_language")
        languages = {name: getattr(options, name, None) for name in asked}
        return huggingface.read(folder, family, **languages)

    return run_import(command, options.run, read)


if __name__ == "__main__":
    sys.exit(main())
