"""The losses and gradients of a program's first steps."""
