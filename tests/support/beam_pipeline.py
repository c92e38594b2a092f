"""For test_translate_files.py, if Apache Beam is installed: compares a pipeline with the
translator."""

import tempfile
from pathlib import Path

import apache_beam
import tiny
from apache_beam.testing.util import assert_that, equal_to

from export.beam import Translate

if __name__ == "__main__":
    texts = tiny.sentences(101)
    translator = tiny.make_translator(max_source_length=17, max_target_length=13)
    expected = list(enumerate(translator.translate(texts)))
    with tempfile.TemporaryDirectory() as folder:
        translator.save(str(Path(folder, "model")), ["serving_default"])
        with apache_beam.Pipeline("DirectRunner") as pipeline:
            pairs = pipeline | apache_beam.Create(list(enumerate(texts)))
            assert_that(pairs | Translate(Path(folder, "model"), batch_size=7), equal_to(expected))
    print("the same")
