"""Train ECG language models under several frameworks and measure how the training scales."""

__version__ = "0.1.0"
