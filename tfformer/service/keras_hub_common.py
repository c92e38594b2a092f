"""The shared code of the services for wrapped models of KerasHub."""


def vocabulary_of(model):
    """The bytes of the tokenizer's SentencePiece model; None if it has another kind or none."""
    tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
    return getattr(tokenizer, "proto", None)


class Wrapping:
    """A service whose model is not converted. Its own variables are saved.

    Attributes:
        inference: the forward pass for the search.
    """

    def fused(self, dtype=None):
        """The model in the form for a search."""
        return self.inference

    def logits(self, inputs):
        """Run the whole model without a cache: see `logits` of its `inference`."""
        return self.inference.logits(inputs)

    def saved(self, root):
        # The functions of this object, because they refer to these variables.
        root.weights = [variable.value for variable in self.model.weights]
        return self.signatures

    def flops(self):
        return {}

    def costs(self):
        return {}

    def page_of(self, page, what, ids, more=""):
        """The page, with the class of the exported model, and the numbering of `ids`, the names of
        inputs and outputs."""
        return page._replace(
            about=f"{what}: {type(self.model).__name__} of KerasHub",
            command="export-keras-hub PRESET DIRECTORY",
            inputs=f"{page.inputs}\n\n{more}In {ids}, 0 to 3 are pad, unk, bos and eos,\nand 4 + n "
            "is KerasHub's id n.",
        )
