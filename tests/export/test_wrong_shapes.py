"""A server compares no shapes, so the graph of each signature of each family checks them."""

import hub
import numpy as np
import pytest
import tiny
from tiers import slow_or_nightly

from export.artifacts.examples import sample_requests
from export.capi.job import serve_calls
from export.capi.library import ServingError
from export.verification.graph import read_graph
from export.verification.requests import to_feeds
from tfformer import (
    Classifier,
    GapFiller,
    LanguageModel,
    LanguageModelConfig,
    MaskedLanguageModel,
    NonAutoregressive,
    NonAutoregressiveConfig,
    ParallelTranslator,
    SpanAnswers,
    SpanReader,
    Tagger,
    TextClassifier,
    TextGenerator,
    TextTagger,
    Tokenizer,
)
from tfformer.config import ClassifierConfig, MaskedLanguageModelConfig, SpanConfig, TaggerConfig
from tfformer.service.keras_hub import KerasHubTranslator
from tfformer.service.keras_hub_generator import KerasHubGenerator
from tfformer.text.vocabularies import LabelTable

SMALL = {"max_source_length": 17, "max_batch_size": 7}
WRITING = {**SMALL, "max_target_length": 13}


def of(service, model, config, labels=None, limits=SMALL, **sizes):
    """A service of a model with random weights."""

    def make():
        tokenizer = Tokenizer.train(tiny.sentences(97), vocabulary_size=331)
        if labels:
            tokenizer = Tokenizer(tokenizer.source, LabelTable(labels))
            sizes["num_labels"] = len(labels)
        size = tokenizer.source_vocabulary_size
        return service(model(config.preset("test", size, **sizes)), tokenizer, **limits)

    return make


SERVICES = {
    "translator": lambda: tiny.make_translator(**tiny.SERVED, explain=True),
    "low latency": lambda: tiny.make_translator(**tiny.SERVED, low_latency=True),
    "language model": of(TextGenerator, LanguageModel, LanguageModelConfig, limits=WRITING),
    "non-autoregressive": of(
        ParallelTranslator, NonAutoregressive, NonAutoregressiveConfig, limits=WRITING
    ),
    "classifier": of(TextClassifier, Classifier, ClassifierConfig, ["a", "b"]),
    "tagger": of(TextTagger, Tagger, TaggerConfig, ["a", "b"]),
    "span": of(SpanAnswers, SpanReader, SpanConfig),
    "masked language model": of(GapFiller, MaskedLanguageModel, MaskedLanguageModelConfig),
    "T5 of KerasHub": lambda: KerasHubTranslator(hub.t5(), **WRITING),
    "Llama of KerasHub": lambda: KerasHubGenerator(hub.CAUSAL["llama"](), **WRITING),
}


def wrong(array):
    """The array with one axis less, if it has any, and with one and two more."""
    fewer = [array[0]] if array.ndim else []
    return [np.array(one, array.dtype) for one in (*fewer, array[None], array[None, None])]


# These run in CI; the other services have the same signatures.
IN_CI = {"language model", "span"}


@pytest.mark.parametrize("name", slow_or_nightly(SERVICES, IN_CI))
def test_input_of_another_rank_is_refused_with_the_expected_shape(name, tmp_path):
    service = SERVICES[name]()
    service.save(str(tmp_path / "1"))
    graph = read_graph(tmp_path / "1")
    asked = to_feeds(graph, sample_requests(service))
    calls, expected = [], []
    for signature_name, signature in graph.signatures.items():
        fetches = [info.name for info in signature.outputs.values()]
        given = asked[signature_name][-1]
        for alias in signature.inputs:
            shape = f"expected shape [{','.join('?' * given[alias].ndim)}]."
            for array in wrong(given[alias]):
                feeds = {
                    signature.inputs[key].name: value
                    for key, value in {**given, alias: array}.items()
                }
                calls.append((feeds, fetches))
                expected.append((signature_name, alias, shape))
    # In another process, because a session disables XLA for the rest of its process.
    for (name, alias, shape), error in zip(
        expected, serve_calls(tmp_path / "1", calls), strict=True
    ):
        assert isinstance(error, ServingError), (name, alias)
        said = str(error)
        assert said.startswith("INVALID_ARGUMENT: Shape of tensor"), (name, alias, said)
        assert f"_{alias}_" in said and shape in said, (name, alias, said)
