"""Small KerasHub models with random weights, and real small vocabularies for them."""

import functools
import io
import json

import numpy as np
import sentencepiece
from keras_nlp import models
from tiny import sentences
from tokenizers import Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE

TEXTS = [f"{text}, {n * 7} times. It's so!" for n, text in enumerate(sentences(97))]
# The special pieces, as in the released vocabularies.
T5_PIECES = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
GEMMA_PIECES = {
    "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "eos_piece": "<eos>", "bos_piece": "<bos>",
    "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
}  # fmt: skip
LLAMA_PIECES = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1, "byte_fallback": True}
LENGTHS = 37, 23  # of a source and of a target, as in the preprocessors


def sentencepiece_model(size, **options):
    """The bytes of a SentencePiece model trained on `TEXTS`."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=size, minloglevel=2, **options
    )
    return model.getvalue()


@functools.cache
def t5_tokenizer():
    """With two of the pieces that mark what is hidden in a masked text."""
    hidden = ["<extra_id_1>", "<extra_id_0>"]
    return models.T5Tokenizer(sentencepiece_model(97, user_defined_symbols=hidden, **T5_PIECES))


@functools.cache
def t5gemma_tokenizer():
    return models.T5GemmaTokenizer(sentencepiece_model(323, **GEMMA_PIECES))


@functools.cache
def causal_tokenizer(name):
    """A `GemmaTokenizer` or another one, by its name."""
    pieces = GEMMA_PIECES if name.startswith("Gemma") else LLAMA_PIECES
    more = {"has_vision_tokens": False} if name == "Gemma3" else {}
    return getattr(models, f"{name}Tokenizer")(sentencepiece_model(323, **pieces), **more)


@functools.cache
def bart_tokenizer():
    """Byte-level BPE, learned here."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=331,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    found = json.loads(tokenizer.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in found["merges"]]
    return models.BartTokenizer(found["vocab"], merges)


def t5(num_layers=1, num_heads=2, hidden_dim=14, intermediate_dim=19, **more):
    """A `T5Seq2SeqLM` with five more ids than its tokenizer has pieces."""
    size = t5_tokenizer().vocabulary_size() + 5
    backbone = models.T5Backbone(
        size, num_layers, num_heads, hidden_dim, intermediate_dim, **more
    )  # fmt: skip
    preprocessor = models.T5Seq2SeqLMPreprocessor(t5_tokenizer(), *LENGTHS)
    return answering(models.T5Seq2SeqLM(backbone, preprocessor))


def t5gemma(layers=(1, 1), widths=(22, 22), heads=4, key_heads=2, head_dim=6, **more):
    """A `T5GemmaSeq2SeqLM`; layers and widths are those of the encoder and of the decoder."""
    sides = {}
    for side, num_layers, width in zip(("encoder", "decoder"), layers, widths, strict=True):
        sides |= {
            f"{side}_hidden_dim": width,
            f"{side}_intermediate_dim": 29,
            f"{side}_num_layers": num_layers,
            f"{side}_num_attention_heads": heads,
            f"{side}_num_key_value_heads": key_heads,
            f"{side}_head_dim": head_dim,
            f"{side}_layer_types": (["sliding_attention", "full_attention"] * 2)[:num_layers],
        }
    backbone = models.T5GemmaBackbone(
        t5gemma_tokenizer().vocabulary_size(),
        **sides,
        sliding_window=5,
        query_pre_attn_scalar=7.0,
        **more,
    )
    preprocessor = models.T5GemmaSeq2SeqLMPreprocessor(t5gemma_tokenizer(), *LENGTHS)
    return answering(models.T5GemmaSeq2SeqLM(backbone, preprocessor))


def bart(num_layers=1, num_heads=2, hidden_dim=14, intermediate_dim=19):
    """A `BartSeq2SeqLM` with 41 positions."""
    size = bart_tokenizer().vocabulary_size()
    sizes = num_layers, num_heads, hidden_dim, intermediate_dim
    backbone = models.BartBackbone(size, *sizes, max_sequence_length=41)
    preprocessor = models.BartSeq2SeqLMPreprocessor(bart_tokenizer(), *LENGTHS)
    return answering(models.BartSeq2SeqLM(backbone, preprocessor))


def causal(name, **sizes):
    """A `GemmaCausalLM` or another one, by its name; sizes besides those that all have."""
    tokenizer = causal_tokenizer(name)
    backbone = getattr(models, f"{name}Backbone")(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=2,
        num_query_heads=4,
        num_key_value_heads=2,
        **sizes,
    )
    more = {"image_converter": None} if name == "Gemma3" else {}
    preprocessor = getattr(models, f"{name}CausalLMPreprocessor")(
        tokenizer=tokenizer, sequence_length=LENGTHS[0], **more
    )
    task = getattr(models, f"{name}CausalLM")
    return answering(task(backbone=backbone, preprocessor=preprocessor))


# Its attention window is shorter than the texts.
GEMMA = {"hidden_dim": 28, "intermediate_dim": 38, "head_dim": 6, "sliding_window_size": 5}
CAUSAL = {
    "gemma": lambda: causal("Gemma", **GEMMA, use_sliding_window_attention=True),
    "gemma 2": lambda: causal(
        "Gemma",
        **GEMMA,
        use_post_ffw_norm=True,
        use_post_attention_norm=True,
        attention_logit_soft_cap=5.0,
        final_logit_soft_cap=3.0,
    ),
    "gemma 3": lambda: causal(
        "Gemma3", **GEMMA, image_size=None, use_sliding_window_attention=True
    ),
    "llama": lambda: causal("Llama", hidden_dim=24, intermediate_dim=29),
    "mistral": lambda: causal("Mistral", hidden_dim=24, intermediate_dim=29, sliding_window=5),
}
SMALLEST = {"t5": t5, "t5gemma": t5gemma, "bart": bart}
# Others, each with something that the smallest one lacks.
FURTHER = {
    "t5, 3 layers": lambda: t5(3, 3, 33, 17, key_value_dim=7, activation="gelu"),
    "t5, untied and not gated": lambda: t5(
        2, 1, 13, 31, tie_embedding_weights=False, use_gated_activation=False
    ),
    "t5gemma, 3 and 2 layers": lambda: t5gemma(
        (3, 2), (26, 22), 6, 3, 10, attn_logit_softcapping=5.0, final_logit_softcapping=3.0
    ),
    "t5gemma, biases": lambda: t5gemma((1, 2), attention_bias=True, tie_word_embeddings=False),
    "bart, 3 layers": lambda: bart(3, 3, 33, 17),
}


def answering(model):
    """The model with weights that make its answers depend on its sources."""
    rng = np.random.default_rng(3)
    for weight in model.trainable_variables:
        is_gain = weight.path.endswith(("gamma", "weight", "scale"))
        # Wider models have no larger numbers, because rounding would leave fewer digits.
        scale = 1 / np.sqrt(max(12, weight.shape[0])) if len(weight.shape) > 1 else 0.3
        scale = 0.3 if "embedding" in weight.path else scale
        value = rng.normal(1.0 if is_gain else 0.0, scale, weight.shape)
        # A strong cross-attention.
        weight.assign(value * (2.5 if "cross" in weight.path and value.ndim > 1 else 1))
    tokenizer = model.preprocessor.tokenizer
    table = getattr(model.backbone, "decoder_token_embedding", model.backbone.token_embedding)
    rows = table.embeddings.numpy()
    # Unlikely are padding and bos, which `generate` would write and a search never does; ids
    # without a piece, for which `generate` fails; and unknown pieces, which it writes as "⁇".
    never = {tokenizer.pad_token_id, tokenizer.start_token_id} - {tokenizer.end_token_id}
    never |= {*range(tokenizer.vocabulary_size(), len(rows))}
    if hasattr(tokenizer, "proto"):
        never.add(tokenizer.token_to_id("<unk>"))
    rows[sorted(never)] *= 0.01
    table.embeddings.assign(rows)
    if not getattr(table, "tie_weights", True):
        kernel = table.reverse_embeddings.numpy()
        kernel[:, sorted(never)] *= 0.01
        table.reverse_embeddings.assign(kernel)
    return model
