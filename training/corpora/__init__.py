"""What the corpora that are made from a seed share."""
