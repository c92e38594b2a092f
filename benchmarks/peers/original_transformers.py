"""A folder of Hugging Face by transformers and PyTorch; see `benchmarks.originals`."""

import os

from benchmarks.peers.protocol import Peer, serve


def load(job):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    torch.set_num_threads(job["threads"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["folder"])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(job["folder"]).eval()

    @torch.inference_mode()
    def translate(texts):
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        ids = model.generate(**inputs, num_beams=job["beam_width"], max_length=job["max_length"])
        return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]

    version = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    return Peer(version, lambda batch: batch["texts"], translate, texts=translate)


if __name__ == "__main__":
    serve(load)
