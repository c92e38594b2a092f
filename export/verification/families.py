"""The comparison of each model family, besides the one with its service in this process."""

from tfformer.models import (
    CLASSIFIER,
    ENCODER_DECODER,
    LANGUAGE_MODEL,
    MASKED_LANGUAGE_MODEL,
    NON_AUTOREGRESSIVE,
    SPAN,
    TAGGER,
)

from . import language_model, non_autoregressive, text_encoder, translation

COMPARISONS = {
    ENCODER_DECODER: translation.compare,
    LANGUAGE_MODEL: language_model.compare,
    NON_AUTOREGRESSIVE: non_autoregressive.compare,
    MASKED_LANGUAGE_MODEL: text_encoder.compare,
    CLASSIFIER: text_encoder.compare,
    TAGGER: text_encoder.compare,
    SPAN: text_encoder.compare,
}
