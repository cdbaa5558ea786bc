"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a client shows a JSON Web Token, and the server checks it.

Comes in: a client's messages, the keys of the issuers of tokens, and the time. Goes out: who the client is, until when,
or why it is refused; and when an unknown key is a reason to fetch the keys again. Nobody is asked over a network here,
and no text and no value ever holds a token.
"""
