"""Megatron-LM's layout strings: which layers each stage of a pipeline holds."""
