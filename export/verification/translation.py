"""Compares a served translator with a simple beam search, with float32, and without XLA."""

import numpy as np
import tensorflow as tf

from . import reference
from .compare import TOLERANCE, answers_to

NO_WINDOW = "no plain beam search in NumPy, whose model knows no window"


def compare(translator, requests, report, run, options, progress):
    """Adds to the report whether the served searches give the expected results.

    `requests` are those of all signatures; the report has the answers of the exported ones.
    `options` of the translator replace those of the run.
    """
    if translator.xla and "beam_search" in report.served:
        compare_stock(report)
    if translator.dtype in ("bfloat16", "int8"):
        progress("comparing with float32 ...")
        compare_float32(run, requests, report, options)
    elif translator.options["attention_window"]:
        report.add("attention window", [], NO_WINDOW)
    else:
        progress("comparing with a plain beam search in NumPy ...")
        compare_reference(translator, requests, report)


def compare_reference(translator, requests, report):
    """Adds to the report whether served and reference beam search agree, for each sentence."""
    asked, ids = requests["beam_search_ids"], tf.TensorSpec([None, None], tf.int32)
    signature = [{"source_ids": ids, "target_ids": ids}]
    # Of whole sequences, without a cache.
    uncached = tf.function(translator.logits, input_signature=signature, autograph=False)
    answers = answers_to(translator, report, "beam_search_ids", requests)
    faults, sentences = [], 0
    for request, served in zip(asked, answers, strict=True):
        for row, source_ids in enumerate(request["source_ids"]):
            source_ids, model = np.trim_zeros(np.array(source_ids, "int32"), "b"), uncached
            if translator.first_token is not None:
                model = reference.begun(uncached, translator.first_token)
            if translator.shortlist:
                model = reference.restricted(uncached, translator.shortlist.allowed(source_ids))
            faults += _search_faults(
                translator, model, source_ids, request["max_length"], row, served
            )
        sentences += len(request["source_ids"])
    report.add("plain beam search in NumPy", faults, f"{sentences} sentences")


def _search_faults(translator, model, source_ids, max_length, row, served):
    """The differences of one row of `beam_search_ids` from the reference search over `model`.

    If two hypotheses score the same, rounding decides: then other tokens are no fault.
    """
    alpha, form = translator.length_penalty, translator.length_penalty_form
    with tf.device("CPU:0"):  # the served answers come from the CPU too
        found = reference.beam_search(
            model, source_ids, max_length, translator.beam_width, alpha, form
        )
    scores = [reference.score(hypothesis, alpha, form) for hypothesis in found]
    faults = [
        f"the score of sentence {row}, place {place} differs by {gap:.2g}"
        for place, score in enumerate(scores)
        if (gap := _gap(served["scores"][row, place], score))
    ]
    tokens = tuple(served["token_ids"][row, 0, : served["lengths"][row, 0]].tolist())
    if tokens != found[0].tokens:
        with tf.device("CPU:0"):
            log_prob = reference.log_prob(model, source_ids, tokens, max_length)
        score = reference.score(reference.Hypothesis(tokens, log_prob), alpha, form)
        if _gap(score, scores[0]):
            faults.append(f"sentence {row} is {tokens}, by the reference {found[0].tokens}")
    return faults


def _gap(score, expected):
    """The distance of two scores; 0 if within the tolerance, which is relative above 1."""
    distance = abs(float(score) - expected)
    return 0 if distance <= TOLERANCE * max(1, abs(expected)) else distance


def compare_float32(run, requests, report, options):
    """Adds to the report how many sample texts a float32 export translates differently."""
    from tfformer.run import load_translator

    translator = load_translator(run, **{**options, "dtype": "float32"})
    served, texts = report.served["serving_default"][0], requests["serving_default"][0]["text"]
    with tf.device("CPU:0"):
        here = translator.functions["serving_default"](tf.constant(texts))["translation"].numpy()
    changed = sum(served["translation"] != here)
    report.add(
        options["dtype"], [], f"{changed} of {len(texts)} translations differ from float32's"
    )


def compare_stock(report):
    """Adds to the report whether XLA finds the same as the stock operations of `beam_search`."""
    compiled, stock = (report.served[name][0] for name in ("serving_default", "beam_search"))
    faults = [
        f"text {row} is {ours!r}, by stock operations {theirs!r}"
        for row, (ours, theirs, score, expected) in enumerate(
            zip(
                compiled["translation"],
                stock["translations"][:, 0],
                compiled["score"],
                stock["scores"][:, 0],
                strict=True,
            )
        )
        # If two translations score the same, rounding decides.
        if ours != theirs and _gap(score, expected)
    ]
    report.add("XLA = stock operations", faults, f"{len(compiled['score'])} texts")
