"""How weights are stored: block formats, GGUF files, safetensors folders."""
