"""Produces weights: corpora, input pipeline, recipes, fit and evaluation."""
