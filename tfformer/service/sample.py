"""`sample`: a translation drawn from the model."""

import tensorflow as tf

from tfformer import search
from tfformer.config.search_options import SAMPLING
from tfformer.service.checks import require_in
from tfformer.service.signature import Signature, texts

OPTIONS = {"seed": 0, **{o.name: o.default for o in SAMPLING.values()}, "max_length": 0}


def asked_sampling(asked, vocabulary_size):
    """The sampling options of a request, {name: scalar}, including `seed`. A number that breaks its
    rule is INVALID_ARGUMENT on a server."""
    bounds = {name: (option.minimum, option.maximum) for name, option in SAMPLING.items()}
    bounds["top_k"] = 0, vocabulary_size
    found = {name: require_in(name, asked[name], *bounds[name]) for name in bounds}
    return {"seed": asked["seed"], **found}


def sample(generation):
    """`text` [B] and options -> `translation`; its `log_prob` by the unchanged model; and
    `truncated`, whether a text was cut."""

    def answer(generation, text, asked):
        drawn = asked_sampling(asked, generation.config.target_vocabulary_size)
        source_ids, truncated = generation.source_ids(text)
        blank = generation.blank(source_ids)
        inference = generation.searched()
        factor = generation.options["max_length_factor"]
        found = search.sample_search(
            inference.step,
            inference.start(source_ids, width=1),
            tf.shape(source_ids)[0],
            generation.limit(source_ids, factor, asked["max_length"]),
            skip=blank,
            min_length=generation.options["min_length"],
            **drawn,
        )
        return {
            "translation": generation.as_text(*generation.best(found, blank))["translation"],
            "log_prob": found.log_probs[:, 0],
            "truncated": truncated,
        }

    def examples(samples):
        narrow = {"seed": 7, "temperature": 0.5, "top_k": 5, "top_p": 0.9}
        return [{"text": samples.texts}, {"text": samples.texts, **narrow}]

    function = generation.graph("sample", texts("text"), answer, OPTIONS)
    return Signature("sample", function, examples)
