"""Replaced functions of torch and the standard library that both measured runs and estimates need.
Those that one of them needs are in its own package. A replaced function passes calls through.
"""
