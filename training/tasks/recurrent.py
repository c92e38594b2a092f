"""Translation with a recurrent encoder-decoder, for comparison with the Transformer."""

from tfformer.models import RECURRENT

from .translation import Translation


class RecurrentTranslation(Translation):
    """The task of a `Recurrent` model and of its `RecurrentTranslator`."""

    family = RECURRENT
    description = "A recurrent encoder-decoder with attention (Bahdanau et al. 2015)"
    known_methods, exported = ("objective", "teacher_weight"), False
    # A recurrent layer reads padded rows, one position after another.
    without_padding = None

    def sizes(self, config, settings):
        for what, words in super().sizes(config, settings):
            if what == "d_model, heads, d_ff":
                what, words = "d_model", str(config["model"]["d_model"])
            yield what, words
        yield "attention", "yes" if config["model"]["attention"] else "no"
