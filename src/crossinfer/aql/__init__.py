"""AQL: packets, ring, doorbell and signals of the HSA specification, for any agent.

Nothing here knows who processes the packets. Sources: HSA Platform System Architecture
Specification 1.2, sections 2.8 (user mode queuing) and 2.9 (packets); the layout of signals is that
of ROCr's `amd_signal_t`.
"""
