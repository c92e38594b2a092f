"""Scores of translations (BLEU, chrF) and of labels (precision, recall, F1)."""
