"""Evaluates finished runs: perplexity, scores of labels, reranking."""
