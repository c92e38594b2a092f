"""OpenNMT-tf: small folders with the original's results, or answers to lines.

    PYTHON tests/support/opennmt_original.py write tests/data/opennmt
    PYTHON tests/support/opennmt_original.py answer FOLDER < lines.txt > answers.json

PYTHON is 3.10 with OpenNMT-tf 2.32; nothing of this project is imported. The small models are
trained briefly on artificial sentences, so that their translations end and differ.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np  # noqa: E402
import opennmt  # noqa: E402
import tensorflow as tf  # noqa: E402

ADJECTIVES = {"red": "rote", "old": "alte", "small": "kleine", "bright": "helle", "quiet": "leise"}
NOUNS = {"house": "Haus", "lake": "See", "tree": "Baum", "street": "Straße", "bird": "Vogel"}
SENTENCES = [
    (f"the {a} {n} and the {b} bird", f"{x} {m} und {y} Vogel")
    for a, x in ADJECTIVES.items()
    for b, y in ADJECTIVES.items()
    for n, m in NOUNS.items()
]
SOURCES = [
    "the red house and the old tree",
    "a small bird",
    "the bright bird and the bright lake and the bright street",
    "zebra 7",
    "quiet",
]
TARGETS = ["rote Haus und alte Baum", "kleine Vogel", "Straße ☂"]
STEPS, RATE = 1200, 0.01
SPECIAL = ["<blank>", "<s>", "</s>"]

# Each is the model's description, as OpenNMT-tf stores it, and how its texts are split.
FOLDERS = {
    # One vocabulary and one matrix; each source ends with </s>.
    "joint": (
        "import opennmt\n\nmodel = lambda: opennmt.models.Transformer(\n"
        "    num_layers=(2, 1), num_units=14, num_heads=2, ffn_inner_dim=29, pre_norm=False,\n"
        "    share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL, output_layer_bias=False,\n"
        ")\n",
        {"pieces": True, "ends": True},
    ),
    # Words between spaces, two vocabularies, no </s> after a source.
    "words": (
        "import opennmt\nimport tensorflow as tf\n\nmodel = lambda: opennmt.models.Transformer(\n"
        "    num_layers=1, num_units=18, num_heads=3, ffn_inner_dim=13,\n"
        "    ffn_activation=tf.nn.gelu, mha_bias=False,\n)\n",
        {},
    ),
    # Learned positions, one matrix for target embedding and output layer, two vocabularies of
    # pieces.
    "learned": (
        "import opennmt\n\nmodel = lambda: opennmt.models.Transformer(\n"
        "    num_layers=1, num_units=12, num_heads=2, ffn_inner_dim=17,\n"
        "    position_encoder_class=lambda: opennmt.layers.PositionEmbedder(maximum_position=61),\n"
        "    share_embeddings=opennmt.models.EmbeddingsSharingLevel.TARGET,\n)\n",
        {"pieces": True, "separate": True},
    ),
}


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--steps", type=int, default=STEPS, help="of each training")
    answer = commands.add_parser("answer", help="of a folder of opennmt_training.py")
    answer.add_argument("folder", type=Path)
    answer.add_argument("--beam-width", type=int, default=4)
    answer.add_argument("--length-penalty", type=float, default=0.0)
    options = parser.parse_args()
    if options.command == "answer":
        lines = sys.stdin.read().splitlines()
        found = answered(loaded(options.folder), lines, options.beam_width, options.length_penalty)
        json.dump(found, sys.stdout, ensure_ascii=False, indent=1)
        return
    for seed, (name, (description, how)) in enumerate(FOLDERS.items()):
        tf.keras.utils.set_random_seed(seed)
        write(options.folder / name, description, options.steps, **how)


def write(folder, description, steps, pieces=False, separate=False, ends=False):
    folder.mkdir(parents=True, exist_ok=True)
    for side, lines in zip(("source", "target"), zip(*SENTENCES, strict=False), strict=False):
        (folder / f"{side}.txt").write_text("".join(f"{line}\n" for line in lines))
    data = texts_of(folder, pieces, separate)
    if ends:
        data["source_sequence_controls"] = {"end": True}
    (folder / "model_description.py").write_text(description)
    model = opennmt.load_model(str(folder), as_builder=False)
    model.initialize(data, params={"label_smoothing": 0.1, "average_loss_in_time": True})
    optimizer = learn(model, folder, steps)
    checkpoint = opennmt.utils.checkpoint.Checkpoint(model, optimizer, model_dir=str(folder))
    checkpoint.save(step=steps)
    found = answers(model, folder)
    np.savez_compressed(folder / "logits.npz", **logits(model, folder))
    (folder / "answers.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    for name in ("source.txt", "target.txt", "asked.txt", "said.txt"):
        (folder / name).unlink(missing_ok=True)


def texts_of(folder, pieces, separate):
    """The data options: how texts are split, and the vocabularies, which lack some of the
    pieces."""
    data = {}
    sides = ("source", "target") if separate or not pieces else ("joint",)
    for side in sides:
        files = [
            folder / f"{one}.txt" for one in (("source", "target") if side == "joint" else (side,))
        ]
        words = {word for file in files for word in file.read_text().split()}
        if pieces:
            words = learned_pieces(files, folder / f"{side}.model")
        # Some are unknown.
        words = sorted(words - {"street", "Straße"})[: -2 if pieces else None]
        vocabulary = folder / f"{side}.vocab"
        vocabulary.write_text("".join(f"{word}\n" for word in [*SPECIAL, *words]))
        for one in ("source", "target") if side == "joint" else (side,):
            data[f"{one}_vocabulary"] = str(vocabulary)
            if pieces:
                parameters = {"model": str(folder / f"{side}.model")}
                data[f"{one}_tokenization"] = {
                    "type": "SentencePieceTokenizer", "params": parameters,
                }  # fmt: skip
    return data


# In another process: SentencePiece and this TensorFlow cannot be used in one.
LEARN = """
import io, os, sys, sentencepiece
model = io.BytesIO()
lines = [line for name in sys.argv[2:] for line in open(name, encoding="utf-8")]
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2,
    vocab_size=int(os.environ.get("PIECES", 97)), normalization_rule_name="identity",
)
open(sys.argv[1], "wb").write(model.getvalue())
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
print("\\n".join(processor.id_to_piece(n) for n in range(3, processor.vocab_size())))
"""


def learned_pieces(files, model):
    """Writes a SentencePiece model, and returns its pieces."""
    command = [sys.executable, "-c", LEARN, str(model), *map(str, files)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(said.stdout.splitlines())


def learn(model, folder, steps):
    dataset = model.examples_inputter.make_training_dataset(
        str(folder / "source.txt"), str(folder / "target.txt"), batch_size=32,
        shuffle_buffer_size=len(SENTENCES),
    )  # fmt: skip
    optimizer = tf.keras.optimizers.legacy.Adam(RATE)
    model.create_variables()

    @tf.function(input_signature=dataset.element_spec)
    def step(features, labels):
        with tf.GradientTape() as tape:
            outputs, _ = model(features, labels, training=True)
            loss = model.compute_loss(outputs, labels, training=True)
            loss = loss[0] / loss[1]
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=False))
        return loss

    for features, labels in dataset.repeat().take(steps):
        loss = step(features, labels)
    print(f"{folder.name}: loss {loss.numpy():.3f}")
    return optimizer


def asked(model, folder):
    """The sources as features, in one batch."""
    (folder / "asked.txt").write_text("".join(f"{line}\n" for line in SOURCES))
    dataset = model.features_inputter.make_inference_dataset(
        str(folder / "asked.txt"), len(SOURCES)
    )
    return next(iter(dataset))


def answers(model, folder):
    """Ids, greedy translations, and translations by beam search with their scores."""
    features = asked(model, folder)
    found = {"sources": SOURCES, "targets": TARGETS}
    found["source_ids"] = [
        ids[:length].tolist()
        for ids, length in zip(features["ids"].numpy(), features["length"].numpy(), strict=False)
    ]
    for name, width in (("greedy", 1), ("beam", 4)):
        model.params.update(beam_width=width, maximum_decoding_length=37)
        _, predictions = model(features)
        found[name] = texts(model, predictions)
        found[f"{name}_scores"] = predictions["log_probs"].numpy()[:, 0].tolist()
    return found


def texts(model, predictions):
    """The best translation of each row."""
    if "text" in predictions:
        return [row[0].decode() for row in predictions["text"].numpy()]
    rows = zip(
        predictions["tokens"].numpy()[:, 0], predictions["length"].numpy()[:, 0], strict=False
    )
    return [b" ".join(tokens[:length]).decode() for tokens, length in rows]


def initialized(folder, **params):
    """The model described by a folder of `opennmt_training.py`, with random weights."""
    model = opennmt.load_model(str(folder), as_builder=False)
    cut = {"type": "SentencePieceTokenizer", "params": {"model": str(folder / "joint.model")}}
    data = {f"{side}_vocabulary": str(folder / "joint.vocab") for side in ("source", "target")}
    data |= {f"{side}_tokenization": cut for side in ("source", "target")}
    model.initialize({**data, "source_sequence_controls": {"end": True}}, params=params)
    model.create_variables()
    return model


def loaded(folder):
    """The same model with its weights."""
    model = initialized(folder)
    opennmt.utils.checkpoint.Checkpoint(model, model_dir=str(folder)).restore(weights_only=True)
    return model


def answered(model, lines, beam_width, length_penalty, batch_size=32):
    """The number of ids of each line, greedy translations, and translations by beam search, each
    with its score and with the log-probability that the model itself gives it."""
    found = {"lengths": []}
    names = ("greedy", "greedy_scores", "beam", "scores", "log_probs")
    found |= {name: [] for name in names}
    for n in range(0, len(lines), batch_size):
        with tempfile.TemporaryDirectory() as folder:
            asked, said = Path(folder, "asked.txt"), Path(folder, "said.txt")
            asked.write_text("".join(f"{line}\n" for line in lines[n : n + batch_size]))
            dataset = model.features_inputter.make_inference_dataset(str(asked), batch_size)
            features = next(iter(dataset))
            found["lengths"] += features["length"].numpy().tolist()
            for name, scores, width in (
                ("greedy", "greedy_scores", 1),
                ("beam", "scores", beam_width),
            ):
                penalty = length_penalty if width > 1 else 0.0
                model.params.update(
                    beam_width=width, length_penalty=penalty, maximum_decoding_length=100
                )
                _, predictions = model(features)
                found[name] += texts(model, predictions)
                found[scores] += predictions["log_probs"].numpy()[:, 0].tolist()
            said.write_text("".join(f"{text}\n" for text in found["beam"][n:]))
            pairs = model.examples_inputter.make_evaluation_dataset(
                str(asked), str(said), batch_size
            )
            features, labels = next(iter(pairs))
            scored = model.score(features, labels)["cross_entropy"]
            mask = tf.sequence_mask(labels["length"], tf.shape(scored)[1], scored.dtype)
            found["log_probs"] += (-tf.reduce_sum(scored * mask, axis=1)).numpy().tolist()
        print(f"{len(found['beam'])} of {len(lines)}", file=sys.stderr)
    return found


def logits(model, folder):
    """{number: [T, V]} of the first pairs, with <s> before each target."""
    (folder / "asked.txt").write_text("".join(f"{line}\n" for line in SOURCES[: len(TARGETS)]))
    (folder / "said.txt").write_text("".join(f"{line}\n" for line in TARGETS))
    dataset = model.examples_inputter.make_evaluation_dataset(
        str(folder / "asked.txt"), str(folder / "said.txt"), 1
    )
    found = {}
    for n, (features, labels) in enumerate(dataset):
        outputs, _ = model(features, labels)
        found[str(n)] = outputs["logits"].numpy()[0]
        found[f"target_{n}"] = labels["ids"].numpy()[0]
    return found


if __name__ == "__main__":
    main()
