"""What the services over wrapped models of KerasHub share."""


def vocabulary_of(model):
    """The bytes of the SentencePiece model of its tokenizer; None if it has another or none."""
    tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
    return getattr(tokenizer, "proto", None)


class Wrapping:
    """A service whose model stays what it is: nothing is fused, and its own variables are saved.

    Attributes:
        inference: the forward pass that is searched.
    """

    def fused(self, dtype=None):
        """The model as a search uses it."""
        return self.inference

    def logits(self, inputs):
        """The model, whole and without a cache: see `logits` of its `inference`."""
        return self.inference.logits(inputs)

    def saved(self, root):
        # The functions are those of here: they close over these variables.
        root.weights = [variable.value for variable in self.model.weights]
        return self.signatures

    def flops(self):
        return {}

    def costs(self):
        return {}

    def page_of(self, page, what, ids, more=""):
        """A page that says what is exported, and how `ids`, the names of inputs and outputs, are
        numbered."""
        return page._replace(
            about=f"{what}: {type(self.model).__name__} of KerasHub",
            command="export.keras_hub PRESET",
            inputs=f"{page.inputs}\n\n{more}In {ids}, 0 to 3 are pad, unk, bos and eos,\nand 4 + n "
            "is KerasHub's id n.",
        )
