"""Chooses installed fonts for a picture, so that every character has a glyph."""

import contextlib
import sys
import warnings

# Missing characters that a message names; and fonts that draw a box for every character.
NAMED = 8
BOXES = "Last Resort"
SELECTORS = {chr(code) for code in range(0xFE00, 0xFE10)}


@contextlib.contextmanager
def lettered(texts):
    """In this block, Matplotlib uses fonts with glyphs for the characters of these texts.

    If no installed font has some of the characters, one line on standard error says so.
    """
    import matplotlib

    families, missing = families_for(texts)
    if missing:
        shown = " ".join(sorted(missing)[:NAMED])
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        fault = f"no installed font has {shown}{more}: boxes stand for them; Noto's fonts, say, do"
        print(fault, file=sys.stderr)
    with matplotlib.rc_context({"font.family": families}), warnings.catch_warnings():
        if missing:
            warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def families_for(texts):
    """(families, missing): Matplotlib's default font families and as few others as these texts
    need, and the characters that no font has."""
    from matplotlib import font_manager, rcParams

    # Variation selectors have no glyph: they change the form of the character before them.
    missing = {c for text in texts for c in text if c.isprintable() and c not in SELECTORS}
    families = list(rcParams["font.family"])
    for family in families:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        missing -= _glyphs(path)
    if missing:
        found = {name: _glyphs(path) & missing for name, path in _installed().items()}
        while missing and found:
            # If several have as many, take the first by name, so that the picture is reproducible.
            best = max(sorted(found), key=lambda name: len(found[name] & missing))
            if not found[best] & missing:
                break
            families.append(best)
            missing -= found[best]
    return families, missing


def _installed():
    """{family: the file of its regular font} of all installed fonts; Matplotlib's list may lack
    some."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    known = {entry.fname for entry in manager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            # Matplotlib raises these for a damaged file and for a kind of font that it cannot draw.
            # Such a font is left out; characters that no other font has are reported by `lettered`.
            with contextlib.suppress(OSError, RuntimeError, ValueError, NotImplementedError):
                manager.addfont(path)
    entries = [entry for entry in manager.ttflist if not entry.name.startswith(BOXES)]
    regular = sorted(entries, key=lambda entry: (entry.style != "normal", entry.weight != 400))
    found = {}
    for entry in regular:
        found.setdefault(entry.name, entry.fname)
    return found


def _glyphs(path):
    """The characters of a font; none if it is a bitmap font, which has only fixed sizes."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
        return set(map(chr, font.get_charmap())) if font.scalable else set()
    except (OSError, RuntimeError):
        return set()
