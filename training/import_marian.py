"""Converts a Marian model of Hugging Face to a run: `tfformer import-marian FOLDER RUN`.

    tfformer import-marian opus-mt-en-de runs/en-de
    tfformer import-marian Helsinki-NLP/opus-mt-en-de runs/en-de
    echo "A man walks." | tfformer translate runs/en-de

FOLDER contains the files of an OPUS-MT model: config.json, model.safetensors or pytorch_model.bin,
source.spm, target.spm, vocab.json and, if they exist, target_vocab.json and generation_config.json.
If FOLDER does not exist, a model of that name is downloaded from the Hugging Face hub; this needs
the package huggingface_hub. NAME@REVISION downloads one revision. RUN must not exist yet.

The run gives the same log-probabilities as the original. You can evaluate, fine-tune (--init),
export and serve it like any other run. Nothing in FOLDER is executed: pytorch_model.bin is a
pickle, but only its tensors are read. PyTorch is not needed.

Exit codes: 0 imported; 1 an error of FOLDER or the disk, or an option of the model that tfformer
lacks, which is named: nothing is written; 2 wrong usage; 130 or 143 interrupted.
"""

import sys

from . import import_hf


def parser():
    """The command's arguments."""
    return import_hf.parser("training.import_marian", __doc__)


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda options: import_hf.run(command, options, "marian"), arguments)


if __name__ == "__main__":
    sys.exit(main())
