"""Extractive question answering: an answer is a span of its text; the F1 of words selects the
best model."""

import itertools
import re

import numpy as np
import tensorflow as tf

from tfformer.loss import PositionCrossEntropy
from tfformer.metrics import PositionAccuracy, PositionPerplexity
from tfformer.models import SPAN
from tfformer.text.question import encode_question, split_at_tab, whole_characters

from ..data.corpus import BATCH, Corpus, write_corpus
from ..data.reader import Pair, is_blank
from ..metrics import labels as measures
from .labelled import LabelledTask, Reading
from .task import require_defaults, source_tokenizer


class Questions(Reading):
    """A question and its text are one row of ids; the labels are two positions in it."""

    def encode_source(self, texts):
        ids = self.read(texts).ids
        return tf.RaggedTensor.from_tensor(ids, padding=0)

    def read(self, texts):
        """Converts string [B], each a question, a tab and a text, to `QuestionIds`."""
        sides = (whole_characters(self.source, one) for one in split_at_tab(texts))
        return encode_question(self.source, *sides, self.longest)

    def encode_target(self, texts):
        """The two positions at the beginning of each target: int32 [B, (2)]."""
        places = tf.strings.split(tf.strings.split(texts, "\t")[:, :1].flat_values)
        return places.with_flat_values(tf.strings.to_number(places.flat_values, tf.int32))

    def example(self, source, target, padded, seed=(0, 0)):
        """The labels are [B, 2]: the positions of the answer's first and last token."""
        return {"ids": padded(source)}, padded(target, 2)

    def places(self, pairs):
        """Yields the positions of the first and last token of each answer in its row, or None if
        the text is cut before the answer ends."""
        read = self.read(tf.constant([pair.source for pair in pairs]))
        rows = zip(pairs, read.first.numpy(), read.starts, read.ends, strict=True)
        for pair, first, starts, ends in rows:
            starts, ends = starts.numpy(), ends.numpy()
            text = pair.source.partition("\t")[2]
            begin = place_of(pair.target, text)
            size = len(text[:begin].encode()), len(text[: begin + len(pair.target)].encode())
            one, last = np.searchsorted(starts, size[0]), np.searchsorted(ends, size[1])
            if one == len(starts) or starts[one] > size[0]:
                one -= 1
            fits = last < len(ends) and 0 <= one <= last
            yield (int(first + one), int(first + last)) if fits else None


class SpanReading(LabelledTask):
    """The task of a `SpanReader` and of its `SpanAnswers`."""

    family, reading, corpus = SPAN, Questions, Corpus
    figure, figure_name, figure_max = "val_token_f1", "F1 of words", 100.0
    pipeline_tag = "question-answering"
    description = "A reader that finds answers in texts, the encoder of a Transformer"
    columns = {
        "val_accuracy": ("validation accuracy of places", "{:.3f}"),
        "val_token_f1": ("F1 of words, %", "{:.2f}"),
    }
    unit, test_set = "question", "--source QUESTIONS.tsv"
    unused = (*LabelledTask.unused, "r_drop")

    def labels_of(self, line, model):
        return [line.strip()]

    def cleaned(self, pairs, report, model):
        """`source`, `target` and `group` of a pair are the question, the text and the answer, which
        must be in the text."""
        for question, text, answer, _ in pairs:
            question, text, answer = (re.sub("[\x00-\x1f\x7f-\x9f]", " ", one).strip()
                                      for one in (question, text, answer))  # fmt: skip
            if is_blank(question) or is_blank(text) or is_blank(answer):
                report.blank += 1
            elif answer not in text:
                report.unmatched += 1
            else:
                report.kept += 1
                yield Pair(f"{question}\t{text}", answer)

    def vocabulary(self, sources, targets, recipe):
        return source_tokenizer(sources, recipe)

    def label_table(self, targets):
        return None

    def write_corpus(self, folder, pairs, tokenizer, max_tokens, report, split="train"):
        """Writes the pairs, each with the positions of its answer; drops pairs that are cut."""
        reading, pairs = self.reading(tokenizer, max_tokens), iter(pairs)

        def with_places():
            while chunk := list(itertools.islice(pairs, BATCH)):
                for pair, places in zip(chunk, reading.places(chunk), strict=True):
                    if places is None:
                        report.kept -= 1
                        report.too_many_tokens += 1
                    else:
                        yield Pair(pair.source, f"{places[0]} {places[1]}\t{pair.target}")

        return write_corpus(
            folder, with_places(), reading, max_tokens, report, split, "--val-source"
        )

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        require_defaults(self, recipe, self.unused)
        if recipe.max_tokens < 4:
            raise ValueError(f"max_tokens must be at least 4 for a span, got {recipe.max_tokens}")
        return self.preset(recipe, source_size)

    def label_columns(self, columns):
        return 2

    def loss(self, recipe, corpus=None):
        return PositionCrossEntropy(recipe.smoothing)

    def metrics(self, recipe):
        return [PositionAccuracy(), PositionPerplexity()]

    def asked(self, corpus, tokenizer):
        """The answers, without their positions."""
        sources, targets = super().asked(corpus, tokenizer)
        return sources, [target.partition("\t")[2] for target in targets]

    def judged(self, served, pairs, batch_size):
        found = served.outputs([pair.source for pair in pairs], batch_size)["answer"]
        answers = [answer.decode() for answer in found]
        true = [pair.target for pair in pairs]
        both = [*zip(answers, true, strict=True)]
        scores = {
            "token_f1": 100 * sum(measures.word_f1(a, b) for a, b in both) / len(both),
            "exact_match": 100 * sum(a == b for a, b in both) / len(both),
        }
        return scores, answers, None


def place_of(answer, text):
    """The position of an answer in its text: first as a whole word, otherwise anywhere."""
    inside = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text)
    return inside.start() if inside else text.index(answer)
