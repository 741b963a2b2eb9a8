"""Kernels of models that train or fit without gradients."""
