"""MarianMT of Hugging Face transformers with random weights: PyTorch, `generate`."""

from benchmarks.peers.protocol import Peer, padded, serve


def load(job):
    import torch
    import transformers

    if job["threads"]:
        torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    size = job["size"]
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=len(job["vocabulary"]),
            d_model=size["d_model"],
            encoder_layers=size["num_layers"],
            decoder_layers=size["num_layers"],
            encoder_attention_heads=size["num_heads"],
            decoder_attention_heads=size["num_heads"],
            encoder_ffn_dim=size["d_ff"],
            decoder_ffn_dim=size["d_ff"],
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=3,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
        )
    ).eval()

    def prepare(batch):
        ids = torch.tensor(padded(batch["ids"]))
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}

    def decode(inputs):
        with torch.inference_mode():
            return model.generate(
                **inputs,
                num_beams=job["beam_width"],
                do_sample=False,
                min_new_tokens=job["steps"],
                max_new_tokens=job["steps"],
            )

    return Peer(
        version=f"transformers {transformers.__version__}, PyTorch {torch.__version__}",
        prepare=prepare,
        decode=decode,
        lengths=lambda inputs: [len(row) - 1 for row in decode(inputs)],  # a row begins with bos
    )


if __name__ == "__main__":
    serve(load)
