"""Where an iteration of the training loop begins and ends, and whether iterations have a period.
What happens within an iteration is for `record` and `estimate`.
"""
