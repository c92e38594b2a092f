"""The arguments of a translator: errors name the wrong one."""

import pytest
from words import make_model

from tfformer import Tokenizer, Translator


@pytest.mark.parametrize(
    "options, message",
    [
        ({"beam_width": 0}, r"beam_width must be in \[1, 64\], got 0"),
        ({"beam_width": 65}, r"beam_width must be in \[1, 64\], got 65"),
        ({"length_penalty": -1}, r"length_penalty must be in \[0, 10\], got -1"),
        ({"length_penalty_form": "wu"}, "length_penalty_form must be one of .* got 'wu'"),
        ({"max_source_length": 1}, "max_source_length must be in .* got 1"),
        ({"max_target_length": 0}, "max_target_length must be in .* got 0"),
    ],
)
def test_error_names_a_wrong_argument(model, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        Translator(model, tokenizer, **options)


def test_a_limit_over_the_learned_positions_is_refused(tokenizer):
    model = make_model(tokenizer, positions="learned", max_positions=19)
    Translator(model, tokenizer, max_source_length=19, max_target_length=19)
    for name in ("max_source_length", "max_target_length"):
        limits = {"max_source_length": 19, "max_target_length": 19, name: 20}
        with pytest.raises(ValueError, match=rf"{name} must be in \[2, 19\], got 20"):
            Translator(model, tokenizer, **limits)


def test_a_tokenizer_of_another_size_is_refused(model, tokenizer):
    swapped = Tokenizer(tokenizer.target_model, tokenizer.source_model)
    with pytest.raises(ValueError, match="tokenizer must have the model's numbers of ids"):
        Translator(model, swapped)
