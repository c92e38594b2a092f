"""Imports BERT, DistilBERT, RoBERTa and XLM-R, and sentence-transformers made of them.

The head decides the family: sequence classification becomes a classifier, token classification a
tagger, question answering a span reader, masked language modelling a masked language model. An
encoder alone becomes an embedder, with the pooling of sentence-transformers if the folder has one.
The weights are converted once, see `bert_weights`:

- [CLS] becomes bos and [SEP] becomes eos; pad and unk are 0 and 1. The other ids keep their order.
- The rows of the table of positions that RoBERTa never reads are dropped.
"""

from pathlib import Path

from tfformer.models import CLASSIFIER, EMBEDDER, MASKED_LANGUAGE_MODEL
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.vocabularies import LabelTable

from .bert_options import configuration, read_options
from .bert_text import FILES, MASKED, read_text
from .bert_weights import read_weights, require_sizes
from .imported import Imported
from .options import require_files
from .sentence_transformers import FILES as OF_SENTENCES
from .sentence_transformers import read_pooling
from .weights import Weights

NEEDED = ("config.json",)
OTHERS = (
    *FILES, *OF_SENTENCES, "model-*.safetensors", "model.safetensors.index.json",
)  # fmt: skip
MARKS = {"roberta": "<mask>", "xlm-roberta": "<mask>"}


def read(folder):
    """Reads a folder of these families into an `Imported`.

    Raises:
        ValueError: a file is missing or damaged, or an option has no counterpart here.
        OSError: a file cannot be read.
    """
    folder = Path(folder)
    require_files(folder, NEEDED)
    pooling, longest = read_pooling(folder)
    options = read_options(folder / "config.json", embeds=pooling is not None)
    weights = Weights.of_folder(folder)
    require_sizes(weights, options)  # before tables of these sizes are allocated
    text = read_text(folder, options.model_type, options.size("vocabulary_size"))
    tied, found = read_weights(weights, options, text.old)
    notes = []
    if options.family == EMBEDDER and pooling is None:
        pooling = {"pooling": "mean"}
        notes.append(f"{folder} has no modules.json: a vector is the mean over all tokens")
    config = configuration(options, text.side.size, tied, pooling)
    labels = [LabelTable(options.labels)] if options.labels else []
    tokenizer = Tokenizer(text.side, *labels)
    known = config.longest if config.longest < 1e6 else 512
    search = {"max_source_length": min(known, longest or known)}
    if options.family == MASKED_LANGUAGE_MODEL:
        search["mask"] = MARKS.get(options.model_type, MASKED)
    if options.family == CLASSIFIER and config.multi_label:
        search["threshold"] = 0.5
    origin = {"system": f"{options.model_type} of Hugging Face", "file": weights.path.name}
    return Imported(config, found, tokenizer, search, origin, tuple(notes), options.family)
