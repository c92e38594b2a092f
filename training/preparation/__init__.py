"""What a training writes once, before its first step: settings, tokenizer, corpus, weights."""
