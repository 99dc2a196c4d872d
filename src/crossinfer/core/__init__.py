"""Types, errors, settings, cache folders and progress: what every other layer may use."""
