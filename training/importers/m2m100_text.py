"""Reads the tokenizer of M2M100, NLLB-200, SMALL-100 and mBART-50: a SentencePiece model and the
codes of its languages."""

import functools
import re
from pathlib import Path

from tfformer.files import LONGEST_TEXT, read_bytes
from tfformer.text.language_codes import language_of
from tfformer.text.renumbering import piece_kinds, regular_pieces, renumbered
from tfformer.text.tokenizer import Tokenizer
from tfformer.text.tokenizer_json import sentencepiece_of

from .id_mapping import EOS, UNK, known_pieces, numbered, read_table
from .options import read_json_object

MODEL, TABLE, WHOLE, SETTINGS = (
    "sentencepiece.bpe.model", "vocab.json", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip
# The languages of M2M100 and SMALL-100 in the order of their ids, by `language_codes`; and those of
# mBART-50.
LANGUAGES = {
    "m2m100": """
        af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu
        ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr
        ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk
        ur uz vi wo xh yi yo zh zu
    """.split(),
    "wmt21": "en ha is ja cs ru zh de".split(),
    "mBART-50": """
        ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT
        lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL
        hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN
        th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
    """.split(),
}
# The tokenizer classes of Hugging Face, and the family of each.
M2M100, NLLB, SMALL100, MBART = "M2M100", "NLLB", "SMALL-100", "mBART-50"
CLASSES = {
    "M2M100Tokenizer": M2M100,
    "SMALL100Tokenizer": SMALL100,
    "NllbTokenizer": NLLB,
    "NllbTokenizerFast": NLLB,
    "MBart50Tokenizer": MBART,
    "MBart50TokenizerFast": MBART,
}
# How the codes of languages look that follow fairseq's pieces.
CODES = {NLLB: r"[a-z]{3}_[A-Z][a-z]{3}", MBART: r"[a-z]{2}_[A-Z]{2}"}
SOURCES = {
    M2M100: "en",
    NLLB: "eng_Latn",
    MBART: "en_XX",
}  # the default source languages of these classes
MASK = "<mask>"  # in no text
FIRST = ("<s>", "<pad>", EOS, UNK)  # the first ids of NLLB-200


def read_text(folder, pad, eos, size, forced, asked, unnamed=None):
    """Reads the `Tokenizer` of a folder, the `Numbering` of both sides, and notes for the user.

    Args:
        folder: its path.
        pad, eos, size: the ids of pad and eos, and the number of ids.
        forced: the id of the target language of the folder's generation, or None.
        asked: {"source_language" or "target_language": the default language, or None for that of
            the folder}.
        unnamed: the family if `tokenizer_config.json` has no `tokenizer_class`. Default: by the
            files.
    """
    path = Path(folder, SETTINGS)
    settings = read_json_object(path) if path.exists() else {}
    family, notes = _family(folder, settings, unnamed), ()
    if family in CODES:
        content, table, path = _of_fairseq(folder)
        languages = _languages_of_fairseq(folder, settings, table, family)
    else:
        content, table, path = _of_m2m100(folder, size, pad, eos)
        languages = _languages_of_m2m100(settings, path, len(table))
        pieces = regular_pieces(content, path)
        notes = (known_pieces(pieces, table, Path(folder, TABLE), MODEL),)
    table = {piece: n for piece, n in table.items() if piece not in {MASK, *languages}}
    _require_ids(folder, settings, {**table, **languages}, size, pad, eos)
    unknown = [piece for piece in regular_pieces(content, path) if piece not in table]
    names, numbering = numbered({**table, **languages}, size, (pad, table[UNK], eos, eos), unknown)
    source, target = _defaults(family, settings, forced, languages, asked)
    make = functools.partial(renumbered, content, names, path, languages=languages)
    tokenizer = Tokenizer(make(default=source), make(unwritten=unknown, default=target))
    return tokenizer, numbering, notes


def _family(folder, settings, unnamed):
    """The family of a folder's tokenizer."""
    named = settings.get("tokenizer_class")
    if named is None and unnamed is not None:
        return unnamed
    if named is None:
        return M2M100 if Path(folder, TABLE).exists() else NLLB
    if named not in tuple(CLASSES):
        raise ValueError(
            f"{Path(folder, SETTINGS)}: tokenizer_class must be one of {list(CLASSES)}, got "
            f"{named!r:.99}"
        )
    if CLASSES[named] == NLLB and settings.get("legacy_behaviour"):
        raise ValueError(
            f"{Path(folder, SETTINGS)}: legacy_behaviour must be false, got "
            f"{settings['legacy_behaviour']!r:.99}"
        )
    return CLASSES[named]


def _defaults(family, settings, forced, languages, asked):
    """The pieces of the default languages that source and target begin with, or None.

    A model of SMALL-100 has only the target language, and its code begins the source.
    """
    pieces = {language_of(piece): piece for piece in languages}
    by_id = {n: language_of(piece) for piece, n in languages.items()}
    if forced is not None and (family == SMALL100 or forced not in tuple(by_id)):
        rule = "be None" if family == SMALL100 else "be the id of a language's code"
        raise ValueError(f"forced_bos_token_id must {rule}, got {forced!r:.99}")
    if family == SMALL100:
        if asked["source_language"] is not None:
            raise ValueError(
                f"source_language must be None for {family}, got {asked['source_language']!r}"
            )
        own = {"target_language": settings.get("tgt_lang") or "en"}
    else:
        own = {
            "source_language": settings.get("src_lang") or SOURCES[family],
            "target_language": by_id.get(forced) or settings.get("tgt_lang"),
        }
    own |= {name: language for name, language in asked.items() if language is not None}
    for name, language in own.items():
        if language is None:
            raise ValueError(
                f"{name} must be given, because the folder names none: one of "
                f"{', '.join(sorted(pieces))}"
            )
        if language not in tuple(pieces):
            raise ValueError(
                f"{name} must be one of {', '.join(sorted(pieces))}, got {language!r:.99}"
            )
    source = own.get("source_language", own["target_language"])
    return pieces[source], None if family == SMALL100 else pieces[own["target_language"]]


def _require_ids(folder, settings, table, size, pad, eos):
    """Raises a ValueError if other files of the tokenizer have other pieces, or other ids."""
    for piece, expected in zip((FIRST[1], EOS), (pad, eos), strict=True):
        if table.get(piece) != expected:
            raise ValueError(f"{folder} must have {piece} = {expected}, got {table.get(piece)}")
    if wrong := [piece for piece, n in table.items() if not 0 <= n < size]:
        raise ValueError(
            f"{folder} must have ids below vocab_size = {size:,}, got {table[wrong[0]]:,} for "
            f"{wrong[0]!r}"
        )
    by_id = {}
    for piece, n in table.items():
        if by_id.setdefault(n, piece) != piece:
            raise ValueError(f"{folder} must have each id once, got {by_id[n]!r} and {piece!r}")
    for piece, n in _added(folder, settings).items():
        if table.get(piece, n if piece == MASK else None) != n:
            raise ValueError(
                f"{folder} must have no pieces besides its table and its languages, got "
                f"{piece!r:.99} = {n}"
            )


def _added(folder, settings):
    """{piece: id} of the pieces that files of a tokenizer add to its table."""
    found, path = {}, Path(folder, WHOLE)
    if path.exists():
        rows = read_json_object(path).get("added_tokens") or []
        rows = rows if isinstance(rows, list) else []
        found |= {row.get("content"): row.get("id") for row in rows if isinstance(row, dict)}
    decoded = settings.get("added_tokens_decoder")
    for n, row in (decoded if isinstance(decoded, dict) else {}).items():
        if isinstance(row, dict) and n.isdecimal():
            found[row.get("content")] = int(n)
    path = Path(folder, "added_tokens.json")
    if path.exists():
        found |= read_json_object(path)
    for piece, n in found.items():
        if type(piece) is not str or type(n) is not int:
            raise ValueError(f"{folder} must have an id for each added piece, got {n!r:.99}")
    return found


# The pieces and the languages of each family.


def _of_m2m100(folder, size, pad, eos):
    """The bytes of a SentencePiece model, {piece: id} of vocab.json, and the path of the model."""
    for name in (TABLE, MODEL):
        if not Path(folder, name).exists():
            raise ValueError(f"{folder} must have {name}, got none")
    path = Path(folder, MODEL)
    return read_bytes(path, LONGEST_TEXT), read_table(Path(folder, TABLE), size, pad, eos), path


def _languages_of_m2m100(settings, path, count):
    """{code: id} of the languages, which follow the `count` pieces."""
    kind = settings.get("language_codes", "m2m100")
    known = [name for name in LANGUAGES if name != MBART]
    if kind not in known:
        rule = f"language_codes must be one of {known}"
        raise ValueError(f"{path.with_name(SETTINGS)}: {rule}, got {kind!r:.99}")
    return {f"__{language}__": n for n, language in enumerate(LANGUAGES[kind], count)}


def _of_fairseq(folder):
    """The bytes of a SentencePiece model, {piece: id} with fairseq's special ids, and the path of
    their file."""
    path = Path(folder, MODEL)
    if not path.exists():
        return _from_whole(folder)
    content = read_bytes(path, LONGEST_TEXT)
    pieces = [piece for piece, _ in piece_kinds(content, path)]
    # Fairseq's four special ids are before those of the model, which has three.
    ids = {piece: n for n, piece in enumerate(pieces[3:], len(FIRST))}
    return content, {**ids, **{piece: n for n, piece in enumerate(FIRST)}}, path


def _languages_of_fairseq(folder, settings, table, family):
    """{code: id} of the languages."""
    code = CODES[family]
    found = {piece: n for piece, n in _added(folder, settings).items() if re.fullmatch(code, piece)}
    if found and family == MBART and set(found) != set(LANGUAGES[MBART]):
        count = len(LANGUAGES[MBART])
        raise ValueError(f"{folder} must have the {count} languages of {MBART}, got {len(found)}")
    if found:
        return found
    if family == MBART:
        return {code: n for n, code in enumerate(LANGUAGES[MBART], len(table))}
    path = Path(folder, "special_tokens_map.json")
    more = read_json_object(path) if path.exists() else {}
    for options in (settings, more):
        listed = options.get("additional_special_tokens") or []
        codes = [one for one in listed if isinstance(one, str) and re.fullmatch(code, one)]
        if codes:
            return {code: n for n, code in enumerate(codes, len(table))}
    raise ValueError(
        f"{folder} must name its languages in {WHOLE}, {SETTINGS} or {path.name}, got none"
    )


def _from_whole(folder):
    """As `_of_fairseq`, from tokenizer.json alone."""
    path = Path(folder, WHOLE)
    if not path.exists():
        raise ValueError(f"{folder} must have {MODEL} or {WHOLE}, got none")
    content = sentencepiece_of(read_json_object(path), path)
    return content, {piece: n for n, (piece, _) in enumerate(piece_kinds(content, path))}, path
