"""Which of NeMo's encoders this package computes. The others run through NeMo's own code."""

from __future__ import annotations

from typing import Any

from nemo.collections.asr.modules.conformer_encoder import ConformerEncoder
from nemo.collections.asr.parts.submodules.subsampling import ConvSubsampling
from torch import nn


def find_obstacle(encoder: Any) -> str | None:
    """Return why `Encoder` cannot stand in for a `nemo...ConformerEncoder`, or `None`."""
    if type(encoder) is not ConformerEncoder:
        return f"the encoder is a {type(encoder).__name__}"
    return _find_context(encoder) or _find_subsampling(encoder.pre_encode) or _find_layer(encoder.layers[0])


def _find_context(encoder: Any) -> str | None:
    if encoder.self_attention_model != "rel_pos":
        return f"its attention is {encoder.self_attention_model}"
    if encoder.att_context_style != "regular" or list(encoder.att_context_size) != [-1, -1]:
        return f"its attention is limited to {encoder.att_context_size} ({encoder.att_context_style})"
    if encoder.reduction_position is not None or encoder.out_proj is not None:
        return "it reduces or projects its output"
    return None


def _find_subsampling(module: Any) -> str | None:
    if not isinstance(module, ConvSubsampling) or module._subsampling != "dw_striding" or module.is_causal:
        return f"its subsampling is {getattr(module, '_subsampling', type(module).__name__)}"
    if not isinstance(module.conv[1], nn.ReLU):
        return f"its subsampling uses {type(module.conv[1]).__name__}"
    return None


def _find_layer(layer: Any) -> str | None:
    convolution = layer.conv
    if type(convolution.batch_norm) is not nn.BatchNorm1d or convolution.batch_norm.training:
        return f"its convolutions are normalised by {convolution.norm_type}"
    if convolution.pointwise_activation != "glu_":
        return "its convolutions are not gated"
    if convolution.depthwise_conv._left_padding != convolution.depthwise_conv._right_padding:
        return "its convolutions look further to one side"
    return "it has adapters" if layer.is_adapter_available() else None
