"""The service class for each family of `tfformer.models.FAMILIES`, by the same names."""

from typing import Any

from tfformer.models import (
    CLASSIFIER,
    EMBEDDER,
    ENCODER_DECODER,
    LANGUAGE_MODEL,
    MASKED_LANGUAGE_MODEL,
    NON_AUTOREGRESSIVE,
    RECURRENT,
    SPAN,
    TAGGER,
)
from tfformer.service.gap_filler import GapFiller
from tfformer.service.parallel_translator import ParallelTranslator
from tfformer.service.recurrent_translator import RecurrentTranslator
from tfformer.service.span_answers import SpanAnswers
from tfformer.service.text_classifier import TextClassifier
from tfformer.service.text_embedder import TextEmbedder
from tfformer.service.text_generator import TextGenerator
from tfformer.service.text_tagger import TextTagger
from tfformer.service.translator import Translator

SERVICES: dict[str, Any] = {
    ENCODER_DECODER: Translator,
    LANGUAGE_MODEL: TextGenerator,
    NON_AUTOREGRESSIVE: ParallelTranslator,
    MASKED_LANGUAGE_MODEL: GapFiller,
    CLASSIFIER: TextClassifier,
    TAGGER: TextTagger,
    SPAN: SpanAnswers,
    RECURRENT: RecurrentTranslator,
    EMBEDDER: TextEmbedder,
}
