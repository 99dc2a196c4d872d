"""The C interface: `libcrossinfer` for hosts that are not Python (see `native/crossinfer.h`)."""
