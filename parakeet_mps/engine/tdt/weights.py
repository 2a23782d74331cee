"""The weights of NeMo's joint and prediction network, arranged for decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from nemo.collections.asr.modules.rnnt import RNNTDecoder, RNNTJoint
from torch import nn

MULTIPLE = 16
"""Hidden sizes are multiples of this, so that matrix products need no masks."""


@dataclass(frozen=True)
class LstmLayer:
    """One LSTM layer above the first: gates are `below` W_in' + h W' + bias, in PyTorch's order i, f, g, o."""

    inward: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True)
class Weights:
    """All of it on one device; weights in the dtype of the model's parts, biases in fp32.

    `table` fp32 [vocabulary + 1, 4 x hidden] holds what each token, the last being the blank, gives the first LSTM
    layer's gates; `first` [4 x hidden, hidden] is that layer's recurrent weight. `join` is [tokens + 1 + durations,
    joint], `predict` [joint, hidden], `project` [joint, channels]. `durations` int32 [durations].
    """

    table: torch.Tensor
    first: torch.Tensor
    layers: tuple[LstmLayer, ...]
    predict: torch.Tensor
    predict_bias: torch.Tensor
    project: torch.Tensor
    project_bias: torch.Tensor
    join: torch.Tensor
    join_bias: torch.Tensor
    durations: torch.Tensor
    max_symbols: int

    @property
    def blank(self) -> int:
        """The blank's number, one more than the last token's."""
        return len(self.table) - 1

    @property
    def hidden(self) -> int:
        """Size of the prediction network's states."""
        return self.first.shape[1]

    @property
    def joint(self) -> int:
        """Size of the joint network."""
        return self.join.shape[1]


def find_obstacle(model: Any) -> str | None:
    """Return why this package cannot decode for a NeMo model, or `None`."""
    decoder, joint = model.decoder, model.joint
    if type(decoder) is not RNNTDecoder or type(joint) is not RNNTJoint or not decoder.blank_as_pad:
        return f"it has a {type(decoder).__name__} and a {type(joint).__name__}"
    if decoder.is_adapter_available() or joint.is_adapter_available():
        return "it has adapters"
    if not isinstance(joint.joint_net[0], nn.ReLU):
        return f"its joint uses {type(joint.joint_net[0]).__name__}"
    lstm = getattr(decoder.prediction["dec_rnn"], "lstm", None)
    if not isinstance(lstm, nn.LSTM) or lstm.proj_size:
        return "its prediction network is no plain LSTM"
    if lstm.hidden_size % MULTIPLE or joint.joint_net[-1].in_features % MULTIPLE:
        return f"its sizes are no multiples of {MULTIPLE}"
    return None


@torch.inference_mode()
def read_weights(model: Any, dtype: torch.dtype) -> Weights:
    """Return the weights of a model without an obstacle, in `dtype`."""
    lstm, joint = model.decoder.prediction["dec_rnn"].lstm, model.joint
    computer = model.decoding.decoding.decoding_computer
    embedding = model.decoder.prediction["embed"].weight.float()
    last = joint.joint_net[-1]
    return Weights(
        table=(
            embedding @ lstm.weight_ih_l0.float().T + lstm.bias_ih_l0.float() + lstm.bias_hh_l0.float()
        ).contiguous(),
        first=lstm.weight_hh_l0.to(dtype).contiguous(),
        layers=tuple(_layer(lstm, number, dtype) for number in range(1, lstm.num_layers)),
        predict=joint.pred.weight.to(dtype).contiguous(),
        predict_bias=joint.pred.bias.float(),
        project=joint.enc.weight.to(dtype).contiguous(),
        project_bias=joint.enc.bias.to(dtype),
        join=last.weight.to(dtype).contiguous(),
        join_bias=last.bias.float(),
        durations=computer.durations.to(last.weight.device, torch.int32),
        max_symbols=computer.max_symbols or 10,
    )


def _layer(lstm: nn.LSTM, number: int, dtype: torch.dtype) -> LstmLayer:
    inward, weight, bias_in, bias = lstm.all_weights[number]
    return LstmLayer(inward.to(dtype).contiguous(), weight.to(dtype).contiguous(), bias_in.float() + bias.float())
