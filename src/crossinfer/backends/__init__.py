"""One package a backend; none imports another. `hal.registry` names them."""
