"""GPU kernels: Triton for every card, CUDA for Hopper. Slots are int32, addresses 64-bit.

`TRITON_INTERPRET=1`, set before this is imported, runs the Triton ones on the CPU.
"""
