"""Translates many texts with a progress bar."""

from training.terminal.bar import Bar


def translations_of(translator, texts, batch_size, greedy=False, title="translating"):
    """The translations of `translator.translate`, in batches of texts of similar length, with a
    bar."""
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    found = [""] * len(texts)
    with Bar(title, len(texts)) as bar:
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            chunk = [texts[n] for n in chosen]
            for n, text in zip(
                chosen, translator.translate(chunk, batch_size, greedy), strict=True
            ):
                found[n] = text
            bar.advance(len(chosen))
    return found
