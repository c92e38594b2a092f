"""Compares a task with one right answer and one with many: `python -m benchmarks.learning.answers`.

    python -m benchmarks.learning.answers --out runs/answers

Two artificial languages have the same sources, whose words are as unequally frequent as those of a
text. In `one answer`, each source word has one translation. In `many answers`, it has three
synonyms, drawn at random. In both, the ending of a word agrees with the gender of the word before
it, as an adjective with its noun. In training, some targets are cut short, as in real corpora. So
every translation can be checked: is each word a synonym of its source word, with the right ending,
and is none missing?

Small translators are trained with several seeds. The first table shows whether beam search finds
more right translations than greedy search. For the second, the third word of each greedy
translation is replaced by a synonym or by a wrong word, and the model continues after it: how many
of the following words are right?

Exit codes: 0 both tables; 1 an error of a training; 2 wrong usage; 130 or 143 interrupted.
"""

import math
import random
import statistics
import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.learning.trainings import spread
from tfformer.files import write_lines
from tfformer.terminal.command import Parser, main_of

LANGUAGES = {"one answer": 1, "many answers": 3}  # synonyms in use
CONCEPTS, GENDERS, CUT, EPOCHS = 500, 3, 0.03, 20
FREQUENCIES = [1 / n for n in range(1, CONCEPTS + 1)]
SIZES = {"train": 12_000, "val": 300, "test": 1000}
TRAINING = (
    "--num-encoder-layers 2 --num-decoder-layers 2 --d-model 64 --d-ff 128 --dropout 0.1 "
    "--vocabulary-size 1000 --max-tokens 64 --batch-tokens 2000 --warmup-steps 300 --cores 1"
).split()
PERCENT = "{:.1f}"
# Name: the options of a search.
SEARCHES = {
    "greedy": {"beam_width": 1, "length_penalty": 0.0},
    "beam of 4": {"beam_width": 4, "length_penalty": 0.0},
    "beam of 16": {"beam_width": 16, "length_penalty": 0.0},
    "beam of 4, length penalty 1": {"beam_width": 4, "length_penalty": 1.0},
}
REPLACED, AFTER = 2, 3  # the position of the replaced word, and how many words after it count


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.answers", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of corpora and runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default 0 1 2")
    return parser


class Language:
    """An artificial language, made from a seed.

    Attributes:
        sources: a word for each concept.
        known: {stem: (concept, gender)} of all target words; synonym s has the gender s.
    """

    def __init__(self):
        rng = random.Random(0)
        syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
        words = rng.sample([a + b for a in syllables for b in syllables], CONCEPTS * 4)
        self.sources, stems = words[:CONCEPTS], iter(words[CONCEPTS:])
        self.stems = [[next(stems) for _ in range(GENDERS)] for _ in range(CONCEPTS)]
        self.known = {
            stem: (concept, gender)
            for concept, synonyms in enumerate(self.stems)
            for gender, stem in enumerate(synonyms)
        }

    def written(self, concept, gender, before):
        """A target word after the target word `before`; None at the beginning."""
        return self.stems[concept][gender] + "xyw"[self.gender_of(before)]

    def gender_of(self, word):
        """The gender of a target word, which decides the ending of the next one."""
        return 0 if word is None else self.known.get(word[:-1], (None, 0))[1]

    def pairs(self, split, synonyms):
        """(concepts, target words) of a split."""
        sources, rng = random.Random(split), random.Random(f"{split} {synonyms}")
        for _ in range(SIZES[split]):
            concepts = self._drawn(sources, sources.randint(6, 10))
            words = []
            for concept in concepts:
                gender = rng.randrange(GENDERS) if synonyms > 1 else concept % GENDERS
                words.append(self.written(concept, gender, words[-1] if words else None))
            if split == "train" and rng.random() < CUT:
                words = words[: rng.randint(1, len(words) - 1)]
            yield concepts, words

    @staticmethod
    def _drawn(rng, length):
        """Different concepts. The n-th is drawn 1 / n times as often as the first, as words are in
        a text, so some are rare in training."""
        found = {}
        while len(found) < length:
            [concept] = rng.choices(range(CONCEPTS), FREQUENCIES)
            found[concept] = None
        return [*found]

    def right(self, concepts, words, synonyms):
        """Whether each target word is right at its position; one more False if a word is missing or
        extra."""
        found = []
        for n, word in enumerate(words[: len(concepts)]):
            concept, gender = self.known.get(word[:-1], (None, None))
            expected = self.written(concepts[n], gender or 0, words[n - 1] if n else None)
            allowed = synonyms > 1 or gender == concepts[n] % GENDERS
            found.append(concept == concepts[n] and word == expected and allowed)
        return [*found, *[False] * (len(words) != len(concepts))]


def _run(command, options):
    from tfformer.run import load_translator
    from training import train

    language = Language()
    print(f"{machine.today()}.\n")
    options.out.mkdir(parents=True, exist_ok=True)
    searched, replaced = {}, {}
    for name, synonyms in LANGUAGES.items():
        folder = options.out / name.replace(" ", "-")
        tests = [pair[0] for pair in _write(language, folder, synonyms)["test"]]
        for seed in options.seeds:
            run = folder / f"seed-{seed}"
            words = [
                *("--source", folder / "train.source", "--target", folder / "train.target"),
                *("--val-source", folder / "val.source", "--val-target", folder / "val.target"),
                *("--run", run, "--seed", seed, "--epochs", EPOCHS),
                *("--validate-every", EPOCHS, "--average", 1, *TRAINING),
                *(["--resume"] if (run / "checkpoints").exists() else []),
            ]
            if code := train.main([str(word) for word in words]):
                return code
            known = language, tests, synonyms
            translators = {
                search: load_translator(run, max_target_length=64, **fields)
                for search, fields in SEARCHES.items()
            }
            for search, translator in translators.items():
                rows = _searched(translator, *known)
                searched.setdefault((name, search), []).append(rows)
            for kind, row in _replaced(translators["greedy"], *known).items():
                replaced.setdefault((name, kind), []).append(row)
    _print_searches(searched)
    _print_replaced(replaced)
    return 0


def _write(language, folder, synonyms):
    """Writes the corpus of a language; returns the pairs by split."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = {split: list(language.pairs(split, synonyms)) for split in SIZES}
    for split, pairs in corpus.items():
        lines = [(_source(language, concepts), " ".join(words)) for concepts, words in pairs]
        for side, texts in zip(("source", "target"), zip(*lines, strict=True), strict=True):
            write_lines(folder / f"{split}.{side}", texts)
    return corpus


def _source(language, concepts):
    return " ".join(language.sources[concept] for concept in concepts)


def _searched(translator, language, tests, synonyms):
    """For each test sentence: whether its translation is right, and its relative length."""
    found = translator.translate([_source(language, concepts) for concepts in tests])
    words = [text.split() for text in found]
    return [
        (all(language.right(concepts, row, synonyms)), len(row) / len(concepts))
        for concepts, row in zip(tests, words, strict=True)
    ]


def _replaced(translator, language, tests, synonyms):
    """{kind of the word at REPLACED: shares of right next words, and of right rests}.

    Only of sentences whose greedy translation is right.
    """
    rng = random.Random(1)
    sources = [_source(language, concepts) for concepts in tests]
    texts = [text.split() for text in translator.translate(sources, greedy=True)]
    good = [n for n, one in enumerate(texts) if all(language.right(tests[n], one, synonyms))]
    begun = {"its own word": [], "a synonym": [], "a wrong word": []}
    for n in good:
        before, own = texts[n][:REPLACED], texts[n][REPLACED]
        others = [g for g in range(GENDERS) if language.stems[tests[n][REPLACED]][g] != own[:-1]]
        wrong = rng.choice([c for c in range(CONCEPTS) if c not in tests[n]])
        gender = rng.randrange(GENDERS) if synonyms > 1 else wrong % GENDERS
        begun["its own word"].append([*before, own])
        begun["a wrong word"].append([*before, language.written(wrong, gender, before[-1])])
        if synonyms > 1:
            gender = rng.choice(others)
            word = language.written(tests[n][REPLACED], gender, before[-1])
            begun["a synonym"].append([*before, word])
    found = {}
    for kind, rows in begun.items():
        if rows:
            continued = _continued(translator, [sources[n] for n in good], rows)
            rests = [
                language.right(tests[n], words, synonyms)[REPLACED + 1 :]
                for n, words in zip(good, continued, strict=True)
            ]
            positions = [
                statistics.mean(n < len(rest) and rest[n] for rest in rests) for n in range(AFTER)
            ]
            found[kind] = [*positions, statistics.mean(all(rest) for rest in rests)]
    return found


def _continued(translator, sources, rows):
    """The greedy translations that begin with these words."""
    import tensorflow as tf

    found, size = [], 100
    complete = translator.functions["complete"]
    for start in range(0, len(rows), size):
        prefixes = tf.constant([" ".join(row) for row in rows[start : start + size]])
        texts = tf.constant(sources[start : start + size])
        answers = complete(text=texts, prefix=prefixes)["translation"].numpy()
        found += [answer.decode().split() for answer in answers]
    return found


def _print_searches(searched):
    print("| language | search | right, % | words, of those in the source | p against greedy |")
    print("|---|---|--:|--:|--:|")
    for (name, search), seeds in searched.items():
        shares = [100 * statistics.mean(right for right, _ in rows) for rows in seeds]
        length = statistics.mean(length for rows in seeds for _, length in rows)
        p = ""
        if search != "greedy":
            greedy = searched[name, "greedy"]
            p = f"{_sign_test(_rights(seeds), _rights(greedy)):.2g}"
        print(f"| {name} | {search} | {spread(shares, PERCENT)} | {length:.3f} | {p} |")


def _print_replaced(replaced):
    words = " | ".join(f"word {n + 1} after it" for n in range(AFTER))
    print(f"\n| language | the third word is | {words} | the whole rest |")
    print(f"|---|---|{'--:|' * (AFTER + 1)}")
    for (name, kind), seeds in replaced.items():
        columns = zip(*seeds, strict=True)
        percents = [[100 * share for share in column] for column in columns]
        shown = " | ".join(spread(column, PERCENT) for column in percents)
        print(f"| {name} | {kind} | {shown} |")


def _rights(seeds):
    """For each sentence, how many of the seeds translate it right."""
    return [sum(right for right, _ in rows) for rows in zip(*seeds, strict=True)]


def _sign_test(ours, theirs):
    """The two-sided p of a sign test over the sentences in which two lists of numbers differ."""
    wins = sum(a > b for a, b in zip(ours, theirs, strict=True))
    losses = sum(b > a for a, b in zip(ours, theirs, strict=True))
    total, fewer = wins + losses, min(wins, losses)
    tail = sum(math.comb(total, k) for k in range(fewer + 1)) / 2**total
    return min(1.0, 2 * tail)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
