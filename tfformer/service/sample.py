"""`sample`: a translation drawn from the model."""

import tensorflow as tf

from tfformer import search
from tfformer.service.checks import option_in, scalar
from tfformer.service.signature import Signature, graph_with_options, texts

OPTIONS = {"seed": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_length": 0}


def sample(generation):
    """`text` [B] and options -> `translation`, its `log_prob` by the model as it is; and
    `truncated`, which texts were cut."""

    def answer(text, asked):
        temperature = option_in("temperature", asked["temperature"], 1e-3, 1e3)
        top_k = option_in("top_k", asked["top_k"], 0, generation.config.target_vocabulary_size)
        top_p = option_in("top_p", asked["top_p"], 1e-6, 1.0)
        source_ids, truncated = generation.source_ids(text)
        blank = generation.blank(source_ids)
        inference = generation.inference()
        factor = generation.options["max_length_factor"]
        found = search.sample_search(
            inference.step,
            inference.start(source_ids, width=1),
            tf.shape(source_ids)[0],
            generation.limit(source_ids, factor, asked["max_length"]),
            scalar(asked["seed"]),
            temperature,
            top_k,
            top_p,
            blank,
            min_length=generation.options["min_length"],
        )
        return {
            "translation": generation.best(found, blank)["translation"],
            "log_prob": found.log_probs[:, 0],
            "truncated": truncated,
        }

    def examples(samples):
        narrow = {"seed": 7, "temperature": 0.5, "top_k": 5, "top_p": 0.9}
        return [{"text": samples.texts}, {"text": samples.texts, **narrow}]

    function = graph_with_options("sample", texts("text"), OPTIONS, answer)
    return Signature("sample", function, examples)
