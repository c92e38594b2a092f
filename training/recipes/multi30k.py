"""Multi30K, English to German: 29,000 captions of pictures (Elliott et al. 2016).

    python -m training.multi30k data/multi30k
    python -m training.train multi30k --data data/multi30k --run runs/multi30k
"""

from training import multi30k
from training.reader import read_pairs
from training.recipe import Recipe


def pairs(split, data):
    if data is None:
        raise ValueError("the recipe multi30k needs --data FOLDER, where its files are")
    source, target = multi30k.paths(data, "test_2016_flickr" if split == "test" else split)
    return read_pairs(source, target)


RECIPE = Recipe(
    pairs=pairs,
    preset="tiny",
    # Twice the width and three quarters of the depth of the published tiny model (Wu et al. 2021):
    # that one wants some 70 epochs, this one, with 4.9 million parameters, a fourth of them.
    model_changes={
        "num_encoder_layers": 3,
        "num_decoder_layers": 3,
        "d_model": 256,
        "d_ff": 512,
        "dropout": 0.2,
    },
    # Half of the usual 8,000: with 29,000 pairs a rarer piece is seen too seldom to be learned,
    # and the output softmax is a large part of a small model's work.
    vocabulary_size=3800,
    max_tokens=96,
    # About 100 pairs: small batches make the most of few epochs.
    batch_tokens=2048,
    epochs=15,
    # A peak of 0.001 behind 3 epochs; the second half of the training falls to zero.
    warmup_steps=1000,
    learning_rate_scale=0.5,
    cooldown=0.5,
    average=4,
)
