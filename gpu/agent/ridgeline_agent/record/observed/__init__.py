"""The `observed` section of the manifest, one module per fact: evaluations, padding,
recompilations, the GPU's state and so on. `collector` combines them.
"""
