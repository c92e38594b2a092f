"""What is compared of a family's answers, besides that they are those of its service here."""

from export.verification import language_model, text_encoder, translation
from tfformer.models import CLASSIFIER, ENCODER_DECODER, LANGUAGE_MODEL

COMPARISONS = {
    ENCODER_DECODER: translation.compare,
    LANGUAGE_MODEL: language_model.compare,
    CLASSIFIER: text_encoder.compare,
}
