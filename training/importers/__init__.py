"""Readers for models of other systems (Marian, OpenNMT-tf), which need not be installed."""
