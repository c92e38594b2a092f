"""Segmentations of a text that are drawn, not chosen: what subword sampling trains on."""

import threading

import sentencepiece

# SentencePiece has one seed for the whole process.
_SEEDING = threading.Lock()


class SubwordSampler:
    """Draws segmentations of texts; in one process, of the same seed the same ones.

    Args:
        model: the bytes of a SentencePiece model, unigram or BPE.
        alpha: of a unigram model, the power to which the probability of a segmentation is raised
            before one is drawn of all: the smaller, the more even the draw (0.2 gives about a third
            more tokens, 0.5 a twentieth). Of a BPE model, the share of merges that are left out.
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
        """Ids with eos of each text; where a drawn one is too long, the usual segmentation.

        Args:
            texts: cleaned texts, a list of UTF-8 bytes.
            longest: tokens at most.
            seed: an integer in [0, 2^32 - 1); that number itself is SentencePiece's word for none.

        Returns:
            A list of lists of ids.
        """
        drawn = []

        def draw():
            # One by one: a list would be shared out among SentencePiece's own threads.
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
        """The ids, with eos, of a cleaned text, UTF-8 bytes: its usual segmentation, or with
        SentencePiece's `options` another."""
        code, text = ([], text) if self.codes is None else self.codes.split_bytes(text)
        return [*code, *self.processor.encode(text, add_eos=True, **options)]
