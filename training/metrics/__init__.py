"""Scores of translations (BLEU, chrF) and of labels (accuracy, F1)."""
