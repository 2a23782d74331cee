"""The recogniser: waveforms in, recognitions out. Nothing here knows Triton or HTTP."""
