"""What ``POST /v1/plans`` is asked: the same as ``dither plan``. Pure."""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dither_protocol import Mechanism, MechanismError, mechanism
from dither_protocol.mechanisms import AUTO, MAX_D, MAX_EPSILON, MIN_EPSILON
from dither_protocol.registry import Registry
from dither_protocol.registry.document import MAX_METRICS
from dither_server.problems import Problem

MAX_BODY_BYTES: Final = 16 << 10
MAX_REPORTS: Final = 10**12
MAX_PLANS: Final = 32
DEFAULT_REPORTS: Final = (1_000, 10_000, 100_000, 1_000_000)

_FIELD: Final = re.compile(r"at `\$\.([a-z_]+)", re.ASCII)

Reports = Annotated[int, Meta(ge=1, le=MAX_REPORTS)]


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the registry, or a mechanism by its numbers; and what to say about it.

    Attributes:
        metric: name of a metric; then neither ``epsilon`` nor ``values``.
        epsilon: privacy loss of one report.
        values: number of values in the domain.
        mechanism: by name.
        one_of: number of metrics like it of which a device answers one per window; a metric has its own group.
        reports: numbers of reports for which to say how exact estimates are; of devices, where one metric of several
            is answered.
        margin: half width of an interval for which to say how many reports it takes; None for none.
        level: of the intervals.
    """

    metric: str | None = None
    epsilon: Annotated[float, Meta(ge=MIN_EPSILON, le=MAX_EPSILON)] | None = None
    values: Annotated[int, Meta(ge=2, le=MAX_D)] | None = None
    mechanism: str = AUTO
    one_of: Annotated[int, Meta(ge=2, le=MAX_METRICS)] | None = None
    reports: Annotated[list[Reports], Meta(min_length=1, max_length=MAX_PLANS)] = msgspec.field(
        default_factory=lambda: list(DEFAULT_REPORTS)
    )
    margin: Annotated[float, Meta(gt=0, lt=1)] | None = None
    level: Annotated[float, Meta(gt=0.5, lt=1)] = 0.95

    def oracle(self, registry: Registry) -> Mechanism:
        """The mechanism that is asked about.

        Raises:
            Problem: plan-invalid, naming the field.
        """
        if self.metric is not None:
            if any(each is not None for each in (self.epsilon, self.values, self.one_of)):
                raise Problem("plan-invalid", "has its own epsilon, values and group", "metric")
            found = registry.metrics.get(self.metric)
            if found is None:
                raise Problem("plan-invalid", "is no metric of the registry", "metric")
            return found.mechanism
        if self.epsilon is None or self.values is None:
            missing = "epsilon" if self.epsilon is None else "values"
            raise Problem("plan-invalid", "is needed where no metric is named", missing)
        try:
            return mechanism(self.mechanism, self.epsilon, self.values)
        except MechanismError as error:
            raise Problem("plan-invalid", str(error), "mechanism") from None

    def group(self, registry: Registry) -> tuple[float, ...]:
        """Epsilons of the metrics of which a device answers one per window; empty where there is no group."""
        if self.metric is None:
            return () if self.epsilon is None or self.one_of is None else (self.epsilon,) * self.one_of
        members = registry.groups.get(registry.metric(self.metric).one_of or "", ())
        return tuple(member.epsilon for member in members)


_decoder: Final = msgspec.json.Decoder(PlanRequest)


def read_plan_request(body: bytes) -> PlanRequest:
    """Read the body. Members that are not known are left alone.

    Raises:
        Problem: malformed-body, naming the member that is not understood; body-too-large.
    """
    if len(body) > MAX_BODY_BYTES:
        raise Problem("body-too-large", f"at most {MAX_BODY_BYTES} bytes are read", "body")
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        raise Problem(
            "malformed-body", "is not of the type or in the range of a plan", found[1] if found else "body"
        ) from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Problem("malformed-body", "is not valid JSON", "body") from None
