"""Training: corpora, input pipeline, recipes, fit and evaluation."""

if __name__ == "training":  # in a checkout
    from tfformer import checkout

    checkout.second_name(__name__)
