"""What is measured of a trained run: its predictions, its densities, turned images."""
