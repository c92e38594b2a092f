"""A folder of Hugging Face by transformers and PyTorch; see `benchmarks.originals`."""

import os

from benchmarks.peers.protocol import Peer, serve


def load(job):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    torch.set_num_threads(job["threads"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["folder"])
    config = transformers.AutoConfig.from_pretrained(job["folder"])
    [architecture] = config.architectures
    model = getattr(transformers, architecture).from_pretrained(job["folder"]).eval()
    lengths = {"num_beams": job["beam_width"], "max_length": job["max_length"]}

    def translated(texts):
        ids = model.generate(**tokenizer(texts, return_tensors="pt", padding=True), **lengths)
        return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def continued(texts):
        tokenizer.padding_side = "left"
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        new = {"max_new_tokens": job["max_length"], "do_sample": False}
        ids = model.generate(**inputs, **new)[:, inputs["input_ids"].shape[1] :]
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    def labelled(texts):
        logits = model(**tokenizer(texts, return_tensors="pt", padding=True)).logits
        return [config.id2label[n] for n in logits.argmax(-1).tolist()]

    kinds = {"ForSequenceClassification": labelled, "ForCausalLM": continued}
    kinds["LMHeadModel"] = continued
    answer = next((kinds[end] for end in kinds if architecture.endswith(end)), translated)
    answer = torch.inference_mode()(answer)
    version = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    return Peer(version, lambda batch: batch["texts"], answer, texts=answer)


if __name__ == "__main__":
    serve(load)
