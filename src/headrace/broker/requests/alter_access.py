"""Who may see or alter the configuration of what, and the altering itself, for both APIs that do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.controller import Asker, ControllerError
from headrace.broker.quorum.local_controller import AskerAccess
from headrace.controller.configs import Alteration
from headrace.controller.context import ApiError
from headrace.controller.requests import AlterConfigs
from headrace.security.authorizer import Operation
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


def config_access(context: RequestContext, operation: Operation, resource_type: int, name: str) -> ErrorCode:
    """NONE where the client may do the operation to a resource's configuration, or the code that says it may not."""
    asker = Asker(context.principal, context.client_host)
    return AskerAccess(context.authorizer, asker).of_configs(operation, resource_type, name)


async def alter(
    broker: Services, alterations: Sequence[Alteration], context: RequestContext, *, validate_only: bool
) -> list[ApiError]:
    """Decides and commits alterations of stored configurations: a result for each, in order."""
    asker = Asker(context.principal, context.client_host)
    try:
        return await broker.controller.ask(AlterConfigs(alterations, validate_only), asker)
    except ControllerError as error:
        return [ApiError(error.code, str(error))] * len(alterations)
