"""The originals write GPT-2, Llama, Qwen2 and Mistral again; the ids of 2,000 lines and the
continuations of 500 prompts are compared.

The environment: `TFFORMER_HUGGING_FACE_PYTHON`, or one installed here from the package registry.
"""

import json
import subprocess

import decoders
import numpy as np
import originals
import pytest
import test_decoders as stored
from hard_lines import chat_lines, hard_lines
from paths import SUPPORT

from tfformer.config import BOS

pytestmark = pytest.mark.nightly
LINES, PROMPTS = 2000, 500
# The share of continuations that may differ, because two tokens are almost equally probable, or a
# prompt is over the limit.
MAXIMUM = 0.005


def test_results_match_the_current_original_library(tmp_path, tmp_path_factory, monkeypatch):
    python = originals.python_of("HUGGING_FACE", tmp_path_factory)
    program = SUPPORT / "decoder_original.py"
    originals.written_by(python, program, tmp_path / "decoders")
    monkeypatch.setattr(decoders.STORED, "root", tmp_path / "decoders")
    for name in decoders.FOLDERS:
        both = stored.Both(name, tmp_path / name)
        stored.test_prompt_ids_match_the_original(both)
        stored.test_logits_match_the_original(both)
        compare(both, python, program, hard_lines(LINES), chat_lines(PROMPTS))


def compare(both, python, program, lines, prompts):
    """Compares the ids of lines, and the greedy continuations of prompts."""
    command = [python, program, "answer", decoders.folder(both.name), str(len(lines))]
    asked = json.dumps([*lines, *prompts])
    done = subprocess.run(
        [*command, str(len(prompts))], input=asked, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    begin = [BOS] * (both.name in stored.HAS_BOS)
    ours = both.tokenizer.encode_source(lines).to_list()
    for line, own, ids in zip(lines, ours, found["ids"], strict=True):
        assert [*begin, *own[:-1]] == both.ours(ids), repr(line)
    rows = np.array_split(prompts, -(-len(prompts) // 100))
    texts = [text.decode() for some in rows for text in both.generate(some)["continuation"].numpy()]
    pairs = zip(prompts, texts, found["continuations"], strict=True)
    differ = [(prompt, own, other) for prompt, own, other in pairs if own != other]
    assert len(differ) <= MAXIMUM * len(prompts), differ[:3]
