"""Which service a run of a family has: a model of `tfformer.models.FAMILIES`, by the same name."""

from tfformer.models import ENCODER_DECODER, LANGUAGE_MODEL, NON_AUTOREGRESSIVE
from tfformer.service.parallel_translator import ParallelTranslator
from tfformer.service.text_generator import TextGenerator
from tfformer.service.translator import Translator

SERVICES = {
    ENCODER_DECODER: Translator,
    LANGUAGE_MODEL: TextGenerator,
    NON_AUTOREGRESSIVE: ParallelTranslator,
}
