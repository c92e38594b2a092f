"""The comparison of each model family, besides the one with its service in this process."""

from tfformer import models

from . import language_model, non_autoregressive, text_encoder, translation

COMPARISONS = {
    models.ENCODER_DECODER: translation.compare,
    models.LANGUAGE_MODEL: language_model.compare,
    models.NON_AUTOREGRESSIVE: non_autoregressive.compare,
    models.MASKED_LANGUAGE_MODEL: text_encoder.compare,
    models.CLASSIFIER: text_encoder.compare,
    models.TAGGER: text_encoder.compare,
    models.SPAN: text_encoder.compare,
    models.EMBEDDER: text_encoder.compare,
}
