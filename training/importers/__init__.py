"""Readers for models of Hugging Face and OpenNMT-tf, which need not be installed."""
