"""The models: each from ids to logits, made of `tfformer.layers`."""
