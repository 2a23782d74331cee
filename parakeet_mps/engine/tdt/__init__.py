"""Greedy TDT decoding with few kernels a step: a token-and-duration transducer's joint and prediction network.

https://arxiv.org/abs/2304.06795. One step evaluates the joint once for every utterance, writes down the tokens found,
moves each utterance on in time, and advances the prediction network of those that found one.
"""
