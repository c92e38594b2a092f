"""Prepares a training once, before its first step: settings, tokenizer, corpus, weights."""
