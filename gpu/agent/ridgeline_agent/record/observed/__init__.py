"""The `observed` section of the manifest, one fact a module: evaluations, padding, recompilations,
the GPU's state and so on. `collector` puts them together.
"""
