"""How many operations each signature of a SavedModel has: a stricter look than its answers.

`python tests/support/op_counts.py` prints them for two exports: SERVED, which is the `served_model`
of the tests, and one of CHANGES; `tests/data/op-counts.json` is what it printed on 2026-11-27: two
or three operations more than once for the five signatures of which `truncated` is an output now;
for `translate_document` one for abbreviations and 411 for its limits of tokens and pieces, which a
request does once, not at each step, and 60 for where its windows are joined; for `sample` eight,
which let a step leave out what sorts and draws where the request needs none of it.
"""

import json
import sys
import tempfile
from pathlib import Path

import tiny
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tfformer import Tokenizer, Transformer, TransformerConfig, Translator

SERVED = "post-norm, untied, one layer a side"
CHANGES = {
    "pre-norm, swiglu, learned positions, tied": {
        "norm": "pre",
        "activation": "swiglu",
        "positions": "learned",
        "max_positions": 17,
        "tie_embeddings": "all",
    },
}


def write(name, directory):
    """Writes the export of this name; returns its directory."""
    if name == SERVED:
        translator = tiny.make_translator(**tiny.SERVED)
    else:
        texts = ["a little house by the lake", "trees and nobody in it"]
        tokenizer = Tokenizer.train(texts, vocabulary_size=300)
        size = tokenizer.source_vocabulary_size
        config = TransformerConfig.preset("test", size, **CHANGES[name])
        translator = Translator(Transformer(config), tokenizer, **tiny.SERVED)
    translator.save(str(directory))
    return directory


def op_counts(directory):
    """{signature: operations of its function and of all functions that this calls}"""
    content = Path(directory, "saved_model.pb").read_bytes()
    [graph] = SavedModel.FromString(content).meta_graphs
    functions = {f.signature.name: f.node_def for f in graph.graph_def.library.function}
    calls = {node.name: node for node in graph.graph_def.node}
    counts = {}
    for name, signature in graph.signature_def.items():
        [output, *_] = sorted(info.name for info in signature.outputs.values())
        pending, reached = called(calls[output.split(":")[0]]), set()
        while pending:
            function = pending.pop()
            if function in functions and function not in reached:
                reached.add(function)
                for node in functions[function]:
                    pending |= called(node)
        if name != "__saved_model_init_op":
            counts[name] = sum(len(functions[function]) for function in reached)
    return counts


def called(node):
    """The names of the functions that a node names."""
    attributes = node.attr.values()
    return {a.func.name for a in attributes if a.func.name} | {
        f.name for a in attributes for f in a.list.func
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        counts = {name: op_counts(write(name, Path(folder, name))) for name in (SERVED, *CHANGES)}
    json.dump(counts, sys.stdout, indent=2, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
