"""What the commands compute with a finished run: perplexity, scores of labels, reranking."""
