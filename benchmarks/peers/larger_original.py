"""Writes a larger model of a small folder of Hugging Face, with random weights.

    PYTHON benchmarks/peers/larger_original.py tests/data/bert/bert-classifier larger/bert

PYTHON has `torch` and `transformers`. The new folder has the tokenizer and the configuration of the
small one, but width 256, 6 layers (or 3 + 3) and random weights, and it does not sample: enough to
measure the time of the original and of the export, see `benchmarks.originals`.
"""

import os
import shutil
import sys
from pathlib import Path

SIZES = {
    "hidden_size": 256,
    "d_model": 256,
    "intermediate_size": 1024,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "num_hidden_layers": 6,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "n_embd": 256,
    "n_layer": 6,
    "n_head": 4,
    "n_positions": 512,
}


def main(small, larger):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    shutil.copytree(small, larger)
    for path in (*Path(larger).glob("*.safetensors*"), *Path(larger).glob("*.bin")):
        path.unlink()
    config = transformers.AutoConfig.from_pretrained(small)
    for name, size in SIZES.items():
        if name in config.to_dict():
            setattr(config, name, size)
    config.initializer_range = 0.06
    torch.manual_seed(0)
    [architecture] = config.architectures
    model = getattr(transformers, architecture)(config)
    if (Path(small) / "generation_config.json").exists():
        found = transformers.GenerationConfig.from_pretrained(small)
        found.update(do_sample=False, temperature=None, top_k=None, top_p=None)
        model.generation_config = found
    model.save_pretrained(larger)


if __name__ == "__main__":
    main(*sys.argv[1:])
