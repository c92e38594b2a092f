"""Fonts of pictures: of those that are installed, some that have a glyph for every character."""

import contextlib
import warnings

# Characters that a line names; and fonts that draw a box for everything.
NAMED = 8
BOXES = "Last Resort"


@contextlib.contextmanager
def lettered(texts, say):
    """Inside, what Matplotlib draws has a glyph for each character of these texts, where it can.

    Args:
        texts: strings, as they are drawn.
        say: called with one line, if no installed font has some of the characters.
    """
    import matplotlib

    families, missing = families_for(texts)
    if missing:
        shown = " ".join(sorted(missing)[:NAMED])
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        say(f"no installed font has {shown}{more}: boxes stand for them; Noto's fonts, say, do")
    with matplotlib.rc_context({"font.family": families}), warnings.catch_warnings():
        if missing:  # it has been said, in one line
            warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def families_for(texts):
    """(families, missing): Matplotlib's own families of fonts and as few others as have the rest of
    the characters of these texts, and a set of those that none has."""
    from matplotlib import font_manager, rcParams

    # What is no letter but says how others are drawn has no glyph.
    missing = {c for text in texts for c in text if c.isprintable() and not _is_mark(c)}
    families = list(rcParams["font.family"])
    for family in families:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        missing -= _glyphs(path)
    if missing:
        found = {name: _glyphs(path) & missing for name, path in _installed().items()}
        while missing and found:
            # Of those that have as many, the first by name: always the same picture.
            best = max(sorted(found), key=lambda name: len(found[name] & missing))
            if not found[best] & missing:
                break
            families.append(best)
            missing -= found[best]
    return families, missing


def _is_mark(character):
    """Whether it chooses the form of the one before it: a variation selector."""
    return 0xFE00 <= ord(character) <= 0xFE0F


def _installed():
    """{family: the file of its regular font}, of those too that Matplotlib's list lacks.

    The list is a file that Matplotlib wrote when it first ran here.
    """
    from matplotlib import font_manager

    manager = font_manager.fontManager
    known = {entry.fname for entry in manager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            # A file that is damaged, or of a kind that Matplotlib cannot draw.
            with contextlib.suppress(OSError, RuntimeError, ValueError, NotImplementedError):
                manager.addfont(path)
    entries = [entry for entry in manager.ttflist if not entry.name.startswith(BOXES)]
    regular = sorted(entries, key=lambda entry: (entry.style != "normal", entry.weight != 400))
    found = {}
    for entry in regular:
        found.setdefault(entry.name, entry.fname)
    return found


def _glyphs(path):
    """The characters that a font has; none, if it is made of pictures of one size."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
        return set(map(chr, font.get_charmap())) if font.scalable else set()
    except (OSError, RuntimeError):
        return set()
