"""Draws random segmentations of a text, for subword sampling in training."""

import threading

import sentencepiece

# SentencePiece has one seed for the whole process.
_SEEDING = threading.Lock()


class SubwordSampler:
    """Draws segmentations of texts. In one process, the same seed gives the same segmentations.

    Args:
        model: the bytes of a SentencePiece model, unigram or BPE.
        alpha: for a unigram model, the exponent of the probabilities from which a segmentation is
            drawn: the smaller, the more uniform the draw (0.2 gives about a third more tokens, 0.5
            a twentieth). For a BPE model, the share of merges that are skipped.
        codes: the `Codes` that a text may begin with. Default: none.
    """

    def __init__(self, model, alpha, codes=None):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.alpha, self.codes = alpha, codes
        try:
            self._draw(b"a")
        except RuntimeError as error:
            raise ValueError(f"subword_sampling must be 0 with this vocabulary: {error}") from error

    def __call__(self, texts, longest, seed):
        """Draw ids with eos for each text. If a drawn one is too long, use the usual segmentation.

        Args:
            texts: cleaned texts, a list of UTF-8 bytes.
            longest: the maximum number of tokens.
            seed: an integer in [0, 2^32 - 1). 2^32 - 1 itself means no seed in SentencePiece.

        Returns:
            A list of lists of ids.
        """
        drawn = []

        def draw():
            # One by one, because SentencePiece would split a list among its own threads.
            drawn.extend(map(self._draw, texts))

        # SentencePiece's generator belongs to a thread and is seeded when the thread first draws.
        with _SEEDING:
            sentencepiece.set_random_generator_seed(seed)
            thread = threading.Thread(target=draw)
            thread.start()
            thread.join()
        return [
            ids if len(ids) <= longest else self.encoded(text)
            for text, ids in zip(texts, drawn, strict=True)
        ]

    def _draw(self, text):
        return self.encoded(text, enable_sampling=True, alpha=self.alpha, nbest_size=-1)

    def encoded(self, text, **options):
        """The ids, with eos, of a cleaned text in UTF-8 bytes: its usual segmentation, or another
        one with SentencePiece's `options`."""
        code, text = ([], text) if self.codes is None else self.codes.split_bytes(text)
        return [*code, *self.processor.encode(text, add_eos=True, **options)]
