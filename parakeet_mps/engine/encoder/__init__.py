"""The FastConformer encoder, computed from NeMo's weights by code, plain or kernels, that a CUDA graph can hold."""
