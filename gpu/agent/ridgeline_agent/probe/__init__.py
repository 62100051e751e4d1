"""Probes: single operators and optimizers, timed in several variants, without workspace code."""
