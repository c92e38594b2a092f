"""What is compared of a family's answers, besides that they are those of its service here."""

from export.verification import translation
from tfformer.models import ENCODER_DECODER

COMPARISONS = {
    ENCODER_DECODER: translation.compare,
}
