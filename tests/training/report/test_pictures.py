"""Pictures: bytes joined to characters, Arabic in reading order, and fonts with the needed
letters."""

import io
import warnings

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager, rcParams

from training.report.fonts import families_for, lettered
from training.report.picture import pyplot
from training.report.piece_labels import by_character, characters

# Two hieroglyphs: Matplotlib's own fonts have neither.
OURS, NOBODYS = "\U00013000", "\U00013001"


def test_byte_pieces_are_joined_to_characters():
    word = [f"<0x{byte:02X}>" for byte in "한ж🎉".encode()]
    assert characters(["▁a", *word, "b"]) == [("▁a", 1), ("한", 3), ("ж", 2), ("🎉", 4), ("b", 1)]
    # Characters that are cut, that begin in the middle, and that cannot be printed.
    for alone in (word[:2], word[1:3], ["<0xFF>"], ["<0x0A>"], ["<0xED>", "a", "<0x95>"]):
        assert characters(alone) == [(piece, 1) for piece in alone]
    assert characters([]) == []


def test_joined_attention_columns_are_summed_and_rows_averaged():
    attention = np.arange(12.0).reshape(3, 4)
    found = by_character(attention, [("a", 1), ("한", 3)], [("ж", 2), ("b", 1)])
    # By hand: (0 + 4) / 2, (1 + 2 + 3 + 5 + 6 + 7) / 2; 8, 9 + 10 + 11.
    assert found.tolist() == [[2.0, 12.0], [8.0, 30.0]]


@pytest.fixture
def font(tmp_path, monkeypatch):
    """A font with one letter, a square, installed after Matplotlib searched; and no other fonts
    but Matplotlib's own."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for point in ((0, 700), (700, 700), (700, 0)):
        pen.lineTo(point)
    pen.closePath()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "ours"])
    builder.setupCharacterMap({ord(OURS): "ours"})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "ours": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (800, 0), "ours": (800, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Ours", "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    path = str(tmp_path / "ours.ttf")
    builder.save(path)
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(damaged), path])
    own = [entry for entry in font_manager.fontManager.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)


def drawn(text):
    """The picture of a text."""
    figure = pyplot().figure(figsize=(1, 1))
    figure.text(0.2, 0.2, text)
    picture = io.BytesIO()
    figure.savefig(picture, format="raw")
    pyplot().close(figure)
    return picture.getvalue()


def test_missing_characters_are_reported_and_others_get_a_font(font, capsys):
    own = list(rcParams["font.family"])
    assert families_for(["plain text", "жук", "e\ufe0f\u200d"]) == (own, set())
    assert families_for([f"a{OURS}", NOBODYS]) == ([*own, "Ours"], {NOBODYS})
    without = drawn("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with lettered([OURS, "x"]):
            square = drawn(OURS)
        assert capsys.readouterr().err == "" and rcParams["font.family"] == own
        with lettered([OURS, NOBODYS]):
            assert drawn(OURS) == square != drawn(NOBODYS) != without
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"no installed font has {NOBODYS}: " in said
    # Black where the square is, and nowhere else: 0.7 of the letter's 10 points, at 100 dpi.
    dark = np.frombuffer(square, np.uint8).reshape(100, 100, 4)[..., 0] < 128
    assert dark.sum() == pytest.approx((0.7 * 10 * 100 / 72) ** 2, rel=0.15)


def test_many_missing_characters_are_reported_in_one_line(capsys):
    letters = [chr(0x13000 + n) for n in range(11)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.report.fonts.families_for", lambda texts: ([], set(letters)))
        with lettered(letters):
            pass
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and " ".join(letters[:8]) in said and "and 3 more" in said
