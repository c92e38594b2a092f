"""The languages of a request to a multilingual model: inputs of its signatures."""

import copy
import functools

import tensorflow as tf

from tfformer.annotations import Tensor
from tfformer.config import EOS
from tfformer.inference.first_token import FirstToken
from tfformer.service.checks import after
from tfformer.service.limits import Limited
from tfformer.service.signature import graph_with_options


class InLanguages(Limited):
    """A model of one or several languages with its tokenizer and its limits, for the signatures.

    The signatures of a multilingual model have the inputs `source_language` and `target_language`,
    string [1] or [B], with the defaults of the tokenizer; see `Tokenizer.languages`.

    Attributes:
        codes: {"source" or "target": the ids of the codes of the rows, int32 [B]}, for one request.
            Default: those of the default languages.
    """

    codes: dict[str, Tensor] = {}

    def graph(self, name, inputs, answer, options=None, sides=("source", "target")):
        """A `tf.function`, as `graph_with_options`, with the inputs for languages.

        Args:
            name, inputs, options: those of `graph_with_options`. Default: no options.
            answer: a function of this object with the request's `codes`; of the inputs, in order;
                and, if there are options, of {name: value} of the options.
            sides: the sides whose codes a request sets. Default: both.
        """
        languages = {
            key: (side, one) for key, (side, one) in self.languages().items() if side in sides
        }
        defaults = {key: [one.default] for key, (_, one) in languages.items()}

        def found(*values):
            *given, asked = values
            rows = tf.shape(given[0])[0]
            codes = {
                side: codes_of(key, asked.pop(key), one, rows)
                for key, (side, one) in languages.items()
            }
            mine = self.with_codes(codes)
            return answer(mine, *given, asked) if options else answer(mine, *given)

        return graph_with_options(name, inputs, {**(options or {}), **defaults}, found)

    def languages(self):
        """{input: (the side that begins with its code, its `Languages`)}."""
        target = self.tokenizer.target.languages
        return {
            name: ("target" if name == "target_language" and target is not None else "source", one)
            for name, one in self.tokenizer.languages.items()
        }

    def with_codes(self, codes):
        """This object with these `codes`."""
        bound = copy.copy(self)
        bound.codes = codes
        return bound

    def of_rows(self, rows):
        """This object with the `codes` of these rows, integers [N]."""
        return self.with_codes({side: tf.gather(ids, rows) for side, ids in self.codes.items()})

    def encoder(self, side):
        """The function that converts the request's texts of a side to ids, as `Side.encode`."""
        encode = getattr(self.tokenizer, side).encode
        if side not in self.codes:
            return encode
        return functools.partial(encode, codes=self.codes[side])

    def split_codes(self, text):
        """string [B] of sources -> the ids of their codes, RaggedTensor int32 [B, (0 or 1)], and
        the texts without them."""
        own = [ids for side, ids in self.codes.items() if side == "source"]
        return self.tokenizer.source.codes.split(text, *own)

    def begun(self, inference):
        """The forward pass, in which the first token of each target is given, if the target side
        has one: the code of its language, or BART's <s>."""
        first = self.tokenizer.target.first
        if first is None:
            return inference
        return FirstToken(inference, self.codes.get("target", tf.constant([first])))

    def is_code(self, ids, side):
        """Whether each id is the code of a language or BART's <s>; ids of a side, of any shape."""
        side = getattr(self.tokenizer, side)
        return tf.zeros_like(ids, tf.bool) if side.first is None else side.codes.contains(ids)


def codes_of(name, asked, languages, rows):
    """The ids of the codes of languages, string [1] or [B], as int32 [B]. An unknown language is
    INVALID_ARGUMENT on the server."""
    count = tf.size(asked)
    message = [f"{name} must be one language, or one for each row, got", count]
    asked = after((count == 1) | (count == rows), message, asked)
    ids = languages.lookup(asked)
    unknown = tf.boolean_mask(asked, ids <= EOS)[:1]
    message = [f"{name} must be a language of the model, such as {languages.default}, got", unknown]
    ids = after(tf.equal(tf.size(unknown), 0), message, ids)
    return tf.broadcast_to(ids, [rows])
