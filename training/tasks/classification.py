"""Classification: a text has one label of several; the better macro F1 is the better model."""

from tfformer.config import EOS, ClassifierConfig
from tfformer.models import CLASSIFIER
from training import measures
from training.tasks.labelled import LabelledTask, Reading, cut, label, numbers


class ClassifiedTexts(Reading):
    """A text that is too long is cut, as the server does."""

    def encode_source(self, texts):
        return cut(super().encode_source(texts), self.longest)

    def example(self, source, target, padded):
        """The labels are [B, 1]."""
        return {"ids": padded(source)}, numbers(padded(target[:, :1], 1))


class Classification(LabelledTask):
    """The task of a `Classifier` and of its `TextClassifier`."""

    family, reading = CLASSIFIER, ClassifiedTexts
    figure, figure_name = "val_macro_f1", "macro F1"
    pipeline_tag = "text-classification"
    description = "A classifier of texts, the encoder of a Transformer (Vaswani et al. 2017)"
    columns = {
        "val_accuracy": ("validation accuracy", "{:.3f}"),
        "val_macro_f1": ("macro F1", "{:.3f}"),
    }

    def labels_of(self, line, model):
        return [found] if (found := label(line)) else []

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        self.require_settings(recipe)
        count = 2 if target_size is None else target_size - EOS - 1
        try:
            return ClassifierConfig.preset(
                recipe.preset, source_size, num_labels=count, **recipe.model_changes
            )
        except TypeError as error:
            raise ValueError(f"model_changes: {error}") from error

    def label_columns(self, config, columns):
        return 1

    def served(self, model, tokenizer, search):
        from tfformer.service.text_classifier import TextClassifier

        return TextClassifier(model, tokenizer, **search)

    def judged(self, served, pairs, batch_size):
        names = served.tokenizer.target.labels
        number = {name: n for n, name in enumerate(names)}
        answers = served.outputs([pair.source for pair in pairs], batch_size)["label"]
        answers = [answer.decode() for answer in answers]
        # A label that training had not is a column of its own, which is never predicted.
        true = [number.get(pair.target, len(names)) for pair in pairs]
        confused = measures.confusion(true, [number[one] for one in answers], len(names) + 1)
        hits, predicted, of = measures.label_counts(confused)
        scores = {
            "macro_f1": measures.macro_f1(hits, predicted, of),
            "accuracy": float(hits.sum() / len(pairs)),
        }
        return scores | {"labels": measures.by_label(names, hits, predicted, of)}, answers
