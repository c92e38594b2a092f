"""Compares KerasHub's `generate` with its export: `python -m benchmarks.wrapped FOLDER`.

    python -m benchmarks.wrapped presets/dates --minutes 5

It trains a `T5Seq2SeqLM` of 2 + 2 layers of width 64 on the embedded corpus `dates`, with its own
vocabulary, and saves it as a preset in FOLDER. An existing folder is used unchanged. Then the
model's own `generate` and `KerasHubTranslator` translate `--texts` unseen dates greedily, with the
same weights. `python -m export.keras_hub FOLDER DIRECTORY` exports the functions of
`KerasHubTranslator`. It prints how many texts are the same in both, how many of these are
different from each other, how many are the right date, and all texts that differ.

Exit codes: 0 measured, whatever was found; 1 an error of the folder, or keras-nlp is missing; 2
wrong usage; 130 interrupted.
"""

import io
import sys
import time
from pathlib import Path

from benchmarks import machine, work
from tfformer.terminal.command import Parser, main_of

PIECES, WIDTH, LAYERS, HEADS, BATCH, PAIRS = 500, 64, 2, 4, 64, 24_000
SOURCE_LENGTH, TARGET_LENGTH = 48, 14


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.wrapped", __doc__)
    parser.add_argument("folder", type=Path, help="of the preset")
    parser.add_argument("--minutes", type=int, default=5, help="of training; default 5")
    parser.add_argument("--texts", type=int, default=500, help="that are compared; default 500")
    return parser


def _run(command, options):
    work.require_at_least(command, options, minutes=1, texts=1)
    from export.keras_hub import PresetError, load
    from training import dates

    try:
        if not options.folder.exists():
            train(options.folder, options.minutes)
        pairs = list(dates.pairs("test", options.texts))
        theirs, ours = both(load(str(options.folder)), [pair.source for pair in pairs])
    except (PresetError, ImportError, OSError) as error:
        return command.fail(error)
    right = [sum(text == pair.target for text, pair in zip(found, pairs, strict=True))
             for found in (theirs, ours)]  # fmt: skip
    same = sum(a == b for a, b in zip(theirs, ours, strict=True))
    print(f"{machine.today()}.\n")
    print("| texts | the same | different ones | right: `generate` | right: the export |")
    print("|--:|--:|--:|--:|--:|")
    print(f"| {len(pairs)} | {same} | {len(set(theirs))} | {right[0]} | {right[1]} |")
    for pair, their, our in zip(pairs, theirs, ours, strict=True):
        if their != our:
            print(f"{pair.source!r}: generate {their!r}, the export {our!r}")
    return 0


def train(folder, minutes):
    """Trains a T5 on `dates` for some minutes and saves it as a preset."""
    import keras
    from keras_nlp import models

    from training import dates

    keras.utils.set_random_seed(7)
    pairs = list(dates.pairs("train", PAIRS))
    tokenizer = models.T5Tokenizer(vocabulary(pairs))
    preprocessor = models.T5Seq2SeqLMPreprocessor(tokenizer, SOURCE_LENGTH, TARGET_LENGTH)
    backbone = models.T5Backbone(
        tokenizer.vocabulary_size(), LAYERS, HEADS, WIDTH, 4 * WIDTH, dropout=0.0
    )
    model = models.T5Seq2SeqLM(backbone, preprocessor=preprocessor)
    # Its embedding begins with a deviation of 1, with which a small model learns slowly.
    table = backbone.token_embedding.embeddings
    table.assign(0.2 * table)
    model.compile(optimizer=keras.optimizers.Adam(2e-3, clipnorm=1.0), jit_compile=False)
    end = time.monotonic() + 60 * minutes

    class Until(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = time.monotonic() > end

    texts = {
        "encoder_text": [pair.source for pair in pairs],
        "decoder_text": [pair.target for pair in pairs],
    }
    model.fit(texts, batch_size=BATCH, epochs=10_000, callbacks=[Until()], verbose=2)
    model.save_to_preset(str(folder))


def vocabulary(pairs):
    """The bytes of a SentencePiece model with the ids of a T5."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text for pair in pairs for text in (pair.source, pair.target)),
        model_writer=model, vocab_size=PIECES, hard_vocab_limit=False, split_digits=True,
        character_coverage=1.0, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def both(model, texts):
    """The greedy output of `generate`, and that of the exported functions."""
    from tfformer.service.keras_hub import KerasHubTranslator

    model.compile(sampler="greedy", jit_compile=False)
    limit = TARGET_LENGTH + 2
    theirs = []
    for start in range(0, len(texts), BATCH):
        theirs += model.generate(texts[start : start + BATCH], max_length=limit)
    translator = KerasHubTranslator(model, max_source_length=SOURCE_LENGTH, max_target_length=limit)
    return theirs, translator.translate(texts, BATCH, greedy=True)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
