"""What only real GPUs can show: `pytest -m gpu` on a machine that has them; elsewhere deselected and counted so."""
