"""The command line. Modules here import the engine within functions, so that help is quick."""
