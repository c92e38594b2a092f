"""Turns trained weights into a service: the SavedModel and its verification."""

if __name__ == "export":  # in a checkout
    from tfformer import checkout

    checkout.second_name(__name__)
