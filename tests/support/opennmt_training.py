"""Trains a model of OpenNMT-tf: `PYTHON tests/support/opennmt_training.py DATA FOLDER`.

    PYTHON tests/support/opennmt_training.py data/multi30k opennmt --minutes 10
    python -m training.import_opennmt opennmt runs/opennmt --vocabulary opennmt/joint.vocab \\
        --sentencepiece opennmt/joint.model --source-eos

PYTHON is one with OpenNMT-tf 2.32 and `sentencepiece`. FOLDER is then a model directory as it
writes one: 3 + 3 layers of width 256, one vocabulary of 4,000 pieces of both sides. It is trained
for --minutes in one thread. The model need not be good.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import opennmt  # noqa: E402
import tensorflow as tf  # noqa: E402
from opennmt_original import LEARN, SPECIAL, initialized  # noqa: E402

DESCRIPTION = (
    "import opennmt\n\nmodel = lambda: opennmt.models.Transformer(\n"
    "    num_layers=3, num_units=256, num_heads=4, ffn_inner_dim=1024, pre_norm=False,\n"
    "    share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,\n)\n"
)
BATCH_TOKENS, WARMUP, RATE, PIECES = 1000, 200, 1e-3, 4000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.keras.utils.set_random_seed(1)
    options.folder.mkdir(parents=True)
    files = [options.data / f"train.{language}" for language in ("en", "de")]
    model = made(files, options.folder)
    steps, optimizer = train(model, files, 60 * options.minutes)
    folder = str(options.folder)
    opennmt.utils.checkpoint.Checkpoint(model, optimizer, model_dir=folder).save(step=steps)


def made(files, folder):
    """A model with random weights, and its vocabulary in the folder."""
    command = [sys.executable, "-c", LEARN, str(folder / "joint.model"), *map(str, files)]
    environment = {**os.environ, "PIECES": str(PIECES)}
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    pieces = [*SPECIAL, *said.stdout.splitlines()]
    (folder / "joint.vocab").write_text("".join(f"{piece}\n" for piece in pieces))
    (folder / "model_description.py").write_text(DESCRIPTION)
    return initialized(folder, label_smoothing=0.1, average_loss_in_time=True, dropout=0.1)


def train(model, files, seconds):
    """Trains for `seconds`; returns the number of steps, and the optimizer."""
    dataset = model.examples_inputter.make_training_dataset(
        *map(str, files), batch_size=BATCH_TOKENS, batch_type="tokens",
        shuffle_buffer_size=29_000, length_bucket_width=4,
    )  # fmt: skip
    optimizer = tf.keras.optimizers.legacy.Adam(RATE, beta_2=0.98)

    @tf.function(input_signature=dataset.element_spec)
    def step(features, labels):
        with tf.GradientTape() as tape:
            outputs, _ = model(features, labels, training=True)
            loss = model.compute_loss(outputs, labels, training=True)
            loss = loss[0] / loss[1]
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=False))
        return loss

    end = time.monotonic() + seconds
    for number, batch in enumerate(dataset.repeat(), 1):
        optimizer.learning_rate = RATE * min(number / WARMUP, (WARMUP / number) ** 0.5)
        loss = step(*batch)
        if number % 100 == 0:
            print(f"step {number}: {loss.numpy():.3f}", flush=True)
        if time.monotonic() >= end:
            return number, optimizer


if __name__ == "__main__":
    main()
