"""The same work in PyTorch and here, timed in one process; see README.md."""
