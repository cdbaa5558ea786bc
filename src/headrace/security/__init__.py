"""Who somebody is, and who may do what. Pure: values in, answers out.

`sasl.py` is a server's side of a login on one connection; `plain.py` and `scram.py` are the mechanisms, both sides,
`login.py` their interface to SASL, `mechanisms.py` what a listener can offer; `jaas.py` reads the line
that holds names and passwords. `authorizer.py` says who may do what.
"""
