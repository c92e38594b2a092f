"""What is compared of a family's answers, besides that they are those of its service here."""

from export.verification import language_model, non_autoregressive, translation
from tfformer.models import ENCODER_DECODER, LANGUAGE_MODEL, NON_AUTOREGRESSIVE

COMPARISONS = {
    ENCODER_DECODER: translation.compare,
    LANGUAGE_MODEL: language_model.compare,
    NON_AUTOREGRESSIVE: non_autoregressive.compare,
}
