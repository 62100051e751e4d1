"""Replaced functions of torch, for runs that record a trajectory."""
