"""What must match besides tokens for two prompts to share."""

from dataclasses import dataclass, fields

from radixkv.errors import InvalidNamespaceError

MAX_WEIGHT_VERSION = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Namespace:
    """A tagged tuple, compared field by field and never joined; None and "" differ.

    salt: of the tenant, set by a party the tenants cannot impersonate.
    adapter: LoRA or other adapter. extra_key: whatever else the engine keeps apart.
    weight_version: 0 to 2**64 - 1; 0 stands for the present weights in `PrefixCache`.
    Raises InvalidNamespaceError for a field of another type.

    >>> Namespace(salt="ab", adapter="c") == Namespace(salt="a", adapter="bc")
    False
    """

    salt: str | None = None
    adapter: str | None = None
    extra_key: str | None = None
    weight_version: int = 0

    def __post_init__(self) -> None:
        for field in fields(self)[:3]:
            value = getattr(self, field.name)
            if value is not None and not isinstance(value, str):
                raise InvalidNamespaceError(
                    f"namespace {field.name} must be a str or None; got {value!r}",
                    field=field.name,
                )
        version = self.weight_version
        if type(version) is not int or not 0 <= version <= MAX_WEIGHT_VERSION:
            raise InvalidNamespaceError(
                f"weight_version must be an int from 0 to 2**64 - 1; got {version!r}",
                field="weight_version",
            )


DEFAULT = Namespace()


def check_namespace(value: object) -> None:
    """Raises InvalidNamespaceError for anything but a `Namespace`."""
    if not isinstance(value, Namespace):
        raise InvalidNamespaceError(f"namespace must be a radixkv.Namespace; got {value!r}")
