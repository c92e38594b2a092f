"""A lexical shortlist: for each source piece, the few target pieces that may translate it.

The output layer multiplies by the whole vocabulary at every step. If the vocabulary is large, this
takes most of the time. With a shortlist, it multiplies only by the pieces that some source piece
translates to, and by frequent pieces (Jean et al. 2015, section 4.2; L'Hostis et al. 2016).
`tfformer shortlist` learns a shortlist.

`Shortlist` is the table. `tfformer.inference.shortlist` is the forward pass that uses it.
"""

import dataclasses
from typing import TYPE_CHECKING, Self

import numpy as np

from tfformer.annotations import StrPath, Tensor
from tfformer.config import EOS
from tfformer.files import RunError, pack, read_bytes, unpack, write_atomically

if TYPE_CHECKING:
    from tfformer.text.tokenizer import Tokenizer

FORMAT = 1
ARRAYS = ("candidates", "always")


@dataclasses.dataclass(frozen=True, eq=False)
class Shortlist:
    """The candidate target pieces for each source piece, and those for every sentence.

    Args:
        candidates: int32 [V_source, n], the most probable first; 0 fills empty entries.
        always: int32 [m], ascending, without repetition: pad, unk, bos, eos = 0, 1, 2, 3, and
            pieces that are frequent or must always be allowed.
        tokenizer_sha256: `Tokenizer.sha256` of the tokenizer with both vocabularies.

    Raises:
        ValueError: `candidates` or `always` is not an array of ids of that rank, `always` does not
            ascend from 0, 1, 2, 3, or `tokenizer_sha256` is not a string.

    Example, in which source id 4 may become 5 or 9:
        >>> candidates = np.zeros((7, 2), "int32")
        >>> candidates[4] = 5, 9
        >>> always = np.array([0, 1, 2, 3, 6])
        >>> shortlist = Shortlist(candidates, always, tokenizer_sha256="...")
        >>> shortlist.allowed([4, 3]).tolist()
        [0, 1, 2, 3, 5, 6, 9]
    """

    candidates: np.ndarray
    always: np.ndarray
    tokenizer_sha256: str

    def __post_init__(self):
        for name, rank in (("candidates", 2), ("always", 1)):
            given = np.asarray(getattr(self, name))
            if given.ndim != rank or not np.issubdtype(given.dtype, np.integer):
                raise ValueError(
                    f"{name} must be integers of rank {rank}, got {given.dtype} {given.shape}"
                )
            if given.size and not 0 <= given.min() <= given.max() < 2**31:
                raise ValueError(
                    f"{name} must be ids in [0, 2^31), got {given.min()} to {given.max()}"
                )
            array = given.astype("int32")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if not isinstance(self.tokenizer_sha256, str):
            raise ValueError(f"tokenizer_sha256 must be a string, got {self.tokenizer_sha256!r}")
        first = self.always[: EOS + 1].tolist()
        if first != [*range(EOS + 1)] or (np.diff(self.always) <= 0).any():
            raise ValueError(f"always must ascend from 0, 1, 2, 3, got {first} first")

    def allowed(self, source_ids: Tensor) -> np.ndarray:
        """The candidates of one sentence: source ids [S] -> int32 [c], ascending.

        Raises:
            ValueError: an id is outside the source vocabulary.
        """
        ids, size = np.asarray(source_ids, "int32"), len(self.candidates)
        if ids.size and not 0 <= ids.min() <= ids.max() < size:
            raise ValueError(f"source_ids must be in [0, {size}), got {ids.min()} to {ids.max()}")
        own = self.candidates[ids].ravel()
        return np.unique(np.concatenate([self.always, own]))

    def describe(self) -> str:
        """The size of the shortlist, in words."""
        num_pieces, maximum = self.candidates.shape
        return (
            f"at most {maximum} candidates for each of {num_pieces:,} source pieces, "
            f"{len(self.always)} for every sentence"
        )

    def check(self, tokenizer: "Tokenizer") -> None:
        """Check that the shortlist was made for this tokenizer.

        Raises:
            ValueError: it was made for other vocabularies.
        """
        if self.tokenizer_sha256 != tokenizer.sha256:
            raise ValueError(
                "shortlist must be made for this tokenizer, whose sha256 is "
                f"{tokenizer.sha256[:16]}..., got one for {self.tokenizer_sha256[:16]}..."
            )
        maximum = max(self.candidates.max(initial=0), self.always[-1]) + 1
        sizes = (tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size)
        if len(self.candidates) != sizes[0] or maximum > sizes[1]:
            raise ValueError(
                f"shortlist must be for {sizes[0]} source and {sizes[1]} target pieces, got one "
                f"for {len(self.candidates)} and at least {maximum}"
            )

    def save(self, path: StrPath) -> None:
        """Writes an .npz file atomically.

        Raises:
            OSError: it cannot be written; what was at `path` stays.
        """
        arrays = {name: getattr(self, name) for name in ARRAYS}
        sha256 = np.array(self.tokenizer_sha256)
        content = pack({"format": np.array(FORMAT), "tokenizer_sha256": sha256, **arrays})
        write_atomically(path, content)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read a shortlist from a file.

        Raises:
            RunError: the file cannot be read or is damaged; the message names file and problem.
        """
        try:
            content = read_bytes(path)
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}") from error
        if not content.startswith(b"PK"):
            raise RunError(f"{path} is no shortlist: it is no .npz file")
        try:
            found = unpack(content)
        except RunError as error:
            raise RunError(f"{path} is damaged: {error}") from error
        if set(found) != {"format", "tokenizer_sha256", *ARRAYS}:
            raise RunError(f"{path} is no shortlist: it holds {sorted(found)}")
        if found["format"] != FORMAT:
            raise RunError(f"{path} must be of format {FORMAT}, got {found['format']}")
        try:
            arrays = {name: found[name] for name in ARRAYS}
            return cls(**arrays, tokenizer_sha256=str(found["tokenizer_sha256"]))
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from error
