"""The kernel builder over llvmlite, and the compiler of what it builds."""
