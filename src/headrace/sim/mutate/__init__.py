"""Small changes of the pure packages, to see which of them no test and no simulation notices.

`mutations` lists them, `trial` tries one, `ledger` keeps what came of each, and `command` is
`python -m headrace.sim mutate`. A change that nothing notices is a hole in the tests, or it changes nothing that can be
seen; a person decides which.
"""
