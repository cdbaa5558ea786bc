"""The names of Kerberos' settings."""

from __future__ import annotations

from typing import Final

KERBEROS_SERVICE: Final = "sasl.kerberos.service.name"
KERBEROS_RULES: Final = "sasl.kerberos.principal.to.local.rules"
