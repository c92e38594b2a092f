"""Converts a model of OpenNMT-tf 2 to a run: `tfformer import-opennmt FOLDER RUN`.

    tfformer import-opennmt wmt/ runs/en-de --vocabulary wmt/wmtende.vocab \\
        --sentencepiece wmt/wmtende.model
    tfformer import-opennmt wmt/avg/ckpt-50000 runs/en-de --source-vocabulary src.vocab \\
        --target-vocabulary tgt.vocab --source-eos
    echo "A man walks." | tfformer translate runs/en-de

FOLDER is a model directory, whose newest checkpoint is read, or one checkpoint, with or without
.index. OpenNMT-tf is not needed. Its model_description.py, in the checkpoint's folder or one above,
is read but not executed. If it does not define them, give --num-heads and --activation.

Give the vocabularies and SentencePiece models that OpenNMT-tf's data configuration names: one for
both languages, or one for each. Without a SentencePiece model, the run expects texts that are
already split, with a space between two words. RUN must not exist yet.

The run gives the same log-probabilities as the original. You can evaluate, fine-tune (--init),
export and serve it like any other run.

Exit codes: 0 imported; 1 an error of FOLDER, a file or the disk, or a part of the model that
tfformer lacks, which is named: nothing is written; 2 wrong usage; 130 or 143 interrupted.
"""

import argparse
import glob
import sys
from pathlib import Path

from tfformer.terminal.command import Parser, count, main_of

# For both languages, and for each.
WHAT = ("vocabulary", "sentencepiece")
VOCABULARIES = [f"{side}{what}" for what in WHAT for side in ("", "source_", "target_")]


def parser():
    """The command's arguments."""
    parser = Parser("training.import_opennmt", __doc__, files=VOCABULARIES, new={"run": "RUN"})
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, help="a model directory, or a checkpoint"
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run directory to create")
    for what, metavar, help in (
        ("vocabulary", "FILE", "vocabulary file"),
        ("sentencepiece", "MODEL", "SentencePiece model"),
    ):
        parser.add_argument(
            f"--{what}", type=Path, metavar=metavar, help=f"{help} of source and target"
        )
        for side in ("source", "target"):
            parser.add_argument(
                f"--{side}-{what}", type=Path, metavar=metavar, help=f"{help} of the {side}"
            )
    parser.add_argument(
        "--source-eos", action=argparse.BooleanOptionalAction,
        help="a source ends with </s>, as with `source_sequence_controls: end: true`; default: as "
        "in the automatic configuration of a catalog model, such as ScalingNmtEnDe",
    )  # fmt: skip
    parser.add_argument(
        "--num-heads", type=count(), metavar="INT", help="default: that of model_description.py"
    )
    parser.add_argument(
        "--activation", choices=["relu", "gelu", "silu"],
        help="of the feed-forward layers; default: that of model_description.py",
    )  # fmt: skip
    return parser


def _run(command, options):
    vocabularies, models = (_both(command, options, what) for what in WHAT)
    if None in vocabularies:
        command.error("--vocabulary, or --source-vocabulary and --target-vocabulary, must be given")
    if (models[0] is None) != (models[1] is None):
        command.error("--sentencepiece must be given for both source and target, or for neither")
    folder = options.folder
    if not (folder.exists() or [*folder.parent.glob(f"{glob.escape(folder.name)}.*")]):
        return command.fail(f"{folder} must be a model directory or a checkpoint, got neither")

    from .importers.imported import run_import
    from .importers.opennmt import Files, read_opennmt

    print(f"reading {folder} ...", file=sys.stderr)
    files = Files(*vocabularies, *models)
    known = options.num_heads, options.source_eos, options.activation
    return run_import(command, options.run, lambda: read_opennmt(folder, files, *known))


def _both(command, options, what):
    """The file of the source and of the target."""
    sides = [getattr(options, f"{side}_{what}") for side in ("source", "target")]
    both = getattr(options, what)
    if both is not None and sides != [None, None]:
        command.error(f"--{what} is for source and target: give it alone")
    return sides if both is None else [both, both]


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
