"""Many texts through a translator, with a bar that says how far it is."""

from training.terminal.bar import Bar


def translations_of(translator, texts, batch_size, greedy=False, title="translating"):
    """What `translator.translate` gives, in the same batches: texts of like length together.

    Args:
        translator: a `Translator`.
        texts: a list of strings.
        batch_size: texts at once.
        greedy: greedy search in place of the translator's own. Default False.
        title: of the bar.
    """
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
