"""Exports trained models: writes, verifies and serves SavedModels."""

if __name__ == "export":  # in a checkout
    from tfformer import checkout

    checkout.second_name(__name__)
