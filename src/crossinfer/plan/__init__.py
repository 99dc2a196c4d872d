"""From a graph to what runs where: placement, fusion, kernels, activation memory, explanation."""
