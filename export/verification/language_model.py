"""Compares a served language model with the model run on whole sequences, without a cache."""

import numpy as np
import tensorflow as tf

from tfformer.config import PAD

from .compare import answers_to, tolerance


def compare(service, requests, report, run, options, progress):
    """Adds to the report whether the served log-probabilities are those of the model."""
    progress("comparing with the model, token by token ...")
    compare_whole(service, requests, report)


def compare_whole(service, requests, report):
    """The same for any `Generating` service."""
    model = tf.function(
        lambda ids: tf.nn.log_softmax(tf.cast(service.logits(ids), tf.float32)),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=False,
    )
    faults, count = [], 0
    answers = answers_to(service, report, "beam_search", requests)
    penalty = service.options["repetition_penalty"]
    for request, served in zip(requests["beam_search"], answers, strict=True):
        if request.get("repetition_penalty", penalty) != 1.0:  # it changes the probabilities
            continue
        prompts, _ = service.writing.prompts(tf.constant(request["text"]))
        for row, prompt in enumerate(prompts.numpy()):
            prompt = prompt[prompt != PAD]
            for place, (tokens, own) in enumerate(
                zip(served["token_ids"][row], served["token_log_probs"][row], strict=True)
            ):
                tokens = tokens[: served["lengths"][row, place]]
                gap = _gap(model, prompt, tokens, own[: len(tokens)])
                if not gap <= tolerance(service):  # or NaN
                    faults.append(f"text {row}, place {place} differs by {gap:.2g} a token")
                count += 1
    if not count:
        faults.append("no text is searched without a repetition penalty")
    report.add("the model, without a cache", faults, f"{count} texts")


def _gap(model, prompt, tokens, own):
    """The mean absolute difference per token of the served and the model's log-probabilities."""
    if not len(tokens):
        return 0.0
    ids = np.concatenate([prompt, tokens])[None].astype("int32")
    log_probs = model(ids[:, :-1]).numpy()[0, len(prompt) - 1 :]
    found = log_probs[np.arange(len(tokens)), tokens]
    return float(np.abs(found - own).sum() / len(tokens))
