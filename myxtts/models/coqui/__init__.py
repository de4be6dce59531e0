"""Weights of Coqui's XTTS v2 under our names: a safe reader of its files, and one pure mapping for each part."""
