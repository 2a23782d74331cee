"""The FastConformer encoder, computed from NeMo's weights by plain code that a CUDA graph can hold."""
