"""Lines that a tokenizer may get wrong: accents, scripts, emoji, control characters, spaces,
long words."""

import random

WORDS = (
    "the lake house Haus Straße don't can't it's I'm we'll you've O'Neill naïve café CAFÉ Ünïcödé "
    "ΣΊΣΥΦΟΣ Ὀδυσσεύς İstanbul ısı Ǆ ǅ ﬁne ﬀ ½ x² 100,000 3.14 1e-5 A.B.C. e-mail@example.com "
    "http://a.b/c?d=e&f#g <tag> a_b #hash $5.00 50% ¿qué? «quoi» “quote” ‘single’ … — – ‐ "
    "中文 字符 日本語 テスト 한국어 русский Привет мир עברית العربية हिन्दी ไทย ქართული Ελληνικά "
    "𠀀 𝒜 𝟙 😀 👩‍👩‍👧 🇩🇪 ☃ ☂ ♥️ ™ © ← ∑ √ ∞ º ª ａｂｃ ＡＢＣ １２３ zxqj ĳ ŉ ſ K Å e\u0301 a\u0308 "
    "n\u0303o ̈ \u200d \u200b \u00ad \ufeff \u2060 \ufffd \ue000 \u0378 \U0001f9ff"
).split()
BLANKS = (
    " ", " ", " ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000",
    "\u2028", "\x0b", "\x0c", "\x85", "", "",
)  # fmt: skip
CONTROLS = "\x01\x02\x07\x08\x0e\x1b\x1f\x7f\x80\x9f"
PUNCTUATION = "!!! ... ?! ' '' ` ~ ^ | + = < > $ * & @ # ( ) [ ] { } ; : , . - _ / \\ \" %".split()
FIXED = [
    "", " ", "\t\n", "a", " a", "a ", "  a  b  ", "a\x01b", "!", "!!!!",
    "x" * 99, "x" * 100, "x" * 101, "the" * 34, "é" * 100, "é" * 101, "ß", "ẞ", "\u0301", "a\u0301",
    "The red house.", "the  red   house", "\u3000", "中", "中文abc", "don't", " 's", "'s 't 'S",
]  # fmt: skip


def hard_lines(count, seed=11):
    """`count` lines, the same for the same seed."""
    rng = random.Random(seed)
    return [*FIXED, *(_line(rng) for _ in range(count - len(FIXED)))][:count]


# Tokens of chat models, which are one id in some vocabularies and text in others.
CHAT = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<tool_call>", "<|begin_of_")
PLAIN = "the red house is by lake a bird Straße don't 12 2026 ! , .".split()


def chat_lines(count, seed=17):
    """`count` prompts of usual words, some with tokens of chat models, and some hard ones."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        words = rng.choices(PLAIN, k=rng.randint(1, 7))
        if rng.random() < 0.4:
            words.insert(rng.randint(0, len(words)), rng.choice(CHAT))
        line = rng.choice((" ", " ", " ", "\n", "  ", "\n\n ")).join(words)
        found.append(line if rng.random() < 0.7 else line + _line(rng)[:12])
    return found


def _line(rng):
    parts = []
    for _ in range(rng.randint(1, 9)):
        kind = rng.random()
        if kind < 0.7:
            parts.append(_cased(rng.choice(WORDS), rng))
        elif kind < 0.85:
            parts.append(rng.choice(PUNCTUATION))
        elif kind < 0.9:
            parts.append(rng.choice(CONTROLS))
        elif kind < 0.95:
            parts.append("".join(rng.choices("abcdefgh", k=rng.randint(1, 120))))
        else:
            parts.append(_character(rng))
        parts.append(rng.choice(BLANKS))
    return "".join(parts)


def _cased(word, rng):
    return rng.choice((str, str, str.upper, str.title))(word)


def _character(rng):
    """Any character below U+20000 that Unicode 8 has assigned in the ranges of usual scripts."""
    ranges = ((0xA0, 0x377), (0x400, 0x52F), (0x5D0, 0x5EA), (0x1E00, 0x1EFF), (0x2010, 0x2027),
              (0x2100, 0x2188), (0x3041, 0x3096), (0xAC00, 0xD7A3), (0x1F600, 0x1F64F))  # fmt: skip
    return chr(rng.randint(*rng.choice(ranges)))
