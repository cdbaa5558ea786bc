"""The files that hold keys and trusted certificates, in the formats that Kafka takes: PEM, PKCS12 and JKS.

Comes in: the bytes of a file or the text of a setting, and passwords. Goes out: a `KeyEntry` or
`TrustedCertificates`, or a `StoreError` of one line that says what to do. No file is opened here, and no text ever
holds a password.
"""
