"""PyTorch's `nn.Transformer` in a training loop, eager; with `bfloat16`, under autocast."""

import contextlib
import math

import torch
from torch import nn

from benchmarks.peers.protocol import Peer, serve, training_ids


class Model(nn.Module):
    """Tied embeddings, sinusoidal positions, post-norm without last norms: the paper's. Unless
    `masked`, padding is not masked."""

    def __init__(self, vocabulary_size, size, dropout, masked=True):
        super().__init__()
        self.masked = masked
        width, layers = size["d_model"], size["num_layers"]
        self.embedding = nn.Embedding(vocabulary_size, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.transformer = nn.Transformer(
            width, size["num_heads"], layers, layers, size["d_ff"], dropout, batch_first=True
        )
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for layer in [*self.transformer.encoder.layers, *self.transformer.decoder.layers]:
            # Dropout only on sub-layers and embeddings, as in the paper; the default has more here.
            layer.dropout.p = layer.self_attn.dropout = 0.0
            if isinstance(layer, nn.TransformerDecoderLayer):
                layer.multihead_attn.dropout = 0.0
        self.dropout = nn.Dropout(dropout)
        angles = torch.arange(128)[:, None] * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width)
        )
        positions = torch.stack([angles.sin(), angles.cos()], -1).reshape(128, width)
        self.register_buffer("positions", positions)

    def embed(self, ids):
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(x + self.positions[: ids.shape[1]])

    def forward(self, source, target):
        padding = source == 0 if self.masked else None
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(
                target.shape[1], device=target.device
            ),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return nn.functional.linear(hidden, self.embedding.weight)


def load(job):
    torch.manual_seed(1)
    model = Model(len(job["vocabulary"]), job["size"], job["dropout"])
    loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=job["smoothing"])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-9)

    def precision():
        if job["options"].get("bfloat16"):
            return torch.autocast("cpu", torch.bfloat16)
        return contextlib.nullcontext()

    def step(source, target, labels):
        optimizer.zero_grad(set_to_none=True)
        with precision():
            logits = model(source, target)
            loss = loss_of(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return Peer(
        version=f"PyTorch {torch.__version__}",
        prepare=lambda work: [
            [torch.tensor(ids) for ids in training_ids(batch)] for batch in work["batches"]
        ],
        decode=lambda batches: [step(*batch) for batch in batches][-1],
    )


if __name__ == "__main__":
    serve(load)
