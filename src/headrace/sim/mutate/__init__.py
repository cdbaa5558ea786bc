"""Small changes of the pure packages, to find those that no test and no simulation notices.

`mutations` lists them, `trial` tries one, `ledger` keeps the results, and `command` is `python -m headrace.sim mutate`.
A change that nothing notices is a gap in the tests, or has no visible effect; a person decides which.
"""
