"""Builds a listener's Kerberos mechanism from its settings: service name, keytab and principal mapping rules.

Source: KIP-12, KIP-190; Java's Krb5LoginModule for the options of the JAAS line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.kerberos import LoginContext, kerberos_module, library, service_of
from headrace.config import ConfigError
from headrace.config.kerberos import KERBEROS_RULES, KERBEROS_SERVICE
from headrace.security.gssapi import Context, GssapiMechanism
from headrace.security.kerberos_names import parsed
from headrace.security.kerberos_options import KerberosOptionsError, kerberos_options
from headrace.security.principal_rules import PrincipalRulesError

if TYPE_CHECKING:
    from headrace.config.listener import MechanismConfig


def kerberos_mechanism(config: MechanismConfig) -> GssapiMechanism:
    """Returns the mechanism. Raises ConfigError if the extra is not installed, the keytab has no key of the principal,
    or a rule is malformed."""
    found = library("sasl.enabled.mechanisms")
    jaas_setting = f"{config.prefix}sasl.jaas.config"
    module = kerberos_module(config.sasl_jaas_config, jaas_setting)
    service_of(module, config.text(KERBEROS_SERVICE))
    try:
        options = kerberos_options(module, accepts=True)
    except KerberosOptionsError as error:
        raise ConfigError(jaas_setting, "(hidden)", str(error)) from None
    try:
        acceptor = found.Acceptor(options.principal, options.keytab)
    except found.KerberosError as error:
        why = f"the keytab {options.keytab} cannot be used for {options.principal}: {error}"
        raise ConfigError(jaas_setting, "(hidden)", why) from None
    rules = config.names(KERBEROS_RULES)
    try:
        mapping = parsed(rules, found.default_realm())
    except PrincipalRulesError as error:
        raise ConfigError(KERBEROS_RULES, ",".join(rules), str(error)) from None

    def context() -> Context:
        return LoginContext(acceptor.begin(), found.KerberosError)

    return GssapiMechanism(context, mapping, config.connections_max_reauth_ms)
